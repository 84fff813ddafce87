# SPDX-License-Identifier: MIT
"""The sharding rules for DTensor, on two processes of the CPU."""
import socket
import subprocess
import sys

PROGRAM = """
import itertools, os, sys, torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh
import rmsnorm.torch as rt, rmsnorm.nn, rmsnorm.dtensor

rank = int(sys.argv[1])
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2], RANK=sys.argv[1], WORLD_SIZE="2")
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(1)
x, dy = torch.randn(4, 6, 2, 16), torch.randn(4, 6, 2, 16)
plain, heads = torch.randn(16), torch.randn(2, 16)

def gradients(function, x, w, dy):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = function(x, w)
    return (*y, *torch.autograd.grad(y, (x, w), (dy,) * len(y)))

functions = {
    "rms": lambda x, w: (rt.rms_norm(x, w),),
    "layer": lambda x, w: (rt.layer_norm(x, w, w),),
    "add": lambda x, w: rt.add_rms_norm(x, x, w),
}
placements = [Shard(0), Shard(1), Shard(2), Shard(3), Replicate()]
for (name, function), w, place in itertools.product(functions.items(), (plain, heads), placements):
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
        y = function(parts[0], weight)[0]
    assert torch.equal(y.full_tensor(), expected[0]), (name, place)  # a row's bits do not depend on its shard
module = rmsnorm.nn.RMSNorm(16)
module.weight = torch.nn.Parameter(distribute_tensor(plain, mesh, [Replicate()]))
assert torch.equal(module(distribute_tensor(x, mesh, [Shard(1)])).full_tensor(), rt.rms_norm(x, plain, torch.finfo(torch.float32).eps))
dist.destroy_process_group()
"""


def test_two_processes():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    ranks = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), port], stderr=subprocess.PIPE, text=True)
             for rank in range(2)]  # fmt: skip
    for rank in ranks:
        _, errors = rank.communicate(timeout=300)
        assert rank.returncode == 0, errors
