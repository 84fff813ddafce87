# SPDX-License-Identifier: MIT
"""The operations on arrays with a quantised result, for inference."""
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._numpy import _array_dtype, _check_kinds, _dtype_name, _empty_like, _float, _indices, _threads
from ._options import LAYER, Q8_0, Q8_0_BYTES, Q8_0_ELEMENTS, QUANTISED_CODES, gate_mode, groups_of, mode_of, out_mode, partial_of
from ._options import quantised_block


class Quantised(NamedTuple):
    """A quantised result; what was not asked for is None."""

    q: Any
    """int8, or ml_dtypes' float8_e4m3fn or float8_e5m2, of x's shape; for q8_0 uint8 of shape (..., n / 32, 34)."""
    scale: Any
    """float32 of shape (..., blocks of a row), or the scale that was given; None for q8_0, which has them inside."""
    y: Any
    """What was quantised."""
    sum: Any
    """x + residual."""


def _quantise(
    mode, x, weight, eps, bias, residual, gate, dtype, block, scale, scale_least, return_y, weight_offset, partial, indices,
    groups, out_dtype, threads,
) -> Quantised:  # fmt: skip
    if partial is not None and indices is not None:
        raise ValueError("partial and indices exclude each other")
    _check_kinds(x=x, weight=weight, bias=bias, residual=residual, gate=gate)
    name, shape = _core.describe(x, "x")
    groups = groups_of(groups)
    code, width = quantised_block(dtype, block, scale is not None, shape[-1], groups)
    if out_dtype is not None:
        mode |= out_mode(_dtype_name(out_dtype), name)
    kind = np.dtype(np.uint8) if code == Q8_0 else _array_dtype(dtype)
    row = (shape[-1] // Q8_0_ELEMENTS, Q8_0_BYTES) if code == Q8_0 else shape[-1:]
    q = np.empty((*shape[:-1], math.prod(row)), np.uint8)
    y = np.empty(shape, _array_dtype(name if out_dtype is None else _dtype_name(out_dtype))) if return_y else None
    total = None if residual is None else _empty_like(residual, "residual")
    scales = np.empty((*shape[:-1], shape[-1] // width), np.float32) if width else None
    if scale is not None:
        scales = np.array(_float("scale", scale), np.float32)
    _core.forward_quantised(
        x, residual, gate, weight, bias, y, total,
        (q.ctypes.data, QUANTISED_CODES["int8"], q.shape, q.strides), scales, code, width, _float("scale_least", scale_least),
        _float("eps", eps), _float("weight_offset", weight_offset), partial_of(partial, shape[-1], groups), groups, mode,
        _indices(indices), _threads(threads),
    )  # fmt: skip
    return Quantised(q.view(kind).reshape(*shape[:-1], *row), scales, y, total)


def rms_norm_quantised(
    x: Any,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    dtype: str = "int8",
    block: int | None = None,
    scale: float | None = None,
    scale_least: float = 0.0,
    residual: Any = None,
    return_y: bool = False,
    bias: Any = None,
    gate: Any = None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    partial: int | float | None = None,
    indices: Any = None,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    out_dtype: Any = None,
    threads: int | None = 1,
) -> Quantised:
    """:func:`rms_norm` with a quantised result: ``(q, scale, y, sum)``.

    q is the result y, rounded to x's dtype (or out_dtype), divided by a scale and rounded to nearest even: ``q * scale`` is near y.

    dtype
        "int8", from -127 to 127; "float8_e4m3fn" or "float8_e5m2", which are types of ml_dtypes; or "q8_0", ggml's blocks of 32
        elements in 34 bytes.
    block, scale, scale_least
        By default each row (of each group) has a scale, ``max(abs(y)) / M`` where M is 127, 448 or 57344; with block each ``block``
        elements of a row. Computed scales are at least scale_least. ``scale`` gives one for the whole array instead.
    residual, return_y
        With a residual ``x + residual`` is normalised, and is the sum of the result. return_y: y is kept too.

    >>> import numpy as np
    >>> found = rms_norm_quantised(np.float32([[1, -2, 3, 4]]), eps=0.0)
    >>> found.q, found.scale.round(4)
    (array([[ 32, -64,  95, 127]], dtype=int8), array([[0.0115]], dtype=float32))
    """
    mode = mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    return _quantise(mode, x, weight, eps, bias, residual, gate, dtype, block, scale, scale_least, return_y, weight_offset, partial,
                     indices, groups, out_dtype, threads)  # fmt: skip


def layer_norm_quantised(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    dtype: str = "int8",
    block: int | None = None,
    scale: float | None = None,
    scale_least: float = 0.0,
    residual: Any = None,
    return_y: bool = False,
    gate: Any = None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    out_dtype: Any = None,
    threads: int | None = 1,
) -> Quantised:
    """:func:`layer_norm` with a quantised result; arguments as in :func:`rms_norm_quantised`."""
    mode = LAYER | mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    return _quantise(mode, x, weight, eps, bias, residual, gate, dtype, block, scale, scale_least, return_y, weight_offset, None,
                     None, groups, out_dtype, threads)  # fmt: skip
