# SPDX-License-Identifier: MIT
"""Calls of the handlers for JAX, their gradients, and the checks of a call while it is traced."""
from __future__ import annotations

import ctypes
import functools
import math
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _core
from ._options import DTYPE_CODES, LAYER, OUT, Q8_0, Q8_0_BYTES, Q8_0_ELEMENTS, QUANTISED_CODES

_DTYPES = {code: jnp.dtype(getattr(jnp, name)) for name, code in DTYPE_CODES.items()}
_QUANTISED_DTYPES = {code: jnp.dtype(jnp.uint8 if code == Q8_0 else getattr(jnp, name)) for name, code in QUANTISED_CODES.items()}
_NOTHING = jax.ShapeDtypeStruct((0,), jnp.dtype(jnp.float32))  # stands for an array that is absent
_NOWHERE = np.zeros(1)  # memory that is not read, since it has no rows


def _register() -> None:
    path = pathlib.Path(__file__).with_name("_jax.so")
    if not path.exists():
        raise ImportError("this build of rmsnorm has no JAX handlers; the docstring of rmsnorm/jax.py says how to build them")
    library = ctypes.CDLL(str(path))
    for name in ("forward", "backward"):
        jax.ffi.register_ffi_target(f"rmsnorm_{name}", jax.ffi.pycapsule(getattr(library, f"pn_jax_{name}")), platform="cpu")


_register()


class Operands(NamedTuple):
    """What a norm reads; None: it is absent."""

    x: Any
    residual: Any
    gate: Any
    weight: Any
    bias: Any


class Options(NamedTuple):
    """The attributes of a call, hashable.

    indices: those that enter the statistic; empty: the first ``partial``, or all. heads_first: x's first dimension has the heads, not
    the last but one.
    """

    eps: float
    weight_offset: float
    partial: int
    groups: int
    mode: int
    indices: tuple[int, ...]
    heads_first: bool = False
    q_dtype: int = 0
    scale_block: int = 0
    scale_least: float = 0.0

    def attributes(self) -> dict[str, Any]:
        types = {bool: np.bool_, int: np.int64, float: np.float64, tuple: functools.partial(np.array, dtype=np.int64)}
        return {name: types[type(value)](value) for name, value in self._asdict().items()}

    def result_dtype(self, x: Any) -> Any:
        return _DTYPES[self.mode // OUT] if self.mode >= OUT else x.dtype


# ---- checks ----


def _check_rows(operands: Operands) -> None:
    x = operands.x
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError("x needs a last dimension that is not empty")
    for name, array in operands._asdict().items():
        if array is None:
            continue
        if array.dtype.name not in DTYPE_CODES:
            raise TypeError(f"{name} has dtype {array.dtype}; float32, float64, float16 and bfloat16 are offered")
        if name in ("residual", "gate") and array.shape != x.shape:
            raise ValueError(f"{name} has the shape {array.shape}; that of x, {x.shape}, is wanted")


def _heads(operands: Operands, options: Options) -> tuple[int, ...]:
    """How many heads there are, where each has a weight or bias of its own; otherwise nothing."""
    if all(p is None or p.ndim != 2 for p in (operands.weight, operands.bias)):
        return ()
    return operands.x.shape[:1] if options.heads_first else operands.x.shape[-2:-1]


def _memory(code: int, shape: tuple[int, ...]) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """A dense array as the C side takes it."""
    return _NOWHERE.ctypes.data, code, shape, tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def _row_bytes(cols: int, options: Options) -> int:
    """Of a quantised row."""
    return cols // Q8_0_ELEMENTS * Q8_0_BYTES if options.q_dtype == Q8_0 else cols


def check(operands: Operands, options: Options) -> None:
    """Raises what the NumPy functions raise: the C side checks a call on arrays of the same types that have no rows."""
    _check_rows(operands)
    cols = operands.x.shape[-1]
    front = (0, *_heads(operands, options))
    arrays = [
        None if a is None else _memory(DTYPE_CODES[a.dtype.name], a.shape if name in ("weight", "bias") else (*front, cols))
        for name, a in operands._asdict().items()
    ]
    y, total = _memory(DTYPE_CODES[options.result_dtype(operands.x).name], (*front, cols)), arrays[1]
    numbers = (*options[:5], options.indices or None, 1)
    if not options.q_dtype:
        _core.forward(*arrays, y, total, None, None, *numbers)
        return
    q = _memory(QUANTISED_CODES["int8"], (*front, _row_bytes(cols, options)))
    blocks = (*front, cols // options.scale_block) if options.scale_block else (1,)
    scale = None if options.q_dtype == Q8_0 else _memory(DTYPE_CODES["float32"], blocks)
    _core.forward_quantised(*arrays, y, total, q, scale, *options[7:], *numbers)


def check_statistics(x: Any, options: Options) -> None:
    """The same for statistics alone."""
    _check_rows(Operands(x, None, None, None, None))
    rows, rstd = (_memory(DTYPE_CODES[t.name], (0, n)) for t, n in ((x.dtype, x.shape[-1]), (_wide(x), options.groups)))
    mean = rstd if options.mode & LAYER else None
    _core.forward(rows, None, None, None, None, None, None, rstd, mean, *options[:5], options.indices or None, 1)


# ---- the handlers ----


def lay_out(operands: Operands, options: Options) -> Operands:
    """As the handlers take them: rows as (outer, heads, n), with heads = 1 unless each head has a weight; or (heads, outer, n)."""
    *front, cols = operands.x.shape
    heads = _heads(operands, options)
    outer = math.prod(front[1:] if options.heads_first else front[:-1] if heads else front)
    shape = (*heads, outer, cols) if options.heads_first else (outer, *(heads or (1,)), cols)
    return Operands(*(None if a is None else a.reshape(shape) for a in operands[:3]), operands.weight, operands.bias)


def _call(name: str, operands: Any, results: Any, options: Options) -> Any:
    """None among the operands and the results is absent."""
    present = [jnp.zeros(_NOTHING.shape, _NOTHING.dtype) if a is None else a for a in operands]
    shapes = [_NOTHING if r is None else r for r in results]
    found = jax.ffi.ffi_call(f"rmsnorm_{name}", shapes, vmap_method="broadcast_all")(*present, **options.attributes())
    return [None if r is None else f for r, f in zip(results, found)]


def _like(array: Any, dtype: Any = None) -> Any:
    return None if array is None else jax.ShapeDtypeStruct(array.shape, array.dtype if dtype is None else dtype)


def _wide(x: Any) -> Any:
    return jnp.dtype(jnp.float64 if x.dtype == jnp.float64 else jnp.float32)


def _statistics(x: Any, options: Options) -> Any:
    """Memory for rstd and LayerNorm's mean of every row; its order is the handlers' own."""
    each = 2 if options.mode & LAYER else 1
    return jax.ShapeDtypeStruct((each, *x.shape[:-1], options.groups), _wide(x))


def _forward(operands: Operands, options: Options, with_stats: bool) -> Any:
    """y, the sum and the statistics."""
    x = operands.x
    results = (_like(x, options.result_dtype(x)), _like(operands.residual), _statistics(x, options) if with_stats else None)
    return _call("forward", (*operands, None), (*results, None, None), options)[:3]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def norm(operands: Operands, options: Options) -> Any:
    """y, and the sum or None."""
    return tuple(_forward(operands, options, False)[:2])


def _norm_forward(operands, options):
    y, total, stats = _forward(operands, options, True)
    normalised = operands.x if total is None else total
    return (y, total), (normalised, *operands[2:], stats)


def _norm_backward(options, kept, gradients):
    normalised, gate, weight, bias, stats = kept
    dy, dsum = gradients
    dtype = normalised.dtype if options.mode >= OUT else dy.dtype  # that of the data: a sum may be wider
    wider = dsum is not None and normalised.dtype != dtype
    results = (_like(normalised, dtype), _like(normalised) if wider else None, _like(gate), _like(weight), _like(bias))
    operands = (dy, normalised, dsum, gate, weight, bias, stats)
    dx, dresidual, dgate, dweight, dbias = _call("backward", operands, results, options)
    if dsum is not None and not wider:
        dresidual = dx
    return (Operands(dx, dresidual, dgate, dweight, dbias),)


norm.defvjp(_norm_forward, _norm_backward)


def quantised_norm(operands: Operands, given_scale: Any, with_y: bool, options: Options) -> Any:
    """q with rows of bytes, its computed scales, y and the sum; None for those that there are not."""
    x = operands.x
    cols = x.shape[-1]
    q = jax.ShapeDtypeStruct((*x.shape[:-1], _row_bytes(cols, options)), _QUANTISED_DTYPES[options.q_dtype])
    block = options.scale_block
    scale = jax.ShapeDtypeStruct((*x.shape[:-1], cols // block), jnp.float32) if block else None
    y = _like(x, options.result_dtype(x)) if with_y else None
    y, total, _, q, scale = _call("forward", (*operands, given_scale), (y, _like(operands.residual), None, q, scale), options)
    return q, scale, y, total


def statistics_alone(operands: Operands, options: Options) -> Any:
    """rstd and LayerNorm's mean of every row, without a norm."""
    return _call("forward", (*operands, None), (None, None, _statistics(operands.x, options), None, None), options)[2]
