# SPDX-License-Identifier: MIT
"""rmsnorm.patch on norms that take a gate, on the bodies that they have in real models, each written out here."""
import copy
import io

import pytest
import torch
import torch.nn.functional as F

import rmsnorm
import rmsnorm.torch  # registers the operators
from rmsnorm import _torch_gates


class Body(torch.nn.Module):
    def __init__(self, size=64, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size) * 0.2 + 1)
        self.variance_epsilon = eps

    def normed(self, f):
        return f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


class QwenNorm(Body):
    def forward(self, hidden_states, gate):
        m = self.weight * self.normed(hidden_states.float()).to(hidden_states.dtype)
        return (m * F.silu(gate.float())).to(hidden_states.dtype)


class KimiNorm(Body):
    def forward(self, hidden_states, gate=None):
        m = self.weight.float() * self.normed(hidden_states.float())
        return (m * torch.sigmoid(gate.float())).to(hidden_states.dtype)


class MambaNorm(Body):
    def forward(self, hidden_states, gate=None):
        f = hidden_states.float()
        if gate is not None:
            f = f * F.silu(gate.float())
        return self.weight * self.normed(f).to(hidden_states.dtype)


class ZambaNorm(Body):
    group_size = None

    def __init__(self):
        super().__init__()
        self.group_size = 16

    def forward(self, hidden_states, gate=None):
        f = hidden_states.float()
        if gate is not None:
            f = f * F.silu(gate.float())
        f = self.normed(f.unflatten(-1, (-1, self.group_size))).flatten(-2)
        return self.weight * f.to(hidden_states.dtype)


class FalconNorm(Body):
    """Two or three dimensions alone, and of three the second is lost where it is 1."""

    def __init__(self):
        super().__init__()
        self.n_groups = 2

    def forward(self, hidden_states, gate=None):
        batch, *rows, width = hidden_states.shape
        (rows,) = rows or (1,)
        f = self.normed(hidden_states.float().view(batch, rows, self.n_groups, width // self.n_groups))
        f = (self.weight.view(self.n_groups, -1) * f).view(batch, rows, width)
        f = f.squeeze(1) if rows == 1 else f
        return (f if gate is None else f * F.silu(gate.float())).to(hidden_states.dtype)


class GemmaNorm(Body):
    def forward(self, hidden_states, gate):
        return (self.normed(hidden_states.float()) * (1 + self.weight.float()) * F.silu(gate.float())).to(hidden_states.dtype)


OFFERED = {
    QwenNorm: ("before_weight", 0, "after", "silu", 1),
    KimiNorm: ("after_weight", 0, "after", "sigmoid", 1),
    MambaNorm: ("before_weight", 0, "before", "silu", 1),
    ZambaNorm: ("before_weight", 0, "before", "silu", 4),
    FalconNorm: ("after_weight", 0, "after", "silu", 2),
    GemmaNorm: ("after_weight", 1, "after", "silu", 1),
}


class TanhNorm(Body):
    def forward(self, x, gate):
        return (self.weight * self.normed(x.float()) * torch.tanh(gate.float())).to(x.dtype)


class NarrowNorm(Body):
    """The activation in the gate's type."""

    def forward(self, x, gate):
        return self.weight * self.normed(x.float() * F.silu(gate)).to(x.dtype)


class OutsideNorm(Body):
    """eps in another place, which rows much larger than it do not show."""

    def forward(self, x, gate):
        f = x.float()
        f = f / (f.pow(2).mean(-1, keepdim=True).sqrt() + self.variance_epsilon)
        return (self.weight * f.to(x.dtype) * F.silu(gate.float())).to(x.dtype)


class AddingNorm(Body):
    def forward(self, x, gate):
        return (self.weight * self.normed(x.float()) + F.silu(gate.float())).to(x.dtype)


class OtherNameNorm(Body):
    def forward(self, x, other):
        return QwenNorm.forward(self, x, other)


class WeightlessNorm(torch.nn.Module):
    eps = 1e-6

    def forward(self, x, gate):
        return x


class FailingNorm(Body):
    def forward(self, x, gate):
        raise KeyError("no")


NOT_OFFERED = [TanhNorm, NarrowNorm, OutsideNorm, AddingNorm, OtherNameNorm, WeightlessNorm, FailingNorm]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


@pytest.fixture
def calls(monkeypatch):
    """How often the library ran."""
    seen, run = [], _torch_gates.run
    monkeypatch.setattr(_torch_gates, "run", lambda *a: seen.append(1) or run(*a))
    return seen


def holder(make, dtype=torch.bfloat16):
    return torch.nn.ModuleDict({"a": make(), "b": make()}).to(dtype)


def rows(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, 64).to(dtype), torch.randn(*shape, 64).to(dtype)


@pytest.mark.parametrize("body", OFFERED, ids=lambda b: b.__name__)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_offered_bodies(body, dtype, calls):
    model = holder(body, dtype)
    report = rmsnorm.patch(model)
    assert [e.name for e in report.patched] == ["a", "b"] and not report.left_alone, str(report)
    spec = report.patched[0].spec
    assert (spec.rounding, spec.weight_offset, spec.gate_place, spec.activation, spec.groups) == OFFERED[body]
    x, z = rows(40, 3, dtype=dtype)
    calls.clear()
    patched = model["a"](x, z)
    assert len(calls) == 1 and torch.equal(model["a"](x, gate=z), patched)
    report.undo()
    assert type(model["a"]) is body and vars(model["a"]).keys() == vars(body()).keys()
    own = model["a"](x, z)
    if dtype == torch.float32:
        torch.testing.assert_close(patched, own, rtol=2e-6, atol=2e-6)
    else:
        assert (patched != own).float().mean() < 0.001
        torch.testing.assert_close(patched, own, rtol=2 * torch.finfo(dtype).eps, atol=1e-3)


@pytest.mark.parametrize("make", NOT_OFFERED, ids=lambda b: b.__name__)
def test_other_bodies_are_left_alone(make):
    model = holder(make)
    report = rmsnorm.patch(model)
    assert not report.patched and len(report.left_alone) == 2 and all(e.reason for e in report.left_alone)
    assert type(model["a"]) is make


def test_equal_bits_cannot_be_had():
    for dtype in (torch.bfloat16, torch.float32):
        assert not rmsnorm.patch(holder(QwenNorm, dtype), tolerance=0.0).patched


def test_float64_keeps_the_old_forward():
    """The module computes in float32 there, this library in float64."""
    assert not rmsnorm.patch(holder(QwenNorm, torch.float64)).patched


def test_the_report_tells_of_the_gate():
    text = str(rmsnorm.patch(holder(ZambaNorm)))
    assert "2 x ZambaNorm: rms norm of 4 groups, rounded before the weight, silu of a gate before it, another exponential" in text


def test_calls_that_were_not_tried_keep_the_old_forward(calls):
    model = holder(MambaNorm)
    own = copy.deepcopy(model["a"])
    rmsnorm.patch(model)
    norm = model["a"]
    x, z = rows(5, 3)
    calls.clear()
    assert torch.equal(norm(x), own(x)) and torch.equal(norm(x, None), own(x)) and torch.equal(norm(x, gate=None), own(x))
    assert torch.equal(norm(hidden_states=x, gate=z), own(x, z))
    assert torch.equal(norm(x, z[:1]), own(x, z[:1]))  # a gate that is broadcast
    assert torch.equal(norm(x, z.float()), own(x, z.float()))  # a gate of another type
    assert torch.equal(norm(x.half(), z.half()), own(x.half(), z.half()))
    assert torch.equal(norm(x[0, 0], z[0, 0]), own(x[0, 0], z[0, 0]))  # one dimension
    x, z = rows(2, 2, 2, 2)
    assert torch.equal(norm(x, z), own(x, z))  # five
    assert not calls
    moved = norm.to("meta")
    assert moved(x.to("meta"), z.to("meta")).device.type == "meta" and not calls  # another device


def test_forms_of_rows_that_a_module_treats_apart(calls):
    model = holder(FalconNorm)
    own = copy.deepcopy(model["a"])
    rmsnorm.patch(model)
    calls.clear()
    for shape in ((3, 1), (1, 1)):
        x, z = rows(*shape)
        assert torch.equal(model["a"](x, z), own(x, z)) and not calls
    x, z = rows(4, 2, 3)
    with pytest.raises((RuntimeError, ValueError)):
        model["a"](x, z)
    calls.clear()
    x, z = rows(1)
    assert model["a"](x, z).shape == x.shape and len(calls) == 1


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 1), (1, 1), (4, 5), (2, 3, 1), (2, 3, 4)], ids=str)
def test_forms_of_rows_that_are_served(shape, calls):
    model = holder(MambaNorm)
    own = copy.deepcopy(model["a"])
    rmsnorm.patch(model)
    calls.clear()
    x, z = rows(*shape)
    torch.testing.assert_close(model["a"](x, z), own(x, z))
    assert len(calls) == 1


@pytest.mark.parametrize("body", OFFERED, ids=lambda b: b.__name__)
def test_rows_of_float32_beside_16_bits(body, calls):
    model = holder(body)
    own = copy.deepcopy(model["a"])
    rmsnorm.patch(model)
    x, z = rows(5, 3)
    x = x.float().requires_grad_()
    z.requires_grad_()
    calls.clear()
    y, expected = model["a"](x, z), own(x, z)
    assert len(calls) == 1 and y.dtype == torch.float32
    torch.testing.assert_close(y, expected, rtol=2e-6, atol=2e-6)
    dy = torch.randn_like(y)
    ours = torch.autograd.grad(y, (x, z, model["a"].weight), dy)
    for a, b in zip(ours, torch.autograd.grad(expected, (x, z, own.weight), dy)):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=2 * torch.finfo(a.dtype).eps, atol=1e-5 if a.dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("body", OFFERED, ids=lambda b: b.__name__)
def test_gradients(body):
    model = holder(body, torch.float32)
    x, z = (t.requires_grad_() for t in rows(7, 2, dtype=torch.float32))
    inputs = (x, z, model["a"].weight)
    own = torch.autograd.grad(model["a"](x, z).sin().sum(), inputs)
    rmsnorm.patch(model)
    for a, b in zip(own, torch.autograd.grad(model["a"](x, z).sin().sum(), inputs)):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("body", OFFERED, ids=lambda b: b.__name__)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_weights_of_float32_beside_16_bits(body, dtype, calls):
    """Mamba's results are then of float32: products of what was rounded to 16 bits."""
    model = holder(body, torch.float32)
    own = copy.deepcopy(model["a"])
    report = rmsnorm.patch(model)
    assert not report.patched[0].trial.unserved
    x, z = (t.requires_grad_() for t in rows(40, 3, dtype=dtype))
    calls.clear()
    y, expected = model["a"](x, z), own(x, z)
    assert len(calls) == 1 and y.dtype is expected.dtype is (torch.float32 if body in (MambaNorm, ZambaNorm) else dtype)
    dy = torch.randn_like(y)
    ours, theirs = (torch.autograd.grad(r, (x, z, m.weight), dy) for r, m in ((y, model["a"]), (expected, own)))
    step = torch.finfo(dtype).eps
    for a, b in zip((y, *ours[:2]), (expected, *theirs[:2])):
        assert a.dtype is b.dtype and (a != b).float().mean() < 0.002
        assert ((a - b).abs() <= 2 * step * b.abs().amax(-1, keepdim=True)).all()
    # dweight is a sum of terms, of which a few differ by a step of 16 bits
    assert ours[2].dtype is theirs[2].dtype is torch.float32
    terms = (dy * expected / own.weight).abs().flatten(0, 1)
    assert ((ours[2] - theirs[2]).abs() <= 3 * step * terms.amax(0) + 32 * torch.finfo(torch.float32).eps * terms.sum(0)).all()
    mixed = z.detach().float()
    assert torch.equal(model["a"](x, mixed), own(x, mixed)) and len(calls) == 1  # a gate of another type than the rows


class PromotedNorm(MambaNorm):
    def forward(self, hidden_states, gate=None):
        y = super().forward(hidden_states, gate)
        return y if self.weight.dtype is hidden_states.dtype else y + 1


def test_the_report_tells_which_rows_keep_the_old_forward(calls):
    model = holder(PromotedNorm, torch.float32)
    own = copy.deepcopy(model["a"])
    assert "rows of bfloat16 and float16 beside its float32 weight keep the old forward" in str(rmsnorm.patch(model))
    x, z = rows(4)
    calls.clear()
    assert torch.equal(model["a"](x, z), own(x, z)) and not calls


def test_patched_modules_behave():
    model = holder(QwenNorm)
    keys, (x, z) = list(model.state_dict()), rows(5)
    report = rmsnorm.patch(model)
    y = model["a"](x, z)
    assert list(model.state_dict()) == keys and repr(model["a"]) == "QwenNorm()" and isinstance(model["a"], QwenNorm)
    assert torch.equal(copy.deepcopy(model)["a"](x, z), y)
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    assert torch.equal(torch.load(stream, weights_only=False)["a"](x, z), y)
    assert not rmsnorm.patch(model).entries  # already done
    model["a"].variance_epsilon = 10.0  # eps is read at each call
    assert not torch.equal(model["a"](x, z), y)
    report.undo()


@pytest.mark.parametrize("body", [QwenNorm, ZambaNorm])
def test_compile(body):
    torch._dynamo.reset()
    model = holder(body)
    rmsnorm.patch(model)
    x, z = rows(5, 3)
    assert torch.equal(torch.compile(model["a"], fullgraph=True)(x, z), model["a"](x, z))


def test_compile_with_a_weight_of_float32():
    torch._dynamo.reset()
    model = holder(MambaNorm, torch.float32)
    rmsnorm.patch(model)
    x, z = (t.requires_grad_() for t in rows(5, 3))
    results = [norm(x, z) for norm in (torch.compile(model["a"], fullgraph=True), model["a"])]
    assert torch.equal(*results) and results[0].dtype is torch.float32
    gradients = [torch.autograd.grad(y.square().sum(), (x, z, model["a"].weight)) for y in results]
    assert all(torch.equal(a, b) for a, b in zip(*gradients))
