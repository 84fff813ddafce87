# SPDX-License-Identifier: MIT
"""rmsnorm.kernels in the mapping of the kernels library, on models of transformers."""
import copy
import importlib

import kernels
import pytest
import torch
from operators import CountedOperators
from test_gates_transformers import MODELS
from test_transformers import small_model
from transformers import AutoConfig, AutoModelForCausalLM

import rmsnorm.kernels
from rmsnorm import _torch_gates
from rmsnorm.hf import Spec


def kernelized(model, mode):
    with kernels.use_kernel_mapping(rmsnorm.kernels.mapping(), inherit_mapping=False):
        return kernels.kernelize(model, mode=mode, device="cpu")


def calls_of(model, ids):
    """How often the operators of this library run in a call of the model."""
    with torch.no_grad(), CountedOperators() as operators:
        model(ids)
    return operators.count


@pytest.mark.parametrize("family, rounding", [("llama", "before_weight"), ("olmo2", "after_weight"), ("gpt_oss", "after_weight")])
def test_one_name_and_two_arithmetics(family, rounding):
    model, ids = small_model(family)
    with torch.no_grad():
        own = model(ids).logits
        model = kernelized(model, kernels.Mode.INFERENCE)
        got = model(ids).logits
    norm = next(m for m in model.modules() if type(m).__name__.endswith("RMSNorm"))
    spec = Spec("rms", rounding, 0.0, "variance_epsilon", "torch")
    assert rmsnorm.kernels._arithmetic_of(norm, torch.ones(1, 128).bfloat16()) == ("variance_epsilon", 0.0, 1, spec.mode)
    assert calls_of(model, ids) >= 5
    assert torch.equal(got, own)


def test_training_and_compile():
    model, ids = small_model("llama")
    model.float().train()
    own = torch.autograd.grad(model(ids, labels=ids).loss, list(model.parameters()))
    model = kernelized(model, kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE)
    assert calls_of(model, ids) >= 5
    compiled = torch.compile(model.model.layers[0].input_layernorm, fullgraph=True)
    x = torch.randn(3, 128)
    assert torch.equal(compiled(x), model.model.layers[0].input_layernorm(x))
    for a, b in zip(own, torch.autograd.grad(model(ids, labels=ids).loss, list(model.parameters()))):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_layers_that_cannot_be_made_keep_their_forward():
    class Odd(torch.nn.Module):
        def __init__(self, a, b):
            super().__init__()

        def forward(self, hidden_states):
            return hidden_states + 1

    module = kernels.use_kernel_forward_from_hub("RMSNorm")(Odd)(1, 2)
    assert torch.equal(kernelized(module, kernels.Mode.INFERENCE)(torch.ones(2)), torch.full((2,), 2.0))


# ---- norms with a gate ----

GATED = {
    "glm5_next": "Glm5NextTextRMSNormGated", "kimi_linear": "KimiLinearRMSNormGated", "olmo_hybrid": "OlmoHybridRMSNormGated",
    "qwen3_5": "Qwen3_5RMSNormGated", "qwen3_5_moe": "Qwen3_5MoeRMSNormGated", "qwen3_next": "Qwen3NextRMSNormGated",
    "qwen4_exp": "Qwen4ExpTextRMSNormGated",
}  # fmt: skip


@pytest.fixture
def calls(monkeypatch):
    """How often the library ran."""
    seen, run = [], _torch_gates.run
    monkeypatch.setattr(_torch_gates, "run", lambda *a: seen.append(1) or run(*a))
    return seen


def gated(model, **options):
    torch.manual_seed(8)
    norm = getattr(importlib.import_module(f"transformers.models.{model}.modeling_{model}"), GATED[model])(96, eps=1e-5, **options)
    norm.weight.data = torch.randn(96)
    return norm.bfloat16()


@pytest.mark.parametrize("model, options", [(m, {}) for m in GATED] + [("qwen4_exp", dict(activation="sigmoid"))], ids=str)
def test_gated_classes(model, options, calls):
    """The results and gradients of rmsnorm.patch, whose own tests compare them with those of the class."""
    norm = gated(model, **options)
    patched = copy.deepcopy(norm)
    assert rmsnorm.patch(patched).patched
    norm = kernelized(norm, kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE)
    x, gate = (torch.randn(4, 7, 96).bfloat16().requires_grad_() for _ in range(2))
    norm(x, gate)  # with its trial
    calls.clear()
    results = [module(x, gate) for module in (norm, patched)]
    assert len(calls) == 2 and torch.equal(*results)
    own = type(norm).forward(norm, x, gate)
    assert len(calls) == 2 and (results[0] != own).float().mean() < 0.001
    gradients = [torch.autograd.grad(y, (x, gate, m.weight), results[0].detach()) for y, m in zip(results, (norm, patched))]
    assert all(torch.equal(a, b) for a, b in zip(*gradients))
    narrow = gate.detach().float()
    assert torch.equal(norm(x, narrow), type(norm).forward(norm, x, narrow)) and len(calls) == 2  # was not tried


def test_a_gated_class_compiles():
    torch._dynamo.reset()
    norm = kernelized(gated("qwen3_next"), kernels.Mode.INFERENCE | kernels.Mode.TORCH_COMPILE)
    x, gate = (torch.randn(4, 7, 96).bfloat16() for _ in range(2))
    norm(x, gate)  # with its trial
    with CountedOperators() as operators:
        expected = norm(x, gate)
    assert operators.count == 1 and torch.equal(torch.compile(norm, fullgraph=True)(x, gate), expected)


def test_a_model_with_gates(calls):
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3_next", **MODELS["qwen3_next"])).bfloat16().eval()
    ids = torch.randint(3, 128, (2, 20))
    patched = copy.deepcopy(model)
    count = sum(e.spec.gate_place is not None for e in rmsnorm.patch(patched).patched)
    with torch.no_grad():
        expected = patched(ids, use_cache=False).logits
        model = kernelized(model, kernels.Mode.INFERENCE)
        model(ids, use_cache=False)
        calls.clear()
        assert torch.equal(model(ids, use_cache=False).logits, expected) and len(calls) == count > 0


def test_options_of_the_constructor_are_tried():
    """Classes of one name whose arithmetic depends on what they are made with."""

    @kernels.use_kernel_forward_from_hub("RMSNorm")
    class OptionNorm(torch.nn.Module):
        def __init__(self, width, offset=0.0, eps=1e-6):
            super().__init__()
            self.weight, self.offset, self.eps = torch.nn.Parameter(torch.randn(width)), offset, eps

        def forward(self, hidden_states):
            f = hidden_states.float()
            f = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps)
            return (f * (self.offset + self.weight.float())).to(hidden_states.dtype)

    x = torch.randn(5, 48).bfloat16()
    for offset in (0.0, 1.0, 0.5):
        norm = OptionNorm(48, offset).bfloat16()
        own = norm(x)
        assert torch.equal(kernelized(norm, kernels.Mode.INFERENCE)(x), own)
        arithmetic = rmsnorm.kernels._arithmetic_of(norm, x)
        assert arithmetic is None if offset == 0.5 else arithmetic[1] == offset
