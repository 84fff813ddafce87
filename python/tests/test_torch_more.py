# SPDX-License-Identifier: MIT
"""rmsnorm.torch: lists of indices, derivatives in forward mode, and every form differentiated twice."""
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch.autograd import gradcheck, gradgradcheck

import rmsnorm
import rmsnorm.nn
import rmsnorm.torch as rt

LIST = (1, 2, 5)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


FORMS = {
    "rms": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b),
    "no weight": lambda x, w, b: rt.rms_norm(x, None, 1e-3),
    "layer": lambda x, w, b: rt.layer_norm(x, w, b, 1e-3),
    "offset": lambda x, w, b: rt.rms_norm(x, w, 1e-3, weight_offset=1.0),
    "partial": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, partial=3),
    "indices": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, indices=LIST),
    "indices in groups": lambda x, w, b: rt.rms_norm(x, w, 1e-3, indices=(0, 3), groups=2),
    "groups": lambda x, w, b: rt.layer_norm(x, w, b, 1e-3, groups=2),
    "outside": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, eps_place="outside"),
    "layer outside": lambda x, w, b: rt.layer_norm(x, w, b, 1e-3, eps_place="outside"),
    "before": lambda x, w, b: rt.rms_norm(x, w, 1e-3, bias=b, rounding="before_weight"),
    "heads": lambda x, w, b: rt.rms_norm(x, torch.stack((w, 2 * w)), 1e-3, bias=torch.stack((b, b))),
    "add": lambda x, w, b: rt.add_rms_norm(x, x.sin(), w, 1e-3, bias=b),
    "add indices": lambda x, w, b: rt.add_rms_norm(x, x.sin(), w, 1e-3, bias=b, indices=LIST),
    "add layer": lambda x, w, b: rt.add_layer_norm(x, x.sin(), w, b, 1e-3),
}


def inputs():
    x = torch.randn(3, 2, 8, dtype=torch.float64, requires_grad=True)
    return x, *(torch.randn(8, dtype=torch.float64, requires_grad=True) for _ in range(2))


@pytest.mark.parametrize("name", FORMS)
def test_forward_mode_and_second_derivatives(name):
    arguments = inputs()
    assert gradcheck(FORMS[name], arguments, check_forward_ad=True, check_batched_forward_grad=False)
    assert gradgradcheck(FORMS[name], arguments)


def test_forward_mode_keeps_the_bits():
    x, w, t = torch.randn(3, 40), torch.randn(40), torch.randn(3, 40)
    y = rt.rms_norm(x, w)
    for grad in (True, False):
        with fwAD.dual_level(), torch.set_grad_enabled(grad):
            primal, along = fwAD.unpack_dual(rt.rms_norm(fwAD.make_dual(x, t), w))
        assert torch.equal(primal, y) and along is not None
        double = torch.func.jvp(lambda x: rt.rms_norm(x, w.double()), (x.double(),), (t.double(),))[1]
        torch.testing.assert_close(along, double.float())
    y, along = torch.func.jvp(lambda x: rt.rms_norm(x, w), (x,), (t,))
    assert torch.equal(y, rt.rms_norm(x, w))


def test_hessian_and_jacobians():
    from torch.func import hessian, jacfwd, jacrev, vmap

    x, w = torch.randn(6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)

    def loss(x):
        return rt.rms_norm(x, w, 1e-3).sin().sum()

    def formula(x):
        return (x * (x.square().mean() + 1e-3).rsqrt() * w).sin().sum()

    torch.testing.assert_close(hessian(loss)(x), hessian(formula)(x))
    torch.testing.assert_close(jacfwd(lambda x: rt.rms_norm(x, w))(x), jacrev(lambda x: rt.rms_norm(x, w))(x))
    batch = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(vmap(jacfwd(loss))(batch), vmap(jacfwd(formula))(batch))


# ---- indices ----


def test_indices_have_the_bits_of_numpy():
    x, w = torch.randn(5, 16), torch.randn(16)
    expected = rmsnorm.rms_norm(x.numpy(), w.numpy(), indices=list(LIST))
    for indices in (LIST, list(LIST), np.array(LIST), torch.tensor(LIST), range(1, 3)):
        if isinstance(indices, range):
            expected = rmsnorm.rms_norm(x.numpy(), w.numpy(), indices=[1, 2])
        assert np.array_equal(rt.rms_norm(x, w, indices=indices).numpy(), expected)
    assert torch.equal(rt.rms_norm(x, w, indices=range(4)), rt.rms_norm(x, w, partial=4))


@pytest.mark.parametrize("indices", [(), (2, 1), (1, 1), (-1, 3), (0, 8)], ids=str)
def test_bad_indices(indices):
    with pytest.raises(ValueError, match="indices"):
        rt.rms_norm(torch.ones(2, 8), indices=indices)


def test_indices_of_other_kinds():
    with pytest.raises(TypeError, match="indices"):
        rt.rms_norm(torch.ones(2, 8), indices=(0.5,))
    with pytest.raises(ValueError, match="partial and indices"):
        rt.rms_norm(torch.ones(2, 8), indices=(0,), partial=2)
    for bad in (torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1), torch.zeros(0, dtype=torch.int64)):
        with pytest.raises(RuntimeError, match="rmsnorm|indices"):
            torch.ops.rmsnorm._norm(torch.ones(2, 8), None, None, 1e-5, 0.0, 0, 1, 0, bad)


def test_compiled_indices():
    torch._dynamo.reset()
    x, dy = torch.randn(3, 8, requires_grad=True), torch.randn(3, 8)

    def function(x):
        return rt.rms_norm(x, indices=LIST)

    expected = torch.autograd.grad(function(x), x, dy)[0]
    assert torch.equal(torch.autograd.grad(torch.compile(function, fullgraph=True)(x), x, dy)[0], expected)


def test_tensors_that_a_transform_left_behind():
    """They keep their gradients, as in torch's own functions."""
    x, w, kept = torch.randn(2, 8, requires_grad=True), torch.randn(8, requires_grad=True), []

    def keep(x):
        kept.append(x * 2)
        return x.sum()

    torch.func.grad(keep)(x)
    for function in (lambda t: rt.rms_norm(t, w), lambda t: rt.add_rms_norm(t, t, w)[0]):
        own = torch.autograd.grad(function(x * 2).sin().sum(), (x, w))
        left = torch.autograd.grad(function(kept[0]).sin().sum(), (x, w), retain_graph=True)
        assert torch.equal(own[0], left[0]) and torch.equal(own[1], left[1])


def test_import_leaves_dynamo_alone():
    """It takes a second, and who does not compile never needs it."""
    program = "import sys, rmsnorm.torch, rmsnorm.nn; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_symbolic_groups():
    class Heads(torch.nn.Module):
        def forward(self, x):
            return rt.rms_norm(x, groups=x.shape[-1] // 8)

    x = torch.randn(3, 64)
    width = 8 * torch.export.Dim("q", min=2, max=16)
    exported = torch.export.export(Heads(), (x,), dynamic_shapes=({1: width},), strict=False).module()
    assert torch.equal(exported(x), rt.rms_norm(x, groups=8))  # of this number of groups: it is an int of the operator


def test_normalized_shape_as_a_list():
    norm = rmsnorm.nn.RMSNorm(16)
    norm.normalized_shape = [16]
    x = torch.randn(3, 16)
    assert torch.equal(norm(x), rt.rms_norm(x, norm.weight, torch.finfo(torch.float32).eps))
