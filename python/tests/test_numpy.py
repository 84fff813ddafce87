# SPDX-License-Identifier: MIT
"""Results of the NumPy functions against float64 formulas, and the same bits whatever the memory looks like."""
import ml_dtypes
import numpy as np
import pytest
import reference

import rmsnorm

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BF16]
# Half a unit in the last place of the result's type, and a few of the arithmetic in which it was computed.
TOLERANCE = {"float32": 1e-6, "float64": 1e-14, "float16": 2**-11 * 1.01, "bfloat16": 2**-8 * 1.01}
rng = np.random.default_rng(20261115)


def randn(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def bits(a):
    return np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}")


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(bits(a), bits(b))


def assert_close(y, expected, scale=0.01):
    """Relative to the result, or to the terms of which it is the sum."""
    assert y.shape == expected.shape
    bound = TOLERANCE[y.dtype.name]
    assert np.all(np.abs(y.astype(np.float64) - expected) <= bound * np.maximum(np.abs(expected), scale))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(7,), (1, 64), (3, 100), (2, 3, 65), (2, 1, 3, 4, 33), (0, 8), (3, 0, 8), (4, 1)])
def test_forward(dtype, shape):
    x, w, b = randn(*shape, dtype=dtype), randn(shape[-1], dtype=dtype), randn(shape[-1], dtype=dtype)
    y = rmsnorm.rms_norm(x, w, 1e-5, bias=b)
    assert y.dtype == dtype and type(y) is np.ndarray
    assert_close(y, reference.forward(x, w, 1e-5, b), np.abs(b.astype(np.float64)))
    assert_close(rmsnorm.rms_norm(x, eps=1e-5), reference.forward(x, None, 1e-5))
    if shape[-1] > 1:
        y = rmsnorm.layer_norm(x.astype(np.float64), w.astype(np.float64), b.astype(np.float64), 1e-5)
        assert_close(y, reference.forward(x, w, 1e-5, b, layer=True), 10.0)


@pytest.mark.parametrize("options, same", [
    (dict(partial=5), dict(partial=5)),
    (dict(partial=0.25), dict(partial=6)),
    (dict(indices=[0, 3, 23]), dict(indices=[0, 3, 23])),
    (dict(indices=np.array([1, 2])), dict(indices=[1, 2])),
    (dict(groups=4), dict(groups=4)),
    (dict(groups=4, partial=2), dict(groups=4, partial=2)),
    (dict(groups=4, partial=0.5), dict(groups=4, partial=3)),
    (dict(eps_place="outside"), dict(outside=True)),
    (dict(weight_offset=1), dict(weight_offset=1)),
])  # fmt: skip
def test_options(options, same):
    x, w, dy = (randn(*s, dtype=np.float64) for s in ((3, 24), (24,), (3, 24)))
    assert_close(rmsnorm.rms_norm(x, w, 1e-3, **options), reference.forward(x, w, 1e-3, **same))
    grads = rmsnorm.rms_norm_backward(dy, x, w, 1e-3, bias=True, **options)
    dx, dw = reference.backward(dy, x, w, 1e-3, **same)
    np.testing.assert_allclose(grads.dx, dx, atol=1e-7)
    np.testing.assert_allclose(grads.dweight, dw, atol=1e-7)
    np.testing.assert_allclose(grads.dbias, dy.sum(0), rtol=1e-12)


@pytest.mark.parametrize("options, same", [
    (dict(), dict()), (dict(groups=3), dict(groups=3)), (dict(eps_place="outside"), dict(outside=True))])  # fmt: skip
def test_layer_norm_options(options, same):
    x, w, dy = (randn(*s, dtype=np.float64) for s in ((3, 24), (24,), (3, 24)))
    assert_close(rmsnorm.layer_norm(x, w, None, 1e-3, **options), reference.forward(x, w, 1e-3, layer=True, **same))
    grads = rmsnorm.layer_norm_backward(dy, x, w, 1e-3, **options)
    dx, dw = reference.backward(dy, x, w, 1e-3, layer=True, **same)
    np.testing.assert_allclose(grads.dx, dx, atol=1e-7)
    np.testing.assert_allclose(grads.dweight, dw, atol=1e-7)
    np.testing.assert_allclose(grads.dbias, dy.sum(0), rtol=1e-12)


def test_rounding_before_the_weight_is_llamas():
    x, w = randn(5, 64, dtype=BF16), randn(64, dtype=BF16)
    f = x.astype(np.float32)
    h = (f * (1 / np.sqrt((f * f).mean(-1, keepdims=True) + np.float32(1e-6)))).astype(BF16)
    expected = w * h
    y = rmsnorm.rms_norm(x, w, 1e-6, rounding="before_weight")
    assert np.mean(bits(y) != bits(expected)) < 0.01  # the order of the float32 sum
    assert np.mean(bits(rmsnorm.rms_norm(x, w, 1e-6)) != bits(expected)) > 0.1


@pytest.mark.parametrize("dtype", [np.float16, BF16], ids=str)
def test_mixed_types(dtype):
    x, w, residual = randn(4, 48, dtype=dtype), randn(48), randn(4, 48)
    y, total = rmsnorm.rms_norm(x, w, 1e-5, residual=residual)
    assert y.dtype == dtype and total.dtype == np.float32
    assert np.array_equal(total, x.astype(np.float32) + residual)
    assert_close(y, reference.forward(total, w, 1e-5))
    grads = rmsnorm.rms_norm_backward(randn(4, 48, dtype=dtype), x, w, 1e-5)
    assert grads.dx.dtype == dtype and grads.dweight.dtype == np.float32 and grads.dbias is None


def test_backward_without_weight():
    x, dy = randn(4, 16, dtype=np.float64), randn(4, 16, dtype=np.float64)
    grads = rmsnorm.rms_norm_backward(dy, x, eps=1e-3)
    assert grads.dweight is None and grads.dbias is None
    np.testing.assert_allclose(grads.dx, reference.backward(dy, x, None, 1e-3)[0], atol=1e-7)


def test_dresidual_is_added():
    x, dy, more = (randn(4, 16, dtype=np.float64) for _ in range(3))
    plain = rmsnorm.rms_norm_backward(dy, x, eps=1e-3).dx
    np.testing.assert_allclose(rmsnorm.rms_norm_backward(dy, x, eps=1e-3, dresidual=more).dx, plain + more, rtol=1e-12)


def test_one_weight_per_head():
    x, w, dy = randn(5, 3, 16), randn(3, 16), randn(5, 3, 16)
    y = rmsnorm.rms_norm(x, w, 1e-5)
    grads = rmsnorm.rms_norm_backward(dy, x, w, 1e-5, bias=False)
    for h in range(3):
        assert same_bits(y[:, h], rmsnorm.rms_norm(x[:, h], w[h], 1e-5))
        alone = rmsnorm.rms_norm_backward(dy[:, h], x[:, h], w[h], 1e-5)
        assert same_bits(grads.dx[:, h], alone.dx) and same_bits(grads.dweight[h], alone.dweight)
    assert same_bits(rmsnorm.rms_norm(x[0], w, 1e-5), y[0])
    transposed = np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2)
    assert same_bits(rmsnorm.rms_norm(transposed, w, 1e-5), y)
    empty = rmsnorm.rms_norm_backward(dy[:, :0], x[:, :0], w[:0], 1e-5)
    assert empty.dweight.shape == (0, 16)


def layouts(x):
    """Arrays with the values of x in memory of many shapes."""
    yield "fortran", np.asfortranarray(x)
    yield "reversed", x[..., ::-1].copy()[..., ::-1]
    yield "reversed rows", x[::-1].copy()[::-1]
    wide = np.zeros(x.shape[:-1] + (2 * x.shape[-1],), x.dtype)
    wide[..., ::2] = x
    yield "every second column", wide[..., ::2]
    wide[..., 3 : 3 + x.shape[-1]] = x
    yield "slice of wider rows", wide[..., 3 : 3 + x.shape[-1]]
    yield "transposed", np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)
    raw = np.zeros(x.nbytes + 1, np.uint8)
    odd = raw[1:].view(x.dtype).reshape(x.shape)
    odd[...] = x
    yield "odd address", odd
    record = np.zeros(x.shape, [("a", np.uint8), ("b", x.dtype)])
    record["b"] = x
    yield "field of a record", record["b"]
    frozen = x.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts_do_not_change_bits(dtype):
    x, w, dy = randn(3, 4, 20, dtype=dtype), randn(20, dtype=dtype), randn(3, 4, 20, dtype=dtype)
    y, grads = rmsnorm.rms_norm(x, w, 1e-5), rmsnorm.rms_norm_backward(dy, x, w, 1e-5, bias=True)
    for name, a in layouts(x):
        assert np.array_equal(bits(a), bits(x)), name
        assert same_bits(rmsnorm.rms_norm(a, w, 1e-5), y), name
        out = np.empty_like(x)
        rmsnorm.rms_norm(a, w, 1e-5, out=out)
        assert same_bits(out, y), name
        if a.flags.writeable:
            assert rmsnorm.rms_norm(x, w, 1e-5, out=a) is a
            assert same_bits(a, y), name
        for name2, b in layouts(dy):
            if a.flags.writeable:
                a[...] = x
            got = rmsnorm.rms_norm_backward(b, a, w, 1e-5, bias=True)
            # dweight is summed in the order of the rows in memory, so it may differ in its last bits
            assert same_bits(got.dx, grads.dx), (name, name2)


def test_strided_rows_are_not_copied():
    from rmsnorm import _core

    qkv, before = randn(2, 7, 10, 16), _core.copies()
    for x in (qkv, qkv[0], qkv[:, :, :6], qkv[:, :, 6:8].swapaxes(1, 2), qkv[::2], qkv[:, ::3, 4], qkv[..., 3:11]):
        y = rmsnorm.rms_norm(x)
        rmsnorm.rms_norm_backward(y, x)
        rmsnorm.rms_norm(x.copy(order="K"), out=x)
        assert same_bits(x, y)
    assert _core.copies() == before
    rmsnorm.rms_norm(qkv[..., ::2])
    assert _core.copies() == before + 1


def test_broadcast_input():
    row = randn(16)
    x = np.broadcast_to(row, (5, 3, 16))
    assert same_bits(rmsnorm.rms_norm(x)[4, 2], rmsnorm.rms_norm(row))
    column = np.broadcast_to(randn(5, 1), (5, 16))
    assert same_bits(rmsnorm.rms_norm(column), rmsnorm.rms_norm(column.copy()))
    windows = np.lib.stride_tricks.sliding_window_view(randn(40), 16)
    assert same_bits(rmsnorm.rms_norm(windows), rmsnorm.rms_norm(windows.copy()))


def test_strided_weight():
    x, w = randn(3, 16), randn(32)
    assert same_bits(rmsnorm.rms_norm(x, w[::2]), rmsnorm.rms_norm(x, w[::2].copy()))
    assert same_bits(rmsnorm.rms_norm(x, w[:16][::-1]), rmsnorm.rms_norm(x, w[:16][::-1].copy()))


def test_slices_of_qkv_in_place():
    qkv = randn(6, 10, 32)
    q, k, v = (qkv[:, :6].copy(), qkv[:, 6:8].copy(), qkv[:, 8:].copy())
    rmsnorm.rms_norm(qkv[:, :6], eps=1e-6, out=qkv[:, :6])
    rmsnorm.rms_norm(qkv[:, 6:8], eps=1e-6, out=qkv[:, 6:8])
    assert same_bits(qkv[:, :6], rmsnorm.rms_norm(q)) and same_bits(qkv[:, 6:8], rmsnorm.rms_norm(k))
    assert same_bits(qkv[:, 8:], v)


def test_out():
    x, residual = randn(4, 8), randn(4, 8)
    out = np.empty_like(x)
    assert rmsnorm.rms_norm(x, out=out) is out
    assert rmsnorm.rms_norm(x, out=(out,)) is out
    total = np.empty_like(x)
    y, s = rmsnorm.rms_norm(x, residual=residual, out=(out, total))
    assert y is out and s is total
    y, s = rmsnorm.rms_norm(x, residual=residual, out=(None, total))
    assert s is total and same_bits(y, out)
    expected = y.copy()
    y, s = rmsnorm.rms_norm(x, residual=residual, out=(x, residual))
    assert y is x and s is residual and same_bits(x, expected)


def test_batch_and_threads_do_not_change_bits():
    x, w, dy = randn(700, 512, dtype=BF16), randn(512), randn(700, 512, dtype=BF16)
    y, grads = rmsnorm.rms_norm(x, w), rmsnorm.rms_norm_backward(dy, x, w, bias=True)
    for i in (0, 13, 699):
        assert same_bits(rmsnorm.rms_norm(x[i], w), y[i])
    for threads in (2, 7, None):
        assert same_bits(rmsnorm.rms_norm(x, w, threads=threads), y)
        again = rmsnorm.rms_norm_backward(dy, x, w, bias=True, threads=threads)
        assert all(same_bits(a, b) for a, b in zip(again, grads))


def test_numbers_of_numpy_as_options():
    x = randn(2, 8)
    assert same_bits(rmsnorm.rms_norm(x, eps=np.float64(1e-3), groups=np.int64(2), threads=np.int32(1)),
                     rmsnorm.rms_norm(x, eps=1e-3, groups=2))  # fmt: skip
    for one, other in ((np.int64(3), 3), (np.float32(0.25), 0.25), (np.float64(0.25), 0.25)):
        assert same_bits(rmsnorm.rms_norm(x, partial=one), rmsnorm.rms_norm(x, partial=other))


class Exporter:
    """Something that knows nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_dlpack(dtype):
    x, w = randn(3, 2, 8, dtype=dtype), randn(8, dtype=dtype)
    y = rmsnorm.rms_norm(x, w)
    got = rmsnorm.rms_norm(Exporter(x), Exporter(w))
    assert type(got) is np.ndarray and same_bits(got, y)
    assert same_bits(rmsnorm.rms_norm(Exporter(x.swapaxes(0, 1)), w), y.swapaxes(0, 1))
    out = Exporter(np.empty_like(x))
    assert rmsnorm.rms_norm(x, w, out=out) is out
    assert same_bits(out.array, y)
    grads = rmsnorm.rms_norm_backward(Exporter(x), Exporter(x), Exporter(w))
    assert same_bits(grads.dx, rmsnorm.rms_norm_backward(x, x, w).dx)


def test_read_only_dlpack():
    """Memory that must not be written is exported in the newer form only, and can be read."""
    x, w = randn(3, 8), randn(8)
    y = rmsnorm.rms_norm(x, w)
    x.flags.writeable = w.flags.writeable = False
    assert same_bits(rmsnorm.rms_norm(Exporter(x), Exporter(w)), y)
    with pytest.raises(ValueError, match="out is read-only"):
        rmsnorm.rms_norm(x, w, out=Exporter(x))


def test_old_exporter_says_why():
    """One that knows no versions refuses in its own words."""

    class Locked(Exporter):
        def __dlpack__(self):
            raise BufferError("the memory is locked")

    with pytest.raises((ValueError, TypeError, BufferError), match="the memory is locked"):
        rmsnorm.rms_norm(Locked(randn(2, 4)))


def test_subclasses():
    class Mine(np.ndarray):
        pass

    x = randn(2, 4)
    y = rmsnorm.rms_norm(x.view(Mine))
    assert type(y) is np.ndarray and same_bits(y, rmsnorm.rms_norm(x))
