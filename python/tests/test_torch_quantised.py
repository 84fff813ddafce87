# SPDX-License-Identifier: MIT
"""Quantised results of torch tensors: the bits of the NumPy functions, which test_numpy_quantised compares with formulas."""
import ml_dtypes
import numpy as np
import pytest
import torch

import rmsnorm
import rmsnorm.torch
from rmsnorm import _core

DTYPES = ["int8", "float8_e4m3fn", "float8_e5m2", "q8_0"]
NORMS = {"rms": (rmsnorm.torch.rms_norm_quantised, rmsnorm.rms_norm_quantised),
         "layer": (rmsnorm.torch.layer_norm_quantised, rmsnorm.layer_norm_quantised)}  # fmt: skip
NUMPY = {torch.float32: np.float32, torch.bfloat16: ml_dtypes.bfloat16, torch.float16: np.float16}


def _data(dtype=torch.float32, shape=(3, 5, 64), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator).to(dtype) for size in (shape, shape[-1:], shape[-1:], shape)]


def _array(t):
    return None if t is None else t.float().numpy().astype(NUMPY[t.dtype])


def _bytes(t):
    return t.contiguous().view(torch.uint8).numpy() if isinstance(t, torch.Tensor) else np.ascontiguousarray(t).view(np.uint8)


def _same(found, right):
    for got, expected in zip(found, right):
        assert (got is None) == (expected is None)
        assert got is None or (np.array_equal(_bytes(got).ravel(), _bytes(expected).ravel()))


@pytest.mark.parametrize("x_dtype", list(NUMPY), ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", NORMS)
def test_bits_of_numpy(kind, dtype, x_dtype):
    quantised, with_numpy = NORMS[kind]
    x, w, b, r = _data(x_dtype)
    for options in ({}, dict(return_y=True), *(() if dtype == "q8_0" else (dict(block=16), dict(scale=0.02), dict(scale_least=0.1)))):
        for residual in (None, r):
            found = quantised(x, w, bias=b, dtype=dtype, residual=residual, **options)
            right = with_numpy(_array(x), _array(w), bias=_array(b), dtype=dtype, residual=_array(residual), **options)
            _same(found, right)
    assert found.q.dtype is (torch.uint8 if dtype == "q8_0" else getattr(torch, dtype))
    assert found.q.shape == ((3, 5, 2, 34) if dtype == "q8_0" else x.shape)


def test_other_options():
    x, w, b, z = _data(torch.bfloat16)
    options = dict(rounding="before_weight", weight_offset=1.0, gain_rounding="as_weight", groups=2, gate_place="before")
    found = rmsnorm.torch.rms_norm_quantised(x, w, gate=z, partial=0.5, eps_place="outside", **options)
    right = rmsnorm.rms_norm_quantised(_array(x), _array(w), gate=_array(z), partial=0.5, eps_place="outside", **options)
    _same(found, right)
    assert found.scale.shape == (3, 5, 2)
    found = rmsnorm.torch.rms_norm_quantised(x, w, indices=(1, 5), out_dtype=torch.float32, return_y=True)
    right = rmsnorm.rms_norm_quantised(_array(x), _array(w), indices=[1, 5], out_dtype="float32", return_y=True)
    _same(found, right)
    assert found.y.dtype is torch.float32
    for steps in ("terms", "rstd", "all"):
        _same(rmsnorm.torch.rms_norm_quantised(x, w, steps=steps), rmsnorm.rms_norm_quantised(_array(x), _array(w), steps=steps))
    found = rmsnorm.torch.layer_norm_quantised(x, w, b, steps="all", return_y=True)
    assert torch.equal(found.y, rmsnorm.torch.layer_norm(x, w, b, steps="all"))
    _same(found, rmsnorm.layer_norm_quantised(_array(x), _array(w), _array(b), steps="all", return_y=True))
    found = rmsnorm.torch.rms_norm_quantised(x, w, gate=z, out_dtype=torch.float32, return_y=True)
    assert torch.equal(found.y, rmsnorm.torch.rms_norm(x, w, gate=z, out_dtype=torch.float32))


def test_layouts():
    base = torch.randn(4, 3, 2, 64)
    per_head = torch.randn(3, 64)
    copies = _core.copies()
    for x in (base[:, :, 0], base[:, 1, 0], base[:, :, 0].transpose(0, 1)):
        for dtype in DTYPES:
            _same(rmsnorm.torch.rms_norm_quantised(x, dtype=dtype), rmsnorm.torch.rms_norm_quantised(x.contiguous(), dtype=dtype))
    assert _core.copies() == copies
    x = base[:, :, 0].transpose(0, 1).contiguous().transpose(0, 1)
    found = rmsnorm.torch.rms_norm_quantised(x, per_head)
    _same(found, rmsnorm.torch.rms_norm_quantised(x.contiguous(), per_head))
    moved = torch.randn(2, 64, 3, 3).movedim(1, -1)  # channels first
    _same(rmsnorm.torch.rms_norm_quantised(moved), rmsnorm.torch.rms_norm_quantised(moved.contiguous()))
    assert rmsnorm.torch.rms_norm_quantised(torch.empty(0, 64), dtype="q8_0").q.shape == (0, 2, 34)


def test_nothing_has_gradients():
    x, w, b, r = (t.requires_grad_() for t in _data())
    found = rmsnorm.torch.layer_norm_quantised(x, w, b, residual=r, return_y=True)
    assert not any(t.requires_grad for t in found)


@pytest.mark.parametrize("dtype, block, scale", [(5, 16, None), (6, 0, torch.tensor([0.1])), (8, 0, None)])
def test_operator_passes_opcheck(dtype, block, scale):
    x, w, b, r = _data()
    for with_y, residual in ((0, None), (1, r)):
        arguments = (x, residual, None, scale, dtype, block, 0.0, with_y, w, b, 1e-5)
        torch.library.opcheck(torch.ops.rmsnorm._quantised_norm.default, arguments)


@pytest.mark.parametrize("dtype", DTYPES)
def test_compile(dtype):
    x, w, b, r = _data(torch.bfloat16)

    def norm(x, w, r):
        return tuple(t for t in rmsnorm.torch.rms_norm_quantised(x, w, dtype=dtype, residual=r) if t is not None)

    compiled = torch.compile(norm, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 2):
        _same(compiled(x[:rows], w, r[:rows]), norm(x[:rows], w, r[:rows]))


def test_errors():
    x = torch.ones(2, 48)
    for options, message in (
        (dict(dtype="int4"), "dtype is 'int4'"),
        (dict(block=5), "block is 5; it must divide the 48"),
        (dict(block=16, scale=1.0), "one of them must be None"),
        (dict(dtype="q8_0"), "q8_0 needs a multiple of 32"),
        (dict(scale=torch.ones(2)), "one number of float32 is wanted"),
        (dict(scale=torch.ones(1, dtype=torch.float64)), "one number of float32 is wanted"),
    ):
        with pytest.raises(ValueError, match=message):
            rmsnorm.torch.rms_norm_quantised(x, **options)
    with pytest.raises(RuntimeError, match="combination of types"):
        rmsnorm.torch.rms_norm_quantised(x.double())
    with pytest.raises(RuntimeError, match="residual must have the shape"):
        rmsnorm.torch.rms_norm_quantised(x, residual=x[0])
    with pytest.raises(RuntimeError, match="scale_least"):
        rmsnorm.torch.rms_norm_quantised(x, scale_least=-1.0)
    operator = torch.ops.rmsnorm._quantised_norm
    for dtype, block, scale in ((4, 8, None), (9, 8, None), (5, -8, None), (5, 0, None), (5, 7, None), (8, 16, None)):
        with pytest.raises(RuntimeError, match="rmsnorm"):
            operator(x, None, None, scale, dtype, block, 0.0, 0, None, None, 1e-5)
