# SPDX-License-Identifier: MIT
"""The sharding rules for DTensor, in the processes that rank_cases.py starts."""
import itertools

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import rmsnorm.dtensor
import rmsnorm.nn
import rmsnorm.torch as rt

FUNCTIONS = {
    "rms": lambda x, w: (rt.rms_norm(x, w),),
    "layer": lambda x, w: (rt.layer_norm(x, w, w),),
    "add": lambda x, w: rt.add_rms_norm(x, x, w),
    "partial": lambda x, w: (rt.rms_norm(x, w, partial=5),),
}


# The columns of these are gathered.
GATED = {
    "gate after": lambda x, w: (rt.layer_norm(x, w, w, gate=x.sin()),),
    "gate before": lambda x, w: (rt.rms_norm(x, w, gate=x.sin(), gate_place="before"),),
    "gate and sum": lambda x, w: rt.add_rms_norm(x, x.cos(), w, bias=w, gate=x.sin()),
}


def gradients(function, x, w, dy):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = function(x, w)
    return (*y, *torch.autograd.grad(y, (x, w), (dy,) * len(y)))


def rows(rank, size):
    """Rows that stay where they are, and per-head weights; columns with per-head weights are gathered."""
    mesh = init_device_mesh("cpu", (size,))
    x, dy = torch.randn(4, 6, 2, 16), torch.randn(4, 6, 2, 16)
    plain, heads = torch.randn(16), torch.randn(2, 16)
    placements = [Shard(0), Shard(1), Shard(2), Shard(3), Replicate()]
    for (name, function), w, place in itertools.product((FUNCTIONS | GATED).items(), (plain, heads), placements):
        expected = gradients(function, x, w, dy)
        parts = [distribute_tensor(t, mesh, [place]) for t in (x, dy)]
        weight = distribute_tensor(w, mesh, [Replicate()])
        got = gradients(function, parts[0], weight, parts[1])
        if place in placements[:2]:
            assert got[0].placements == (place,), (name, place, got[0].placements)
            assert got[-1].placements == (Partial(),), (name, place, got[-1].placements)
        for g, e in zip(got, expected):
            torch.testing.assert_close(g.full_tensor(), e)
        with torch.no_grad():
            y = function(parts[0], weight)[0].full_tensor()
        # A row's bits do not depend on its shard. Those of a spread row depend on how it is cut.
        assert torch.equal(y, got[0].full_tensor()) and (place is placements[3] or torch.equal(y, expected[0])), (name, place)
    for place in placements:
        whole, part = (t.requires_grad_() for t in (x.clone(), distribute_tensor(x, mesh, [place])))
        r, expected = (rt.layer_norm_stats(t).rstd for t in (part, whole))
        assert torch.equal(r.full_tensor(), expected) and (place not in placements[:2] or r.placements == (place,))
        if torch.__version__.startswith("2.9."):
            continue  # there a part of a DTensor, such as t[0], has a gradient of the wrong shape
        r.sum().backward(), expected.sum().backward()
        torch.testing.assert_close(part.grad.full_tensor(), whole.grad)
    module = rmsnorm.nn.RMSNorm(16)
    module.weight = torch.nn.Parameter(distribute_tensor(plain, mesh, [Replicate()]))
    y = module(distribute_tensor(x, mesh, [Shard(1)]))
    assert torch.equal(y.full_tensor(), rt.rms_norm(x, plain, torch.finfo(torch.float32).eps))


def _counts(mode):
    return {op.__name__: n for op, n in mode.get_comm_counts().items()}


def columns(rank, size):
    """Columns that are sharded stay where they are; also where they cannot be cut evenly or some processes have none."""
    mesh = init_device_mesh("cpu", (size,))
    for (name, function), cols, weight_place in itertools.product(FUNCTIONS.items(), (16, 10, 9), (Shard(0), Replicate())):
        x, dy, w = torch.randn(3, 2, cols), torch.randn(3, 2, cols), torch.randn(cols)
        expected = gradients(function, x, w, dy)
        parts = [distribute_tensor(t, mesh, [Shard(2)]) for t in (x, dy)]
        weight = distribute_tensor(w, mesh, [weight_place])
        with CommDebugMode() as mode:
            got = gradients(function, parts[0], weight, parts[1])
        if weight_place == Shard(0):
            forward = "all_gather_into_tensor" if name == "layer" else "all_reduce"
            assert _counts(mode) == ({"all_reduce": 2} if forward == "all_reduce" else {forward: 1, "all_reduce": 1}), _counts(mode)
        assert all(g.placements == (Shard(2),) for g in got[:-1]), [g.placements for g in got]
        assert got[-1].placements == (weight_place,), (name, got[-1].placements)
        for g, e in zip(got, expected):
            torch.testing.assert_close(g.full_tensor(), e)
        with torch.no_grad():
            assert torch.equal(function(parts[0], weight)[0].full_tensor(), got[0].full_tensor())


def columns_of_modules(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    x = torch.randn(3, 16)
    for module in (rmsnorm.nn.RMSNorm(16), rmsnorm.nn.LayerNorm(16), rmsnorm.nn.PartialRMSNorm(16, p=0.25)):
        expected = module(x)
        for name, parameter in list(module.named_parameters()):
            setattr(module, name, torch.nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(0)])))
        y = module(distribute_tensor(x, mesh, [Shard(1)]))
        assert y.placements == (Shard(1),)
        torch.testing.assert_close(y.full_tensor(), expected)
        y.sum().backward()
        assert module.weight.grad.placements == (Shard(0),)
    try:
        rt.rms_norm(distribute_tensor(x, mesh, [Shard(1)]), partial=17)
    except RuntimeError as error:
        assert "partial" in str(error)
    else:
        raise AssertionError("partial beyond the row was taken")


def columns_and_rows(rank, size):
    """On a mesh of two dimensions: batches are sharded over the one, columns over the other. Sums that are pending are reduced."""
    mesh = init_device_mesh("cpu", (2, size // 2))
    x, dy, w = torch.randn(4, 3, 12), torch.randn(4, 3, 12), torch.randn(12)
    for function in FUNCTIONS.values():
        expected = gradients(function, x, w, dy)
        for place in ([Shard(0), Shard(2)], [Replicate(), Shard(2)], [Shard(2), Shard(1)]):
            parts = [distribute_tensor(t, mesh, place) for t in (x, dy)]
            got = gradients(function, parts[0], distribute_tensor(w, mesh, [Replicate(), Replicate()]), parts[1])
            assert got[0].placements == tuple(place) and got[-2].placements == tuple(place)
            for g, e in zip(got, expected):
                torch.testing.assert_close(g.full_tensor(), e)
    pending = rmsnorm.dtensor.DTensor.from_local(x.chunk(size // 2, 2)[rank % (size // 2)] / 2, mesh, [Partial(), Shard(2)])
    torch.testing.assert_close(rt.rms_norm(pending).full_tensor(), rt.rms_norm(x))


def fallbacks(rank, size):
    """What spread rows are not offered for is still right."""
    mesh = init_device_mesh("cpu", (size,))
    x, w = torch.randn(3, 2, 16), torch.randn(16)
    spread, weight = distribute_tensor(x, mesh, [Shard(2)]), distribute_tensor(w, mesh, [Shard(0)])
    torch.testing.assert_close(rt.rms_norm(spread, weight, groups=4).full_tensor(), rt.rms_norm(x, w, groups=4))
    y, s = rt.add_rms_norm(spread.bfloat16(), spread, weight)
    for got, expected in zip((y, s), rt.add_rms_norm(x.bfloat16(), x, w)):
        torch.testing.assert_close(got.full_tensor(), expected)


def compiled(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    x, w, dy = torch.randn(3, 16), torch.randn(16), torch.randn(3, 16)
    parts = [distribute_tensor(t, mesh, [Shard(t.ndim - 1)]) for t in (x, w, dy)]
    function = torch.compile(FUNCTIONS["rms"], fullgraph=True, backend="aot_eager")
    for got, expected in zip(gradients(function, *parts), gradients(FUNCTIONS["rms"], x, w, dy)):
        torch.testing.assert_close(got.full_tensor(), expected)
