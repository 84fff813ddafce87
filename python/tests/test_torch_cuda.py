# SPDX-License-Identifier: MIT
"""rmsnorm.torch and rmsnorm.nn on CUDA tensors: values, gradients, layouts, streams, graphs, compilers, memory. Needs a GPU."""
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck

import rmsnorm
import rmsnorm.nn
import rmsnorm.torch as rt
from torch_cases import (  # noqa: F401  tests of any device, which run in this file too
    formula,
    test_add_norm,
    test_half_precision_weight_gradient_does_not_lose_rows,
    test_wide_residual_gradients,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ops = torch.ops.rmsnorm


@pytest.fixture(autouse=True)
def on_the_gpu():
    torch.manual_seed(1)
    with torch.device("cuda"):
        yield


def test_the_kernels_are_there():
    assert rt.CUDA_KERNELS == "c++"


# ---- values: the formula in float64 on the CPU ----


SHAPES = [(64,), (1, 64), (3, 5, 48), (2, 3, 4, 33), (17, 4096), (5, 8192), (2, 20000), (0, 8), (5, 0, 8), (300, 128)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward(dtype, shape):
    x = torch.randn(shape).to(dtype)
    w, b = torch.randn(2, shape[-1]).to(dtype)
    for weight, bias in itertools.product((None, w, w.float()), (None, b)):
        if weight is not None and bias is not None:
            bias = bias.to(weight.dtype)
        y = rt.rms_norm(x, weight, 1e-5, bias=bias)
        assert y.device.type == "cuda" and y.dtype == dtype and y.stride() == torch.empty_like(x).stride()
        torch.testing.assert_close(y, formula(x, weight, 1e-5, bias).to(dtype))
        torch.testing.assert_close(
            rt.layer_norm(x, weight, bias, 1e-5), formula(x, weight, 1e-5, bias, layer=True).to(dtype)
        )


OPTIONS = [
    (dict(weight_offset=1.0), dict(weight_offset=1.0)),
    (dict(partial=5), dict(partial=5)),
    (dict(partial=0.25), dict(partial=6)),
    (dict(indices=(1, 7, 23)), dict(indices=(1, 7, 23))),
    (dict(groups=4), dict(groups=4)),
    (dict(groups=4, partial=2), dict(groups=4, partial=2)),
    (dict(eps_place="outside"), dict(outside=True)),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options, same", OPTIONS, ids=str)
def test_options(dtype, options, same):
    x, w = torch.randn(3, 24).to(dtype), torch.randn(24).to(dtype)
    torch.testing.assert_close(rt.rms_norm(x, w, 1e-3, **options), formula(x, w, 1e-3, **same).to(dtype))


def test_llama_and_torch_orders():
    x, w = torch.randn(64, 256).bfloat16(), torch.randn(256).bfloat16()
    f = x.float()
    llama = w * (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)).bfloat16()
    before, after = rt.rms_norm(x, w, 1e-6, rounding="before_weight"), rt.rms_norm(x, w, 1e-6)
    assert (before != llama).float().mean() < 0.002 and (after != llama).float().mean() > 0.1


# ---- gradients ----

FORMS = {
    "rms": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b),
    "layer": lambda x, w, b: rt.layer_norm(x, w, b, 1e-3),
    "offset": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, weight_offset=1.0),
    "partial": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, partial=3),
    "indices": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, indices=(0, 5)),
    "groups": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, groups=2),
    "outside": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, eps_place="outside"),
    "heads": lambda x, w, b: rt.rms_norm(x, torch.stack((w, 2 * w)), 1e-3, bias=torch.stack((b, b))),
    "transposed": lambda x, w, b: rt.rms_norm(x.transpose(0, 1), w, 1e-3, bias=b),
    "add": lambda x, w, b: rt.add_rms_norm(x, x.sin(), w, 1e-3, bias=b),
    "gate after": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, gate=x.sin()),
    "gate before": lambda x, w, b: rt.layer_norm(x, w, b, 1e-3, gate=x.sin(), gate_place="before", activation="sigmoid"),
}


@pytest.mark.parametrize("name", FORMS)
def test_gradients(name):
    x = torch.randn(3, 2, 8, dtype=torch.float64, requires_grad=True)
    w, b = (torch.randn(8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert gradcheck(FORMS[name], (x, w, b), check_forward_ad=True)
    assert gradgradcheck(FORMS[name], (x, w, b))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layer", [False, True], ids=["rms", "layer"])
@pytest.mark.parametrize("shape", [(7, 33), (300, 1000), (64, 4096), (3, 20000)], ids=str)
def test_backward_against_double(dtype, layer, shape):
    x, dy = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    w, b = torch.randn(2, shape[-1]).to(dtype)

    def gradients(function, *tensors):
        tensors = [t.detach().requires_grad_() for t in tensors]
        y = function(*tensors)
        return torch.autograd.grad(y, tensors, dy.to(y.dtype))

    got = gradients(lambda x, w, b: rt.layer_norm(x, w, b, 1e-5) if layer else rt.rms_norm(x, w, 1e-5, bias=b), x, w, b)
    right = gradients(lambda x, w, b: formula(x, w, 1e-5, b, layer=layer), x.double(), w.double(), b.double())
    for g, r in zip(got, right):
        assert g.dtype == dtype
        bound = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
        assert (g.double() - r).norm() <= bound * r.norm()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("place", ["after", "before"])
@pytest.mark.parametrize("shape", [(7, 33), (300, 128), (300, 1000), (64, 4096), (3, 20000)], ids=str)
def test_gates_against_double(dtype, place, shape):
    x, z, dy = (torch.randn(shape).to(dtype) for _ in range(3))
    w = torch.randn(shape[-1]).to(dtype)

    def gradients(function):
        tensors = [t.detach().requires_grad_() for t in (x, z, w)]
        y = function(*tensors)
        return y, *torch.autograd.grad(y, tensors, dy.to(y.dtype))

    def right(x, z, w):
        x, a = x.double(), F.silu(z.double())
        return formula(x, w.double(), 1e-5) * a if place == "after" else formula(x * a, w.double(), 1e-5)

    got = gradients(lambda x, z, w: rt.rms_norm(x, w, 1e-5, gate=z, gate_place=place))
    for g, r in zip(got, gradients(right)):
        assert g.dtype == dtype and g.device.type == "cuda"
        bound = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
        assert (g.double() - r.double()).norm() <= bound * r.double().norm()


def test_gated_modules_are_patched():
    class GatedNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.eps = torch.nn.Parameter(torch.rand(64) + 0.5), 1e-6

        def forward(self, hidden_states, gate):
            h = hidden_states.float() * F.silu(gate.float())
            h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
            return self.weight * h.to(hidden_states.dtype)

    x, z = torch.randn(2, 5, 64).bfloat16()
    model = torch.nn.Sequential(GatedNorm()).bfloat16()
    expected = model[0](x, z)
    report = rmsnorm.patch(model)
    assert len(report.patched) == 1, str(report)
    torch.testing.assert_close(model[0](x, z), expected)


# ---- layouts ----


def views(x):
    for order in itertools.permutations(range(3)):
        back = [order.index(d) for d in range(3)]
        yield x.permute(order).contiguous().permute(back)
    for cut in (lambda w: w[:, 2:6, 10:30], lambda w: w[:, ::2, ::2][:, :4], lambda w: w[:, 1:5, :20]):
        view = cut(torch.zeros(3, 9, 40, dtype=x.dtype))
        view.copy_(x)
        yield view
    transposed = torch.zeros(4, 3, 40, dtype=x.dtype)[..., :20]
    transposed.copy_(x.transpose(0, 1))
    yield transposed.transpose(0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["rms", "layer", "heads"])
def test_layouts_do_not_change_bits(dtype, kind):
    x, w, dy = torch.randn(3, 4, 20).to(dtype), torch.randn(20).to(dtype), torch.randn(3, 4, 20).to(dtype)
    if kind == "heads":
        w = torch.randn(4, 20).to(dtype)

    def run(x, dy):
        x, weight = x.detach().requires_grad_(), w.clone().requires_grad_()
        y = rt.layer_norm(x, weight, None, 1e-5) if kind == "layer" else rt.rms_norm(x, weight, 1e-5)
        return (y, *torch.autograd.grad(y, (x, weight), dy))

    y, dx, dw = run(x, dy)
    for a, b in itertools.product(views(x), views(dy)):
        got = run(a, b)
        assert got[0].stride() == torch.empty_like(a).stride()
        if a.stride(-1) == 1 and b.stride(-1) == 1:
            assert torch.equal(got[0], y) and torch.equal(got[1], dx)
        else:  # elements that lie apart have a sum of their own order
            torch.testing.assert_close(got[0], y)
            torch.testing.assert_close(got[1], dx)
        torch.testing.assert_close(got[2], dw)


def test_views_are_read_where_they_are():
    from rmsnorm import _core

    qkv, before = torch.randn(2, 7, 10, 64), _core.copies()
    for view in (qkv, qkv[:, :, :6], qkv[:, :, :6].transpose(1, 2), qkv[:, :, 6:8].transpose(1, 2)):
        x = view.detach().requires_grad_()
        y = rt.rms_norm(x)
        torch.autograd.grad(y, x, torch.randn_like(y))
        assert torch.equal(y, rt.rms_norm(view.contiguous()))
    assert _core.copies() == before


def test_expanded_tensors():
    for expanded in (torch.randn(20).expand(3, 4, 20), torch.randn(3, 1).expand(3, 20)):
        assert torch.equal(rt.rms_norm(expanded), rt.rms_norm(expanded.clone()))
    x = torch.randn(3, 20, requires_grad=True)
    rt.rms_norm(x).sum().backward()
    assert torch.equal(x.grad, torch.autograd.grad(rt.rms_norm(x), x, torch.ones(3, 20))[0])


# ---- same row, same bits; runs repeat ----


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batch_invariance(dtype):
    x, w = torch.randn(300, 1000).to(dtype), torch.randn(1000).to(dtype)
    y, z = rt.rms_norm(x, w), rt.layer_norm(x, w, w)
    for i in (0, 100, 299):
        assert torch.equal(rt.rms_norm(x[i], w), y[i]) and torch.equal(rt.layer_norm(x[i : i + 1], w, w)[0], z[i])


def test_runs_repeat_in_deterministic_mode():
    torch.use_deterministic_algorithms(True)
    try:
        x, w = torch.randn(5000, 1024).bfloat16().requires_grad_(), torch.randn(1024).requires_grad_()
        dy = torch.randn(5000, 1024).bfloat16()
        first, *others = [torch.autograd.grad(rt.rms_norm(x, w), (x, w), dy) for _ in range(4)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other))


# ---- streams and graphs ----


def test_side_stream():
    stream, x, w = torch.cuda.Stream(), torch.randn(4096, 4096), torch.randn(4096)
    expected = rt.rms_norm(x * 2, w)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late = x * 2  # ready only after the sleep
        y = rt.rms_norm(late, w)
    assert not stream.query()  # the call has not waited
    stream.synchronize()
    assert torch.equal(y, expected)


def test_graph():
    x, w = torch.randn(64, 512).bfloat16().requires_grad_(), torch.randn(512).requires_grad_()
    dy, qkv = torch.randn(64, 512).bfloat16(), torch.randn(64, 12, 64).bfloat16()

    def step():
        y = rt.rms_norm(x, w)
        s = rt.add_rms_norm(x, y, w)[1]
        heads = rt.rms_norm(qkv[:, :4])
        strided = rt.rms_norm(qkv[:, :, ::2])  # needs a temporary
        return (y, s, heads, strided, *torch.autograd.grad(y, (x, w), dy))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        x.copy_(torch.randn(64, 512))
        qkv.copy_(torch.randn(64, 12, 64))
    graph.replay()
    for a, b in zip(captured, step()):
        assert torch.equal(a, b)


# ---- compilers ----


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear, self.second = rmsnorm.nn.RMSNorm(64, eps=1e-5), torch.nn.Linear(64, 48), rmsnorm.nn.LayerNorm(8)

    def forward(self, x):
        y, x = rt.add_rms_norm(x, x.sin(), self.norm.weight, 1e-5)
        q, k, _ = self.linear(self.norm(y)).view(-1, 6, 8).split(2, -2)
        return self.second(q.transpose(0, 1)).sum() * rt.rms_norm(k, eps=1e-5).sum() + x.sum()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compile(mode):
    torch._dynamo.reset()
    module = Block()
    compiled = torch.compile(module, fullgraph=True, dynamic=mode == "default", mode=mode)
    for batch in (3, 7) if mode == "default" else (5, 5, 5):
        x = torch.randn(batch, 64)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        expected, got = module(a), compiled(b)
        torch.testing.assert_close(got, expected, atol=1e-3, rtol=1e-3)
        expected_grads = torch.autograd.grad(expected, (a, *module.parameters()))
        for e, g in zip(expected_grads, torch.autograd.grad(got, (b, *module.parameters()))):
            torch.testing.assert_close(g, e, atol=1e-2, rtol=1e-3)


def test_opcheck():
    x, r, w, b = (torch.randn(s) for s in ((3, 4, 8), (3, 4, 8), (8,), (8,)))
    for mode in (0, 1):
        options = (1e-5, 0.0, 0, 1, mode)
        stats = ops._norm_stats(x, w, b, *options)[1]
        for tensor in (x, x.transpose(0, 1), x[:, 1:3]):
            torch.library.opcheck(ops._norm.default, (tensor, w, b, *options))
        torch.library.opcheck(ops._add_norm_stats.default, (x, r, None, w, b, *options))
        torch.library.opcheck(ops._norm_backward.default, (x, x, w, stats, 7, *options))
        torch.library.opcheck(ops._add_norm_backward.default, (x, x, r, None, None, w, stats, 7, *options))


# ---- the operations in two halves, for rows that are spread over GPUs ----


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_halves(dtype):
    for shape, layer in itertools.product(((7, 64), (3, 5, 600), (4, 0), (0, 8)), (0, 1)):
        x, dy = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
        w, options = torch.randn(shape[-1]).to(dtype), (1e-5, 0.0, 0, 1, layer, None)
        cut = shape[-1] // 3
        parts = [(x[..., :cut], dy[..., :cut], w[:cut]), (x[..., cut:], dy[..., cut:], w[cut:])]
        stats = [ops._split_stats(a, *options) for a, _, _ in parts]
        stats = ops._split_merge(*stats) if layer else stats[0] + stats[1]
        sums = sum(ops._split_backward_stats(d, a, stats, v, *options) for a, d, v in parts)
        y = torch.cat([ops._split_apply(a, stats, v, None, *options) for a, _, v in parts], -1)
        gradients = [ops._split_backward_apply(d, a, stats, sums, v, 3, *options) for a, d, v in parts]
        if shape[-1] == 0:
            continue
        expected, saved = ops._norm_stats(x, w, None, *options)
        dx, dw, _ = ops._norm_backward(dy, x, w, saved, 3, *options)
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(torch.cat([g[0] for g in gradients], -1), dx)
        torch.testing.assert_close(torch.cat([g[1] for g in gradients]), dw)


def test_weighted_norm():
    x, w = torch.randn(5, 96), torch.randn(96)
    assert torch.equal(ops._weighted_norm(x, w, 1e-5), ops._norm(x, w, None, 1e-5))


# ---- modules, autocast ----


@pytest.mark.parametrize("ours, theirs", [(rmsnorm.nn.RMSNorm, torch.nn.RMSNorm), (rmsnorm.nn.LayerNorm, torch.nn.LayerNorm)])
def test_modules_and_autocast(ours, theirs):
    for dtype in (torch.float32, torch.bfloat16):
        a, b, x = ours((4, 16), dtype=dtype), theirs((4, 16), dtype=dtype), torch.randn(3, 4, 16).to(dtype)
        torch.testing.assert_close(a(x), b(x))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert a(x).dtype == b(x).dtype
            torch.testing.assert_close(a(x), b(x))
        assert rt.rms_norm(x).dtype == dtype
    module = rmsnorm.nn.PartialRMSNorm(64, p=0.0625, eps=1e-6)
    x = torch.randn(3, 64)
    torch.testing.assert_close(module(x), formula(x, None, 1e-6, partial=4).float())


def test_patch():
    class LlamaStyleNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.variance_epsilon = torch.nn.Parameter(torch.randn(256)), 1e-6

        def forward(self, x):
            f = x.float()
            f = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
            return self.weight * f.to(x.dtype)

    model = torch.nn.Sequential(LlamaStyleNorm()).bfloat16()
    x = torch.randn(50, 256).bfloat16()
    own = model(x)
    report = rmsnorm.patch(model)
    assert len(report.patched) == 1 and report.patched[0].spec.rounding == "before_weight"
    assert (model(x) != own).float().mean() < 0.002
    report.undo()
    assert torch.equal(model(x), own)


# ---- errors and memory ----


@pytest.mark.parametrize("call", [
    lambda x, w: rt.rms_norm(x, w.cpu()),
    lambda x, w: rt.rms_norm(x.cpu(), w),
    lambda x, w: rt.rms_norm(x, w[:7]),
    lambda x, w: rt.rms_norm(x, w.double()),
    lambda x, w: rt.rms_norm(x.int()),
    lambda x, w: rt.rms_norm(x, w, -1.0),
    lambda x, w: rt.rms_norm(x, partial=9),
    lambda x, w: rt.add_rms_norm(x, x.cpu()),
    lambda x, w: ops._norm(x, w, None, 1e-5, 0.0, 0, 1, 0, torch.arange(3, device="cpu")),
])  # fmt: skip
def test_errors(call):
    with pytest.raises(RuntimeError, match="rmsnorm"):
        call(torch.ones(3, 8), torch.ones(8))
    torch.cuda.synchronize()


def test_memory():
    """Nothing is left behind; what is kept for a backward beside y is four bytes a row."""
    x, w = torch.randn(4096, 512).bfloat16().requires_grad_(), torch.randn(512, requires_grad=True)
    torch.autograd.grad(rt.rms_norm(x, w).sum(), (x, w))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    y = rt.rms_norm(x, w)
    assert torch.cuda.memory_allocated() - before == x.numel() * 2 + 4096 * 4
    del y
    for _ in range(1000):
        torch.autograd.grad(rt.rms_norm(x, w).sum(), (x, w))
        with pytest.raises(RuntimeError):
            ops._norm(x, w.cpu(), None, 1e-5)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_other_devices():
    if torch.cuda.device_count() < 2:
        assert torch.cuda.current_device() == 0
        return
    x = torch.randn(5, 64, device="cuda:1", requires_grad=True)
    y = rt.rms_norm(x, torch.ones(64, device="cuda:1"))
    torch.testing.assert_close(y, formula(x).to(y.dtype))
    assert torch.autograd.grad(y.sum(), x)[0].device == x.device and torch.cuda.current_device() == 0
    with pytest.raises(RuntimeError, match="another device"):
        rt.rms_norm(x, torch.ones(64, device="cuda:0"))


def test_against_torch():
    x, w = torch.randn(1000, 4096).bfloat16(), torch.randn(4096).bfloat16()
    assert (rt.rms_norm(x, w, 1e-6) != F.rms_norm(x, (4096,), w, 1e-6)).float().mean() < 0.01
