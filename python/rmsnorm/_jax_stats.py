# SPDX-License-Identifier: MIT
"""The statistics of the norms of JAX arrays, without their results: r and, for LayerNorm, the mean, with gradients."""
from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ._jax_calls import Operands, Options, check_statistics, lay_out, statistics_alone
from ._jax_options import options_of
from ._options import EPS_CLAMP, EPS_OUTSIDE, LAYER, mode_of


class Statistics(NamedTuple):
    """What a LayerNorm needs of its rows, each of shape (..., groups)."""

    mean: Any
    rstd: Any
    """``1 / sqrt(variance + eps)``."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _stats(x, options: Options):
    """r and the mean in one array, of shape (1 or 2, ..., groups)."""
    found = statistics_alone(lay_out(Operands(x, None, None, None, None), options), options)
    return found.reshape(found.shape[0], *x.shape[:-1], options.groups)


def _stats_forward(x, options):
    found = _stats(x, options)
    return found, (x, found)


def _root(members):
    """Of the mean square, also where squares leave the range."""
    largest = jnp.abs(members).max(-1, keepdims=True)
    safe = jnp.where(largest == 0, 1, largest)
    return largest * jnp.sqrt(jnp.square(members / safe).mean(-1, keepdims=True))


def _slope(members, r, options: Options):
    """-dr by an element of the statistic, over that element and r: r**2 / k where eps is inside the root."""
    k = members.shape[-1]
    if not options.mode & (EPS_OUTSIDE | EPS_CLAMP):
        return r * r / k
    root = _root(members)
    if options.mode & EPS_CLAMP:
        return jnp.where(root < options.eps, 0, r * r) / k
    return r / (k * jnp.where(root == 0, jnp.inf, root))


def _stats_backward(options, kept, gradient):
    x, found = kept
    wide = found.dtype
    e = x.astype(wide).reshape(*x.shape[:-1], options.groups, -1)
    e = e - e.mean(-1, keepdims=True) if options.mode & LAYER else e
    r, dr = found[0][..., None], gradient[0][..., None]
    chosen = jnp.array(options.indices) if options.indices else slice(options.partial or None)
    members = e[..., chosen]
    along = members * r * (_slope(members, r, options) * dr)
    dx = jnp.zeros_like(e).at[..., chosen].set(-along)
    if options.mode & LAYER:
        dx = dx + gradient[1][..., None] / e.shape[-1]
    return (dx.reshape(x.shape).astype(x.dtype),)


_stats.defvjp(_stats_forward, _stats_backward)


def _run(mode, x, eps, *others):
    x = jnp.asarray(x)
    options = options_of(x, mode, eps, 0.0, *others)
    check_statistics(x, options)
    return _stats(x, options)


def rms_norm_stats(
    x,
    eps: float = 1e-6,
    *,
    partial: int | float | None = None,
    indices: Any = None,
    groups: int = 1,
    eps_place: str = "inside",
):
    """r, what ``rms_norm`` multiplies x by: ``1 / sqrt(mean(x**2) + eps)`` over the last dimension, which becomes 1 (or groups).

    It is of float32, or float64 for float64 data, and has a gradient; the options are those of ``rms_norm``.

    >>> import jax, jax.numpy as jnp
    >>> jnp.allclose(rms_norm_stats(jnp.float32([[3.0, 4.0]]), eps=0.0), 0.28284, atol=1e-5)
    Array(True, dtype=bool)
    """
    return _run(mode_of("after_weight", eps_place), x, eps, partial, indices, groups)[0]


def layer_norm_stats(x, eps: float = 1e-5, *, groups: int = 1, eps_place: str = "inside") -> Statistics:
    """``(mean, rstd)`` of ``layer_norm``, with ``rstd = 1 / sqrt(variance + eps)``; otherwise as :func:`rms_norm_stats`."""
    stats = _run(LAYER | mode_of("after_weight", eps_place), x, eps, None, None, groups)
    return Statistics(stats[1], stats[0])
