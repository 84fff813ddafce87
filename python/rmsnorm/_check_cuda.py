# SPDX-License-Identifier: MIT
"""``python -m rmsnorm check --device cuda``: the operations on the GPU against float64 formulas there, a row alone against the
same row in a batch, and a run against its repetition, to the bit."""
from __future__ import annotations

import torch

from . import torch as ours

SHAPES = [(1, 1), (3, 7), (5, 64), (33, 100), (300, 128), (64, 4096), (7, 8192), (2, 20000)]
# The unit of rounding of each type, and that of the arithmetic behind it.
UNITS = {torch.float32: 2.0**-24, torch.float64: 2.0**-53, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def _formula(x, w, layer):
    a = x - x.mean(-1, keepdim=True) if layer else x
    return a * (a.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w


def _gradients(function, x, w, dy):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = function(x, w)
    return [y.detach(), *torch.autograd.grad(y, (x, w), dy)]


def _own(layer):
    return (lambda x, w: ours.layer_norm(x, w, None, 1e-5)) if layer else (lambda x, w: ours.rms_norm(x, w, 1e-5))


def _worst(dtype, rows, cols, layer, generator) -> tuple[float, bool]:
    """The largest error of y, dx and dweight as a share of what is allowed, and whether bits repeat."""
    x, dy, w = (
        torch.randn(s, generator=generator, device="cuda").to(dtype) for s in ((rows, cols), (rows, cols), (cols,))
    )
    got, again = (_gradients(_own(layer), x, w, dy) for _ in range(2))
    right = _gradients(lambda x, w: _formula(x, w, layer), x.double(), w.double(), dy.double())
    repeats = all(torch.equal(a, b) for a, b in zip(got, again))
    repeats &= torch.equal(_own(layer)(x[rows // 2], w), got[0][rows // 2])
    arithmetic = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    worst = 0.0
    for g, r in zip(got, right):
        allowed = (UNITS[dtype] + 64 * arithmetic) * (r.abs() + r.square().mean().sqrt()) + 64 * arithmetic
        worst = max(worst, float(((g.double() - r).abs() / allowed).max()))
    return worst, repeats


def check() -> bool:
    """Prints one line for each type; True if all is well."""
    print(torch.cuda.get_device_name())
    generator, good = torch.Generator("cuda").manual_seed(1), True
    for dtype in UNITS:
        seen = [_worst(dtype, rows, cols, layer, generator) for rows, cols in SHAPES for layer in (False, True)]
        worst, repeats = max(w for w, _ in seen), all(r for _, r in seen)
        well = worst <= 1 and repeats
        good &= well
        bits = "bits repeat" if repeats else "bits differ"
        print(f"{str(dtype)[6:]:9} error {worst:5.2f} of what is allowed   {bits}   {'ok' if well else 'WRONG'}")
    return good
