# SPDX-License-Identifier: MIT
"""What the package does around a call on a device, where there is no device: the kernels for CUDA, registered for the CPU, with
a library that has the functions of librmsnorm_cuda and works on the CPU's memory. Bits and strides must be those of the CPU's
kernels; temporaries and the workspace come from torch. In processes of their own, because kernels are registered once.
"""
import os
import subprocess
import sys

DOUBLE = os.environ.get("RMSNORM_DEVICE_DOUBLE")

PROLOGUE = """
import itertools, sys, torch, rmsnorm.torch as rt
from rmsnorm import _core

def views():
    base = torch.randn(6, 7, 40)
    yield base[:4, :5, :20].clone()
    yield base[:4, 1:6, 10:30]
    yield base[:4, :5, :40:2]
    for order in itertools.permutations(range(3)):
        back = [order.index(d) for d in range(3)]
        yield torch.randn(4, 5, 20).permute(order).contiguous().permute(back)
    yield torch.randn(20).expand(4, 5, 20)
    yield torch.randn(4, 1, 20).expand(4, 5, 20)
    yield torch.randn(4, 5, 1).expand(4, 5, 20)

def weights():
    return None, torch.randn(20), torch.randn(5, 20), torch.randn(40)[::2]

def results():
    torch.manual_seed(1)
    all_views, found = list(views()), []
    for (x, dy), layer in itertools.product(itertools.product(all_views, all_views), (False, True)):
        for w in weights():
            x = x.detach().requires_grad_()
            inputs = [x] if w is None else [x, w.detach().requires_grad_()]
            weight = None if w is None else inputs[1]
            y = rt.layer_norm(x, weight, weight) if layer else rt.rms_norm(x, weight)
            found += [y, *torch.autograd.grad(y, inputs, dy)]
            y, s = rt.add_rms_norm(x, dy, weight, indices=None if layer else (1, 4, 5))
            found += [y, s, *torch.autograd.grad((y, s), inputs, (dy, dy))]
            z = dy.detach().requires_grad_()
            y = rt.rms_norm(x, weight, gate=z, gate_place="before" if layer else "after")
            found += [y, *torch.autograd.grad(y, [*inputs, z], dy)]
            if weight is not None:
                found.append(torch.ops.rmsnorm._weighted_norm(x.detach(), weight.detach(), 1e-5))
            found += halves(x.detach(), None if weight is None else weight.detach(), dy, int(layer))
    found += special(all_views)
    found.append(rt.rms_norm(torch.empty(0, 8)))
    found += halves(torch.ones(3, 0), torch.ones(0), torch.ones(3, 0), 0)
    return found

def special(views):
    # channels first, results of other types, adaLN and quantised results
    found, parts = [], torch.randn(4, 120)
    for x in views:
        w = torch.randn(5, requires_grad=True)
        y = rt.layer_norm(x, w, w, channels_first=True)
        found += [y, *torch.autograd.grad(y, w, torch.ones_like(y))]
        found.append(rt.rms_norm(x, out_dtype=torch.bfloat16, weight=torch.ones(20)))
        scale, shift = (p.detach().requires_grad_() for p in parts.chunk(6, dim=-1)[:2])
        y = rt.modulate(x, scale, shift)
        found += [y, *torch.autograd.grad(y, (scale, shift), x)]
        leaf = x.detach().requires_grad_()
        mean, r = rt.layer_norm_stats(leaf)
        found += [mean, r, *torch.autograd.grad(r, leaf, r.detach()), rt.rms_norm_stats(x, groups=2)]
        y, s = rt.add_layer_norm(leaf, x, gate=x, out_dtype=torch.bfloat16)
        found += [y, s, *torch.autograd.grad((y, s), leaf, (y.detach(), x))]
        for dtype, block in (("int8", None), ("float8_e4m3fn", 4), ("float8_e5m2", None)):
            quantised = rt.rms_norm_quantised(x, dtype=dtype, block=block, residual=x, return_y=True)
            found += [quantised.q.view(torch.uint8), *quantised[1:]]
        found.append(rt.layer_norm_quantised(torch.cat([x, x], -1)[..., :32], dtype="q8_0").q)
        found.append(rt.layer_norm_quantised(x, scale=0.1).q)
    return found

def halves(x, w, dy, mode):
    ops, options = torch.ops.rmsnorm, (1e-5, 0.0, 0, 1, mode, None)
    stats = ops._split_stats(x, *options)
    merged = ops._split_merge(stats, stats)
    sums = ops._split_backward_stats(dy, x, merged, w, *options)
    y = ops._split_apply(x, merged, w, w, *options)
    return [stats, merged, sums, y, *ops._split_backward_apply(dy, x, merged, sums, w, 7, *options)]

def use_double():
    _core.unregister_torch()
    assert _core.register_torch_cuda(None, sys.argv[1], "CPU") is None
"""


def run(program):
    result = subprocess.run([sys.executable, "-c", PROLOGUE + program, DOUBLE], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_bits_and_strides():
    print(run("""
cpu, copies = results(), _core.copies()
use_double()
device = results()
assert _core.copies() == 2 * copies
assert len(cpu) == len(device) and len(cpu) > 2000
assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(cpu, device))
"""))  # fmt: skip


def test_constant_memory():
    run("""
import os
use_double()
x, w = torch.ones(4, 64), torch.ones(64)
strided = torch.ones(4, 128)[:, ::2]
ops = torch.ops.rmsnorm
stats = ops._norm_stats(x, w, None, 1e-5)[1]

def memory():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def calls(count):
    for _ in range(count):
        ops._norm(x, w, w, 1e-5)
        ops._add_norm_stats(strided, x, None, w, w, 1e-5)
        ops._norm_backward(x, strided, w, stats, 7, 1e-5)
        ops._quantised_norm(strided, x, None, None, 6, 16, 0.0, 1, w, None, 1e-5)
        ops._quantised_norm(x, None, None, w[:1], 5, 0, 0.0, 0, None, w, 1e-5)
        try:
            ops._quantised_norm(x, x, None, w, 5, 0, 0.0, 1, w, w, 1e-5)
        except RuntimeError:
            pass
        else:
            raise AssertionError("no error")
        for bad in ((x, w[:3], w), (x, w.int(), w), (x.int(), w, w), (x, w, w[None, None])):
            try:
                ops._norm(*bad, 1e-5)
            except RuntimeError:
                continue
            raise AssertionError("no error")

calls(300)
before = memory()
calls(3000)
assert memory() - before < 2**21, memory() - before
""")


def test_patch_serves_norms_without_a_weight():
    """Tensors that say they are on a GPU, and whose kernels are those of the double: it has no sums in torch's order, so that a norm
    that was tried as one of the CPU would not run."""
    out = run("""
import rmsnorm
from rmsnorm import _spec, _trial

class OnDevice(torch.Tensor):
    @property
    def device(self):
        return torch.device("cuda")

def random_rows(shape, dtype, device, generator):
    rows = torch.randn(shape, generator=generator).to(dtype)
    return rows.as_subclass(OnDevice) if device.type == "cuda" else rows

class UnweightedNorm(torch.nn.Module):
    eps = 1e-6

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.norm = torch.nn.Parameter(torch.ones(width)), UnweightedNorm()

    def forward(self, x):
        return self.norm(x)

use_double()
_trial.random_rows = random_rows
model = torch.nn.Sequential(Block(64), UnweightedNorm(), torch.nn.Sequential(Block(64)))
for block in (model[0], model[2][0]):
    block.scale = torch.nn.Parameter(block.scale.data.as_subclass(OnDevice))
report = rmsnorm.patch(model)
print(report)
assert [e.module._rmsnorm_device for e in report.patched] == ["cuda"] * 3
assert all(e.spec.sums == "rmsnorm" for e in report.patched)
torch.manual_seed(1)
x = torch.randn(5, 64).bfloat16()
expected = model(x)  # on another kind of device: the old forward
for rows, served in ((x.as_subclass(OnDevice), True), (x, False)):
    with torch.profiler.profile() as profile:
        y = model(rows)
    assert any("rmsnorm::" in event.key for event in profile.key_averages()) == served
    assert torch.equal(y.as_subclass(torch.Tensor), expected)
report.undo()
assert not any("_rmsnorm_device" in vars(m) for m in model.modules())
""")
    assert "3 of 3 norms run on rmsnorm" in out


def test_a_library_that_lacks_a_function():
    out = run("""
print(_core.register_torch_cuda(None, "/nowhere/librmsnorm_cuda.so", "CPU"))
print(_core.register_torch_cuda(None, _core.__file__, "CPU"))
print(_core.register_torch_cuda("/nowhere/libtorch_cuda.so", sys.argv[1], "CPU"))
""").splitlines()
    assert "/nowhere" in out[0] and out[1:] == ["rms_cuda_forward_sized", "libtorch_cuda"]


def test_the_double_is_there():
    assert DOUBLE is not None and os.path.isfile(DOUBLE), "RMSNORM_DEVICE_DOUBLE must name the file that run.sh builds"
