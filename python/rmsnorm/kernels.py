# SPDX-License-Identifier: MIT
"""An entry for the mapping of the ``kernels`` library, which swaps the forward of decorated layers; nothing is downloaded.

    kernels.register_kernel_mapping(rmsnorm.kernels.mapping())
    kernels.kernelize(model, mode=kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE, device="cpu")

The library looks layers up by a name, and one name covers several arithmetics. So the layer here tries the class of the module
it is used on, as :func:`rmsnorm.patch` does, and calls the module's own forward where nothing of this library gives its bits.
"""
from __future__ import annotations

import functools
import inspect

import torch

from . import _torch_gates
from ._gated_trial import form_of
from ._options import TORCH_SUMS
from ._spec import Trial, named_eps
from ._trial import try_module
from .torch import CUDA_KERNELS, _run

__all__ = ["Repository", "mapping"]

_DTYPES = (torch.bfloat16, torch.float32)  # that a class is tried in
_FREE_WIDTH = 128  # of the rows on which a norm without a weight is tried


@functools.cache
def _parameters(cls: type) -> tuple[str, ...]:
    return tuple(inspect.signature(cls).parameters)


@functools.cache
def _tried(cls: type, width: int, options: tuple) -> Trial:
    """A class is made from the width of a row and from options that it keeps under their names, as norms are, and tried on the CPU."""
    with torch.device("cpu"):
        try:
            module = cls(width, **dict(options))
        except Exception:
            return Trial(None, "another kind of layer")
        return try_module(module.to(torch.bfloat16))


# Dynamo takes what these two return as constants, where it is made of plain numbers. It does not trace functools.cache.


@torch.compiler.assume_constant_result
def _option_names(cls: type) -> tuple[str, ...]:
    return _parameters(cls)[1:]


@torch.compiler.assume_constant_result
def _arithmetic(cls: type, width: int, options: tuple, device: str, form: tuple | None) -> tuple[str, float, int, int] | None:
    """The attribute with eps, weight_offset, groups and mode. form: that of gated rows; see _gated_trial."""
    trial = _tried(cls, width, options)
    spec = trial.spec
    if spec is None or spec.image_dims or spec.inner or spec.eps is not None or spec.weight_name != "weight":
        return None
    if (spec.gate_place is None) != (form is None) or (spec.groups > 1 if form is None else form not in trial.forms):
        return None
    return spec.eps_name, spec.weight_offset, spec.groups, spec.mode if device == "cpu" else spec.mode & ~TORCH_SUMS


def _arithmetic_of(module, x, form=None) -> tuple[str, float, int, int] | None:
    weight = getattr(module, "weight", None)
    if x.dtype not in _DTYPES or (weight is not None and weight.dtype is not x.dtype):
        return None
    values = [(name, getattr(module, name, None)) for name in _option_names(type(module))]
    options = tuple((name, value) for name, value in values if isinstance(value, (bool, int, float, str)))
    return _arithmetic(type(module), _FREE_WIDTH if weight is None else weight.shape[-1], options, x.device.type, form)


class _RMSNorm(torch.nn.Module):
    """What the forward of a module becomes: self is that module."""

    has_backward = True
    can_torch_compile = True

    def forward(self, hidden_states):
        arithmetic = _arithmetic_of(self, hidden_states)
        if arithmetic is None:
            return type(self).forward(self, hidden_states)
        eps_name, weight_offset, groups, mode = arithmetic
        weight, bias = getattr(self, "weight", None), getattr(self, "bias", None)
        return _run(hidden_states, weight, bias, named_eps(self, eps_name, hidden_states), weight_offset, 0, groups, mode)


class _RMSNormGated(torch.nn.Module):
    """The same of a module that takes a gate."""

    has_backward = True
    can_torch_compile = True

    def forward(self, hidden_states, gate=None):
        arithmetic = None
        if gate is not None and gate.shape == hidden_states.shape and gate.dtype is hidden_states.dtype and gate.device == hidden_states.device:
            arithmetic = _arithmetic_of(self, hidden_states, form_of(hidden_states))
        if arithmetic is None:
            return type(self).forward(self, hidden_states, gate)
        eps_name, weight_offset, groups, mode = arithmetic
        eps, bias = named_eps(self, eps_name, hidden_states), getattr(self, "bias", None)
        return _torch_gates.run(hidden_states, gate, self.weight, bias, eps, weight_offset, 0, groups, mode, None)


_LAYERS = {"RMSNorm": _RMSNorm, "RMSNormZeroCentered": _RMSNorm, "RMSNormGated": _RMSNormGated}


class Repository:
    """What a mapping holds: something with load()."""

    def __init__(self, layer_name: str):
        self.layer_name = layer_name

    def load(self) -> type[torch.nn.Module]:
        return _LAYERS[self.layer_name]

    def __repr__(self) -> str:
        return f"rmsnorm.kernels.Repository({self.layer_name!r})"


def mapping() -> dict[str, dict[str, Repository]]:
    """For ``kernels.register_kernel_mapping`` and ``kernels.use_kernel_mapping``: the CPU, and CUDA where it is served."""
    devices = ("cpu", "cuda") if CUDA_KERNELS == "c++" else ("cpu",)
    return {name: {device: Repository(name) for device in devices} for name in _LAYERS}
