# SPDX-License-Identifier: MIT
"""Sharding rules for DTensor: ``import rmsnorm.dtensor`` registers them.

Rows may be sharded over any leading dimension and stay where they are; the weight is then replicated (or, with one weight per
head, sharded with the heads), and its gradient is a partial sum of each shard.

Rows whose columns one dimension of the mesh shards, ``Shard(-1)``, are not gathered: as in :mod:`rmsnorm.sharded` their statistics are
reduced over the mesh, the result is sharded like x, and the weight, sharded or replicated, is used where its columns are. Rows are
gathered where that is not offered: with groups, indices, one weight per head, a gate, a residual of another dtype than x, or columns
that several dimensions of the mesh shard.
"""
from __future__ import annotations

import sys

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from . import sharded
from . import torch as _torch

from ._torch_fakes import WANT_DBIAS, WANT_DGATE, WANT_DRESIDUAL, WANT_DWEIGHT, WANT_DX

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


def _register_backward(op, rows, weights, wants):
    """weights: the places of the bias, where it is an argument, and of the weight; behind it are stats and wanted."""
    stats = weights[-1] + 1

    @register_sharding(op)
    def shardings(*arguments):
        wanted = arguments[stats + 1]

        def outputs(dim, heads):
            of_weight = Shard(0) if heads else Partial()
            placed = {WANT_DWEIGHT: of_weight, WANT_DBIAS: of_weight}
            return [placed.get(want, Shard(dim)) if wanted & want else Replicate() for want in wants]

        return _shardings(arguments, rows, weights, stats, outputs)


_register_forward(ops._norm.default, 1, 1, False)
_register_forward(ops._weighted_norm.default, 1, 1, False)
_register_forward(ops._norm_stats.default, 1, 1, True)
_register_forward(ops._stats.default, 1, 0, True)
_register_forward(ops._add_norm.default, 3, 2, False)
_register_forward(ops._add_norm_stats.default, 3, 2, True)
_register_forward(ops._gated_norm.default, 2, 1, False)
_register_forward(ops._gated_norm_stats.default, 2, 1, True)
_register_backward(ops._norm_backward.default, (0, 1), (2,), (WANT_DX, WANT_DWEIGHT, WANT_DBIAS))
_register_backward(ops._add_norm_backward.default, (0, 1, 2, 3), (4, 5),
                   (WANT_DX, WANT_DRESIDUAL, WANT_DGATE, WANT_DWEIGHT, WANT_DBIAS))  # fmt: skip
_register_backward(ops._gated_norm_backward.default, (0, 1, 2), (3, 4), (WANT_DX, WANT_DGATE, WANT_DWEIGHT, WANT_DBIAS))


# ---- columns that are sharded ----


def _column_dim(x) -> int | None:
    """The dimension of the mesh that shards the columns, if it is one."""
    dims = [i for i, p in enumerate(x.placements) if p.is_shard(x.ndim - 1)]
    return dims[0] if len(dims) == 1 and type(x.placements[dims[0]]) is Shard else None


def is_spread(x, weight, bias, groups, indices) -> bool:
    """Whether norm takes x."""
    if not isinstance(x, DTensor) or groups > 1 or indices is not None or _column_dim(x) is None:
        return False
    return all(p is None or (isinstance(p, DTensor) and p.ndim == 1) for p in (weight, bias))


def _own_columns(parameter, x, dim):
    """The part of the weight or bias that belongs to this process's columns. Its gradient is summed over sharded rows."""
    if parameter is None:
        return None
    places = [Shard(0) if i == dim else Replicate() for i in range(x.device_mesh.ndim)]
    of_gradient = [Partial() if p.is_shard() and i != dim else places[i] for i, p in enumerate(x.placements)]
    return parameter.redistribute(placements=places).to_local(grad_placements=of_gradient)


def _own_partial(x, dim, partial) -> int:
    """How many of the first elements of a row this process has, as the operators take it."""
    if not partial:
        return 0
    size, parts = x.shape[-1], x.device_mesh.size(dim)
    if not 0 < partial <= size:
        raise RuntimeError(f"rmsnorm: partial is {partial}; it must be from 1 to the {size} columns of x")
    before = x.device_mesh.get_local_rank(dim) * -(-size // parts)  # Shard cuts as torch.chunk does
    return max(0, min(partial - before, x.to_local().shape[-1])) or sharded.NO_ELEMENT


def norm(x, weight, bias, eps, weight_offset, partial, mode):
    """The norm of a DTensor whose columns are sharded."""
    if any(p.is_partial() for p in x.placements):
        x = x.redistribute(placements=[Replicate() if p.is_partial() else p for p in x.placements])
    mesh, dim = x.device_mesh, _column_dim(x)
    group = sharded.group_of(mesh.get_group(dim))
    weight, bias = _own_columns(weight, x, dim), _own_columns(bias, x, dim)
    y = sharded.run(x.to_local(), weight, bias, group, eps, weight_offset, _own_partial(x, dim, partial), mode)
    return DTensor.from_local(y, mesh, x.placements, run_check=False, shape=x.shape, stride=x.stride())


_torch._dtensor = sys.modules[__name__]
