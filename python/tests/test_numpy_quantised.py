# SPDX-License-Identifier: MIT
"""Quantised results against formulas in NumPy, to the bit."""
import ml_dtypes
import numpy as np
import pytest

import rmsnorm
from rmsnorm import _core

BF16 = np.dtype(ml_dtypes.bfloat16)
LARGEST = {"int8": 127, "float8_e4m3fn": 448, "float8_e5m2": 57344}
TYPES = {"int8": np.int8, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
NORMS = {"rms": (rmsnorm.rms_norm, rmsnorm.rms_norm_quantised), "layer": (rmsnorm.layer_norm, rmsnorm.layer_norm_quantised)}
F32 = np.float32


def _data(dtype, shape=(3, 5, 96), seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(size).astype(F32).astype(dtype) for size in (shape, shape[-1:], shape[-1:], shape))


def _rounded(dtype, t):
    if dtype == "int8":
        return np.rint(np.clip(t, -127, 127)).astype(np.int8)
    return np.clip(t, -LARGEST[dtype], LARGEST[dtype]).astype(TYPES[dtype])


def _reference(dtype, y, width, least=0.0):
    """q and the scales of blocks of so many elements."""
    blocks = y.astype(F32).reshape(*y.shape[:-1], -1, width)
    scale = np.maximum(np.abs(blocks).max(-1) / F32(LARGEST[dtype]), F32(least))
    each = scale[..., None]
    if dtype == "int8":
        t = blocks * np.minimum(F32(1) / np.where(each == 0, F32(1), each), np.finfo(F32).max)
    else:
        t = blocks / np.where(each == 0, F32(1), each)
    return _rounded(dtype, t).reshape(y.shape), scale


def _same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a.view(np.uint8), b.view(np.uint8))


@pytest.mark.parametrize("x_dtype", [F32, BF16, np.float16], ids=str)
@pytest.mark.parametrize("block", [None, 32, 1])
@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("kind", NORMS)
def test_computed_scales(kind, dtype, block, x_dtype):
    norm, quantised = NORMS[kind]
    x, w, b, _ = _data(x_dtype)
    found = quantised(x, w, bias=b, dtype=dtype, block=block, return_y=True)
    y = norm(x, w, bias=b)
    q, scale = _reference(dtype, y, block or 96)
    assert np.array_equal(found.y, y) and np.array_equal(found.scale, scale) and _same(found.q, q)
    assert found.sum is None
    assert quantised(x, w, bias=b, dtype=dtype, block=block).y is None


@pytest.mark.parametrize("dtype", LARGEST)
def test_given_scale(dtype):
    x, w, _, _ = _data(F32)
    found = rmsnorm.rms_norm_quantised(x, w, dtype=dtype, scale=0.0123)
    y, scale = rmsnorm.rms_norm(x, w), F32(0.0123)
    assert _same(found.q, _rounded(dtype, y / scale if dtype == "int8" else y * (F32(1) / scale)))
    assert found.scale == scale


@pytest.mark.parametrize("x_dtype", [F32, BF16], ids=str)
def test_q8_0(x_dtype):
    x, w, _, _ = _data(x_dtype)
    found = rmsnorm.rms_norm_quantised(x, w, dtype="q8_0")
    blocks = rmsnorm.rms_norm(x, w).astype(F32).reshape(3, 5, 3, 32)
    most = np.abs(blocks).max(-1, keepdims=True)
    assert found.scale is None and found.q.shape == (3, 5, 3, 34) and found.q.dtype == np.uint8
    assert np.array_equal(found.q[..., :2].copy().view(np.float16), (most / F32(127)).astype(np.float16))
    assert np.array_equal(found.q[..., 2:].view(np.int8), np.rint(blocks * (F32(127) / most)).astype(np.int8))


def test_residual_gate_and_other_options():
    x, w, b, r = _data(BF16)
    found = rmsnorm.rms_norm_quantised(x, w, residual=r, rounding="before_weight", weight_offset=1.0, threads=2)
    y, total = rmsnorm.rms_norm(x, w, residual=r, rounding="before_weight", weight_offset=1.0)
    assert np.array_equal(found.sum, total) and _same(found.q, _reference("int8", y, 96)[0])
    found = rmsnorm.layer_norm_quantised(x, w, b, gate=r, activation="sigmoid", groups=2)
    y = rmsnorm.layer_norm(x, w, b, gate=r, activation="sigmoid", groups=2)
    q, scale = _reference("int8", y, 48)
    assert _same(found.q, q) and np.array_equal(found.scale, scale)
    found = rmsnorm.rms_norm_quantised(x, w, partial=0.25, out_dtype=np.float32, return_y=True)
    y = rmsnorm.rms_norm(x, w, partial=0.25, out_dtype=np.float32)
    assert np.array_equal(found.y, y) and _same(found.q, _reference("int8", y, 96)[0])
    for kind, steps in (("rms", "terms"), ("rms", "rstd"), ("rms", "all"), ("layer", "all")):
        norm, quantised = NORMS[kind]
        y = norm(x, w, steps=steps)
        assert steps == "terms" or not np.array_equal(y, norm(x, w))
        assert _same(quantised(x, w, steps=steps).q, _reference("int8", y, 96)[0])
    found = rmsnorm.rms_norm_quantised(x, w, gate=r, out_dtype=np.float32)
    assert _same(found.q, _reference("int8", rmsnorm.rms_norm(x, w, gate=r, out_dtype=np.float32), 96)[0])
    found = rmsnorm.rms_norm_quantised(x, w, scale_least=0.5)
    q, scale = _reference("int8", rmsnorm.rms_norm(x, w), 96, 0.5)
    assert (scale == 0.5).all() and np.array_equal(found.scale, scale) and _same(found.q, q)


def test_zeros_and_numbers_that_are_none():
    x = np.zeros((3, 8), F32)
    x[1, 3], x[2] = np.nan, 1
    found = rmsnorm.rms_norm_quantised(x)
    assert found.scale[0] == 0 and not found.q[0].any()
    assert np.isnan(found.scale[1]) and not found.q[1].any()
    assert (found.q[2] == 127).all()


def test_strided_rows_are_read_in_place():
    base = np.random.default_rng(0).standard_normal((4, 3, 2, 64)).astype(F32)
    copies = _core.copies()
    for x in (base[:, :, 0], base[:, 1, 0]):
        assert _same(rmsnorm.rms_norm_quantised(x).q, rmsnorm.rms_norm_quantised(np.ascontiguousarray(x)).q)
    assert _core.copies() == copies
    x = base[:, :, 0].transpose(1, 0, 2)  # the result is dense in the order of the indices, the rows are not
    assert _same(rmsnorm.rms_norm_quantised(x).q, rmsnorm.rms_norm_quantised(np.ascontiguousarray(x)).q)
    assert rmsnorm.rms_norm_quantised(base[:0], dtype="q8_0").q.shape == (0, 3, 2, 2, 34)


def test_errors():
    x = np.ones((2, 48), F32)
    for options, message in (
        (dict(dtype="int4"), "dtype is 'int4'"),
        (dict(block=5), "block is 5; it must divide the 48"),
        (dict(block=0), "block is 0"),
        (dict(block=16, groups=2), "block is 16; it must divide the 24"),
        (dict(block=16, scale=1.0), "one of them must be None"),
        (dict(groups=7), "groups is 7"),
        (dict(dtype="q8_0"), "q8_0 needs a multiple of 32"),
        (dict(dtype="q8_0", scale=1.0), "q8_0 has its own blocks"),
        (dict(scale_least=-1.0), "scale_least"),
        (dict(partial=2, indices=[1]), "exclude each other"),
    ):
        with pytest.raises(ValueError, match=message):
            rmsnorm.rms_norm_quantised(x, **options)
    with pytest.raises(TypeError, match="block must be an int"):
        rmsnorm.rms_norm_quantised(x, block=1.5)
    with pytest.raises(TypeError, match="combination of types"):
        rmsnorm.rms_norm_quantised(x.astype(np.float64))
