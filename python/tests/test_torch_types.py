# SPDX-License-Identifier: MIT
"""Results of a type of their own, a gain rounded to the weight's type, and norms that a trial finds to be so."""
import pytest
import torch

import rmsnorm
import rmsnorm.torch
from rmsnorm._options import OUT

PAIRS = [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16), (torch.float16, torch.bfloat16)]
NORMS = {"rms": rmsnorm.torch.rms_norm, "layer": rmsnorm.torch.layer_norm}


def _data(dtype, seed=0, shape=(7, 48)):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype), torch.randn(shape[-1], generator=generator)


def _gradients(function, inputs, dy):
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    y = function(*leaves)
    return y.detach(), torch.autograd.grad(y, leaves, dy)


@pytest.mark.parametrize("x_dtype, out_dtype", PAIRS, ids=str)
@pytest.mark.parametrize("kind", NORMS)
def test_forward_and_backward(kind, x_dtype, out_dtype):
    (x, w), dy = _data(x_dtype), _data(out_dtype, 1)[0]

    def norm(x, w, b):
        return NORMS[kind](x, w, bias=b, out_dtype=out_dtype)

    y, grads = _gradients(norm, (x, w, w + 1), dy)
    wide, wide_grads = _gradients(lambda x, w, b: NORMS[kind](x, w, bias=b), (x.float(), w, w + 1), dy.float())
    assert y.dtype is out_dtype and torch.equal(y, wide.to(out_dtype))
    assert grads[0].dtype is x_dtype and torch.equal(grads[0], wide_grads[0].to(x_dtype))
    assert torch.equal(grads[1], wide_grads[1]) and torch.equal(grads[2], wide_grads[2])
    with torch.no_grad():
        assert torch.equal(norm(x, w, w + 1), y)


def test_the_weight_alone_needs_a_gradient():
    """x in float32 beside dy of 16 bits is not taken for a sum that was kept wide."""
    (x, w), dy = _data(torch.float32), _data(torch.bfloat16, 1)[0]
    w.requires_grad_()
    y = rmsnorm.torch.rms_norm(x, w, out_dtype=torch.bfloat16, rounding="before_weight")
    (dw,) = torch.autograd.grad(y, w, dy)
    (right,) = torch.autograd.grad(rmsnorm.torch.rms_norm(x, w), w, dy.float())
    assert torch.equal(dw, right)


@pytest.mark.parametrize("place", ["after", "before"])
@pytest.mark.parametrize("x_dtype, out_dtype", PAIRS, ids=str)
@pytest.mark.parametrize("kind", NORMS)
def test_beside_a_gate(kind, x_dtype, out_dtype, place):
    """The gate has x's type, and so has its gradient."""
    (x, w), z, dy = _data(x_dtype), _data(x_dtype, 2)[0], _data(out_dtype, 1)[0]

    def norm(x, w, b, z, out_dtype=None):
        return NORMS[kind](x, w, bias=b, gate=z, gate_place=place, out_dtype=out_dtype)

    y, grads = _gradients(lambda *leaves: norm(*leaves, out_dtype), (x, w, w + 1, z), dy)
    wide, wide_grads = _gradients(norm, (x.float(), w, w + 1, z.float()), dy.float())
    assert y.dtype is out_dtype and torch.equal(y, wide.to(out_dtype))
    assert [g.dtype for g in grads] == [x_dtype, torch.float32, torch.float32, x_dtype]
    assert all(torch.equal(g, right.to(g.dtype)) for g, right in zip(grads, wide_grads))
    with torch.no_grad():
        assert torch.equal(norm(x, w, w + 1, z, out_dtype), y)


@pytest.mark.parametrize("place", ["after", "before"])
def test_compile_and_second_derivatives_and_forward_mode_beside_a_gate(place):
    (x, w), z, dy = _data(torch.bfloat16), _data(torch.bfloat16, 2)[0], _data(torch.float32, 1)[0]

    def norm(x, w, z):
        return rmsnorm.torch.rms_norm(x, w, gate=z, gate_place=place, out_dtype=torch.float32)

    y, grads = _gradients(norm, (x, w, z), dy)
    compiled_y, compiled_grads = _gradients(torch.compile(norm, fullgraph=True, backend="aot_eager"), (x, w, z), dy)
    assert torch.equal(y, compiled_y) and all(map(torch.equal, grads, compiled_grads))
    leaves = [t.clone().requires_grad_() for t in (x, w, z)]
    again = torch.autograd.grad(norm(*leaves), leaves, dy, create_graph=True)
    for got, right in zip(again, grads):
        torch.testing.assert_close(got, right, atol=0.04, rtol=0.02)
    directions = tuple(torch.ones_like(t) for t in (x, w, z))
    _, tangent = torch.func.jvp(norm, (x, w, z), directions)
    _, right = torch.func.jvp(norm, (x.float(), w, z.float()), tuple(d.float() for d in directions))
    assert tangent.dtype is torch.float32 and torch.equal(tangent, right)


def test_the_weight_or_the_gate_alone_needs_a_gradient():
    (x, w), z, dy = _data(torch.float32), _data(torch.float32, 2)[0], _data(torch.bfloat16, 1)[0]
    for i in (1, 2):
        leaves = [t.clone().requires_grad_(i == j) for j, t in enumerate((x, w, z))]
        found = [torch.autograd.grad(rmsnorm.torch.rms_norm(*leaves[:2], gate=leaves[2], out_dtype=dtype), leaves[i], g)[0]
                 for dtype, g in ((torch.bfloat16, dy), (None, dy.float()))]  # fmt: skip
        assert torch.equal(*found)


def test_rounded_before_the_weight_as_llama():
    x, w = _data(torch.bfloat16)
    h = rmsnorm.torch.rms_norm(x, eps=1e-6)  # rounded to bfloat16
    y = rmsnorm.torch.rms_norm(x, w, eps=1e-6, rounding="before_weight", out_dtype=torch.float32)
    assert torch.equal(y, w * h)


def test_compile_and_second_derivatives_and_forward_mode():
    (x, w), dy = _data(torch.bfloat16), _data(torch.float32, 1)[0]

    def norm(x, w):
        return rmsnorm.torch.rms_norm(x, w, out_dtype=torch.float32, weight_offset=1.0, gain_rounding="as_weight")

    y, grads = _gradients(norm, (x, w), dy)
    compiled_y, compiled_grads = _gradients(torch.compile(norm, fullgraph=True, backend="aot_eager"), (x, w), dy)
    assert torch.equal(y, compiled_y) and all(map(torch.equal, grads, compiled_grads))
    leaves = [t.clone().requires_grad_() for t in (x, w)]
    again = torch.autograd.grad(norm(*leaves), leaves, dy, create_graph=True)
    assert [g.dtype for g in again] == [torch.bfloat16, torch.float32]
    for got, right in zip(again, grads):
        torch.testing.assert_close(got, right, atol=0.04, rtol=0.02)
    _, tangent = torch.func.jvp(norm, (x, w), (torch.ones_like(x), torch.ones_like(w)))
    assert tangent.dtype is torch.float32


@pytest.mark.parametrize("x_dtype, out_dtype", PAIRS, ids=str)
def test_operators_pass_opcheck(x_dtype, out_dtype):
    (x, w), dy = _data(x_dtype), _data(out_dtype, 1)[0]
    mode = OUT * {torch.float32: 1, torch.bfloat16: 3}[out_dtype]
    torch.library.opcheck(torch.ops.rmsnorm._norm.default, (x, w, w, 1e-5, 1.0, 0, 1, mode | 128))
    _, stats = torch.ops.rmsnorm._norm_stats(x, w, w, 1e-5, 1.0, 0, 1, mode | 128)
    torch.library.opcheck(torch.ops.rmsnorm._norm_backward.default, (dy, x, w, stats, 7, 1e-5, 1.0, 0, 1, mode | 128))


@pytest.mark.parametrize("kind", NORMS)
def test_gain_in_the_type_of_the_weight(kind):
    (x, w), dy = _data(torch.bfloat16), _data(torch.bfloat16, 1)[0]
    w = w.bfloat16()
    options = dict(weight_offset=1.0, gain_rounding="as_weight")
    got = _gradients(lambda x, w: NORMS[kind](x, w, **options), (x, w), dy)
    right = _gradients(lambda x, w: NORMS[kind](x, w), (x, w + 1), dy)
    assert torch.equal(got[0], right[0]) and all(map(torch.equal, got[1], right[1]))
    assert not torch.equal(got[0], NORMS[kind](x, w, weight_offset=1.0))
    added, _ = getattr(rmsnorm.torch, f"add_{kind}_norm")(x, torch.zeros_like(x), w, **options)
    assert torch.equal(added, got[0])


def test_errors():
    x, w = _data(torch.float32)
    with pytest.raises(ValueError, match="out_dtype is float64; with x of float32"):
        rmsnorm.torch.rms_norm(x, w, out_dtype=torch.float64)
    with pytest.raises(ValueError, match="out_dtype is torch.int8"):
        rmsnorm.torch.layer_norm(x, w, out_dtype=torch.int8)
    with pytest.raises(ValueError, match="out_dtype is float32; with x of float64"):
        rmsnorm.torch.layer_norm(x.double(), out_dtype=torch.float32)
    for norm in NORMS.values():
        with pytest.raises(RuntimeError, match="gate .*dtype"):
            norm(x, w, gate=x.bfloat16(), out_dtype=torch.bfloat16)


# ---- rmsnorm.patch ----


class LlamaNorm(torch.nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.randn(width)), eps

    def forward(self, x):
        h = x.float()
        return self.weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class CastingNorm(LlamaNorm):
    """The result has the type of the rows whatever the weight's is."""

    def forward(self, x):
        h = x.float()
        return (self.weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps))).to(x.dtype)


class UnitOffsetLayerNorm(torch.nn.LayerNorm):
    """As NemotronLayerNorm1P: 1 is added in the weight's type."""

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, self.normalized_shape, self.weight + 1, self.bias, self.eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("cls, result", [(LlamaNorm, torch.float32), (CastingNorm, None)])
def test_patch_serves_wide_weights(cls, result, dtype):
    model = torch.nn.Sequential(cls(128))
    x = _data(dtype, 3, (5, 128))[0]
    before, grads = _gradients(model, (x,), dy := torch.randn(5, 128, dtype=result or dtype))
    report = rmsnorm.patch(model)
    assert dict(report.patched[0].trial.promoted)[dtype][1] is (result or dtype)
    with torch.profiler.profile() as profile:
        after, after_grads = _gradients(model, (x,), dy)
    assert any("rmsnorm::" in event.key for event in profile.key_averages())
    assert after.dtype is before.dtype and torch.equal(after, before)
    torch.testing.assert_close(after_grads, grads)
    report.undo()
    assert rmsnorm.patch(model.to(torch.bfloat16)).patched[0].trial.promoted == ()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_patch_finds_a_rounded_gain(dtype):
    model = torch.nn.Sequential(UnitOffsetLayerNorm(128)).to(dtype)
    torch.nn.init.normal_(model[0].weight)
    x = _data(dtype, 3, (5, 128))[0]
    before = model(x)
    report = rmsnorm.patch(model)
    spec = report.patched[0].spec
    assert (spec.weight_offset, spec.gain_rounding) == (1.0, "as_weight" if dtype is torch.bfloat16 else spec.gain_rounding)
    assert "in the weight's type" in str(report)
    torch.testing.assert_close(model(x), before)
