# SPDX-License-Identifier: MIT
"""rmsnorm.patch on small models of transformers with random weights: the logits keep their bits."""
import pytest
import torch
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
            patched = model(ids).logits
            report.undo()
            assert torch.equal(model(ids).logits, own)
        assert not report.left_alone, str(report)
        assert {(e.spec.rounding, e.spec.weight_offset) for e in report.patched} == {FAMILIES[family]}
        assert torch.equal(patched, own)
        assert report.patched[0].describe().endswith("the same bits")


def test_what_is_not_offered_is_left_alone():
    config = AutoConfig.for_model("nemotron", **SMALL)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16).eval()
    report = rmsnorm.patch(model)
    assert not report.patched and len(report.left_alone) == 5
    assert "left alone" in str(report)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_training_step(family):
    model, ids = small_model(family)
    model.float().train()

    def step():
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        return {n: p.grad.clone() for n, p in model.named_parameters()}

    own = step()
    rmsnorm.patch(model)
    for name, g in step().items():
        torch.testing.assert_close(g, own[name], rtol=1e-3, atol=1e-5)


def test_generate():
    model, ids = small_model("qwen3")
    own = model.generate(ids, max_new_tokens=8, do_sample=False)
    with_ours = rmsnorm.patch(model)
    assert torch.equal(model.generate(ids, max_new_tokens=8, do_sample=False), own)
    with_ours.undo()
