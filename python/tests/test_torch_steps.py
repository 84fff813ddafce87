# SPDX-License-Identifier: MIT
"""Norms that round at other steps, beside torch's operations as models write them, forward and backward."""
import math

import numpy as np
import pytest
import torch

import rmsnorm
import rmsnorm.torch as rt

NARROW = [torch.bfloat16, torch.float16]


def t5(x, w, b, eps):
    h = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
    return w * (h.to(w.dtype) if w.dtype in NARROW else h)


def cpmant(x, w, b, eps):
    return (x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * w


def deepseek_v4(x, w, b, eps):
    return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps).to(x.dtype)


def image_gpt(x, w, b, eps):
    return x / torch.sqrt(torch.mean(torch.square(x), dim=-1, keepdim=True) + eps) * w


def vit_det(x, w, b, eps):
    mean = x.mean(-1, keepdim=True)
    square = (x - mean).pow(2).mean(-1, keepdim=True)
    return w * ((x - mean) / torch.sqrt(square + eps)) + b


def paper(x, w, b, eps):
    return w * (x / (x.norm(2, dim=-1, keepdim=True) * x.shape[-1] ** -0.5 + eps))


def zaya(x, w, b, eps):
    """eps bounds the root mean square here, and the norm itself in the model."""
    root = x.shape[-1] ** 0.5
    return x * (root / x.norm(p=2, dim=-1, keepdim=True).clamp_min(eps * root))


FORMS = {
    t5: dict(rounding="before_weight", steps="terms"), cpmant: dict(rounding="before_weight", steps="terms"),
    deepseek_v4: dict(steps="rstd"), image_gpt: dict(steps="all"), vit_det: dict(steps="all"),
    paper: dict(steps="all", eps_place="outside"), zaya: dict(steps="all", eps_place="clamp"),
}  # fmt: skip


def ours(model, x, w, b, eps, **more):
    if model is vit_det:
        return rt.layer_norm(x, w, b, eps, **FORMS[model], **more)
    return rt.rms_norm(x, w, eps, **FORMS[model], **more)


def parameters(model, n, dtype, generator):
    w = None if model in (deepseek_v4, zaya) else torch.randn(n, generator=generator).to(dtype)
    b = torch.randn(n, generator=generator).to(dtype) if model is vit_det else None
    return w, b


def gradients(function, inputs, dy):
    leaves = [None if t is None else t.clone().requires_grad_() for t in inputs]
    y = function(*leaves)
    y.backward(dy)
    return y.detach(), *(None if t is None else t.grad for t in leaves)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("cols", [1, 37, 768, 4096])
@pytest.mark.parametrize("model", FORMS, ids=lambda m: m.__name__)
def test_bits_of_models(model, cols, dtype):
    """Sums in another order move an element in ten thousand; a rounding that is missing moves a quarter of them."""
    generator = torch.Generator().manual_seed(cols)
    x, dy = (torch.randn(96, cols, generator=generator).to(dtype) for _ in range(2))
    x[3] *= 1e-4
    eps = torch.finfo(dtype).eps / math.sqrt(cols) if model is zaya else 1e-6
    inputs = (x, *parameters(model, cols, dtype, generator))
    own = gradients(lambda *a: model(*a, eps), inputs, dy)
    got = gradients(lambda *a: ours(model, *a, eps), inputs, dy)
    for name, a, b in zip(("y", "dx"), own, got):
        assert ((a != b) & ~(a.isnan() & b.isnan())).float().mean() <= 0.001, name
    for a, b in zip(own[2:], got[2:]):  # torch adds up dweight in a type of 16 bits
        if a is not None:
            torch.testing.assert_close(b, a, rtol=0.05, atol=0.05 * float(a.abs().max()))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("model", FORMS, ids=lambda m: m.__name__)
def test_without_the_steps_a_quarter_differs(model, dtype):
    """So that the test above cannot pass by chance."""
    generator = torch.Generator().manual_seed(5)
    x, dy = (torch.randn(96, 768, generator=generator).to(dtype) for _ in range(2))
    eps = torch.finfo(dtype).eps / math.sqrt(768) if model is zaya else 1e-6
    inputs = (x, *parameters(model, 768, dtype, generator))
    wide = dict(FORMS[model], steps="wide")
    norm = rt.layer_norm if model is vit_det else rt.rms_norm
    arguments = (lambda x, w, b: norm(x, w, b, eps, **wide)) if model is vit_det else (lambda x, w, b: norm(x, w, eps, **wide))
    own = gradients(lambda *a: model(*a, eps), inputs, dy)
    got = gradients(arguments, inputs, dy)
    assert (own[1] != got[1]).float().mean() > 0.1


def test_weights_of_float32_in_t5():
    """The result is of float32, and dx still passes three roundings."""
    x, w, dy = torch.randn(64, 300).bfloat16(), torch.randn(300), torch.randn(64, 300)
    own = gradients(lambda x, w: t5(x, w, None, 1e-6), (x, w), dy)
    got = gradients(lambda x, w: rt.rms_norm(x, w, steps="terms", out_dtype=torch.float32), (x, w), dy)
    torch.testing.assert_close(got[0], own[0])
    assert (got[1] != own[1]).float().mean() <= 0.001
    torch.testing.assert_close(got[2], own[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_clamp(dtype):
    """r is 1/max(rms, eps): of rows below eps the gradient does not see the norm."""
    x = torch.randn(6, 50, dtype=torch.float64)
    x[:3] *= 1e-3
    x = x.to(dtype)
    assert not rt.rms_norm(torch.zeros_like(x), eps=0.01, eps_place="clamp").any()
    w, dy = torch.randn(50, dtype=dtype), torch.randn(6, 50, dtype=dtype)

    def reference(x, w):
        x, w = x.double(), w.double()
        return x / x.square().mean(-1, keepdim=True).sqrt().clamp_min(0.01) * w

    own = gradients(reference, (x, w), dy.double())
    got = gradients(lambda x, w: rt.rms_norm(x, w, 0.01, eps_place="clamp"), (x, w), dy)
    for a, b in zip(own, got):
        torch.testing.assert_close(b, a.to(dtype))
    if dtype is torch.float64:
        assert torch.autograd.gradgradcheck(lambda x: rt.rms_norm(x, None, 0.01, eps_place="clamp"), (x.clone().requires_grad_(),))


def test_channels_first_and_compile():
    x = torch.randn(2, 48, 6, 5).bfloat16()
    w, b = torch.randn(48).bfloat16(), torch.randn(48).bfloat16()
    own = vit_det(x.movedim(1, -1), w, b, 1e-6).movedim(-1, 1)
    got = rt.layer_norm(x, w, b, 1e-6, steps="all", channels_first=True)
    assert torch.equal(own, got)
    compiled = torch.compile(lambda x: rt.rms_norm(x, steps="rstd"), backend="eager", fullgraph=True)
    rows = torch.randn(5, 64).half()
    assert torch.equal(compiled(rows), rt.rms_norm(rows, steps="rstd"))


def test_numpy_is_alike():
    x, w, dy = (np.random.default_rng(4).standard_normal(shape).astype(np.float16) for shape in ((7, 90), 90, (7, 90)))
    for options in (dict(steps="terms", rounding="before_weight"), dict(steps="all"), dict(steps="all", eps_place="clamp")):
        y = rmsnorm.rms_norm(x, w, **options)
        dx = rmsnorm.rms_norm_backward(dy, x, w, **options).dx
        own = gradients(lambda x, w: rt.rms_norm(x, w, **options), (torch.from_numpy(x), torch.from_numpy(w)), torch.from_numpy(dy))
        assert np.array_equal(y, own[0].numpy()) and np.array_equal(dx, own[1].numpy())


def test_float32_has_no_steps():
    x, w = torch.randn(9, 70), torch.randn(70)
    for steps in ("terms", "rstd", "all"):
        assert torch.equal(rt.rms_norm(x, w, steps=steps), rt.rms_norm(x, w))


def test_what_is_refused():
    x = torch.randn(3, 64).bfloat16()
    with pytest.raises(ValueError, match="steps is 'some'; it must be one of 'wide', 'terms', 'rstd', 'all'"):
        rt.rms_norm(x, steps="some")
    with pytest.raises(ValueError, match="eps_place is 'bound'"):
        rt.rms_norm(x, eps_place="bound")
    for call in (
        lambda: rt.rms_norm(x, gate=x, steps="terms"),
        lambda: rt.rms_norm(x, partial=8, steps="rstd"),
        lambda: rt.rms_norm(x, eps_place="outside", steps="rstd"),
        lambda: rt.layer_norm(x, steps="terms"),
        lambda: rt.layer_norm(x, eps_place="clamp", steps="all"),
    ):
        with pytest.raises(RuntimeError, match="not offered|unsupported|not supported"):
            call()
