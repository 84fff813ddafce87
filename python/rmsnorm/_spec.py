# SPDX-License-Identifier: MIT
"""The arithmetic of a norm as a trial finds it, and what the trials of norms with and without a gate share."""
from __future__ import annotations

import dataclasses

import torch

from ._options import ACTIVATIONS, BEFORE_WEIGHT, EPS_PLACES, GAIN_ROUNDINGS, GATE_PLACES, LAYER, STEP_FORMS, TORCH_SUMS
from ._torch_options import out_mode_of
from ._torch_stats import _run as _run_stats
from .torch import _run

_STEPS = {torch.float32: 4}  # of the last place, by which sums in another order may change a result; 2 otherwise
_STEP_NAMES = {"terms": ", both terms of its gradient rounded", "rstd": ", 1/rms rounded", "all": ", every step rounded"}
NARROW = (torch.bfloat16, torch.float16)
_EPS_NAMES = ("variance_epsilon", "eps", "epsilon", "norm_eps", "layer_norm_eps")


@dataclasses.dataclass(frozen=True)
class Spec:
    """The arithmetic of a norm."""

    kind: str  # "rms" or "layer"
    rounding: str  # "after_weight" or "before_weight"
    weight_offset: float
    eps_name: str  # the attribute that holds eps; "": none does
    sums: str  # whose order the squares are added in: "torch" or "rmsnorm"
    gate_place: str | None = None  # "after", "before"; None: there is no gate
    activation: str = "silu"  # of the gate
    groups: int = 1
    heads: bool = False  # the groups are a dimension of the rows, and not of the results
    gain_rounding: str = "wide"  # or "as_weight": weight + weight_offset is rounded to the weight's type
    steps: str = "wide"  # or "terms", "rstd", "all": what else is rounded, as in rms_norm
    eps_place: str = "inside"  # or "clamp"
    image_dims: int = 0  # of the images whose channels, dimension 1, are normalised; 0: the last dimension is
    eps: float | None = None  # as it was measured, where no attribute holds it
    weight_name: str = "weight"  # the attribute that holds the weight
    inner: str = ""  # the norm inside the module that the result takes the place of; it holds eps
    alone: bool = False  # the result is 1/rms, one number a row, in the type of the rows
    parts: tuple[int, int, int] | None = None  # of a projection's result, how many there are and which are scale and shift of adaLN

    @property
    def mode(self) -> int:
        flags = {LAYER: self.kind == "layer", BEFORE_WEIGHT: self.rounding == "before_weight", TORCH_SUMS: self.sums == "torch"}
        gate = 0 if self.gate_place is None else GATE_PLACES[self.gate_place] | ACTIVATIONS[self.activation]
        others = GAIN_ROUNDINGS[self.gain_rounding] | STEP_FORMS[self.steps] | EPS_PLACES[self.eps_place]
        return sum(flag for flag, on in flags.items() if on) | gate | others

    def __str__(self) -> str:
        what = "weight" if self.parts is None else "scale"
        offset = f", {what} + {self.weight_offset:g}" if self.weight_offset else ""
        offset += f" in the {what}'s type" if self.gain_rounding == "as_weight" else ""
        groups = f" of {self.groups} {'heads' if self.heads else 'groups'}" if self.groups > 1 else ""
        channels = f" over the channels of {self.image_dims} dimensions" if self.image_dims else ""
        gate = "" if self.gate_place is None else f", {self.activation} of a gate {self.gate_place} it"
        gate += "" if self.parts is None else ", scale and shift of each sample from a projection"
        steps = _STEP_NAMES.get(self.steps, "")
        eps = ", eps as a bound of the root mean square" if self.eps_place == "clamp" else ""
        eps += "" if self.eps is None else f", eps measured as {self.eps:g}"
        if self.alone:
            return f"1/rms alone{eps}"
        return f"{self.kind} norm{groups}{channels}, rounded {self.rounding.split('_')[0]} the {what}{offset}{steps}{eps}{gate}"


@dataclasses.dataclass(frozen=True)
class Trial:
    """spec is None if nothing gives the norm's bits, and reason says why. Of `compared` elements of bfloat16 `differing` had
    other bits. dtypes: the types of data that were tried. With a gate, forms are the shapes that are served (see _gated_trial),
    and mixed says whether rows of float32 are, beside a gate and a weight of 16 bits. promoted has the types of 16-bit rows that
    are served beside a weight of float32, each with the arithmetic and the type of the result. unserved: calls that one might
    expect to be served and that go to the old forward, in words."""

    spec: Spec | None
    reason: str = ""
    differing: int = 0
    compared: int = 0
    dtypes: tuple[torch.dtype, ...] = ()
    forms: frozenset[tuple[int, bool]] = frozenset()
    mixed: bool = False
    promoted: tuple[tuple[torch.dtype, tuple[Spec, torch.dtype]], ...] = ()
    unserved: str = ""


def with_promotions(trial: Trial, found: dict[torch.dtype, tuple[Spec, torch.dtype] | None]) -> Trial:
    """found: of the types of rows that the module takes beside its weight of float32; None: nothing gives its results."""
    promoted = tuple((dtype, how) for dtype, how in found.items() if how is not None)
    missing = " and ".join(str(dtype).removeprefix("torch.") for dtype, how in found.items() if how is None)
    unserved = f"rows of {missing} beside its float32 weight keep the old forward" if missing else ""
    return dataclasses.replace(trial, promoted=promoted, unserved=unserved)


def eps_of(module, spec: Spec, x):
    if spec.eps is not None:
        return spec.eps
    return named_eps(getattr(module, spec.inner) if spec.inner else module, spec.eps_name, x)


def named_eps(module, name, x):
    eps = getattr(module, name)
    if eps is None:  # torch.nn.RMSNorm
        return torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    return eps


def eps_name_of(module) -> str | None:
    """The attribute of the module, or of the norm inside it, that holds eps."""
    module = next(module.children(), module)
    for name in _EPS_NAMES:
        value = getattr(module, name, "absent")
        if isinstance(value, float) or (value is None and isinstance(module, torch.nn.RMSNorm)):
            return name
    return None


def device_of(module) -> torch.device:
    """Where its parameters are. rmsnorm.patch says where a module without any runs."""
    parameter = next(module.parameters(), None)
    return torch.device(module.__dict__.get("_rmsnorm_device", "cpu")) if parameter is None else parameter.device


def has_hooks(module) -> bool:
    """Hooks of a norm inside the module, which only the old forward calls."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks)


def weight_name_of(module) -> str:
    """The module's only parameter, whatever its name is."""
    names = [name for name, _ in module.named_parameters(recurse=False) if name != "bias"]
    return names[0] if len(names) == 1 else "weight"


def _counts(module, word: str) -> set[int]:
    """The numbers that attributes of such a name hold and that divide the weight."""
    weight = getattr(module, weight_name_of(module), None)
    if weight is None or weight.dim() != 1:
        return set()
    named = {value for name, value in vars(module).items() if word in name and type(value) is int and value > 0}
    return {value for value in named if len(weight) % value == 0}


def group_counts(module) -> list[int]:
    """1, and what attributes such as group_size and n_groups may mean."""
    counts = _counts(module, "group")
    weight = getattr(module, weight_name_of(module), None)
    return sorted({1} | counts | {len(weight) // count for count in counts})


def head_counts(module) -> list[int]:
    return sorted(_counts(module, "heads") - {1})


def run_plain(module, spec: Spec, x, out_dtype=None):
    """The result of a module without a gate on this library; out_dtype: its type, where it is not x's. Groups are short rows, each
    with weights of its own: torch's order of sums is that of a row."""
    if spec.alone:
        return _run_stats(x, eps_of(module, spec, x), 0.0, 0, 1, spec.mode, None)[0].to(x.dtype)
    weight, bias = getattr(module, spec.weight_name, None), getattr(module, "bias", None)
    rows = x.movedim(1, -1) if spec.image_dims else x.flatten(-2) if spec.heads else x
    if spec.groups > 1:
        rows, weight, bias = (t if t is None else t.unflatten(-1, (spec.groups, -1)) for t in (rows, weight, bias))
    y = _run(rows, weight, bias, eps_of(module, spec, x), spec.weight_offset, 0, 1, spec.mode | out_mode_of(x, out_dtype))
    if spec.groups > 1:
        y = y.flatten(-2)
    return y.movedim(-1, 1) if spec.image_dims else y


def random_rows(shape, dtype, device, generator):
    return torch.randn(shape, generator=generator, device="cpu").to(device=device, dtype=dtype)


def compare(got, expected, rounded=None) -> tuple[int, bool]:
    """How many elements have other bits, and whether all are within a few steps, at the row's largest element, of what is right.
    rounded: the type of fewer bits that the results were rounded to on their way, whose steps are then meant; those that differ by
    no more than steps of their own type have not been rounded to something else, and do not count."""
    largest, difference = expected.abs().amax(-1, keepdim=True).double(), (got.double() - expected.double()).abs()

    def within(dtype):
        return difference <= _STEPS.get(dtype, 2) * torch.finfo(dtype).eps * largest

    if rounded is None:
        return int((got != expected).sum()), bool(within(got.dtype).all())
    return int((~within(got.dtype)).sum()), bool(within(rounded).all())
