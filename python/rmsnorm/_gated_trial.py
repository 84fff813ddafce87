# SPDX-License-Identifier: MIT
"""The trial of a norm whose forward takes a gate as well: ``forward(hidden_states, gate)``.

The place of the gate and its activation are found like the places of the roundings: in bfloat16 a wrong one changes nearly every
element. The exponential of this library is not torch's, and the squares are added in its own order, so that one element in ten
thousand or fewer differs in its last place.

A module may treat shapes apart: FalconH1's takes two or three dimensions, and drops the second of three where it is 1. So only the
forms of rows are served that were tried. Rows of float32 beside a gate and a weight of 16 bits, which the scans of Mamba2 and its
kin give on the CPU, are served by widening both, as torch does.
"""
from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator

import torch

from . import _torch_gates
from ._options import ACTIVATIONS, GATE_PLACES
from ._spec import Spec, Trial, compare, device_of, eps_name_of, eps_of, random_rows

_LEADING = ((64,), (1,), (3, 5), (3, 1), (2, 3, 4), (2, 3, 1))
_NARROW = (torch.bfloat16, torch.float16)


def is_gated(module) -> bool:
    parameters = list(inspect.signature(module.forward).parameters.values())
    return len(parameters) == 2 and parameters[1].name == "gate" and parameters[1].kind is parameters[1].POSITIONAL_OR_KEYWORD


def form_of(x) -> tuple[int, bool]:
    """What modules treat apart: the number of dimensions, and whether the last leading one is 1."""
    return x.dim(), x.dim() > 1 and x.shape[-2] == 1


def run(module, spec: Spec, x, gate):
    """The module's result on this library."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    gate, weight, bias = (t if t is None or t.dtype is x.dtype else t.to(x.dtype) for t in (gate, weight, bias))
    eps = eps_of(module, spec.eps_name, x)
    return _torch_gates.run(x, gate, weight, bias, eps, spec.weight_offset, 0, spec.groups, spec.mode, None)


def served(module, trial: Trial, device: str, inputs, named) -> tuple | None:
    """x and the gate of a call, if it is one of those that were tried."""
    if len(inputs) + len(named) != 2 or not inputs:
        return None
    x, gate = inputs[0], inputs[1] if len(inputs) > 1 else named.get("gate")
    weight = getattr(module, "weight", None)
    if gate is None or x.device.type != device or gate.device.type != device or x.shape != gate.shape:
        return None
    if x.dtype not in trial.dtypes or form_of(x) not in trial.forms:
        return None
    types = {gate.dtype} if weight is None else {gate.dtype, weight.dtype}
    if types == {x.dtype} or (trial.mixed and x.dtype is torch.float32 and types <= {x.dtype, *_NARROW}):
        return x, gate
    return None


# ---- the trial ----


class _Rows:
    """A copy of the module with random parameters in dtype, random rows and gates, and its results. rows_dtype: that of the rows."""

    def __init__(self, module, dtype, rows_dtype=None):
        generator = torch.Generator("cpu").manual_seed(20261116)
        self.module = copy.deepcopy(module).to(dtype=dtype).eval()
        for p in self.module.parameters():
            p.data = random_rows(p.shape, dtype, p.device, generator)
        self.calls = []
        for leading in _LEADING:
            shape = (*leading, *module.weight.shape)
            x = random_rows(shape, rows_dtype or dtype, device_of(module), generator) * 3
            gate = random_rows(shape, dtype, device_of(module), generator) * 2
            result = self._result(x, gate)
            if result is not None:
                self.calls.append((x, gate, result))
        self.forms = frozenset(form_of(x) for x, _, _ in self.calls)

    def _result(self, x, gate):
        try:
            result = self.module(x, gate)
        except Exception:  # rows of this form are not for this module
            return None
        fits = isinstance(result, torch.Tensor) and result.shape == x.shape and result.dtype == x.dtype
        return result if fits else None

    def compare(self, spec) -> tuple[int, int, bool]:
        """How many elements have other bits than spec gives, of how many, and whether all are neighbours of what is right."""
        differing = compared = 0
        all_near = bool(self.calls)
        for x, gate, expected in self.calls:
            count, near = compare(run(self.module, spec, x, gate), expected)
            differing, compared, all_near = differing + count, compared + x.numel(), all_near and near
        return differing, compared, all_near

    def agrees(self, spec, tolerance) -> bool:
        """In wide types the last bits of the exponential show in many elements."""
        differing, compared, near = self.compare(spec)
        wide = bool(self.calls) and self.calls[0][0].dtype in (torch.float32, torch.float64) and tolerance > 0
        return near and (wide or differing <= tolerance * compared)


def _group_counts(module) -> Iterator[int]:
    """1, and what attributes such as group_size and n_groups may mean."""
    width = module.weight.shape[-1]
    counts = {1}
    for name, value in vars(module).items():
        if "group" in name and type(value) is int and value > 0 and width % value == 0:
            counts |= {value, width // value}
    yield from sorted(counts)


def _candidates(module) -> Iterator[Spec]:
    for groups in _group_counts(module):
        for place in GATE_PLACES:
            for activation in ACTIVATIONS:
                for rounding in ("after_weight", "before_weight"):
                    for offset in (0.0, 1.0):
                        yield Spec("rms", rounding, offset, eps_name_of(module), "rmsnorm", place, activation, groups)


def find(module, tolerance) -> Trial:
    dtypes = tuple(dict.fromkeys((torch.bfloat16, torch.float32, module.weight.dtype)))
    rows = {dtype: _Rows(module, dtype) for dtype in dtypes}
    first = rows[torch.bfloat16]
    found = [spec for spec in _candidates(module) if all(r.agrees(spec, tolerance) for r in rows.values())]
    if not found:
        return Trial(None, "no arithmetic of this library gives its results with a gate")
    spec = min(found, key=lambda s: first.compare(s)[0])
    differing, compared, _ = first.compare(spec)
    forms = frozenset.intersection(*(r.forms for r in rows.values()))
    mixed = _Rows(module, torch.bfloat16, torch.float32)
    return Trial(spec, "", differing, compared, dtypes, forms, forms <= mixed.forms and mixed.agrees(spec, tolerance))
