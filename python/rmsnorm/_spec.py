# SPDX-License-Identifier: MIT
"""The arithmetic of a norm as a trial finds it, and what the trials of norms with and without a gate share."""
from __future__ import annotations

import dataclasses

import torch

from ._options import ACTIVATIONS, BEFORE_WEIGHT, EPS_PLACES, GAIN_ROUNDINGS, GATE_PLACES, LAYER, STEP_FORMS, TORCH_SUMS
from ._torch_options import out_mode_of
from .torch import _run

_STEPS = {torch.float32: 4}  # of the last place, by which sums in another order may change a result; 2 otherwise
_STEP_NAMES = {"terms": ", both terms of its gradient rounded", "rstd": ", 1/rms rounded", "all": ", every step rounded"}
_EPS_NAMES = ("variance_epsilon", "eps", "epsilon", "norm_eps", "layer_norm_eps")


@dataclasses.dataclass(frozen=True)
class Spec:
    """The arithmetic of a norm."""

    kind: str  # "rms" or "layer"
    rounding: str  # "after_weight" or "before_weight"
    weight_offset: float
    eps_name: str  # the attribute that holds eps
    sums: str  # whose order the squares are added in: "torch" or "rmsnorm"
    gate_place: str | None = None  # "after", "before"; None: there is no gate
    activation: str = "silu"  # of the gate
    groups: int = 1
    gain_rounding: str = "wide"  # or "as_weight": weight + weight_offset is rounded to the weight's type
    steps: str = "wide"  # or "terms", "rstd", "all": what else is rounded, as in rms_norm
    eps_place: str = "inside"  # or "clamp"
    image_dims: int = 0  # of the images whose channels, dimension 1, are normalised; 0: the last dimension is

    @property
    def mode(self) -> int:
        flags = {LAYER: self.kind == "layer", BEFORE_WEIGHT: self.rounding == "before_weight", TORCH_SUMS: self.sums == "torch"}
        gate = 0 if self.gate_place is None else GATE_PLACES[self.gate_place] | ACTIVATIONS[self.activation]
        others = GAIN_ROUNDINGS[self.gain_rounding] | STEP_FORMS[self.steps] | EPS_PLACES[self.eps_place]
        return sum(flag for flag, on in flags.items() if on) | gate | others

    def __str__(self) -> str:
        offset = f", weight + {self.weight_offset:g}" if self.weight_offset else ""
        offset += " in the weight's type" if self.gain_rounding == "as_weight" else ""
        groups = f" of {self.groups} groups" if self.groups > 1 else ""
        channels = f" over the channels of {self.image_dims} dimensions" if self.image_dims else ""
        gate = "" if self.gate_place is None else f", {self.activation} of a gate {self.gate_place} it"
        steps = _STEP_NAMES.get(self.steps, "")
        bound = ", eps as a bound of the root mean square" if self.eps_place == "clamp" else ""
        return f"{self.kind} norm{groups}{channels}, rounded {self.rounding.replace('_', ' the ')}{offset}{steps}{bound}{gate}"


@dataclasses.dataclass(frozen=True)
class Trial:
    """spec is None if nothing gives the norm's bits, and reason says why. Of `compared` elements of bfloat16 `differing` had
    other bits. dtypes: the types of data that were tried. With a gate, forms are the shapes that are served (see _gated_trial),
    and mixed says whether rows of float32 are, beside a gate and a weight of 16 bits. Without a gate, promoted has the types of 16-bit
    rows that are served beside a weight of float32, each with the type of the result."""

    spec: Spec | None
    reason: str = ""
    differing: int = 0
    compared: int = 0
    dtypes: tuple[torch.dtype, ...] = ()
    forms: frozenset[tuple[int, bool]] = frozenset()
    mixed: bool = False
    promoted: tuple[tuple[torch.dtype, torch.dtype], ...] = ()


def eps_of(module, eps_name, x):
    eps = getattr(module, eps_name)
    if eps is None:  # torch.nn.RMSNorm
        return torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    return eps


def eps_name_of(module) -> str | None:
    for name in _EPS_NAMES:
        value = getattr(module, name, "absent")
        if isinstance(value, float) or (value is None and isinstance(module, torch.nn.RMSNorm)):
            return name
    return None


def device_of(module) -> torch.device:
    """Where its parameters are. rmsnorm.patch says where a module without any runs."""
    parameter = next(module.parameters(), None)
    return torch.device(module.__dict__.get("_rmsnorm_device", "cpu")) if parameter is None else parameter.device


def run_plain(module, spec: Spec, x, out_dtype=None):
    """The result of a module without a gate on this library; out_dtype: its type, where it is not x's."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    rows = x.movedim(1, -1) if spec.image_dims else x
    mode = spec.mode | out_mode_of(x, out_dtype)
    y = _run(rows, weight, bias, eps_of(module, spec.eps_name, x), spec.weight_offset, 0, 1, mode)
    return y.movedim(-1, 1) if spec.image_dims else y


def random_rows(shape, dtype, device, generator):
    return torch.randn(shape, generator=generator, device="cpu").to(device=device, dtype=dtype)


def compare(got, expected) -> tuple[int, bool]:
    """How many elements have other bits, and whether all are within a few steps, at the row's largest element, of what is right."""
    step = torch.finfo(got.dtype).eps * expected.abs().amax(-1, keepdim=True).double()
    near = bool(((got.double() - expected.double()).abs() <= _STEPS.get(got.dtype, 2) * step).all())
    return int((got != expected).sum()), near
