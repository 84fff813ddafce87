# SPDX-License-Identifier: MIT
"""Statistics without results, r and the mean, against the formula in float64 and autograd through it."""
import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import rmsnorm
import rmsnorm.torch as rt

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
RMS = [{}, dict(groups=2), dict(partial=5), dict(partial=0.5, groups=2), dict(indices=(1, 4, 6)), dict(eps_place="outside"),
       dict(eps_place="clamp")]  # fmt: skip
LAYER = [{}, dict(groups=2), dict(eps_place="outside")]
EPS = 0.05


def _x(dtype=torch.float64, shape=(3, 4, 24), seed=0):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    x[0, 0] *= 0.01  # below the bound of a clamp
    return x


def _formula(x, layer=False, partial=None, indices=None, groups=1, eps_place="inside"):
    """The mean and r in plain operations."""
    rows = x.double().unflatten(-1, (groups, -1))
    mean = rows.mean(-1)
    e = rows - mean.unsqueeze(-1) if layer else rows
    count = int(np.ceil(partial * e.shape[-1])) if isinstance(partial, float) else partial
    s = (e[..., list(indices)] if indices else e[..., :count]).square().mean(-1)
    r = {"inside": (s + EPS).rsqrt(), "outside": 1 / (s.sqrt() + EPS), "clamp": 1 / s.sqrt().clamp_min(EPS)}[eps_place]
    return mean, r


def _stats(x, layer, **options):
    return rt.layer_norm_stats(x, EPS, **options) if layer else (None, rt.rms_norm_stats(x, EPS, **options))


CASES = [*((False, options) for options in RMS), *((True, options) for options in LAYER)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layer, options", CASES, ids=str)
def test_values_and_gradients(layer, options, dtype):
    x = _x(dtype).requires_grad_()
    mean, r = _stats(x, layer, **options)
    same = x.detach().double().requires_grad_()
    right_mean, right_r = _formula(same, layer, **options)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    assert r.dtype is wide and r.shape == right_r.shape == (3, 4, options.get("groups", 1))
    few = 4 * torch.finfo(wide).eps  # of the squares' sum, the root and the quotient
    torch.testing.assert_close(r.double(), right_r, rtol=few, atol=0)
    dr = torch.randn(r.shape, dtype=wide, generator=torch.Generator().manual_seed(1))
    outputs, right, weights = [r], [right_r], [dr]
    if layer:
        torch.testing.assert_close(mean.double(), right_mean, rtol=0, atol=few * float(x.detach().abs().max()))
        outputs, right, weights = [r, mean], [right_r, right_mean], [dr, dr.flip(0)]
    (dx,) = torch.autograd.grad(outputs, x, weights)
    (right_dx,) = torch.autograd.grad(right, same, [w.double() for w in weights])
    assert dx.dtype is dtype and dx.shape == x.shape
    # One rounding to x's type, and a dozen of the arithmetic; float16 has results below its smallest normal number.
    dozen, least = 12 * torch.finfo(wide).eps, 2**-25 if dtype is torch.float16 else 0
    atol = dozen * float(right_dx.abs().max()) + least
    torch.testing.assert_close(dx.double(), right_dx, rtol=torch.finfo(dtype).eps + dozen, atol=atol)
    with torch.no_grad():
        assert torch.equal(_stats(x, layer, **options)[1], r)


@pytest.mark.parametrize("layer, options", CASES, ids=str)
def test_derivatives(layer, options):
    """First and second derivatives, and those in forward mode, against finite differences."""
    x = _x(shape=(2, 2, 8))[1:].clone().requires_grad_()

    def function(x):
        return tuple(t for t in _stats(x, layer, **options) if t is not None)

    assert gradcheck(function, (x,)) and gradgradcheck(function, (x,))
    assert gradcheck(function, (x,), check_forward_ad=True, check_backward_ad=False)


def test_rows_of_zeros():
    for place in ("inside", "outside", "clamp"):
        x = torch.zeros(2, 8, requires_grad=True)
        rt.rms_norm_stats(x, EPS, eps_place=place).sum().backward()
        assert not x.grad.any()


@pytest.mark.parametrize("eps", [0.3, 1e-3, 1e-6])
def test_below_the_bound_of_a_clamp_r_does_not_depend_on_x(eps):
    x = (torch.randn(64, 32) * eps * 0.1).requires_grad_()
    rt.rms_norm_stats(x, eps, eps_place="clamp").sum().backward()
    assert not x.grad.any()


def test_the_numpy_functions_give_the_same_bits():
    x = _x(torch.float32)
    for options in RMS:
        assert np.array_equal(rt.rms_norm_stats(x, EPS, **options).numpy(), rmsnorm.rms_norm_stats(x.numpy(), EPS, **options))
    for ours, theirs in zip(rt.layer_norm_stats(x), rmsnorm.layer_norm_stats(x.numpy())):
        assert np.array_equal(ours.numpy(), theirs)


def test_a_norm_made_of_them():
    """r rounded to x's type, and the same gradient as the operation that has it inside."""
    x = _x(torch.float32).requires_grad_()
    y = x * rt.rms_norm_stats(x, EPS)
    expected = rt.rms_norm(x, eps=EPS)
    torch.testing.assert_close(y, expected)
    dy = _x(torch.float32, seed=2)
    torch.testing.assert_close(*(torch.autograd.grad(t, x, dy)[0] for t in (y, expected)))
    assert rt.rms_norm_stats(x.bfloat16()).to(torch.bfloat16).dtype is torch.bfloat16


def test_channels_first():
    x = torch.randn(2, 6, 3, 5)
    right = rt.layer_norm_stats(x.movedim(1, -1).contiguous())
    for got, e in zip(rt.layer_norm_stats(x, channels_first=True), right):
        assert got.shape == (2, 1, 3, 5) and torch.equal(got, e.movedim(-1, 1))
    r = rt.rms_norm_stats(x, groups=2, channels_first=True)
    assert r.shape == (2, 2, 3, 5) and torch.equal(r, rt.rms_norm_stats(x.movedim(1, -1).contiguous(), groups=2).movedim(-1, 1))


def test_compile_and_vmap():
    torch._dynamo.reset()

    def function(x):
        mean, r = rt.layer_norm_stats(x)
        return mean, r, rt.rms_norm_stats(x, partial=0.5)

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (4, 6):
        x = torch.randn(rows, 24, requires_grad=True)
        found = [(*f(x), *torch.autograd.grad(sum(t.sum() for t in f(x)), x)) for f in (function, compiled)]
        assert all(map(torch.equal, found[0][:3], found[1][:3]))
        torch.testing.assert_close(found[0][3], found[1][3])
        with torch.no_grad():
            assert all(map(torch.equal, function(x), compiled(x)))
    x = torch.randn(3, 4, 24)
    for dim in (0, 1):
        for got, right in zip(torch.vmap(function, in_dims=dim)(x), function(x.movedim(dim, 0))):
            assert torch.equal(got, right)
    per_row = torch.vmap(torch.func.grad(lambda x: rt.rms_norm_stats(x).sum()))(x[0])
    leaf = x[0].clone().requires_grad_()
    torch.testing.assert_close(per_row, torch.autograd.grad(rt.rms_norm_stats(leaf).sum(), leaf)[0])


@pytest.mark.parametrize("mode", [0, 1, 2, 256])
def test_operator_passes_opcheck(mode):
    x = torch.randn(3, 4, 8)
    for tensor in (x, x.transpose(0, 1), x[:, 1:3], x.bfloat16(), x.double()):
        torch.library.opcheck(torch.ops.rmsnorm._stats.default, (tensor, 1e-5, 0.0, 0, 2, mode))


def test_no_rows_and_errors():
    assert rt.rms_norm_stats(torch.ones(0, 8)).shape == (0, 1)
    assert rt.rms_norm_stats(torch.ones(3, 8, device="meta"), groups=2).shape == (3, 2)
    with pytest.raises(ValueError, match="exclude each other"):
        rt.rms_norm_stats(torch.ones(3, 8), partial=2, indices=(1,))
    with pytest.raises(ValueError, match="eps_place"):
        rt.layer_norm_stats(torch.ones(3, 8), eps_place="around")
    with pytest.raises(RuntimeError, match="eps"):
        rt.rms_norm_stats(torch.ones(3, 8), -1.0)
    with pytest.raises(RuntimeError, match="dtype"):
        rt.rms_norm_stats(torch.ones(3, 8, dtype=torch.int32))
