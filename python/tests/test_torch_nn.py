# SPDX-License-Identifier: MIT
"""rmsnorm.nn: modules that stand in for torch's own."""
import copy
import inspect
import typing

import pytest
import torch
import torch.nn.functional as F

import rmsnorm.nn
from torch_cases import formula


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


@pytest.mark.parametrize("shape", [16, (16,), (4, 16), [2, 4, 16]], ids=str)
@pytest.mark.parametrize("options", [dict(), dict(eps=1e-3), dict(elementwise_affine=False), dict(dtype=torch.float64)], ids=str)
def test_rms_norm_module(shape, options):
    ours, theirs = rmsnorm.nn.RMSNorm(shape, **options), torch.nn.RMSNorm(shape, **options)
    assert repr(ours) == repr(theirs) and list(ours.state_dict()) == list(theirs.state_dict())
    if ours.weight is not None:
        torch.nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    for dtype in (torch.float32, torch.float64) if options.get("dtype") is None else (torch.float64,):
        x = (torch.randn(3, 2, 4, 16) * 1e-3).to(dtype)
        torch.testing.assert_close(ours(x), theirs(x), check_dtype=ours.weight is None or ours.weight.dtype == dtype)
    assert ours(x).shape == x.shape
    with pytest.raises(RuntimeError):
        ours(torch.randn(3, 15, dtype=x.dtype))


@pytest.mark.parametrize("options", [dict(), dict(bias=False), dict(elementwise_affine=False), dict(eps=1e-3)], ids=str)
def test_layer_norm_module(options):
    ours, theirs = rmsnorm.nn.LayerNorm((4, 16), **options), torch.nn.LayerNorm((4, 16), **options)
    assert repr(ours) == repr(theirs) and list(ours.state_dict()) == list(theirs.state_dict())
    x = torch.randn(3, 4, 16)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("name", ["RMSNorm", "LayerNorm"])
def test_the_signatures_are_those_of_torch(name):
    ours, theirs = getattr(rmsnorm.nn, name), getattr(torch.nn, name)
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert list(inspect.signature(ours.forward).parameters) == list(inspect.signature(theirs.forward).parameters)


@pytest.mark.parametrize("shape", [(), (8,), (3, 15)], ids=str)
def test_rows_of_another_shape(shape):
    for module in (rmsnorm.nn.RMSNorm(16), rmsnorm.nn.LayerNorm((4, 16)), rmsnorm.nn.PartialRMSNorm(16)):
        with pytest.raises(RuntimeError, match="is expected at its end"):
            module(torch.ones(shape))


@pytest.mark.parametrize("name", [n for n in rmsnorm.nn.__all__ if n not in ("RMSNorm", "LayerNorm")])
def test_constructors_have_types(name):
    """A checker that is strict refuses calls of functions without. Those of RMSNorm and LayerNorm are torch's."""
    constructor = getattr(rmsnorm.nn, name).__init__
    hints = typing.get_type_hints(constructor)
    assert constructor.__module__ == "rmsnorm.nn" and "return" in hints
    assert set(inspect.signature(getattr(rmsnorm.nn, name)).parameters) <= set(hints)


def test_partial_module():
    module = rmsnorm.nn.PartialRMSNorm(64, p=0.0625, eps=1e-6)
    x = torch.randn(3, 64)
    torch.testing.assert_close(module(x).double(), formula(x, None, 1e-6, partial=4), check_dtype=False, atol=1e-5, rtol=1e-5)
    assert list(module.state_dict()) == ["weight"] and copy.deepcopy(module).p == 0.0625
    with pytest.raises(ValueError):
        rmsnorm.nn.PartialRMSNorm(64, p=1.5)


def test_parameters_of_another_type():
    x = torch.randn(3, 16)
    module = rmsnorm.nn.RMSNorm(16, eps=1e-6, dtype=torch.bfloat16)
    torch.testing.assert_close(module(x), F.rms_norm(x, (16,), None, 1e-6))
    module(x).sum().backward()
    assert module.weight.grad.dtype == torch.bfloat16
    assert rmsnorm.nn.RMSNorm(16)(x.bfloat16()).dtype == torch.bfloat16
