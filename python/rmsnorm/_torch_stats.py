# SPDX-License-Identifier: MIT
"""The statistics of the norms without their results: r and, for LayerNorm, the mean, with gradients."""
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch.autograd import forward_ad as _forward_ad

from ._options import EPS_CLAMP, EPS_OUTSIDE, LAYER, groups_of, mode_of
from ._torch_autograd import alive, differentiated_again, grouped, members_of, scattered, statistic
from ._torch_options import channels_last, statistic_of

_stats = torch.ops.rmsnorm._stats.default
_functorch_level = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)


class Statistics(NamedTuple):
    """What a LayerNorm needs of its rows, each of shape (..., groups)."""

    mean: torch.Tensor
    rstd: torch.Tensor
    """``1 / sqrt(variance + eps)``."""


def _factors(members, r, dr, eps, mode):
    """What an element of the statistic is multiplied by for -dx, one after the other. With eps inside the root that is 1 and
    (dr * r**3) / k, in the order of autograd; where such numbers leave the range, in two parts that stay within it."""
    k = members.shape[-1]
    if not mode & (EPS_OUTSIDE | EPS_CLAMP):
        # Of a factor whose quotient by k, and whose product with an element, keep their digits. A constant of the module would be
        # an input of a graph that is compiled for dynamic shapes, which torch 2.9 refuses here.
        least = 2.0**-100
        cube = r * r * r
        usual = (cube > least) & ((dr * cube).abs() > least) & ((dr * cube).abs() < 1 / least)
        return torch.where(usual, 1, r), torch.where(usual, dr * cube, r * r * dr) / k
    root = members.double().square().mean(-1, keepdim=True).sqrt()
    if mode & EPS_CLAMP:
        return r, torch.where(root < eps, 0, r * r) / k * dr
    return r, r / (k * torch.where(root == 0, torch.inf, root).to(r.dtype)) * dr


def _gradient(dstats, x, stats, options):
    dr = dstats[0].unsqueeze(-1)
    if differentiated_again():
        e, r, c = statistic(x, options)
        along = members_of(e, options) * (c * dr)
    else:
        e, r = grouped(x, options), stats[0].unsqueeze(-1)
        e = e - e.mean(-1, keepdim=True) if options[4] & LAYER else e
        members = members_of(e, options)
        first, second = _factors(members, r, dr, options[0], options[4])
        along = members * first * second
    dx = -scattered(along, e.shape[-1], options)
    if options[4] & LAYER:
        dx = dx + dstats[1].unsqueeze(-1) / e.shape[-1]
    return dx.reshape(x.shape).to(x.dtype)


class TracedStats(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, eps, weight_offset, partial, groups, mode, indices):
        return _stats(x, eps, weight_offset, partial, groups, mode, indices)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, *options = inputs
        ctx.save_for_backward(x, output)
        ctx.options = tuple(options)

    @staticmethod
    def backward(ctx, dstats):
        return _gradient(dstats, *ctx.saved_tensors, ctx.options), None, None, None, None, None, None


class ForwardStats(TracedStats):
    @staticmethod
    def setup_context(ctx, inputs, output):
        TracedStats.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0], output)

    @staticmethod
    def jvp(ctx, dx, *options):
        x, stats = ctx.saved_tensors
        e, _, c = statistic(x, ctx.options)
        de = grouped(dx, ctx.options)
        dr = -c * (members_of(e, ctx.options) * members_of(de, ctx.options)).sum(-1, keepdim=True)
        found = (dr, de.mean(-1, keepdim=True)) if ctx.options[4] & LAYER else (dr,)
        return torch.stack([t.squeeze(-1) for t in found])


def _run(x, *options):
    """r and the mean in one tensor. options: eps, weight_offset, partial, groups, mode, indices."""
    forward_mode = _forward_ad._current_level >= 0
    if torch.is_grad_enabled() or forward_mode:
        transformed = forward_mode or _functorch_level() is not None
        if transformed or x.requires_grad:
            function = TracedStats if torch.compiler.is_dynamo_compiling() else ForwardStats
            return function.apply(x if transformed or torch.compiler.is_dynamo_compiling() else alive(x), *options)
    return _stats(x, *options)


def rms_norm_stats(
    x: torch.Tensor,
    eps: float = 1e-6,
    *,
    partial: int | float | None = None,
    indices: Iterable[int] | None = None,
    groups: int = 1,
    eps_place: str = "inside",
    channels_first: bool = False,
) -> torch.Tensor:
    """r, what ``rms_norm`` multiplies x by: ``1 / sqrt(mean(x**2) + eps)`` over the last dimension, which becomes 1 (or groups).

    It is of float32, or float64 for float64 data, and has a gradient; the options are those of ``rms_norm``.

    >>> import torch
    >>> x = torch.tensor([[3.0, 4.0]], requires_grad=True)
    >>> r = rms_norm_stats(x, eps=0.0)
    >>> r.backward()
    >>> r.detach(), x.grad
    (tensor([[0.2828]]), tensor([[-0.0339, -0.0453]]))
    """
    if channels_first:
        options = dict(partial=partial, indices=indices, groups=groups, eps_place=eps_place)
        return rms_norm_stats(channels_last(x), eps, **options).movedim(-1, 1)
    groups = groups_of(groups)
    partial, elements = statistic_of(x, partial, indices, groups)
    return _run(x, eps, 0.0, partial, groups, mode_of("after_weight", eps_place), elements)[0]


def layer_norm_stats(
    x: torch.Tensor, eps: float = 1e-5, *, groups: int = 1, eps_place: str = "inside", channels_first: bool = False
) -> Statistics:
    """``(mean, rstd)`` of ``layer_norm``, with ``rstd = 1 / sqrt(variance + eps)``; otherwise as :func:`rms_norm_stats`.

    >>> import torch
    >>> layer_norm_stats(torch.tensor([1.0, 3.0]), eps=0.0)
    Statistics(mean=tensor([2.]), rstd=tensor([1.]))
    """
    if channels_first:
        found = layer_norm_stats(channels_last(x), eps, groups=groups, eps_place=eps_place)
        return Statistics(*(t.movedim(-1, 1) for t in found))
    stats = _run(x, eps, 0.0, 0, groups_of(groups), LAYER | mode_of("after_weight", eps_place), None)
    return Statistics(stats[1], stats[0])
