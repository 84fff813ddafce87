# SPDX-License-Identifier: MIT
"""Norms over the channels of images: the bits of contiguous rows, without a copy of the images."""
import copy
import pickle

import numpy as np
import pytest
import torch

import rmsnorm
import rmsnorm.nn
import rmsnorm.torch
from rmsnorm import _core

SHAPES = [(2, 48, 5, 7), (1, 48, 5, 7), (3, 40, 9), (2, 33, 3, 2, 5)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
NORMS = {"rms": rmsnorm.torch.rms_norm, "layer": rmsnorm.torch.layer_norm}


def _parts(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = (shape, shape[1:2], shape[1:2], shape)
    return [torch.randn(size, generator=generator).to(dtype) for size in sizes]


def _gradients(norm, x, w, b, dy, **options):
    leaves = [t.detach().clone().requires_grad_() for t in (x, w, b)]
    y = norm(leaves[0], leaves[1], bias=leaves[2], **options)
    return y.detach(), torch.autograd.grad(y, leaves, dy)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", NORMS)
def test_bits_of_contiguous_rows_and_no_copies(kind, shape, dtype):
    x, w, b, dy = _parts(shape, dtype)
    copies = _core.copies()
    y, grads = _gradients(NORMS[kind], x, w, b, dy, channels_first=True)
    assert _core.copies() == copies
    assert y.stride() == grads[0].stride() == x.stride()
    rows = [t.movedim(1, -1).contiguous() for t in (x, dy)]
    expected, expected_grads = _gradients(NORMS[kind], rows[0], w, b, rows[1])
    assert torch.equal(y.movedim(1, -1), expected)
    assert torch.equal(grads[0].movedim(1, -1), expected_grads[0])
    for got, right in zip(grads[1:], expected_grads[1:]):
        torch.testing.assert_close(got, right)


def test_gradients_in_another_layout_are_read_in_place():
    x, w, b, dy = _parts((2, 32, 6, 5), torch.float32)
    copies = _core.copies()
    _, grads = _gradients(NORMS["layer"], x, w, b, dy.contiguous(memory_format=torch.channels_last), channels_first=True)
    assert _core.copies() == copies
    for got, right in zip(grads, _gradients(NORMS["layer"], x, w, b, dy, channels_first=True)[1]):
        assert torch.equal(got, right)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMS)
def test_rows_of_any_width_are_read_in_place(kind, dtype):
    x, w, b, dy = _parts((1, 30000, 3, 7), dtype)
    copies = _core.copies()
    y, grads = _gradients(NORMS[kind], x, w, b, dy, channels_first=True)
    assert _core.copies() == copies
    rows = [t.movedim(1, -1).contiguous() for t in (x, dy)]
    expected, expected_grads = _gradients(NORMS[kind], rows[0], w, b, rows[1])
    assert torch.equal(y.movedim(1, -1), expected)
    assert torch.equal(grads[0].movedim(1, -1), expected_grads[0])
    for got, right in zip(grads[1:], expected_grads[1:]):
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize("place", ["after", "before"])
@pytest.mark.parametrize("kind", NORMS)
def test_gate(kind, place):
    x, w, b, z = _parts((2, 24, 3, 5), torch.bfloat16)
    got = NORMS[kind](x, w, bias=b, gate=z, gate_place=place, channels_first=True)
    rows = NORMS[kind](x.movedim(1, -1).contiguous(), w, bias=b, gate=z.movedim(1, -1).contiguous(), gate_place=place)
    assert torch.equal(got, rows.movedim(-1, 1))


def test_options_reach_the_norm():
    x, w, b, _ = _parts((2, 24, 3, 5), torch.bfloat16)
    options = dict(rounding="before_weight", weight_offset=1.0, partial=0.5, groups=2, eps_place="outside")
    got = rmsnorm.torch.rms_norm(x, w, 1e-3, bias=b, channels_first=True, **options)
    assert torch.equal(got, rmsnorm.torch.rms_norm(x.movedim(1, -1), w, 1e-3, bias=b, **options).movedim(-1, 1))


def test_against_torch():
    x, w, b, _ = _parts((2, 48, 5, 7), torch.float32)
    got = rmsnorm.torch.layer_norm(x, w, b, channels_first=True)
    torch.testing.assert_close(got, torch.nn.functional.layer_norm(x.permute(0, 2, 3, 1), (48,), w, b).permute(0, 3, 1, 2))


def test_operators_pass_opcheck():
    x, w, b, dy = (t.movedim(1, -1) if t.dim() > 1 else t for t in _parts((2, 6, 3, 5), torch.float32))
    torch.library.opcheck(torch.ops.rmsnorm._norm.default, (x, w, b, 1e-5, 0.0, 0, 1, 1))
    y, stats = torch.ops.rmsnorm._norm_stats(x, w, b, 1e-5, 0.0, 0, 1, 1)
    torch.library.opcheck(torch.ops.rmsnorm._norm_backward.default, (dy, x, w, stats, 7, 1e-5, 0.0, 0, 1, 1))


def test_second_derivatives():
    x, w, b, _ = (t.requires_grad_() for t in _parts((2, 4, 2, 3), torch.float64))
    torch.autograd.gradgradcheck(lambda *t: rmsnorm.torch.layer_norm(*t, channels_first=True), (x, w, b))


def test_compile():
    x, w, b, dy = _parts((2, 16, 4, 4), torch.float32)

    def norm(x, w, bias):
        return rmsnorm.torch.layer_norm(x, w, bias, channels_first=True)

    y, grads = _gradients(norm, x, w, b, dy)
    compiled = torch.compile(norm, fullgraph=True, backend="aot_eager")
    compiled_y, compiled_grads = _gradients(compiled, x, w, b, dy)
    assert torch.equal(y, compiled_y) and all(map(torch.equal, grads, compiled_grads))


@pytest.mark.parametrize("name", ["RMSNorm", "LayerNorm"])
def test_modules(name):
    made = getattr(rmsnorm.nn, f"ChannelsFirst{name}")(16, eps=1e-6)
    assert isinstance(made, getattr(torch.nn, name))
    x = torch.randn(2, 16, 4, 3)
    rows = getattr(torch.nn, name)(16, eps=1e-6)
    for module in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        torch.testing.assert_close(module(x), rows(x.movedim(1, -1)).movedim(-1, 1))
    with pytest.raises(RuntimeError, match="is expected at its end"):
        made(x.movedim(1, -1))


def test_errors():
    for norm in NORMS.values():
        with pytest.raises(ValueError, match="dimension 1"):
            norm(torch.ones(4), channels_first=True)


def test_numpy_reads_moved_axes_in_place():
    x = np.random.default_rng(0).standard_normal((2, 48, 5, 7)).astype(np.float32)
    copies = _core.copies()
    y = rmsnorm.layer_norm(np.moveaxis(x, 1, -1))
    assert _core.copies() == copies
    assert np.array_equal(y, rmsnorm.layer_norm(np.ascontiguousarray(np.moveaxis(x, 1, -1))))
    wide = np.random.default_rng(0).standard_normal((1, 20000, 3, 3)).astype(np.float32)
    y = rmsnorm.layer_norm(np.moveaxis(wide, 1, -1))
    assert _core.copies() == copies
    assert np.array_equal(y, rmsnorm.layer_norm(np.ascontiguousarray(np.moveaxis(wide, 1, -1))))
    y = rmsnorm.layer_norm(x[..., ::2])  # rows that do not lie next to each other
    assert _core.copies() > copies
    assert np.array_equal(y, rmsnorm.layer_norm(np.ascontiguousarray(x[..., ::2])))


# ---- rmsnorm.patch ----


class ImageNorm(torch.nn.LayerNorm):
    """As the models for images write it: channels last, the norm, and back."""

    def __init__(self, width, dims, **options):
        super().__init__(width, **options)
        self.order = (0, *range(2, dims), 1)
        self.inverse = (0, dims - 1, *range(1, dims - 1))

    def forward(self, x):
        return super().forward(x.permute(self.order)).permute(self.inverse)


class StepwiseNorm2d(torch.nn.Module):
    """Every step rounded to the type of the data."""

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.ones(width)), torch.nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        x = centred / torch.sqrt(centred.pow(2).mean(1, keepdim=True) + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


@pytest.mark.parametrize("dims", [3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_patch_finds_norms_over_channels(dims, dtype):
    model = torch.nn.Sequential(ImageNorm(24, dims, dtype=dtype))
    torch.nn.init.normal_(model[0].weight)
    x = torch.randn(2, 24, *(4, 6)[: dims - 2]).to(dtype)
    before = model(x)
    report = rmsnorm.patch(model)
    assert report.patched[0].spec.image_dims == dims and "channels" in str(report)
    copies = _core.copies()
    torch.testing.assert_close(model(x), before)
    assert _core.copies() == copies and model(x).stride() == x.stride()
    with pytest.raises(RuntimeError):  # that of the class itself: another number of dimensions was not tried
        model(torch.randn(2, 24, *(3,) * (dims - 1)).to(dtype))
    report.undo()
    assert torch.equal(model(x), before)


def test_patch_finds_stepwise_norms_over_channels_and_leaves_others_alone():
    report = rmsnorm.patch(torch.nn.Sequential(StepwiseNorm2d(24), torch.nn.GroupNorm(1, 24)))
    (stepwise,), (other,) = report.patched, report.left_alone
    assert (stepwise.spec.kind, stepwise.spec.steps, stepwise.spec.image_dims) == ("layer", "all", 4)
    assert other.class_name == "GroupNorm" and other.reason == "no arithmetic of this library gives its bits"
