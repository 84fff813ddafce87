# SPDX-License-Identifier: MIT
"""Gradients: autograd Functions around the operators, in the styles that torch knows.

Norm has the context in forward and takes the options as one tuple, without those at its end that have their defaults, which is
quicker in eager mode: every argument costs. TracedNorm has setup_context and plain arguments, for Dynamo. ForwardNorm adds what
Dynamo refuses: derivatives in forward mode, for functorch (vmap, torch.func) and torch.autograd.forward_ad. _torch_gates,
_torch_add and _torch_stats have the same for norms with a gate, of a sum, and for statistics alone.
"""
from __future__ import annotations

import torch

from . import _torch_ops  # noqa: F401, defines the operators
from ._options import BEFORE_WEIGHT, DEFAULTS, EPS_CLAMP, EPS_OUTSIDE, GAIN_AS_WEIGHT, LAYER, OUT
from ._torch_fakes import BIAS_F32, BIAS_PER_HEAD, WANT_DBIAS, WANT_DWEIGHT, WANT_DX, data_dtype, result_dtype

_norm_stats = torch.ops.rmsnorm._norm_stats.default
_norm_backward = torch.ops.rmsnorm._norm_backward.default
# What the operators' __call__ calls: quicker, and unknown to Dynamo.
_norm_stats_builtin, _norm_backward_builtin = _norm_stats._op, _norm_backward._op


def bias_flags_of(bias):
    if bias is None:
        return 0
    return (BIAS_F32 if bias.dtype is torch.float32 else 0) | (BIAS_PER_HEAD if bias.dim() == 2 else 0)


def grouped(x, options):
    """x in the wide type, as (leading dimensions, groups, width)."""
    groups = options[3] if options[3] > 1 else 1
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x.to(wide).reshape(*x.shape[:-1], groups, x.shape[-1] // groups)


def members_of(t, options):
    """The elements of each group that enter the statistic."""
    partial, indices = options[2], options[5]
    if indices is not None:
        return t.index_select(-1, indices)
    return t[..., : max(partial, 0)] if partial else t


def scattered(t, width, options):
    """The inverse: those elements in their places, and zeros."""
    indices = options[5]
    if indices is not None:
        return torch.zeros(*t.shape[:-1], width, dtype=t.dtype, device=t.device).index_copy(-1, indices, t)
    return torch.nn.functional.pad(t, (0, width - t.shape[-1]))


class Whole:
    """Sums and means of rows that one process holds whole."""

    @staticmethod
    def sum(t):
        return t.sum(-1, keepdim=True)

    @staticmethod
    def mean(t):
        return t.mean(-1, keepdim=True)

    @staticmethod
    def count(t):
        return t.shape[-1]


def statistic(x, options, rows=Whole):
    """e, the elements less their mean in LayerNorm; r; and c with dr = -c * k * mean(e * de) over the statistic's elements."""
    eps, mode = options[0], options[4]
    a = grouped(x, options)
    e = a - rows.mean(a) if mode & LAYER else a
    members = members_of(e, options)
    k, s = rows.count(members), rows.mean(members.square())
    if mode & EPS_OUTSIDE:
        root = s.sqrt()
        r = 1 / (root + eps)
        return e, r, r * r / (k * root)
    if mode & EPS_CLAMP:
        root = s.sqrt()
        r = 1 / root.clamp_min(eps)
        return e, r, torch.where(root < eps, 0, r * r * r / k)
    r = (s + eps).rsqrt()
    return e, r, r * r * r / k


def rounded(t, dtype, options):
    return t.to(dtype).to(t.dtype) if options[4] & BEFORE_WEIGHT else t


def gain(weight, wide, options):
    """What the norm is multiplied by, in the wide type."""
    g = weight.to(wide) + options[1]
    return g.to(weight.dtype).to(wide) if options[4] & GAIN_AS_WEIGHT else g


def differentiable_backward(dy, x, weight, options, rows=Whole, dtype=None):
    """The gradients in plain torch operations, for second derivatives: dx, and dweight and dbias of every row.

    dtype: that of the data, where it is not dy's.
    """
    options = (*options, *DEFAULTS[len(options) - 1 :])
    dtype = data_dtype(x, dy, options[4]) if dtype is None else dtype
    e, r, c = statistic(x, options, rows)
    d = dy.to(e.dtype)
    h = rounded((e * r).reshape(x.shape), dtype, options)
    u = d if weight is None else d * gain(weight, e.dtype, options)
    u = rounded(u, dtype, options).reshape(e.shape)
    along = members_of(e, options) * (rows.sum(u * e) * c)
    dx = u * r - scattered(along, e.shape[-1], options)
    if options[4] & LAYER:
        dx = dx - rows.mean(dx)
    return dx.reshape(x.shape), d * h, d


def tangent(x, dx, weight, dweight, dbias, dtype, options):
    """The derivative of the norm along (dx, dweight, dbias), each of which may be None, in plain torch operations."""
    e, r, c = statistic(x, options)
    dy = torch.zeros_like(x, dtype=e.dtype)
    g = None if weight is None else gain(weight, e.dtype, options)
    if dx is not None:
        de = grouped(dx, options)
        de = de - de.mean(-1, keepdim=True) if options[4] & LAYER else de
        dr = -c * (members_of(e, options) * members_of(de, options)).sum(-1, keepdim=True)
        dh = (de * r + e * dr).reshape(x.shape)
        dy = dy + (dh if g is None else dh * g)
    if dweight is not None:
        dy = dy + (e * r).reshape(x.shape) * dweight.to(e.dtype)
    if dbias is not None:
        dy = dy + dbias.to(e.dtype)
    return dy.to(dtype)


def _sum_to(t, heads, dtype):
    keep = 2 if heads else 1
    last = t.dim() - keep
    return t.reshape(t.shape[:last].numel(), *t.shape[last:]).sum(0).to(dtype)


def gradients_of(dw, db, dtype, weight, wanted):
    """dweight and dbias from those of every row. dtype: that of the data."""
    heads = weight.dim() == 2 if weight is not None else bool(wanted & BIAS_PER_HEAD)
    bias_dtype = torch.float32 if wanted & BIAS_F32 else dtype
    return (
        _sum_to(dw, heads, weight.dtype) if wanted & WANT_DWEIGHT else None,
        _sum_to(db, heads, bias_dtype) if wanted & WANT_DBIAS else None,
    )


def mode_in(options):
    """Options at the end that have their defaults may be missing."""
    return options[4] if len(options) > 4 else 0


def double_backward(ctx, dy, x, weight, wanted, rows=Whole):
    dx, dw, db = differentiable_backward(dy, x, weight, ctx.options, rows)
    dtype = data_dtype(x, dy, mode_in(ctx.options))
    return dx.to(dtype) if wanted & WANT_DX else None, *gradients_of(dw, db, dtype, weight, wanted)


def differentiated_again() -> bool:
    """Whether the gradients are to be differentiated again: then grad mode is on in a backward. Dynamo has it on always."""
    return torch.is_grad_enabled() and not torch.compiler.is_dynamo_compiling()


def _norm_gradients(ctx, dy, backward):
    x, weight, stats = ctx.saved_tensors
    need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
    wanted = ctx.bias_flags | WANT_DX * need_x | WANT_DWEIGHT * need_weight | WANT_DBIAS * need_bias
    if mode_in(ctx.options) >= OUT:
        wanted |= WANT_DX  # its type tells the library that x is not a sum in float32
    if differentiated_again():
        dx, dweight, dbias = double_backward(ctx, dy, x, weight, wanted)
    else:
        dx, dweight, dbias = backward(dy, x, weight, stats, wanted, *ctx.options)
    return dx if need_x else None, dweight if need_weight else None, dbias if need_bias else None


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, options):
        y, stats = _norm_stats_builtin(x, weight, bias, *options)
        ctx.save_for_backward(x, weight, stats)
        ctx.options = options
        ctx.bias_flags = 0 if bias is None else bias_flags_of(bias)
        return y

    @staticmethod
    def backward(ctx, dy):
        return *_norm_gradients(ctx, dy, _norm_backward_builtin), None


# Function.apply without its part in Python, which takes 4 microseconds to find out whether functorch is active.
_norm_apply = super(torch.autograd.Function, Norm).apply
_unwrap_if_dead = torch._C._functorch.unwrap_if_dead


def alive(tensor):
    """Not one that a functorch transform has left behind."""
    return None if tensor is None else _unwrap_if_dead(tensor)


def another(tensor, than):
    """The same values as another tensor: Dynamo loses a gradient when a Function gets one tensor twice (torch 2.11)."""
    return tensor.view_as(tensor) if tensor is not None and tensor is than else tensor


def norm(x, weight, bias, options):
    """Norm.apply where functorch is not active."""
    return _norm_apply(_unwrap_if_dead(x), alive(weight), alive(bias), options)


class TracedNorm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias, eps, weight_offset, partial, groups, mode, indices):
        return _norm_stats(x, weight, bias, eps, weight_offset, partial, groups, mode, indices)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, *options = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, weight, output[1])
        ctx.options, ctx.bias_flags = tuple(options), bias_flags_of(bias)

    @staticmethod
    def backward(ctx, dy, _):
        return *_norm_gradients(ctx, dy, _norm_backward), None, None, None, None, None, None


class ForwardNorm(TracedNorm):
    @staticmethod
    def setup_context(ctx, inputs, output):
        TracedNorm.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0], inputs[1], output[1])

    @staticmethod
    def jvp(ctx, dx, dweight, dbias, *options):
        x, weight, _ = ctx.saved_tensors
        return tangent(x, dx, weight, dweight, dbias, result_dtype(x, ctx.options[4]), ctx.options), None
