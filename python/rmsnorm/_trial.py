# SPDX-License-Identifier: MIT
"""Finds the arithmetic of a norm by running it on random rows beside everything that this library offers.

The places of the roundings show in bfloat16, whose roundings are coarse: one in another place changes a quarter of the results.
The order in which the squares of a row are added shows in float32, where it changes the last bit of most results; in bfloat16
it changes one result in a hundred thousand. So a norm is tried in both and in its own type.
"""
from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from . import _gated_trial, _pair_trial
from ._options import TOLERANCE
from ._spec import Spec, Trial, compare, device_of, eps_name_of, random_rows, run_plain
from .torch import CUDA_KERNELS

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_LEADING = ((64,), (3, 5), (2, 3, 4))
_IMAGES = {4: ((2, 5, 6), (1, 3, 4), (3, 1, 7)), 3: ((2, 30), (1, 12), (3, 7))}  # n and the dimensions behind the channels
_NO_MATCH = "no arithmetic of this library gives its bits"
_FREE_WIDTH = 128  # the rows on which a norm without a weight is tried


# ---- what can be tried ----


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
    if eps_name_of(module) is None:
        return "it has no eps that is a float"
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, tensor in tensors.items():
        if name not in ("weight", "bias"):
            return f"it has a tensor {name!r}"
        obstacle = _obstacle_of(name, tensor)
        if obstacle is not None:
            return obstacle
    weight = tensors.get("weight")
    if gated and (weight is None or weight.dim() != 1):
        return "it takes a gate and has no weight of one dimension"
    if weight is not None and weight.dim() > 2 or weight is None and "bias" in tensors:
        return "its weight has a shape that is not offered"
    return None


# ---- the trial ----


def _candidates(module, image_dims) -> Iterator[Spec]:
    """torch's order of the sums first: where it is right, all bits are."""
    weighted = getattr(module, "weight", None) is not None
    orders = [("rms", "torch")] if device_of(module).type == "cpu" else []
    for kind, sums in (*orders, ("rms", "rmsnorm"), ("layer", "rmsnorm")):
        for rounding in ("after_weight", "before_weight") if weighted else ("after_weight",):
            for offset in (0.0, 1.0) if weighted else (0.0,):
                for gain in ("wide", "as_weight") if offset else ("wide",):
                    yield Spec(kind, rounding, offset, eps_name_of(module), sums, gain_rounding=gain, image_dims=image_dims)
    for kind, steps in (("rms", "all"), ("layer", "all")) if weighted else (("rms", "rstd"), ("rms", "all")):
        yield Spec(kind, "before_weight", 0.0, eps_name_of(module), "rmsnorm", steps=steps, image_dims=image_dims)


class _Rows:
    """A copy of the module with random parameters in dtype, random rows or images, and its results. rows_dtype: that of the rows."""

    def __init__(self, module, dtype, image_dims, rows_dtype=None):
        generator = torch.Generator("cpu").manual_seed(20261115)
        self.module = copy.deepcopy(module).to(dtype=dtype)
        for p in self.module.parameters():
            p.data = random_rows(p.shape, dtype, p.device, generator)
        self.module.eval()
        self.inputs = [random_rows(shape, rows_dtype or dtype, device_of(module), generator) * 3 for shape in self._shapes(image_dims)]
        self.results = [self.module(x) for x in self.inputs]
        self.out_dtype = getattr(self.results[0], "dtype", None)

    def _shapes(self, image_dims):
        if image_dims:
            return [(n, *self._width(), *size) for n, *size in _IMAGES[image_dims]]
        return [(*leading, *self._width()) for leading in _LEADING]

    def _width(self):
        weight = getattr(self.module, "weight", None)
        if weight is not None:
            return tuple(weight.shape)
        return tuple(getattr(self.module, "normalized_shape", None) or (_FREE_WIDTH,))

    def compare(self, spec) -> tuple[int, int, bool]:
        """How many elements have other bits than spec gives, of how many, and whether those are neighbours of what is right."""
        differing = compared = 0
        near = True
        for x, expected in zip(self.inputs, self.results):
            got = run_plain(self.module, spec, x, self.out_dtype)
            if not isinstance(expected, torch.Tensor) or expected.dtype != got.dtype or expected.shape != got.shape:
                return 1, 1, False
            rows = (t.movedim(1, -1) if spec.image_dims else t for t in (got, expected))
            count, close = compare(*rows)
            near &= close
            differing += count
            compared += got.numel()
        return differing, compared, near


    def differing_gradients(self, spec) -> int:
        """How many elements of dx have other bits."""
        gradients = []
        for run in (self.module, lambda x: run_plain(self.module, spec, x)):
            x = self.inputs[0].clone().requires_grad_()
            with torch.enable_grad():
                run(x).backward(self.inputs[0].flip(0))
            gradients.append(x.grad)
        return int((gradients[0] != gradients[1]).sum())

    def agrees(self, spec, tolerance) -> bool:
        """With torch's sums every bit must be equal. With the library's own, the sums show in most elements of wide types."""
        differing, compared, near = self.compare(spec)
        if spec.sums == "torch":
            return differing == 0
        wide = self.out_dtype in (torch.float32, torch.float64) and tolerance > 0
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


def _with_gradients(trial: Trial, rows: _Rows) -> Trial:
    """Norms with the same results differ in the roundings of their gradient: T5's rounds its two terms."""
    spec = trial.spec
    if spec is None or spec.kind != "rms" or spec.steps != "wide":
        return trial
    terms = dataclasses.replace(spec, steps="terms")
    fewer = rows.differing_gradients(terms) < rows.differing_gradients(spec)
    return dataclasses.replace(trial, spec=terms) if fewer else trial


def _promotions(module, spec, tolerance, image_dims) -> Iterator[tuple[torch.dtype, torch.dtype]]:
    """The types of 16-bit rows that the module takes beside its weight of float32, and those of its results."""
    for dtype in (torch.bfloat16, torch.float16):
        try:
            rows = _Rows(module, torch.float32, image_dims, dtype)
            if rows.agrees(spec, tolerance):
                yield dtype, rows.out_dtype
        except Exception:  # this module does not mix types
            continue


def _find_form(module, tolerance, image_dims) -> Trial:
    """The arithmetic on rows, or on images of so many dimensions."""
    weight = getattr(module, "weight", None)
    own = weight.dtype if weight is not None else torch.bfloat16
    rows = {dtype: _Rows(module, dtype, image_dims) for dtype in dict.fromkeys((torch.bfloat16, torch.float32, own))}
    found = [t for t in (_accepts(spec, rows, own, tolerance) for spec in _candidates(module, image_dims)) if t is not None]
    if not found:
        return Trial(None, _NO_MATCH)
    best = _with_gradients(min(found, key=lambda t: (t.spec.sums != "torch", t.differing)), rows[torch.bfloat16])
    if own != torch.float32 or weight is None:
        return best
    return dataclasses.replace(best, promoted=tuple(_promotions(module, best.spec, tolerance, image_dims)))


def _attempt(find, *arguments) -> Trial:
    """A module may do anything with rows of numbers."""
    try:
        return find(*arguments)
    except Exception as error:
        return Trial(None, f"it could not be tried: {type(error).__name__}: {error}")


def _find(module, tolerance) -> Trial:
    """Rows first. A norm over channels refuses them, or makes something else of them."""
    weight, failed = getattr(module, "weight", None), []
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
    return type(module), repr(sorted(plain.items())), repr(sorted(shapes.items(), key=str))


def try_module(module, tolerance=TOLERANCE, known=None) -> Trial:
    """known: the trials of other modules of a model, which serve those that are alike."""
    known = {} if known is None else known
    obstacle = _obstacle(module)
    if obstacle is not None:
        return Trial(None, obstacle)
    key = _key(module)
    if key not in known:
        find = _gated_trial.find if _gated_trial.is_gated(module) else _pair_trial.find if _pair_trial.is_pair(module) else _find
        with torch.no_grad():
            known[key] = _attempt(find, module, tolerance)
    return known[key]
