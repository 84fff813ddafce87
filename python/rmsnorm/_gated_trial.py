# SPDX-License-Identifier: MIT
"""The trial of a norm whose forward takes a gate as well: ``forward(hidden_states, gate)``.

The place of the gate and its activation are found like the places of the roundings: in bfloat16 a wrong one changes nearly every
element. The exponential of this library is not torch's, and the squares are added in its own order, so that one element in ten
thousand or fewer differs in its last place.

A module may treat shapes apart: FalconH1's takes two or three dimensions, and drops the second of three where it is 1. So only the
forms of rows are served that were tried. Rows of float32 beside a gate and a weight of 16 bits, which the scans of Mamba2 and its
kin give on the CPU, are served by widening both, as torch does. Rows and gates of 16 bits beside a weight of float32 are served
where the trial agrees.
"""
from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator

import torch

from . import _torch_gates
from ._options import ACTIVATIONS, GATE_PLACES
from ._spec import NARROW, Spec, Trial, compare, device_of, eps_name_of, eps_of, group_counts, random_rows, with_promotions
from ._torch_options import out_mode_of

_LEADING = ((64,), (1,), (3, 5), (3, 1), (2, 3, 4), (2, 3, 1))


def is_gated(module) -> bool:
    parameters = list(inspect.signature(module.forward).parameters.values())
    return len(parameters) == 2 and parameters[1].name == "gate" and parameters[1].kind is parameters[1].POSITIONAL_OR_KEYWORD


def form_of(x) -> tuple[int, bool]:
    """What modules treat apart: the number of dimensions, and whether the last leading one is 1."""
    return x.dim(), x.dim() > 1 and x.shape[-2] == 1


def run(module, spec: Spec, x, gate, out_dtype=None):
    """The module's result on this library; out_dtype: its type, where it is not x's. Rows of float32 widen what is beside them."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if x.dtype is torch.float32:
        gate, weight, bias = (t if t is None else t.float() for t in (gate, weight, bias))
    mode = spec.mode | out_mode_of(x, out_dtype)
    return _torch_gates.run(x, gate, weight, bias, eps_of(module, spec, x), spec.weight_offset, 0, spec.groups, mode, None)


def served(module, trial: Trial, device: str, inputs, named) -> tuple | None:
    """What run takes for a call behind the module, if it is one of those that were tried."""
    if len(inputs) + len(named) != 2 or not inputs:
        return None
    x, gate = inputs[0], inputs[1] if len(inputs) > 1 else named.get("gate")
    weight = module.weight
    if gate is None or x.device.type != device or gate.device.type != device or x.shape != gate.shape:
        return None
    if form_of(x) not in trial.forms:
        return None
    types = {gate.dtype, weight.dtype}
    if x.dtype in trial.dtypes and types == {x.dtype}:
        return trial.spec, x, gate
    if trial.mixed and x.dtype is torch.float32 and types <= {x.dtype, *NARROW}:
        return trial.spec, x, gate
    if weight.dtype is torch.float32 and gate.dtype is x.dtype and x.dtype in dict(trial.promoted):
        promoted, out_dtype = dict(trial.promoted)[x.dtype]
        return promoted, x, gate, out_dtype
    return None


# ---- the trial ----


class _Rows:
    """A copy of the module with random parameters in dtype, random rows and gates, and its results. rows_dtype and gate_dtype: theirs,
    where they are others."""

    def __init__(self, module, dtype, rows_dtype=None, gate_dtype=None):
        generator = torch.Generator("cpu").manual_seed(20261116)
        self.module = copy.deepcopy(module).to(dtype=dtype).eval()
        for p in self.module.parameters():
            p.data = random_rows(p.shape, dtype, p.device, generator)
        self.calls = []
        eps = getattr(module, eps_name_of(module)) or 1.0  # 0 or None: there is no row that shows it
        for leading, scale in (*((leading, 3.0) for leading in _LEADING), (_LEADING[0], eps**0.5)):
            shape = (*leading, *module.weight.shape)
            x = random_rows(shape, rows_dtype or dtype, device_of(module), generator) * scale
            gate = random_rows(shape, gate_dtype or dtype, device_of(module), generator) * 2
            result = self._result(x, gate)
            if result is not None:
                self.calls.append((x, gate, result))
        self.forms = frozenset(form_of(x) for x, _, _ in self.calls)

    def _result(self, x, gate):
        try:
            result = self.module(x, gate)
        except Exception:  # rows of this form are not for this module
            return None
        dtypes = (x.dtype, torch.promote_types(x.dtype, self.module.weight.dtype))
        return result if isinstance(result, torch.Tensor) and result.shape == x.shape and result.dtype in dtypes else None

    def compare(self, spec) -> tuple[int, int, bool]:
        """How many elements have other bits than spec gives, of how many, and whether all are neighbours of what is right."""
        differing = compared = 0
        all_near = bool(self.calls)
        for x, gate, expected in self.calls:
            rounded = x.dtype if self._shows_narrow_rounding(spec) else None
            count, near = compare(run(self.module, spec, x, gate, expected.dtype), expected, rounded)
            differing, compared, all_near = differing + count, compared + x.numel(), all_near and near
        return differing, compared, all_near

    def _shows_narrow_rounding(self, spec) -> bool:
        """Whether results of float32 are products of what was rounded to 16 bits, as those of Mamba2's beside a weight of float32."""
        x, _, result = self.calls[0]
        return spec.rounding == "before_weight" and result.dtype != x.dtype

    def agrees(self, spec, tolerance) -> bool:
        """In wide types the last bits of the exponential show in many elements."""
        differing, compared, near = self.compare(spec)
        if not near:
            return False
        wide = self.calls[0][2].dtype in (torch.float32, torch.float64) and not self._shows_narrow_rounding(spec) and tolerance > 0
        return wide or differing <= tolerance * compared


def _candidates(module) -> Iterator[Spec]:
    for groups in group_counts(module):
        for place in GATE_PLACES:
            for activation in ACTIVATIONS:
                for rounding in ("after_weight", "before_weight"):
                    for offset in (0.0, 1.0):
                        yield Spec("rms", rounding, offset, eps_name_of(module), "rmsnorm", place, activation, groups)


def _with_promotions(trial: Trial, module, tolerance) -> Trial:
    """Rows and gates of 16 bits beside a weight of float32."""
    promoted = {}
    for dtype in NARROW:
        rows = _Rows(module, torch.float32, dtype, dtype)
        if rows.calls:
            fits = trial.forms <= rows.forms and rows.agrees(trial.spec, tolerance)
            promoted[dtype] = (trial.spec, rows.calls[0][2].dtype) if fits else None
    return with_promotions(trial, promoted)


def find(module, tolerance) -> Trial:
    own = module.weight.dtype
    dtypes = tuple(dict.fromkeys((torch.bfloat16, torch.float32, own)))
    rows = {dtype: _Rows(module, dtype) for dtype in dtypes}
    first = rows[torch.bfloat16]
    found = [spec for spec in _candidates(module) if all(r.agrees(spec, tolerance) for r in rows.values())]
    if not found:
        return Trial(None, "no arithmetic of this library gives its results with a gate")
    spec = min(found, key=lambda s: first.compare(s)[0])
    differing, compared, _ = first.compare(spec)
    forms = frozenset.intersection(*(r.forms for r in rows.values()))
    mixed = _Rows(module, torch.bfloat16, torch.float32)
    trial = Trial(spec, "", differing, compared, dtypes, forms, forms <= mixed.forms and mixed.agrees(spec, tolerance))
    return _with_promotions(trial, module, tolerance) if own is torch.float32 else trial
