# SPDX-License-Identifier: MIT
"""The operations on JAX arrays, on the CPU: under jit, grad and vmap.

The handlers are a library of their own that the wheel has only if it was built with it, since they need the headers of jaxlib:

    pip install . --no-build-isolation -C cmake.define.RMSNORM_JAX=ON

>>> import jax, jax.numpy as jnp, rmsnorm.jax
>>> x, w = jnp.float32([[3.0, 4.0]]), jnp.float32([1.0, 2.0])
>>> jnp.allclose(jax.jit(rmsnorm.jax.rms_norm)(x, w), jnp.array([[0.8485, 2.2627]]), atol=1e-4)
Array(True, dtype=bool)

Arrays may be traced; every option, eps among them, is a value of Python.
"""
from __future__ import annotations

import math
import numbers
from typing import Any

import jax.numpy as jnp

from ._jax_calls import Operands, check, lay_out, norm, quantised_norm
from ._jax_options import options_of
from ._jax_stats import Statistics, layer_norm_stats, rms_norm_stats
from ._numpy import _float
from ._numpy_quantised import Quantised
from ._options import LAYER, Q8_0, Q8_0_BYTES, Q8_0_ELEMENTS, gate_mode, mode_of, quantised_block

__all__ = ["Quantised", "Statistics", "add_layer_norm", "add_rms_norm", "layer_norm", "layer_norm_quantised", "layer_norm_stats",
           "modulate", "rms_norm", "rms_norm_quantised", "rms_norm_stats"]  # fmt: skip


def _operands(*arrays) -> Operands:
    return Operands(*(None if a is None else jnp.asarray(a) for a in arrays))


def _run(operands, options):
    """y, and the sum or None, of x's shape."""
    check(operands, options)
    return tuple(None if a is None else a.reshape(operands.x.shape) for a in norm(lay_out(operands, options), options))


def _norm(mode, x, weight, bias, gate, *options):
    operands = _operands(x, None, gate, weight, bias)
    return _run(operands, options_of(operands.x, mode, *options))[0]


def _add_norm(mode, x, residual, weight, bias, gate, *options):
    if residual is None:
        raise TypeError("residual must be an array, not None")
    operands = _operands(x, residual, gate, weight, bias)
    found = options_of(operands.x, mode, *options)
    dtype = operands.x.dtype
    if found.result_dtype(operands.x) != dtype and operands.residual.dtype != dtype:
        raise TypeError("out_dtype needs a residual of x's dtype: there are no gradients with a wider one")
    return _run(operands, found)


def rms_norm(
    x,
    weight=None,
    eps: float = 1e-6,
    *,
    bias=None,
    gate=None,
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
):
    """``x / sqrt(mean(x**2) + eps) * weight`` over the last dimension; options as in :func:`rmsnorm.rms_norm`.

    x, gate, weight and bias have gradients. weight and bias are (n,), or (heads, n) where heads is ``x.shape[-2]``.

    >>> import jax
    >>> jax.grad(lambda x: rms_norm(x, eps=0.0).sum())(jnp.float32([1.0, 2.0, 2.0])).round(4)
    Array([ 0.2566, -0.0641, -0.0641], dtype=float32)
    """
    mode = mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    return _norm(mode, x, weight, bias, gate, eps, weight_offset, partial, indices, groups, out_dtype)


def layer_norm(
    x,
    weight=None,
    bias=None,
    eps: float = 1e-5,
    *,
    gate=None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    out_dtype: Any = None,
):
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` over the last dimension; options as in :func:`rms_norm`."""
    mode = LAYER | mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    return _norm(mode, x, weight, bias, gate, eps, weight_offset, None, None, groups, out_dtype)


def add_rms_norm(
    x,
    residual,
    weight=None,
    eps: float = 1e-6,
    *,
    bias=None,
    gate=None,
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
):
    """``s = x + residual`` and its :func:`rms_norm`, in one pass: ``(y, s)``, with gradients of both.

    s has residual's dtype, which is x's or, with 16-bit x and no out_dtype, float32. The norm is that of the rounded s.

    >>> y, s = add_rms_norm(jnp.float32([1.0, 2.0]), jnp.float32([2.0, 2.0]), eps=0.0)
    >>> s
    Array([3., 4.], dtype=float32)
    """
    mode = mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    return _add_norm(mode, x, residual, weight, bias, gate, eps, weight_offset, partial, indices, groups, out_dtype)


def add_layer_norm(
    x,
    residual,
    weight=None,
    bias=None,
    eps: float = 1e-5,
    *,
    gate=None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    out_dtype: Any = None,
):
    """``s = x + residual`` and its :func:`layer_norm`, in one pass: ``(y, s)``; as :func:`add_rms_norm`."""
    mode = LAYER | mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    return _add_norm(mode, x, residual, weight, bias, gate, eps, weight_offset, None, None, groups, out_dtype)


# ---- adaLN ----


def _modulation(x, parameter, name):
    """A scale or shift as (samples, n), or as (rows, n) where every row has its own; and which of them it is."""
    per_sample = (x.shape[0], *(1,) * (x.ndim - 2), x.shape[-1])
    if parameter.shape == x.shape:
        return parameter.reshape(math.prod(x.shape[:-1]), x.shape[-1]), False
    if parameter.shape in (per_sample, (x.shape[0], x.shape[-1])):
        return parameter.reshape(x.shape[0], x.shape[-1]), True
    raise ValueError(f"{name} has the shape {parameter.shape}; {(x.shape[0], x.shape[-1])}, {per_sample} or {x.shape} is wanted")


def modulate(
    x,
    scale,
    shift=None,
    eps: float = 1e-6,
    *,
    kind: str = "layer",
    rounding: str = "before_weight",
    weight_offset: float = 1.0,
    gain_rounding: str = "as_weight",
):
    """adaLN: ``norm(x) * (1 + scale) + shift`` with a scale and shift for each sample, or for each row; all have gradients.

    x is (samples, ..., n). scale and shift are (samples, n) or (samples, 1, ..., n), or have x's shape; they are of x's dtype or
    float32. kind: "layer" or "rms". The defaults round where models do that write ``norm(x) * (1 + scale) + shift`` in x's dtype.

    >>> modulate(jnp.float32([[[1.0, 3.0], [2.0, 6.0]]]), jnp.float32([[1.0, 1.0]]), jnp.float32([[0.0, 5.0]]), eps=0.0)
    Array([[[-2.,  7.],
            [-2.,  7.]]], dtype=float32)
    """
    if kind not in ("layer", "rms"):
        raise ValueError(f"kind is {kind!r}; it must be one of 'layer', 'rms'")
    x, scale = jnp.asarray(x), jnp.asarray(scale)
    if x.ndim < 2:
        raise ValueError(f"x has the shape {x.shape}; it needs a dimension of samples")
    mode = (LAYER if kind == "layer" else 0) | mode_of(rounding, "inside", gain_rounding)
    weight, per_sample = _modulation(x, scale, "scale")
    bias = None
    if shift is not None:
        bias, alike = _modulation(x, jnp.asarray(shift), "shift")
        if alike != per_sample:
            raise ValueError("scale and shift must both belong to the samples, or both to the rows")
    options = options_of(x, mode, eps, weight_offset)._replace(heads_first=per_sample)
    rows = x if per_sample else x.reshape(weight.shape)
    return _run(Operands(rows, None, None, weight, bias), options)[0].reshape(x.shape)


# ---- quantised results ----


def _given_scale(scale):
    if scale is None:
        return None
    if isinstance(scale, numbers.Real):
        return jnp.full(1, _float("scale", scale), jnp.float32)
    scale = jnp.asarray(scale)
    if scale.size != 1 or scale.dtype != jnp.float32:
        raise ValueError(f"scale is an array of {scale.dtype} and shape {scale.shape}; one number of float32 is wanted")
    return scale.reshape(1)


def _quantise(mode, x, weight, bias, residual, gate, dtype, block, scale, scale_least, return_y, *options) -> Quantised:
    operands = _operands(x, residual, gate, weight, bias)
    x = operands.x
    found = options_of(x, mode, *options)
    code, width = quantised_block(dtype, block, scale is not None, x.shape[-1] if x.ndim else 0, found.groups)
    found = found._replace(q_dtype=code, scale_block=width, scale_least=_float("scale_least", scale_least))
    check(operands, found)
    given = _given_scale(scale)
    q, scales, y, total = quantised_norm(lay_out(operands, found), given, return_y, found)
    row = (x.shape[-1] // Q8_0_ELEMENTS, Q8_0_BYTES) if code == Q8_0 else x.shape[-1:]
    if width:
        scales = scales.reshape(*x.shape[:-1], x.shape[-1] // width)
    elif given is not None:
        scales = given.reshape(())
    y, total = (None if a is None else a.reshape(x.shape) for a in (y, total))
    return Quantised(q.reshape(*x.shape[:-1], *row), scales, y, total)


def rms_norm_quantised(
    x,
    weight=None,
    eps: float = 1e-6,
    *,
    dtype: str = "int8",
    block: int | None = None,
    scale=None,
    scale_least: float = 0.0,
    residual=None,
    return_y: bool = False,
    bias=None,
    gate=None,
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
) -> Quantised:
    """:func:`rms_norm` with a quantised result, ``(q, scale, y, sum)``, for inference: it cannot be differentiated.

    The arguments are those of :func:`rmsnorm.rms_norm_quantised`; scale may also be an array of one float32.

    >>> found = rms_norm_quantised(jnp.float32([[1, -2, 3, 4]]), eps=0.0)
    >>> found.q, found.scale.round(4)
    (Array([[ 32, -64,  95, 127]], dtype=int8), Array([[0.0115]], dtype=float32))
    """
    mode = mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    return _quantise(mode, x, weight, bias, residual, gate, dtype, block, scale, scale_least, return_y, eps, weight_offset, partial,
                     indices, groups, out_dtype)  # fmt: skip


def layer_norm_quantised(
    x,
    weight=None,
    bias=None,
    eps: float = 1e-5,
    *,
    dtype: str = "int8",
    block: int | None = None,
    scale=None,
    scale_least: float = 0.0,
    residual=None,
    return_y: bool = False,
    gate=None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    out_dtype: Any = None,
) -> Quantised:
    """:func:`layer_norm` with a quantised result; arguments as in :func:`rms_norm_quantised`."""
    mode = LAYER | mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    return _quantise(mode, x, weight, bias, residual, gate, dtype, block, scale, scale_least, return_y, eps, weight_offset, None,
                     None, groups, out_dtype)  # fmt: skip
