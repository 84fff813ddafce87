# SPDX-License-Identifier: MIT
"""The statistics of the norms of arrays, without their results: r and, for LayerNorm, the mean; and the gradients from them."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._numpy import _check_kinds, _float, _indices, _threads
from ._options import EPS_CLAMP, EPS_OUTSIDE, LAYER, groups_of, mode_of, partial_of


class Statistics(NamedTuple):
    """What a LayerNorm needs of its rows, each of shape (..., groups)."""

    mean: Any
    rstd: Any
    """``1 / sqrt(variance + eps)``."""


def _statistics(mode, x, eps, partial, indices, groups, threads) -> Statistics:
    if partial is not None and indices is not None:
        raise ValueError("partial and indices exclude each other")
    _check_kinds(x=x)
    name, shape = _core.describe(x, "x")
    groups = groups_of(groups)
    wide = np.float64 if name == "float64" else np.float32
    rstd = np.empty((*shape[:-1], groups), wide)
    mean = np.empty_like(rstd) if mode & LAYER else None
    _core.forward(
        x, None, None, None, None, None, None, rstd, mean, _float("eps", eps), 0.0, partial_of(partial, shape[-1], groups), groups,
        mode, _indices(indices), _threads(threads),
    )  # fmt: skip
    return Statistics(mean, rstd)


def rms_norm_stats(
    x: Any,
    eps: float = 1e-6,
    *,
    partial: int | float | None = None,
    indices: Any = None,
    groups: int = 1,
    eps_place: str = "inside",
    threads: int | None = 1,
) -> Any:
    """r, what :func:`rms_norm` multiplies x by: ``1 / sqrt(mean(x**2) + eps)`` over the last dimension, which becomes 1 (or groups).

    It is of float32, or float64 for float64 data; the options are those of :func:`rms_norm`.

    >>> import numpy as np
    >>> rms_norm_stats(np.array([[3.0, 4.0], [0.5, 0.5]]), eps=0.0).round(4)
    array([[0.2828],
           [2.    ]])
    """
    return _statistics(mode_of("after_weight", eps_place), x, eps, partial, indices, groups, threads).rstd


def layer_norm_stats(
    x: Any, eps: float = 1e-5, *, groups: int = 1, eps_place: str = "inside", threads: int | None = 1
) -> Statistics:
    """``(mean, rstd)`` of :func:`layer_norm`, with ``rstd = 1 / sqrt(variance + eps)``; otherwise as :func:`rms_norm_stats`.

    >>> import numpy as np
    >>> layer_norm_stats(np.array([1.0, 3.0]), eps=0.0)
    Statistics(mean=array([2.]), rstd=array([1.]))
    """
    return _statistics(LAYER | mode_of("after_weight", eps_place), x, eps, None, None, groups, threads)


# ---- gradients ----


def _gradient(mode, dmean, drstd, x, eps, partial, indices, groups) -> np.ndarray:
    """In float64 throughout, but for r, which is that of the forward."""
    found = _statistics(mode, x, eps, partial, indices, groups, 1)
    for name, given in (("dmean", dmean), ("drstd", drstd)):
        if given is not None and np.shape(given) != found.rstd.shape:
            raise ValueError(f"{name} has the shape {np.shape(given)}; {found.rstd.shape} is wanted")
    data = x if isinstance(x, np.ndarray) else np.from_dlpack(x)
    groups = found.rstd.shape[-1]
    rows = data.astype(np.float64).reshape(*data.shape[:-1], groups, data.shape[-1] // groups)
    r = found.rstd.astype(np.float64)[..., None]
    e = rows - rows.mean(-1, keepdims=True) if mode & LAYER else rows
    dx = np.zeros(rows.shape)
    if drstd is not None:
        chosen = slice(partial_of(partial, data.shape[-1], groups) or None) if indices is None else _indices(indices)
        members = e[..., chosen]
        dx[..., chosen] = -members * r * _slope(members, r, _float("eps", eps), mode) * np.asarray(drstd, np.float64)[..., None]
    if dmean is not None:
        dx += np.asarray(dmean, np.float64)[..., None] / rows.shape[-1]
    return dx.reshape(data.shape).astype(data.dtype)


def _slope(members, r, eps, mode):
    """-dr by an element of the statistic, over that element and r: r**2 / k where eps is inside the root."""
    k = members.shape[-1]
    if not mode & (EPS_OUTSIDE | EPS_CLAMP):
        return r * r / k
    largest = np.abs(members).max(-1, keepdims=True)
    root = largest * np.sqrt(np.square(members / np.where(largest == 0, 1, largest)).mean(-1, keepdims=True))
    if mode & EPS_CLAMP:
        return np.where(root < eps, 0, r * r) / k
    return r / (k * np.where(root == 0, np.inf, root))


def rms_norm_stats_backward(
    drstd: Any,
    x: Any,
    eps: float = 1e-6,
    *,
    partial: int | float | None = None,
    indices: Any = None,
    groups: int = 1,
    eps_place: str = "inside",
) -> Any:
    """dx for the gradient drstd of :func:`rms_norm_stats`, of x's dtype: ``-x * r**3 / k * drstd`` with k elements in the statistic.

    >>> import numpy as np
    >>> rms_norm_stats_backward(np.ones((1, 1)), np.array([[3.0, 4.0]]), eps=0.0).round(4)
    array([[-0.0339, -0.0453]])
    """
    return _gradient(mode_of("after_weight", eps_place), None, drstd, x, eps, partial, indices, groups)


def layer_norm_stats_backward(
    dmean: Any, drstd: Any, x: Any, eps: float = 1e-5, *, groups: int = 1, eps_place: str = "inside"
) -> Any:
    """dx for the gradients of :func:`layer_norm_stats`, of which one may be None.

    >>> import numpy as np
    >>> layer_norm_stats_backward(np.array([1.0]), None, np.array([1.0, 3.0]))
    array([0.5, 0.5])
    """
    return _gradient(LAYER | mode_of("after_weight", eps_place), dmean, drstd, x, eps, None, None, groups)
