# SPDX-License-Identifier: MIT
"""Options that every front end spells alike, and the numbers that the C side takes for them."""
from __future__ import annotations

import numbers
from collections.abc import Callable

from ._core import partial_count

LAYER, EPS_OUTSIDE, BEFORE_WEIGHT = 1, 2, 4
TORCH_SUMS = 8  # squares are added in the order of torch's CPU kernels; RMSNorm on the CPU, for rmsnorm.patch
GATE_AFTER, GATE_BEFORE, SIGMOID = 16, 32, 64
GAIN_AS_WEIGHT = 128
OUT = 256  # times the code of a result's type, where it is not x's
DTYPE_CODES = {"float32": 1, "float64": 2, "bfloat16": 3, "float16": 4}
DEFAULTS = (0.0, 0, 1, 0, None)  # of the operators' options behind eps: weight_offset, partial, groups, mode, indices
ROUNDINGS = {"after_weight": 0, "before_weight": BEFORE_WEIGHT}
EPS_PLACES = {"inside": 0, "outside": EPS_OUTSIDE}
GATE_PLACES = {"after": GATE_AFTER, "before": GATE_BEFORE}
GAIN_ROUNDINGS = {"wide": 0, "as_weight": GAIN_AS_WEIGHT}
ACTIVATIONS = {"silu": 0, "sigmoid": SIGMOID}
TOLERANCE = 0.005  # of rmsnorm.patch: a rounding in another place makes a quarter of 16-bit results differ
_LARGEST = 2**63 - 1  # that the C side takes
_MODES = {(r, e): i | j for r, i in ROUNDINGS.items() for e, j in EPS_PLACES.items()}


def _choice(name: str, value: str, known: dict[str, int]) -> int:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, known))}")
    return known[value]


def mode_of(rounding: str, eps_place: str, gain_rounding: str = "wide") -> int:
    gain = 0 if gain_rounding == "wide" else _choice("gain_rounding", gain_rounding, GAIN_ROUNDINGS)
    try:
        return _MODES[rounding, eps_place] | gain
    except (KeyError, TypeError):
        return _choice("rounding", rounding, ROUNDINGS) | _choice("eps_place", eps_place, EPS_PLACES) | gain


def out_mode(out_dtype: str, x_dtype: str) -> int:
    """For a result of a type of its own; both are names. The types of 64 bits keep to themselves."""
    if out_dtype == x_dtype:
        return 0
    if out_dtype not in DTYPE_CODES or "float64" in (out_dtype, x_dtype):
        raise ValueError(f"out_dtype is {out_dtype}; with x of {x_dtype} it must be {_results_of(x_dtype)}")
    return OUT * DTYPE_CODES[out_dtype]


def _results_of(x_dtype: str) -> str:
    return "float64" if x_dtype == "float64" else "float32, bfloat16 or float16"


def gate_mode(has_gate: bool, gate_place: str, activation: str) -> int:
    """Options of a gate other than the defaults mean nothing without one, and are refused."""
    mode = _choice("gate_place", gate_place, GATE_PLACES) | _choice("activation", activation, ACTIVATIONS)
    if has_gate:
        return mode
    for name, value, default in (("gate_place", gate_place, "after"), ("activation", activation, "silu")):
        if value != default:
            raise ValueError(f"{name} is {value!r}, but there is no gate")
    return 0


def groups_of(groups: int) -> int:
    if type(groups) is int and groups == 1:
        return 1
    if isinstance(groups, bool) or not hasattr(groups, "__index__"):
        raise TypeError(f"groups must be an int, not {type(groups).__name__}")
    if not 1 <= groups <= _LARGEST:
        raise ValueError(f"groups is {groups}; it must be at least 1 and divide the last dimension")
    return int(groups) if isinstance(groups, numbers.Integral) else groups  # a symbol of torch.export


def partial_of(
    partial: int | float | None, cols: int, groups: int, count: Callable[[int, float], int] = partial_count
) -> int:
    """How many leading elements enter the statistic: 0 stands for all. A float is a share of the row (of the group).

    count: gives the number of elements for a share.
    """
    if partial is None:
        return 0
    if isinstance(partial, bool) or not isinstance(partial, numbers.Real):
        raise TypeError(f"partial must be an int (elements) or a float (share of the row), not {type(partial).__name__}")
    if not isinstance(partial, numbers.Integral):
        groups = groups_of(groups)
        if cols % groups:
            raise ValueError(f"groups is {groups}; it must be at least 1 and divide the last dimension")
        return count(cols // groups, float(partial))
    if not 1 <= partial <= _LARGEST:
        raise ValueError(f"partial is {partial}; it must be at least 1 and at most the elements of a row (of a group)")
    return int(partial)
