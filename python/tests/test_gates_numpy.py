# SPDX-License-Identifier: MIT
"""Gated norms of NumPy arrays: against float64 formulas, where the memory lies, and bad arguments."""
import itertools

import ml_dtypes
import numpy as np
import pytest
import reference

import rmsnorm
from rmsnorm import _core

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BF16]
# Half a unit in the last place of the result's type, and a few of the arithmetic: of the norm, the activation and their product.
TOLERANCE = {"float32": 2e-6, "float64": 4e-15, "float16": 2**-11 * 1.01, "bfloat16": 2**-8 * 1.01}
GATES = list(itertools.product(("after", "before"), ("silu", "sigmoid")))
FUNCTIONS = {"rms": (rmsnorm.rms_norm, rmsnorm.rms_norm_backward), "layer": (rmsnorm.layer_norm, rmsnorm.layer_norm_backward)}
rng = np.random.default_rng(20261116)


def randn(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def gated(x, gate, weight, eps, bias, place, activation, **options):
    z = np.asarray(gate, np.float64)
    a = 1 / (1 + np.exp(-z)) * (z if activation == "silu" else 1)
    if place == "after":
        return reference.forward(x, weight, eps, bias, **options) * a
    return reference.forward(np.asarray(x, np.float64) * a, weight, eps, bias, **options)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def slope(at, f, step=1e-6):
    result = np.empty(at.shape)
    for i in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[i] += step
        down[i] -= step
        result[i] = (f(up) - f(down)) / (2 * step)
    return result


@pytest.mark.parametrize("place, activation", GATES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(7,), (3, 100), (2, 3, 65), (0, 8)], ids=str)
def test_forward(dtype, shape, place, activation):
    x, z = randn(*shape, dtype=dtype), (3 * randn(*shape)).astype(dtype)
    w, b = randn(shape[-1], dtype=dtype), randn(shape[-1], dtype=dtype)
    for weight, bias in ((None, None), (w, None), (w, b)):
        y = rmsnorm.rms_norm(x, weight, 1e-5, bias=bias, gate=z, gate_place=place, activation=activation)
        assert y.dtype == dtype and y.shape == shape
        expected = gated(x, z, weight, 1e-5, bias, place, activation)
        scale = np.array(2.0**-14)  # half a subnormal step of float16, and the terms of a sum with the bias
        if bias is not None:
            scale = scale + np.abs(bias.astype(np.float64)) * (1 if place == "before" else np.abs(z.astype(np.float64)) + 1)
        assert np.all(np.abs(y.astype(np.float64) - expected) <= TOLERANCE[dtype.name] * np.maximum(np.abs(expected), scale))


@pytest.mark.parametrize("place, activation", GATES)
@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("options", [{}, dict(groups=3), dict(weight_offset=1.0), dict(rounding="before_weight")], ids=str)
def test_gradients(kind, place, activation, options):
    """Against central differences of the formula."""
    forward, backward = FUNCTIONS[kind]
    x, z, dy = randn(2, 12, dtype=np.float64), randn(2, 12, dtype=np.float64), randn(2, 12, dtype=np.float64)
    w, b = randn(12, dtype=np.float64), randn(12, dtype=np.float64)
    gate = dict(gate=z, gate_place=place, activation=activation)
    same = {k: v for k, v in options.items() if k != "rounding"}

    def formula(x, z, w, b):
        return (dy * gated(x, z, w, 1e-3, b, place, activation, layer=kind == "layer", **same)).sum()

    np.testing.assert_allclose((dy * forward(x, w, eps=1e-3, bias=b, **gate, **options)).sum(), formula(x, z, w, b), rtol=1e-12)
    grads = backward(dy, x, w, 1e-3, bias=b, **gate, **options)
    assert isinstance(grads, rmsnorm.GatedGradients) and grads._fields == ("dx", "dweight", "dbias", "dgate")
    np.testing.assert_allclose(grads.dx, slope(x, lambda a: formula(a, z, w, b)), atol=1e-7)
    np.testing.assert_allclose(grads.dweight, slope(w, lambda a: formula(x, z, a, b)), atol=1e-7)
    np.testing.assert_allclose(grads.dbias, slope(b, lambda a: formula(x, z, w, a)), atol=1e-7)
    np.testing.assert_allclose(grads.dgate, slope(z, lambda a: formula(x, a, w, b)), atol=1e-7)
    dx, dweight, dbias, dgate = backward(dy, x, None, 1e-3, bias=False, **gate, **options)
    assert dweight is None and dbias is None and dx.shape == dgate.shape == x.shape


def test_without_a_gate_there_are_three_gradients():
    dx, dweight, dbias = rmsnorm.rms_norm_backward(np.ones((2, 4)), np.ones((2, 4)), np.ones(4))
    assert dx is not None and dweight is not None and dbias is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_types_of_weights_and_biases(dtype):
    x, z, dy = (randn(5, 32, dtype=dtype) for _ in range(3))
    w, b = randn(32), randn(32)
    if dtype != np.float64:
        assert rmsnorm.rms_norm(x, w, bias=b, gate=z).dtype == dtype
        grads = rmsnorm.rms_norm_backward(dy, x, w, bias=b, gate=z)
        assert [g.dtype for g in grads] == [dtype, np.float32, np.float32, dtype]
        grads = rmsnorm.rms_norm_backward(dy, x, bias=b, gate=z)  # a bias of float32 without a weight
        assert [g if g is None else g.dtype for g in grads] == [dtype, None, np.float32, dtype]
    heads = randn(5, 32, dtype=dtype)
    grads = rmsnorm.rms_norm_backward(dy, x, bias=heads, gate=z)
    assert grads.dbias.shape == (5, 32)
    grads = rmsnorm.rms_norm_backward(dy, x, heads, bias=True, gate=z, gate_place="before")
    assert grads.dbias.shape == grads.dweight.shape == (5, 32)


@pytest.mark.parametrize("place", ["after", "before"])
def test_strided_gates_are_read_where_they_are(place):
    """The gate as a slice of wider rows, as in a projection that gives x and z at once."""
    both = randn(6, 4, 2 * 32)
    x, z = both[..., :32], both[..., 32:]
    dy = randn(6, 4, 32)
    before = _core.copies()
    y = rmsnorm.rms_norm(x, gate=z, gate_place=place)
    grads = rmsnorm.rms_norm_backward(dy, x, gate=z, gate_place=place)
    assert _core.copies() == before
    assert same_bits(y, rmsnorm.rms_norm(x.copy(), gate=z.copy(), gate_place=place))
    for a, b in zip(grads, rmsnorm.rms_norm_backward(dy, x.copy(), gate=z.copy(), gate_place=place)):
        assert a is b is None or same_bits(a, b)
    reversed_gate = z[..., ::-1]  # such a one is copied
    assert same_bits(rmsnorm.rms_norm(x, gate=reversed_gate), rmsnorm.rms_norm(x, gate=reversed_gate.copy()))
    assert _core.copies() == before + 1


@pytest.mark.parametrize("place", ["after", "before"])
def test_in_place_of_the_gate(place):
    x, z, r = randn(4, 50), randn(4, 50), randn(4, 50)
    y, total = rmsnorm.rms_norm(x, residual=r, gate=z, gate_place=place)
    assert same_bits(total, x + r) and same_bits(y, rmsnorm.rms_norm(total, gate=z, gate_place=place))
    out = z.copy()
    assert rmsnorm.rms_norm(x, gate=out, gate_place=place, out=out) is out
    assert same_bits(out, rmsnorm.rms_norm(x, gate=z, gate_place=place))


def test_threads_and_instruction_sets_do_not_change_bits():
    x, z, w = randn(300, 130), randn(300, 130), randn(130)
    y = rmsnorm.rms_norm(x, w, gate=z)
    assert same_bits(y, rmsnorm.rms_norm(x, w, gate=z, threads=2))
    for name, usable in _core.info()["instruction_sets"]:
        if usable:
            _core.force_isa(name)
            try:
                assert same_bits(y, rmsnorm.rms_norm(x, w, gate=z))
            finally:
                _core.force_isa(None)


X = np.ones((3, 8), np.float32)


@pytest.mark.parametrize("options, error, name", [
    (dict(gate=X[:2]), ValueError, "gate"),
    (dict(gate=X[0]), ValueError, "gate"),
    (dict(gate=X.astype(np.float16)), TypeError, "gate"),
    (dict(gate=X.astype(np.int32)), TypeError, "gate"),
    (dict(gate=[1.0] * 8), TypeError, "gate"),
    (dict(gate=(1, 1, (3, 8), (8, 1))), TypeError, "gate"),
    (dict(gate=np.ma.masked_array(X)), TypeError, "gate"),
    (dict(gate=X, gate_place="inside"), ValueError, "gate_place"),
    (dict(gate=X, gate_place=None), ValueError, "gate_place"),
    (dict(gate=X, gate_place=[]), ValueError, "gate_place"),
    (dict(gate=X, activation="relu"), ValueError, "activation"),
    (dict(gate=X, activation=0), ValueError, "activation"),
    (dict(gate_place="before"), ValueError, "gate_place.*no gate"),
    (dict(activation="sigmoid"), ValueError, "activation.*no gate"),
    (dict(gate_place="behind"), ValueError, "gate_place"),
], ids=str)  # fmt: skip
def test_bad_gates(options, error, name):
    out = np.full((3, 8), 7, np.float32)
    for forward, backward in FUNCTIONS.values():
        with pytest.raises(error, match=name):
            forward(X, out=out, **options)
        with pytest.raises(error, match=name):
            backward(X, X, bias=False, **options)
    assert (out == 7).all()


def test_the_bias_behind_a_gate_must_be_known():
    for _, backward in FUNCTIONS.values():
        with pytest.raises(ValueError, match="bias"):
            backward(X, X, bias=True, gate=X)
        with pytest.raises(ValueError, match="bias"):
            backward(X, X, bias=X[0, :7], gate=X)
        with pytest.raises(TypeError, match="bias"):
            backward(X, X, bias=X[0].astype(np.float64), gate=X)
        with pytest.raises(TypeError, match="bias"):
            backward(X, X, bias=3.0, gate=X)
        assert backward(X, X, bias=True, gate=X, gate_place="before").dbias.shape == (8,)


def test_an_output_that_overlaps_the_gate():
    both = np.ones((3, 16), np.float32)
    with pytest.raises(ValueError, match="out"):
        rmsnorm.rms_norm(X, gate=both[:, :8], out=both[:, 4:12])
