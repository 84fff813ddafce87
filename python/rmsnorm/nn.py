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

from collections.abc import Sequence
from typing import Any, Union

import torch

from . import _torch_gates, sharded
from ._options import LAYER, gate_mode, mode_of, modulation_kind, partial_of
from ._torch_options import channels_last
from .torch import _run, modulate

__all__ = ["ChannelsFirstLayerNorm", "ChannelsFirstRMSNorm", "GatedRMSNorm", "LayerNorm", "LocalRMSNorm", "ModulatedNorm",
           "PartialRMSNorm", "RMSNorm", "ShardedLayerNorm", "ShardedRMSNorm"]  # fmt: skip

_Device = Union[torch.device, str, int, None]
_EPSILON = {torch.float64: torch.finfo(torch.float64).eps}
_EPSILON_32 = torch.finfo(torch.float32).eps
_DEVICES = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}


def _widening_devices(function: str) -> tuple[str, ...]:
    """The devices on which autocast runs torch's function in float32: it depends on the version."""
    known = torch._C._dispatch_has_kernel_for_dispatch_key
    return tuple(device for device, key in _DEVICES.items() if known(f"aten::{function}", key))


_WIDENED = {0: _widening_devices("rms_norm"), LAYER: _widening_devices("layer_norm")}


def _run_whole(x, weight, bias, eps, partial, mode):
    return _run(x, weight, bias, eps, 0.0, partial, 1, mode)


def _as_autocast_does(x, kind):
    if x.device.type in _WIDENED[kind] and torch.is_autocast_enabled(x.device.type) and x.dtype is not torch.float64:
        return x.float()
    return x


def _normalize(x, shape, weight, bias, eps, partial, mode, run=_run_whole):
    """Over the last len(shape) dimensions, which become one. run(x, weight, bias, eps, partial, mode) gives the result."""
    if _WIDENED[mode]:
        x = _as_autocast_does(x, mode)
    if eps is None:
        eps = _EPSILON.get(x.dtype, _EPSILON_32)
    if x.shape[-len(shape) :] != shape and tuple(x.shape[-len(shape) :]) != tuple(shape):
        raise RuntimeError(f"x has the shape {tuple(x.shape)}; {tuple(shape)} is expected at its end")
    if len(shape) == 1:
        return run(x, _fitting(weight, x), _fitting(bias, x), eps, partial, mode)
    weight, bias = (None if p is None else _fitting(p, x).flatten() for p in (weight, bias))
    return run(x.flatten(-len(shape)), weight, bias, eps, partial, mode).reshape(x.shape)


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

    def __init__(
        self, normalized_shape: int | Sequence[int], p: float = 0.0625, eps: float | None = None,
        elementwise_affine: bool = True, device: _Device = None, dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
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

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return _normalize(input, self.normalized_shape, self.weight, self.bias, self.eps, 0, LAYER)


class ChannelsFirstRMSNorm(torch.nn.RMSNorm):
    """RMSNorm over dimension 1, the channels of images (N, C, H, W), which are not copied.

    >>> ChannelsFirstRMSNorm(96, eps=1e-6)(torch.ones(2, 96, 8, 8)).shape
    torch.Size([2, 96, 8, 8])
    """

    def __init__(
        self, channels: int, eps: float | None = None, elementwise_affine: bool = True, device: _Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__((channels,), eps, elementwise_affine, device=device, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = channels_last(x)
        return _normalize(x, self.normalized_shape, self.weight, None, self.eps, 0, 0).movedim(-1, 1)


class ChannelsFirstLayerNorm(torch.nn.LayerNorm):
    """LayerNorm over dimension 1, the channels of images (N, C, H, W), which are not copied."""

    def __init__(
        self, channels: int, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, device: _Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__((channels,), eps, elementwise_affine, bias, device=device, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = channels_last(x)
        return _normalize(x, self.normalized_shape, self.weight, self.bias, self.eps, 0, LAYER).movedim(-1, 1)


class GatedRMSNorm(torch.nn.RMSNorm):
    """RMSNorm with a gate of x's shape and dtype: ``norm(x) * act(gate)``, or ``norm(x * act(gate))`` with gate_place="before".

    activation, rounding, groups and weight_offset are those of :func:`rmsnorm.torch.rms_norm`; the other arguments are those of
    :class:`RMSNorm`. The weight starts at ``1 - weight_offset``: the norm is multiplied by 1.

    >>> norm = GatedRMSNorm(64, eps=1e-6, gate_place="before", weight_offset=1.0)
    >>> norm  # doctest: +NORMALIZE_WHITESPACE
    GatedRMSNorm((64,), eps=1e-06, elementwise_affine=True, gate_place='before', activation='silu', rounding='after_weight',
    groups=1, weight_offset=1.0)
    >>> norm(torch.randn(2, 64), torch.randn(2, 64)).shape
    torch.Size([2, 64])
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True,
        gate_place: str = "after", activation: str = "silu", rounding: str = "after_weight", groups: int = 1,
        device: _Device = None, dtype: torch.dtype | None = None, weight_offset: float = 0.0,
    ) -> None:  # fmt: skip
        self.weight_offset = weight_offset  # before the parameters are made, which depend on it
        super().__init__(normalized_shape, eps, elementwise_affine, device=device, dtype=dtype)
        self.gate_place, self.activation, self.rounding, self.groups = gate_place, activation, rounding, groups
        self._mode = mode_of(rounding, "inside") | gate_mode(True, gate_place, activation)
        cols = 1
        for size in self.normalized_shape:
            cols *= size
        if not isinstance(groups, int) or groups < 1 or cols % groups:
            raise ValueError(f"groups is {groups!r}; it must be at least 1 and divide the {cols} elements of a row")

    def reset_parameters(self) -> None:
        if self.elementwise_affine:
            torch.nn.init.constant_(self.weight, 1.0 - self.weight_offset)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        _torch_gates.check_gate(gate)

        def run(x, weight, bias, eps, partial, mode):
            z = _as_autocast_does(gate, 0).flatten(-len(self.normalized_shape))
            return _torch_gates.run(x, z, weight, bias, eps, self.weight_offset, partial, self.groups, self._mode, None)

        return _normalize(x, self.normalized_shape, self.weight, None, self.eps, 0, 0, run)

    def extra_repr(self) -> str:
        names = ("gate_place", "activation", "rounding", "groups", "weight_offset")
        return f"{super().extra_repr()}, {', '.join(f'{name}={getattr(self, name)!r}' for name in names)}"


class ModulatedNorm(torch.nn.Module):
    """adaLN: ``norm(x) * (1 + scale) + shift``, where scale and shift of each sample or row come with the call.

    It has no parameters, and stands for a norm without any and the formula behind it, as in DiT. kind is "layer" or "rms"; the other
    options are those of :func:`rmsnorm.torch.modulate`.

    >>> norm = ModulatedNorm(kind="rms")
    >>> norm
    ModulatedNorm(eps=1e-06, kind='rms', rounding='before_weight', weight_offset=1.0, gain_rounding='as_weight')
    >>> norm(torch.ones(2, 5, 8), torch.zeros(2, 8), torch.ones(2, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self, eps: float = 1e-6, kind: str = "layer", rounding: str = "before_weight", weight_offset: float = 1.0,
        gain_rounding: str = "as_weight",
    ) -> None:  # fmt: skip
        super().__init__()
        modulation_kind(kind), mode_of(rounding, "inside", gain_rounding)
        self.eps, self._options = eps, dict(kind=kind, rounding=rounding, weight_offset=weight_offset, gain_rounding=gain_rounding)

    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor | None = None) -> torch.Tensor:
        return modulate(x, scale, shift, self.eps, **self._options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in (("eps", self.eps), *self._options.items()))


# ---- columns that are spread over processes ----


class _Sharded:
    """What the norms of spread rows have in common: the group, by its name, so that modules can be copied and pickled."""

    def _set_group(self, process_group):
        self._group = None if process_group is None else sharded.group_of(process_group)

    def _run(self, x, weight, bias, eps, partial, mode):
        group = sharded.group_of(None) if self._group is None else self._group
        return sharded.run(x, weight, bias, group, eps, 0.0, partial, mode)

    def extra_repr(self) -> str:
        name = "default" if self._group is None else self._group[0]
        return f"{super().extra_repr()}, process_group={name}"


class ShardedRMSNorm(_Sharded, torch.nn.RMSNorm):
    """RMSNorm of rows whose columns are spread over the processes of a group: see :mod:`rmsnorm.sharded`.

    normalized_shape and the weight are those of this process's columns, which may be none; the other arguments and the rules
    for eps and dtypes are those of :class:`RMSNorm`. process_group=None is the default group, when forward runs.

    >>> ShardedRMSNorm(1024, eps=1e-6)
    ShardedRMSNorm((1024,), eps=1e-06, elementwise_affine=True, process_group=default)
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True,
        process_group: Any = None, device: _Device = None, dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, device=device, dtype=dtype)
        self._set_group(process_group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _normalize(x, self.normalized_shape, self.weight, None, self.eps, 0, 0, self._run)


class ShardedLayerNorm(_Sharded, torch.nn.LayerNorm):
    """LayerNorm of rows whose columns are spread over the processes of a group, as :class:`ShardedRMSNorm`."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        process_group: Any = None, device: _Device = None, dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device=device, dtype=dtype)
        self._set_group(process_group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _normalize(x, self.normalized_shape, self.weight, self.bias, self.eps, 0, LAYER, self._run)


class LocalRMSNorm(PartialRMSNorm):
    """The norm of spread rows that needs no communication: each process normalises its columns by the first share p of them.

    normalized_shape and the weight are those of this process's columns. With shards of the same size the rows together are what
    ``rmsnorm.torch.rms_norm(x, weight, groups=processes, partial=p)`` gives in one process, to the bit. It is another function of
    the row than RMSNorm, and depends on the number of shards: a model has to be trained with it. Of a DTensor it takes the local part,
    ``x.to_local()``.

    >>> LocalRMSNorm(1024, p=0.25, eps=1e-6)
    LocalRMSNorm((1024,), eps=1e-06, elementwise_affine=True, p=0.25)
    """
