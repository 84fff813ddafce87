# SPDX-License-Identifier: MIT
"""Options that every front end spells alike, and the numbers that the C side takes for them."""
from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence

from ._core import partial_count

LAYER, EPS_OUTSIDE, BEFORE_WEIGHT = 1, 2, 4
TORCH_SUMS = 8  # squares are added in the order of torch's CPU kernels; RMSNorm on the CPU, for rmsnorm.patch
GATE_AFTER, GATE_BEFORE, SIGMOID = 16, 32, 64
GAIN_AS_WEIGHT = 128
EPS_CLAMP = 256
STEPS = 512  # times the code of the steps
OUT = 2048  # times the code of a result's type, where it is not x's
QUANTISED_CODES = {"int8": 5, "float8_e4m3fn": 6, "float8_e5m2": 7, "q8_0": 8}
Q8_0 = QUANTISED_CODES["q8_0"]
Q8_0_ELEMENTS, Q8_0_BYTES = 32, 34  # of a block
DTYPE_CODES = {"float32": 1, "float64": 2, "bfloat16": 3, "float16": 4}
DEFAULTS = (0.0, 0, 1, 0, None)  # of the operators' options behind eps: weight_offset, partial, groups, mode, indices
ROUNDINGS = {"after_weight": 0, "before_weight": BEFORE_WEIGHT}
EPS_PLACES = {"inside": 0, "outside": EPS_OUTSIDE, "clamp": EPS_CLAMP}
GATE_PLACES = {"after": GATE_AFTER, "before": GATE_BEFORE}
GAIN_ROUNDINGS = {"wide": 0, "as_weight": GAIN_AS_WEIGHT}
STEP_FORMS = {"wide": 0, "terms": STEPS, "rstd": 2 * STEPS, "all": 3 * STEPS}
ACTIVATIONS = {"silu": 0, "sigmoid": SIGMOID}
TOLERANCE = 0.005  # of rmsnorm.patch: a rounding in another place makes a quarter of 16-bit results differ
_LARGEST = 2**63 - 1  # that the C side takes
_MODES = {(r, e): i | j for r, i in ROUNDINGS.items() for e, j in EPS_PLACES.items()}


def _choice(name: str, value: str, known: dict[str, int]) -> int:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, known))}")
    return known[value]


def mode_of(rounding: str, eps_place: str, gain_rounding: str = "wide", steps: str = "wide") -> int:
    others = 0 if gain_rounding == "wide" else _choice("gain_rounding", gain_rounding, GAIN_ROUNDINGS)
    if steps != "wide":
        others |= _choice("steps", steps, STEP_FORMS)
    try:
        return _MODES[rounding, eps_place] | others
    except (KeyError, TypeError):
        return _choice("rounding", rounding, ROUNDINGS) | _choice("eps_place", eps_place, EPS_PLACES) | others


def out_mode(out_dtype: str, x_dtype: str) -> int:
    """For a result of a type of its own; both are names. The types of 64 bits keep to themselves."""
    if out_dtype == x_dtype:
        return 0
    if out_dtype not in DTYPE_CODES or "float64" in (out_dtype, x_dtype):
        raise ValueError(f"out_dtype is {out_dtype}; with x of {x_dtype} it must be {_results_of(x_dtype)}")
    return OUT * DTYPE_CODES[out_dtype]


def quantised_block(dtype: str, block: int | None, has_scale: bool, cols: int, groups: int) -> tuple[int, int]:
    """The code of the type, and the elements that share a scale; 0: one is given, or inside."""
    code = _choice("dtype", dtype, QUANTISED_CODES)
    if block is not None and (isinstance(block, bool) or not isinstance(block, numbers.Integral)):
        raise TypeError(f"block must be an int, not {type(block).__name__}")
    if cols % groups:
        raise ValueError(f"groups is {groups}; it must be at least 1 and divide the last dimension")
    if code == Q8_0:
        if block is not None or has_scale:
            raise ValueError("q8_0 has its own blocks of 32 elements, with their scales: block and scale must be None")
        if cols // groups % Q8_0_ELEMENTS:
            raise ValueError(f"a row has {cols // groups} elements; q8_0 needs a multiple of {Q8_0_ELEMENTS}")
        return code, 0
    if has_scale:
        if block is not None:
            raise ValueError("scale is one for the tensor, and block asks for others: one of them must be None")
        return code, 0
    width = cols // groups if block is None else int(block)
    if width < 1 or (cols // groups) % width:
        raise ValueError(f"block is {width}; it must divide the {cols // groups} elements of a row (of a group)")
    return code, width


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


def modulation_kind(kind: str) -> int:
    return _choice("kind", kind, {"layer": LAYER, "rms": 0})


def modulation_per_sample(x: Sequence[int], scale: Sequence[int], shift: Sequence[int] | None) -> bool:
    """Whether the scale and shift of adaLN belong to the samples, dimension 0 of x, or to the rows. The arguments are shapes."""
    if len(x) < 2:
        raise ValueError(f"x has the shape {tuple(x)}; it needs a dimension of samples")
    of_samples = ((x[0], x[-1]), (x[0], *(1,) * (len(x) - 2), x[-1]))

    def belongs_to_samples(name: str, shape: Sequence[int]) -> bool:
        if tuple(shape) == tuple(x):
            return False
        if tuple(shape) in of_samples:
            return True
        raise ValueError(f"{name} has the shape {tuple(shape)}; {of_samples[0]}, {of_samples[1]} or {tuple(x)} is wanted")

    per_sample = belongs_to_samples("scale", scale)
    if shift is not None and belongs_to_samples("shift", shift) != per_sample:
        raise ValueError("scale and shift must both belong to the samples, or both to the rows")
    return per_sample


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
