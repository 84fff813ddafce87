# SPDX-License-Identifier: MIT
"""Swaps the norms of a torch model, such as those of Hugging Face, for this library's.

Models round in different places, and a class's name does not tell where. So nothing is known by name: each norm is run on
random rows beside every arithmetic that this library offers, and swapped for the one that gives its bits. What matches none
is left alone, and the report says why.

    report = rmsnorm.patch(model)
    print(report)
    report.undo()
"""
from __future__ import annotations

import copy
import dataclasses
import inspect
from typing import Any

import torch

from ._options import BEFORE_WEIGHT, LAYER
from .torch import CUDA_KERNELS, _run

__all__ = ["Entry", "Report", "Spec", "patch"]

_EPS_NAMES = ("variance_epsilon", "eps", "epsilon", "norm_eps", "layer_norm_eps")
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_ROWS = 64
TOLERANCE = 0.005
_FREE_WIDTH = 128  # the rows on which a norm without a weight is tried


@dataclasses.dataclass(frozen=True)
class Spec:
    """The arithmetic of a norm."""

    kind: str  # "rms" or "layer"
    rounding: str  # "after_weight" or "before_weight"
    weight_offset: float
    eps_name: str  # the attribute that holds eps

    @property
    def mode(self) -> int:
        return (LAYER if self.kind == "layer" else 0) | (BEFORE_WEIGHT if self.rounding == "before_weight" else 0)

    def __str__(self) -> str:
        offset = f", weight + {self.weight_offset:g}" if self.weight_offset else ""
        return f"{self.kind} norm, rounded {self.rounding.replace('_', ' the ')}{offset}"


@dataclasses.dataclass
class Entry:
    """What happened to one module. differing: the share of the elements of the trial that had other bits."""

    name: str
    module: torch.nn.Module
    class_name: str
    spec: Spec | None
    reason: str
    differing: float = 0.0


class Report:
    """The modules that were swapped and those that were left alone."""

    def __init__(self, entries: list[Entry]):
        self.entries = entries

    @property
    def patched(self) -> list[Entry]:
        return [e for e in self.entries if e.spec is not None]

    @property
    def left_alone(self) -> list[Entry]:
        return [e for e in self.entries if e.spec is None]

    def undo(self) -> None:
        """Gives every module its own class back. A second time does nothing."""
        for entry in self.patched:
            _restore(entry.module)

    def __str__(self) -> str:
        counts: dict[tuple, int] = {}
        for e in self.entries:
            what = str(e.spec) if e.spec is not None else f"left alone: {e.reason}"
            if e.differing:
                what += f"; {e.differing:.0e} of the trial's elements differ in the last place"
            counts[e.class_name, what] = counts.get((e.class_name, what), 0) + 1
        lines = [f"{len(self.patched)} of {len(self.entries)} norms run on rmsnorm"]
        return "\n".join(lines + [f"  {n:4} x {name}: {what}" for (name, what), n in counts.items()])


# ---- the class that a module gets ----

_ours: dict[type, type] = {}


class _Patched:
    """Before the module's own class: the forward of this library, and everything else as it was."""

    _rmsnorm_spec: Spec
    _rmsnorm_device: str  # where the norm was tried

    def forward(self, *inputs, **named):
        spec, weight = self._rmsnorm_spec, getattr(self, "weight", None)
        if len(inputs) == 1 and not named:
            (x,) = inputs
            tried = x.device.type == self._rmsnorm_device and x.dtype in _DTYPES
            if tried and (weight is None or weight.dtype is x.dtype):
                bias = getattr(self, "bias", None)
                return _run(x, weight, bias, eps_of(self, spec.eps_name, x), spec.weight_offset, 0, 1, spec.mode)
        return super().forward(*inputs, **named)  # what was not tried keeps the model's own arithmetic

    def __reduce_ex__(self, protocol):
        """The class has no name of its own, so that copies and pickles make it again from the module's."""
        return _rebuild, (type(self).__mro__[2],), self.__dict__


def eps_of(module, eps_name, x):
    eps = getattr(module, eps_name)
    if eps is None:  # torch.nn.RMSNorm
        return torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    return eps


def _class_for(own: type) -> type:
    if own not in _ours:
        body = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}
        _ours[own] = type(own.__name__, (_Patched, own), body)
    return _ours[own]


def _rebuild(own: type):
    made = _class_for(own)
    return made.__new__(made)


def _restore(module) -> None:
    if isinstance(module, _Patched):
        module.__class__ = type(module).__mro__[2]
        del module.__dict__["_rmsnorm_spec"], module.__dict__["_rmsnorm_device"]


# ---- which arithmetic ----


def _eps_name(module) -> str | None:
    for name in _EPS_NAMES:
        value = getattr(module, name, "absent")
        if isinstance(value, float) or (value is None and isinstance(module, torch.nn.RMSNorm)):
            return name
    return None


def _obstacle(module) -> str | None:
    """Why a module is not even tried."""
    if "forward" in module.__dict__:
        return "its forward was replaced already"
    try:
        parameters = [p for p in inspect.signature(module.forward).parameters.values()]
    except (TypeError, ValueError):
        return "its forward has no signature"
    if len(parameters) != 1 or parameters[0].kind in (parameters[0].VAR_POSITIONAL, parameters[0].VAR_KEYWORD):
        return "its forward takes more than one tensor"
    if _eps_name(module) is None:
        return "it has no eps that is a float"
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, tensor in tensors.items():
        if name not in ("weight", "bias"):
            return f"it has a tensor {name!r}"
        if type(tensor) not in (torch.nn.Parameter, torch.Tensor) or tensor.dtype not in _DTYPES:
            return f"its {name} is a {type(tensor).__name__} of {tensor.dtype}"
        if tensor.device.type == "meta":
            return f"its {name} has no values yet (meta device)"
        if tensor.device.type not in ("cpu", "cuda"):
            return f"its {name} is on {tensor.device.type}, which is not served"
        if tensor.device.type == "cuda" and CUDA_KERNELS != "c++":
            return f"its {name} is on a GPU, which cannot be served ({CUDA_KERNELS})"
    weight = tensors.get("weight")
    if weight is not None and weight.dim() > 2 or weight is None and "bias" in tensors:
        return "its weight has a shape that is not offered"
    return None


def _candidates(module, eps_name):
    weighted = getattr(module, "weight", None) is not None
    for kind in ("rms", "layer"):
        for rounding in ("after_weight", "before_weight") if weighted else ("after_weight",):
            for offset in (0.0, 1.0) if weighted else (0.0,):
                yield Spec(kind, rounding, offset, eps_name)


def _device_of(module) -> torch.device:
    weight = getattr(module, "weight", None)
    return torch.device("cpu") if weight is None else weight.device


def _random(shape, dtype, device, generator):
    return torch.randn(shape, generator=generator, device="cpu").to(device=device, dtype=dtype)


def _trial_copy(module, dtype, generator):
    """The module with random parameters in dtype."""
    trial = copy.deepcopy(module).to(dtype=dtype)
    for p in trial.parameters():
        p.data = _random(p.shape, dtype, p.device, generator)
    return trial.eval()


def _trial_inputs(trial, dtype, generator):
    weight = getattr(trial, "weight", None)
    width = (_FREE_WIDTH,) if weight is None else tuple(weight.shape)
    if weight is None and getattr(trial, "normalized_shape", None):
        width = tuple(trial.normalized_shape)
    for leading in ((_ROWS,), (3, 5), (2, 3, 4)):
        yield _random((*leading, *width), dtype, _device_of(trial), generator) * 3


def _compare(trial, spec, inputs):
    """The share of elements with other bits, and whether the others are neighbours of what is right."""
    differing = total = 0
    near = True
    for x in inputs:
        expected = trial(x)
        got = _run(x, getattr(trial, "weight", None), getattr(trial, "bias", None), eps_of(trial, spec.eps_name, x),
                   spec.weight_offset, 0, 1, spec.mode)  # fmt: skip
        if not isinstance(expected, torch.Tensor) or expected.dtype != got.dtype or expected.shape != got.shape:
            return 1.0, False
        step = torch.finfo(got.dtype).eps * expected.abs().amax(-1, keepdim=True).double()
        near &= bool(((got.double() - expected.double()).abs() <= 2 * step).all())
        differing += int((got != expected).sum())
        total += got.numel()
    return differing / total, near


def _find_spec(module, tolerance) -> tuple[Spec | None, float]:
    """The arithmetic shows in bfloat16, whose roundings are coarse; in the module's own type it must then hold as well."""
    eps_name = _eps_name(module)
    weight = getattr(module, "weight", None)
    own = weight.dtype if weight is not None else torch.bfloat16
    generator = torch.Generator("cpu").manual_seed(20261115)
    best: tuple[Spec | None, float] = (None, 1.0)
    trial = _trial_copy(module, torch.bfloat16, generator)
    inputs = list(_trial_inputs(trial, torch.bfloat16, generator))
    for spec in _candidates(module, eps_name):
        differing, near = _compare(trial, spec, inputs)
        if near and differing <= tolerance and differing < best[1]:
            best = (spec, differing)
    if best[0] is None or own == torch.bfloat16:
        return best
    trial = _trial_copy(module, own, generator)
    differing, near = _compare(trial, best[0], list(_trial_inputs(trial, own, generator)))
    # In float32 the order of the sum shows in many last places; in float16 in few, as in bfloat16.
    good = near and (own in (torch.float32, torch.float64) or differing <= tolerance)
    return best if good else (None, 1.0)


def _key(module) -> Any:
    """What two modules share if one trial serves both."""
    plain = {k: v for k, v in vars(module).items() if isinstance(v, (bool, int, float, str, tuple, type(None)))}
    shapes = {k: (tuple(p.shape), p.dtype, p.device) for k, p in module.named_parameters()}
    return type(module), repr(sorted(plain.items())), repr(sorted(shapes.items(), key=str))


def try_module(module, tolerance=TOLERANCE, known=None) -> tuple[Spec | None, str, float]:
    """The arithmetic that gives the module's bits; or None and why; and the share of the trial that had other bits."""
    known = {} if known is None else known
    obstacle = _obstacle(module)
    if obstacle is not None:
        return None, obstacle, 0.0
    key = _key(module)
    if key not in known:
        try:
            with torch.no_grad():
                spec, differing = _find_spec(module, tolerance)
            known[key] = (spec, "" if spec else "no arithmetic of this library gives its bits", differing if spec else 0.0)
        except Exception as error:  # a module may do anything with rows of numbers
            known[key] = (None, f"it could not be tried: {type(error).__name__}: {error}", 0.0)
    return known[key]


def patch(model: torch.nn.Module, *, tolerance: float = TOLERANCE) -> Report:
    """Swaps every norm of the model whose arithmetic this library has, in place, and reports.

    A norm is a module without children whose class has "norm" in its name. It is tried in bfloat16 and in its own type with
    random parameters. tolerance: the share of the trial's elements whose last bit may differ, as it does now and then
    because torch adds the squares of a row in another order; a rounding in another place makes a quarter of them differ. 0
    accepts equal bits only.

    Modules keep their parameters, names, hooks and isinstance; only their class is a subclass of the old one. Calls with
    other types than were tried (a float32 weight and bfloat16 data) or on another kind of device than the module's go to the
    old forward.
    """
    entries, known = [], {}
    for name, module in model.named_modules():
        cls = type(module)
        if "norm" not in cls.__name__.lower() or next(module.children(), None) is not None or isinstance(module, _Patched):
            continue
        spec, reason, differing = try_module(module, tolerance, known)
        if spec is not None:
            module.__class__ = _class_for(cls)
            module._rmsnorm_spec, module._rmsnorm_device = spec, _device_of(module).type
        entries.append(Entry(name, module, cls.__name__, spec, reason, differing))
    return Report(entries)
