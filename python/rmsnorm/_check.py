# SPDX-License-Identifier: MIT
"""``python -m rmsnorm check``: the operations on this machine against float64 formulas, and the instruction sets against
each other, to the bit."""
from __future__ import annotations

import numpy as np

from . import _core, _numpy, _numpy_backward, _numpy_quantised

SHAPES = [(1, 1), (3, 7), (5, 64), (33, 100), (4, 1000), (2, 4097)]
# Units of 2^-24 (2^-53 for float64) allowed to the arithmetic, and half a unit of the result's own type.
ROUNDING = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def _dtypes() -> list[np.dtype]:
    found: list[np.dtype] = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16)]
    try:
        found.append(_numpy._array_dtype("bfloat16"))
    except TypeError:
        print("bfloat16  not checked: the package ml_dtypes is not installed")
    return found


def _formula(x: np.ndarray, w: np.ndarray, eps: float, layer: bool) -> np.ndarray:
    h = x.astype(np.float64)
    if layer:
        h = h - h.mean(-1, keepdims=True)
    return h / np.sqrt((h * h).mean(-1, keepdims=True) + eps) * w.astype(np.float64)


def _results(x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> list[np.ndarray]:
    quantised = () if x.dtype == np.float64 else _numpy_quantised.rms_norm_quantised(x, w, 1e-5)[:2]
    return [
        _numpy.rms_norm(x, w, 1e-5),
        _numpy.layer_norm(x, w, None, 1e-5),
        *_numpy_backward.rms_norm_backward(dy, x, w, 1e-5, bias=True),
        *_numpy_backward.layer_norm_backward(dy, x, w, 1e-5),
        *_numpy_backward.rms_norm_backward(dy, x, w, 1e-5, gate=dy)[::3],
        *quantised,
    ]


def _worst(y: np.ndarray, x: np.ndarray, w: np.ndarray, layer: bool) -> float:
    """The largest error as a share of what is allowed. LayerNorm's is relative to the row, whose mean was taken away."""
    expected = _formula(x, w, 1e-5, layer)
    arithmetic = 2.0**-53 if y.dtype == np.float64 else 2.0**-24
    size = np.abs(w.astype(np.float64)) * (1 + np.abs(x.astype(np.float64)).max(-1, keepdims=True)) * 4 if layer else 0
    allowed = (ROUNDING[y.dtype.name] + 8 * arithmetic) * np.abs(expected) + 16 * arithmetic * size + 2.0**-24 * (
        y.dtype == np.float16
    )
    error = np.abs(y.astype(np.float64) - expected)
    return float(np.max(error / np.where(allowed > 0, allowed, np.inf))) if y.size else 0.0


def check() -> bool:
    """Prints one line for each type; True if all is well."""
    sets = [name for name, usable in _core.info()["instruction_sets"] if usable]
    rng = np.random.default_rng(1)
    good = True
    try:
        for dtype in _dtypes():
            worst, differing = 0.0, set()
            for rows, cols in SHAPES:
                x, dy = (rng.standard_normal((rows, cols)).astype(dtype) for _ in range(2))
                w = rng.standard_normal(cols).astype(dtype)
                seen = {}
                for name in sets:
                    _core.force_isa(name)
                    seen[name] = _results(x, w, dy)
                first = seen[sets[0]]
                differing |= {n for n in sets if any(a.tobytes() != b.tobytes() for a, b in zip(first, seen[n]))}
                worst = max(worst, _worst(first[0], x, w, False), _worst(first[1], x, w, True))
            well = worst <= 1 and not differing
            good &= well
            bits = f"bits differ: {', '.join(sorted(differing))}" if differing else f"same bits on {', '.join(sets)}"
            print(f"{dtype.name:9} error {worst:5.2f} of what is allowed   {bits}   {'ok' if well else 'WRONG'}")
    finally:
        _core.force_isa(None)
    return good
