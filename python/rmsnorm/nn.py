# SPDX-License-Identifier: MIT
"""Modules in the place of torch's: the same constructors, state_dict, repr and meaning of eps=None.

>>> import torch, rmsnorm.nn
>>> norm = rmsnorm.nn.RMSNorm(4)
>>> norm
RMSNorm((4,), eps=None, elementwise_affine=True)
>>> isinstance(norm, torch.nn.RMSNorm), list(norm.state_dict())
(True, ['weight'])
"""
from __future__ import annotations

import torch

from ._options import LAYER, partial_of
from .torch import _run

__all__ = ["LayerNorm", "PartialRMSNorm", "RMSNorm"]

_EPSILON = {torch.float64: torch.finfo(torch.float64).eps}
_EPSILON_32 = torch.finfo(torch.float32).eps
_DEVICES = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}


def _widening_devices(function: str) -> tuple[str, ...]:
    """The devices on which autocast runs torch's function in float32: it depends on the version."""
    known = torch._C._dispatch_has_kernel_for_dispatch_key
    return tuple(device for device, key in _DEVICES.items() if known(f"aten::{function}", key))


_WIDENED = {0: _widening_devices("rms_norm"), LAYER: _widening_devices("layer_norm")}


def _as_autocast_does(x, kind):
    if x.device.type in _WIDENED[kind] and torch.is_autocast_enabled(x.device.type) and x.dtype is not torch.float64:
        return x.float()
    return x


def _normalize(x, shape, weight, bias, eps, partial, mode):
    """Over the last len(shape) dimensions, which become one."""
    if _WIDENED[mode]:
        x = _as_autocast_does(x, mode)
    if eps is None:
        eps = _EPSILON.get(x.dtype, _EPSILON_32)
    if len(shape) == 1:
        if x.shape[-1] != shape[0]:
            raise RuntimeError(f"the last dimension of x is {x.shape[-1]}; {shape[0]} is expected")
        return _run(x, _fitting(weight, x), _fitting(bias, x), eps, 0.0, partial, 1, mode)
    if tuple(x.shape[-len(shape) :]) != tuple(shape):
        raise RuntimeError(f"x has the shape {tuple(x.shape)}; {tuple(shape)} is expected at its end")
    weight, bias = (None if p is None else _fitting(p, x).flatten() for p in (weight, bias))
    return _run(x.flatten(-len(shape)), weight, bias, eps, 0.0, partial, 1, mode).reshape(x.shape)


def _fitting(parameter, x):
    """Parameters of x's dtype or float32 are taken as they are; others are widened."""
    if parameter is None or parameter.dtype is x.dtype or parameter.dtype is torch.float32:
        return parameter
    return parameter.to(torch.float64 if x.dtype is torch.float64 else torch.float32)


class RMSNorm(torch.nn.RMSNorm):
    """torch.nn.RMSNorm on this library."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _normalize(x, self.normalized_shape, self.weight, None, self.eps, 0, 0)


class PartialRMSNorm(torch.nn.RMSNorm):
    """pRMSNorm: the statistic is taken from the first share p of the elements.

    >>> PartialRMSNorm(64, p=0.0625, eps=1e-6)
    PartialRMSNorm((64,), eps=1e-06, elementwise_affine=True, p=0.0625)
    """

    def __init__(self, normalized_shape, p=0.0625, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__(normalized_shape, eps, elementwise_affine, device=device, dtype=dtype)
        self.p = p
        cols = 1
        for size in self.normalized_shape:
            cols *= size
        self._count = partial_of(float(p), cols, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _normalize(x, self.normalized_shape, self.weight, None, self.eps, self._count, 0)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, p={self.p}"


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm on this library."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _normalize(x, self.normalized_shape, self.weight, self.bias, self.eps, 0, LAYER)
