# SPDX-License-Identifier: MIT
"""rmsnorm.kernels in the mapping of the kernels library, on models of transformers."""
import kernels
import pytest
import torch
from test_transformers import small_model

import rmsnorm.kernels
from rmsnorm.hf import Spec


def kernelized(model, mode):
    with kernels.use_kernel_mapping(rmsnorm.kernels.mapping(), inherit_mapping=False):
        return kernels.kernelize(model, mode=mode, device="cpu")


def calls_of(model, ids):
    """How often the operators of this library run in a call of the model."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            Count.count += "rmsnorm" in str(function)
            return function(*arguments, **(keywords or {}))

    with torch.no_grad(), Count():
        model(ids)
    return Count.count


@pytest.mark.parametrize("family, rounding", [("llama", "before_weight"), ("olmo2", "after_weight"), ("gpt_oss", "after_weight")])
def test_one_name_and_two_arithmetics(family, rounding):
    model, ids = small_model(family)
    with torch.no_grad():
        own = model(ids).logits
        model = kernelized(model, kernels.Mode.INFERENCE)
        got = model(ids).logits
    norm = next(m for m in model.modules() if type(m).__name__.endswith("RMSNorm"))
    assert rmsnorm.kernels._tried(type(norm)) == Spec("rms", rounding, 0.0, "variance_epsilon", "torch")
    assert calls_of(model, ids) >= 5
    assert torch.equal(got, own)


def test_training_and_compile():
    model, ids = small_model("llama")
    model.float().train()
    own = torch.autograd.grad(model(ids, labels=ids).loss, list(model.parameters()))
    model = kernelized(model, kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE)
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
