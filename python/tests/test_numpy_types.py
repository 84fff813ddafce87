# SPDX-License-Identifier: MIT
"""Results of a type of their own, and a gain that is rounded to the weight's type."""
import ml_dtypes
import numpy as np
import pytest

import rmsnorm

BF16 = np.dtype(ml_dtypes.bfloat16)
PAIRS = [(BF16, np.float32), (np.float32, BF16), (np.float16, BF16), (np.float32, np.float16), (BF16, BF16)]


def _data(dtype, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((7, 48)).astype(np.float32).astype(dtype), rng.standard_normal(48).astype(np.float32)


@pytest.mark.parametrize("x_dtype, out_dtype", PAIRS, ids=str)
def test_the_last_rounding_is_to_the_result(x_dtype, out_dtype):
    x, w = _data(x_dtype)
    y = rmsnorm.rms_norm(x, w, out_dtype=out_dtype)
    assert y.dtype == out_dtype
    assert np.array_equal(y, rmsnorm.rms_norm(x.astype(np.float32), w).astype(out_dtype))
    out = np.empty(x.shape, out_dtype)
    assert rmsnorm.layer_norm(x, w, w, out_dtype=np.dtype(out_dtype).name, out=out) is out
    assert np.array_equal(out, rmsnorm.layer_norm(x.astype(np.float32), w, w).astype(out_dtype))


@pytest.mark.parametrize("x_dtype, out_dtype", PAIRS, ids=str)
def test_backward(x_dtype, out_dtype):
    x, w = _data(x_dtype)
    dy = _data(out_dtype, 1)[0]
    got = rmsnorm.layer_norm_backward(dy, x, w, own_dtype=True)
    wide = rmsnorm.layer_norm_backward(dy.astype(np.float32), x.astype(np.float32), w)
    assert got.dx.dtype == x_dtype and got.dweight.dtype == got.dbias.dtype == np.float32
    assert np.array_equal(got.dx, wide.dx.astype(x_dtype))
    assert np.array_equal(got.dweight, wide.dweight) and np.array_equal(got.dbias, wide.dbias)


@pytest.mark.parametrize("place", ["after", "before"])
@pytest.mark.parametrize("x_dtype, out_dtype", PAIRS, ids=str)
def test_beside_a_gate(x_dtype, out_dtype, place):
    """The gate has x's type, and so has its gradient."""
    x, w = _data(x_dtype)
    z, r, dy = _data(x_dtype, 2)[0], _data(x_dtype, 3)[0], _data(out_dtype, 1)[0]
    gate = dict(gate=z, gate_place=place)
    wide_gate = dict(gate=z.astype(np.float32), gate_place=place)
    y = rmsnorm.rms_norm(x, w, bias=w, out_dtype=out_dtype, **gate)
    assert y.dtype == out_dtype
    assert np.array_equal(y, rmsnorm.rms_norm(x.astype(np.float32), w, bias=w, **wide_gate).astype(out_dtype))
    got = rmsnorm.rms_norm_backward(dy, x, w, bias=w, own_dtype=True, **gate)
    wide = rmsnorm.rms_norm_backward(dy.astype(np.float32), x.astype(np.float32), w, bias=w, **wide_gate)
    assert [g.dtype for g in got] == [x_dtype, np.float32, np.float32, x_dtype]
    assert all(np.array_equal(g, right.astype(g.dtype)) for g, right in zip(got, wide))
    both, total = rmsnorm.rms_norm(x, w, residual=r, out_dtype=out_dtype, **gate)
    assert total.dtype == x_dtype and np.array_equal(both, rmsnorm.rms_norm(total, w, out_dtype=out_dtype, **gate))


def test_gain_in_the_type_of_the_weight():
    x, w = _data(BF16)
    w = w.astype(BF16)
    rounded = (w + BF16.type(1)).astype(BF16)
    for norm, backward in ((rmsnorm.rms_norm, rmsnorm.rms_norm_backward), (rmsnorm.layer_norm, rmsnorm.layer_norm_backward)):
        options = dict(weight_offset=1.0, gain_rounding="as_weight")
        assert np.array_equal(norm(x, w, **options), norm(x, rounded))
        assert not np.array_equal(norm(x, w, **options), norm(x, w, weight_offset=1.0))
        for got, right in zip(backward(x, x, w, **options), backward(x, x, rounded)):
            assert (got is None and right is None) or np.array_equal(got, right)


def test_errors():
    x, w = _data(np.float32)
    with pytest.raises(ValueError, match="out_dtype is float64; with x of float32"):
        rmsnorm.rms_norm(x, w, out_dtype=np.float64)
    with pytest.raises(ValueError, match="out_dtype is float32; with x of float64"):
        rmsnorm.rms_norm(x.astype(np.float64), out_dtype=np.float32)
    with pytest.raises(TypeError, match="gate has dtype bfloat16; float32 is wanted"):
        rmsnorm.rms_norm(x, w, gate=x.astype(BF16), out_dtype=BF16)
    with pytest.raises(TypeError, match="out has dtype float32; bfloat16 is wanted"):
        rmsnorm.rms_norm(x, w, out_dtype=BF16, out=np.empty_like(x))
    with pytest.raises(ValueError, match="gain_rounding is 'weight'"):
        rmsnorm.rms_norm(x, w, gain_rounding="weight")
