# SPDX-License-Identifier: MIT
"""The operations on NumPy arrays and anything else in the CPU's memory that has ``__dlpack__``."""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from . import _core
from ._options import LAYER, gate_mode, groups_of, mode_of, out_mode, partial_of

_NUMBER = (int, float, np.floating, np.integer)


def _array_dtype(name: str) -> np.dtype:
    if name != "bfloat16" and not name.startswith("float8"):
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"{name} results need the package ml_dtypes, which gives NumPy that type") from None
    return np.dtype(getattr(ml_dtypes, name))


def _empty_like(x: Any, name: str, dtype: Any = None) -> np.ndarray:
    if type(x) is np.ndarray:
        return np.empty_like(x, dtype)
    _check_kinds(**{name: x})
    if isinstance(x, np.ndarray):
        return np.empty_like(x, dtype, subok=False)
    own, shape = _core.describe(x, name)
    return np.empty(shape, _array_dtype(own) if dtype is None else dtype)


def _cols(x: Any, name: str) -> int:
    shape = x.shape if isinstance(x, np.ndarray) else _core.describe(x, name)[1]
    return int(shape[-1]) if len(shape) else 0


def _threads(threads: int | None) -> int:
    if threads is None:
        return len(os.sched_getaffinity(0))
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        raise TypeError(f"threads must be an int or None, not {type(threads).__name__}")
    if not 1 <= threads <= 4096:
        raise ValueError(f"threads is {threads}; it must be between 1 and 4096, or None for as many as there are CPUs")
    return int(threads)


def _float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, _NUMBER):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is an int that no float can hold") from None


def _indices(indices: Any) -> list[int] | None:
    if indices is None:
        return None
    array = np.asarray(indices)
    if array.size == 0:
        raise ValueError("indices is empty; at least one element must enter the statistic")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError("indices must be a list of integers")
    return array.tolist()


def _check_kinds(**arrays: Any) -> None:
    """What the C side would take for something else: it reads a tuple as a description of memory, and sees no mask."""
    for name, array in arrays.items():
        if isinstance(array, tuple):
            raise TypeError(f"{name} must be a NumPy array or have __dlpack__; it is of type tuple")
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"{name} is a masked array, and a norm knows no masks; pass its data or filled()")


def _outputs(out: Any, count: int) -> tuple[Any, Any]:
    """y and the sum; each may be left open."""
    if not isinstance(out, tuple):
        out = (out,)
    if len(out) > count:
        raise ValueError(f"out has {len(out)} arrays; this call has {count} result{'s' if count > 1 else ''}")
    _check_kinds(**{f"out[{i}]": o for i, o in enumerate(out)})
    return (out + (None, None))[:2]


def _dtype_name(dtype: Any) -> str:
    return dtype if isinstance(dtype, str) else np.dtype(dtype).name


def _result_mode(x: Any, out_dtype: Any) -> int:
    return out_mode(_dtype_name(out_dtype), _core.describe(x, "x")[0])


def _forward(mode, x, weight, eps, bias, residual, gate, weight_offset, partial, indices, groups, out_dtype, out, threads):
    if out_dtype is not None:
        _check_kinds(x=x)
        mode |= _result_mode(x, out_dtype)
    if partial is not None:
        if indices is not None:
            raise ValueError("partial and indices exclude each other")
        partial = partial_of(partial, _cols(x, "x"), groups)
    y, total = (None, None) if out is None else _outputs(out, 1 if residual is None else 2)
    if y is None:
        y = _empty_like(x, "x", None if out_dtype is None else _array_dtype(_dtype_name(out_dtype)))
    if residual is not None and total is None:
        total = _empty_like(residual, "residual")
    others = bias is not None or residual is not None or gate is not None
    if type(x) is not np.ndarray or type(weight) is not np.ndarray or others:
        _check_kinds(x=x, weight=weight, bias=bias, residual=residual, gate=gate)
    _core.forward(
        x, residual, gate, weight, bias, y, total, None, None,
        eps if type(eps) is float else _float("eps", eps),
        weight_offset if type(weight_offset) is float else _float("weight_offset", weight_offset),
        partial or 0,
        groups_of(groups),
        mode,
        None if indices is None else _indices(indices),
        threads if threads == 1 and type(threads) is int else _threads(threads),
    )  # fmt: skip
    return y if residual is None else (y, total)


def rms_norm(
    x: Any,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    bias: Any = None,
    residual: Any = None,
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
    out: Any = None,
    threads: int | None = 1,
) -> Any:
    """``x / sqrt(mean(x**2) + eps) * weight`` over the last dimension.

    x
        An array of float32, float64, float16 or ml_dtypes' bfloat16 with any leading shape. Rows may be strided; an array
        whose last dimension is strided, or whose rows need more than two strides, is copied once.
    weight, bias
        ``(n,)``, or ``(heads, n)`` where heads is ``x.shape[-2]``; of x's dtype or float32.
    residual
        Normalises ``x + residual`` instead, and returns ``(y, x + residual)``. Of x's dtype, or float32 with 16-bit x.
    gate, gate_place, activation
        An array z of x's shape and dtype. "after" the norm its activation is a factor of the result, ``norm(x) * act(z)``;
        "before" it ``x * act(z)`` is normalised. activation: "silu", ``z * sigmoid(z)``, or "sigmoid".
    rounding
        "after_weight": one rounding to x's dtype, as torch and Gemma do. "before_weight": the normalised value is rounded
        before it meets the weight, as in Llama, Qwen and Mistral.
    weight_offset, gain_rounding
        Added to the weight: 1 in Gemma. The sum is "wide", in float32 (float64), or rounded "as_weight" to the weight's dtype, as in
        Nemotron.
    partial, indices
        pRMSNorm: the first ``partial`` elements enter the statistic (an int), or that share of them (a float); or the
        elements that ``indices`` lists, in ascending order.
    groups
        The row is normalised as that many pieces.
    eps_place
        "inside" the square root, or "outside"; with "clamp" the root mean square is at least eps, as in an L2 norm with a bound.
    steps
        Where models round between x and the result, or in the gradient, in float16 and bfloat16: "terms" (the two terms of dx, T5),
        "rstd" (1/rms, DeepSeek-V4's unweighted norm) or "all" (every step, ImageGPT and VitDet). docs/numerics.md has them.
    out_dtype
        float32, bfloat16 or float16: the dtype of the result, where it is not x's; x is not float64 then. A gate keeps x's dtype.
    out
        Where to put the result: an array of x's shape and the result's dtype, which may be x itself, residual or gate but overlap nothing in
        any other way. With residual a tuple ``(y, sum)``, of which each may be None. It is returned.
    threads
        How many to use; None: one for each CPU. The result does not depend on it.

    >>> import numpy as np
    >>> rms_norm(np.array([3.0, 4.0]), np.array([1.0, 2.0]), eps=0.0).round(4)
    array([0.8485, 2.2627])
    >>> a = np.array([[3.0, 4.0], [1.0, 1.0]])
    >>> rms_norm(a, out=a) is a
    True
    >>> y, total = rms_norm(np.float32([1, 2]), residual=np.float32([2, 2]), eps=0)
    >>> total
    array([3., 4.], dtype=float32)
    >>> rms_norm(np.array([3.0, 4.0]), gate=np.array([0.0, 1.0]), activation="sigmoid", eps=0.0).round(4)
    array([0.4243, 0.8271])
    """
    mode = mode_of(rounding, eps_place, gain_rounding, steps)
    if gate is not None or gate_place != "after" or activation != "silu":
        mode |= gate_mode(gate is not None, gate_place, activation)
    return _forward(
        mode, x, weight, eps, bias, residual, gate, weight_offset, partial, indices, groups, out_dtype, out, threads
    )


def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    residual: Any = None,
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
    out: Any = None,
    threads: int | None = 1,
) -> Any:
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` over the last dimension; arguments as in :func:`rms_norm`.

    >>> import numpy as np
    >>> layer_norm(np.array([1.0, 2.0, 3.0]), eps=0.0).round(4)
    array([-1.2247,  0.    ,  1.2247])
    """
    mode = LAYER | mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    return _forward(mode, x, weight, eps, bias, residual, gate, weight_offset, None, None, groups, out_dtype, out, threads)
