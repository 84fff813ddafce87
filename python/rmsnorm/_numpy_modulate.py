# SPDX-License-Identifier: MIT
"""adaLN of arrays: a scale and shift for each sample, or for each row; and the gradients."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._numpy import _check_kinds, _float, _threads
from ._options import mode_of, modulation_kind, modulation_per_sample


class ModulationGradients(NamedTuple):
    """What :func:`modulate_backward` returns; dshift is None without a shift."""

    dx: Any
    dscale: Any
    dshift: Any


def _check_arrays(**arrays: Any) -> None:
    """Their shapes are changed here, which needs more than the description of memory that the other functions get by."""
    _check_kinds(**arrays)
    for name, array in arrays.items():
        if array is not None and not isinstance(array, np.ndarray):
            raise TypeError(f"{name} must be a NumPy array, not {type(array).__name__}")
    _core.describe(arrays["x"], "x")


def _rows(array: np.ndarray, per_sample: bool) -> np.ndarray:
    """x and its like as the C side takes them: samples, or rows, are the last leading dimension, each with a weight of its own."""
    return np.moveaxis(array, 0, -2) if per_sample else array.reshape(-1, array.shape[-1])


def modulate(
    x: np.ndarray[Any, Any],
    scale: np.ndarray[Any, Any],
    shift: np.ndarray[Any, Any] | None = None,
    eps: float = 1e-6,
    *,
    kind: str = "layer",
    rounding: str = "before_weight",
    weight_offset: float = 1.0,
    gain_rounding: str = "as_weight",
    threads: int | None = 1,
) -> np.ndarray[Any, Any]:
    """adaLN: ``norm(x) * (1 + scale) + shift`` with a scale and shift for each sample, or for each row.

    x is (samples, ..., n). scale and shift are (samples, n) or (samples, 1, ..., n), also parts of a wider array; or have x's
    shape. They are of x's dtype or float32. kind: "layer" or "rms". The defaults round where models do that write
    ``norm(x) * (1 + scale) + shift`` in x's dtype; the other options are those of :func:`layer_norm`.

    >>> import numpy as np
    >>> x, parts = np.array([[[1.0, 3.0], [2.0, 6.0]]]), np.array([[1.0, 1.0, 0.0, 5.0]])
    >>> modulate(x, *np.split(parts, 2, axis=-1), eps=0.0)
    array([[[-2.,  7.],
            [-2.,  7.]]])
    """
    mode = modulation_kind(kind) | mode_of(rounding, "inside", gain_rounding)
    _check_arrays(x=x, scale=scale, shift=shift)
    per_sample = modulation_per_sample(x.shape, scale.shape, None if shift is None else shift.shape)
    y, n = np.empty(x.shape, x.dtype), x.shape[-1]
    _core.forward(
        _rows(x, per_sample), None, None, scale.reshape(-1, n), None if shift is None else shift.reshape(-1, n),
        _rows(y, per_sample), None, None, None, _float("eps", eps), _float("weight_offset", weight_offset), 0, 1, mode, None,
        _threads(threads),
    )  # fmt: skip
    return y


def modulate_backward(
    dy: np.ndarray[Any, Any],
    x: np.ndarray[Any, Any],
    scale: np.ndarray[Any, Any],
    eps: float = 1e-6,
    *,
    shift: bool = True,
    kind: str = "layer",
    rounding: str = "before_weight",
    weight_offset: float = 1.0,
    gain_rounding: str = "as_weight",
    threads: int | None = 1,
) -> ModulationGradients:
    """The gradients of :func:`modulate`: ``(dx, dscale, dshift)``. shift: whether the forward had one.

    dscale and dshift have scale's shape and dtype; those of a sample are sums over its rows, rounded once.

    >>> import numpy as np
    >>> x = np.array([[[1.0, 3.0], [2.0, 6.0]]])
    >>> modulate_backward(np.ones((1, 2, 2)), x, np.zeros((1, 2)), eps=0.0).dscale
    array([[-2.,  2.]])
    """
    mode = modulation_kind(kind) | mode_of(rounding, "inside", gain_rounding)
    _check_arrays(dy=dy, x=x, scale=scale)
    per_sample = modulation_per_sample(x.shape, scale.shape, None)
    if dy.shape != x.shape:
        raise ValueError(f"dy has the shape {dy.shape}; that of x, {x.shape}, is wanted")
    dx, weight = np.empty(x.shape, x.dtype), scale.reshape(-1, x.shape[-1])
    dscale = np.empty(weight.shape, scale.dtype)
    dshift = np.empty_like(dscale) if shift else None
    _core.backward(
        _rows(dy, per_sample), _rows(x, per_sample), None, None, weight, None, None, None, _rows(dx, per_sample), None, None,
        dscale, dshift, _float("eps", eps), _float("weight_offset", weight_offset), 0, 1, mode, None, _threads(threads),
    )  # fmt: skip
    return ModulationGradients(dx, dscale.reshape(scale.shape), None if dshift is None else dshift.reshape(scale.shape))
