# SPDX-License-Identifier: MIT
"""An entry for the mapping of the ``kernels`` library, which swaps the forward of decorated layers; nothing is downloaded.

    kernels.register_kernel_mapping(rmsnorm.kernels.mapping())
    kernels.kernelize(model, mode=kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE, device="cpu")

The library looks layers up by a name, and one name covers several arithmetics. So the layer here tries the class of the module
it is used on, as :func:`rmsnorm.patch` does, and calls the module's own forward where nothing of this library gives its bits.
"""
from __future__ import annotations

import functools

import torch

from ._options import TORCH_SUMS
from ._spec import Spec, named_eps
from ._trial import try_module
from .torch import CUDA_KERNELS, _run

__all__ = ["Repository", "mapping"]

_NAMES = ("RMSNorm", "RMSNormZeroCentered")
_TRIAL_WIDTH = 128


@functools.cache
def _tried(cls: type) -> Spec | None:
    """The arithmetic of a class that is made from the width of a row alone, as norms are."""
    with torch.device("cpu"):
        try:
            module = cls(_TRIAL_WIDTH)
        except Exception:  # another kind of layer
            return None
        return try_module(module.to(torch.bfloat16)).spec


@torch.compiler.assume_constant_result
def _arithmetic(cls: type) -> tuple[str, float, int] | None:
    """In plain numbers, which Dynamo takes as constants."""
    spec = _tried(cls)
    return None if spec is None or spec.image_dims else (spec.eps_name, spec.weight_offset, spec.mode)


class _RMSNorm(torch.nn.Module):
    """What the forward of a module becomes: self is that module."""

    has_backward = True
    can_torch_compile = True

    def forward(self, hidden_states):
        arithmetic, weight = _arithmetic(type(self)), getattr(self, "weight", None)
        tried = hidden_states.dtype in (torch.bfloat16, torch.float32) and (weight is None or weight.dtype is hidden_states.dtype)
        if arithmetic is None or not tried:
            return type(self).forward(self, hidden_states)
        eps_name, weight_offset, mode = arithmetic
        if hidden_states.device.type != "cpu":
            mode &= ~TORCH_SUMS
        eps = named_eps(self, eps_name, hidden_states)
        return _run(hidden_states, weight, getattr(self, "bias", None), eps, weight_offset, 0, 1, mode)


class Repository:
    """What a mapping holds: something with load()."""

    def load(self) -> type[torch.nn.Module]:
        return _RMSNorm

    def __repr__(self) -> str:
        return "rmsnorm.kernels.Repository()"


def mapping() -> dict[str, dict[str, Repository]]:
    """For ``kernels.register_kernel_mapping`` and ``kernels.use_kernel_mapping``: the CPU, and CUDA where it is served."""
    repository = Repository()
    devices = ("cpu", "cuda") if CUDA_KERNELS == "c++" else ("cpu",)
    return {name: {device: repository for device in devices} for name in _NAMES}
