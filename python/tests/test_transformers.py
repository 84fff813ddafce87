# SPDX-License-Identifier: MIT
"""rmsnorm.patch on small models of transformers with random weights: the logits keep their bits."""
import importlib

import pytest
import torch
from operators import CountedOperators, few
from transformers import AutoConfig, AutoModelForCausalLM

import rmsnorm

# Rounded before or after the weight, and what is added to the weight.
FAMILIES = {
    "llama": ("before_weight", 0), "mistral": ("before_weight", 0), "qwen2": ("before_weight", 0),
    "qwen3": ("before_weight", 0), "phi3": ("before_weight", 0), "granite": ("before_weight", 0),
    "glm4": ("before_weight", 0), "smollm3": ("before_weight", 0), "olmo2": ("after_weight", 0),
    "gpt_oss": ("after_weight", 0), "gemma": ("after_weight", 1), "gemma2": ("after_weight", 1),
    "gemma3_text": ("after_weight", 1), "helium": ("after_weight", 0),
}  # fmt: skip
SMALL = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=32, vocab_size=256, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
MORE = {"gpt_oss": dict(num_local_experts=4, num_experts_per_tok=2)}


def small_model(family, seed=3):
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **SMALL, **MORE.get(family, {}))
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16).eval()
    for name, p in model.named_parameters():
        if "norm" in name:
            p.data.add_(torch.randn_like(p) * 0.2)
    return model, torch.randint(3, 256, (2, 30))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_families(family, dtype):
    """The bits of the logits. In float32 they show the last bit of every sum, so that no seed can hide a difference."""
    for seed in range(3 if dtype == torch.bfloat16 else 1):
        model, ids = small_model(family, seed)
        model.to(dtype)
        with torch.no_grad():
            own = model(ids).logits
            report = rmsnorm.patch(model, tolerance=0)
            with CountedOperators() as operators:
                patched = model(ids).logits
            report.undo()
            assert torch.equal(model(ids).logits, own)
        assert not report.left_alone and operators.count == len(report.patched), str(report)
        assert {(e.spec.rounding, e.spec.weight_offset) for e in report.patched} == {FAMILIES[family]}
        assert torch.equal(patched, own)
        assert report.patched[0].describe().endswith("the same bits")


@pytest.mark.parametrize("family, gain, eps", [("nemotron", "as_weight", None), ("olmo", "wide", 1e-5)])
def test_layer_norms(family, gain, eps):
    """Nemotron's adds 1 to the weight in the weight's type; the eps of OLMo's is no attribute. By the rule of LayerNorm."""
    model, ids = small_model(family)
    with torch.no_grad():
        own = model(ids).logits
        report = rmsnorm.patch(model)
        assert len(report.patched) == 5 and {(e.spec.gain_rounding, e.spec.eps) for e in report.patched} == {(gain, eps)}
        with CountedOperators() as operators:
            torch.testing.assert_close(model(ids).logits, own, rtol=0.02, atol=0.02)
        assert operators.count == 5


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_weights_of_float32_beside_rows_of_bfloat16(family):
    model, _ = small_model(family)
    norm = model.model.norm.float()
    x = torch.randn(2, 7, 128, dtype=torch.bfloat16)
    own = norm(x)
    report = rmsnorm.patch(norm, tolerance=0)
    assert dict(report.patched[0].trial.promoted)[torch.bfloat16][1] is own.dtype
    assert norm(x).dtype is own.dtype and torch.equal(norm(x), own)
    assert own.dtype is (torch.float32 if family == "llama" else torch.bfloat16)


# Weights of float32 beside rows of 16 bits: the result's type (None: that of the rows), its rounding and the steps of dx.
PROMOTED = {
    "llama": ("LlamaRMSNorm", torch.float32, "before_weight", "wide"),
    "gemma2": ("Gemma2RMSNorm", None, "after_weight", "wide"),
    "t5": ("T5LayerNorm", torch.float32, "after_weight", "terms"),
    "idefics": ("IdeficsRMSNorm", torch.float32, "after_weight", "terms"),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("model", PROMOTED)
def test_gradients_beside_weights_of_float32(model, dtype):
    """T5's rounds nothing before a weight of float32, and both terms of dx as ever."""
    name, wide, rounding, steps = PROMOTED[model]
    norm = getattr(importlib.import_module(f"transformers.models.{model}.modeling_{model}"), name)(96)
    generator = torch.Generator().manual_seed(7)
    norm.weight.data = torch.randn(96, generator=generator)
    x = torch.randn(4, 15, 96, generator=generator).to(dtype)
    own = _results(norm, [x])
    report = rmsnorm.patch(norm, tolerance=0)
    spec, out_dtype = dict(report.patched[0].trial.promoted)[dtype]
    assert (spec.rounding, spec.steps, out_dtype) == (rounding, steps, wide or dtype)
    y, dx = _results(norm, [x])
    assert y.dtype is own[0].dtype is out_dtype and torch.equal(y, own[0])
    assert dx.dtype is own[1].dtype is dtype and (dx != own[1]).float().mean() <= 0.001


IMAGE_NORMS = {
    "ConvNextLayerNorm": ("convnext", dict(data_format="channels_first"), 4),
    "ConvNextV2LayerNorm": ("convnextv2", dict(data_format="channels_first"), 4),
    "SamLayerNorm": ("sam", dict(data_format="channels_first"), 4),
    "EomtLayerNorm2d": ("eomt", {}, 4),
    "SqueezeBertLayerNorm": ("squeezebert", {}, 3),
    "VideoPrismLayerNorm": ("videoprism", {}, 0),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", IMAGE_NORMS)
def test_norms_of_vision_models(name, dtype):
    model, options, dims = IMAGE_NORMS[name]
    module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    norm = getattr(module, name)(48, **options).to(dtype)
    for p in norm.parameters():
        torch.nn.init.normal_(p)
    x = torch.randn(2, 48, *(6, 5)[: dims - 2]).to(dtype) if dims else torch.randn(2, 6, 48).to(dtype)
    own = norm(x)
    report = rmsnorm.patch(norm)
    assert report.patched and report.patched[0].spec.image_dims == dims
    torch.testing.assert_close(norm(x), own)


STEP_NORMS = {
    "T5LayerNorm": ("t5", "terms"), "IdeficsRMSNorm": ("idefics", "terms"), "CpmAntLayerNorm": ("cpmant", "terms"),
    "DeepseekV4UnweightedRMSNorm": ("deepseek_v4", "rstd"), "Glm5NextTextUnweightedRMSNorm": ("glm5_next", "rstd"),
    "ImageGPTLayerNorm": ("imagegpt", "all"), "VitDetLayerNorm": ("vitdet", "all"), "ZayaQKNorm": ("zaya", "all"),
}  # fmt: skip


def _step_norm(name, module):
    if "Unweighted" in name:
        return getattr(module, name)()
    if name == "CpmAntLayerNorm":
        return module.CpmAntLayerNorm(module.CpmAntConfig(hidden_size=96))
    if name == "ZayaQKNorm":
        return module.ZayaQKNorm(module.ZayaConfig(head_dim=96, num_key_value_heads=2))
    return getattr(module, name)(96)


def _results(norm, inputs):
    leaves = [x.clone().requires_grad_() for x in inputs]
    results = norm(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    torch.autograd.backward(results, [r.detach().flip(0) for r in results])
    return [r.detach() for r in results] + [x.grad for x in leaves]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", STEP_NORMS)
def test_norms_that_round_at_other_steps(name, dtype):
    """The bits of the results and of dx, but for sums in another order; in float32 these show, and nothing else does."""
    model, steps = STEP_NORMS[name]
    norm = _step_norm(name, importlib.import_module(f"transformers.models.{model}.modeling_{model}")).to(dtype)
    generator = torch.Generator().manual_seed(6)
    for p in norm.parameters():
        p.data = torch.randn(p.shape, generator=generator).to(dtype)
    shapes = {"VitDetLayerNorm": [(3, 96, 5, 4)], "ZayaQKNorm": [(2, 9, 4, 96), (2, 9, 2, 96)]}.get(name, [(4, 15, 96)])
    inputs = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    own = _results(norm, inputs)
    report = rmsnorm.patch(norm)
    assert report.patched and report.patched[0].spec.steps == steps, str(report)
    for a, b in zip(own, _results(norm, inputs)):
        torch.testing.assert_close(b, a)
        assert dtype is torch.float32 or (a != b).float().mean() <= 0.001


FORMS = {
    "MoonshineStreamingLayerNorm": ("moonshine_streaming", {}, dict(kind="layer", inner="ln", weight_name="gamma", weight_offset=1.0,
                                                                   gain_rounding="as_weight", rounding="before_weight")),
    "Qwen4ExpTextRMSNorm": ("qwen4_exp", dict(group_size=32), dict(kind="rms", sums="torch", groups=3, weight_offset=1.0)),
    "OlmoLayerNorm": ("olmo", {}, dict(kind="layer", eps=1e-5)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_norms_of_other_forms(name, dtype):
    """A parameter around a LayerNorm, groups, and eps as a constant. Groups keep the bits of y, and of dx but for the order of sums."""
    model, options, expected = FORMS[name]
    norm = getattr(importlib.import_module(f"transformers.models.{model}.modeling_{model}"), name)(96, **options).to(dtype)
    generator = torch.Generator().manual_seed(6)
    for p in norm.parameters():
        p.data = torch.randn(p.shape, generator=generator).to(dtype)
    x = torch.randn(4, 15, 96, generator=generator).to(dtype)
    own = _results(norm, [x])
    report = rmsnorm.patch(norm)
    (entry,) = report.patched
    assert not report.left_alone and {field: getattr(entry.spec, field) for field in expected} == expected
    y, dx = _results(norm, [x])
    assert torch.equal(y, own[0]) if entry.spec.sums == "torch" else (y != own[0]).float().mean() <= few(dtype) or dtype is torch.float32
    for a, b in zip((y, dx), own):
        # The rule of LayerNorm: F.layer_norm in 16 bits saves the mean and 1/sqrt(variance) for its gradient in 16 bits.
        torch.testing.assert_close(a, b, rtol=2 * torch.finfo(dtype).eps, atol=float(4 * torch.finfo(dtype).eps * b.abs().max()))
    assert dtype is torch.float32 or entry.spec.inner or (dx != own[1]).float().mean() <= few(dtype)


class MeanNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(48)), 1e-6

    def forward(self, x):
        return self.weight * x / (x.abs().mean(-1, keepdim=True) + self.eps)


def test_what_is_not_offered_is_left_alone():
    report = rmsnorm.patch(MeanNorm().to(torch.bfloat16))
    assert not report.patched and len(report.left_alone) == 1
    assert "left alone: no arithmetic" in str(report)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_training_step(family):
    model, ids = small_model(family)
    model.float().train()

    def step():
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        return {n: p.grad.clone() for n, p in model.named_parameters()}

    own, report = step(), rmsnorm.patch(model)
    with CountedOperators() as operators:
        found = step()
    assert not report.left_alone and operators.count == 2 * len(report.patched) > 0  # forward and backward
    for name, g in found.items():
        torch.testing.assert_close(g, own[name], rtol=1e-3, atol=1e-5)


def test_generate():
    model, ids = small_model("qwen3")
    own = model.generate(ids, max_new_tokens=8, do_sample=False)
    report = rmsnorm.patch(model)
    with CountedOperators() as operators:
        assert torch.equal(model.generate(ids, max_new_tokens=8, do_sample=False), own)
    assert operators.count == 8 * len(report.patched) > 0
    report.undo()
