# SPDX-License-Identifier: MIT
"""The shared libraries through ctypes: the structs of rmsnorm.h, and calls of the exported functions with their sizes.

RMS_BUILD names the folder in which librmsnorm.so and librmsnorm_cuda.so are looked for (default: build-gpu, then build).
"""
import ctypes as c
import os
from pathlib import Path

F32, F64, BF16, F16, I8, E4M3 = 1, 2, 3, 4, 5, 6
LAYER = 1
GATE_AFTER, GATE_BEFORE = 1, 2


class Spec(c.Structure):
    _fields_ = [
        ("cols", c.c_int64), ("eps", c.c_double), ("partial", c.c_int64), ("indices", c.c_void_p), ("groups", c.c_int64),
        ("weight_offset", c.c_double), ("kind", c.c_int32), ("eps_place", c.c_int32), ("rounding", c.c_int32),
        ("weight_per_inner", c.c_int32), ("gate_place", c.c_int32), ("activation", c.c_int32), ("scale_block", c.c_int64),
        ("scale_least", c.c_double), ("gain_rounding", c.c_int32), ("steps", c.c_int32),
    ]  # fmt: skip


class View(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int32), ("reserved", c.c_int32), ("outer_stride", c.c_int64),
                ("inner_stride", c.c_int64), ("col_stride", c.c_int64)]  # fmt: skip


class Forward(c.Structure):
    _fields_ = [
        ("outer", c.c_int64), ("inner", c.c_int64), ("x", View), ("residual", View), ("weight", c.c_void_p),
        ("bias", c.c_void_p), ("y", View), ("residual_out", View), ("rstd", c.c_void_p), ("mean", c.c_void_p),
        ("weight_dtype", c.c_int32), ("bias_dtype", c.c_int32), ("gate", View), ("q", View), ("scale", c.c_void_p),
        ("weight_stride", c.c_int64),
    ]  # fmt: skip


class Backward(c.Structure):
    _fields_ = [
        ("outer", c.c_int64), ("inner", c.c_int64), ("dy", View), ("x", View), ("dresidual", View), ("weight", c.c_void_p),
        ("rstd", c.c_void_p), ("mean", c.c_void_p), ("dx", View), ("dresidual_out", View), ("dweight", c.c_void_p),
        ("dbias", c.c_void_p), ("workspace", c.c_void_p), ("workspace_bytes", c.c_size_t), ("weight_dtype", c.c_int32),
        ("dweight_dtype", c.c_int32), ("dbias_dtype", c.c_int32), ("accumulate", c.c_int32), ("gate", View),
        ("dgate", View), ("bias", c.c_void_p), ("bias_dtype", c.c_int32), ("reserved", c.c_int32),
        ("weight_stride", c.c_int64),
    ]  # fmt: skip


class Executor(c.Structure):
    _fields_ = [("ctx", c.c_void_p), ("concurrency", c.c_int32), ("run", c.c_void_p)]


def find(name: str) -> str:
    """The path of a library in the build folder."""
    root = Path(__file__).resolve().parents[2]
    folders = [os.environ["RMS_BUILD"]] if "RMS_BUILD" in os.environ else [root / "build-gpu", root / "build"]
    for folder in folders:
        found = sorted(Path(folder).glob(f"**/{name}"))
        if found:
            return str(found[0])
    raise FileNotFoundError(f"{name} is not in {', '.join(map(str, folders))}: build it and set RMS_BUILD")


class Library:
    """`prefix` is rms_ or rms_cuda_; the last argument of a call is an executor or a stream, as the functions have it."""

    def __init__(self, name: str, prefix: str):
        self.path = find(name)
        self.library = c.CDLL(self.path)
        for what, args in (("forward", Forward), ("backward", Backward)):
            function = getattr(self.library, f"{prefix}{what}_sized")
            function.restype = c.c_int
            function.argtypes = [c.POINTER(Spec), c.c_size_t, c.POINTER(args), c.c_size_t, c.c_void_p]
            setattr(self, what + "_sized", function)
        self.workspace_sized = getattr(self.library, f"{prefix}backward_workspace_sized")
        self.workspace_sized.restype = c.c_size_t
        self.workspace_sized.argtypes = [c.POINTER(Spec), c.c_size_t, c.POINTER(Backward), c.c_size_t]

    def forward(self, spec: Spec, args: Forward, where) -> None:
        status = self.forward_sized(spec, c.sizeof(Spec), args, c.sizeof(Forward), where)
        if status:
            raise RuntimeError(f"forward returned status {status} of rmsnorm.h")

    def backward(self, spec: Spec, args: Backward, where) -> None:
        status = self.backward_sized(spec, c.sizeof(Spec), args, c.sizeof(Backward), where)
        if status:
            raise RuntimeError(f"backward returned status {status} of rmsnorm.h")

    def workspace(self, spec: Spec, args: Backward) -> int:
        return self.workspace_sized(spec, c.sizeof(Spec), args, c.sizeof(Backward))
