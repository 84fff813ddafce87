# SPDX-License-Identifier: MIT
"""Statistics without results, r and the mean, and the gradients from them, against formulas in float64."""
import ml_dtypes
import numpy as np
import pytest
import reference

import rmsnorm
from rmsnorm import _core

DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
# r: a rounding of the sum, of the root and of the quotient, and those of the squares; relative
TOLERANCE = {"float64": 1e-15}
OPTIONS = [{}, dict(groups=3), dict(partial=5), dict(partial=0.25, groups=2), dict(indices=[0, 3, 11]), dict(eps_place="outside")]


def _rows(*shape, dtype=np.float64, seed=0):
    return (3 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32).astype(dtype)


def _reference(x, eps, layer=False, partial=None, eps_place="inside", groups=1, **options):
    """The mean and r, of shape (..., groups)."""
    if isinstance(partial, float):
        partial = int(np.ceil(partial * x.shape[-1] / groups))
    rows = np.asarray(x, np.float64).reshape(*x.shape[:-1], groups, -1)
    outside = eps_place == "outside"
    _, r = reference.statistic(x, eps, partial=partial, groups=groups, layer=layer, outside=outside, **options)
    return rows.mean(-1), r[..., 0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rms(options, dtype):
    x = _rows(4, 5, 24, dtype=dtype)
    r = rmsnorm.rms_norm_stats(x, 1e-3, **options)
    assert r.dtype == (np.float64 if dtype == np.float64 else np.float32) and r.shape == (4, 5, options.get("groups", 1))
    np.testing.assert_allclose(r, _reference(x, 1e-3, **options)[1], rtol=TOLERANCE.get(dtype.name, 4e-7))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", [{}, dict(groups=3), dict(eps_place="outside")], ids=str)
def test_layer(options, dtype):
    x = _rows(4, 5, 24, dtype=dtype)
    found = rmsnorm.layer_norm_stats(x, 1e-3, **options)
    mean, r = _reference(x, 1e-3, layer=True, **options)
    assert isinstance(found, rmsnorm.Statistics) and found.mean.shape == found.rstd.shape == (4, 5, options.get("groups", 1))
    np.testing.assert_allclose(found.rstd, r, rtol=TOLERANCE.get(dtype.name, 4e-7))
    np.testing.assert_allclose(found.mean, mean, atol=TOLERANCE.get(dtype.name, 4e-7) * np.abs(x.astype(float)).max())


def test_the_norm_is_a_product_with_them():
    x = _rows(7, 130, dtype=np.float32)
    assert np.array_equal(rmsnorm.rms_norm(x, eps=1e-6), x * rmsnorm.rms_norm_stats(x, 1e-6))
    assert np.array_equal(rmsnorm.rms_norm_stats(x), rmsnorm.rms_norm_stats(x, threads=2))


def test_layouts():
    x = _rows(3, 4, 5, 32, dtype=np.float32)
    copies = _core.copies()
    for view in (x[..., 8:24], x.transpose(1, 0, 2, 3), x[1], x[0, 0, 0], x[:0]):
        expected = rmsnorm.rms_norm_stats(np.ascontiguousarray(view))
        assert np.array_equal(rmsnorm.rms_norm_stats(view), expected) and expected.shape == (*view.shape[:-1], 1)
    assert _core.copies() <= copies + 1  # r is dense in the order of the indices, the transposed rows are not


def _slope(f, x, step=1e-6):
    found = np.empty(x.shape)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        found[i] = (f(up) - f(down)) / (2 * step)
    return found


@pytest.mark.parametrize("options", [*OPTIONS, dict(eps_place="clamp")], ids=str)
def test_gradient_of_r(options):
    """Against central differences of the float64 formula."""
    x, dr = _rows(2, 12), np.random.default_rng(1).standard_normal((2, options.get("groups", 1)))
    if options.get("eps_place") == "clamp":
        x[1] /= 100  # below the bound r does not depend on x
        f = lambda x: (dr[..., 0] / np.maximum(np.sqrt((x**2).mean(-1)), 0.3)).sum()
        got = rmsnorm.rms_norm_stats_backward(dr, x, 0.3, **options)
        assert not got[1].any() and got[0].all()
    else:
        f = lambda x: (dr * _reference(x, 1e-2, **options)[1]).sum()
        got = rmsnorm.rms_norm_stats_backward(dr, x, 1e-2, **options)
    np.testing.assert_allclose(got, _slope(f, x), atol=1e-8)


@pytest.mark.parametrize("options", [{}, dict(groups=3), dict(eps_place="outside")], ids=str)
def test_gradients_of_mean_and_r(options):
    x = _rows(2, 12)
    dmean, dr = np.random.default_rng(1).standard_normal((2, 2, options.get("groups", 1)))

    def f(x, dmean, dr):
        mean, r = _reference(x, 1e-2, layer=True, **options)
        return (dmean * mean + dr * r).sum()

    for a, b in ((dmean, dr), (dmean, None), (None, dr)):
        got = rmsnorm.layer_norm_stats_backward(a, b, x, 1e-2, **options)
        zeros = np.zeros_like(dr)
        right = _slope(lambda x: f(x, zeros if a is None else a, zeros if b is None else b), x)
        np.testing.assert_allclose(got, right, atol=1e-8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_are_rounded_once(dtype):
    x = _rows(3, 64, dtype=dtype)
    dr = np.ones((3, 1))
    wide = rmsnorm.rms_norm_stats_backward(dr, x.astype(np.float64), 1e-5)
    got = rmsnorm.rms_norm_stats_backward(dr, x, 1e-5)
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(float), wide, rtol=float(ml_dtypes.finfo(dtype).eps) + 1e-6, atol=6e-8)


def test_rows_of_zeros_have_gradients_of_zero():
    x = np.zeros((1, 8), np.float32)
    for eps, place in ((0.0, "inside"), (1e-3, "outside"), (1e-3, "clamp")):
        assert not rmsnorm.rms_norm_stats_backward(np.ones((1, 1)), x, eps, eps_place=place).any()


def test_errors():
    x = np.ones((2, 8), np.float32)
    with pytest.raises(ValueError, match="drstd has the shape"):
        rmsnorm.rms_norm_stats_backward(np.ones(2), x)
    with pytest.raises(ValueError, match="dmean has the shape"):
        rmsnorm.layer_norm_stats_backward(np.ones((2, 2)), None, x)
    with pytest.raises(ValueError, match="exclude each other"):
        rmsnorm.rms_norm_stats(x, partial=2, indices=[1])
    with pytest.raises(ValueError, match="eps_place"):
        rmsnorm.layer_norm_stats(x, eps_place="around")
    with pytest.raises(ValueError, match="groups"):
        rmsnorm.rms_norm_stats(x, groups=3)
    with pytest.raises(ValueError, match="eps"):
        rmsnorm.rms_norm_stats(x, -1.0)
    with pytest.raises(TypeError, match="x "):
        rmsnorm.rms_norm_stats([1.0, 2.0])
