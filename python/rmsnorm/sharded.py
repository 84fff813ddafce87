# SPDX-License-Identifier: MIT
"""Norms of rows whose columns are spread over the processes of a group, as tensor parallelism spreads them.

Every process calls the function with its own columns of the same rows; how many they are may differ, and some may have none. What
is exchanged is not the row but three float64 numbers of it, in one collective for the forward, and two in one all-reduce for the
backward. The weight, its gradient and the result belong to the process's own columns.

>>> import torch, torch.distributed as dist, rmsnorm.sharded
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
>>> rmsnorm.sharded.rms_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0]), eps=0.0)
tensor([[0.8485, 2.2627]])
>>> dist.destroy_process_group()

With the columns in one process the bits are those of :mod:`rmsnorm.torch`. A process that raises an error leaves the others waiting
in the collective until it ends or the group's timeout passes; then they raise one too.
"""
from __future__ import annotations

import torch
import torch.distributed as dist

from ._options import LAYER, mode_of
from ._torch_autograd import bias_flags_of, differentiated_again, double_backward
from ._torch_fakes import WANT_DBIAS, WANT_DWEIGHT, WANT_DX

__all__ = ["layer_norm", "rms_norm"]

NO_ELEMENT = -1  # RMS_PARTIAL_NONE of the library
_ops = torch.ops.rmsnorm


# ---- the exchange: functional collectives, which torch.compile knows ----


def group_of(process_group) -> tuple[str, int]:
    """The name and the size of a group; None is the default group."""
    group = dist.group.WORLD if process_group is None else process_group
    if group is None:
        raise RuntimeError("rmsnorm: there is no process group: call torch.distributed.init_process_group first")
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError("process_group must be a ProcessGroup of which this process is a member")
    return group.group_name, group.size()


def _summed(numbers: torch.Tensor, name: str) -> torch.Tensor:
    return torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(numbers, "sum", name))


def _gathered(numbers: torch.Tensor, name: str, size: int) -> torch.Tensor:
    every = torch.ops._c10d_functional.all_gather_into_tensor(numbers.reshape(1, -1), size, name)
    return torch.ops._c10d_functional.wait_tensor(every).reshape(size, *numbers.shape)


def _stats_of_rows(x, group, options):
    """RMSNorm's statistics are added. LayerNorm's are merged in the order of the ranks."""
    stats = _ops._split_stats.default(x, *options)
    if not options[4] & LAYER:
        return _summed(stats, group[0])
    first, *others = _gathered(stats, *group).unbind()
    for other in others:
        first = _ops._split_merge.default(first, other)
    return first


# ---- gradients ----


class _Sum(torch.autograd.Function):
    """The sum over the processes, whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx, t, name):
        ctx.name = name
        return _summed(t, name)

    @staticmethod
    def backward(ctx, gradient):
        return _Sum.apply(gradient.contiguous(), ctx.name), None


class _Spread:
    """Sums and means of rows that are spread over processes, for second derivatives."""

    def __init__(self, stats, name):
        self._count, self._name = stats[..., :1, None], name

    def sum(self, t):
        return _Sum.apply(t.sum(-1, keepdim=True), self._name)

    def mean(self, t):
        return self.sum(t) / self.count(t)

    def count(self, t):
        return self._count.to(t.dtype)


class _ShardedNorm(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, bias, name, size, eps, weight_offset, partial, mode):
        options = (eps, weight_offset, partial, 1, mode, None)
        stats = _stats_of_rows(x, (name, size), options)
        return _ops._split_apply.default(x, stats, weight, bias, *options), stats

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, ctx.name, _, eps, weight_offset, partial, mode = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, weight, output[1])
        ctx.options, ctx.bias_flags = (eps, weight_offset, partial, 1, mode, None), bias_flags_of(bias)

    @staticmethod
    def backward(ctx, dy, _):
        x, weight, stats = ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        wanted = ctx.bias_flags | WANT_DX * need_x | WANT_DWEIGHT * need_weight | WANT_DBIAS * need_bias
        if differentiated_again():
            rows = _Spread(stats, ctx.name)
            dx, dweight, dbias = double_backward(ctx, dy, x, weight, wanted, rows)
        else:
            sums = _summed(_ops._split_backward_stats.default(dy, x, stats, weight, *ctx.options), ctx.name)
            dx, dweight, dbias = _ops._split_backward_apply.default(dy, x, stats, sums, weight, wanted, *ctx.options)
        gradients = dx if need_x else None, dweight if need_weight else None, dbias if need_bias else None
        return *gradients, None, None, None, None, None, None


def run(x, weight, bias, group, eps, weight_offset, partial, mode):
    """group: its name and size. partial: as the operators take it."""
    if x.dim() == 0:
        raise RuntimeError("rmsnorm: x needs a last dimension")
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias)):
        if bias is weight and bias is not None:
            bias = bias.view_as(bias)
        return _ShardedNorm.apply(x, weight, bias, *group, eps, weight_offset, partial, mode)[0]
    options = (eps, weight_offset, partial, 1, mode, None)
    return _ops._split_apply.default(x, _stats_of_rows(x, group, options), weight, bias, *options)


# ---- the functions ----


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    *,
    process_group: dist.ProcessGroup | None = None,
    bias: torch.Tensor | None = None,
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    partial: int | None = None,
    eps_place: str = "inside",
) -> torch.Tensor:
    """:func:`rmsnorm.torch.rms_norm` of rows of which x has this process's columns.

    partial: how many first elements of this shard enter the statistic; 0: none of them.
    """
    if partial is not None and (isinstance(partial, bool) or not isinstance(partial, int) or not 0 <= partial <= x.shape[-1]):
        raise ValueError(f"partial is {partial!r}; it must be an int from 0 to the {x.shape[-1]} columns of this shard")
    elements = 0 if partial is None else partial or NO_ELEMENT
    return run(x, weight, bias, group_of(process_group), eps, weight_offset, elements, mode_of(rounding, eps_place))


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    process_group: dist.ProcessGroup | None = None,
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    eps_place: str = "inside",
) -> torch.Tensor:
    """:func:`rmsnorm.torch.layer_norm` of rows of which x has this process's columns."""
    return run(x, weight, bias, group_of(process_group), eps, weight_offset, 0, LAYER | mode_of(rounding, eps_place))
