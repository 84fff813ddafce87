# SPDX-License-Identifier: MIT
"""The formula of the norms in float64, and tests that are the same on every device: those of the CPU and of CUDA import them."""
import torch

import rmsnorm.torch as rt


def formula(x, weight=None, eps=1e-6, bias=None, weight_offset=0.0, partial=None, indices=None, groups=1, outside=False, layer=False):
    x = x.double()
    a = x.unflatten(-1, (groups, -1))
    e = a - a.mean(-1, keepdim=True) if layer else a
    members = e[..., list(indices)] if indices else e[..., :partial]
    s = members.square().mean(-1, keepdim=True)
    h = (e / (s.sqrt() + eps) if outside else e * (s + eps).rsqrt()).reshape(x.shape)
    if weight is not None:
        h = h * (weight.double() + weight_offset)
    return h if bias is None else h + bias.double()


def test_add_norm():
    x, r, w = torch.randn(4, 32).bfloat16(), torch.randn(4, 32), torch.randn(32)
    y, s = rt.add_rms_norm(x, r.bfloat16(), w, 1e-6)
    assert torch.equal(s, x + r.bfloat16()) and torch.equal(y, rt.rms_norm(s, w, 1e-6))
    y, s = rt.add_rms_norm(x, r, w, 1e-6)
    assert s.dtype == torch.float32 and torch.equal(s, x.float() + r) and y.dtype == torch.bfloat16
    y, s = rt.add_layer_norm(x, r.bfloat16(), w, None, 1e-6)
    assert torch.equal(y, rt.layer_norm(s, w, None, 1e-6))


def test_wide_residual_gradients():
    x = torch.randn(4, 32).bfloat16().requires_grad_()
    r, w = torch.randn(4, 32, requires_grad=True), torch.randn(32, requires_grad=True)
    y, s = rt.add_rms_norm(x, r, w, 1e-5)
    (y.float().square().sum() + s.sin().sum()).backward()
    assert x.grad.dtype == torch.bfloat16 and r.grad.dtype == torch.float32
    assert torch.equal(x.grad, r.grad.bfloat16())


def test_half_precision_weight_gradient_does_not_lose_rows():
    x, dy = torch.ones(20000, 8).bfloat16(), torch.ones(20000, 8).bfloat16()
    w = torch.ones(8).bfloat16().requires_grad_()
    rt.rms_norm(x, w, 0.0).backward(dy)
    assert torch.equal(w.grad, torch.full((8,), 20000.0).bfloat16())
