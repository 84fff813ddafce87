# SPDX-License-Identifier: MIT
"""rmsnorm.patch on norms that are more or less than rows times a weight: adaptive ones, 1/rms alone, weights that stay float32."""
import copy

import pytest
import torch
import torch.nn.functional as F
from operators import few

import rmsnorm
from rmsnorm import _adaptive_trial

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


class PlainNorm(torch.nn.Module):
    """An RMSNorm without a weight."""

    eps = 1e-5

    def forward(self, x):
        f = x.float()
        return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class AdaNormZero(torch.nn.Module):
    """Qwen2.5-Omni's: six parts, of which four are results."""

    parts, kept = 6, True

    def __init__(self, size=64, norm=None):
        super().__init__()
        self.silu, self.linear = torch.nn.SiLU(), torch.nn.Linear(size, size * self.parts)
        self.norm = norm or torch.nn.LayerNorm(size, elementwise_affine=False, eps=1e-6)

    def forward(self, hidden_states, emb=None):
        shift, scale, *rest = torch.chunk(self.linear(self.silu(emb)), self.parts, dim=1)
        y = self.norm(hidden_states) * (1 + scale[:, None]) + shift[:, None]
        return (y, *rest) if self.kept else y


class AdaNormFinal(AdaNormZero):
    """diffusers' AdaLayerNormContinuous: the scale comes first."""

    parts = 2

    def forward(self, x, conditioning_embedding):
        scale, shift = torch.chunk(self.linear(self.silu(conditioning_embedding)), 2, dim=1)
        return self.norm(x) * (1 + scale)[:, None, :] + shift[:, None, :]


class AdaRmsNorm(AdaNormFinal):
    def __init__(self):
        super().__init__(64, PlainNorm())


ADAPTIVE = {AdaNormZero: ("layer", (6, 1, 0)), AdaNormFinal: ("layer", (2, 0, 1)), AdaRmsNorm: ("rms", (2, 0, 1))}


def _data(dtype):
    generator = torch.Generator().manual_seed(8)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in ((5, 70, 64), (5, 64))]


def _results(module, inputs):
    """The results, and the gradients of the inputs and of the parameters."""
    leaves = [t.clone().requires_grad_() for t in inputs]
    results = module(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    parameters = list(module.parameters())
    gradients = torch.autograd.grad(results, [*leaves, *parameters], [r.detach().flip(0) for r in results])
    return [r.detach() for r in results], gradients[: len(leaves)], gradients[len(leaves) :]


@pytest.fixture
def calls(monkeypatch):
    """The calls of patched adaptive modules that run here."""
    seen, run = [], _adaptive_trial.run
    monkeypatch.setattr(_adaptive_trial, "run", lambda *a: seen.append(1) or run(*a))
    return seen


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("body", ADAPTIVE, ids=lambda b: b.__name__)
def test_adaptive_norms(body, dtype, calls):
    """Few bits differ: sums are added in another order. dx is another where F.layer_norm saves 16 bits for it."""
    torch.manual_seed(3)
    own = body().to(dtype)
    model = torch.nn.ModuleDict({"ada": copy.deepcopy(own)})
    report = rmsnorm.patch(model)
    (entry,) = report.patched
    assert not report.left_alone and (entry.spec.kind, entry.spec.parts) == ADAPTIVE[body], str(report)
    assert "scale and shift of each sample from a projection" in str(report)
    inputs = _data(dtype)
    calls.clear()
    (y, *parts), (dx, dcondition), others = _results(model["ada"], inputs)
    assert len(calls) == 1
    (right_y, *right_parts), (right_dx, right_dcondition), right_others = _results(own, inputs)
    assert len(parts) == len(right_parts) and all(map(torch.equal, parts, right_parts))
    step = torch.finfo(dtype).eps
    for got, right, steps in ((y, right_y, 2), (dx, right_dx, 4)):
        bound = (8 if dtype is torch.float32 else steps) * step * right.abs().amax(-1, keepdim=True)
        assert got.dtype is dtype and ((got - right).abs() <= bound).all()
    assert dtype is torch.float32 or (y != right_y).float().mean() <= few(dtype)
    for got, right in zip((dcondition, *others), (right_dcondition, *right_others)):
        # Sums of 70 tokens, and products of 64 to 384 of them, rounded a few times each.
        torch.testing.assert_close(got, right, rtol=4 * step, atol=float(4 * step * right.abs().max()))


def test_calls_of_other_forms_keep_the_old_forward(calls):
    model = torch.nn.ModuleDict({"ada": AdaNormFinal()})
    own, report = copy.deepcopy(model["ada"]), rmsnorm.patch(model)
    x, condition = _data(torch.float32)
    calls.clear()
    assert torch.equal(model["ada"](x, condition[:1]), own(x, condition[:1]))  # one condition for all
    assert torch.equal(model["ada"](x[:, None], condition), own(x[:, None], condition))  # another broadcast
    assert not calls
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model["ada"](x, condition.bfloat16())
    assert not calls
    model["ada"](x, condition)
    model["ada"](x=x, conditioning_embedding=condition)  # by name: the old forward knows which is which
    model["ada"](x, conditioning_embedding=condition)
    assert len(calls) == 2
    hook = model["ada"].norm.register_forward_hook(lambda *_: None)
    model["ada"](x, condition)
    assert len(calls) == 2
    hook.remove()
    report.undo()
    assert type(model["ada"]) is AdaNormFinal


class ThirdNorm(AdaNormZero):
    """Scale and shift are not the first two parts."""

    def forward(self, x, emb):
        _, _, shift, scale, *rest = torch.chunk(self.linear(self.silu(emb)), self.parts, dim=1)
        return self.norm(x) * (1 + scale[:, None]) + shift[:, None]


class OtherNorm(AdaNormFinal):
    """Nothing is added to the scale."""

    def forward(self, x, emb):
        scale, shift = torch.chunk(self.linear(self.silu(emb)), 2, dim=1)
        return self.norm(x) * scale[:, None] + shift[:, None]


@pytest.mark.parametrize("body", [ThirdNorm, OtherNorm], ids=lambda b: b.__name__)
def test_the_norm_inside_others_is_served_itself(body):
    model = torch.nn.ModuleDict({"ada": body()})
    report = rmsnorm.patch(model)
    assert [e.name for e in report.patched] == ["ada.norm"] and not report.left_alone
    assert type(model["ada"]) is body


def test_adaptive_norms_are_compiled_and_copied():
    torch._dynamo.reset()
    model = torch.nn.ModuleDict({"ada": AdaNormZero()})
    rmsnorm.patch(model)
    inputs = _data(torch.float32)
    compiled = torch.compile(model["ada"], fullgraph=True, backend="aot_eager")
    for got, right in zip(compiled(*inputs), model["ada"](*inputs)):
        assert torch.equal(got, right)
    assert torch.equal(copy.deepcopy(model["ada"])(*inputs)[0], model["ada"](*inputs)[0])


class RstdNorm(torch.nn.Module):
    """One number for each row, as HYV4's without a weight."""

    eps = 1e-6

    def forward(self, x):
        return torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps).to(x.dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_reciprocal_alone(dtype):
    """The bits of autograd, results and gradients, in every type."""
    own, model = RstdNorm(), torch.nn.ModuleDict({"norm": RstdNorm(), "linear": torch.nn.Linear(2, 2)})
    report = rmsnorm.patch(model)
    assert report.patched[0].spec.alone and "1/rms alone, the same bits" in str(report)
    for n in (1, 7, 64, 1000):
        x = _data(dtype)[0].flatten()[: 20 * n].reshape(4, 5, n) * 3
        (r,), (dx,), _ = _results(model["norm"], [x])
        (right,), (right_dx,), _ = _results(own, [x])
        assert r.shape == (4, 5, 1) and torch.equal(r, right) and torch.equal(dx, right_dx)


class PinnedNorm(torch.nn.LayerNorm):
    """EsmFold2's: its parameters stay float32 beside rows of any type."""

    def forward(self, x):
        return F.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias, self.eps).to(x.dtype)


def test_parameters_that_stay_float32():
    model = torch.nn.ModuleDict({"norm": PinnedNorm(64)})
    for p in model.parameters():
        torch.nn.init.normal_(p)
    own, report = copy.deepcopy(model["norm"]), rmsnorm.patch(model)
    trial = report.patched[0].trial
    assert trial.dtypes == (torch.float32,) and {dtype for dtype, _ in trial.promoted} == {torch.bfloat16, torch.float16}
    for dtype in DTYPES:
        x = _data(dtype)[0]
        y, right = model["norm"](x), own(x)
        assert y.dtype is dtype
        torch.testing.assert_close(y, right)
        assert dtype is torch.float32 or (y != right).float().mean() <= few(dtype)


class HeadsNorm(torch.nn.Module):
    """xLSTM's: rows of each head, of which the result has no dimension; a weight for all."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.eps, self.weight = 4, 1e-6, torch.nn.Parameter(torch.randn(64))

    def normed(self, f):
        f = f - f.mean(-1, keepdim=True)
        return f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        samples, tokens, heads, _ = x.shape
        assert heads == self.num_heads
        return self.normed(x.float()).to(x.dtype).reshape(samples, tokens, -1) * self.weight


class RmsHeadsNorm(HeadsNorm):
    def normed(self, f):
        return f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("body", [HeadsNorm, RmsHeadsNorm], ids=lambda b: b.__name__)
def test_heads(body, dtype):
    torch.manual_seed(5)
    own = body().to(dtype)
    model = torch.nn.ModuleDict({"norm": copy.deepcopy(own)})
    (entry,) = rmsnorm.patch(model).patched
    assert entry.spec.heads and entry.spec.groups == 4 and "norm of 4 heads" in str(entry.spec)
    x = _data(dtype)[0].unflatten(-1, (4, 16))
    ((y,), (dx,), _), ((right,), (right_dx,), _) = _results(model["norm"], [x]), _results(own, [x])
    assert y.shape == (5, 70, 64) and dx.shape == x.shape
    assert torch.equal(y, right) if body is RmsHeadsNorm else dtype is torch.float32 or (y != right).float().mean() <= few(dtype)
    steps = (8 if dtype is torch.float32 else 2) * torch.finfo(dtype).eps
    for got, expected in ((y.unflatten(-1, (4, 16)), right.unflatten(-1, (4, 16))), (dx, right_dx)):
        assert ((got - expected).abs() <= steps * expected.abs().amax(-1, keepdim=True)).all()
    with pytest.raises(AssertionError):
        model["norm"](x.transpose(1, 2))  # the old forward's own error
