# SPDX-License-Identifier: MIT
"""The operations on torch tensors, with gradients; for torch.compile, torch.export, vmap and torch.func as well.

>>> import torch, rmsnorm.torch
>>> x, w = torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0])
>>> rmsnorm.torch.rms_norm(x, w, eps=0.0)
tensor([[0.8485, 2.2627]])

Norms go over the last dimension or, with ``channels_first=True``, over dimension 1, as the channels of images (N, C, H, W); such
images are read where they are. Results have x's dtype and strides (those of ``torch.empty_like``), also under autocast. Tensors may have any strides: rows
that two strides describe, as in q and k slices and (B, H, T, D) transposes, are read where they are; others are copied. On the
CPU the work runs on torch's own threads (``torch.set_num_threads``), and the bits do not depend on their number. CUDA tensors
need the package rmsnorm-cuda; the work is queued on torch's current stream.
"""
from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.autograd import forward_ad as _forward_ad

from . import _torch_autograd as _autograd
from . import _torch_add as _add
from . import _torch_gates as _gates
from ._options import LAYER, STEPS, gate_mode, groups_of, mode_of, modulation_kind, modulation_per_sample
from ._torch_ops import CUDA_KERNELS, KERNELS
from ._torch_options import channels_last as _channels_last
from ._torch_options import out_mode_of as _out_mode
from ._torch_options import statistic_of as _statistic_of
from ._torch_quantised import Quantised, layer_norm_quantised, rms_norm_quantised
from ._torch_stats import Statistics, layer_norm_stats, rms_norm_stats

__all__ = ["CUDA_KERNELS", "KERNELS", "Quantised", "Statistics", "add_layer_norm", "add_rms_norm", "layer_norm", "layer_norm_quantised",
           "layer_norm_stats", "modulate", "rms_norm", "rms_norm_quantised", "rms_norm_stats"]  # fmt: skip

_norm_operator = torch.ops.rmsnorm._norm.default
# What an operator's __call__ calls: 0.3 microseconds less, but unknown to Dynamo.
_norm_builtin = _norm_operator._op
_weighted_norm_builtin = torch.ops.rmsnorm._weighted_norm.default._op
_is_grad_enabled = torch.is_grad_enabled
_is_dynamo_compiling = torch.compiler.is_dynamo_compiling
_dtensor = None  # the module rmsnorm.dtensor, once it is imported
_functorch_level = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)


def _plain_norm(x, weight, bias, eps):
    """With as few arguments as will do: each costs 0.1 microseconds."""
    if bias is None and weight is not None:
        return _weighted_norm_builtin(x, weight, eps)
    return _norm_builtin(x, weight, bias, eps)


def _run(x, weight, bias, eps, weight_offset=0.0, partial=0, groups=1, mode=0, indices=None):
    if _dtensor is not None and mode < STEPS and _dtensor.is_spread(x, weight, bias, groups, indices):
        return _dtensor.norm(x, weight, bias, eps, weight_offset, partial, mode)
    if _is_grad_enabled() or _forward_ad._current_level >= 0:
        transformed = _functorch_level() is not None or _forward_ad._current_level >= 0
        if (
            transformed
            or x.requires_grad
            or (weight is not None and weight.requires_grad)
            or (bias is not None and bias.requires_grad)
        ):
            if transformed or _is_dynamo_compiling():
                function = _autograd.TracedNorm if _is_dynamo_compiling() else _autograd.ForwardNorm
                return function.apply(x, weight, _autograd.another(bias, weight), eps, weight_offset, partial, groups, mode, indices)[0]
            plain = mode == 0 and partial == 0 and groups == 1 and weight_offset == 0.0 and indices is None
            options = (eps,) if plain else (eps, weight_offset, partial, groups, mode, indices)
            return _autograd.norm(x, weight, bias, options)
    if _is_dynamo_compiling():
        return _norm_operator(x, weight, bias, eps, weight_offset, partial, groups, mode, indices)
    if mode == 0 and partial == 0 and groups == 1 and weight_offset == 0.0 and indices is None:
        return _plain_norm(x, weight, bias, eps)
    return _norm_builtin(x, weight, bias, eps, weight_offset, partial, groups, mode, indices)


def _run_add(x, residual, gate, weight, bias, *options):
    """options: eps, weight_offset, partial, groups, mode, indices."""
    if _dtensor is not None and gate is None and options[4] < STEPS and x.dtype is residual.dtype:
        if _dtensor.is_spread(x, weight, bias, options[3], options[5]):
            total = x + residual  # rounded as the kernel rounds it
            return _run(total, weight, bias, *options), total
    return _add.run(x, residual, gate, weight, bias, *options)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    *,
    bias: torch.Tensor | None = None,
    gate: torch.Tensor | None = None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    partial: int | float | None = None,
    indices: Iterable[int] | None = None,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    channels_first: bool = False,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``x / sqrt(mean(x**2) + eps) * weight`` over the last dimension; options as in :func:`rmsnorm.rms_norm`.

    x is of float32, float64, bfloat16 or float16. weight and bias have the shape ``(n,)``, or ``(heads, n)`` with heads =
    ``x.shape[-2]``, and x's dtype or float32. gate has x's shape and dtype, and gets a gradient. gain_rounding: "as_weight" rounds
    ``weight + weight_offset`` to the weight's dtype, as Nemotron does. channels_first: over dimension 1. out_dtype: float32, bfloat16 or
    float16, which the result is rounded to instead of x's dtype. Second derivatives and those in forward mode are
    those of "wide" steps.

    >>> import torch
    >>> x = torch.tensor([[1.0, 2.0, 2.0]], requires_grad=True)
    >>> rms_norm(x, eps=0.0).sum().backward()
    >>> x.grad
    tensor([[ 0.2566, -0.0641, -0.0641]])
    """
    if channels_first:
        x, gate = _channels_last(x), None if gate is None else _channels_last(gate)
        return rms_norm(
            x, weight, eps, bias=bias, gate=gate, gate_place=gate_place, activation=activation, rounding=rounding,
            weight_offset=weight_offset, partial=partial, indices=indices, groups=groups, eps_place=eps_place,
            gain_rounding=gain_rounding, steps=steps, out_dtype=out_dtype,
        ).movedim(-1, 1)  # fmt: skip
    plain = rounding == "after_weight" and eps_place == "inside" and gain_rounding == steps == "wide" and out_dtype is None
    mode = 0 if plain else mode_of(rounding, eps_place, gain_rounding, steps) | _out_mode(x, out_dtype)
    if gate is not None or gate_place != "after" or activation != "silu":
        mode |= gate_mode(gate is not None, gate_place, activation)
        groups = groups_of(groups)
        partial, elements = _statistic_of(x, partial, indices, groups)
        return _gates.run(x, gate, weight, bias, eps, weight_offset, partial, groups, mode, elements)
    whole = partial is None and indices is None
    if whole and mode == 0 and weight_offset == 0.0 and groups == 1 and not _is_grad_enabled():
        if _forward_ad._current_level < 0 and _dtensor is None and not _is_dynamo_compiling():
            return _plain_norm(x, weight, bias, eps)  # what _run would come to, 0.2 microseconds sooner
    elements, groups = None, groups_of(groups)
    if not whole:
        partial, elements = _statistic_of(x, partial, indices, groups)
    return _run(x, weight, bias, eps, weight_offset, partial or 0, groups, mode, elements)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    gate: torch.Tensor | None = None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    channels_first: bool = False,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` over the last dimension; options as in :func:`rms_norm`."""
    mode = LAYER | mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    mode |= _out_mode(x, out_dtype)
    groups = groups_of(groups)
    if channels_first:
        x, gate = _channels_last(x), None if gate is None else _channels_last(gate)
        run = (x, weight, bias) if gate is None else (x, gate, weight, bias)
        norm = _run if gate is None else _gates.run
        return norm(*run, eps, weight_offset, 0, groups, mode, None).movedim(-1, 1)
    if gate is not None:
        return _gates.run(x, gate, weight, bias, eps, weight_offset, 0, groups, mode, None)
    return _run(x, weight, bias, eps, weight_offset, 0, groups, mode)


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    *,
    bias: torch.Tensor | None = None,
    gate: torch.Tensor | None = None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    partial: int | float | None = None,
    indices: Iterable[int] | None = None,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``s = x + residual`` and its :func:`rms_norm`, in one pass: ``(y, s)``.

    s has residual's dtype, which is x's or, with 16-bit x, float32; the norm is that of the rounded s, as in eager models. The options
    are those of :func:`rms_norm`. An out_dtype beside a residual of another dtype than x's has no gradients.

    >>> import torch
    >>> y, s = add_rms_norm(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 2.0]), eps=0.0)
    >>> s
    tensor([3., 4.])
    """
    mode = mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    mode, groups = mode | _out_mode(x, out_dtype), groups_of(groups)
    partial, elements = _statistic_of(x, partial, indices, groups)
    return _run_add(x, residual, gate, weight, bias, eps, weight_offset, partial, groups, mode, elements)


def add_layer_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    gate: torch.Tensor | None = None,
    gate_place: str = "after",
    activation: str = "silu",
    rounding: str = "after_weight",
    weight_offset: float = 0.0,
    groups: int = 1,
    eps_place: str = "inside",
    gain_rounding: str = "wide",
    steps: str = "wide",
    out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``s = x + residual`` and its :func:`layer_norm`, in one pass: ``(y, s)``; as :func:`add_rms_norm`."""
    mode = LAYER | mode_of(rounding, eps_place, gain_rounding, steps) | gate_mode(gate is not None, gate_place, activation)
    mode, groups = mode | _out_mode(x, out_dtype), groups_of(groups)
    return _run_add(x, residual, gate, weight, bias, eps, weight_offset, 0, groups, mode, None)


# ---- adaLN ----


def modulate(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor | None = None,
    eps: float = 1e-6,
    *,
    kind: str = "layer",
    rounding: str = "before_weight",
    weight_offset: float = 1.0,
    gain_rounding: str = "as_weight",
) -> torch.Tensor:
    """adaLN: ``norm(x) * (1 + scale) + shift`` with a scale and shift for each sample, or for each row; all have gradients.

    x is (samples, ..., n). scale and shift are (samples, n) or (samples, 1, ..., n), also parts of a wider tensor (``chunk``), which
    are not copied; or have x's shape. They are of x's dtype or float32. kind: "layer" or "rms". The defaults round where models do
    that write ``norm(x) * (1 + scale) + shift`` in x's dtype; the other options are those of :func:`layer_norm`.

    >>> import torch
    >>> x, parts = torch.tensor([[[1.0, 3.0], [2.0, 6.0]]]), torch.tensor([[1.0, 1.0, 0.0, 5.0]])
    >>> modulate(x, *parts.chunk(2, dim=-1), eps=0.0)
    tensor([[[-2.,  7.],
             [-2.,  7.]]])
    """
    mode = modulation_kind(kind) | mode_of(rounding, "inside", gain_rounding)
    per_sample = modulation_per_sample(x.shape, scale.shape, None if shift is None else shift.shape)
    weight, bias = (None if t is None else t.reshape(-1, x.shape[-1]) for t in (scale, shift))
    if per_sample:  # the operators have a weight for each index of the last leading dimension
        samples = (x.flatten(1, -2) if x.dim() > 2 else x.unsqueeze(1)).transpose(0, 1)
    else:
        samples = x.reshape(1, -1, x.shape[-1])
    y = _run(samples, weight, bias, eps, weight_offset, 0, 1, mode)
    return (y.transpose(0, 1) if per_sample else y).reshape(x.shape)
