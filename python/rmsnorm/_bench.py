# SPDX-License-Identifier: MIT
"""``python -m rmsnorm bench``: this library beside torch's functions, or beside a NumPy formula where torch is missing.

The functions of a line are timed in turns in one process, and the figure is the smallest of the rounds: what else the
machine does only adds to a time.
"""
from __future__ import annotations

import os
import sys
import time
from typing import Callable, Iterator

import numpy as np

from . import _core, _numpy

SHORT = [(1, 64), (8, 4096), (512, 4096)]
FULL = [(1, 64), (8, 4096), (512, 4096), (8192, 4096)]


def interleaved(functions: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Microseconds of a call: the smallest of rounds in which each function has its turn. Short calls are timed in batches."""
    batch = {}
    for name, f in functions.items():
        f()
        start = time.perf_counter()
        f()
        batch[name] = max(1, min(200, int(5e-4 / max(time.perf_counter() - start, 1e-7))))
    best, rounds = dict.fromkeys(functions, float("inf")), 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or rounds < 7:
        rounds += 1
        for name, f in functions.items():
            start = time.perf_counter()
            for _ in range(batch[name]):
                f()
            best[name] = min(best[name], (time.perf_counter() - start) / batch[name] * 1e6)
    return best


def _torch_case(rows, cols, dtype, backward) -> dict[str, Callable[[], object]]:
    import torch
    import torch.nn.functional as F

    from . import torch as ours

    x, dy = (torch.randn(rows, cols).to(dtype) for _ in range(2))
    w, b = (torch.randn(cols).to(dtype) for _ in range(2))
    functions = {
        "rms_norm": (lambda: ours.rms_norm(x, w, 1e-6), (x, w)),
        "F.rms_norm": (lambda: F.rms_norm(x, (cols,), w, 1e-6), (x, w)),
        "layer_norm": (lambda: ours.layer_norm(x, w, b, 1e-6), (x, w, b)),
        "F.layer_norm": (lambda: F.layer_norm(x, (cols,), w, b, 1e-6), (x, w, b)),
    }
    if not backward:
        return {name: f for name, (f, _) in functions.items()}
    for t in (x, w, b):
        t.requires_grad_()

    def with_gradients(f, inputs):
        return lambda: torch.autograd.grad(f(), inputs, dy)

    return {name: with_gradients(f, inputs) for name, (f, inputs) in functions.items()}


def _torch_lines(shapes, seconds) -> Iterator[tuple[str, dict[str, float]]]:
    import torch

    before = torch.get_num_threads()
    try:
        for threads in sorted({1, before}):
            torch.set_num_threads(threads)
            for dtype in (torch.float32, torch.bfloat16):
                for rows, cols in shapes:
                    for backward in (False, True):
                        with torch.set_grad_enabled(backward):
                            times = interleaved(_torch_case(rows, cols, dtype, backward), seconds)
                        what = "forward + backward" if backward else "forward"
                        name = str(dtype).removeprefix("torch.")
                        yield f"{what}, {name}, {rows}x{cols}, {threads} thread{'s' if threads > 1 else ''}", times
    finally:
        torch.set_num_threads(before)


def _formula(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6)) * w


def _numpy_lines(shapes, seconds) -> Iterator[tuple[str, dict[str, float]]]:
    for rows, cols in shapes:
        x, w = np.ones((rows, cols), np.float32), np.ones(cols, np.float32)
        out = np.empty_like(x)
        functions = {
            "rms_norm": lambda: _numpy.rms_norm(x, w),
            "rms_norm out=": lambda: _numpy.rms_norm(x, w, out=out),
            "NumPy formula": lambda: _formula(x, w),
            "copy": lambda: np.copyto(out, x),
        }
        yield f"forward, float32, {rows}x{cols}, 1 thread", interleaved(functions, seconds)


def machine() -> str:
    name = "unknown CPU"
    try:
        with open("/proc/cpuinfo") as f:
            name = next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    parts = [name, f"{len(os.sched_getaffinity(0))} CPUs", f"load {os.getloadavg()[0]:.1f}", f"{_core.info()['active']}"]
    if "torch" in sys.modules:
        import torch

        from .torch import KERNELS

        parts += [f"torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()})", f"{KERNELS} kernels"]
    return ", ".join(parts)


def _lines(device: str, full: bool, seconds: float) -> tuple[str, Iterator[tuple[str, dict[str, float]]]]:
    """The machine in words, and the lines of the table."""
    if device == "cuda":
        from . import _bench_cuda

        return _bench_cuda.machine(), _bench_cuda.lines(full, seconds)
    shapes = FULL if full else SHORT
    try:
        import torch  # noqa: F401

        from . import torch as _ours  # noqa: F401
    except ImportError:
        return machine(), _numpy_lines(shapes, seconds)
    return machine(), _torch_lines(shapes, seconds)


def bench(full: bool = False, seconds: float = 0.5, device: str = "cpu") -> None:
    """Prints a Markdown table: microseconds, and in brackets how many times as long as rms_norm."""
    where, lines = _lines(device, full, seconds)
    first = True
    for what, times in lines:
        if first:
            print(f"{where}\n\n| microseconds | " + " | ".join(times) + " |")
            print("|---|" + "--:|" * len(times))
            first = False
        own = times["rms_norm"]
        cells = [f"{t:.4g}" + ("" if name == "rms_norm" else f" ({t / own:.2f})") for name, t in times.items()]
        print(f"| {what} | " + " | ".join(cells) + " |", flush=True)
