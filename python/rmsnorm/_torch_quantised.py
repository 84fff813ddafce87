# SPDX-License-Identifier: MIT
"""Norms with a quantised result, for inference: results have no gradients."""
from __future__ import annotations

from typing import NamedTuple

import torch

from ._options import Q8_0, Q8_0_BYTES, QUANTISED_CODES, quantised_block

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


def run(x, weight, bias, residual, gate, dtype, block, scale, scale_least, return_y, options) -> Quantised:
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
