# SPDX-License-Identifier: MIT
"""The operations in float64, written from their formulas."""
import numpy as np


def statistic(x, eps, partial=None, indices=None, groups=1, layer=False, outside=False):
    """x in groups, the values that enter the result, and r."""
    x = np.asarray(x, np.float64)
    x = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    h = x - x.mean(-1, keepdims=True) if layer else x
    chosen = h[..., indices] if indices is not None else h[..., :partial]
    ms = (chosen**2).mean(-1, keepdims=True)
    return h, 1 / (np.sqrt(ms) + eps) if outside else 1 / np.sqrt(ms + eps)


def forward(x, weight=None, eps=0.0, bias=None, weight_offset=0.0, **options):
    h, r = statistic(x, eps, **options)
    y = (h * r).reshape(np.shape(x))
    if weight is not None:
        y = y * (np.asarray(weight, np.float64) + weight_offset)
    return y if bias is None else y + np.asarray(bias, np.float64)


def backward(dy, x, weight=None, eps=0.0, weight_offset=0.0, step=1e-6, **options):
    """By central differences of sum(dy * forward): slow, independent of any formula of a gradient."""
    dy, x = np.asarray(dy, np.float64), np.asarray(x, np.float64)
    w = np.ones(x.shape[-1]) if weight is None else np.asarray(weight, np.float64)

    def loss(x, w):
        return (dy * forward(x, w, eps, None, weight_offset if weight is not None else 0.0, **options)).sum()

    def slope(at, f):
        result = np.empty(at.shape)
        for i in np.ndindex(at.shape):
            moved = at.copy()
            moved[i] += step
            up = f(moved)
            moved[i] -= 2 * step
            result[i] = (up - f(moved)) / (2 * step)
        return result

    return slope(x, lambda a: loss(a, w)), slope(w, lambda a: loss(x, a))
