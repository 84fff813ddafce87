# SPDX-License-Identifier: MIT
"""Options of a call on tensors as the operators take them."""
from __future__ import annotations

import operator

import torch

from ._core import partial_count
from ._options import out_mode, partial_of

_is_dynamo_compiling = torch.compiler.is_dynamo_compiling
_index_tensors: dict = {}
_DTYPE_NAMES = {getattr(torch, name): name for name in ("float32", "float64", "bfloat16", "float16")}


def _constant_count(cols: int, share: float) -> int:
    """A function of C, which Dynamo cannot trace, but calls with numbers that it knows."""
    return partial_count(cols, share)


# What torch.compiler.assume_constant_result sets; calling that would import all of Dynamo, which takes a second.
_constant_count._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _count(cols: int, share: float) -> int:
    """With Dynamo the graph is one of this width: operator.index makes it a number."""
    return _constant_count(operator.index(cols), share)


def statistic_of(x, partial, indices, groups) -> tuple[int, torch.Tensor | None]:
    """What the operators take for partial and indices."""
    if indices is None:
        return 0 if partial is None else partial_of(partial, x.shape[-1], groups, _count), None
    if partial is not None:
        raise ValueError("partial and indices exclude each other")
    try:
        elements = tuple(map(operator.index, indices))
    except TypeError:
        raise TypeError("indices must be a list of ints") from None
    return 0, _index_tensor(elements, x.shape[-1] // groups, x.device)


def _index_tensor(indices: tuple[int, ...], width: int, device: torch.device) -> torch.Tensor:
    """The list on the device. The CUDA library trusts it, so it is checked here; kept, so that a call need not send it again."""
    if _is_dynamo_compiling():
        return torch.tensor(indices, dtype=torch.int64, device=device)
    key = (indices, width, device)
    if key not in _index_tensors:
        if not indices or not all(a < b for a, b in zip((-1, *indices), (*indices, width))):
            raise ValueError(f"indices must ascend strictly and stay within 0..{width - 1}")
        if len(_index_tensors) >= 256:
            _index_tensors.clear()
        _index_tensors[key] = torch.tensor(indices, dtype=torch.int64, device=device)
    return _index_tensors[key]


def out_mode_of(x, out_dtype):
    if out_dtype is None or out_dtype is x.dtype:
        return 0
    return out_mode(_DTYPE_NAMES.get(out_dtype, out_dtype), _DTYPE_NAMES.get(x.dtype, x.dtype))


def channels_last(x):
    """A view of images whose channels, dimension 1, come last."""
    if x.dim() < 2:
        raise ValueError(f"x has the shape {tuple(x.shape)}; with channels_first its channels are dimension 1")
    return x.movedim(1, -1)
