# SPDX-License-Identifier: MIT
"""adaLN: a scale and shift for each sample, with the bits of the formula that models write."""
import pytest
import torch

import rmsnorm
import rmsnorm.nn
import rmsnorm.torch
from rmsnorm import _core

B, T, C = 3, 17, 64


def _data(dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((B, T, C), (B, 6 * C), (B, T, C))
    return [torch.randn(size, generator=generator).to(dtype) for size in sizes]


def _formula(kind, x, scale, shift):
    norm = rmsnorm.torch.layer_norm if kind == "layer" else rmsnorm.torch.rms_norm
    return norm(x, eps=1e-6) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


def _modulate(kind, x, scale, shift):
    return rmsnorm.torch.modulate(x, scale, shift, kind=kind)


def _gradients(function, kind, x, parts, dy):
    leaves = [t.detach().clone().requires_grad_() for t in (x, parts)]
    shift, scale = leaves[1].chunk(6, dim=-1)[2:4]
    y = function(kind, leaves[0], scale, shift)
    return y.detach(), torch.autograd.grad(y, leaves, dy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_bits_of_the_formula(kind, dtype):
    x, parts, dy = _data(dtype)
    y, (dx, dparts) = _gradients(_modulate, kind, x, parts, dy)
    expected, (expected_dx, expected_dparts) = _gradients(_formula, kind, x, parts, dy)
    assert torch.equal(y, expected) and torch.equal(dx, expected_dx)
    torch.testing.assert_close(dparts, expected_dparts)  # torch sums in another order
    assert y.is_contiguous()


def test_parts_of_a_wider_tensor_are_not_copied():
    x, parts, _ = _data(torch.bfloat16)
    shift, scale = parts.chunk(6, dim=-1)[:2]
    copies = _core.copies()
    rmsnorm.torch.modulate(x, scale, shift)
    assert _core.copies() == copies
    y = rmsnorm.torch.modulate(x, scale, shift.contiguous())  # one stride for both is what the library has
    assert _core.copies() == copies + 1
    assert torch.equal(y, rmsnorm.torch.modulate(x, scale, shift))


@pytest.mark.parametrize("shape", [(0, T, C), (B, 0, C), (0, C)], ids=str)
def test_nothing_to_normalise(shape):
    x = torch.empty(shape, requires_grad=True)
    scale, shift = (torch.ones(shape[0], C, requires_grad=True) for _ in range(2))
    y = rmsnorm.torch.modulate(x, scale, shift)
    assert y.shape == x.shape
    gradients = torch.autograd.grad(y.sum(), (x, scale, shift))
    assert [g.shape for g in gradients] == [x.shape, scale.shape, shift.shape]
    assert not any(g.count_nonzero() for g in gradients)


@pytest.mark.parametrize("shape", [(B, 1, C), (B, T, C)], ids=str)
def test_shapes(shape):
    x, parts, _ = _data(torch.bfloat16)
    shift, scale = (p.unsqueeze(1).expand(shape) for p in parts.chunk(6, dim=-1)[:2])
    expected = _formula("layer", x, *(p[:, 0] for p in (scale, shift)))
    assert torch.equal(rmsnorm.torch.modulate(x, scale, shift), expected)
    images = x[:, :16].reshape(B, 4, 4, C)
    if shape[1] == 1:
        got = rmsnorm.torch.modulate(images, scale.unsqueeze(1), shift.unsqueeze(1))
        assert torch.equal(got.reshape(B, 16, C), expected[:, :16])


def test_without_shift_and_with_a_wide_scale():
    x, parts, _ = _data(torch.bfloat16)
    scale = parts[:, :C].float()
    y = rmsnorm.torch.modulate(x, scale, rounding="after_weight", gain_rounding="wide")
    wide = rmsnorm.torch.layer_norm(x.float(), eps=1e-6) * (1 + scale.unsqueeze(1))
    assert torch.equal(y, wide.bfloat16())


def test_compile_and_second_derivatives():
    x, parts, dy = _data(torch.float32)
    y, grads = _gradients(_modulate, "layer", x, parts, dy)
    compiled = torch.compile(_modulate, fullgraph=True, backend="aot_eager")
    compiled_y, compiled_grads = _gradients(compiled, "layer", x, parts, dy)
    assert torch.equal(y, compiled_y) and all(map(torch.equal, grads, compiled_grads))
    leaves = [t.double().requires_grad_() for t in (x[:2, :2, :4], parts[:2, :4], parts[:2, 4:8])]
    torch.autograd.gradcheck(rmsnorm.torch.modulate, leaves)
    torch.autograd.gradgradcheck(rmsnorm.torch.modulate, leaves)


def test_the_numpy_functions_give_the_same_bits():
    x, parts, dy = _data(torch.float32)
    for kind in ("layer", "rms"):
        y, (dx, dparts) = _gradients(_modulate, kind, x, parts, dy)
        shift, scale = (p.numpy() for p in parts.chunk(6, dim=-1)[2:4])
        assert torch.equal(y, torch.from_numpy(rmsnorm.modulate(x.numpy(), scale, shift, kind=kind)))
        grads = rmsnorm.modulate_backward(dy.numpy(), x.numpy(), scale, kind=kind)
        right = (dx, dparts.chunk(6, dim=-1)[3], dparts.chunk(6, dim=-1)[2])
        assert all(torch.equal(torch.from_numpy(g), e) for g, e in zip(grads, right))


def test_module():
    x, parts, _ = _data(torch.bfloat16)
    shift, scale = parts.chunk(6, dim=-1)[:2]
    for kind in ("layer", "rms"):
        module = rmsnorm.nn.ModulatedNorm(kind=kind)
        assert torch.equal(module(x, scale, shift), _modulate(kind, x, scale, shift)) and not module.state_dict()
        assert torch.equal(module(x, scale), rmsnorm.torch.modulate(x, scale, kind=kind))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, scale, shift), module(x, scale, shift))
    with pytest.raises(ValueError, match="kind is 'group'"):
        rmsnorm.nn.ModulatedNorm(kind="group")


def test_no_tokens():
    x, parts, _ = _data(torch.float32)
    assert rmsnorm.torch.modulate(x[:, :0], parts[:, :C], parts[:, C : 2 * C]).shape == (B, 0, C)


def test_errors():
    x, parts, _ = _data(torch.float32)
    scale = parts[:, :C]
    with pytest.raises(ValueError, match="scale has the shape"):
        rmsnorm.torch.modulate(x, parts)
    with pytest.raises(ValueError, match="shift has the shape"):
        rmsnorm.torch.modulate(x, scale, scale[:1])
    with pytest.raises(ValueError, match="both"):
        rmsnorm.torch.modulate(x, scale, torch.zeros_like(x))
    with pytest.raises(ValueError, match="kind is 'group'"):
        rmsnorm.torch.modulate(x, scale, kind="group")
    with pytest.raises(ValueError, match="dimension of samples"):
        rmsnorm.torch.modulate(x[0, 0], scale)
