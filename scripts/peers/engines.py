# SPDX-License-Identifier: MIT
"""The engines of gpu.py. An engine has, for each operation that it offers, a function that takes a set of inputs (see
operations.tensors) and returns a function without arguments: the call. A call returns the outputs in the order of the
formula, and may return more after them. It allocates its outputs itself.

Folders that hold the peers are named in PEERS, separated by colons; installed packages are found as usual."""
import importlib
import os
import sys

import torch
import torch.nn.functional as F

import rms
from operations import ADDED, EPS, FORMULAS, Ours

for folder in filter(None, os.environ.get("PEERS", "").split(":")):
    sys.path += [folder, os.path.join(folder, "nvidia_cutlass_dsl", "dsl_packages")]


def copy():
    """The bound: a copy, or an addition where more is read than written."""

    def prepare(s):
        if s.op in ADDED:
            other = getattr(s, ADDED[s.op])
            return lambda: s.x + other
        return lambda: s.x.clone()

    return dict.fromkeys(FORMULAS, prepare)


def ours():
    library = rms.Library("librmsnorm_cuda.so", "rms_cuda_")
    return dict.fromkeys(FORMULAS, Ours(library, lambda: torch.cuda.current_stream().cuda_stream).prepare)


def eager():
    norm, norm_backward = torch.ops.aten._fused_rms_norm, torch.ops.aten._fused_rms_norm_backward
    layer_backward = torch.ops.aten.native_layer_norm_backward

    def added(s):
        total = s.x + s.r
        return norm(total, [s.x.shape[1]], s.w, EPS)[0], total

    return {
        "rms": lambda s: lambda: norm(s.x, [s.x.shape[1]], s.w, EPS),
        "rms-bwd": lambda s: lambda: norm_backward(s.dy, s.x, [s.x.shape[1]], s.rstd, s.w, [True, True]),
        "ln": lambda s: lambda: torch.native_layer_norm(s.x, [s.x.shape[1]], s.w, s.b, EPS),
        "ln-bwd": lambda s: lambda: layer_backward(s.dy, s.x, [s.x.shape[1]], s.mean, s.rstd, s.w, s.w, [True] * 3),
        "residual": lambda s: lambda: added(s),
        "gate": lambda s: lambda: norm(s.x, [s.x.shape[1]], s.w, EPS)[0] * F.silu(s.z),
        "mamba": lambda s: lambda: norm(s.x * F.silu(s.z), [s.x.shape[1]], s.w, EPS)[0],
    }


def compiled():
    """torch.compile of the formula, afresh for each shape: after eight shapes it would run the formula uncompiled."""
    import torch._dynamo

    state = {}

    def prepare(s):
        case = s.op, s.x.shape, s.x.dtype
        if state.get("case") != case:
            torch._dynamo.reset()
            state.update(case=case, function=torch.compile(FORMULAS[s.op], dynamic=False, fullgraph=True))
        function = state["function"]
        return lambda: function(*s.inputs)

    return dict.fromkeys(FORMULAS, prepare)


def liger():
    from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward
    from liger_kernel.ops.layer_norm import layer_norm_backward, layer_norm_forward
    from liger_kernel.ops.rms_norm import _str_to_casting_mode, rms_norm_backward, rms_norm_forward
    from liger_kernel.ops.utils import calculate_settings

    mode = _str_to_casting_mode["llama"]

    def backward(s):
        block, warps = calculate_settings(s.x.shape[1])
        # By default dx is written over dy; otherwise dx is filled with zeros first, which nobody would ask for.
        dy, rstd = s.dy.clone(), s.rstd.view(-1)
        return lambda: rms_norm_backward(dy, s.x, s.w, rstd, 0.0, mode, block, warps, True, None)

    return {
        "rms": lambda s: lambda: rms_norm_forward(s.x, s.w, EPS, 0.0, "llama", None),
        "rms-bwd": backward,
        "ln": lambda s: lambda: layer_norm_forward(s.x, s.w, s.b, EPS),
        "ln-bwd": lambda s: lambda: layer_norm_backward(s.dy, s.x, s.w, s.w, s.mean.view(-1), s.rstd.view(-1)),
        "residual": lambda s: lambda: fused_add_rms_norm_forward(s.x, s.r, s.w, EPS, 0.0, "llama"),
    }


def flash_attn():
    from flash_attn.ops.triton.layer_norm import _layer_norm_bwd, _layer_norm_fwd

    def added(s):
        y, _, _, rstd, total, *_ = _layer_norm_fwd(s.x, s.w, None, EPS, residual=s.r, is_rms_norm=True)
        return y, total, rstd

    return {
        "rms": lambda s: lambda: _layer_norm_fwd(s.x, s.w, None, EPS, is_rms_norm=True),
        "rms-bwd": lambda s: lambda: _layer_norm_bwd(s.dy, s.x, s.w, None, EPS, None, s.rstd.view(-1), is_rms_norm=True),
        "ln": lambda s: lambda: _layer_norm_fwd(s.x, s.w, s.b, EPS),
        "ln-bwd": lambda s: lambda: _layer_norm_bwd(s.dy, s.x, s.w, s.w, EPS, s.mean.view(-1), s.rstd.view(-1)),
        "residual": lambda s: lambda: added(s),
    }


def fla():
    from fla.modules.norm.fused_norm_gate import layer_norm_gated_bwd, layer_norm_gated_fwd

    return {
        "gate": lambda s: lambda: layer_norm_gated_fwd(s.x, s.z, s.w, None, "swish", EPS, is_rms_norm=True),
        "gate-bwd": lambda s: lambda: layer_norm_gated_bwd(s.dy, s.x, s.z, s.w, None, "swish", EPS, None, s.rstd.view(-1),
                                                           is_rms_norm=True),
    }  # fmt: skip


def mamba():
    from mamba_ssm.ops.triton.layernorm_gated import _layer_norm_fwd

    def forward(first):
        return lambda s: lambda: _layer_norm_fwd(s.x, s.w, None, EPS, z=s.z, norm_before_gate=first, is_rms_norm=True)

    return {"gate": forward(True), "mamba": forward(False)}


def vllm():
    from vllm.third_party.flash_linear_attention.ops.layernorm_guard import layer_norm_fwd

    def forward(first):
        return lambda s: lambda: layer_norm_fwd(s.x, s.w, None, EPS, z=s.z, norm_before_gate=first, is_rms_norm=True)

    return {"gate": forward(True), "mamba": forward(False)}


def quack():
    q = importlib.import_module("quack.rmsnorm")  # the package has a function of the module's name

    def layer(s):
        w, b = s.w.float(), s.b.float()  # it takes these in f32 alone
        return lambda: q.layernorm_fwd(s.x, w, b, EPS, return_rstd=True, return_mean=True)

    return {
        "rms": lambda s: lambda: q.rmsnorm_fwd(s.x, s.w, eps=EPS, store_rstd=True),
        "rms-bwd": lambda s: lambda: q.rmsnorm_bwd(s.x, s.w, s.dy, s.rstd.view(-1)),
        "ln": layer,
        "residual": lambda s: lambda: q.rmsnorm_fwd(s.x, s.w, residual=s.r, eps=EPS, store_rstd=True),
    }


ALL = {"copy": copy, "ours": ours, "eager": eager, "compile": compiled, "liger": liger, "flash-attn": flash_attn,
       "fla": fla, "mamba-ssm": mamba, "vllm": vllm, "quack": quack}  # fmt: skip


def load(only=()) -> tuple[dict[str, dict], dict[str, str]]:
    """The engines that can be had, and why the others cannot."""
    engines, missing = {}, {}
    for name, make in ALL.items():
        if only and name not in only and name not in ("copy", "ours"):
            continue
        try:
            engines[name] = make()
        except Exception as error:  # whatever a package does when it is imported
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    return engines, missing
