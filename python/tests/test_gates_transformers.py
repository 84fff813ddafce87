# SPDX-License-Identifier: MIT
"""rmsnorm.patch on the gated norms of transformers: results and gradients beside those of the classes themselves."""
import copy
import importlib

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import rmsnorm
from rmsnorm import _torch_gates

WIDTH = 512
AFTER, BEFORE = ("after", "silu"), ("before", "silu")
# The class, its arguments, and the arithmetic that is found: rounding, the gate's place and activation, groups.
CLASSES = {
    "qwen3_next": ("Qwen3NextRMSNormGated", {}, "before_weight", AFTER, 1),
    "qwen3_5": ("Qwen3_5RMSNormGated", {}, "before_weight", AFTER, 1),
    "qwen3_5_moe": ("Qwen3_5MoeRMSNormGated", {}, "before_weight", AFTER, 1),
    "qwen4_exp": ("Qwen4ExpTextRMSNormGated", {}, "before_weight", AFTER, 1),
    "olmo_hybrid": ("OlmoHybridRMSNormGated", {}, "before_weight", AFTER, 1),
    "kimi_linear": ("KimiLinearRMSNormGated", {}, "after_weight", ("after", "sigmoid"), 1),
    "glm5_next": ("Glm5NextTextRMSNormGated", {}, "after_weight", ("after", "sigmoid"), 1),
    "mamba2": ("MambaRMSNormGated", {}, "before_weight", BEFORE, 1),
    "bamba": ("BambaRMSNormGated", {}, "before_weight", BEFORE, 1),
    "granitemoehybrid": ("GraniteMoeHybridRMSNormGated", {}, "before_weight", BEFORE, 1),
    "zamba2": ("Zamba2RMSNormGated", dict(group_size=128), "before_weight", BEFORE, 4),
    "nemotron_h": ("Zamba2RMSNormGated", dict(group_size=64), "before_weight", BEFORE, 8),
    "falcon_h1": ("FalconH1RMSNormGated", dict(n_groups=2), "after_weight", AFTER, 2),
    "falcon_h1 gate first": ("FalconH1RMSNormGated", dict(n_groups=2, norm_before_gate=False), "after_weight", BEFORE, 2),
}


def pair(model, dtype):
    """The module of a model, and a patched copy."""
    name, arguments, *expected = CLASSES[model]
    module = model.split()[0]
    own = getattr(importlib.import_module(f"transformers.models.{module}.modeling_{module}"), name)(WIDTH, **arguments)
    own.weight.data = torch.randn(WIDTH)
    ours = torch.nn.ModuleDict({"norm": copy.deepcopy(own.to(dtype))})
    report = rmsnorm.patch(ours)
    assert len(report.patched) == 1, str(report)
    spec = report.patched[0].spec
    assert [spec.rounding, (spec.gate_place, spec.activation), spec.groups] == expected and spec.weight_offset == 0
    return own, ours["norm"]


def results(module, x, gate, dy):
    x, gate = x.clone().requires_grad_(), gate.clone().requires_grad_()
    y = module(x, gate)
    return y.detach(), *torch.autograd.grad(y, (x, gate, module.weight), dy)


def check_rows(ours, own, dtype):
    """Each side has the roundings of a dozen operations in float32 and then, in bfloat16, of at most two steps of that type. Errors
    are those of the largest terms of a row. dtype: what is rounded to, which beside a weight of float32 is not the result's type."""
    step = torch.finfo(dtype).eps * own.abs().amax(-1, keepdim=True)
    assert ours.dtype == own.dtype and ((ours - own).abs() <= (24 if dtype == torch.float32 else 2) * step).all()


WIDE, NARROW, HALF = torch.float32, torch.bfloat16, torch.float16
# The types of the weight, of the rows and of the gate.
TYPES = [(NARROW, NARROW, NARROW), (WIDE, WIDE, WIDE), (NARROW, WIDE, NARROW), (WIDE, NARROW, NARROW), (WIDE, HALF, HALF)]


@pytest.mark.parametrize("model", CLASSES)
@pytest.mark.parametrize("types", TYPES, ids=str)
def test_classes(model, types, record_property, monkeypatch):
    torch.manual_seed(4)
    dtype, rows_dtype, gate_dtype = types
    own, ours = pair(model, dtype)
    x, gate = torch.randn(4, 50, WIDTH).to(rows_dtype), torch.randn(4, 50, WIDTH).to(gate_dtype)
    dy = torch.randn(4, 50, WIDTH).to(rows_dtype).to(own(x, gate).dtype)
    seen, run = [], _torch_gates.run
    monkeypatch.setattr(_torch_gates, "run", lambda *a: seen.append(1) or run(*a))
    right, found = results(own, x, gate, dy), results(ours, x, gate, dy)
    assert len(seen) == 1
    for name, a, b in zip(("y", "dx", "dgate", "dweight"), found, right):
        share = float((a == b).double().mean())
        record_property(f"equal bits of {name}", share)
        if name != "dweight":
            check_rows(a, b, rows_dtype if name == "y" else b.dtype)
            assert share > 0.995 or rows_dtype == b.dtype == WIDE
    # dweight is a sum over the rows of dy*y/weight: torch's has the error of a sum in float32. A few terms differ by a step of the rows.
    terms = (dy.double() * right[0].double() / own.weight.double()).abs().flatten(0, 1)
    bound = 32 * torch.finfo(WIDE).eps * terms.sum(0) + torch.finfo(dtype).eps * right[3].double().abs()
    bound += 3 * torch.finfo(rows_dtype).eps * terms.amax(0)
    assert ((found[3].double() - right[3].double()).abs() <= bound).all()


SMALL = dict(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, vocab_size=128,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
MODELS = {
    "mamba2": dict(hidden_size=64, num_hidden_layers=2, num_heads=8, head_dim=16, state_size=16, n_groups=1, expand=2, vocab_size=128,
                   chunk_size=16, pad_token_id=0, bos_token_id=1, eos_token_id=2),
    "qwen3_next": dict(SMALL, head_dim=16, num_hidden_layers=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                       shared_expert_intermediate_size=32, linear_num_value_heads=4, linear_num_key_heads=2,
                       linear_key_head_dim=16, linear_value_head_dim=16),
    "bamba": dict(SMALL, num_hidden_layers=2, attn_layer_indices=[1], mamba_n_heads=8, mamba_d_head=16, mamba_n_groups=1,
                  mamba_d_state=16, mamba_expand=2, mamba_chunk_size=16),
    "zamba2": dict(SMALL, num_hidden_layers=2, layers_block_type=["mamba", "mamba"], mamba_d_state=16, mamba_expand=2, mamba_ngroups=2,
                   n_mamba_heads=8, mamba_headdim=16, chunk_size=16, num_mem_blocks=1, use_mem_rope=True),
}  # fmt: skip


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_models(family, dtype, monkeypatch):
    """Every gated norm of a model runs on this library, and the logits are those of its own norms within the type's roundings."""
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **MODELS[family])).to(dtype).eval()
    ids = torch.randint(3, 128, (2, 20))
    seen, run = [], _torch_gates.run
    monkeypatch.setattr(_torch_gates, "run", lambda *a: seen.append(1) or run(*a))
    with torch.no_grad():
        own = model(ids, use_cache=False).logits
        report = rmsnorm.patch(model)
        gated = [e for e in report.patched if e.spec.gate_place]
        seen.clear()
        patched = model(ids, use_cache=False).logits
        assert gated and len(seen) == len(gated) and not report.left_alone, str(report)
        report.undo()
        assert torch.equal(model(ids, use_cache=False).logits, own)
    scale = own.abs().max()
    assert ((patched - own).abs() <= (1e-5 if dtype == torch.float32 else 2**-5) * scale).all()


@pytest.mark.parametrize("family", ["mamba2", "qwen3_next"])
def test_generation_and_training(family, monkeypatch):
    """Decoding has rows of another form, one token at a time; gradients reach every parameter."""
    torch.manual_seed(6)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **MODELS[family])).eval()
    ids = torch.randint(3, 128, (2, 12))

    def gradients():
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    tokens, own = model.generate(ids, max_new_tokens=8, do_sample=False), gradients()
    report = rmsnorm.patch(model)
    seen, run = [], _torch_gates.run
    monkeypatch.setattr(_torch_gates, "run", lambda *a: seen.append(1) or run(*a))
    gated = sum(e.spec.gate_place is not None for e in report.patched)
    assert torch.equal(model.generate(ids, max_new_tokens=8, do_sample=False), tokens)
    assert len(seen) == 8 * gated > 0
    found = gradients()
    assert len(seen) == 9 * gated
    assert found.keys() == own.keys() and any("norm" in name for name in found)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, own[name], rtol=1e-3, atol=float(1e-4 * own[name].abs().max()))
    report.undo()
