# SPDX-License-Identifier: MIT
"""rmsnorm.patch on the bodies that norms have in real models, each written out here."""
import copy
import io

import pytest
import torch
import torch.nn.functional as F
from operators import CountedOperators

import rmsnorm
import rmsnorm.torch  # registers the operators


class Body(torch.nn.Module):
    def __init__(self, size=64, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size) * 0.2 + 1)
        self.variance_epsilon = eps

    def normed(self, x):
        f = x.float()
        return f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


class LlamaNorm(Body):
    def forward(self, hidden_states):
        return self.weight * self.normed(hidden_states).to(hidden_states.dtype)


class Llama4Norm(Body):
    def forward(self, x):
        return self.normed(x).type_as(x) * self.weight


class T5Norm(Body):
    def forward(self, hidden_states):
        h = hidden_states * torch.rsqrt(hidden_states.float().pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * h.to(self.weight.dtype)


class Olmo2Norm(Body):
    def forward(self, x):
        return (self.weight * self.normed(x)).to(x.dtype)


class HeliumNorm(Body):
    def forward(self, x):
        return (self.weight.float() * self.normed(x)).to(x.dtype)


class GemmaNorm(Body):
    def forward(self, x):
        return (self.normed(x) * (1.0 + self.weight.float())).type_as(x)


class PowNorm(Body):
    def forward(self, x):
        f = x.float()
        return (f * torch.pow(f.pow(2).mean(-1, keepdim=True) + self.variance_epsilon, -0.5) * self.weight.float()).type_as(x)


class WeightlessNorm(torch.nn.Module):
    eps = 1e-6

    def forward(self, x):
        f = x.float()
        return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x)


class CohereNorm(Body):
    def forward(self, x):
        f = x.float()
        e = f - f.mean(-1, keepdim=True)
        return (self.weight.float() * (e * torch.rsqrt(e.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))).to(x.dtype)


class HeadNorm(CohereNorm):
    def __init__(self):
        super().__init__((3, 64))


class NarrowOffsetNorm(Body):
    """1 + weight in the weight's type."""

    def forward(self, x):
        return (self.normed(x) * (1 + self.weight).float()).to(x.dtype)


class GroupsNorm(Body):
    """Gemma's, in groups."""

    def __init__(self):
        super().__init__()
        self.group_size = 16

    def forward(self, x):
        f = self.normed(x.float().reshape(*x.shape[:-1], -1, self.group_size)).flatten(-2)
        return (f * (1.0 + self.weight.float())).type_as(x)


class ScaleNorm(torch.nn.Module):
    """Its weight has another name, and its eps none."""

    eps_of_rows = (1e-5,)

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(64))

    def forward(self, x):
        f = x.float()
        return self.scale * (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps_of_rows[0])).to(x.dtype)


class OlmoNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.normalized_shape = (64,)

    def forward(self, hidden_states):
        return F.layer_norm(hidden_states.float(), self.normalized_shape, None, None, eps=1e-5).to(hidden_states.dtype)


class MoonshineNorm(torch.nn.Module):
    """A parameter around a norm."""

    def __init__(self):
        super().__init__()
        self.ln = torch.nn.LayerNorm(64, elementwise_affine=False)
        self.gamma = torch.nn.Parameter(torch.randn(64) * 0.2)

    def forward(self, x):
        return self.ln(x) * (self.gamma + 1.0)


# Bodies whose sums are torch's own come out with equal bits.
OFFERED = {
    LlamaNorm: ("rms", "before_weight", 0),
    Llama4Norm: ("rms", "before_weight", 0),
    T5Norm: ("rms", "before_weight", 0),
    Olmo2Norm: ("rms", "after_weight", 0),
    HeliumNorm: ("rms", "after_weight", 0),
    GemmaNorm: ("rms", "after_weight", 1),
    NarrowOffsetNorm: ("rms", "after_weight", 1),
    PowNorm: ("rms", "after_weight", 0),
    WeightlessNorm: ("rms", "after_weight", 0),
    CohereNorm: ("layer", "after_weight", 0),
    HeadNorm: ("layer", "after_weight", 0),
    GroupsNorm: ("rms", "after_weight", 1),
    ScaleNorm: ("rms", "before_weight", 0),
    OlmoNorm: ("layer", "after_weight", 0),
    MoonshineNorm: ("layer", "before_weight", 1),
}


class RoundedNorm(Body):
    """r is rounded to the data's type."""

    def forward(self, x):
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.variance_epsilon).to(x.dtype) * self.weight


class NarrowNorm(Body):
    """No step is widened."""

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


class GatedNorm(Body):
    def forward(self, x, gate=None):
        return self.normed(x).to(x.dtype)


class ScaledNorm(Body):
    def forward(self, x):
        return 2 * self.weight * self.normed(x).to(x.dtype)


class PairNorm(Body):
    def forward(self, x):
        return self.weight * self.normed(x).to(x.dtype), x


class OutsideNorm(Body):
    """eps in another place, which rows much larger than it do not show."""

    def forward(self, x):
        f = x.float()
        return self.weight * (f / (f.pow(2).mean(-1, keepdim=True).sqrt() + self.variance_epsilon)).to(x.dtype)


class WideNorm(Body):
    """Its result is of float32."""

    def forward(self, x):
        return self.weight.float() * self.normed(x)


class FailingNorm(Body):
    def forward(self, x):
        raise KeyError("no")


class EpslessNorm(torch.nn.Module):
    def forward(self, x):
        return x


NOT_OFFERED = [RoundedNorm, NarrowNorm, GatedNorm, ScaledNorm, PairNorm, OutsideNorm, WideNorm, FailingNorm, EpslessNorm,
               lambda: torch.nn.BatchNorm1d(64), lambda: torch.nn.GroupNorm(4, 64)]  # fmt: skip


def holder(make, dtype=torch.bfloat16):
    torch.manual_seed(2)
    return torch.nn.ModuleDict({"a": make(), "b": make()}).to(dtype)


@pytest.mark.parametrize("body", OFFERED, ids=lambda b: b.__name__)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_offered_bodies(body, dtype):
    model = holder(body, dtype)
    report = rmsnorm.patch(model)
    assert [e.name for e in report.patched] == ["a", "b"] and not report.left_alone, str(report)
    spec = report.patched[0].spec
    assert (spec.kind, spec.rounding, spec.weight_offset) == OFFERED[body]
    x = torch.randn(40, 3, 64).to(dtype)
    with CountedOperators() as operators:
        patched = model["a"](x)
    assert operators.count == 1 and type(model["a"]) is not body and isinstance(model["a"], body)
    report.undo()
    assert type(model["a"]) is body and vars(model["a"]).keys() == vars(body()).keys()
    own = model["a"](x)
    assert spec.sums == ("torch" if spec.kind == "rms" else "rmsnorm")
    if spec.sums == "torch":
        assert torch.equal(patched, own)
    elif dtype == torch.float32:
        torch.testing.assert_close(patched, own, rtol=2e-6, atol=2e-6)
    else:
        assert (patched != own).float().mean() < 0.001
    report.undo()


@pytest.mark.parametrize("make", NOT_OFFERED, ids=lambda b: b.__name__)
def test_other_bodies_are_left_alone(make):
    model = holder(make)
    before = copy.deepcopy(model.state_dict())
    report = rmsnorm.patch(model)
    assert not report.patched and len(report.left_alone) == 2 and all(e.reason for e in report.left_alone)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert type(model["a"]) is type(make())


def test_torch_modules():
    model = torch.nn.Sequential(torch.nn.RMSNorm(64), torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)).bfloat16()
    x = torch.randn(50, 64).bfloat16()
    before = model(x)
    report = rmsnorm.patch(model)
    assert [e.class_name for e in report.patched] == ["RMSNorm", "LayerNorm"]
    with CountedOperators() as operators:
        assert (model(x) != before).float().mean() < 0.005
    assert operators.count == 2
    assert "2 of 2 norms" in str(report)


def test_the_generator_of_the_user_is_not_touched():
    model = torch.nn.Sequential(LlamaNorm().bfloat16())
    before = torch.get_rng_state()
    rmsnorm.patch(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_patched_modules_behave():
    model = holder(LlamaNorm)
    seen = []
    model["a"].register_forward_hook(lambda *a: seen.append(1))
    keys, x = list(model.state_dict()), torch.randn(5, 64).bfloat16()
    report = rmsnorm.patch(model)
    y = model["a"](x)
    assert seen and list(model.state_dict()) == keys and repr(model["a"]) == "LlamaNorm()"
    assert torch.equal(copy.deepcopy(model)["a"](x), y)
    stream = io.BytesIO()
    model["a"]._forward_hooks.clear()
    torch.save(model, stream)
    stream.seek(0)
    assert torch.equal(torch.load(stream, weights_only=False)["a"](x), y)
    assert not rmsnorm.patch(model).entries  # already done
    model["a"].variance_epsilon = 10.0  # eps is read at each call
    assert not torch.equal(model["a"](x), y)
    report.undo()


def test_types_that_were_not_tried_keep_the_old_forward():
    model = holder(LlamaNorm)
    rmsnorm.patch(model)
    model.float()
    assert torch.equal(model["a"](torch.ones(64).double()), LlamaNorm.forward(model["a"], torch.ones(64).double()))
    x = torch.randn(5, 64).bfloat16()
    assert model["a"](x).dtype == torch.float32  # the model's own promotion
    assert torch.equal(model["a"](hidden_states=x), model["a"](x))


# ---- eps that no attribute holds ----


def norm_with(kind, value):
    """A norm whose eps is a constant of its forward."""

    class ConstantNorm(torch.nn.Module):
        def forward(self, x):
            f = x.float()
            f = f - f.mean(-1, keepdim=True) if kind == "layer" else f
            return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + value)).to(x.dtype)

    return ConstantNorm()


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("value", [1e-3, 3e-5, 1e-5, 1e-6, 1.5e-8, 1e-12, 2.0**-23, 2.0**-52])
def test_eps_is_measured(kind, value):
    norm = norm_with(kind, value)
    (entry,) = rmsnorm.patch(norm).entries
    assert (entry.spec.kind, entry.spec.eps, entry.spec.eps_name) == (kind, value, "")
    assert f"eps measured as {value:g}" in entry.describe()
    x = torch.randn(40, 64) * (value**0.5 * 4 ** torch.linspace(-3, 3, 40))[:, None]  # below eps, and above
    own = type(norm).__mro__[2].forward(norm, x)
    if kind == "rms":
        assert torch.equal(norm(x), own)
    else:
        torch.testing.assert_close(norm(x), own, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("value", [0.0, 1.2345e-6])
def test_eps_that_cannot_be_measured(value):
    """None, and one of more digits than people write."""
    (entry,) = rmsnorm.patch(norm_with("rms", value)).entries
    assert entry.spec is None and "no eps" in entry.reason


def test_each_module_has_its_own_eps():
    model = torch.nn.ModuleDict({name: ScaleNorm() for name in "ab"})
    model["b"].eps_of_rows = [1e-2]  # in a list, as in a configuration
    report = rmsnorm.patch(model)
    assert [e.spec.eps for e in report.patched] == [1e-5, 1e-2]


# ---- a norm inside a norm ----


def test_a_norm_inside_a_norm():
    model = holder(MoonshineNorm)
    report = rmsnorm.patch(model)
    spec = report.patched[0].spec
    assert (spec.inner, spec.eps_name, spec.weight_name, spec.gain_rounding) == ("ln", "eps", "gamma", "as_weight")
    assert type(model["a"].ln) is torch.nn.LayerNorm and not rmsnorm.patch(model).entries
    x = torch.randn(5, 64).bfloat16()
    y = model["a"](x)
    assert torch.equal(copy.deepcopy(model)["a"](x), y)
    seen = []
    handle = model["a"].ln.register_forward_hook(lambda *a: seen.append(1))  # nobody else would call it
    own = model["a"](x)
    assert seen and torch.equal(own, MoonshineNorm.forward(model["a"], x))
    handle.remove()
    model["a"].ln.eps = 10.0  # read at each call
    assert not torch.equal(model["a"](x), y)
    report.undo()
    assert type(model["a"]) is MoonshineNorm


class TanhNorm(MoonshineNorm):
    def forward(self, x):
        return self.ln(x) * torch.tanh(self.gamma)


def test_a_norm_inside_another_module_is_served_itself():
    model = holder(TanhNorm)
    report = rmsnorm.patch(model)
    assert [e.name for e in report.entries] == ["a.ln", "b.ln"] and not report.left_alone
    assert type(model["a"]) is TanhNorm


# ---- weights of float32 beside rows of 16 bits ----


PROMOTED = [LlamaNorm, T5Norm, Olmo2Norm, HeliumNorm, GemmaNorm, PowNorm, GroupsNorm, ScaleNorm, CohereNorm, MoonshineNorm]


@pytest.mark.parametrize("body", PROMOTED, ids=lambda b: b.__name__)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_weights_of_float32(body, dtype, monkeypatch):
    """The bits of the results with torch's order of sums; those of dx but for the order of sums."""
    model = holder(body, torch.float32)
    x = torch.randn(40, 3, 64).to(dtype)
    seen, run = [], rmsnorm._trial.run
    monkeypatch.setattr(rmsnorm._trial, "run", lambda *a: seen.append(1) or run(*a))

    def results():
        leaf = x.clone().requires_grad_()
        y = model["a"](leaf)
        return y.detach(), torch.autograd.grad(y, leaf, x.flip(0).to(y.dtype))[0]

    own = results()
    report = rmsnorm.patch(model)
    assert not report.patched[0].trial.unserved
    found = results()
    assert len(seen) == 1 and [t.dtype for t in found] == [t.dtype for t in own]
    if report.patched[0].spec.sums == "torch":
        assert torch.equal(found[0], own[0])
    assert (found[0] != own[0]).float().mean() <= 0.001 or body is CohereNorm and own[0].dtype is torch.float32
    step = torch.finfo(dtype).eps * own[1].abs().amax(-1, keepdim=True)
    assert ((found[1] - own[1]).abs() <= 2 * step).all()
    if body is not MoonshineNorm:  # whose gradient is that of F.layer_norm, which saves what it needs in 16 bits
        assert (found[1] != own[1]).float().mean() <= 0.002


class PromotedNorm(Body):
    """Something else beside a weight of another type."""

    def forward(self, x):
        h = self.normed(x).to(x.dtype)
        return self.weight * h if self.weight.dtype is x.dtype else self.weight * h * h


def test_the_report_tells_which_rows_keep_the_old_forward():
    model = holder(PromotedNorm, torch.float32)
    x = torch.randn(5, 64).bfloat16()
    own = model["a"](x)
    text = str(rmsnorm.patch(model))
    assert "the same bits; rows of bfloat16 and float16 beside its float32 weight keep the old forward" in text
    assert torch.equal(model["a"](x), own)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("body", [LlamaNorm, GroupsNorm, ScaleNorm, OlmoNorm, MoonshineNorm], ids=lambda b: b.__name__)
def test_compile(body, dtype):
    """Without a break of the graph; also rows of bfloat16 beside a weight of float32."""
    torch._dynamo.reset()
    model = holder(body, dtype)
    rmsnorm.patch(model)
    x = torch.randn(5, 3, 64).bfloat16().requires_grad_()
    with CountedOperators() as operators:
        expected = model["a"](x)
    results = [torch.compile(model["a"], fullgraph=True, backend="aot_eager")(x), expected]
    assert operators.count == 1 and torch.equal(*results)
    gradients = [torch.autograd.grad(y.square().sum(), x) for y in results]
    assert torch.equal(gradients[0][0], gradients[1][0])


def test_gradients_of_a_patched_model():
    model = holder(LlamaNorm, torch.float32)
    x = torch.randn(7, 64, requires_grad=True)
    own = torch.autograd.grad(model["a"](x).sin().sum(), (x, model["a"].weight))
    rmsnorm.patch(model)
    with CountedOperators() as operators:
        got = torch.autograd.grad(model["a"](x).sin().sum(), (x, model["a"].weight))
    assert operators.count == 2  # forward and backward
    for a, b in zip(own, got):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-5)


def test_nothing_but_equal_bits():
    model = torch.nn.ModuleDict({"rms": LlamaNorm(), "layer": CohereNorm()}).bfloat16()
    report = rmsnorm.patch(model, tolerance=0.0)
    assert report.patched[0].name == "rms" and report.patched[0].trial.differing == 0
    # The sums of a LayerNorm have another order, which in float32 shows in most elements.
    assert not rmsnorm.patch(torch.nn.ModuleDict({"layer": CohereNorm()}), tolerance=0.0).patched


def test_bad_arguments():
    for model in (None, [LlamaNorm()], "model"):
        with pytest.raises(TypeError, match="model"):
            rmsnorm.patch(model)
    for tolerance, error in (("none", TypeError), (True, TypeError), (-0.1, ValueError), (2, ValueError), (float("nan"), ValueError)):
        with pytest.raises(error, match="tolerance"):
            rmsnorm.patch(LlamaNorm(), tolerance=tolerance)


def test_the_report_counts():
    model = torch.nn.ModuleDict({"rms": LlamaNorm(), "layer": CohereNorm()}).bfloat16()
    text = str(rmsnorm.patch(model))
    assert "LlamaNorm: rms norm, rounded before the weight, the same bits" in text
    assert "CohereNorm: layer norm, rounded after the weight, sums in another order: " in text and " of 10,688 elements" in text


def rms(x, eps):
    f = x.float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def torch_sums(x, eps):
    return torch.ops.rmsnorm._norm(x, None, None, eps, 0.0, 0, 1, 8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_sums_in_the_order_of_torch(dtype):
    generator = torch.Generator().manual_seed(5)
    for n in (*range(1, 70), 127, 128, 255, 511, 513, 1000, 1024, 2047, 4096, 5120, 8191, 16384, 20000):
        x = torch.randn(5, n, generator=generator).to(dtype)
        assert torch.equal(torch_sums(x, 1e-6), rms(x, 1e-6)), n
    wide = torch.randn(1, 3, 100_003, generator=generator).to(dtype)
    assert torch.equal(torch_sums(wide, 1e-6), rms(wide, 1e-6))


def test_sums_of_views_and_threads():
    qkv = torch.randn(40, 300, 12, 64).bfloat16()
    views = [qkv[:, :, 4:8], qkv.transpose(1, 2), qkv[:, :, 4:8].transpose(1, 2), qkv[:, 3, 2], qkv[:0], qkv[:1, :1, :1]]
    before, results = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append([torch_sums(v, 1e-6) for v in views])
    torch.set_num_threads(before)
    for v, one, two in zip(views, *results):
        assert torch.equal(one, rms(v, 1e-6)) and torch.equal(one, two) and one.stride() == torch.empty_like(v).stride()


def test_sums_of_extreme_rows():
    x = torch.randn(7, 100)
    scales = torch.tensor([1e-30, 1e-20, 1e-12, 1.0, 1e10, 1e17, 1e25])[:, None]  # the last sum overflows: zeros, as in torch
    assert torch.equal(torch_sums(x * scales, 1e-6), rms(x * scales, 1e-6))
    tiny = (torch.randn(4, 96) * 1e-5).half()  # most are subnormal
    assert torch.equal(torch_sums(tiny, 1e-12), rms(tiny, 1e-12))
    for value in (float("nan"), float("inf")):
        x[2, 7] = value
        assert torch.equal(torch.isnan(torch_sums(x, 1e-6)), torch.isnan(rms(x, 1e-6)))


@pytest.mark.parametrize("options", [dict(mode=9), dict(partial=3), dict(groups=2), dict(dtype=torch.float64)], ids=str)
def test_sums_of_torch_are_not_offered_for_more(options):
    x = torch.randn(2, 8, dtype=options.get("dtype", torch.float32))
    with pytest.raises(RuntimeError, match="rmsnorm"):
        torch.ops.rmsnorm._norm(x, None, None, 1e-6, 0.0, options.get("partial", 0), options.get("groups", 1), options.get("mode", 8))
