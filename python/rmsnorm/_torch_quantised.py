# SPDX-License-Identifier: MIT
"""Norms with a quantised result, for inference: results have no gradients."""
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from . import _torch_ops  # noqa: F401, defines the operators
from ._options import LAYER, Q8_0, Q8_0_BYTES, QUANTISED_CODES, gate_mode, groups_of, mode_of, quantised_block
from ._torch_options import out_mode_of, statistic_of

_quantised_norm = torch.ops.rmsnorm._quantised_norm.default
_DTYPES = {code: getattr(torch, name) for name, code in QUANTISED_CODES.items() if code != Q8_0}


class Quantised(NamedTuple):
    """A quantised result; what was not asked for is None."""

    q: torch.Tensor
    """int8, float8_e4m3fn or float8_e5m2 of x's shape; for q8_0 uint8 of shape (..., n / 32, 34)."""
    scale: torch.Tensor | None
    """float32 of shape (..., blocks of a row), or the scale that was given; None for q8_0, which has them inside."""
    y: torch.Tensor | None
    """What was quantised."""
    sum: torch.Tensor | None
    """x + residual."""


def _given_scale(scale, x):
    if scale is None:
        return None
    if isinstance(scale, torch.Tensor):
        if scale.numel() != 1 or scale.dtype is not torch.float32:
            raise ValueError(f"scale is a tensor of {scale.dtype} and shape {tuple(scale.shape)}; one number of float32 is wanted")
        return scale.reshape(1)
    return torch.full((1,), scale, dtype=torch.float32, device=x.device)


def _run(x, weight, bias, residual, gate, dtype, block, scale, scale_least, return_y, options) -> Quantised:
    """options: eps, weight_offset, partial, groups, mode, indices."""
    code, width = quantised_block(dtype, block, scale is not None, x.shape[-1], options[3])
    given = _given_scale(scale, x)
    with torch.no_grad():
        found = _quantised_norm(
            x, residual, gate, given, code, width, scale_least, int(return_y), weight, bias, *options
        )  # fmt: skip
    q, scales, y, total = found
    q = q.unflatten(-1, (-1, Q8_0_BYTES)) if code == Q8_0 else q.view(_DTYPES[code])
    if not width:
        scales = given
    return Quantised(q, scales, y if return_y else None, None if residual is None else total)


def rms_norm_quantised(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    *,
    dtype: str = "int8",
    block: int | None = None,
    scale: torch.Tensor | float | None = None,
    scale_least: float = 0.0,
    residual: torch.Tensor | None = None,
    return_y: bool = False,
    bias: torch.Tensor | None = None,
    gate: torch.Tensor | None = None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    partial: int | float | None = None,
    indices: Iterable[int] | None = None,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    out_dtype: torch.dtype | None = None,
) -> Quantised:
    """``rms_norm`` with a quantised result, ``(q, scale, y, sum)``, for inference: nothing of it has gradients.

    q is the result y, rounded to x's dtype (or out_dtype), divided by a scale and rounded to nearest even: ``q * scale`` is near y.

    dtype
        "int8", from -127 to 127; "float8_e4m3fn"; "float8_e5m2"; or "q8_0", ggml's blocks of 32 elements in 34 bytes.
    block, scale, scale_least
        By default each row (of each group) has a scale, ``max(abs(y)) / M`` where M is 127, 448 or 57344; with block each ``block``
        elements of a row. Computed scales are at least scale_least. ``scale`` gives one for the whole tensor instead.
    residual, return_y
        With a residual ``x + residual`` is normalised, and is the sum of the result. return_y: y is kept too.

    >>> import torch
    >>> found = rms_norm_quantised(torch.tensor([[1.0, -2.0, 3.0, 4.0]]), eps=0.0)
    >>> found.q, found.scale
    (tensor([[ 32, -64,  95, 127]], dtype=torch.int8), tensor([[0.0115]]))
    """
    mode = mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    mode |= out_mode_of(x, out_dtype)
    groups = groups_of(groups)
    partial, elements = statistic_of(x, partial, indices, groups)
    options = (eps, weight_offset, partial, groups, mode, elements)
    return _run(x, weight, bias, residual, gate, dtype, block, scale, scale_least, return_y, options)


def layer_norm_quantised(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    dtype: str = "int8",
    block: int | None = None,
    scale: torch.Tensor | float | None = None,
    scale_least: float = 0.0,
    residual: torch.Tensor | None = None,
    return_y: bool = False,
    gate: torch.Tensor | None = None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    out_dtype: torch.dtype | None = None,
) -> Quantised:
    """``layer_norm`` with a quantised result; arguments as in :func:`rms_norm_quantised`."""
    mode = LAYER | mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    mode |= out_mode_of(x, out_dtype)
    options = (eps, weight_offset, 0, groups_of(groups), mode, None)
    return _run(x, weight, bias, residual, gate, dtype, block, scale, scale_least, return_y, options)
