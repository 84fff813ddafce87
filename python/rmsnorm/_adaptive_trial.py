# SPDX-License-Identifier: MIT
"""The trial of an adaptive norm, ``forward(hidden_states, condition)``: a projection inside it makes the scale and shift of each
sample, and norm(x) * (1 + scale) + shift is its result, alone or before the other parts of the projection. Qwen2.5-Omni's;
diffusers' AdaLayerNormContinuous has the same form.

The projection and its activation run as they are. The norm and what follows it become one pass over the rows.
"""
from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator

import torch

from ._spec import NARROW, Spec, Trial, compare, device_of, eps_name_of, has_hooks, named_eps, random_rows
from .torch import modulate

_SAMPLES, _TOKENS = 3, 40  # of the rows that are tried


def _children(module) -> tuple[list, list, list]:
    """The projections, the norms without parameters, and the names of what has none and is neither, as an activation."""
    projections, norms, others = [], [], []
    for name, child in module.named_children():
        if isinstance(child, torch.nn.Linear):
            projections.append(name)
        elif next(child.parameters(), None) is None:
            (norms if "norm" in type(child).__name__.lower() and eps_name_of(child) is not None else others).append(name)
    return projections, norms, others


def is_adaptive(module) -> bool:
    projections, norms, others = _children(module)
    if len(projections) != 1 or len(norms) != 1 or 2 + len(others) != len(list(module.children())):
        return False
    if any(True for _ in module.parameters(recurse=False)) or any(True for _ in module.buffers()):
        return False
    try:
        arguments = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        return False
    return len(arguments) == 2 and arguments[1] != "gate"


def projection_of(module) -> torch.nn.Linear:
    return getattr(module, _children(module)[0][0])


def _width(module) -> int:
    norm = getattr(module, _children(module)[1][0])
    return tuple(getattr(norm, "normalized_shape", None) or (projection_of(module).in_features,))[-1]


def run(module, spec: Spec, x, condition):
    """The module's result on this library."""
    (projection,), (norm,), others = _children(module)
    for name in others:
        condition = getattr(module, name)(condition)
    count, scale, shift = spec.parts
    parts = getattr(module, projection)(condition).chunk(count, dim=-1)
    eps = named_eps(getattr(module, norm), spec.eps_name, x)
    y = modulate(x, parts[scale], parts[shift], eps, kind=spec.kind)
    rest = [part for i, part in enumerate(parts) if i not in (scale, shift)]
    return (y, *rest) if rest else y


def served(module, trial: Trial, device: str, inputs, named) -> tuple | None:
    """What run takes for a call behind the module, if it is one of those that were tried."""
    if len(inputs) + len(named) != 2 or not inputs:
        return None
    x, condition = inputs[0], inputs[1] if len(inputs) > 1 else next(iter(named.values()))
    tensors = (x, condition)
    if any(not isinstance(t, torch.Tensor) or t.device.type != device for t in tensors):
        return None
    weight, norm = projection_of(module).weight, getattr(module, _children(module)[1][0])
    if x.dim() != 3 or condition.dim() != 2 or len(x) != len(condition) or x.shape[-1] != _width(module) or has_hooks(norm):
        return None
    return (trial.spec, *tensors) if all(t.dtype is weight.dtype and t.dtype in trial.dtypes for t in tensors) else None


# ---- the trial ----


def _candidates(module) -> Iterator[Spec]:
    projection, norm = projection_of(module), getattr(module, _children(module)[1][0])
    count, left = divmod(projection.out_features, _width(module))
    for kind in ("layer", "rms"):
        for scale, shift in ((0, 1), (1, 0)) if count >= 2 and not left else ():
            yield Spec(kind, "before_weight", 1.0, eps_name_of(norm), "rmsnorm", gain_rounding="as_weight", parts=(count, scale, shift))


class _Rows:
    """A copy of the module with random parameters in dtype, random rows and conditions, and its results."""

    def __init__(self, module, dtype):
        generator = torch.Generator("cpu").manual_seed(20261117)
        self.module, self.dtype = copy.deepcopy(module).to(dtype=dtype).eval(), dtype
        for p in self.module.parameters():
            p.data = random_rows(p.shape, dtype, p.device, generator) * p.shape[-1] ** -0.5
        shapes = ((_SAMPLES, _TOKENS, _width(module)), (_SAMPLES, projection_of(module).in_features))
        self.inputs = [random_rows(shape, dtype, device_of(module), generator) for shape in shapes]
        self.inputs[0][0] *= 2.0**-10  # rows that show eps
        self.results = self._listed(self.module(*self.inputs))

    @staticmethod
    def _listed(results) -> list:
        return list(results) if isinstance(results, tuple) else [results]

    def compare(self, spec) -> tuple[int, int, bool]:
        """As in the other trials, of the norm's result; the other parts must be the same."""
        got = self._listed(run(self.module, spec, *self.inputs))
        if [(t.shape, t.dtype) for t in got] != [(t.shape, t.dtype) for t in self.results]:
            return 1, 1, False
        differing, near = compare(got[0], self.results[0])
        return differing, got[0].numel(), near and all(map(torch.equal, got[1:], self.results[1:]))

    def agrees(self, spec, tolerance) -> bool:
        differing, compared, near = self.compare(spec)
        return near and (differing <= tolerance * compared or (self.dtype not in NARROW and tolerance > 0))


def find(module, tolerance) -> Trial:
    own = projection_of(module).weight.dtype
    dtypes = tuple(dict.fromkeys((torch.bfloat16, torch.float32, own)))
    rows = {dtype: _Rows(module, dtype) for dtype in dtypes}
    for spec in _candidates(module):
        if all(r.agrees(spec, tolerance) for r in rows.values()):
            differing, compared, _ = rows[torch.bfloat16].compare(spec)
            return Trial(spec, "", differing, compared, dtypes)
    return Trial(None, "no arithmetic of this library gives its results with a condition")
