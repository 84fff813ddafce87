# SPDX-License-Identifier: MIT
"""Norms of a sum, ``x + residual``, with or without a gate: autograd Functions around the operators ``_add_norm...``.

As in _torch_autograd, AddNorm is the quick one of eager mode, TracedAddNorm is for Dynamo, and ForwardAddNorm adds derivatives in
forward mode.
"""
from __future__ import annotations

import torch
from torch.autograd import forward_ad as _forward_ad

from ._options import OUT
from ._torch_autograd import alive, another, bias_flags_of, differentiable_backward, differentiated_again, gradients_of, tangent
from ._torch_fakes import WANT_DBIAS, WANT_DGATE, WANT_DRESIDUAL, WANT_DWEIGHT, WANT_DX, result_dtype
from ._torch_gates import check_gate, differentiable_gradients, gated_tangent, needed_bias

_add_norm = torch.ops.rmsnorm._add_norm.default
_add_norm_stats = torch.ops.rmsnorm._add_norm_stats.default
_add_norm_backward = torch.ops.rmsnorm._add_norm_backward.default
_functorch_level = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)


def _differentiable(ctx, dy, dsum, wanted):
    """The gradients in plain torch operations, for second derivatives."""
    total, gate, weight, bias, _ = ctx.saved_tensors
    if gate is None:
        dgate, (dx, *rows) = None, differentiable_backward(dy, total, weight, ctx.options, dtype=ctx.dtype)
    else:
        dx, dgate, *rows = differentiable_gradients(dy, total, gate, weight, bias, ctx.options)
        dgate = dgate.to(ctx.dtype)
    if dsum is not None:
        dx = dx + dsum.to(dx.dtype)
    return dx.to(ctx.dtype), dx.to(total.dtype), dgate, *gradients_of(*rows, ctx.dtype, weight, wanted)


def _gradients(ctx, dy, dsum):
    """Of x, residual, gate, weight and bias."""
    needed = ctx.needs_input_grad[:5]
    need_x, need_residual = needed[:2]
    if dy is None:  # only the sum was used
        if dsum is None:
            return (None,) * 5
        return dsum.to(ctx.dtype) if need_x else None, dsum if need_residual else None, None, None, None
    total, gate, weight, bias, stats = ctx.saved_tensors
    wider = total.dtype is not ctx.dtype
    wants = (WANT_DX, WANT_DRESIDUAL if wider else WANT_DX, WANT_DGATE, WANT_DWEIGHT, WANT_DBIAS)
    wanted = ctx.bias_flags
    for want, need in zip(wants, needed):
        wanted |= want if need else 0
    if ctx.options[4] >= OUT:
        wanted |= WANT_DX  # its type tells the library that the sum is not one in float32 beside 16-bit data
    if differentiated_again():
        dx, dresidual, *others = _differentiable(ctx, dy, dsum, wanted)
    else:
        dx, dresidual, *others = _add_norm_backward(dy, total, dsum, gate, bias, weight, stats, wanted, *ctx.options)
    found = (dx, dresidual if wider else dx, *others)
    return (g if need else None for g, need in zip(found, needed))


class AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, gate, weight, bias, options):
        y, total, stats = _add_norm_stats(x, residual, gate, weight, bias, *options)
        ctx.save_for_backward(total, gate, weight, needed_bias(bias, options), stats)
        ctx.options, ctx.bias_flags, ctx.dtype = options, bias_flags_of(bias), x.dtype
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    def backward(ctx, dy, dsum):
        return *_gradients(ctx, dy, dsum), None


class TracedAddNorm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, residual, gate, weight, bias, eps, weight_offset, partial, groups, mode, indices):
        return _add_norm_stats(x, residual, gate, weight, bias, eps, weight_offset, partial, groups, mode, indices)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, residual, gate, weight, bias, *options = inputs
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(output[1], gate, weight, needed_bias(bias, options), output[2])
        ctx.options, ctx.bias_flags, ctx.dtype = tuple(options), bias_flags_of(bias), x.dtype

    @staticmethod
    def backward(ctx, dy, dsum, _):
        return *_gradients(ctx, dy, dsum), None, None, None, None, None, None


class ForwardAddNorm(TracedAddNorm):
    @staticmethod
    def setup_context(ctx, inputs, output):
        TracedAddNorm.setup_context(ctx, inputs, output)
        x, residual, gate, weight, bias, *options = inputs
        ctx.save_for_forward(output[1], gate, weight, needed_bias(bias, options), output[2])
        ctx.result_dtype = result_dtype(x, options[4])

    @staticmethod
    def jvp(ctx, dx, dresidual, dgate, dweight, dbias, *options):
        total, gate, weight, bias, _ = ctx.saved_tensors
        dsum = torch.zeros_like(total)
        for part in (dx, dresidual):
            dsum = dsum if part is None else dsum + part.to(total.dtype)
        if gate is None:
            return tangent(total, dsum, weight, dweight, dbias, ctx.result_dtype, ctx.options), dsum, None
        directions = (dsum, dgate, dweight, dbias)
        return gated_tangent(total, gate, weight, bias, directions, ctx.result_dtype, ctx.options), dsum, None


# Function.apply without its part in Python, which takes 4 microseconds to find out whether functorch is active.
_apply = super(torch.autograd.Function, AddNorm).apply


def _check_gradients(x, residual, mode):
    """What a backward could not tell from a sum of x's dtype."""
    if mode >= OUT and residual.dtype is not x.dtype:
        raise ValueError(f"out_dtype has no gradients where residual has another dtype ({residual.dtype}) than x ({x.dtype})")


def run(x, residual, gate, weight, bias, *options):
    """options: eps, weight_offset, partial, groups, mode, indices."""
    if gate is not None:
        check_gate(gate)
    forward_mode = _forward_ad._current_level >= 0
    if torch.is_grad_enabled() or forward_mode:
        transformed = forward_mode or _functorch_level() is not None
        tensors = (x, residual, gate, weight, bias)
        if transformed or any(t is not None and t.requires_grad for t in tensors):
            _check_gradients(x, residual, options[4])
            if not (transformed or torch.compiler.is_dynamo_compiling()):
                return _apply(*map(alive, tensors), options)
            function = TracedAddNorm if torch.compiler.is_dynamo_compiling() else ForwardAddNorm
            residual, bias = another(residual, x), another(bias, weight)
            gate = another(another(gate, x), tensors[1])
            return function.apply(x, residual, gate, weight, bias, *options)[:2]
    return _add_norm(x, residual, gate, weight, bias, *options)
