# SPDX-License-Identifier: MIT
"""Results of the operators without values: what torch.compile and the meta device see."""
from __future__ import annotations

import torch

from ._options import DEFAULTS, LAYER, OUT, Q8_0

WANT_DX, WANT_DWEIGHT, WANT_DBIAS, BIAS_F32, BIAS_PER_HEAD, WANT_DRESIDUAL, WANT_DGATE = 1, 2, 4, 8, 16, 32, 64


_RESULTS = {0: None, 1: torch.float32, 3: torch.bfloat16, 4: torch.float16}


def result_dtype(x, mode):
    """The type of the result in this mode."""
    return _RESULTS[mode // OUT] or x.dtype


def data_dtype(x, dy, mode):
    """The data type of a backward: dy's, since x may be a wider sum, unless the result has a type of its own."""
    return x.dtype if mode >= OUT else dy.dtype


def empty_result(x, options):
    return torch.empty_like(x, dtype=result_dtype(x, options[4]))


def empty_stats(x, groups, mode):
    lead = torch.empty_like(x.select(-1, 0), dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)
    groups = groups if groups > 1 else 1
    return torch.empty_strided(
        (2 if mode & LAYER else 1, *lead.shape, groups),
        (lead.numel() * groups, *(s * groups for s in lead.stride()), 1),
        dtype=lead.dtype,
        device=x.device,
    )


def on_one_device(fake):
    """A fake that refuses tensors of several devices: torch takes it for the kernel where one of them is on the meta device."""

    def checked(*arguments):
        devices = dict.fromkeys(str(a.device) for a in arguments if isinstance(a, torch.Tensor))
        if len(devices) > 1:
            raise RuntimeError(f"rmsnorm: the tensors are on different devices: {', '.join(devices)}")
        return fake(*arguments)

    return checked


def _check_weight(x, weight, name):
    if weight is not None and tuple(weight.shape) != tuple(x.shape[-weight.dim() :]) or (
        weight is not None and weight.dim() not in (1, 2)
    ):
        raise RuntimeError(f"rmsnorm: {name} must have the shape (n,) or (heads, n)")


def _fake_norm(x, weight, bias, *options):
    _check_weight(x, weight, "weight")
    _check_weight(x, bias, "bias")
    return empty_result(x, options)


def _fake_weighted_norm(x, weight, eps):
    return _fake_norm(x, weight, None, eps, *DEFAULTS)


def _fake_norm_stats(x, weight, bias, *options):
    return _fake_norm(x, weight, bias, *options), empty_stats(x, *options[3:5])


def _fake_stats(x, *options):
    return empty_stats(x, *options[3:5])


def _fake_add_norm(x, residual, gate, weight, bias, *options):
    if residual.shape != x.shape:
        raise RuntimeError("rmsnorm: residual must have the shape of x")
    if gate is not None:
        _check_gate(x, gate)
    return _fake_norm(x, weight, bias, *options), torch.empty_like(x, dtype=residual.dtype)


def _fake_add_norm_stats(x, residual, gate, weight, bias, *options):
    return *_fake_add_norm(x, residual, gate, weight, bias, *options), empty_stats(x, *options[3:5])


def _check_gate(x, gate):
    if gate.shape != x.shape:
        raise RuntimeError("rmsnorm: gate must have the shape of x")
    if gate.dtype != x.dtype:
        raise RuntimeError("rmsnorm: gate must have the dtype of x")


def _fake_gated_norm(x, gate, weight, bias, *options):
    _check_gate(x, gate)
    return _fake_norm(x, weight, bias, *options)


def _fake_gated_norm_stats(x, gate, weight, bias, *options):
    return _fake_gated_norm(x, gate, weight, bias, *options), empty_stats(x, *options[3:5])


def fake_norm_backward(dy, x, weight, stats, wanted, *options):
    """A gradient that is not wanted is a tensor without elements."""
    data = data_dtype(x, dy, options[4])
    heads = weight.dim() == 2 if weight is not None else bool(wanted & BIAS_PER_HEAD)
    shape = x.shape[-2:] if heads else x.shape[-1:]

    def gradient(want, dtype):
        return x.new_empty(shape, dtype=dtype) if wanted & want else x.new_empty(0, dtype=torch.float32)

    return (
        torch.empty_like(x, dtype=data) if wanted & WANT_DX else x.new_empty(0, dtype=torch.float32),
        gradient(WANT_DWEIGHT, data if weight is None else weight.dtype),
        gradient(WANT_DBIAS, torch.float32 if wanted & BIAS_F32 else data),
    )


def _gradient_like(t, x, is_wanted):
    if is_wanted and t is None:
        raise RuntimeError("rmsnorm: there is no gate")
    return torch.empty_like(t) if is_wanted else x.new_empty(0, dtype=torch.float32)


def fake_add_norm_backward(dy, sum, dsum, gate, bias, weight, stats, wanted, *options):
    dx, dweight, dbias = fake_norm_backward(dy, sum, weight, stats, wanted, *options)
    dresidual = _gradient_like(sum, sum, wanted & WANT_DRESIDUAL)
    return dx, dresidual, _gradient_like(gate, sum, wanted & WANT_DGATE), dweight, dbias


def fake_gated_norm_backward(dy, x, gate, bias, weight, stats, wanted, *options):
    dx, dweight, dbias = fake_norm_backward(dy, x, weight, stats, wanted, *options)
    return dx, _gradient_like(gate, x, wanted & WANT_DGATE), dweight, dbias


def quantised_bytes(code, cols):
    """Bytes of a row as q."""
    return cols // 32 * 34 if code == Q8_0 else cols


def empty_rows(x, width, dtype):
    """(leading dimensions of x, width), dense in x's order of rows."""
    lead = torch.empty_like(x.select(-1, 0))
    strides = (*(s * width for s in lead.stride()), 1)
    return torch.empty_strided((*lead.shape, width), strides, dtype=dtype, device=x.device)


def fake_quantised_norm(x, residual, gate, scale, dtype, block, scale_least, with_y, weight, bias, *options):
    if residual is not None and residual.shape != x.shape:
        raise RuntimeError("rmsnorm: residual must have the shape of x")
    if gate is not None:
        _check_gate(x, gate)
    if block < 0:
        raise RuntimeError("rmsnorm: block must be at least 1")
    y, nothing = _fake_norm(x, weight, bias, *options), x.new_empty(0, dtype=torch.float32)
    return (
        empty_rows(x, quantised_bytes(dtype, x.shape[-1]), torch.uint8),
        empty_rows(x, x.shape[-1] // block, torch.float32) if block else nothing,
        y if with_y else nothing.clone(),
        nothing.clone() if residual is None else torch.empty_like(x, dtype=residual.dtype),
    )


def empty_numbers(x, doubles, groups):
    """What the operators in two halves exchange, of each row: dense in the order of the indices on every process."""
    return x.new_empty((*x.shape[:-1], doubles * (groups if groups > 1 else 1)), dtype=torch.float64)


def _fake_split_stats(x, *options):
    return empty_numbers(x, 3, options[3])


def _fake_split_merge(a, b):
    return a.new_empty(a.shape)


def _fake_split_apply(x, stats, weight, bias, *options):
    return _fake_norm(x, weight, bias, *options)


def _fake_split_backward_stats(dy, x, stats, weight, *options):
    return empty_numbers(x, 2, options[3])


def _fake_split_backward_apply(dy, x, stats, sums, weight, wanted, *options):
    return fake_norm_backward(dy, x, weight, stats, wanted, *options)


FAKES = {
    "_norm": _fake_norm,
    "_weighted_norm": _fake_weighted_norm,
    "_norm_stats": _fake_norm_stats,
    "_stats": _fake_stats,
    "_add_norm": _fake_add_norm,
    "_add_norm_stats": _fake_add_norm_stats,
    "_gated_norm": _fake_gated_norm,
    "_gated_norm_stats": _fake_gated_norm_stats,
    "_gated_norm_backward": fake_gated_norm_backward,
    "_norm_backward": fake_norm_backward,
    "_add_norm_backward": fake_add_norm_backward,
    "_quantised_norm": fake_quantised_norm,
    "_split_stats": _fake_split_stats,
    "_split_merge": _fake_split_merge,
    "_split_apply": _fake_split_apply,
    "_split_backward_stats": _fake_split_backward_stats,
    "_split_backward_apply": _fake_split_backward_apply,
}
