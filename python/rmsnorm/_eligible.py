# SPDX-License-Identifier: MIT
"""Which modules rmsnorm.patch tries, why it does not try others, and what it must know of a module before: its width and its eps."""
from __future__ import annotations

import copy
import inspect
import math

import torch

from . import _adaptive_trial, _gated_trial, _pair_trial
from ._spec import device_of, eps_name_of, weight_name_of
from .torch import CUDA_KERNELS

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_FREE_WIDTH = 128  # the rows on which a norm without a weight is tried


def is_norm(module) -> bool:
    """A norm without children; one whose only tensor is a parameter around such a norm, as MoonshineStreaming's; or an adaptive one."""
    if "norm" not in type(module).__name__.lower():
        return False
    if _adaptive_trial.is_adaptive(module):
        return True
    inner = list(module.children())
    if len(inner) != 1:
        return not inner
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return next(inner[0].children(), None) is None and is_norm(inner[0]) and len(tensors) == 1 and "." not in tensors[0][0]


def width_of(module) -> tuple[int, ...]:
    weight = getattr(module, weight_name_of(module), None)
    if weight is not None:
        return tuple(weight.shape)
    return tuple(getattr(module, "normalized_shape", None) or (_FREE_WIDTH,))


def _round_number(eps: float) -> float | None:
    """A power of two, or a number of at most three digits, that a measurement with the roundings of a few operations stands for."""
    numbers = (2.0 ** round(math.log2(eps)), *(float(f"{eps:.{digits}e}") for digits in range(3)))
    return next((number for number in numbers if abs(number - eps) <= 2**-19 * eps), None)


def measured_eps(module) -> float | None:
    """From a row of 1 and -1, and from the same row so small that eps alone scales it. The gain cancels."""
    small = 2.0**-40
    row = torch.ones(width_of(module), device=device_of(module))
    row[..., 1::2] = -1
    row[..., row.shape[-1] // 2 * 2 :] = 0  # the last of an odd number
    try:
        tried = copy.deepcopy(module).to(torch.float32).eval()
        for name, p in tried.named_parameters():
            p.data.fill_(name != "bias")
        large_result, small_result = (float(tried((row * scale)[None]).flatten()[0]) for scale in (1.0, small))
        ratio, square = small_result / (small * large_result), float(row.square().mean())
        eps = square * (1 - (ratio * small) ** 2) / (ratio**2 - 1)
        return _round_number(eps) if small**2 < eps < math.inf else None
    except Exception:  # it takes no rows, or has no eps
        return None


def _obstacle_of(name: str, tensor) -> str | None:
    """Why a module with this parameter is not tried."""
    if type(tensor) not in (torch.nn.Parameter, torch.Tensor) or tensor.dtype not in _DTYPES:
        return f"its {name} is a {type(tensor).__name__} of {tensor.dtype}"
    if tensor.device.type == "meta":
        return f"its {name} has no values yet (meta device)"
    if tensor.device.type not in ("cpu", "cuda"):
        return f"its {name} is on {tensor.device.type}, which is not served"
    if tensor.device.type == "cuda" and CUDA_KERNELS != "c++":
        return f"its {name} is on a GPU, which cannot be served ({CUDA_KERNELS})"
    return None


def obstacle_to(module) -> str | None:
    """Why a module is not even tried."""
    if "forward" in module.__dict__:
        return "its forward was replaced already"
    try:
        parameters = [p for p in inspect.signature(module.forward).parameters.values()]
    except (TypeError, ValueError):
        return "its forward has no signature"
    gated, pair = _gated_trial.is_gated(module), _pair_trial.is_pair(module)
    if _adaptive_trial.is_adaptive(module):
        return _obstacle_of("projection", _adaptive_trial.projection_of(module).weight)
    if pair:
        return _obstacle_of("factor", next(module.parameters()))
    if len(parameters) != 1 + gated or parameters[0].kind in (parameters[0].VAR_POSITIONAL, parameters[0].VAR_KEYWORD):
        return "its forward takes other arguments than a tensor and a gate"
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    weight_name = weight_name_of(module)
    for name, tensor in tensors.items():
        if name not in (weight_name, "bias"):
            return f"it has a tensor {name!r}"
        obstacle = _obstacle_of(name, tensor)
        if obstacle is not None:
            return obstacle
    weight = tensors.get(weight_name)
    if gated and (weight_name != "weight" or weight is None or weight.dim() != 1):
        return "it takes a gate and has no weight of one dimension"
    if weight is not None and weight.dim() > 2 or weight is None and "bias" in tensors:
        return "its weight has a shape that is not offered"
    if eps_name_of(module) is None and (gated or measured_eps(module) is None):
        return "it has no eps that is a float, nor one that its results show"
    return None
