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
import inspect
import math
from collections.abc import Iterator
from typing import Any

import torch

from . import _gated_trial, _pair_trial
from ._options import TOLERANCE
from ._spec import NARROW, Spec, Trial, compare, device_of, eps_name_of, eps_of, group_counts, random_rows, run_plain
from ._spec import weight_name_of, with_promotions
from .torch import CUDA_KERNELS

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_LEADING = ((64,), (3, 5), (2, 3, 4))
_IMAGES = {4: ((2, 5, 6), (1, 3, 4), (3, 1, 7)), 3: ((2, 30), (1, 12), (3, 7))}  # n and the dimensions behind the channels
_NO_MATCH = "no arithmetic of this library gives its bits"
_FREE_WIDTH = 128  # the rows on which a norm without a weight is tried


# ---- what can be tried ----


def is_norm(module) -> bool:
    """A norm without children, or one whose only tensor is a parameter around such a norm, as MoonshineStreaming's."""
    if "norm" not in type(module).__name__.lower():
        return False
    inner = list(module.children())
    if len(inner) != 1:
        return not inner
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return next(inner[0].children(), None) is None and is_norm(inner[0]) and len(tensors) == 1 and "." not in tensors[0][0]


def _width_of(module) -> tuple[int, ...]:
    weight = getattr(module, weight_name_of(module), None)
    if weight is not None:
        return tuple(weight.shape)
    return tuple(getattr(module, "normalized_shape", None) or (_FREE_WIDTH,))


def _round_number(eps: float) -> float | None:
    """A power of two, or a number of at most three digits, that a measurement with the roundings of a few operations stands for."""
    numbers = (2.0 ** round(math.log2(eps)), *(float(f"{eps:.{digits}e}") for digits in range(3)))
    return next((number for number in numbers if abs(number - eps) <= 2**-19 * eps), None)


def _has_hooks(module) -> bool:
    """Hooks of a norm inside the module, which only the old forward calls."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks)


def _measured_eps(module) -> float | None:
    """From a row of 1 and -1, and from the same row so small that eps alone scales it. The gain cancels."""
    small = 2.0**-40
    row = torch.ones(_width_of(module), device=device_of(module))
    row[..., 1::2] = -1
    row[..., row.shape[-1] // 2 * 2 :] = 0  # the last of an odd number
    try:
        tried = copy.deepcopy(module).to(torch.float32).eval()
        for name, p in tried.named_parameters():
            p.data.fill_(name != "bias")
        large_result, small_result = (float(tried((row * scale)[None]).flatten()[0]) for scale in (1.0, small))
        ratio, square = small_result / (small * large_result), float(row.square().mean())
        eps = square * (1 - (ratio * small) ** 2) / (ratio**2 - 1)
        return _round_number(eps) if small**2 < eps < math.inf else None
    except Exception:  # it takes no rows, or has no eps
        return None


def _obstacle_of(name: str, tensor) -> str | None:
    """Why a module with this parameter is not tried."""
    if type(tensor) not in (torch.nn.Parameter, torch.Tensor) or tensor.dtype not in _DTYPES:
        return f"its {name} is a {type(tensor).__name__} of {tensor.dtype}"
    if tensor.device.type == "meta":
        return f"its {name} has no values yet (meta device)"
    if tensor.device.type not in ("cpu", "cuda"):
        return f"its {name} is on {tensor.device.type}, which is not served"
    if tensor.device.type == "cuda" and CUDA_KERNELS != "c++":
        return f"its {name} is on a GPU, which cannot be served ({CUDA_KERNELS})"
    return None


def _obstacle(module) -> str | None:
    """Why a module is not even tried."""
    if "forward" in module.__dict__:
        return "its forward was replaced already"
    try:
        parameters = [p for p in inspect.signature(module.forward).parameters.values()]
    except (TypeError, ValueError):
        return "its forward has no signature"
    gated, pair = _gated_trial.is_gated(module), _pair_trial.is_pair(module)
    if pair:
        return _obstacle_of("factor", next(module.parameters()))
    if len(parameters) != 1 + gated or parameters[0].kind in (parameters[0].VAR_POSITIONAL, parameters[0].VAR_KEYWORD):
        return "its forward takes other arguments than a tensor and a gate"
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    weight_name = weight_name_of(module)
    for name, tensor in tensors.items():
        if name not in (weight_name, "bias"):
            return f"it has a tensor {name!r}"
        obstacle = _obstacle_of(name, tensor)
        if obstacle is not None:
            return obstacle
    weight = tensors.get(weight_name)
    if gated and (weight_name != "weight" or weight is None or weight.dim() != 1):
        return "it takes a gate and has no weight of one dimension"
    if weight is not None and weight.dim() > 2 or weight is None and "bias" in tensors:
        return "its weight has a shape that is not offered"
    if eps_name_of(module) is None and (gated or _measured_eps(module) is None):
        return "it has no eps that is a float, nor one that its results show"
    return None


# ---- the trial ----


def _template(module, image_dims) -> Spec:
    """What every arithmetic that is tried has in common: where the module keeps its weight and its eps."""
    name = eps_name_of(module)
    eps = _measured_eps(module) if name is None else None
    inner = next((name for name, _ in module.named_children()), "")
    return Spec("rms", "after_weight", 0.0, name or "", "rmsnorm", image_dims=image_dims, eps=eps, inner=inner,
                weight_name=weight_name_of(module))  # fmt: skip


def _candidates(module, template: Spec) -> Iterator[Spec]:
    """torch's order of the sums first: where it is right, all bits are."""
    weighted = getattr(module, template.weight_name, None) is not None
    orders = [("rms", "torch")] if device_of(module).type == "cpu" else []
    for groups in group_counts(module):
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
        self.module = copy.deepcopy(module).to(dtype=dtype)
        for p in self.module.parameters():
            p.data = random_rows(p.shape, dtype, p.device, generator)
        self.module.eval()
        shapes = self._shapes(template.image_dims)
        self.inputs = [random_rows(shape, rows_dtype or dtype, device_of(module), generator) * 3 for shape in shapes]
        eps = eps_of(self.module, template, self.inputs[0])
        if eps > 0:
            self.inputs.append(self.inputs[0].flip(0) * (eps**0.5 / 3))
        self.results = [self.module(x) for x in self.inputs]
        self.out_dtype = getattr(self.results[0], "dtype", None)
        self.alike = all(isinstance(y, torch.Tensor) and y.shape == x.shape for x, y in zip(self.inputs, self.results))

    def _shapes(self, image_dims):
        width = _width_of(self.module)
        if image_dims:
            return [(n, *width, *size) for n, *size in _IMAGES[image_dims]]
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
                run(x).backward(self.inputs[0].flip(0).to(self.out_dtype))
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
    """A norm with torch's sums is tried in every type, and one with the library's own in bfloat16 and in its own type."""
    if spec.sums == "torch" and own == torch.float64:
        return None
    dtypes = tuple(rows) if spec.sums == "torch" else tuple(dict.fromkeys((torch.bfloat16, own)))
    if not all(rows[dtype].agrees(spec, tolerance) for dtype in dtypes):
        return None
    differing, compared, _ = rows[torch.bfloat16].compare(spec)
    return Trial(spec, "", differing, compared, dtypes)


def _with_gradients(spec: Spec, rows: _Rows) -> Spec:
    """Norms with the same results differ in the roundings of their gradient: T5's rounds its two terms."""
    if spec.kind != "rms" or spec.steps not in ("wide", "terms"):
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


def _find_form(module, tolerance, image_dims) -> Trial:
    """The arithmetic on rows, or on images of so many dimensions."""
    template = _template(module, image_dims)
    weight = getattr(module, template.weight_name, None)
    own = weight.dtype if weight is not None else torch.bfloat16
    rows = {dtype: _Rows(module, dtype, template) for dtype in dict.fromkeys((torch.bfloat16, torch.float32, own))}
    if not all(r.alike and r.out_dtype is dtype for dtype, r in rows.items()):
        return Trial(None, "its result is not a tensor of the shape and type of its rows")
    found = [t for t in (_accepts(spec, rows, own, tolerance) for spec in _candidates(module, template)) if t is not None]
    if not found:
        return Trial(None, _NO_MATCH)
    best = min(found, key=lambda t: (t.spec.sums != "torch", t.differing))
    spec = _with_gradients(best.spec, rows[torch.bfloat16])
    trial = dataclasses.replace(best, spec=spec)
    return _with_promotions(trial, module, tolerance) if own == torch.float32 and weight is not None else trial


def served(module, trial: Trial, device: str, inputs, named) -> tuple | None:
    """What run_plain takes for a call behind the module, if it is one of those that were tried."""
    spec = trial.spec
    if len(inputs) != 1 or named or (spec.inner and _has_hooks(getattr(module, spec.inner))):
        return None
    (x,), weight = inputs, getattr(module, spec.weight_name, None)
    if x.device.type != device or spec.image_dims not in (0, x.dim()):
        return None
    if x.dtype in trial.dtypes and (weight is None or weight.dtype is x.dtype):
        return spec, x
    if weight is not None and weight.dtype is torch.float32 and x.dtype in dict(trial.promoted):
        promoted, out_dtype = dict(trial.promoted)[x.dtype]
        return promoted, x, out_dtype
    return None


def _attempt(find, *arguments) -> Trial:
    """A module may do anything with rows of numbers."""
    try:
        return find(*arguments)
    except Exception as error:
        return Trial(None, f"it could not be tried: {type(error).__name__}: {error}")


def _find(module, tolerance) -> Trial:
    """Rows first. A norm over channels refuses them, or makes something else of them."""
    weight, failed = getattr(module, weight_name_of(module), None), []
    for image_dims in (0, *_IMAGES) if weight is not None and weight.dim() == 1 else (0,):
        trial = _attempt(_find_form, module, tolerance, image_dims)
        if trial.spec is not None:
            return trial
        failed.append(trial)
    return next((t for t in failed if t.reason == _NO_MATCH), failed[0])


def _key(module) -> Any:
    """What two modules share if one trial serves both."""
    plain = {k: v for k, v in vars(module).items() if isinstance(v, (bool, int, float, str, tuple, type(None)))}
    shapes = {k: (tuple(p.shape), p.dtype, p.device) for k, p in module.named_parameters()}
    eps = _measured_eps(module) if eps_name_of(module) is None else None
    return type(module), repr(sorted(plain.items())), repr(sorted(shapes.items(), key=str)), eps, *map(_key, module.children())


def try_module(module, tolerance=TOLERANCE, known=None) -> Trial:
    """known: the trials of other modules of a model, which serve those that are alike."""
    known = {} if known is None else known
    with torch.no_grad():
        obstacle = _obstacle(module)
        if obstacle is not None:
            return Trial(None, obstacle)
        key = _key(module)
        if key not in known:
            find = _gated_trial.find if _gated_trial.is_gated(module) else _pair_trial.find if _pair_trial.is_pair(module) else _find
            known[key] = _attempt(find, module, tolerance)
    return known[key]
