#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""This library beside torch on the CPU, in one process and on the same threads. README.md has the method.

usage: RMS_BUILD=build python3 scripts/peers/cpu.py [options]
"""
import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

START = time.perf_counter()
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # the warm-up has processes of its own
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
import torch._inductor.compile_fx  # noqa: E402
import torch._inductor.config  # noqa: E402

import operations  # noqa: E402
import rms  # noqa: E402
import warm  # noqa: E402
from report import Table  # noqa: E402

SHAPES = "8192x4096,512x4096,16x4096"  # the largest first: torch.compile sees it when it compiles
OPS = ["rms", "rms-both", "ln", "ln-both", "gate", "int8", "e4m3-128"]
TITLES = {"rms-both": "RMSNorm, forward and backward", "ln-both": "LayerNorm, forward and backward"}
EAGER = ("rms", "rms-both", "ln", "ln-both")  # what torch has as one function; the others are chains of them


def parse():
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default=f"1,{cores}" if cores > 1 else "1", help="(default: %(default)s)")
    parser.add_argument("--dtypes", default="f32,bf16", help="(default: %(default)s)")
    parser.add_argument("--shapes", default=SHAPES, help="ROWSxCOLS,... (default: %(default)s)")
    parser.add_argument("--ops", default=",".join(OPS), help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.2, help="of measuring for each line (default %(default)s)")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further line is begun")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--warm", type=int, default=min(12, cores - 1), help="processes that compile (%(default)s)")
    parser.add_argument("--warm-seconds", type=float, default=30, help="since the start; then they are ended (%(default)s)")
    parser.add_argument("--trace", action="store_true", help="print why an engine failed")
    return parser.parse_args()


def executor(threads):
    """An executor on torch's threads, compiled here; without a compiler, a pool of the library's own."""
    found = rms.Executor()
    maps = Path("/proc/self/maps").read_text()
    runtime = re.search(r"\S*/lib(?:gomp|omp|iomp5)[^/\s]*\.so\S*", maps)
    here = Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory() as folder:
        command = ["cc", "-O2", "-shared", "-fPIC", f"-I{here.parents[1]}/include", f"{here}/executor.c", "-ldl"]
        try:
            subprocess.run([*command, "-o", f"{folder}/executor.so"], check=True, capture_output=True)
            make = ctypes.CDLL(f"{folder}/executor.so").peers_executor
            if runtime and make(ctypes.byref(found), runtime[0].encode(), threads):
                return found, f"{Path(runtime[0]).name}, torch's"
        except (OSError, subprocess.CalledProcessError):
            pass
    library, pool = ctypes.CDLL(rms.find("librmsnorm.so")), ctypes.c_void_p()
    library.rms_pool_executor.restype = rms.Executor
    if library.rms_pool_create(ctypes.byref(pool), threads):
        raise RuntimeError("no threads")
    return library.rms_pool_executor(pool), "a pool of its own"


# ---- engines: functions of the inputs that return the call, as in engines.py ----


def both(forward, mark=lambda *tensors: None):
    """Autograd through a forward: the gradients of x, weight and bias."""

    def prepare(s):
        leaves = [t.detach().requires_grad_() for t in s.leaves]
        mark(*leaves)

        def call():
            with torch.enable_grad():
                return torch.autograd.grad(forward(*leaves), leaves, s.dy)

        return call

    return prepare


def single(op):
    return operations.FORMULAS[op.removesuffix("-both")]


def eager(op):
    return both(single(op)) if op.endswith("-both") else lambda s: lambda: single(op)(*s.inputs)


def mark(*tensors):
    """The rows may be any number, so that one compilation serves all shapes of the same columns."""
    for t in tensors:
        if t.dim() == 2:
            torch._dynamo.maybe_mark_dynamic(t, 0)


def compiled(op):
    torch._dynamo.reset()
    function = torch.compile(single(op), fullgraph=True)
    if op.endswith("-both"):
        return both(function, mark)

    def prepare(s):
        mark(*s.inputs)
        return lambda: function(*s.inputs)

    return prepare


def ours(library, where, op):
    calls = operations.Ours(library, where)
    if not op.endswith("-both"):
        return calls.prepare

    def prepare(s):
        forward, backward = calls.prepare(s.forward), calls.prepare(s)
        return lambda: (forward(), backward())[1]

    return prepare


def inputs(op, rows, cols, dtype):
    if not op.endswith("-both"):
        return operations.tensors(op, rows, cols, dtype, "cpu")
    norm = op.removesuffix("-both")
    s = operations.tensors(f"{norm}-bwd", rows, cols, dtype, "cpu")
    s.b = torch.randn(cols, dtype=dtype)
    s.leaves = [s.x, s.w] + ([s.b] if norm == "ln" else [])
    s.forward = operations.SimpleNamespace(op=norm, x=s.x, w=s.w, b=s.b)
    return s


# ---- measuring ----


def interleaved(calls, seconds):
    """Microseconds of a call in each round. Short calls are timed in batches."""
    batch = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        batch[name] = max(1, min(200, int(1e-3 / max(time.perf_counter() - start, 1e-6))))
    times, start, rounds = {name: [] for name in calls}, time.perf_counter(), 0
    while rounds < 3 or (elapsed := time.perf_counter() - start) < seconds or (rounds < 5 and elapsed < 5 * seconds):
        rounds += 1
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(batch[name]):
                call()
            times[name].append((time.perf_counter() - begin) / batch[name] * 1e6)
    return times


def measure(op, rows, cols, dtype, engines, options):
    s = inputs(op, rows, cols, dtype)
    wanted = operations.reference(s)
    calls, wrong = {"copy": lambda: s.x.clone()}, {}
    for name, prepare in engines.items():
        try:
            call = prepare(s)
            if not operations.agrees(s.op, call(), wanted):
                wrong[name] = "differs"
            calls[name] = call
        except Exception as error:
            wrong[name] = type(error).__name__
            if options.trace:
                print(f"{op} {dtype} {rows}x{cols}, {name}: {error!r}"[:400], file=sys.stderr, flush=True)
    return interleaved(calls, options.seconds), wrong


def groups(options):
    """(threads, type, operation): what one compilation is for."""
    return [(int(t), d, op) for op in options.ops.split(",") for t in options.threads.split(",")
            for d in options.dtypes.split(",")]  # fmt: skip


def use(threads):
    torch.set_num_threads(threads)
    torch._inductor.config.cpp.threads = threads  # also tells the compiler's caches apart


def compile_share(options, index, count):
    rows, cols = map(int, options.shapes.split(",")[0].split("x"))
    for threads, dtype, op in groups(options)[index::count]:
        use(threads)
        try:
            compiled(op)(inputs(op, rows, cols, operations.DTYPES[dtype]))()
        except Exception:  # the measuring process meets it again and says so
            pass


def main():
    options = parse()
    torch.set_grad_enabled(False)
    todo = groups(options)
    count = min(options.warm, len(todo))
    if not options.no_compile and count >= 2:
        print(warm.run(compile_share, options, count, START + options.warm_seconds), flush=True)
    library, table, executors = rms.Library("librmsnorm.so", "rms_"), Table(), {}
    for threads in map(int, options.threads.split(",")):
        use(threads)
        torch.ones(1 << 20).square().sum()  # starts torch's threads
        executors[threads] = executor(threads) if threads > 1 else (None, "the calling thread")
    library.library.rms_isa_active.restype = ctypes.c_char_p
    print(f"torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), ours: "
          f"{library.library.rms_isa_active().decode()}, threads: {', '.join(w for _, w in executors.values())}; "
          f"{time.perf_counter() - START:.0f} s since the start", flush=True)  # fmt: skip
    for threads, dtype, op in todo:
        use(threads)
        struct = executors[threads][0]
        address = ctypes.addressof(struct) if struct is not None else None
        engines = {"ours": ours(library, lambda: address, op)}
        if op in EAGER:
            engines["eager"] = eager(op)
        if not options.no_compile:
            engines["compile"] = compiled(op)
        for shape in options.shapes.split(","):
            rows, cols = map(int, shape.split("x"))
            if time.perf_counter() - START > options.budget:
                print("\nleft out, for the time is up: the rest", flush=True)
                return
            times, wrong = measure(op, rows, cols, operations.DTYPES[dtype], engines, options)
            title = TITLES.get(op) or operations.TITLES[op]
            table.line(f"{title}: µs", f"{threads} thread{'s' * (threads > 1)}, {dtype} {rows}×{cols}",
                       ["copy", *engines], times, wrong, lambda name, us: f"{us:.4g}")  # fmt: skip
    print(f"\n{time.perf_counter() - START:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
