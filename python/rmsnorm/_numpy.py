# SPDX-License-Identifier: MIT
"""The operations on NumPy arrays and anything else in the CPU's memory that has ``__dlpack__``."""
from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._options import LAYER, mode_of, partial_of

_NUMBER = (int, float, np.floating, np.integer)


class Gradients(NamedTuple):
    """What a backward returns; a gradient that was not asked for is None."""

    dx: Any
    dweight: Any
    dbias: Any


def _array_dtype(name: str) -> np.dtype:
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError("bfloat16 results need the package ml_dtypes, which gives NumPy that type") from None
    return np.dtype(ml_dtypes.bfloat16)


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
    return float(value)


def _groups(groups: int) -> int:
    if isinstance(groups, bool) or not isinstance(groups, (int, np.integer)):
        raise TypeError(f"groups must be an int, not {type(groups).__name__}")
    if groups < 1:
        raise ValueError(f"groups is {groups}; it must be at least 1")
    return int(groups)


def _indices(indices: Any) -> list[int] | None:
    if indices is None:
        return None
    array = np.asarray(indices)
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


def _forward(kind, x, weight, eps, bias, residual, mode, weight_offset, partial, indices, groups, out, threads):
    if partial is not None:
        if indices is not None:
            raise ValueError("partial and indices exclude each other")
        partial = partial_of(partial, _cols(x, "x"), groups)
    y, total = (None, None) if out is None else _outputs(out, 1 if residual is None else 2)
    if y is None:
        y = _empty_like(x, "x")
    if residual is not None and total is None:
        total = _empty_like(residual, "residual")
    if type(x) is not np.ndarray or type(weight) is not np.ndarray or bias is not None or residual is not None:
        _check_kinds(x=x, weight=weight, bias=bias, residual=residual)
    _core.forward(
        x, residual, weight, bias, y, total, None, None,
        eps if type(eps) is float else _float("eps", eps),
        weight_offset if type(weight_offset) is float else _float("weight_offset", weight_offset),
        partial or 0,
        groups if groups == 1 and type(groups) is int else _groups(groups),
        kind | mode,
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
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    partial: int | float | None = None,
    indices: Any = None,
    groups: int = 1,
    eps_place: str = "inside",
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
    rounding
        "after_weight": one rounding to x's dtype, as torch and Gemma do. "before_weight": the normalised value is rounded
        before it meets the weight, as in Llama, Qwen and Mistral.
    weight_offset
        Added to the weight: 1 in Gemma.
    partial, indices
        pRMSNorm: the first ``partial`` elements enter the statistic (an int), or that share of them (a float); or the
        elements that ``indices`` lists, in ascending order.
    groups
        The row is normalised as that many pieces.
    eps_place
        "inside" the square root, or "outside".
    out
        Where to put the result: an array of x's shape and dtype, which may be x itself or residual but overlap nothing in
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
    """
    mode = mode_of(rounding, eps_place)
    return _forward(0, x, weight, eps, bias, residual, mode, weight_offset, partial, indices, groups, out, threads)


def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    residual: Any = None,
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    groups: int = 1,
    eps_place: str = "inside",
    out: Any = None,
    threads: int | None = 1,
) -> Any:
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` over the last dimension; arguments as in :func:`rms_norm`.

    >>> import numpy as np
    >>> layer_norm(np.array([1.0, 2.0, 3.0]), eps=0.0).round(4)
    array([-1.2247,  0.    ,  1.2247])
    """
    mode = mode_of(rounding, eps_place)
    return _forward(LAYER, x, weight, eps, bias, residual, mode, weight_offset, None, None, groups, out, threads)


def _backward(
    kind, dy, x, weight, eps, bias, dresidual, mode, weight_offset, partial, indices, groups, threads
) -> Gradients:
    groups = _groups(groups)
    if partial is not None and indices is not None:
        raise ValueError("partial and indices exclude each other")
    partial = partial_of(partial, _cols(x, "x"), groups)
    _check_kinds(dy=dy, x=x, weight=weight, dresidual=dresidual)
    dx = _empty_like(dy, "dy")
    like_weight = _gradient_of_weight(dx, weight)
    dweight = None if weight is None else like_weight
    dbias = np.empty(like_weight.shape, like_weight.dtype) if bias else None
    _core.backward(
        dy, x, dresidual, weight, None, None, dx, None, dweight, dbias,
        _float("eps", eps), _float("weight_offset", weight_offset), partial, groups, kind | mode, _indices(indices),
        _threads(threads),
    )  # fmt: skip
    return Gradients(dx, dweight, dbias)


def _gradient_of_weight(dx: np.ndarray, weight: Any) -> np.ndarray:
    if weight is None:
        return np.empty(dx.shape[-1:], dx.dtype)
    dtype, shape = _core.describe(weight, "weight")
    return np.empty(shape, _array_dtype(dtype))


def rms_norm_backward(
    dy: Any,
    x: Any,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    bias: bool = False,
    dresidual: Any = None,
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    partial: int | float | None = None,
    indices: Any = None,
    groups: int = 1,
    eps_place: str = "inside",
    threads: int | None = 1,
) -> Gradients:
    """The gradients of :func:`rms_norm` for the gradient dy of its result: ``(dx, dweight, dbias)``.

    x
        What was normalised: the forward's x, or the sum that it returned when there was a residual.
    weight
        As in the forward. Without one, dweight is None.
    bias
        Whether the forward had a bias. Without one, dbias is None.
    dresidual
        A gradient that reaches ``x + residual`` from elsewhere; it is added to dx, which belongs to x and residual alike.

    dweight and dbias are summed in float32 and float64 and rounded once; their error does not grow with the rows.

    >>> import numpy as np
    >>> x, dy = np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]])
    >>> grads = rms_norm_backward(dy, x, np.array([1.0, 1.0]), eps=0.0)
    >>> grads.dx.round(4), grads.dweight.round(4)
    (array([[ 0.181 , -0.1358]]), array([0.8485, 0.    ]))
    """
    mode = mode_of(rounding, eps_place)
    return _backward(0, dy, x, weight, eps, bias, dresidual, mode, weight_offset, partial, indices, groups, threads)


def layer_norm_backward(
    dy: Any,
    x: Any,
    weight: Any = None,
    eps: float = 1e-5,
    *,
    bias: bool = True,
    dresidual: Any = None,
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    groups: int = 1,
    eps_place: str = "inside",
    threads: int | None = 1,
) -> Gradients:
    """The gradients of :func:`layer_norm`: ``(dx, dweight, dbias)``; arguments as in :func:`rms_norm_backward`.

    >>> import numpy as np
    >>> x, dy = np.array([[1.0, 2.0, 4.0]]), np.ones((1, 3))
    >>> layer_norm_backward(dy, x).dbias
    array([1., 1., 1.])
    """
    mode = mode_of(rounding, eps_place)
    return _backward(LAYER, dy, x, weight, eps, bias, dresidual, mode, weight_offset, None, None, groups, threads)
