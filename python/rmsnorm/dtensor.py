# SPDX-License-Identifier: MIT
"""Sharding rules for DTensor: ``import rmsnorm.dtensor`` registers them.

Rows may be sharded over any leading dimension and stay where they are; the weight is then replicated (or, with one weight per
head, sharded with the heads), and its gradient is a partial sum of each shard. A row that is spread over devices is gathered.
"""
from __future__ import annotations

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from ._torch_ops import WANT_DBIAS, WANT_DRESIDUAL, WANT_DWEIGHT, WANT_DX

ops = torch.ops.rmsnorm


def _is_tensor(argument) -> bool:
    return hasattr(argument, "ndim")


def _inputs(arguments, rows, weights, stats, dim, heads):
    """Placements of the arguments when the rows are sharded over dim; None where there is no tensor."""

    def place(i, argument):
        if not _is_tensor(argument):
            return None
        if i in rows:
            return Shard(dim)
        if i == stats:
            return Shard(dim + 1)
        return Shard(0) if i in weights and heads else Replicate()

    return [place(i, a) for i, a in enumerate(arguments)]


def _shardings(arguments, rows, weights, stats, outputs):
    """Everything replicated, and a sharding for each leading dimension. outputs(dim, heads): the results' placements."""
    x = arguments[rows[0]]
    per_head = any(_is_tensor(arguments[i]) and arguments[i].ndim == 2 for i in weights)
    everywhere = [Replicate() if _is_tensor(a) else None for a in arguments]
    found = [([Replicate()] * len(outputs(0, False)), everywhere)]
    for dim in range(x.ndim - 1):
        heads = per_head and dim == x.ndim - 2
        found.append((outputs(dim, heads), _inputs(arguments, rows, weights, stats, dim, heads)))
    return found


def _register_forward(op, rows, results, with_stats):
    @register_sharding(op)
    def shardings(*arguments):
        def outputs(dim, heads):
            return [Shard(dim)] * results + [Shard(dim + 1)] * with_stats

        return _shardings(arguments, tuple(range(rows)), (rows, rows + 1), None, outputs)


def _register_backward(op, rows, weight, wants):
    @register_sharding(op)
    def shardings(*arguments):
        wanted = arguments[weight + 2]

        def outputs(dim, heads):
            of_weight = Shard(0) if heads else Partial()
            placed = {WANT_DX: Shard(dim), WANT_DRESIDUAL: Shard(dim), WANT_DWEIGHT: of_weight, WANT_DBIAS: of_weight}
            return [placed[want] if wanted & want else Replicate() for want in wants]

        return _shardings(arguments, rows, (weight,), weight + 1, outputs)


_register_forward(ops._norm.default, 1, 1, False)
_register_forward(ops._norm_stats.default, 1, 1, True)
_register_forward(ops._add_norm.default, 2, 2, False)
_register_forward(ops._add_norm_stats.default, 2, 2, True)
_register_backward(ops._norm_backward.default, (0, 1), 2, (WANT_DX, WANT_DWEIGHT, WANT_DBIAS))
_register_backward(ops._add_norm_backward.default, (0, 1, 2), 3, (WANT_DX, WANT_DRESIDUAL, WANT_DWEIGHT, WANT_DBIAS))
