# SPDX-License-Identifier: MIT
"""The operations on JAX arrays, on the CPU: under jit, grad and vmap.

The handlers are a library of their own that the wheel has only if it was built with it, since they need the headers of jaxlib:

    pip install . --no-build-isolation -C cmake.define.RMSNORM_JAX=ON

>>> import jax, jax.numpy as jnp, rmsnorm.jax
>>> x, w = jnp.float32([[3.0, 4.0]]), jnp.float32([1.0, 2.0])
>>> jnp.allclose(jax.jit(rmsnorm.jax.rms_norm)(x, w), jnp.array([[0.8485, 2.2627]]), atol=1e-4)
Array(True, dtype=bool)
"""
from __future__ import annotations

import ctypes
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from ._options import LAYER, mode_of, partial_of

__all__ = ["layer_norm", "rms_norm"]

_DTYPES = tuple(jnp.dtype(t) for t in (jnp.float32, jnp.float64, jnp.bfloat16, jnp.float16))


def _register() -> None:
    path = pathlib.Path(__file__).with_name("_jax.so")
    if not path.exists():
        raise ImportError("this build of rmsnorm has no JAX handlers; the docstring of rmsnorm/jax.py says how to build them")
    library = ctypes.CDLL(str(path))
    for name in ("forward", "backward"):
        jax.ffi.register_ffi_target(f"rmsnorm_{name}", jax.ffi.pycapsule(getattr(library, f"pn_jax_{name}")), platform="cpu")


_register()


def _attributes(options):
    eps, weight_offset, partial, groups, mode = options
    return dict(eps=np.float64(eps), weight_offset=np.float64(weight_offset), partial=np.int64(partial),
                groups=np.int64(groups), mode=np.int64(mode))  # fmt: skip


def _call_forward(x, weight, bias, options):
    groups, mode = max(options[3], 1), options[4]
    statistic = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
    results = (
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        jax.ShapeDtypeStruct((2 if mode & LAYER else 1, x.shape[0], groups), statistic),
    )
    call = jax.ffi.ffi_call("rmsnorm_forward", results, vmap_method="broadcast_all")
    return call(x, weight, bias, **_attributes(options))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _norm(x, weight, bias, options):
    return _call_forward(x, weight, bias, options)[0]


def _norm_forward(x, weight, bias, options):
    y, stats = _call_forward(x, weight, bias, options)
    return y, (x, weight, bias, stats)


def _norm_backward(options, kept, dy):
    x, weight, bias, stats = kept
    results = tuple(jax.ShapeDtypeStruct(t.shape, t.dtype) for t in (x, weight, bias))
    call = jax.ffi.ffi_call("rmsnorm_backward", results, vmap_method="broadcast_all")
    return call(dy, x, weight, stats, **_attributes(options))


_norm.defvjp(_norm_forward, _norm_backward)


def _check(x, weight, bias):
    if x.dtype not in _DTYPES:
        raise TypeError(f"x has dtype {x.dtype}; float32, float64, float16 and bfloat16 are offered")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError("x needs a last dimension that is not empty")
    given = [(name, p) for name, p in (("weight", weight), ("bias", bias)) if p is not None]
    for name, p in given:
        if p.shape != x.shape[-1:]:
            raise ValueError(f"{name} has the shape {p.shape}; {x.shape[-1:]} is wanted")
        if p.dtype not in (x.dtype, jnp.float32):
            raise TypeError(f"{name} has dtype {p.dtype}; {x.dtype} or float32 is wanted")
    if len({p.dtype for _, p in given}) > 1:
        raise TypeError("weight and bias must have the same dtype")


def _run(x, weight, bias, options):
    x = jnp.asarray(x)
    weight, bias = (None if p is None else jnp.asarray(p) for p in (weight, bias))
    _check(x, weight, bias)
    eps = options[0]
    if not (isinstance(eps, (int, float)) and 0 <= eps < float("inf")):
        raise ValueError(f"eps is {eps!r}; it must be a number that is not negative")
    nothing = jnp.zeros(0, x.dtype)
    rows = x.reshape(-1, x.shape[-1])
    y = _norm(rows, nothing if weight is None else weight, nothing if bias is None else bias, options)
    return y.reshape(x.shape)


def rms_norm(
    x,
    weight=None,
    eps: float = 1e-6,
    *,
    bias=None,
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    partial: int | float | None = None,
    groups: int = 1,
    eps_place: str = "inside",
):
    """``x / sqrt(mean(x**2) + eps) * weight`` over the last dimension; options as in :func:`rmsnorm.rms_norm`."""
    mode = mode_of(rounding, eps_place)
    return _run(x, weight, bias, (eps, weight_offset, partial_of(partial, x.shape[-1], groups), groups, mode))


def layer_norm(
    x,
    weight=None,
    bias=None,
    eps: float = 1e-5,
    *,
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    groups: int = 1,
    eps_place: str = "inside",
):
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` over the last dimension."""
    mode = LAYER | mode_of(rounding, eps_place)
    return _run(x, weight, bias, (eps, weight_offset, 0, groups, mode))
