# SPDX-License-Identifier: MIT
"""rmsnorm.torch and rmsnorm.nn: values, gradients, layouts, and everything that torch does to functions."""
import itertools
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck

import rmsnorm.nn
import rmsnorm.torch as rt
from torch_cases import (  # noqa: F401  tests of any device, which run in this file too
    formula,
    test_add_norm,
    test_half_precision_weight_gradient_does_not_lose_rows,
    test_wide_residual_gradients,
)

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ops = torch.ops.rmsnorm


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def test_the_kernels_are_the_ones_meant():
    assert rt.KERNELS == os.environ.get("RMSNORM_TORCH_KERNELS", "c++")


# ---- values ----


def assert_near(y, expected):
    wide = expected.to(y.dtype)
    torch.testing.assert_close(y, wide)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(64,), (1, 64), (3, 5, 48), (2, 3, 4, 33), (0, 8), (5, 0, 8)], ids=str)
def test_forward(dtype, shape):
    x = torch.randn(shape).to(dtype)
    w, b = torch.randn(2, shape[-1]).to(dtype)
    for weight, bias in itertools.product((None, w, w.float()), (None, b)):
        if weight is not None and bias is not None:
            bias = bias.to(weight.dtype)
        y = rt.rms_norm(x, weight, 1e-5, bias=bias)
        assert y.dtype == dtype and y.stride() == torch.empty_like(x).stride()
        assert_near(y, formula(x, weight, 1e-5, bias))
        assert_near(rt.layer_norm(x, weight, bias, 1e-5), formula(x, weight, 1e-5, bias, layer=True))


OPTIONS = [
    (dict(weight_offset=1.0), dict(weight_offset=1.0)),
    (dict(partial=5), dict(partial=5)),
    (dict(partial=0.25), dict(partial=6)),
    (dict(groups=4), dict(groups=4)),
    (dict(groups=4, partial=2), dict(groups=4, partial=2)),
    (dict(eps_place="outside"), dict(outside=True)),
]


@pytest.mark.parametrize("options, same", OPTIONS, ids=str)
def test_options(options, same):
    x, w = torch.randn(3, 24, dtype=torch.float64), torch.randn(24, dtype=torch.float64)
    torch.testing.assert_close(rt.rms_norm(x, w, 1e-3, **options), formula(x, w, 1e-3, **same))


def test_the_numpy_functions_give_the_same_bits():
    import numpy as np

    x, w, dy = torch.randn(5, 100), torch.randn(100), torch.randn(5, 100)
    x.requires_grad_(), w.requires_grad_()
    y = rt.rms_norm(x, w, 1e-6)
    y.backward(dy)
    plain = [t.detach().numpy() for t in (x, w, dy)]
    assert np.array_equal(y.detach().numpy(), rmsnorm.rms_norm(plain[0], plain[1]))
    grads = rmsnorm.rms_norm_backward(plain[2], plain[0], plain[1])
    assert np.array_equal(x.grad.numpy(), grads.dx) and np.array_equal(w.grad.numpy(), grads.dweight)
    # torch tensors go into the NumPy functions through DLPack, bfloat16 too
    assert np.array_equal(rmsnorm.rms_norm(x.detach(), plain[1]), y.detach().numpy())
    half = rmsnorm.rms_norm(x.detach().bfloat16(), plain[1])
    assert torch.equal(torch.from_numpy(half.view(np.int16)).view(torch.bfloat16), rt.rms_norm(x.detach().bfloat16(), w.detach()))


def test_llama_and_torch_orders():
    x, w = torch.randn(64, 256).bfloat16(), torch.randn(256).bfloat16()
    f = x.float()
    llama = w * (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)).bfloat16()
    before, after = rt.rms_norm(x, w, 1e-6, rounding="before_weight"), rt.rms_norm(x, w, 1e-6)
    assert (before != llama).float().mean() < 0.002 and (after != llama).float().mean() > 0.1
    assert (after != F.rms_norm(x, (256,), w, 1e-6)).float().mean() < 0.002


# ---- layouts ----


def views(x):
    """(3, 4, 20) tensors with the values of x in all kinds of memory."""
    for order in itertools.permutations(range(3)):
        back = [order.index(d) for d in range(3)]
        yield f"permuted {order}", x.permute(order).contiguous().permute(back)
    cuts = {
        "slice": lambda wide: wide[:, 2:6, 10:30],
        "columns": lambda wide: wide[:, ::2, ::2][:, :4],
        "heads": lambda wide: wide[:, 1:5, :20],
    }
    for name, cut in cuts.items():
        view = cut(torch.zeros(3, 9, 40, dtype=x.dtype))
        view.copy_(x)
        yield name, view
    transposed = torch.zeros(4, 3, 40, dtype=x.dtype)[..., :20]
    transposed.copy_(x.transpose(0, 1))
    yield "transposed slice", transposed.transpose(0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_layouts_do_not_change_bits(dtype, kind):
    x, w, dy = torch.randn(3, 4, 20).to(dtype), torch.randn(20).to(dtype), torch.randn(3, 4, 20).to(dtype)

    def run(x, dy):
        x, weight = x.detach().requires_grad_(), w.clone().requires_grad_()
        y = rt.rms_norm(x, weight, 1e-5) if kind == "rms" else rt.layer_norm(x, weight, None, 1e-5)
        return (y, *torch.autograd.grad(y, (x, weight), dy))

    y, dx, dw = run(x, dy)
    for (name, a), (name2, b) in itertools.product(views(x), views(dy)):
        got = run(a, b)
        assert torch.equal(got[0], y) and got[0].stride() == torch.empty_like(a).stride(), name
        assert torch.equal(got[1], dx), (name, name2)
        torch.testing.assert_close(got[2], dw)


def test_expanded_tensors():
    x = torch.randn(20)
    expanded = x.expand(3, 4, 20)
    assert torch.equal(rt.rms_norm(expanded), rt.rms_norm(expanded.clone()))
    x = torch.randn(3, 20, requires_grad=True)
    rt.rms_norm(x).sum().backward()  # dy is expanded
    expected = torch.autograd.grad(rt.rms_norm(x), x, torch.ones(3, 20))[0]
    assert torch.equal(x.grad, expected)
    column = torch.randn(3, 1).expand(3, 20)
    assert torch.equal(rt.rms_norm(column), rt.rms_norm(column.clone()))


def test_views_are_read_where_they_are():
    """q and k of a fused tensor, in both orders, and any dense permutation: forward and backward copy nothing."""
    from rmsnorm import _core

    qkv, before = torch.randn(2, 7, 10, 16), _core.copies()
    dense = [torch.randn(2, 3, 4, 16).permute(*order, 3) for order in itertools.permutations(range(3))]
    for view in (qkv, qkv[0], qkv[:, :, :6], qkv[:, :, :6].transpose(1, 2), qkv[:, :, 6:8].transpose(1, 2), *dense):
        x = view.detach().requires_grad_()
        y = rt.rms_norm(x)
        (dx,) = torch.autograd.grad(y, x, torch.randn_like(y))
        assert dx.stride() == torch.empty_like(x).stride()
        assert torch.equal(y, rt.rms_norm(view.contiguous()))
    assert _core.copies() == before
    rt.rms_norm(torch.randn(4, 32)[:, ::2])
    assert _core.copies() == before + 1


def test_per_head_weights():
    x, w = torch.randn(5, 3, 16, requires_grad=True), torch.randn(3, 16, requires_grad=True)
    y = rt.rms_norm(x, w, bias=torch.zeros(3, 16, requires_grad=True))
    for h in range(3):
        assert torch.equal(y[:, h], rt.rms_norm(x[:, h], w[h], bias=torch.zeros(16)))
    y.square().sum().backward()
    assert w.grad.shape == (3, 16)


def visible_strides(t):
    """Those that decide where an element is. torch's own fake and real empty_like differ in the others."""
    return [stride for size, stride in zip(t.shape, t.stride()) if size > 1] if t.numel() else []


SIZES = [(2, 3, 4), (1, 3, 4), (2, 1, 4), (1, 1, 4), (0, 3, 4), (2, 0, 4), (2, 3, 1), (1, 1, 1)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_fake_results_have_the_strides_of_real_ones(size):
    from torch._subclasses.fake_tensor import FakeTensorMode

    base = torch.randn(*(n + 2 for n in size))
    tensors = [base[tuple(slice(1, 1 + n) for n in size)]]
    tensors += [torch.randn(*(size[i] for i in order)).permute([order.index(d) for d in range(3)])
                for order in itertools.permutations(range(3))]  # fmt: skip
    tensors += [torch.randn(size[1:]).expand(size), torch.randn(size[:2]).unsqueeze(-1).expand(size)]
    tensors += [t.transpose(0, 1) for t in tensors[:2]]
    for x in tensors:
        for mode in (0, 1):
            options = (1e-5, 0.0, 0, 1, mode)
            with FakeTensorMode(allow_non_fake_inputs=False) as fakes:
                fake = fakes.from_tensor(x)
                expected = [*ops._norm_stats(fake, None, None, *options), *ops._add_norm_stats(fake, fake, None, None, None, *options)]
                expected += ops._norm_backward(fake, fake, None, expected[1], 7, *options)
            real = [*ops._norm_stats(x, None, None, *options), *ops._add_norm_stats(x, x, None, None, None, *options)]
            real += ops._norm_backward(x, x, None, real[1], 7, *options)
            for f, r in zip(expected, real):
                assert f.shape == r.shape and f.dtype == r.dtype
                assert visible_strides(f) == visible_strides(r), (x.shape, x.stride())
            assert real[0].stride() == torch.empty_like(x).stride()


# ---- gradients ----

FUNCTIONS = {
    "rms": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b),
    "layer": lambda x, w, b: rt.layer_norm(x, w, b, 1e-3),
    "offset": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, weight_offset=1.0),
    "partial": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, partial=3),
    "groups": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, groups=2),
    "layer groups": lambda x, w, b: rt.layer_norm(x, w, b, 1e-3, groups=2),
    "outside": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, eps_place="outside"),
    "layer outside": lambda x, w, b: rt.layer_norm(x, w, b, 1e-3, eps_place="outside"),
    "before": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, rounding="before_weight"),
    "heads": lambda x, w, b: rt.rms_norm(x, torch.stack((w, 2 * w)), 1e-3, bias=torch.stack((b, b))),
    "transposed": lambda x, w, b: rt.rms_norm(x.transpose(0, 1), w, 1e-3, bias=b),
    "add": lambda x, w, b: rt.add_rms_norm(x, x.sin(), w, 1e-3, bias=b),
    "add layer": lambda x, w, b: rt.add_layer_norm(x, x.sin(), w, b, 1e-3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    x = torch.randn(3, 2, 8, dtype=torch.float64, requires_grad=True)
    w, b = (torch.randn(8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert gradcheck(FUNCTIONS[name], (x, w, b))
    assert gradgradcheck(FUNCTIONS[name], (x, w, b))
    assert gradcheck(lambda x: FUNCTIONS[name](x, w.detach(), b.detach()), (x,))
    assert gradcheck(lambda w: FUNCTIONS[name](x.detach(), w, b.detach()), (w,))
    assert gradcheck(lambda b: FUNCTIONS[name](x.detach(), w.detach(), b), (b,))


def test_only_one_result_of_add_norm_is_used():
    x, r = torch.randn(2, 8, requires_grad=True), torch.randn(2, 8, requires_grad=True)
    w = torch.randn(8, requires_grad=True)
    y, s = rt.add_rms_norm(x, r, w)
    s.sum().backward()
    assert torch.equal(x.grad, torch.ones(2, 8)) and torch.equal(r.grad, torch.ones(2, 8)) and w.grad is None
    y, s = rt.add_rms_norm(x, r, w)
    expected = torch.autograd.grad(rt.rms_norm(s.detach().requires_grad_(), w).sum(), w)[0]
    assert torch.equal(torch.autograd.grad(y.sum(), w)[0], expected)


# ---- the dispatcher, functorch, compilers ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_opcheck(dtype):
    x, r, w, b = (torch.randn(s).to(dtype) for s in ((3, 4, 8), (3, 4, 8), (8,), (8,)))
    for mode in (0, 1):
        options = (1e-5, 0.0, 0, 1, mode)
        stats = ops._norm_stats(x, w, b, *options)[1]
        for tensor in (x, x.transpose(0, 1), x[:, 1:3]):
            torch.library.opcheck(ops._norm.default, (tensor, w, b, *options))
            torch.library.opcheck(ops._weighted_norm.default, (tensor, w, 1e-5))
            torch.library.opcheck(ops._norm_stats.default, (tensor, w, None, *options))
        torch.library.opcheck(ops._add_norm.default, (x, r, None, None, None, *options))
        torch.library.opcheck(ops._add_norm_stats.default, (x, r, None, w, b, *options))
        torch.library.opcheck(ops._norm_backward.default, (x, x, w, stats, 7, *options))
        torch.library.opcheck(ops._add_norm_backward.default, (x, x, r, None, None, w, stats, 7, *options))


def test_weighted_norm():
    """The operator with the fewest arguments: that of calls without gradients."""
    x, w, heads = torch.randn(3, 4, 8), torch.randn(8), torch.randn(4, 8)
    for view, weight in ((x, w), (x.transpose(0, 1), w), (x, heads), (x.bfloat16(), w), (x.bfloat16(), w.bfloat16())):
        expected = ops._norm(view, weight, None, 1e-5)
        assert torch.equal(ops._weighted_norm(view, weight, 1e-5), expected)
        with torch.no_grad():
            assert torch.equal(rt.rms_norm(view, weight, 1e-5), expected)
    with torch.no_grad():
        vmapped = torch.vmap(rt.rms_norm, in_dims=(1, 0))(x, heads)
    assert torch.equal(vmapped, torch.stack([rt.rms_norm(x[:, i], heads[i]) for i in range(4)]))
    for bad in ((x, w[:5], 1e-5), (x.int(), w, 1e-5), (x, w, -1.0)):
        with pytest.raises(RuntimeError, match="rmsnorm"):
            ops._weighted_norm(*bad)


def test_opinfo_samples():
    from torch.testing._internal.common_methods_invocations import op_db

    count = 0
    for info in op_db:
        if info.name not in ("nn.functional.rms_norm", "nn.functional.layer_norm"):
            continue
        layer = info.name.endswith("layer_norm")
        for dtype in (torch.float32, torch.float64):
            for sample in info.sample_inputs("cpu", dtype, requires_grad=True):
                shape, *rest = sample.args
                keywords = dict(sample.kwargs)
                weight = keywords.get("weight", rest[0] if rest else None)
                bias = keywords.get("bias", rest[1] if len(rest) > 1 else None)
                eps = keywords.get("eps", 1e-5 if layer else None)
                if eps is not None and eps < 0:  # torch computes something; this library refuses it, see test_errors
                    continue
                module = (rmsnorm.nn.LayerNorm if layer else rmsnorm.nn.RMSNorm)(shape, eps=eps, dtype=dtype)
                module.weight = None if weight is None else torch.nn.Parameter(weight.detach())
                if layer:
                    module.bias = None if bias is None else torch.nn.Parameter(bias.detach())
                expected, got = info.op(sample.input, *sample.args, **sample.kwargs), module(sample.input)
                torch.testing.assert_close(got, expected, atol=2e-6, rtol=1e-5)
                if got.numel():
                    ours = torch.autograd.grad(got.sin().sum(), sample.input)[0]
                    theirs = torch.autograd.grad(expected.sin().sum(), sample.input)[0]
                    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
                count += 1
    assert count >= 20


def test_vmap_and_func():
    from torch.func import functional_call, grad, jacrev, vmap

    x, w = torch.randn(5, 3, 8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    weights = torch.randn(5, 8, dtype=torch.float64)
    loop = torch.stack([rt.rms_norm(t, w) for t in x])
    assert torch.equal(vmap(lambda t: rt.rms_norm(t, w))(x), loop)
    assert torch.equal(vmap(lambda t: rt.rms_norm(t, w), in_dims=1, out_dims=1)(x), loop)
    assert torch.equal(vmap(rt.rms_norm)(x, weights), torch.stack([rt.rms_norm(t, v) for t, v in zip(x, weights)]))
    with torch.no_grad():
        assert torch.equal(vmap(lambda t: rt.layer_norm(t, w))(x), torch.stack([rt.layer_norm(t, w) for t in x]))
    y, s = vmap(lambda t: rt.add_rms_norm(t, t, w))(x)
    assert torch.equal(s, 2 * x)

    def loss(w, t):
        return rt.rms_norm(t, w, 1e-3).sin().sum()

    per_sample = vmap(grad(loss), in_dims=(None, 0))(w, x)
    for t, g in zip(x, per_sample):
        v = w.clone().requires_grad_()
        torch.testing.assert_close(g, torch.autograd.grad(loss(v, t), v)[0])
    assert jacrev(lambda t: rt.rms_norm(t, w))(x[0]).shape == (3, 8, 3, 8)
    torch.testing.assert_close(grad(lambda t: grad(loss, 1)(w, t).square().sum())(x[0]),
                               grad(lambda t: grad(lambda u: formula(u, w, 1e-3).sin().sum())(t).square().sum())(x[0]))  # fmt: skip
    module = rmsnorm.nn.RMSNorm(8, dtype=torch.float64)
    state = {"weight": w}
    assert torch.equal(functional_call(module, state, (x,)), rt.rms_norm(x, w, torch.finfo(torch.float64).eps))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear, self.second = rmsnorm.nn.RMSNorm(16, eps=1e-5), torch.nn.Linear(16, 48), rmsnorm.nn.LayerNorm(8)

    def forward(self, x):
        y, x = rt.add_rms_norm(x, x.sin(), self.norm.weight, 1e-5)
        q, k, _ = self.linear(self.norm(y)).unflatten(-1, (6, 8)).split(2, -2)
        return self.second(q.transpose(0, 1)).sum() * rt.rms_norm(k, eps=1e-5).sum() + x.sum()


def test_compile():
    torch._dynamo.reset()
    module = Block()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(module, fullgraph=True, dynamic=True)
    for batch in (3, 7, 16):
        x = torch.randn(batch, 16)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        expected, got = module(a), compiled(b)
        torch.testing.assert_close(got, expected)
        expected_grads = torch.autograd.grad(expected, (a, *module.parameters()))
        got_grads = torch.autograd.grad(got, (b, *module.parameters()))
        for e, g in zip(expected_grads, got_grads):
            torch.testing.assert_close(g, e, atol=1e-4, rtol=1e-4)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # with gradients and without


def test_compiled_norm_has_the_same_bits():
    torch._dynamo.reset()
    x, w, dy = (torch.randn(s).bfloat16() for s in ((6, 64), (64,), (6, 64)))
    x.requires_grad_(), w.requires_grad_()
    for function in (lambda x, w: rt.rms_norm(x, w, 1e-6, rounding="before_weight"), lambda x, w: rt.layer_norm(x, w, w)):
        y, z = function(x, w), torch.compile(function, fullgraph=True)(x, w)
        assert torch.equal(y, z)
        for a, b in zip(torch.autograd.grad(y, (x, w), dy), torch.autograd.grad(z, (x, w), dy)):
            assert torch.equal(a, b)


def test_compiled_share_of_a_row():
    """With a width that is dynamic, too."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: rt.rms_norm(x, partial=0.3, groups=2), fullgraph=True, dynamic=True)
    for shape in ((3, 16), (5, 16), (3, 24)):
        x = torch.randn(shape)
        assert torch.equal(compiled(x), rt.rms_norm(x, partial=0.3, groups=2))


def test_export(tmp_path):
    module, x = Block().eval(), torch.randn(4, 16)
    batch = torch.export.Dim("batch", min=2, max=64)
    with torch.no_grad():
        program = torch.export.export(module, (x,), dynamic_shapes=({0: batch},))
        torch.export.save(program, tmp_path / "block.pt2")
        loaded = torch.export.load(tmp_path / "block.pt2").module()
        for n in (4, 9):
            x = torch.randn(n, 16)
            torch.testing.assert_close(loaded(x), module(x))
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert "rmsnorm._norm.default" in names and "rmsnorm._add_norm.default" in names


def test_autocast_leaves_the_type_alone():
    x, w = torch.randn(3, 16).bfloat16(), torch.randn(16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert rt.rms_norm(x, w).dtype == torch.bfloat16 and torch.equal(rt.rms_norm(x, w), rt.rms_norm(x, w))
        assert rmsnorm.nn.RMSNorm(16)(x).dtype == torch.nn.RMSNorm(16)(x).dtype
        y = rmsnorm.nn.RMSNorm(16)(torch.nn.Linear(16, 16)(x.float()))
        assert y.dtype == torch.nn.RMSNorm(16)(torch.nn.Linear(16, 16)(x.float())).dtype


def test_deterministic_mode():
    x, w = torch.randn(3, 16, requires_grad=True), torch.ones(16, requires_grad=True)

    def gradients():
        return torch.autograd.grad(rt.rms_norm(x, w).square().sum(), (x, w))

    expected = gradients()
    torch.use_deterministic_algorithms(True)  # refuses what is not known to be
    try:
        assert all(map(torch.equal, gradients(), expected))
    finally:
        torch.use_deterministic_algorithms(False)


def test_meta_device():
    x = torch.empty(3, 16, device="meta")
    assert rt.rms_norm(x, torch.empty(16, device="meta")).shape == (3, 16)
    assert rmsnorm.nn.RMSNorm(16, device="meta")(x).device.type == "meta"


@pytest.mark.parametrize("call", [
    lambda x, meta: rt.rms_norm(x, meta[0]),
    lambda x, meta: rt.rms_norm(meta, x[0]),
    lambda x, meta: rt.rms_norm(x, bias=meta[0]),
    lambda x, meta: rt.layer_norm(x, x[0], meta[0]),
    lambda x, meta: rt.add_rms_norm(x, meta),
    lambda x, meta: rt.rms_norm(x, gate=meta),
    lambda x, meta: rt.rms_norm(x.clone().requires_grad_(), meta[0]),
])  # fmt: skip
def test_tensors_without_values_beside_others(call):
    """A result would be memory that nobody has written."""
    with pytest.raises(RuntimeError, match="different devices: (cpu, meta|meta, cpu)"):
        call(torch.ones(3, 8), torch.ones(3, 8, device="meta"))


# ---- same row, same bits ----


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batch_invariance(dtype):
    x, w = torch.randn(300, 1000).to(dtype), torch.randn(1000).to(dtype)
    y, z = rt.rms_norm(x, w), rt.layer_norm(x, w, w)
    for i in (0, 100, 299):
        assert torch.equal(rt.rms_norm(x[i], w), y[i]) and torch.equal(rt.layer_norm(x[i : i + 1], w, w)[0], z[i])
    assert torch.equal(rt.rms_norm(x[17:255], w), y[17:255])


def test_threads_do_not_change_bits():
    x = torch.randn(1500, 512).bfloat16().requires_grad_()
    w, dy = torch.randn(512).requires_grad_(), torch.randn(1500, 512).bfloat16()
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            y = rt.rms_norm(x, w)
            results.append((y, *torch.autograd.grad(y, (x, w), dy)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


# ---- errors and memory ----


@pytest.mark.parametrize("call", [
    lambda x, w: rt.rms_norm(x, w[:7]),
    lambda x, w: rt.rms_norm(x, w.double()),
    lambda x, w: rt.rms_norm(x.int()),
    lambda x, w: rt.rms_norm(x, w, -1.0),
    lambda x, w: rt.rms_norm(x, w, bias=w[None, None]),
    lambda x, w: rt.rms_norm(x, w, groups=3),
    lambda x, w: rt.rms_norm(x, partial=9),
    lambda x, w: rt.rms_norm(torch.tensor(1.0)),
    lambda x, w: rt.rms_norm(torch.ones(3, 0)),
    lambda x, w: rt.add_rms_norm(x, x[:2]),
    lambda x, w: rt.add_rms_norm(x, x.double()),
    lambda x, w: torch.ops.rmsnorm._norm_backward(x, x, w, torch.ones(1, 3, 2), 7, 1e-5),
])  # fmt: skip
def test_errors(call):
    with pytest.raises(RuntimeError, match="rmsnorm"):
        call(torch.ones(3, 8), torch.ones(8))


@pytest.mark.parametrize("options", [
    dict(rounding="no"), dict(eps_place="no"), dict(partial=0), dict(partial=1.5), dict(partial=2**70), dict(groups=0),
    dict(groups=2**70),
], ids=str)  # fmt: skip
def test_bad_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        rt.rms_norm(torch.ones(3, 8), **options)


def test_groups_of_a_wrong_type():
    for function in (rt.rms_norm, rt.layer_norm, lambda x, **options: rt.add_rms_norm(x, x, **options),
                     lambda x, **options: rt.rms_norm(x, gate=x, **options)):  # fmt: skip
        for groups in (True, 2.0, None):
            with pytest.raises(TypeError, match="groups"):
                function(torch.ones(3, 8), groups=groups)


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_the_dtype_of_a_parameter(name):
    for x, parameter in ((torch.ones(3, 8), torch.ones(8).bfloat16()), (torch.ones(3, 8).half(), torch.ones(8).double())):
        with pytest.raises(RuntimeError, match=name):
            rt.rms_norm(x, **{name: parameter})


def memory():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_constant_memory():
    x, w = torch.ones(4, 64), torch.ones(64)
    strided = torch.ones(4, 128)[:, ::2]
    stats = ops._norm_stats(x, w, None, 1e-5)[1]

    def calls(count):
        for _ in range(count):
            rt.rms_norm(x, w, bias=w)
            ops._norm_stats(strided, w, None, 1e-5)
            ops._add_norm_stats(x, x, None, w, w, 1e-5)
            ops._norm_backward(x, strided, w, stats, 7, 1e-5)
            ops._add_norm_backward(x, x, x, None, None, w, stats, 1, 1e-5)
            for bad in ((x, w[:3], w), (x, w, w.double()), (x.int(), w, w), (x, w, w[None, None])):
                with pytest.raises(RuntimeError):
                    ops._norm(*bad, 1e-5)

    calls(500)
    before = memory()
    calls(12000)  # 108,000 calls
    assert memory() - before < 2**21


def test_bad_choice_of_kernels():
    result = subprocess.run([sys.executable, "-c", "import rmsnorm.torch"], capture_output=True, text=True,
                            env={**os.environ, "RMSNORM_TORCH_KERNELS": "fortran"})  # fmt: skip
    assert result.returncode == 1 and "RMSNORM_TORCH_KERNELS" in result.stderr.splitlines()[-1]
