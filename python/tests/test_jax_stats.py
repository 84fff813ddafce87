# SPDX-License-Identifier: MIT
"""Statistics alone on JAX arrays: the bits of the NumPy functions, and gradients against theirs, which are formed in float64."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rmsnorm
import rmsnorm.jax as rj

jax.config.update("jax_enable_x64", True)
EPS = 0.05
RMS = [{}, dict(groups=2), dict(partial=5), dict(partial=0.5, groups=2), dict(indices=(1, 4, 6)), dict(eps_place="outside"),
       dict(eps_place="clamp")]  # fmt: skip
LAYER = [{}, dict(groups=2), dict(eps_place="outside")]
CASES = [*((False, options) for options in RMS), *((True, options) for options in LAYER)]
DTYPES = ["float32", "float64", "bfloat16", "float16"]


def _x(dtype, shape=(3, 4, 24)):
    x = np.random.default_rng(0).standard_normal(shape)
    x[0, 0] *= 0.01  # below the bound of a clamp
    return jnp.asarray(x).astype(dtype)


def _stats(x, layer, options, functions=rj):
    if layer:
        return tuple(functions.layer_norm_stats(x, EPS, **options))
    return (functions.rms_norm_stats(x, EPS, **options),)


def _numpy_gradient(gradients, x, layer, options):
    back = rmsnorm.layer_norm_stats_backward if layer else rmsnorm.rms_norm_stats_backward
    return back(*gradients, np.asarray(x), EPS, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layer, options", CASES, ids=str)
def test_values_and_gradients(layer, options, dtype):
    x = _x(dtype)
    found, back = jax.vjp(lambda x: _stats(x, layer, options), x)
    right = _stats(np.asarray(x), layer, options, rmsnorm)
    for got, expected in zip(found, right):
        assert got.dtype == expected.dtype and np.array_equal(got, expected)
    for got, expected in zip(jax.jit(lambda x: _stats(x, layer, options))(x), right):
        assert np.array_equal(got, expected)
    gradients = tuple(np.random.default_rng(i).standard_normal(r.shape).astype(r.dtype) for i, r in enumerate(right))
    dx, expected = back(gradients)[0], _numpy_gradient(gradients, x, layer, options)
    assert dx.dtype == x.dtype and dx.shape == x.shape
    # Each is rounded once to x's type; a dozen roundings of the arithmetic before that.
    unit, wide = (float(jnp.finfo(t).eps) for t in (x.dtype, right[0].dtype))
    bound = unit * np.abs(np.float64(expected)) + 12 * wide * np.abs(np.float64(expected)).max() + (2**-24 if dtype == "float16" else 0)
    assert (np.abs(np.float64(dx) - np.float64(expected)) <= bound).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_vmap(axis):
    x = _x("float32")
    for layer, options in CASES:
        each = jax.vmap(lambda x: _stats(x, layer, options), in_axes=axis)(x)
        for got, whole in zip(each, _stats(jnp.moveaxis(x, axis, 0), layer, options)):
            assert np.array_equal(got, whole)
        slopes = jax.vmap(jax.grad(lambda x: sum(t.sum() for t in _stats(x, layer, options))))(x)
        expected = _numpy_gradient([np.ones(t.shape, t.dtype) for t in _stats(x, layer, options)], x, layer, options)
        np.testing.assert_allclose(slopes, expected, rtol=1e-5, atol=float(1e-6 * np.abs(expected).max()))


@pytest.mark.parametrize("place", ["inside", "outside", "clamp"])
def test_rows_of_zeros_and_extreme_rows(place):
    zeros = jax.grad(lambda x: rj.rms_norm_stats(x, EPS, eps_place=place).sum())(jnp.zeros((2, 8), jnp.float32))
    assert not zeros.any()
    x = _x("float32") * np.float32(2.0**-40)  # r**3 is beyond float32
    dx = jax.grad(lambda x: rj.rms_norm_stats(x, 0.0, eps_place=place).sum())(x)
    expected = rmsnorm.rms_norm_stats_backward(np.ones((3, 4, 1), np.float32), np.asarray(x), 0.0, eps_place=place)
    np.testing.assert_allclose(dx, expected, rtol=1e-5)


def test_no_rows_and_errors():
    assert rj.rms_norm_stats(jnp.ones((0, 8)), groups=2).shape == (0, 2)
    assert rj.rms_norm_stats(jnp.ones(8)).shape == (1,)
    for call, error, message in (
        (lambda: rj.rms_norm_stats(jnp.ones((3, 8)), partial=2, indices=(1,)), ValueError, "exclude each other"),
        (lambda: rj.layer_norm_stats(jnp.ones((3, 8)), eps_place="around"), ValueError, "eps_place"),
        (lambda: rj.rms_norm_stats(jnp.ones((3, 8)), -1.0), ValueError, "eps"),
        (lambda: rj.rms_norm_stats(jnp.ones((3, 8)), groups=3), ValueError, "groups"),
        (lambda: rj.rms_norm_stats(jnp.ones((3, 8), jnp.int32)), TypeError, "dtype"),
        (lambda: rj.rms_norm_stats(jnp.ones((3, 0))), ValueError, "last dimension"),
    ):
        with pytest.raises(error, match=message):
            call()
