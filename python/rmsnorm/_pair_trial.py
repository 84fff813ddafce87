# SPDX-License-Identifier: MIT
"""The trial of a norm of queries and keys, ``forward(query_states, key_states)``: both are brought to the L2 norm sqrt(n), bounded
from below by the eps of their type, and the keys are multiplied by a factor for each head, the module's only parameter. Zaya's.
"""
from __future__ import annotations

import copy
import inspect

import torch

from ._spec import Spec, Trial, compare, random_rows
from .torch import rms_norm

_SPEC = Spec("rms", "before_weight", 0.0, "", "rmsnorm", steps="all", eps_place="clamp")


def _width(module) -> int:
    """Of a head: the module's only float is its root."""
    (root,) = (v for v in vars(module).values() if type(v) is float)
    return round(root * root)


def is_pair(module) -> bool:
    names = list(inspect.signature(module.forward).parameters)
    parameters = list(module.parameters())
    alike = len(names) == 2 and names[0].startswith("query") and names[1].startswith("key")
    return alike and len(parameters) == 1 and parameters[0].dim() == 1 and not list(module.buffers())


def run(module, queries, keys):
    """The module's result on this library."""
    (factor,) = module.parameters()
    eps = torch.finfo(queries.dtype).eps * queries.shape[-1] ** -0.5
    queries, keys = (rms_norm(t, eps=eps, eps_place="clamp", steps="all") for t in (queries, keys))
    return queries, keys * factor[:, None]


def served(module, trial: Trial, device: str, inputs, named) -> tuple | None:
    """What run takes for a call behind the module, if it is one of those that were tried."""
    (factor,) = module.parameters()
    if len(inputs) != 2 or named:
        return None
    if any(t.dim() != 4 or t.shape[-1] != _width(module) for t in inputs):
        return None
    return inputs if all(t.dtype is factor.dtype and t.dtype in trial.dtypes and t.device.type == device for t in inputs) else None


def find(module, tolerance) -> Trial:
    (own,) = module.parameters()
    dtypes = tuple(dict.fromkeys((torch.bfloat16, torch.float32, own.dtype)))
    differing = compared = 0
    for dtype in dtypes:
        generator = torch.Generator("cpu").manual_seed(20261116)
        tried = copy.deepcopy(module).to(dtype=dtype).eval()
        (factor,) = tried.parameters()
        factor.data = random_rows(factor.shape, dtype, factor.device, generator)
        shapes = ((2, 9, heads, _width(module)) for heads in (3 * len(factor), len(factor)))
        inputs = [random_rows(shape, dtype, factor.device, generator) for shape in shapes]
        inputs[0][0, 0] = 0  # rows that the bound is for
        for got, expected in zip(run(tried, *inputs), tried(*inputs)):
            count, near = compare(got, expected)
            wide = dtype in (torch.float32, torch.float64) and tolerance > 0
            if not near or not (wide or count <= tolerance * got.numel()):
                return Trial(None, "no arithmetic of this library gives its queries and keys")
            if dtype is torch.bfloat16:
                differing, compared = differing + count, compared + got.numel()
    return Trial(_SPEC, "", differing, compared, dtypes)
