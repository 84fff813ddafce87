# SPDX-License-Identifier: MIT
"""Gradients: autograd Functions around the operators, in the two styles that torch knows.

Norm and AddNorm have the context in forward and take the options as one tuple, without those at its end that have their
defaults, which is quicker in eager mode: every argument costs. TracedNorm and TracedAddNorm have setup_context, which functorch (vmap, torch.func) needs, and plain arguments, which
Dynamo likes.
"""
from __future__ import annotations

import torch

from ._options import BEFORE_WEIGHT, EPS_OUTSIDE, LAYER
from ._torch_ops import BIAS_F32, BIAS_PER_HEAD, DEFAULTS, WANT_DBIAS, WANT_DRESIDUAL, WANT_DWEIGHT, WANT_DX

_norm_stats = torch.ops.rmsnorm._norm_stats.default
_add_norm_stats = torch.ops.rmsnorm._add_norm_stats.default
_norm_backward = torch.ops.rmsnorm._norm_backward.default
_add_norm_backward = torch.ops.rmsnorm._add_norm_backward.default
# What the operators' __call__ calls: quicker, and unknown to Dynamo.
_norm_stats_builtin, _norm_backward_builtin = _norm_stats._op, _norm_backward._op


def _bias_flags(bias):
    if bias is None:
        return 0
    return (BIAS_F32 if bias.dtype is torch.float32 else 0) | (BIAS_PER_HEAD if bias.dim() == 2 else 0)


def differentiable_backward(dy, x, dsum, weight, options):
    """The gradients in plain torch operations, for second derivatives: dx, dweight, dbias over all rows, in x's arithmetic."""
    eps, weight_offset, partial, groups, mode = (*options, *DEFAULTS[len(options) - 1 :])
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    groups = groups if groups > 1 else 1
    shape = (*x.shape[:-1], groups, x.shape[-1] // groups)
    a, d = x.to(wide).reshape(shape), dy.to(wide)
    e = a - a.mean(-1, keepdim=True) if mode & LAYER else a
    k = partial or shape[-1]
    s = e[..., :k].square().mean(-1, keepdim=True)
    if mode & EPS_OUTSIDE:
        root = s.sqrt()
        r = 1 / (root + eps)
        c = r * r / (k * root)
    else:
        r = (s + eps).rsqrt()
        c = r * r * r / k
    h = (e * r).reshape(x.shape)
    if mode & BEFORE_WEIGHT:
        h = h.to(dy.dtype).to(wide)
    u = d if weight is None else d * (weight.to(wide) + weight_offset)
    if mode & BEFORE_WEIGHT:
        u = u.to(dy.dtype).to(wide)
    u = u.reshape(shape)
    along = e * ((u * e).sum(-1, keepdim=True) * c)
    if k < shape[-1]:
        along = torch.nn.functional.pad(along[..., :k], (0, shape[-1] - k))
    dx = u * r - along
    if mode & LAYER:
        dx = dx - dx.mean(-1, keepdim=True)
    dx = dx.reshape(x.shape)
    return dx if dsum is None else dx + dsum.to(wide), d * h, d


def _sum_to(t, heads, dtype):
    keep = 2 if heads else 1
    return t.reshape(-1, *t.shape[t.dim() - keep :]).sum(0).to(dtype)


def _double_backward(ctx, dy, x, dsum, weight, wanted, residual_dtype):
    dx, dw, db = differentiable_backward(dy, x, dsum, weight, ctx.options)
    heads = weight.dim() == 2 if weight is not None else bool(ctx.bias_flags & BIAS_PER_HEAD)
    bias_dtype = torch.float32 if ctx.bias_flags & BIAS_F32 else dy.dtype
    return (
        dx.to(dy.dtype) if wanted & WANT_DX else None,
        dx.to(residual_dtype) if wanted & WANT_DRESIDUAL else None,
        _sum_to(dw, heads, weight.dtype) if wanted & WANT_DWEIGHT else None,
        _sum_to(db, heads, bias_dtype) if wanted & WANT_DBIAS else None,
    )


def _again() -> bool:
    """Whether the gradients are to be differentiated again: then grad mode is on in a backward. Dynamo has it on always."""
    return torch.is_grad_enabled() and not torch.compiler.is_dynamo_compiling()


def _norm_gradients(ctx, dy, backward):
    x, weight, stats = ctx.saved_tensors
    need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
    wanted = ctx.bias_flags | WANT_DX * need_x | WANT_DWEIGHT * need_weight | WANT_DBIAS * need_bias
    if _again():
        dx, _, dweight, dbias = _double_backward(ctx, dy, x, None, weight, wanted, x.dtype)
    else:
        dx, dweight, dbias = backward(dy, x, weight, stats, wanted, *ctx.options)
    return dx if need_x else None, dweight if need_weight else None, dbias if need_bias else None


def _add_norm_gradients(ctx, dy, dsum):
    total, weight, stats = ctx.saved_tensors
    need_x, need_residual, need_weight, need_bias = ctx.needs_input_grad[:4]
    if dy is None:  # only the sum was used
        if dsum is None:
            return None, None, None, None
        return dsum.to(ctx.dtype) if need_x else None, dsum if need_residual else None, None, None
    wider = total.dtype is not dy.dtype
    wanted = ctx.bias_flags | WANT_DWEIGHT * need_weight | WANT_DBIAS * need_bias
    if need_x or (need_residual and not wider):
        wanted |= WANT_DX
    if need_residual and wider:
        wanted |= WANT_DRESIDUAL
    if _again():
        dx, dresidual, dweight, dbias = _double_backward(ctx, dy, total, dsum, weight, wanted, total.dtype)
    else:
        dx, dresidual, dweight, dbias = _add_norm_backward(dy, total, dsum, weight, stats, wanted, *ctx.options)
    return (
        dx if need_x else None,
        (dresidual if wider else dx) if need_residual else None,
        dweight if need_weight else None,
        dbias if need_bias else None,
    )


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, options):
        y, stats = _norm_stats_builtin(x, weight, bias, *options)
        ctx.save_for_backward(x, weight, stats)
        ctx.options = options
        ctx.bias_flags = 0 if bias is None else _bias_flags(bias)
        return y

    @staticmethod
    def backward(ctx, dy):
        return *_norm_gradients(ctx, dy, _norm_backward_builtin), None


class AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, options):
        y, total, stats = _add_norm_stats(x, residual, weight, bias, *options)
        ctx.save_for_backward(total, weight, stats)
        ctx.options, ctx.bias_flags, ctx.dtype = options, _bias_flags(bias), x.dtype
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    def backward(ctx, dy, dsum):
        return *_add_norm_gradients(ctx, dy, dsum), None


class TracedNorm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias, eps, weight_offset, partial, groups, mode):
        return _norm_stats(x, weight, bias, eps, weight_offset, partial, groups, mode)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, *options = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, weight, output[1])
        ctx.options, ctx.bias_flags = tuple(options), _bias_flags(bias)

    @staticmethod
    def backward(ctx, dy, _):
        return *_norm_gradients(ctx, dy, _norm_backward), None, None, None, None, None


class TracedAddNorm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, residual, weight, bias, eps, weight_offset, partial, groups, mode):
        return _add_norm_stats(x, residual, weight, bias, eps, weight_offset, partial, groups, mode)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, residual, weight, bias, *options = inputs
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(output[1], weight, output[2])
        ctx.options, ctx.bias_flags, ctx.dtype = tuple(options), _bias_flags(bias), x.dtype

    @staticmethod
    def backward(ctx, dy, dsum, _):
        return *_add_norm_gradients(ctx, dy, dsum), None, None, None, None, None
