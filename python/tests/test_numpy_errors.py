# SPDX-License-Identifier: MIT
"""Bad arguments: one exception that names the argument, and outputs untouched."""
import ml_dtypes
import numpy as np
import pytest

import rmsnorm

X = np.ones((3, 8), np.float32)
W = np.ones(8, np.float32)


def read_only(shape):
    a = np.ones(shape, np.float32)
    a.flags.writeable = False
    return a


@pytest.mark.parametrize("x", [
    None, 3.0, [1.0, 2.0], "text", (1.0, 2.0), (1, 1, (3,), (1,)), object(), np.ones(4, np.int32), np.ones(4, bool),
    np.ones(4, complex), np.array([object()]), np.array(["a"]), np.ones(4, ">f4"), np.ones(4, np.longdouble),
    np.ones(4, ml_dtypes.float8_e4m3fn), np.zeros(4, "V2"), np.ma.masked_array(np.ones(4), [0, 0, 1, 0]),
], ids=repr)  # fmt: skip
def test_x_of_a_wrong_type(x):
    for function in (rmsnorm.rms_norm, rmsnorm.layer_norm):
        with pytest.raises(TypeError, match=r"\bx\b"):
            function(x)
    with pytest.raises(TypeError, match=r"\bdy\b"):
        rmsnorm.rms_norm_backward(x, X)
    with pytest.raises(TypeError, match=r"\bx\b"):
        rmsnorm.rms_norm_backward(X, x)


@pytest.mark.parametrize("x", [np.array(1.0), np.float32(2), np.ones((3, 0)), np.ones(0)], ids=repr)
def test_x_without_a_row(x):
    for function in (rmsnorm.rms_norm, rmsnorm.layer_norm):
        with pytest.raises(ValueError, match=r"\bx\b"):
            function(x)


@pytest.mark.parametrize("options, error, name", [
    (dict(weight=W[:7]), ValueError, "weight"),
    (dict(weight=np.ones((2, 8), np.float32)), ValueError, "weight"),
    (dict(weight=np.ones((1, 3, 8), np.float32)), ValueError, "weight"),
    (dict(weight=np.float32(1)), ValueError, "weight"),
    (dict(weight=W.astype(np.float64)), TypeError, "weight has dtype float64; float32 is wanted"),
    (dict(weight=[1.0] * 8), TypeError, "weight"),
    (dict(weight=W.astype(">f4")), TypeError, "weight"),
    (dict(weight=(1, 1, (8,), (1,))), TypeError, "weight"),
    (dict(bias=W[:7]), ValueError, "bias"),
    (dict(bias=W.astype(np.float16)), TypeError, "bias"),
    (dict(weight=np.ones((3, 8), np.float32), bias=W), ValueError, "bias"),
    (dict(residual=X[:2]), ValueError, "residual"),
    (dict(residual=X.astype(np.float64)), TypeError, "residual"),
    (dict(residual=X.astype(np.float16)), TypeError, "residual"),
    (dict(residual=3), TypeError, "residual"),
    (dict(eps=-1.0), ValueError, "eps"),
    (dict(eps=float("nan")), ValueError, "eps"),
    (dict(eps=float("inf")), ValueError, "eps"),
    (dict(eps=10**400), ValueError, "eps"),
    (dict(eps="small"), TypeError, "eps"),
    (dict(eps=None), TypeError, "eps"),
    (dict(eps=True), TypeError, "eps"),
    (dict(weight_offset=float("inf")), ValueError, "weight_offset"),
    (dict(weight_offset=-(10**400)), ValueError, "weight_offset"),
    (dict(weight_offset=None), TypeError, "weight_offset"),
    (dict(rounding="never"), ValueError, "rounding"),
    (dict(rounding=None), ValueError, "rounding"),
    (dict(rounding=[]), ValueError, "rounding"),
    (dict(eps_place="there"), ValueError, "eps_place"),
    (dict(partial=0), ValueError, "partial"),
    (dict(partial=-1), ValueError, "partial"),
    (dict(partial=9), ValueError, "partial"),
    (dict(partial=2**70), ValueError, "partial"),
    (dict(partial=1.5), ValueError, "partial"),
    (dict(partial=0.0), ValueError, "partial"),
    (dict(partial=float("nan")), ValueError, "partial"),
    (dict(partial="half"), TypeError, "partial"),
    (dict(partial=True), TypeError, "partial"),
    (dict(partial=3, indices=[1]), ValueError, "partial and indices"),
    (dict(partial=0.5, groups=3), ValueError, "groups"),
    (dict(indices=[]), ValueError, "indices"),
    (dict(indices=[3, 1]), ValueError, "indices"),
    (dict(indices=[1, 1]), ValueError, "indices"),
    (dict(indices=[-1]), ValueError, "indices"),
    (dict(indices=[8]), ValueError, "indices"),
    (dict(indices=[0.5]), TypeError, "indices"),
    (dict(indices=5), TypeError, "indices"),
    (dict(indices=[[1]]), TypeError, "indices"),
    (dict(groups=0), ValueError, "groups"),
    (dict(groups=3), ValueError, "groups"),
    (dict(groups=2**70), ValueError, "groups"),
    (dict(groups=2.0), TypeError, "groups"),
    (dict(groups=True), TypeError, "groups"),
    (dict(threads=0), ValueError, "threads"),
    (dict(threads=-2), ValueError, "threads"),
    (dict(threads=10**6), ValueError, "threads"),
    (dict(threads=1.0), TypeError, "threads"),
    (dict(out=np.ones((3, 7), np.float32)), ValueError, "out"),
    (dict(out=np.ones((3, 8))), TypeError, "out"),
    (dict(out=read_only((3, 8))), ValueError, "out"),
    (dict(out=[[0.0] * 8] * 3), TypeError, "out"),
    (dict(out=(X.copy(), X.copy())), ValueError, "out"),
    (dict(out=((1, 1, (3, 8), (8, 1)),)), TypeError, "out"),
    (dict(out=np.lib.stride_tricks.as_strided(X.copy(), (3, 8), (0, 4))), ValueError, "out"),
    (dict(residual=X, out=(X.copy(), np.ones((3, 8)))), TypeError, "out"),
    (dict(residual=X, out=(X.copy(),) * 3), ValueError, "out"),
], ids=lambda v: None)  # fmt: skip
def test_bad_options(options, error, name):
    with pytest.raises(error, match=name):
        rmsnorm.rms_norm(X, **options)


def test_residual_twice_in_out():
    a = X.copy()
    with pytest.raises(ValueError, match="out"):
        rmsnorm.rms_norm(X, residual=X, out=(a, a))


@pytest.mark.parametrize("make", [
    lambda b: (b[0:3], b[1:4]),
    lambda b: (b[0:3], b[1:4][::-1]),
    lambda b: (b[0:3, ::2], b[0:3, 1::2][:, ::-1]),
    lambda b: (b[0:3].T[:3, :3], b[0:3, :3]),
])  # fmt: skip
def test_overlapping_out(make):
    buffer = np.arange(32, dtype=np.float32).reshape(4, 8) + 1
    before = buffer.copy()
    x, out = make(buffer)
    with pytest.raises(ValueError, match="out"):
        rmsnorm.rms_norm(x, out=out)
    assert np.array_equal(buffer, before)


def test_out_over_the_weight():
    buffer = np.ones((4, 8), np.float32)
    with pytest.raises(ValueError, match="out"):
        rmsnorm.rms_norm(X, buffer[1], out=buffer[:3])


@pytest.mark.parametrize("options, error, name", [
    (dict(dy=X[:2]), ValueError, "dy"),
    (dict(dy=X.astype(np.float64)), TypeError, "x"),
    (dict(weight=W[:7]), ValueError, "weight"),
    (dict(weight=W.astype(np.float64)), TypeError, "weight"),
    (dict(dresidual=X[:2]), ValueError, "dresidual"),
    (dict(dresidual=X.astype(np.float64)), TypeError, "dresidual"),
    (dict(eps=-1.0), ValueError, "eps"),
    (dict(partial=9), ValueError, "partial"),
    (dict(partial=3, indices=[1]), ValueError, "partial and indices"),
    (dict(indices=[3, 1]), ValueError, "indices"),
    (dict(groups=3), ValueError, "groups"),
    (dict(rounding="never"), ValueError, "rounding"),
    (dict(threads=0), ValueError, "threads"),
], ids=lambda v: None)  # fmt: skip
def test_bad_options_of_backward(options, error, name):
    dy = options.pop("dy", X)
    with pytest.raises(error, match=name):
        rmsnorm.rms_norm_backward(dy, X, **options)


class Exporter:
    def __init__(self, result):
        self.result = result

    def __dlpack__(self, **keywords):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("result", [BufferError("no"), RuntimeError("no"), None, "capsule"], ids=repr)
def test_bad_dlpack(result):
    with pytest.raises(TypeError, match=r"\bx\b"):
        rmsnorm.rms_norm(Exporter(result))


def test_huge_broadcast_does_not_fit_in_memory():
    x = np.broadcast_to(np.ones(8, np.float32), (2**50, 8))
    with pytest.raises(MemoryError):
        rmsnorm.rms_norm(x)
    out = np.ones((2, 8), np.float32)
    with pytest.raises((MemoryError, ValueError)):
        rmsnorm.rms_norm(x, out=out)
