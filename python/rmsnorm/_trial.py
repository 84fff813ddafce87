# SPDX-License-Identifier: MIT
"""Finds the arithmetic of a norm by running it on random rows beside everything that this library offers.

The places of the roundings show in bfloat16, whose roundings are coarse: one in another place changes a quarter of the results.
The order in which the squares of a row are added shows in float32, where it changes the last bit of most results; in bfloat16
it changes one result in a hundred thousand. So a norm is tried in both and in its own type. Rows as small as the root of eps show
where eps is added, and how large it is.
"""
from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from . import _adaptive_trial, _gated_trial, _pair_trial
from ._eligible import measured_eps, obstacle_to, width_of
from ._options import TOLERANCE
from ._spec import NARROW, Spec, Trial, compare, device_of, eps_name_of, eps_of, group_counts, has_hooks, head_counts
from ._spec import random_rows, run_plain, weight_name_of, with_promotions

_LEADING = ((64,), (3, 5), (2, 3, 4))
_IMAGES = {4: ((2, 5, 6), (1, 3, 4), (3, 1, 7)), 3: ((2, 30), (1, 12), (3, 7))}  # n and the dimensions behind the channels
_TOKENS = ((2, 30), (1, 12), (3, 7))  # in front of heads
_NO_MATCH = "no arithmetic of this library gives its bits"


def _template(module, image_dims, heads) -> Spec:
    """What every arithmetic that is tried has in common: the form of the rows, and where the module keeps its weight and its eps."""
    name = eps_name_of(module)
    eps = measured_eps(module) if name is None else None
    inner = next((name for name, _ in module.named_children()), "")
    return Spec("rms", "after_weight", 0.0, name or "", "rmsnorm", groups=heads or 1, heads=heads > 0, image_dims=image_dims, eps=eps,
                inner=inner, weight_name=weight_name_of(module))  # fmt: skip


def _candidates(module, template: Spec) -> Iterator[Spec]:
    """torch's order of the sums first: where it is right, all bits are."""
    weighted = getattr(module, template.weight_name, None) is not None
    orders = [("rms", "torch")] if device_of(module).type == "cpu" else []
    if template.alone:
        yield from (dataclasses.replace(template, sums=sums) for _, sums in (*orders, ("rms", "rmsnorm")))
        return
    for groups in [template.groups] if template.heads else group_counts(module):
        common = dataclasses.replace(template, groups=groups)
        for kind, sums in (*orders, ("rms", "rmsnorm"), ("layer", "rmsnorm")):
            for rounding in ("after_weight", "before_weight") if weighted else ("after_weight",):
                for offset in (0.0, 1.0) if weighted else (0.0,):
                    for gain in ("wide", "as_weight") if offset else ("wide",):
                        yield dataclasses.replace(
                            common, kind=kind, rounding=rounding, weight_offset=offset, sums=sums, gain_rounding=gain
                        )
        for kind, steps in (("rms", "all"), ("layer", "all")) if weighted else (("rms", "rstd"), ("rms", "all")):
            yield dataclasses.replace(common, kind=kind, rounding="before_weight", steps=steps)


class _Rows:
    """A copy of the module with random parameters in dtype, random rows or images, and its results. rows_dtype: that of the rows."""

    def __init__(self, module, dtype, template, rows_dtype=None):
        generator = torch.Generator("cpu").manual_seed(20261115)
        self.module, self.promoted = copy.deepcopy(module).to(dtype=dtype), rows_dtype is not None
        for p in self.module.parameters():
            p.data = random_rows(p.shape, dtype, p.device, generator)
        self.module.eval()
        shapes = self._shapes(template)
        self.inputs = [random_rows(shape, rows_dtype or dtype, device_of(module), generator) * 3 for shape in shapes]
        eps = eps_of(self.module, template, self.inputs[0])
        if eps > 0:
            self.inputs.append(self.inputs[0].flip(0) * (eps**0.5 / 3))
        self.results = [self.module(x) for x in self.inputs]
        self.out_dtype = getattr(self.results[0], "dtype", None)
        shapes = [tuple(getattr(y, "shape", ())) for y in self.results]
        self.alike = shapes == [tuple((x.flatten(-2) if template.heads else x).shape) for x in self.inputs]
        self.alone = shapes == [(*x.shape[:-1], 1) for x in self.inputs]

    def _shapes(self, template):
        width = width_of(self.module)
        if template.image_dims:
            return [(n, *width, *size) for n, *size in _IMAGES[template.image_dims]]
        if template.heads:
            return [(*leading, template.groups, width[0] // template.groups) for leading in _TOKENS]
        return [(*leading, *width) for leading in _LEADING]

    def compare(self, spec) -> tuple[int, int, bool]:
        """How many elements have other bits than spec gives, of how many, and whether those are neighbours of what is right."""
        differing = compared = 0
        near = True
        for x, expected in zip(self.inputs, self.results):
            got = run_plain(self.module, spec, x, self.out_dtype)
            if expected.dtype != got.dtype:
                return 1, 1, False
            rows = (t.movedim(1, -1) if spec.image_dims else t for t in (got, expected))
            count, close = compare(*rows, x.dtype if self._shows_narrow_rounding(spec) else None)
            near &= close
            differing += count
            compared += got.numel()
        return differing, compared, near

    def _shows_narrow_rounding(self, spec) -> bool:
        """Whether results of float32 are products of what was rounded to 16 bits, and show steps of these where sums differ."""
        return spec.rounding == "before_weight" and spec.sums != "torch" and self.out_dtype != self.inputs[0].dtype

    def differing_gradients(self, spec) -> int:
        """How many elements of dx have other bits."""
        gradients = []
        for run in (self.module, lambda x: run_plain(self.module, spec, x, self.out_dtype)):
            x = self.inputs[0].clone().requires_grad_()
            with torch.enable_grad():
                y = run(x)
                y.backward(self.inputs[0].flip(0).to(self.out_dtype).reshape(y.shape))
            gradients.append(x.grad)
        return int((gradients[0] != gradients[1]).sum())

    def agrees(self, spec, tolerance) -> bool:
        """With torch's sums every bit must be equal. With the library's own, the sums show in most elements of wide types."""
        differing, compared, near = self.compare(spec)
        if spec.sums == "torch":
            return differing == 0
        wide = self.out_dtype in (torch.float32, torch.float64) and not self._shows_narrow_rounding(spec) and tolerance > 0
        return near and (wide or differing <= tolerance * compared)


def _accepts(spec, rows: dict[torch.dtype, _Rows], own, tolerance) -> Trial | None:
    """A norm with torch's sums, or without a weight, is tried in every type; others in bfloat16 and in their own type."""
    if spec.sums == "torch" and own == torch.float64:
        return None
    dtypes = tuple(rows) if spec.sums == "torch" or own is None else tuple(dict.fromkeys((torch.bfloat16, own)))
    if not all(rows[dtype].agrees(spec, tolerance) for dtype in dtypes):
        return None
    differing, compared, _ = rows[torch.bfloat16].compare(spec)
    return Trial(spec, "", differing, compared, dtypes)


def _with_gradients(spec: Spec, rows: _Rows) -> Spec:
    """Norms with the same results differ in the roundings of their gradient: T5's rounds its two terms."""
    if spec.kind != "rms" or spec.steps not in ("wide", "terms") or spec.alone:
        return spec
    return min((dataclasses.replace(spec, steps=steps) for steps in ("wide", "terms")), key=rows.differing_gradients)


def _promoted(rows: _Rows, spec, tolerance) -> tuple[Spec, torch.dtype] | None:
    """The arithmetic and the type of the results. T5's does not round before a weight of float32."""
    for rounding in dict.fromkeys((spec.rounding, "after_weight")):
        promoted = dataclasses.replace(spec, rounding=rounding)
        if rows.agrees(promoted, tolerance):
            return _with_gradients(promoted, rows), rows.out_dtype
    return None


def _with_promotions(trial: Trial, module, tolerance) -> Trial:
    """Rows of 16 bits beside a weight of float32."""
    promoted = {}
    for dtype in NARROW:
        try:
            rows = _Rows(module, torch.float32, trial.spec, dtype)
        except Exception:  # this module does not mix types
            continue
        promoted[dtype] = _promoted(rows, trial.spec, tolerance)
    return with_promotions(trial, promoted)


def _rows_of(module, dtype, own, template) -> _Rows:
    """Everything in dtype, or, where parameters of float32 must stay that, as those of EsmFold2's LayerNorm, the rows alone."""
    try:
        return _Rows(module, dtype, template)
    except Exception:
        if own != torch.float32 or dtype not in NARROW:
            raise
        return _Rows(module, own, template, dtype)


def _find_form(module, tolerance, image_dims, heads) -> Trial:
    """The arithmetic on rows, on images of so many dimensions, or on rows of so many heads, which the results have as one."""
    template = _template(module, image_dims, heads)
    weight = getattr(module, template.weight_name, None)
    own = None if weight is None else weight.dtype  # without a weight the rows may have any type
    tried = dict.fromkeys((torch.bfloat16, torch.float32, own or torch.float16))
    rows = {dtype: _rows_of(module, dtype, own, template) for dtype in tried}
    alone = weight is None and all(r.alone for r in rows.values())
    if not all((r.alike or alone) and r.out_dtype is dtype for dtype, r in rows.items()):
        return Trial(None, "its result is not a tensor of the shape and type of its rows")
    template = dataclasses.replace(template, alone=alone)
    found = [t for t in (_accepts(spec, rows, own, tolerance) for spec in _candidates(module, template)) if t is not None]
    if not found:
        return Trial(None, _NO_MATCH)
    best = min(found, key=lambda t: (t.spec.sums != "torch", t.differing))
    spec = _with_gradients(best.spec, rows[torch.bfloat16])
    trial = dataclasses.replace(best, spec=spec, dtypes=tuple(dtype for dtype in best.dtypes if not rows[dtype].promoted))
    return _with_promotions(trial, module, tolerance) if own == torch.float32 and weight is not None else trial


def served(module, trial: Trial, device: str, inputs, named) -> tuple | None:
    """What run takes for a call behind the module, if it is one of those that were tried."""
    spec = trial.spec
    if len(inputs) != 1 or named or (spec.inner and has_hooks(getattr(module, spec.inner))):
        return None
    (x,), weight = inputs, getattr(module, spec.weight_name, None)
    if x.device.type != device or spec.image_dims not in (0, x.dim()):
        return None
    if spec.heads and (x.dim() != 4 or x.shape[-2] != spec.groups or x.shape[-1] * spec.groups != len(weight)):
        return None
    if x.dtype in trial.dtypes and (weight is None or weight.dtype is x.dtype):
        return spec, x
    if weight is not None and weight.dtype is torch.float32 and x.dtype in dict(trial.promoted):
        promoted, out_dtype = dict(trial.promoted)[x.dtype]
        return promoted, x, out_dtype
    return None


run = run_plain


def _attempt(find, *arguments) -> Trial:
    """A module may do anything with rows of numbers."""
    try:
        return find(*arguments)
    except Exception as error:
        return Trial(None, f"it could not be tried: {type(error).__name__}: {error}")


def _find(module, tolerance) -> Trial:
    """Rows first. A norm over channels refuses them, or makes something else of them."""
    weight, failed = getattr(module, weight_name_of(module), None), []
    images = [(dims, 0) for dims in _IMAGES] if weight is not None and weight.dim() == 1 else []
    for form in ((0, 0), *images, *((0, heads) for heads in head_counts(module))):
        trial = _attempt(_find_form, module, tolerance, *form)
        if trial.spec is not None:
            return trial
        failed.append(trial)
    return next((t for t in failed if t.reason == _NO_MATCH), failed[0])


def _key(module) -> Any:
    """What two modules share if one trial serves both."""
    plain = {k: v for k, v in vars(module).items() if isinstance(v, (bool, int, float, str, tuple, type(None)))}
    shapes = {k: (tuple(p.shape), p.dtype, p.device) for k, p in module.named_parameters()}
    eps = measured_eps(module) if eps_name_of(module) is None else None
    return type(module), repr(sorted(plain.items())), repr(sorted(shapes.items(), key=str)), eps, *map(_key, module.children())


def _finder(module):
    if _adaptive_trial.is_adaptive(module):
        return _adaptive_trial.find
    return _gated_trial.find if _gated_trial.is_gated(module) else _pair_trial.find if _pair_trial.is_pair(module) else _find


def try_module(module, tolerance=TOLERANCE, known=None) -> Trial:
    """known: the trials of other modules of a model, which serve those that are alike."""
    known = {} if known is None else known
    with torch.no_grad():
        obstacle = obstacle_to(module)
        if obstacle is not None:
            return Trial(None, obstacle)
        key = _key(module)
        if key not in known:
            known[key] = _attempt(_finder(module), module, tolerance)
    return known[key]
