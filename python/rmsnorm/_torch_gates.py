# SPDX-License-Identifier: MIT
"""Norms with a gate: autograd Functions around the operators ``_gated_norm...``, and which of them a call needs.

As in _torch_autograd, GatedNorm is the quick one of eager mode, TracedGatedNorm is for Dynamo, and ForwardGatedNorm adds derivatives in
forward mode.
"""
from __future__ import annotations

import torch
from torch.autograd import forward_ad as _forward_ad

from ._options import GATE_AFTER, GATE_BEFORE, OUT, SIGMOID
from ._torch_autograd import alive, another, bias_flags_of, differentiable_backward, differentiated_again, gradients_of
from ._torch_autograd import gain, rounded, statistic, tangent
from ._torch_fakes import WANT_DBIAS, WANT_DGATE, WANT_DWEIGHT, WANT_DX, data_dtype, result_dtype

_gated_norm = torch.ops.rmsnorm._gated_norm.default
_gated_norm_stats = torch.ops.rmsnorm._gated_norm_stats.default
_gated_norm_backward = torch.ops.rmsnorm._gated_norm_backward.default
# What the operators' __call__ calls: quicker, and unknown to Dynamo.
_gated_norm_stats_builtin, _gated_norm_backward_builtin = _gated_norm_stats._op, _gated_norm_backward._op
_functorch_level = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)


# ---- the formulas in plain torch operations, for second derivatives and those in forward mode ----


def _wide(t):
    return t.to(torch.float64 if t.dtype == torch.float64 else torch.float32)


def _activation(gate, mode):
    """act(z) and its derivative."""
    z = _wide(gate)
    s = torch.sigmoid(z)
    return (s, s * (1 - s)) if mode & SIGMOID else (z * s, s * (1 + z * (1 - s)))


def _product_dtype(dtype, weight, bias):
    """What products with the weight are rounded to where the norm is rounded before the weight. dtype: that of the data."""
    parameter = bias if weight is None else weight
    return dtype if parameter is None else parameter.dtype


def _ungated(x, weight, bias, dtype, options):
    """What the gate after a norm meets, in the wide type. dtype: that of the data, which x may be wider than."""
    e, r, _ = statistic(x, options)
    m, dtype = rounded((e * r).reshape(x.shape), dtype, options), _product_dtype(dtype, weight, bias)
    if weight is not None:
        m = rounded(m * gain(weight, e.dtype, options), dtype, options)
    return m if bias is None else rounded(m + bias.to(e.dtype), dtype, options)


def differentiable_gradients(dy, x, gate, weight, bias, options):
    """dx, dgate, and dweight and dbias of every row."""
    a, slope = _activation(gate, options[4])
    dtype = data_dtype(x, dy, options[4])
    if options[4] & GATE_BEFORE:
        d, dw, db = differentiable_backward(dy, _wide(x) * a, weight, options, dtype=dtype)
        return d * a, d * _wide(x) * slope, dw, db
    d = _wide(dy)
    dm = rounded(d * a, _product_dtype(dtype, weight, bias), options)
    dx, dw, db = differentiable_backward(dm, x, weight, options, dtype=dtype)
    return dx, d * _ungated(x, weight, bias, dtype, options) * slope, dw, db


def gated_tangent(x, gate, weight, bias, directions, dtype, options):
    """The derivative, in dtype, along (dx, dgate, dweight, dbias), each of which may be None."""
    dx, dgate, dweight, dbias = directions
    a, slope = _activation(gate, options[4])
    da = torch.zeros_like(a) if dgate is None else _wide(dgate) * slope
    if options[4] & GATE_BEFORE:
        du = _wide(x) * da if dx is None else _wide(x) * da + _wide(dx) * a
        return tangent(_wide(x) * a, du, weight, dweight, dbias, dtype, options)
    dm = tangent(x, dx, weight, dweight, dbias, a.dtype, options)
    return (dm * a + _ungated(x, weight, bias, gate.dtype, options) * da).to(dtype)


# ---- the Functions ----


def _gradients(ctx, dy, backward):
    x, gate, weight, bias, stats = ctx.saved_tensors
    needed = ctx.needs_input_grad[:4]
    wants = (WANT_DX, WANT_DGATE, WANT_DWEIGHT, WANT_DBIAS)
    wanted = ctx.bias_flags | sum(want for want, need in zip(wants, needed) if need)
    if ctx.options[4] >= OUT:
        wanted |= WANT_DX  # its type tells the library that x is not a sum in float32
    if differentiated_again():
        dx, dgate, *rows = differentiable_gradients(dy, x, gate, weight, bias, ctx.options)
        found = (dx.to(x.dtype), dgate.to(x.dtype), *gradients_of(*rows, x.dtype, weight, wanted))
    else:
        found = backward(dy, x, gate, bias, weight, stats, wanted, *ctx.options)
    return (g if need else None for g, need in zip(found, needed))


def needed_bias(bias, options):
    """The bias if the gradients depend on it: where the gate meets the finished norm."""
    return bias if options[4] & GATE_AFTER else None


class GatedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gate, weight, bias, options):
        y, stats = _gated_norm_stats_builtin(x, gate, weight, bias, *options)
        ctx.save_for_backward(x, gate, weight, needed_bias(bias, options), stats)
        ctx.options, ctx.bias_flags = options, bias_flags_of(bias)
        return y

    @staticmethod
    def backward(ctx, dy):
        return *_gradients(ctx, dy, _gated_norm_backward_builtin), None


class TracedGatedNorm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, gate, weight, bias, eps, weight_offset, partial, groups, mode, indices):
        return _gated_norm_stats(x, gate, weight, bias, eps, weight_offset, partial, groups, mode, indices)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, gate, weight, bias, *options = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.options, ctx.bias_flags = tuple(options), bias_flags_of(bias)
        ctx.save_for_backward(x, gate, weight, needed_bias(bias, options), output[1])

    @staticmethod
    def backward(ctx, dy, _):
        return *_gradients(ctx, dy, _gated_norm_backward), None, None, None, None, None, None


class ForwardGatedNorm(TracedGatedNorm):
    @staticmethod
    def setup_context(ctx, inputs, output):
        TracedGatedNorm.setup_context(ctx, inputs, output)
        x, gate, weight, bias, *options = inputs
        ctx.save_for_forward(x, gate, weight, needed_bias(bias, options), output[1])

    @staticmethod
    def jvp(ctx, dx, dgate, dweight, dbias, *options):
        x, gate, weight, bias, _ = ctx.saved_tensors
        dtype = result_dtype(x, ctx.options[4])
        return gated_tangent(x, gate, weight, bias, (dx, dgate, dweight, dbias), dtype, ctx.options), None


# Function.apply without its part in Python, which takes 4 microseconds to find out whether functorch is active.
_apply = super(torch.autograd.Function, GatedNorm).apply


def check_gate(gate) -> None:
    if not isinstance(gate, torch.Tensor):
        raise TypeError(f"gate must be a tensor, not {type(gate).__name__}")


def run(x, gate, weight, bias, *options):
    """options: eps, weight_offset, partial, groups, mode, indices."""
    check_gate(gate)
    forward_mode = _forward_ad._current_level >= 0
    if torch.is_grad_enabled() or forward_mode:
        transformed = forward_mode or _functorch_level() is not None
        if transformed or any(t is not None and t.requires_grad for t in (x, gate, weight, bias)):
            if not (transformed or torch.compiler.is_dynamo_compiling()):
                return _apply(alive(x), alive(gate), alive(weight), alive(bias), options)
            function = TracedGatedNorm if torch.compiler.is_dynamo_compiling() else ForwardGatedNorm
            return function.apply(x, another(gate, x), weight, another(bias, weight), *options)[0]
    return _gated_norm(x, gate, weight, bias, *options)
