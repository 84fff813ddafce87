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

import dataclasses

import torch

from . import _adaptive_trial, _gated_trial, _pair_trial, _trial
from ._eligible import is_norm
from ._options import TOLERANCE
from ._spec import Spec, Trial, device_of

__all__ = ["Entry", "Report", "Spec", "Trial", "patch"]


@dataclasses.dataclass
class Entry:
    """What happened to one module."""

    name: str
    module: torch.nn.Module
    class_name: str
    trial: Trial

    @property
    def spec(self) -> Spec | None:
        """The arithmetic it runs on now; None: it was left alone."""
        return self.trial.spec

    @property
    def reason(self) -> str:
        """Why it was left alone."""
        return self.trial.reason

    def describe(self) -> str:
        if self.spec is None:
            return f"left alone: {self.reason}"
        unserved = f"; {self.trial.unserved}" if self.trial.unserved else ""
        if self.spec.sums == "torch":
            return f"{self.spec}, the same bits{unserved}"
        counts = f"{self.trial.differing:,} of {self.trial.compared:,}"
        why = "sums in another order" if self.spec.gate_place is None else "another exponential and order of sums"
        return f"{self.spec}, {why}: {counts} elements differ in the last place{unserved}"


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
            counts[e.class_name, e.describe()] = counts.get((e.class_name, e.describe()), 0) + 1
        lines = [f"{len(self.patched)} of {len(self.entries)} norms run on rmsnorm"]
        return "\n".join(lines + [f"  {n:4} x {name}: {what}" for (name, what), n in counts.items()])


# ---- the class that a module gets ----

_ours: dict[type, type] = {}


def _way_of(spec: Spec):
    """The module whose ``served`` and ``run`` make calls of the forward."""
    if spec.gate_place is not None:
        return _gated_trial
    if spec.parts is not None:
        return _adaptive_trial
    return _pair_trial if spec.eps_place == "clamp" else _trial


class _Patched:
    """Before the module's own class: the forward of this library, and everything else as it was."""

    _rmsnorm_trial: Trial
    _rmsnorm_device: str  # where the norm was tried

    def forward(self, *inputs, **named):
        trial, device = self._rmsnorm_trial, self._rmsnorm_device
        way = _way_of(trial.spec)
        arguments = way.served(self, trial, device, inputs, named)
        if arguments is not None:
            return way.run(self, *arguments)
        return super().forward(*inputs, **named)  # what was not tried keeps the model's own arithmetic

    def __reduce_ex__(self, protocol):
        """The class has no name of its own, so that copies and pickles make it again from the module's."""
        return _rebuild, (type(self).__mro__[2],), self.__dict__


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
        for name in _Patched.__annotations__:
            del module.__dict__[name]


def _device_around(model, name: str) -> str:
    """The kind of device of a module: of one without parameters, that of the nearest module around it that has some."""
    path = name.split(".") if name else []
    for length in range(len(path), -1, -1):
        around = model.get_submodule(".".join(path[:length]))
        if next(around.parameters(), None) is not None:
            return device_of(around).type
    return "cpu"


def patch(model: torch.nn.Module, *, tolerance: float = TOLERANCE) -> Report:
    """Swaps every norm of the model whose arithmetic this library has, in place, and reports.

    A norm is a module without children whose class has "norm" in its name, one with a single parameter around such a norm that
    has none, as MoonshineStreaming's, or one with a projection beside it. It is tried in bfloat16, float32 and its own type
    with random parameters. On the CPU an RMSNorm of torch's operations gets torch's order of sums and then gives the same bits.
    Where that cannot be had (LayerNorm, GPUs) the library's own order is taken if at most the share `tolerance` of the trial's
    16-bit elements differs, by a last place; a rounding in another place makes a quarter of them differ. With 0 nothing is
    swapped that does not give equal bits.

    An eps that is no attribute of the module, as in OLMo's, is measured, and stays what it was then. An attribute is read at each
    call.

    Norms over the channels of images (N, C, H, W), or of (N, C, W), are found in the same way.

    Norms whose forward takes a gate, ``forward(hidden_states, gate)``, are swapped by the same rule: their exponential is
    the library's own, so that a few bits differ. Calls without a gate, or with rows of a form that was not tried, go to the old forward.

    Of the norms that have the same results some differ in their gradients: T5's rounds both of its terms. So gradients are compared
    as well. A norm of queries and keys, ``forward(query_states, key_states)``, is swapped if it is Zaya's. An adaptive norm,
    ``forward(x, condition)``, is swapped if a projection inside it makes scale and shift of each sample; the projection stays.

    A norm whose weight is float32 is tried with rows of bfloat16 and float16 as well, and then gives what the module gives,
    float32 in Llama's case. Where this library has not that arithmetic, such calls go to the old forward, and the report says so.

    Modules keep their parameters, names, hooks and isinstance; only their class is a subclass of the old one. Calls with
    other types than were tried or on another kind of device than the module's go to the old forward.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)):
        raise TypeError(f"tolerance must be a number, not {type(tolerance).__name__}")
    if not 0 <= tolerance <= 1:
        raise ValueError(f"tolerance is {tolerance}; it is a share, between 0 and 1")
    entries, known = [], {}
    inner: set[torch.nn.Module] = set()  # norms that a swapped one no longer calls
    for name, module in model.named_modules():
        cls = type(module)
        if isinstance(module, _Patched):
            inner.update(module.children())
        elif is_norm(module) and module not in inner:
            module._rmsnorm_device = _device_around(model, name)
            trial = _trial.try_module(module, tolerance, known)
            if trial.spec is not None:
                module.__class__ = _class_for(cls)
                module._rmsnorm_trial = trial
                inner.update(module.children())
            else:
                del module._rmsnorm_device
                if next(module.children(), None) is not None:
                    continue  # the norm inside it comes next
            entries.append(Entry(name, module, cls.__name__, trial))
    return Report(entries)
