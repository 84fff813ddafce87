# SPDX-License-Identifier: MIT
"""adaLN of arrays: the bits of the formula that models write, and gradients against central differences."""
import ml_dtypes
import numpy as np
import pytest
import reference

import rmsnorm
from rmsnorm import _core

B, T, C = 3, 7, 24
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
NORMS = {"layer": rmsnorm.layer_norm, "rms": rmsnorm.rms_norm}


def _data(dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(size).astype(np.float32).astype(dtype) for size in ((B, T, C), (B, 6 * C), (B, T, C))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMS)
def test_bits_of_the_formula(kind, dtype):
    x, parts, _ = _data(dtype)
    shift, scale = np.split(parts, 6, axis=-1)[2:4]
    copies = _core.copies()
    y = rmsnorm.modulate(x, scale, shift, kind=kind, threads=2)
    assert _core.copies() == copies and y.dtype == dtype and y.flags.c_contiguous
    one = dtype.type(1)
    right = NORMS[kind](x, eps=1e-6) * (one + scale[:, None]) + shift[:, None]
    assert np.array_equal(y, right)
    assert np.array_equal(rmsnorm.modulate(x, scale[:, None], shift[:, None], kind=kind), right)
    rows = [np.ascontiguousarray(np.broadcast_to(p[:, None], x.shape)) for p in (scale, shift)]
    assert np.array_equal(rmsnorm.modulate(x, *rows, kind=kind), right)
    images = x.reshape(B, T, 1, C)
    assert np.array_equal(rmsnorm.modulate(images, scale, shift, kind=kind).reshape(x.shape), right)
    assert np.array_equal(rmsnorm.modulate(x, scale, kind=kind), NORMS[kind](x, eps=1e-6) * (one + scale[:, None]))


def test_a_wide_scale_and_one_rounding():
    x, parts, _ = _data(DTYPES[3])
    scale = parts[:, :C].astype(np.float32)
    y = rmsnorm.modulate(x, scale, rounding="after_weight", gain_rounding="wide")
    wide = rmsnorm.layer_norm(x.astype(np.float32), eps=1e-6) * (1 + scale[:, None])
    assert np.array_equal(y, wide.astype(x.dtype))


def _slope(f, x, step=1e-6):
    found = np.empty(x.shape)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        found[i] = (f(up) - f(down)) / (2 * step)
    return found


@pytest.mark.parametrize("per_sample", [True, False])
@pytest.mark.parametrize("kind", NORMS)
def test_gradients(kind, per_sample):
    x, dy = (t[:2, :3, :6] for t in _data()[::2])
    scale = np.random.default_rng(5).standard_normal((2, 1, 6) if per_sample else (2, 3, 6))

    def loss(x, scale, shift):
        return (dy * (reference.forward(x, eps=1e-3, layer=kind == "layer") * (1 + scale) + shift)).sum()

    got = rmsnorm.modulate_backward(dy, x, scale, 1e-3, kind=kind)
    assert got.dx.shape == x.shape and got.dscale.shape == got.dshift.shape == scale.shape
    np.testing.assert_allclose(got.dx, _slope(lambda t: loss(t, scale, 0), x), atol=1e-8)
    np.testing.assert_allclose(got.dscale, _slope(lambda t: loss(x, t, 0), scale), atol=1e-8)
    np.testing.assert_allclose(got.dshift, _slope(lambda t: loss(x, scale, t), scale), atol=1e-8)
    assert rmsnorm.modulate_backward(dy, x, scale, shift=False).dshift is None


def test_no_tokens_and_no_samples():
    x, parts, _ = _data(np.float32)
    scale = parts[:, :C]
    assert rmsnorm.modulate(x[:, :0], scale, scale).shape == (B, 0, C)
    assert rmsnorm.modulate(x[:0], scale[:0], scale[:0]).shape == (0, T, C)
    grads = rmsnorm.modulate_backward(x[:, :0], x[:, :0], scale)
    assert not grads.dscale.any() and not grads.dshift.any()


def test_errors():
    x, parts, _ = _data(np.float32)
    scale = parts[:, :C]
    for arguments, error, message in (
        ((x, parts), ValueError, "scale has the shape"),
        ((x, scale, scale[:1]), ValueError, "shift has the shape"),
        ((x, scale, np.zeros_like(x)), ValueError, "both"),
        ((x[0, 0], scale), ValueError, "dimension of samples"),
        ((x.tolist(), scale), TypeError, "x must be a NumPy array"),
        ((x, scale.astype(np.float64)), TypeError, "weight has dtype float64"),
        ((np.ma.masked_array(x), scale), TypeError, "masked"),
        ((x[..., :0], scale[:, :0]), ValueError, "empty last dimension"),
    ):
        with pytest.raises(error, match=message):
            rmsnorm.modulate(*arguments)
    with pytest.raises(ValueError, match="kind is 'group'"):
        rmsnorm.modulate(x, scale, kind="group")
    with pytest.raises(ValueError, match="dy has the shape"):
        rmsnorm.modulate_backward(x.swapaxes(0, 1), x, scale)
