# SPDX-License-Identifier: MIT
"""The gradients of the operations on arrays."""
from __future__ import annotations

from typing import Any, NamedTuple, overload

import numpy as np

from . import _core
from ._numpy import _array_dtype, _check_kinds, _cols, _empty_like, _float, _indices, _result_mode, _threads
from ._options import GATE_AFTER, LAYER, gate_mode, groups_of, mode_of, partial_of


class Gradients(NamedTuple):
    """What a backward returns; a gradient that was not asked for is None."""

    dx: Any
    dweight: Any
    dbias: Any


class GatedGradients(NamedTuple):
    """What a backward with a gate returns."""

    dx: Any
    dweight: Any
    dbias: Any
    dgate: Any


def _bias_array(bias: Any, mode: int) -> Any:
    """The bias itself, where the gradient of a gate depends on it."""
    if bias is None or isinstance(bias, (bool, np.bool_)):
        if mode & GATE_AFTER and bias:
            raise ValueError(
                "bias is True; with a gate after the norm it must be the forward's bias, on which dgate depends, or False"
            )
        return None
    return bias


def _backward(
    mode, dy, x, weight, eps, bias, dresidual, gate, weight_offset, partial, indices, groups, own_dtype, threads
) -> Gradients | GatedGradients:
    groups = groups_of(groups)
    if partial is not None and indices is not None:
        raise ValueError("partial and indices exclude each other")
    partial = partial_of(partial, _cols(x, "x"), groups)
    values = _bias_array(bias, mode)
    _check_kinds(dy=dy, x=x, weight=weight, bias=values, dresidual=dresidual, gate=gate)
    if own_dtype:
        mode |= _result_mode(x, _core.describe(dy, "dy")[0])
    dx = _empty_like(x, "x") if own_dtype else _empty_like(dy, "dy")
    dgate = None if gate is None else _empty_like(gate, "gate")
    dweight = None if weight is None else _gradient_of("weight", weight)
    dbias = None
    if values is not None:
        dbias = _gradient_of("bias", values)
    elif bias:
        dbias = np.empty(dx.shape[-1:], dx.dtype) if dweight is None else np.empty_like(dweight)
    _core.backward(
        dy, x, dresidual, gate, weight, values, None, None, dx, None, dgate, dweight, dbias,
        _float("eps", eps), _float("weight_offset", weight_offset), partial, groups, mode, _indices(indices),
        _threads(threads),
    )  # fmt: skip
    return Gradients(dx, dweight, dbias) if gate is None else GatedGradients(dx, dweight, dbias, dgate)


def _gradient_of(name: str, parameter: Any) -> np.ndarray:
    dtype, shape = _core.describe(parameter, name)
    return np.empty(shape, _array_dtype(dtype))


@overload
def rms_norm_backward(
    dy: Any, x: Any, weight: Any = None, eps: float = 1e-6, *, bias: Any = False, dresidual: Any = None, gate: None = None,
    gate_place: str = "after", activation: str = "silu", rounding: str = "after_weight", weight_offset: float = 0.0,
    partial: int | float | None = None, indices: Any = None, groups: int = 1, eps_place: str = "inside",
    gain_rounding: str = "wide", steps: str = "wide", own_dtype: bool = False, threads: int | None = 1,
) -> Gradients: ...  # fmt: skip
@overload
def rms_norm_backward(
    dy: Any, x: Any, weight: Any = None, eps: float = 1e-6, *, bias: Any = False, dresidual: Any = None, gate: Any,
    gate_place: str = "after", activation: str = "silu", rounding: str = "after_weight", weight_offset: float = 0.0,
    partial: int | float | None = None, indices: Any = None, groups: int = 1, eps_place: str = "inside",
    gain_rounding: str = "wide", steps: str = "wide", own_dtype: bool = False, threads: int | None = 1,
) -> GatedGradients: ...  # fmt: skip
def rms_norm_backward(
    dy: Any,
    x: Any,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    bias: Any = False,
    dresidual: Any = None,
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
    own_dtype: bool = False,
    threads: int | None = 1,
) -> Gradients | GatedGradients:
    """The gradients of :func:`rms_norm` for the gradient dy of its result: ``(dx, dweight, dbias)``, with a gate also dgate.

    x
        What was normalised: the forward's x, or the sum that it returned when there was a residual.
    weight
        As in the forward. Without one, dweight is None.
    bias
        Whether the forward had a bias, or that bias. Without one, dbias is None. With a gate after the norm it must be the bias
        itself, because dgate depends on it.
    dresidual
        A gradient that reaches ``x + residual`` from elsewhere; it is added to dx, which belongs to x and residual alike.
    gate, gate_place, activation
        As in the forward. With a gate the result is ``(dx, dweight, dbias, dgate)``.

    own_dtype
        Whether the forward had an ``out_dtype``: dy has that dtype, and dx (and dgate) x's. Otherwise dx has dy's, and x may be a sum in float32.

    dweight and dbias are summed in float32 and float64 and rounded once; their error does not grow with the rows.

    >>> import numpy as np
    >>> x, dy = np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]])
    >>> grads = rms_norm_backward(dy, x, np.array([1.0, 1.0]), eps=0.0)
    >>> grads.dx.round(4), grads.dweight.round(4)
    (array([[ 0.181 , -0.1358]]), array([0.8485, 0.    ]))
    """
    mode = mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    return _backward(mode, dy, x, weight, eps, bias, dresidual, gate, weight_offset, partial, indices, groups, own_dtype, threads)


@overload
def layer_norm_backward(
    dy: Any, x: Any, weight: Any = None, eps: float = 1e-5, *, bias: Any = True, dresidual: Any = None, gate: None = None,
    gate_place: str = "after", activation: str = "silu", rounding: str = "after_weight", weight_offset: float = 0.0,
    groups: int = 1, eps_place: str = "inside",
    gain_rounding: str = "wide", steps: str = "wide", own_dtype: bool = False, threads: int | None = 1,
) -> Gradients: ...  # fmt: skip
@overload
def layer_norm_backward(
    dy: Any, x: Any, weight: Any = None, eps: float = 1e-5, *, bias: Any = True, dresidual: Any = None, gate: Any,
    gate_place: str = "after", activation: str = "silu", rounding: str = "after_weight", weight_offset: float = 0.0,
    groups: int = 1, eps_place: str = "inside",
    gain_rounding: str = "wide", steps: str = "wide", own_dtype: bool = False, threads: int | None = 1,
) -> GatedGradients: ...  # fmt: skip
def layer_norm_backward(
    dy: Any,
    x: Any,
    weight: Any = None,
    eps: float = 1e-5,
    *,
    bias: Any = True,
    dresidual: Any = None,
    gate: Any = None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    own_dtype: bool = False,
    threads: int | None = 1,
) -> Gradients | GatedGradients:
    """The gradients of :func:`layer_norm`: ``(dx, dweight, dbias)``, with a gate also dgate; arguments as in :func:`rms_norm_backward`.

    >>> import numpy as np
    >>> x, dy = np.array([[1.0, 2.0, 4.0]]), np.ones((1, 3))
    >>> layer_norm_backward(dy, x).dbias
    array([1., 1., 1.])
    """
    mode = LAYER | mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    return _backward(mode, dy, x, weight, eps, bias, dresidual, gate, weight_offset, None, None, groups, own_dtype, threads)
