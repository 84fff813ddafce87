# SPDX-License-Identifier: MIT
"""The operators' kernels in Python, for the CPU: they reach the library through ``_core``'s functions for arrays.

They take the place of the C++ kernels where those cannot be used, and are what those are compared with at import.
"""
from __future__ import annotations

import torch

from . import _core
from ._options import DEFAULTS, QUANTISED_CODES
from ._torch_fakes import WANT_DBIAS, WANT_DGATE, WANT_DRESIDUAL, WANT_DWEIGHT, WANT_DX
from ._torch_fakes import empty_numbers, empty_result, empty_stats, fake_add_norm_backward, fake_gated_norm_backward, fake_norm_backward
from ._torch_fakes import fake_quantised_norm

_DTYPES = {torch.float32: 1, torch.float64: 2, torch.bfloat16: 3, torch.float16: 4}


def _describe(t):
    return None if t is None else (t.data_ptr(), _code(t), tuple(t.shape), t.stride())


def _describe_bytes(t):
    return t.data_ptr(), QUANTISED_CODES["int8"], tuple(t.shape), t.stride()


def _code(t):
    try:
        return _DTYPES[t.dtype]
    except KeyError:
        raise RuntimeError(f"rmsnorm: the dtype {t.dtype} is not offered") from None


def _statistics(stats):
    """r and the mean."""
    return _describe(stats[0]), _describe(stats[1]) if stats.shape[0] > 1 else None


def _run(function, *arguments):
    *arguments, indices = arguments
    try:
        function(*arguments, None if indices is None else indices.tolist(), -torch.get_num_threads())
    except (TypeError, ValueError) as error:
        raise RuntimeError(f"rmsnorm: {error}") from None


def _python_forward(x, residual, weight, bias, y, total, stats, options, gate=None):
    rstd, mean = (None, None) if stats is None else _statistics(stats)
    tensors = (_describe(t) for t in (x, residual, gate, weight, bias, y, total))
    _run(_core.forward, *tensors, rstd, mean, *options)


def _python_norm(x, weight, bias, *options):
    y = empty_result(x, options)
    _python_forward(x, None, weight, bias, y, None, None, options)
    return y


def _python_weighted_norm(x, weight, eps):
    return _python_norm(x, weight, None, eps, *DEFAULTS)


def _python_norm_stats(x, weight, bias, *options):
    y, stats = empty_result(x, options), empty_stats(x, *options[3:5])
    _python_forward(x, None, weight, bias, y, None, stats, options)
    return y, stats


def _python_stats(x, *options):
    stats = empty_stats(x, *options[3:5])
    _python_forward(x, None, None, None, None, None, stats, options)
    return stats


def _python_add_norm(x, residual, gate, weight, bias, *options):
    y, total = empty_result(x, options), torch.empty_like(x, dtype=residual.dtype)
    _python_forward(x, residual, weight, bias, y, total, None, options, gate)
    return y, total


def _python_add_norm_stats(x, residual, gate, weight, bias, *options):
    y, total, stats = empty_result(x, options), torch.empty_like(x, dtype=residual.dtype), empty_stats(x, *options[3:5])
    _python_forward(x, residual, weight, bias, y, total, stats, options, gate)
    return y, total, stats


def _python_gated_norm(x, gate, weight, bias, *options):
    y = empty_result(x, options)
    _python_forward(x, None, weight, bias, y, None, None, options, gate)
    return y


def _python_gated_norm_stats(x, gate, weight, bias, *options):
    y, stats = empty_result(x, options), empty_stats(x, *options[3:5])
    _python_forward(x, None, weight, bias, y, None, stats, options, gate)
    return y, stats


def _python_norm_backward(dy, x, weight, stats, wanted, *options):
    dx, dweight, dbias = results = fake_norm_backward(dy, x, weight, stats, wanted, *options)
    _python_backward(dy, x, None, weight, stats, wanted, (dx, None, None, dweight, dbias), options)
    return results


def _python_add_norm_backward(dy, total, dsum, gate, bias, weight, stats, wanted, *options):
    results = fake_add_norm_backward(dy, total, dsum, gate, bias, weight, stats, wanted, *options)
    _python_backward(dy, total, dsum, weight, stats, wanted, results, options, gate, bias)
    return results


def _python_gated_norm_backward(dy, x, gate, bias, weight, stats, wanted, *options):
    dx, dgate, dweight, dbias = results = fake_gated_norm_backward(dy, x, gate, bias, weight, stats, wanted, *options)
    _python_backward(dy, x, None, weight, stats, wanted, (dx, None, dgate, dweight, dbias), options, gate, bias)
    return results


def _python_backward(dy, x, dsum, weight, stats, wanted, results, options, gate=None, bias=None):
    inputs = (_describe(t) for t in (dy, x, dsum, gate, weight, bias))
    wants = (WANT_DX, WANT_DRESIDUAL, WANT_DGATE, WANT_DWEIGHT, WANT_DBIAS)
    outputs = (_describe(r) if wanted & want else None for r, want in zip(results, wants))
    _run(_core.backward, *inputs, *_statistics(stats), *outputs, *options)


def _python_quantised_norm(x, residual, gate, scale, dtype, block, scale_least, with_y, weight, bias, *options):
    arguments = (x, residual, gate, scale, dtype, block, scale_least, with_y, weight, bias)
    q, scales, y, total = results = fake_quantised_norm(*arguments, *options)
    inputs = (_describe(t) for t in (x, residual, gate, weight, bias))
    outputs = (_describe(y) if with_y else None, None if residual is None else _describe(total), _describe_bytes(q))
    _run(_core.forward_quantised, *inputs, *outputs, _describe(scales if block else scale), dtype, block, scale_least, *options)
    return results


def _is_empty(x):
    return x.shape[-1:] == (0,)


def _python_split_stats(x, *options):
    stats = empty_numbers(x, 3, options[3])
    if _is_empty(x):  # a shard without columns adds nothing and gets nothing
        return stats.zero_()
    _run(_core.split_forward, _describe(x), _describe(stats), None, None, None, *options)
    return stats


def _python_split_merge(a, b):
    merged, other = a.clone(memory_format=torch.contiguous_format), b.contiguous()
    try:
        _core.split_merge(_describe(merged), _describe(other))
    except (TypeError, ValueError) as error:
        raise RuntimeError(f"rmsnorm: {error}") from None
    return merged


def _python_split_apply(x, stats, weight, bias, *options):
    y = torch.empty_like(x)
    if _is_empty(x):
        return y
    _run(_core.split_forward, *(_describe(t) for t in (x, stats, weight, bias, y)), *options)
    return y


def _python_split_backward_stats(dy, x, stats, weight, *options):
    sums = empty_numbers(x, 2, options[3])
    if _is_empty(x):
        return sums.zero_()
    _run(_core.split_backward, *(_describe(t) for t in (dy, x, stats, weight, sums)), None, None, None, *options)
    return sums


def _python_split_backward_apply(dy, x, stats, sums, weight, wanted, *options):
    results = fake_norm_backward(dy, x, weight, stats, wanted, *options)
    outputs = [_describe(r) if wanted & want else None for r, want in zip(results, (WANT_DX, WANT_DWEIGHT, WANT_DBIAS))]
    if any(outputs) and not _is_empty(x):
        _run(_core.split_backward, *(_describe(t) for t in (dy, x, stats, weight, sums)), *outputs, *options)
    return results


PYTHON_KERNELS = {
    "_norm": _python_norm,
    "_weighted_norm": _python_weighted_norm,
    "_norm_stats": _python_norm_stats,
    "_stats": _python_stats,
    "_add_norm": _python_add_norm,
    "_add_norm_stats": _python_add_norm_stats,
    "_gated_norm": _python_gated_norm,
    "_gated_norm_stats": _python_gated_norm_stats,
    "_gated_norm_backward": _python_gated_norm_backward,
    "_norm_backward": _python_norm_backward,
    "_add_norm_backward": _python_add_norm_backward,
    "_quantised_norm": _python_quantised_norm,
    "_split_stats": _python_split_stats,
    "_split_merge": _python_split_merge,
    "_split_apply": _python_split_apply,
    "_split_backward_stats": _python_split_backward_stats,
    "_split_backward_apply": _python_split_backward_apply,
}
