# SPDX-License-Identifier: MIT
"""rmsnorm.jax under jit, grad and vmap, against formulas in JAX and the NumPy functions."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rmsnorm
import rmsnorm.jax as rj

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(4)


def randn(*shape, dtype=jnp.float32):
    return jnp.asarray(rng.standard_normal(shape)).astype(dtype)


def rms(x, w, b, eps=1e-3):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * w + b


def layer(x, w, b, eps=1e-3):
    e = x - jnp.mean(x, -1, keepdims=True)
    return e * jax.lax.rsqrt(jnp.mean(e * e, -1, keepdims=True) + eps) * w + b


KINDS = {
    "rms": (lambda x, w, b: rj.rms_norm(x, w, 1e-3, bias=b), rms),
    "layer": (lambda x, w, b: rj.layer_norm(x, w, b, 1e-3), layer),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_same_bits_as_numpy(dtype):
    x, w = randn(3, 5, 40, dtype=dtype), randn(40, dtype=dtype)
    for options in (dict(), dict(rounding="before_weight"), dict(partial=0.25), dict(groups=4), dict(weight_offset=1.0)):
        expected = rmsnorm.rms_norm(np.asarray(x), np.asarray(w), 1e-5, **options)
        for function in (rj.rms_norm, jax.jit(lambda x, w: rj.rms_norm(x, w, 1e-5, **options))):
            y = function(x, w) if function is not rj.rms_norm else function(x, w, 1e-5, **options)
            assert y.dtype == x.dtype and np.asarray(y).tobytes() == expected.tobytes()
    y = rj.layer_norm(x, w, w, 1e-5)
    assert np.asarray(y).tobytes() == rmsnorm.layer_norm(np.asarray(x), np.asarray(w), np.asarray(w), 1e-5).tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    ours, formula = KINDS[kind]
    x, w, b = randn(3, 5, 8, dtype="float64"), randn(8, dtype="float64"), randn(8, dtype="float64")

    def loss(f):
        return lambda *a: jnp.sin(f(*a)).sum()

    got = jax.jit(jax.grad(loss(ours), (0, 1, 2)))(x, w, b)
    for g, e in zip(got, jax.grad(loss(formula), (0, 1, 2))(x, w, b)):
        np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-12)
    plain = jax.grad(lambda x: jnp.sin(rj.rms_norm(x, eps=1e-3)).sum())(x)
    np.testing.assert_allclose(plain, jax.grad(lambda x: jnp.sin(rms(x, 1.0, 0.0)).sum())(x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [(0, None, None), (1, None, None), (0, 0, None), (None, 0, 0)], ids=str)
def test_vmap(kind, axes):
    ours, formula = KINDS[kind]
    x = randn(4, 4, 3, 8, dtype="float64") if axes[0] is not None else randn(3, 8, dtype="float64")
    w = randn(*(4, 8)[axes[1] is None :], dtype="float64")
    b = randn(*(4, 8)[axes[2] is None :], dtype="float64")
    np.testing.assert_allclose(jax.vmap(ours, axes)(x, w, b), jax.vmap(formula, axes)(x, w, b), rtol=1e-12)
    nested = jax.vmap(jax.vmap(ours, (0, None, None)), axes)(x, w, b)
    np.testing.assert_allclose(nested, jax.vmap(jax.vmap(formula, (0, None, None)), axes)(x, w, b), rtol=1e-12)
    grads = [jax.vmap(jax.grad(lambda *a, f=f: jnp.sin(f(*a)).sum(), (0, 1, 2)), axes)(x, w, b) for f in (ours, formula)]
    for g, e in zip(*grads):
        np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-12)


def test_no_rows():
    assert rj.rms_norm(jnp.zeros((0, 8))).shape == (0, 8)
    assert jax.grad(lambda w: rj.rms_norm(jnp.zeros((0, 8)), w).sum())(jnp.ones(8)).tolist() == [0.0] * 8


@pytest.mark.parametrize("call, error", [
    (lambda x, w: rj.rms_norm(x.astype(int)), TypeError), (lambda x, w: rj.rms_norm(x, w[:3]), ValueError),
    (lambda x, w: rj.rms_norm(x, w.astype("float64")), TypeError), (lambda x, w: rj.rms_norm(x, eps=-1.0), ValueError),
    (lambda x, w: rj.rms_norm(x, rounding="no"), ValueError), (lambda x, w: rj.rms_norm(x[:, :0]), ValueError),
    (lambda x, w: rj.rms_norm(x, w, bias=w.astype("float64")), TypeError),
    (lambda x, w: rj.rms_norm(x, groups=3).block_until_ready(), Exception),
])  # fmt: skip
def test_errors(call, error):
    with pytest.raises(error):
        call(jnp.ones((2, 8), "float32"), jnp.ones(8, "float32"))
