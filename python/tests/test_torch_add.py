# SPDX-License-Identifier: MIT
"""Norms of a sum, x + residual, with the options of norms: they are those norms of the sum, and so are their gradients."""
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import rmsnorm.torch as rt

ops = torch.ops.rmsnorm
KINDS = {"rms": (rt.add_rms_norm, rt.rms_norm), "layer": (rt.add_layer_norm, rt.layer_norm)}
GATES = [dict(gate_place=place, activation=act) for place in ("after", "before") for act in ("silu", "sigmoid")]
OTHERS = [dict(steps="all"), dict(steps="terms"), dict(steps="rstd"), dict(out_dtype=torch.float32), dict(out_dtype=torch.float16)]


def _data(dtype=torch.float64, shape=(3, 4, 16), seed=0):
    generator = torch.Generator().manual_seed(seed)
    x, residual, gate, dy, dsum = (torch.randn(shape, generator=generator).to(dtype) for _ in range(5))
    w, b = (torch.randn(shape[-1], generator=generator).to(dtype) for _ in range(2))
    return x, residual, gate, w, b, dy, dsum


def _leaves(*tensors):
    return [t.detach().clone().requires_grad_() for t in tensors]


def _call(function, kind, *tensors, gate, **options):
    *rows, w, b = tensors
    options |= {} if gate is None else dict(gate=gate)
    return function(*rows, w, bias=b, eps=1e-5, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options", [*GATES, *OTHERS], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_norm_of_the_sum(kind, options, dtype):
    """Bits of the norm of s, and gradients: that of s gets dsum added before its one rounding where steps are wide."""
    if kind == "layer" and options.get("steps") in ("terms", "rstd"):
        options = dict(steps="all", groups=2)
    add, norm = KINDS[kind]
    x, r, z, w, b, dy, dsum = _data(dtype)
    dy = dy.to(options.get("out_dtype", dtype))
    gated = "gate_place" in options
    leaves = _leaves(x, r, w, b, *([z] if gated else []))
    y, s = _call(add, kind, *leaves[:4], gate=leaves[4] if gated else None, **options)
    assert torch.equal(s, x + r) and y.dtype is dy.dtype
    same = _leaves(s, w, b, *([z] if gated else []))
    expected = _call(norm, kind, *same[:3], gate=same[3] if gated else None, **options)
    assert torch.equal(y, expected)
    with torch.no_grad():
        plain = _call(add, kind, x, r, w, b, gate=z if gated else None, **options)
    assert torch.equal(plain[0], y) and torch.equal(plain[1], s)
    grads = torch.autograd.grad(y, leaves, dy, retain_graph=True)
    right = torch.autograd.grad(expected, same, dy)
    assert torch.equal(grads[0], grads[1])
    for got, e in zip((grads[0], *grads[2:]), right):
        assert got.dtype is e.dtype and torch.equal(got, e)
    both = torch.autograd.grad((y, s), leaves[:2], (dy, dsum))
    assert torch.equal(*both)
    step = torch.finfo(dtype).eps * (right[0].abs() + dsum.abs() + both[0].abs()).double()
    assert ((both[0].double() - right[0].double() - dsum.double()).abs() <= step).all()


@pytest.mark.parametrize("options", GATES, ids=str)
def test_a_wide_residual_and_a_gate(options):
    x, r, z, w, b, dy, dsum = _data(torch.bfloat16)
    r, dsum = r.float() * 1.01, dsum.float()
    leaves = _leaves(x, r, z, w)
    y, s = rt.add_rms_norm(leaves[0], leaves[1], leaves[3], gate=leaves[2], **options)
    assert y.dtype is torch.bfloat16 and torch.equal(s, x.float() + r)
    grads = torch.autograd.grad((y, s), leaves, (dy, dsum), retain_graph=True)
    assert [g.dtype for g in grads] == [torch.bfloat16, torch.float32, torch.bfloat16, torch.bfloat16]
    wide = _leaves(s, z.float(), w.float())
    expected = rt.rms_norm(wide[0], wide[2], gate=wide[1], **options)
    right = torch.autograd.grad(expected, wide, dy.float())
    assert torch.equal(y, expected.bfloat16()) and torch.equal(grads[0], grads[1].bfloat16())
    torch.testing.assert_close(grads[1], right[0] + dsum)
    assert torch.equal(grads[2], right[1].bfloat16()) and torch.equal(grads[3], right[2].bfloat16())
    again = torch.autograd.grad((y, s), leaves, (dy, dsum), create_graph=True)
    for got, g in zip(again, grads):
        torch.testing.assert_close(got, g, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("gate", GATES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_derivatives(kind, gate):
    """First and second derivatives, and those in forward mode, against finite differences."""
    leaves = _leaves(*(t[:2, :2, :6] if t.dim() == 3 else t[:6] for t in _data()[:5]))

    def function(x, r, z, w, b):
        return _call(KINDS[kind][0], kind, x, r, w, b, gate=z, **gate)

    assert gradcheck(function, leaves) and gradgradcheck(function, leaves)
    assert gradcheck(function, leaves, check_forward_ad=True, check_backward_ad=False)


def test_second_derivatives_of_other_types():
    x, r, _, w, b, dy, dsum = _data(torch.bfloat16)
    leaves = _leaves(x, r, w, b)
    results = rt.add_rms_norm(*leaves[:3], bias=leaves[3], out_dtype=torch.float32)
    first, second = (torch.autograd.grad(results, leaves, (dy.float(), dsum), create_graph=again, retain_graph=True)
                     for again in (False, True))  # fmt: skip
    for got, right in zip(second, first):
        assert got.dtype is right.dtype
        torch.testing.assert_close(got, right, atol=0.04, rtol=0.02)


@pytest.mark.parametrize("options", [GATES[0], GATES[3], OTHERS[0], OTHERS[3]], ids=str)
def test_compile_and_its_bits(options):
    torch._dynamo.reset()
    gated = "gate_place" in options

    def function(x, r, z, w, b):
        return rt.add_rms_norm(x, r, w, bias=b, **options, **(dict(gate=z) if gated else {}))

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (3, 5):
        *tensors, dy, dsum = _data(torch.bfloat16, (rows, 16))
        dy = dy.to(options.get("out_dtype", dy.dtype))
        leaves = _leaves(*tensors)
        inputs = leaves if gated else [*leaves[:2], *leaves[3:]]
        found = [(*f(*leaves), *torch.autograd.grad(f(*leaves), inputs, (dy, dsum))) for f in (function, compiled)]
        assert all(map(torch.equal, *found))
        with torch.no_grad():
            assert all(map(torch.equal, function(*tensors), compiled(*tensors)))


@pytest.mark.parametrize("mode", [16 | 4, 32 | 1 | 64, 2048 | 16, 3 * 512, 2048])
def test_operators_pass_opcheck(mode):
    x, r, z, w, b, dy, dsum = _data(torch.bfloat16)
    gate, options = z if mode & 48 else None, (1e-5, 0.0, 0, 1, mode)
    torch.library.opcheck(ops._add_norm.default, (x, r, gate, w, b, *options))
    torch.library.opcheck(ops._add_norm_stats.default, (x.transpose(0, 1), r.transpose(0, 1),
                                                        None if gate is None else gate.transpose(0, 1), w, None, *options))  # fmt: skip
    y, s, stats = ops._add_norm_stats(x, r, gate, w, b, *options)
    bias, wanted = b if mode & 16 else None, 7 | (64 if gate is not None else 0)
    torch.library.opcheck(ops._add_norm_backward.default, (dy.to(y.dtype), s, dsum, gate, bias, w, stats, wanted, *options))


def test_vmap():
    x, r, z, w, _, _, _ = _data()

    def function(x, r, z):
        return rt.add_rms_norm(x, r, w, gate=z)

    for got, right in zip(torch.vmap(function)(x, r, z), function(x, r, z)):
        assert torch.equal(got, right)
    for got, right in zip(torch.vmap(function, in_dims=(0, 0, None))(x, r, z[0]), function(x, r, z[:1].expand_as(x))):
        assert torch.equal(got, right)


def test_errors():
    x, r, z, w, b, _, _ = _data(torch.bfloat16)
    with pytest.raises(ValueError, match="no gate"):
        rt.add_rms_norm(x, r, gate_place="before")
    with pytest.raises(TypeError, match="gate must be a tensor"):
        rt.add_rms_norm(x, r, gate=1.0)
    with pytest.raises(RuntimeError, match="gate .*dtype"):
        rt.add_layer_norm(x, r, gate=z.float())
    with pytest.raises(ValueError, match="no gradients where residual has another dtype"):
        rt.add_rms_norm(x, r.float().requires_grad_(), out_dtype=torch.float32)
    assert rt.add_rms_norm(x, r.float(), out_dtype=torch.float16)[0].dtype is torch.float16
    with pytest.raises(RuntimeError, match="not supported"):
        rt.add_rms_norm(x, r, gate=z, steps="all")
    with pytest.raises(RuntimeError, match="no gate"):
        ops._add_norm_backward(x, x, None, None, None, w, ops._stats(x, 1e-5), 65, 1e-5)
