# SPDX-License-Identifier: MIT
"""``python -m rmsnorm bench --device cuda``: this library beside torch's functions, torch.compile and Liger on the GPU.

Times of the GPU are those of replayed CUDA graphs, so that the host has no part in them; the functions of a line take turns and
the figure is the median of the rounds. The host's time is that of queueing a forward call.
"""
from __future__ import annotations

import statistics
import time
from typing import Callable, Iterator

import torch
import torch.nn.functional as F

from . import torch as ours

SHORT = [(torch.bfloat16, 8192, 4096), (torch.bfloat16, 32768, 4096)]
FULL = [(d, r, c) for d in (torch.bfloat16, torch.float32) for r, c in ((512, 4096), (4096, 8192), (8192, 4096), (32768, 4096))]
CALLS = 8  # in one graph


def _liger() -> Callable | None:
    try:
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    except ImportError:
        return None
    return lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6)


def functions(cols: int) -> dict[str, Callable]:
    """Of x, weight and bias; torch.compile has torch's own rms_norm to work on."""

    def eager(x, w):
        return F.rms_norm(x, (cols,), w, 1e-6)

    torch._dynamo.reset()
    compiled, liger = torch.compile(eager, fullgraph=True), _liger()
    found = {
        "rms_norm": lambda x, w, b: ours.rms_norm(x, w, 1e-6),
        "F.rms_norm": lambda x, w, b: eager(x, w),
        "torch.compile": lambda x, w, b: compiled(x, w),
        "layer_norm": lambda x, w, b: ours.layer_norm(x, w, b, 1e-6),
        "F.layer_norm": lambda x, w, b: F.layer_norm(x, (cols,), w, b, 1e-6),
    }
    if liger is not None:
        found["Liger"] = lambda x, w, b: liger(x, w)
    return found


def call(function: Callable, rows: int, cols: int, dtype, backward: bool) -> Callable[[], object]:
    x, dy = (torch.randn(rows, cols, device="cuda").to(dtype) for _ in range(2))
    w, b = (torch.randn(cols, device="cuda").to(dtype) for _ in range(2))
    if not backward:
        return lambda: function(x, w, b)
    for t in (x, w, b):
        t.requires_grad_()
    with torch.enable_grad():
        used = [t for t in (x, w, b) if torch.autograd.grad(function(x, w, b), t, dy, allow_unused=True)[0] is not None]

    def step():
        with torch.enable_grad():
            return torch.autograd.grad(function(x, w, b), used, dy)

    return step


def capture(step: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of CALLS calls."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            step()
    return graph


def replayed(steps: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Microseconds of a call on the GPU: medians of rounds in which each graph is replayed in turn."""
    graphs = {name: capture(step) for name, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    stop = time.perf_counter() + seconds * len(steps)
    while time.perf_counter() < stop or len(times["rms_norm"]) < 7:
        for name, graph in graphs.items():
            graph.replay()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) * 1e3 / CALLS)
    return {name: statistics.median(t) for name, t in times.items()}


def queued(steps: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Microseconds of the host for a call: the smallest of rounds, each of which the GPU finishes before the next."""
    best = dict.fromkeys(steps, float("inf"))
    stop, rounds = time.perf_counter() + seconds * len(steps), 0
    while time.perf_counter() < stop or rounds < 20:
        rounds += 1
        for name, step in steps.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(50):
                step()
            best[name] = min(best[name], (time.perf_counter() - start) / 50 * 1e6)
    return best


def lines(full: bool, seconds: float) -> Iterator[tuple[str, dict[str, float]]]:
    """What is measured, and the time of each function."""
    hosts = [(queued, torch.bfloat16, 8, 4096)]
    for measure, dtype, rows, cols in [(replayed, *shape) for shape in (FULL if full else SHORT)] + hosts:
        for backward in (False, True):
            steps = {name: call(f, rows, cols, dtype, backward) for name, f in functions(cols).items()}
            with torch.no_grad():
                times = measure(steps, seconds)
            what = ("host, " if measure is queued else "") + ("forward + backward" if backward else "forward")
            yield f"{what}, {str(dtype)[6:]}, {rows}x{cols}", times
            del steps
            torch.cuda.empty_cache()


def machine() -> str:
    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA kernels: {ours.CUDA_KERNELS}"
