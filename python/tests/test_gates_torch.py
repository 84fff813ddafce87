# SPDX-License-Identifier: MIT
"""Gated norms of torch tensors on the CPU: values, gradients, layouts, compilers, and the module."""
import copy
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck

import rmsnorm
import rmsnorm.nn
import rmsnorm.torch as rt
from rmsnorm import _core
from torch_cases import formula

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ACTIVATIONS = {"silu": F.silu, "sigmoid": torch.sigmoid}
GATES = list(itertools.product(("after", "before"), ACTIVATIONS))
MODES = [16 | 4, 16 | 64, 32, 32 | 4 | 64, 32 | 1]  # of the operators: the gate's place, its activation, rounding, kind
ops = torch.ops.rmsnorm


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def gated(x, gate, place, activation, *arguments, **options):
    a = ACTIVATIONS[activation](gate.double())
    if place == "after":
        return formula(x, *arguments, **options) * a
    return formula(x.double() * a, *arguments, **options)


def norm(kind, x, weight, bias, eps, **options):
    return rt.layer_norm(x, weight, bias, eps, **options) if kind == "layer" else rt.rms_norm(x, weight, eps, bias=bias, **options)


@pytest.mark.parametrize("place, activation", GATES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_forward(kind, dtype, place, activation):
    for shape in ((64,), (3, 5, 48), (2, 3, 4, 33), (0, 8)):
        x, z = torch.randn(shape).to(dtype), (3 * torch.randn(shape)).to(dtype)
        w, b = torch.randn(2, shape[-1]).to(dtype)
        for weight, bias in ((None, None), (w, None), (w, b), (w.float(), b.float()), (None, b.float())):
            if dtype == torch.float64 and bias is not None and bias.dtype != dtype:
                continue
            y = norm(kind, x, weight, bias, 1e-5, gate=z, gate_place=place, activation=activation)
            assert y.dtype == dtype and y.stride() == torch.empty_like(x).stride()
            expected = gated(x, z, place, activation, weight, 1e-5, bias, layer=kind == "layer")
            torch.testing.assert_close(y, expected.to(dtype))


@pytest.mark.parametrize("place, activation", GATES)
def test_the_numpy_functions_give_the_same_bits(place, activation):
    x, z, dy = (torch.randn(5, 100, requires_grad=i < 2) for i in range(3))
    w, b = (torch.randn(100, requires_grad=True) for _ in range(2))
    gate = dict(gate_place=place, activation=activation)
    y = rt.rms_norm(x, w, 1e-6, bias=b, gate=z, **gate)
    dx, dweight, dbias, dgate = torch.autograd.grad(y, (x, w, b, z), dy)
    plain = [t.detach().numpy() for t in (dy, x, w)]
    bias, values = b.detach().numpy(), z.detach().numpy()
    assert np.array_equal(y.detach().numpy(), rmsnorm.rms_norm(*plain[1:], 1e-6, bias=bias, gate=values, **gate))
    grads = rmsnorm.rms_norm_backward(*plain, 1e-6, bias=bias, gate=values, **gate)
    for ours, theirs in zip((dx, dweight, dbias, dgate), grads):
        assert np.array_equal(ours.numpy(), theirs)


# ---- gradients ----

OPTIONS = [{}, dict(groups=2), dict(rounding="before_weight"), dict(weight_offset=1.0), dict(eps_place="outside")]


@pytest.mark.parametrize("place, activation", GATES)
@pytest.mark.parametrize("options", [*OPTIONS, dict(partial=3), dict(indices=(0, 3))], ids=str)
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_gradients(kind, place, activation, options):
    """First and second derivatives, and those in forward mode, against finite differences."""
    if kind == "layer" and ("partial" in options or "indices" in options):
        options = dict(groups=4)
    x, z = (torch.randn(3, 2, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    w, b = (torch.randn(8, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def function(x, z, w, b):
        return norm(kind, x, w, b, 1e-3, gate=z, gate_place=place, activation=activation, **options)

    assert gradcheck(function, (x, z, w, b))
    assert gradgradcheck(function, (x, z, w, b))
    assert gradcheck(function, (x, z, w, b), check_forward_ad=True, check_backward_ad=False)
    for i, t in enumerate((x, z, w, b)):
        others = [u.detach() for u in (x, z, w, b)]
        assert gradcheck(lambda t: function(*others[:i], t, *others[i + 1 :]), (t,))


@pytest.mark.parametrize("place, activation", GATES)
@pytest.mark.parametrize("heads", [False, True])
def test_more_gradients(heads, place, activation):
    """One weight per head, no weight, a transposed x, and the same tensor as x and gate."""
    x, z = (torch.randn(3, 2, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    w = torch.randn((2, 8) if heads else (8,), dtype=torch.float64, requires_grad=True)
    gate = dict(gate_place=place, activation=activation)
    assert gradcheck(lambda x, z, w: rt.rms_norm(x, w, 1e-3, bias=w, gate=z, **gate), (x, z, w))
    assert gradcheck(lambda x, z, b: rt.rms_norm(x, None, 1e-3, bias=b, gate=z, **gate), (x, z, w))
    assert gradgradcheck(lambda x, z, b: rt.rms_norm(x, None, 1e-3, bias=b, gate=z, **gate), (x, z, w))
    assert gradcheck(lambda x, z: rt.rms_norm(x.transpose(0, 1), None, 1e-3, gate=z.transpose(0, 1), **gate), (x, z))
    assert gradcheck(lambda x: rt.rms_norm(x, None, 1e-3, gate=x, **gate), (x,))


def straight(x, gate, weight, place, rounding, activation="silu"):
    """What the models' modules compute, in torch's operations."""
    a = ACTIVATIONS[activation](gate.float())
    u = x.float() * a if place == "before" else x.float()
    h = u * torch.rsqrt(u.pow(2).mean(-1, keepdim=True) + 1e-6)
    m = weight * h.to(x.dtype) if rounding == "before_weight" else weight.float() * h
    return (m * a if place == "after" else m).to(x.dtype)


@pytest.mark.parametrize("place", ["after", "before"])
@pytest.mark.parametrize("rounding", ["after_weight", "before_weight"])
@pytest.mark.parametrize("dtype, weight_dtype", [(torch.bfloat16, torch.bfloat16), (torch.float16, torch.float16),
                                                 (torch.float16, torch.float32), (torch.float32, torch.float32)])  # fmt: skip
def test_rounded_in_the_places_of_autograd(dtype, weight_dtype, rounding, place):
    """Results and gradients of torch's operations differ in few elements, by a last place; in float32 both have the errors of a
    dozen operations. dweight is a sum over rows, which torch rounds less well."""
    x, z, dy = (torch.randn(64, 256).to(dtype) for _ in range(3))
    w = torch.randn(256).to(weight_dtype)
    inputs = [t.requires_grad_() for t in (x, z, w)]
    ours = rt.rms_norm(x, w, 1e-6, gate=z, gate_place=place, rounding=rounding)
    theirs = straight(x, z, w, place, rounding)
    pairs = [(ours, theirs), *zip(torch.autograd.grad(ours, inputs, dy), torch.autograd.grad(theirs, inputs, dy))]
    for a, b in pairs[:3]:
        assert a.dtype == b.dtype
        step = torch.finfo(dtype).eps * b.detach().abs().amax(-1, keepdim=True)
        assert ((a - b).abs() <= (24 if dtype == torch.float32 else 2) * step).all()
        if dtype != torch.float32:
            assert (a != b).float().mean() < 0.005
    torch.testing.assert_close(pairs[3][0], pairs[3][1], rtol=8 * torch.finfo(dtype).eps, atol=32 * torch.finfo(dtype).eps)


# ---- layouts ----


@pytest.mark.parametrize("place", ["after", "before"])
def test_views_are_read_where_they_are(place):
    """x and the gate as parts of one projection, in the order of heads and transposed."""
    both, before = torch.randn(2, 7, 4, 2 * 16), _core.copies()
    for x, z in (both.split(16, -1), both.transpose(1, 2).split(16, -1), (both[0, ..., :16], both[1, ..., 16:])):
        x, z = (t.detach().requires_grad_() for t in (x, z))
        y = rt.rms_norm(x, gate=z, gate_place=place)
        grads = torch.autograd.grad(y, (x, z), torch.ones_like(y))
        same = [t.detach().contiguous().requires_grad_() for t in (x, z)]
        expected = rt.rms_norm(same[0], gate=same[1], gate_place=place)
        assert torch.equal(y, expected) and y.stride() == torch.empty_like(x).stride()
        for g, e, t in zip(grads, torch.autograd.grad(expected, same, torch.ones_like(expected)), (x, z)):
            assert torch.equal(g, e) and g.stride() == torch.empty_like(t).stride()
    assert _core.copies() == before
    x = torch.randn(3, 4, 16)
    for gate in (torch.randn(16).expand(3, 4, 16), torch.randn(4, 3, 32).transpose(0, 1)[..., ::2]):  # these are copied
        assert torch.equal(rt.rms_norm(x, gate=gate), rt.rms_norm(x, gate=gate.contiguous()))


def test_fake_results_have_the_strides_of_real_ones():
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, z = torch.randn(3, 4, 8).transpose(0, 1), torch.randn(4, 3, 16)[..., 8:]
    w = torch.randn(8)
    for mode in MODES:
        options = (1e-5, 0.0, 0, 2, mode)

        def results(x, z, w):
            y, stats = ops._gated_norm_stats(x, z, w, w, *options)
            both = ops._gated_norm_backward(y, x, z, w, w, stats, 7 | 64, *options)
            return y, stats, ops._gated_norm(x, z, w, w, *options), *both, *ops._gated_norm_backward(y, x, z, w, w, stats, 0, *options)

        with FakeTensorMode(allow_non_fake_inputs=False) as fakes:
            expected = results(*(fakes.from_tensor(t) for t in (x, z, w)))
        for f, r in zip(expected, results(x, z, w)):
            assert f.shape == r.shape and f.dtype == r.dtype and f.stride() == r.stride()


# ---- the dispatcher, functorch, compilers ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_opcheck(dtype, mode):
    x, z, w, b = (torch.randn(s).to(dtype) for s in ((3, 4, 8), (3, 4, 8), (8,), (8,)))
    options = (1e-5, 0.0, 0, 1, mode)
    stats = ops._gated_norm_stats(x, z, w, b, *options)[1]
    for tensor, gate in ((x, z), (x.transpose(0, 1), z.transpose(0, 1)), (x[:, 1:3], z[:, :2])):
        torch.library.opcheck(ops._gated_norm.default, (tensor, gate, w, b, *options))
        torch.library.opcheck(ops._gated_norm_stats.default, (tensor, gate, w, None, *options))
    torch.library.opcheck(ops._gated_norm_backward.default, (x, x, z, b, w, stats, 7 | 64, *options))
    torch.library.opcheck(ops._gated_norm_backward.default, (x, x, z, None, None, stats, 1, *options))


@pytest.mark.parametrize("place, activation", GATES)
def test_compile_and_its_bits(place, activation):
    torch._dynamo.reset()
    module = rmsnorm.nn.GatedRMSNorm(64, eps=1e-5, gate_place=place, activation=activation, rounding="before_weight").bfloat16()
    compiled = torch.compile(module, fullgraph=True, dynamic=True)
    for rows in (3, 7, 16):
        x, z, dy = (torch.randn(rows, 64).bfloat16() for _ in range(3))
        x.requires_grad_(), z.requires_grad_()
        y, same = module(x, z), compiled(x, z)
        assert torch.equal(y, same)
        inputs = (x, z, module.weight)
        for a, b in zip(torch.autograd.grad(y, inputs, dy), torch.autograd.grad(same, inputs, dy)):
            assert torch.equal(a, b)
        with torch.no_grad():
            assert torch.equal(compiled(x, z), y)


def test_compiled_function_with_one_tensor_twice():
    torch._dynamo.reset()
    x, w = torch.randn(4, 16, requires_grad=True), torch.randn(16, requires_grad=True)

    def function(x, w):
        return rt.layer_norm(x, w, w, gate=x).sum()

    expected = torch.autograd.grad(function(x, w), (x, w))
    for got, e in zip(torch.autograd.grad(torch.compile(function, fullgraph=True)(x, w), (x, w)), expected):
        torch.testing.assert_close(got, e)


def test_export():
    module = rmsnorm.nn.GatedRMSNorm(16, eps=1e-5).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    with torch.no_grad():
        program = torch.export.export(module, (torch.randn(4, 16), torch.randn(4, 16)), dynamic_shapes=({0: batch}, {0: batch}))
        x, z = torch.randn(2, 9, 16)
        assert torch.equal(program.module()(x, z), module(x, z))
    assert "rmsnorm._gated_norm.default" in {str(node.target) for node in program.graph.nodes}


@pytest.mark.parametrize("place", ["after", "before"])
def test_vmap_and_func(place):
    from torch.func import grad, hessian, vmap

    x, z = torch.randn(2, 5, 3, 8, dtype=torch.float64)
    w = torch.randn(5, 8, dtype=torch.float64)

    def function(x, z, w):
        return rt.rms_norm(x, w, 1e-3, gate=z, gate_place=place)

    loop = torch.stack([function(a, b, w[0]) for a, b in zip(x, z)])
    assert torch.equal(vmap(lambda a, b: function(a, b, w[0]))(x, z), loop)
    assert torch.equal(vmap(lambda a: function(a, z[0], w[0]))(x), torch.stack([function(a, z[0], w[0]) for a in x]))
    assert torch.equal(vmap(function)(x, z, w), torch.stack([function(*member) for member in zip(x, z, w)]))
    per_sample = vmap(grad(lambda z, x, w: function(x, z, w).sin().sum()))(z, x, w)
    for g, *member in zip(per_sample, x, z, w):
        gate = member[1].clone().requires_grad_()
        torch.testing.assert_close(g, torch.autograd.grad(function(member[0], gate, member[2]).sin().sum(), gate)[0])
    curvature = hessian(lambda z: function(x[0], z, w[0]).sum())(z[0])
    expected = hessian(lambda z: gated(x[0], z, place, "silu", w[0], 1e-3).sum())(z[0])
    torch.testing.assert_close(curvature, expected)


def test_meta_device():
    x = torch.empty(3, 16, device="meta")
    assert rt.rms_norm(x, gate=x).shape == (3, 16) and rmsnorm.nn.GatedRMSNorm(16, device="meta")(x, x).device.type == "meta"


@pytest.mark.parametrize("place", ["after", "before"])
def test_threads_and_batches_do_not_change_bits(place):
    x, z, w = torch.randn(500, 300), torch.randn(500, 300), torch.randn(300)
    before, results = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(rt.rms_norm(x, w, gate=z, gate_place=place))
    torch.set_num_threads(before)
    assert torch.equal(*results)
    assert torch.equal(rt.rms_norm(x[7:9], w, gate=z[7:9], gate_place=place), results[0][7:9])


# ---- the module ----


def test_module():
    module = rmsnorm.nn.GatedRMSNorm(32, eps=1e-5, gate_place="before", activation="sigmoid", rounding="before_weight", groups=4)
    assert repr(module) == (
        "GatedRMSNorm((32,), eps=1e-05, elementwise_affine=True, gate_place='before', activation='sigmoid', "
        "rounding='before_weight', groups=4, weight_offset=0.0)"
    )
    assert list(module.state_dict()) == ["weight"] and isinstance(module, torch.nn.RMSNorm)
    x, z = torch.randn(2, 3, 5, 32)
    options = dict(gate_place="before", activation="sigmoid", rounding="before_weight", groups=4)
    expected = rt.rms_norm(x, module.weight, 1e-5, gate=z, **options)
    assert torch.equal(module(x, z), expected) and torch.equal(module(x, gate=z), expected)
    assert torch.equal(copy.deepcopy(module)(x, z), expected)
    centred = rmsnorm.nn.GatedRMSNorm(32, eps=1e-5, weight_offset=1.0)
    assert not centred.weight.any() and torch.equal(centred(x, z), rmsnorm.nn.GatedRMSNorm(32, eps=1e-5)(x, z))
    torch.nn.init.normal_(centred.weight)
    assert torch.equal(centred(x, z), rt.rms_norm(x, centred.weight, 1e-5, gate=z, weight_offset=1.0))
    plain = rmsnorm.nn.GatedRMSNorm((4, 8), elementwise_affine=False)
    assert torch.equal(plain(x.unflatten(-1, (4, 8)), z.unflatten(-1, (4, 8))).flatten(-2),
                       rt.rms_norm(x, None, torch.finfo(torch.float32).eps, gate=z))  # fmt: skip
    half = rmsnorm.nn.GatedRMSNorm(32)(x.bfloat16(), z.bfloat16())  # a weight of float32
    assert half.dtype == torch.bfloat16
    assert rmsnorm.nn.GatedRMSNorm(32).bfloat16()(x, z).dtype == torch.float32
    with pytest.raises(TypeError, match="gate"):
        module(x, None)


@pytest.mark.parametrize("options", [
    dict(gate_place="inside"), dict(activation="relu"), dict(rounding="twice"), dict(groups=3), dict(groups=0)], ids=str)  # fmt: skip
def test_bad_options_of_the_module(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        rmsnorm.nn.GatedRMSNorm(32, **options)


# ---- errors ----

X = torch.randn(3, 8)


@pytest.mark.parametrize("options, error, name", [
    (dict(gate=X[:2]), RuntimeError, "gate must have the shape of x"),
    (dict(gate=X[0]), RuntimeError, "gate must have the shape of x"),
    (dict(gate=X.half()), RuntimeError, "gate"),
    (dict(gate=X.double()), RuntimeError, "gate"),
    (dict(gate=X.int()), RuntimeError, "gate|dtype"),
    (dict(gate=X.tolist()), TypeError, "gate"),
    (dict(gate=X, gate_place="inside"), ValueError, "gate_place"),
    (dict(gate=X, activation="relu"), ValueError, "activation"),
    (dict(gate_place="before"), ValueError, "gate_place.*no gate"),
    (dict(activation="sigmoid"), ValueError, "activation.*no gate"),
], ids=lambda o: "-".join(o) if isinstance(o, dict) else None)  # fmt: skip
@pytest.mark.parametrize("with_gradient", [False, True])
def test_bad_gates(options, error, name, with_gradient):
    x = X.clone().requires_grad_(with_gradient)
    for function in (rt.rms_norm, rt.layer_norm):
        with pytest.raises(error, match=name):
            function(x, **options)


def test_an_operator_without_its_gate_is_refused():
    with pytest.raises(RuntimeError, match="rmsnorm"):
        ops._norm(X, None, None, 1e-5, 0.0, 0, 1, 16)
    with pytest.raises(RuntimeError, match="rmsnorm"):
        ops._gated_norm(X, X, None, None, 1e-5, 0.0, 0, 1, 0)


def test_cuda_tensors_reach_their_operators():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(3, 8, device="cuda")
        for function in (rt.rms_norm, rt.layer_norm):
            y = function(x, gate=x)
            assert y.device.type == "cuda" and y.shape == x.shape
