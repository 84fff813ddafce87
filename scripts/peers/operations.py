# SPDX-License-Identifier: MIT
"""The operations that are compared: their inputs, their formula in torch, and the calls of this library.

The formula is what torch.compile gets, and the reference that the results of every engine are compared with.
"""
from types import SimpleNamespace

import torch
import torch.nn.functional as F

import rms

EPS = 1e-6
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
CODES = {torch.float32: rms.F32, torch.bfloat16: rms.BF16, torch.float16: rms.F16, torch.int8: rms.I8,
         torch.float8_e4m3fn: rms.E4M3}  # fmt: skip
# The type of the codes, the largest code and the elements that share a scale (0: the whole row).
QUANTISED = {"int8": (torch.int8, 127.0, 0), "e4m3": (torch.float8_e4m3fn, 448.0, 0),
             "e4m3-128": (torch.float8_e4m3fn, 448.0, 128)}  # fmt: skip


# ---- formulas ----


def normalise(x, w):
    return F.rms_norm(x, (x.shape[-1],), w, EPS)


def rms_backward(dy, x, w, rstd):
    h, u = x.float() * rstd, dy.float() * w.float()
    dx = rstd * (u - h * (u * h).mean(-1, keepdim=True))
    return dx.to(x.dtype), (dy.float() * h).sum(0).to(w.dtype)


def layer(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b, EPS)


def layer_backward(dy, x, w, rstd, mean):
    h, u = (x.float() - mean) * rstd, dy.float() * w.float()
    dx = rstd * (u - u.mean(-1, keepdim=True) - h * (u * h).mean(-1, keepdim=True))
    return dx.to(x.dtype), (dy.float() * h).sum(0).to(w.dtype), dy.float().sum(0).to(w.dtype)


def residual(x, r, w):
    total = x + r
    return normalise(total, w), total


def wide(x):
    """x divided by its root mean square, in f32."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def gate_after(x, z, w):
    return (wide(x.float()) * w.float() * F.silu(z.float())).to(x.dtype)


def gate_after_backward(dy, x, z, w, rstd):
    h, g, dyf, zf = x.float() * rstd, w.float(), dy.float(), z.float()
    s = torch.sigmoid(zf)
    dm = dyf * zf * s
    u = dm * g
    dx = rstd * (u - h * (u * h).mean(-1, keepdim=True))
    dz = dyf * h * g * s * (1 + zf * (1 - s))
    return dx.to(x.dtype), dz.to(z.dtype), (dm * h).sum(0).to(w.dtype)


def gate_before(x, z, w):
    return (wide(x.float() * F.silu(z.float())) * w.float()).to(x.dtype)


def quantised(op):
    dtype, largest, block = QUANTISED[op]

    def formula(x, w):
        rows, cols = x.shape
        y = normalise(x, w).float().view(rows, -1, block or cols)
        scale = y.abs().amax(-1, keepdim=True) / largest
        q = y / scale
        q = q.round() if dtype is torch.int8 else q
        return q.to(dtype).view(rows, cols), scale.view(rows, -1)

    return formula


FORMULAS = {
    "rms": normalise, "rms-bwd": rms_backward, "ln": layer, "ln-bwd": layer_backward, "residual": residual,
    "gate": gate_after, "gate-bwd": gate_after_backward, "mamba": gate_before, **{op: quantised(op) for op in QUANTISED},
}  # fmt: skip
INPUTS = {
    "rms": "x w", "rms-bwd": "dy x w rstd", "ln": "x w b", "ln-bwd": "dy x w rstd mean", "residual": "x r w",
    "gate": "x z w", "gate-bwd": "dy x z w rstd", "mamba": "x z w", **{op: "x w" for op in QUANTISED},
}  # fmt: skip
TITLES = {
    "rms": "RMSNorm, forward", "rms-bwd": "RMSNorm, backward (dx and dweight)", "ln": "LayerNorm, forward",
    "ln-bwd": "LayerNorm, backward (dx, dweight and dbias)", "residual": "RMSNorm of x + residual, forward",
    "gate": "norm(x)*silu(z), forward",
    "gate-bwd": "norm(x)*silu(z), backward (dx, dz and dweight)", "mamba": "norm(x*silu(z)), forward",
    "int8": "RMSNorm to int8, a scale per row", "e4m3": "RMSNorm to e4m3, a scale per row",
    "e4m3-128": "RMSNorm to e4m3, a scale per 128 elements",
}  # fmt: skip
# Tensors of the size of x that are read and written.
TRAFFIC = {"rms": 2, "rms-bwd": 3, "ln": 2, "ln-bwd": 3, "residual": 4, "gate": 3, "gate-bwd": 5, "mamba": 3}


# The other operand of an addition that is the bound where more is read than written; elsewhere it is a copy of x.
ADDED = {"rms-bwd": "dy", "ln-bwd": "dy", "gate": "z", "gate-bwd": "z", "mamba": "z"}


def moved(op, rows, cols, dtype) -> int:
    """Bytes that must move: the tensors of the size of x, and the scales."""
    size = dtype.itemsize
    if op in QUANTISED:
        return rows * (cols * (size + 1) + 4 * (cols // (QUANTISED[op][2] or cols)))
    return rows * cols * size * TRAFFIC[op]


def copied(op, rows, cols, dtype) -> int:
    """Bytes that the bound moves."""
    return rows * cols * dtype.itemsize * (3 if op in ADDED else 2)


def tensors(op, rows, cols, dtype, device, shared=None) -> SimpleNamespace:
    """Random inputs. The weights are those of `shared`, if that is given."""
    names = INPUTS[op].split()
    s = SimpleNamespace(op=op)
    for name in names:
        if name in ("w", "b"):
            setattr(s, name, getattr(shared, name) if shared else torch.randn(cols, device=device, dtype=dtype))
        elif name not in ("rstd", "mean"):
            setattr(s, name, torch.randn(rows, cols, device=device, dtype=dtype))
    if "rstd" in names:
        wide_x = s.x.float()
        if "mean" in names:
            s.mean = wide_x.mean(-1, keepdim=True)
            wide_x -= s.mean
        s.rstd = torch.rsqrt(wide_x.square_().mean(-1, keepdim=True) + EPS)
    s.inputs = tuple(getattr(s, name) for name in names)
    return s


def comparable(op, outputs):
    if op not in QUANTISED:
        return [t.float() for t in outputs]
    q, scale = outputs[0].float(), outputs[1].float()
    blocks = scale.numel() // q.shape[0]
    return [(q.view(q.shape[0], blocks, -1) * scale.view(q.shape[0], blocks, 1)).view(q.shape)]


def reference(s):
    """What an engine must give for these inputs, from the formula on f32 copies of them."""
    outputs = FORMULAS[s.op](*(t.float() for t in s.inputs))
    return comparable(s.op, outputs if isinstance(outputs, tuple) else (outputs,))


def agrees(op, outputs, wanted) -> bool:
    """Whether the largest difference is within what the types of the operands explain."""
    tolerance = 0.07 if op.startswith("e4m3") else 0.02
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return all(((a - b).abs().max() <= tolerance * b.abs().max()).item()
               for a, b in zip(comparable(op, outputs[: 2 if op in QUANTISED else len(wanted)]), wanted))  # fmt: skip


# ---- this library ----


def view(tensor) -> rms.View:
    return rms.View(tensor.data_ptr(), CODES[tensor.dtype])


class Ours:
    """`where()` is the executor or the stream of a call. Each call allocates its outputs, as other engines do."""

    def __init__(self, library: rms.Library, where):
        self.library, self.where = library, where

    def prepare(self, s):
        """A function without arguments that makes the call for these inputs."""
        return self._backward(s) if s.op.endswith("-bwd") else self._forward(s)

    def _forward(self, s):
        op, x, library, where = s.op, s.x, self.library, self.where
        rows, cols = x.shape
        spec = rms.Spec(cols=cols, eps=EPS, kind=rms.LAYER if op == "ln" else 0)
        spec.gate_place = {"gate": rms.GATE_AFTER, "mamba": rms.GATE_BEFORE}.get(op, 0)
        args = rms.Forward(outer=rows, x=view(x), weight=s.w.data_ptr())
        if op == "ln":
            args.bias = s.b.data_ptr()
        if op == "residual":
            args.residual, args.residual_out = view(s.r), view(s.r)
        if spec.gate_place:
            args.gate = view(s.z)
        if op in QUANTISED:
            dtype, _, block = QUANTISED[op]
            spec.scale_block = block or cols
            args.q = rms.View(None, CODES[dtype])
            blocks = cols // spec.scale_block

            def call():
                q = torch.empty_like(x, dtype=dtype)
                scale = torch.empty(rows, blocks, device=x.device)
                args.q.data, args.scale = q.data_ptr(), scale.data_ptr()
                library.forward(spec, args, where())
                return q, scale

            return call
        args.y = view(x)

        def call():
            y, rstd = torch.empty_like(x), torch.empty(rows, device=x.device)
            args.y.data, args.rstd = y.data_ptr(), rstd.data_ptr()
            outputs = [y, rstd]
            if op == "ln":
                mean = torch.empty(rows, device=x.device)
                args.mean = mean.data_ptr()
                outputs.append(mean)
            if op == "residual":
                total = torch.empty_like(x)
                args.residual_out.data = total.data_ptr()
                outputs.insert(1, total)
            library.forward(spec, args, where())
            return outputs

        return call

    def _backward(self, s):
        x, w, library, where = s.x, s.w, self.library, self.where
        gated, centred = s.op == "gate-bwd", s.op == "ln-bwd"
        spec = rms.Spec(cols=x.shape[1], eps=EPS, kind=rms.LAYER if centred else 0,
                        gate_place=rms.GATE_AFTER if gated else 0)  # fmt: skip
        args = rms.Backward(outer=x.shape[0], dy=view(s.dy), x=view(x), dx=view(x), weight=w.data_ptr(),
                            rstd=s.rstd.data_ptr(), dweight=w.data_ptr())  # fmt: skip
        if gated:
            args.gate, args.dgate = view(s.z), view(s.z)
        if centred:
            args.mean, args.dbias = s.mean.data_ptr(), w.data_ptr()
        args.workspace_bytes = library.workspace(spec, args)

        def call():
            dx, dw = torch.empty_like(x), torch.empty_like(w)
            workspace = torch.empty(args.workspace_bytes + 64, dtype=torch.uint8, device=x.device)
            args.dx.data, args.dweight = dx.data_ptr(), dw.data_ptr()
            args.workspace = (workspace.data_ptr() + 63) // 64 * 64
            outputs = [dx, dw]
            if gated:
                outputs.insert(1, torch.empty_like(x))
                args.dgate.data = outputs[1].data_ptr()
            if centred:
                outputs.append(torch.empty_like(w))
                args.dbias = outputs[2].data_ptr()
            library.backward(spec, args, where())
            return outputs

        return call
