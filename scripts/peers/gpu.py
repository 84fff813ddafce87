#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""This library beside other kernels on one GPU, in one process. README.md has the method and how to get the peers.

usage: RMS_BUILD=build-gpu PEERS=folder python3 scripts/peers/gpu.py [options]
"""
import argparse
import functools
import gc
import json
import os
import sys
import time
import warnings

START = time.perf_counter()
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # the warm-up has processes of its own
os.environ.setdefault("FLA_CACHE_RESULTS", "0")  # what the warm-up chooses on a busy GPU is not kept
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # the other check starts CUDA, and no process could be forked
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch._dynamo.utils  # noqa: E402
import torch._inductor.compile_fx  # noqa: E402
import torch._inductor.config  # noqa: E402
import triton.testing  # noqa: E402

import operations  # noqa: E402
import warm  # noqa: E402
from report import Table  # noqa: E402

WIDE = ["32768x128", "32768x1024", "8192x4096", "32768x4096", "16384x8192", "8192x16384", "4096x32768", "2048x65536",
        "1024x131072"]  # fmt: skip
BOTH = [("bf16", shape) for shape in WIDE] + [("f16", "32768x4096"), ("f16", "16384x8192"), ("f32", "16384x4096"),
                                              ("f32", "8192x8192")]  # fmt: skip
EVERY = [(dtype, shape) for dtype in ("bf16", "f16", "f32") for shape in WIDE]
GATES = [("bf16", "32768x4096"), ("bf16", "262144x128")]
CODES = [("bf16", "8192x4096"), ("bf16", "16384x8192")]
CASES = {
    "rms": EVERY,
    "rms-bwd": BOTH,
    "gate": GATES,
    "gate-bwd": GATES,
    "mamba": GATES,
    "int8": CODES,
    "e4m3": CODES,
    "e4m3-128": CODES,
    "residual": [("bf16", "8192x4096"), ("bf16", "32768x4096"), ("bf16", "16384x8192"), ("bf16", "4096x32768")],
    "ln": [("bf16", "32768x1024"), ("bf16", "32768x4096"), ("bf16", "16384x8192"), ("f32", "16384x4096")],
    "ln-bwd": [("bf16", "32768x4096")],
}
SET_BYTES = 640e6  # of the buffers of a round, at least: the L2 holds 60 MB
GRAPH_BYTES = 4e9  # that a graph moves, at least: a millisecond


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(CASES), help="operations (default: %(default)s)")
    parser.add_argument("--shapes", default="", help="ROWSxCOLS,... for every operation, instead of its own list")
    parser.add_argument("--dtypes", default="", help="bf16,f16,f32: those alone; with --shapes bf16 if not given")
    parser.add_argument("--only", default="", help="peers: some of eager,compile,liger,flash-attn,fla,mamba-ssm,vllm,quack")
    parser.add_argument("--seconds", type=float, default=0.3, help="of measuring for each line (default %(default)s)")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further line is begun")
    parser.add_argument("--warm", type=int, default=min(12, (os.cpu_count() or 1) - 2),
                        help="processes that compile the peers' kernels first (default %(default)s)")  # fmt: skip
    parser.add_argument("--warm-seconds", type=float, default=75, help="since the start; then they are ended (%(default)s)")
    parser.add_argument("--json", default="", help="a file for the figures, one line of JSON for each line of the tables")
    parser.add_argument("--trace", action="store_true", help="print why an engine failed")
    return parser.parse_args()


def cases(options):
    """(operation, name of the type, rows, columns), in the order in which they are measured."""
    found, dtypes = [], [d for d in options.dtypes.split(",") if d]
    for op in options.ops.split(","):
        pairs = CASES[op]
        if options.shapes:
            pairs = [(d, shape) for d in dtypes or ["bf16"] for shape in options.shapes.split(",")]
        for dtype, shape in pairs:
            rows, cols = map(int, shape.split("x"))
            if not dtypes or dtype in dtypes:
                found.append((op, dtype, rows, cols))
    return found


# ---- compiling beforehand ----


def load(options):
    """The engines. Importing them may start CUDA in this process."""
    import engines

    return engines.load([name for name in options.only.split(",") if name])


def compile_share(options, index, count):
    """Calls each engine that compiles once, so that its kernels are in the caches on the disk."""
    triton.testing.do_bench = lambda call, **_: (call(), [1.0, 1.0, 1.0])[1]  # what it would choose here is not kept
    engines = load(options)[0]
    for op, dtype, rows, cols in cases(options)[index::count]:
        s = operations.tensors(op, rows, cols, operations.DTYPES[dtype], "cuda")
        for engine in engines.values():
            if op in engine:
                try:
                    engine[op](s)()
                except Exception:  # the measuring process meets it again and says so
                    pass
        torch.cuda.synchronize()


# ---- measuring ----


def capture(calls, count):
    """A graph of `count` calls, and their outputs: all stay alive, so that none is written twice in a replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls[:2]:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [calls[i % len(calls)]() for i in range(count)]
    return graph, outputs


def replay(graphs, seconds, count):
    """Microseconds of a call in each round. The graphs of a round are queued together, so that the GPU never waits."""
    times = {name: [] for name in graphs}
    first, last = next(iter(graphs.values())), None
    for turn in range(100):
        if turn == 2:
            last = time.perf_counter() + seconds
        if last and turn >= 9 and time.perf_counter() > last:
            break
        names = list(graphs)[turn % len(graphs):] + list(graphs)[: turn % len(graphs)]
        events = {name: [torch.cuda.Event(enable_timing=True) for _ in range(2)] for name in names}
        first[0].replay()
        for name in names:
            events[name][0].record()
            graphs[name][0].replay()
            events[name][1].record()
        torch.cuda.synchronize()
        if turn >= 2:
            for name, (begin, end) in events.items():
                times[name].append(begin.elapsed_time(end) * 1e3 / count)
    return times


def measure(case, engines, options):
    """The times of each engine in microseconds, what went wrong with the others, and the seconds that each took to prepare."""
    op, dtype, rows, cols = case
    bytes_moved = operations.moved(op, rows, cols, operations.DTYPES[dtype])
    count = max(2, -int(-SET_BYTES // bytes_moved))
    sets = [operations.tensors(op, rows, cols, operations.DTYPES[dtype], "cuda")]
    sets += [operations.tensors(op, rows, cols, operations.DTYPES[dtype], "cuda", sets[0]) for _ in range(count - 1)]
    calls = -int(-GRAPH_BYTES // bytes_moved)
    calls = -(-calls // count) * count
    wanted = operations.reference(sets[0])
    graphs, wrong, spent, start = {}, {}, {}, time.perf_counter()
    for name, engine in engines.items():
        if op not in engine:
            continue
        try:
            if name != "copy":
                outputs = engine[op](sets[0])()
                if not operations.agrees(op, outputs, wanted):
                    wrong[name] = "differs"
                del outputs
            graphs[name] = capture([engine[op](s) for s in sets], calls)
        except Exception as error:
            wrong[name] = type(error).__name__
            if options.trace:
                print(f"{case}, {name}: {error!r}"[:400], file=sys.stderr, flush=True)
            torch.cuda.synchronize()
        spent[name] = round(time.perf_counter() - start - sum(spent.values()), 2)
    del wanted
    times = replay(graphs, options.seconds, calls) if graphs else {}
    spent["replays"] = round(time.perf_counter() - start - sum(spent.values()), 2)
    return times, wrong, bytes_moved, spent


def show(table, case, engines, times, wrong, bytes_moved):
    op, dtype, rows, cols = case
    copied = operations.copied(op, rows, cols, operations.DTYPES[dtype])
    table.line(f"{operations.TITLES[op]}: GB/s of the bytes that must move", f"{dtype} {rows}×{cols}",
               [name for name, engine in engines.items() if op in engine], times, wrong,
               lambda name, us: f"{(copied if name == 'copy' else bytes_moved) / us / 1e3:.0f}")  # fmt: skip


def wake():
    """Half a second of work: an idle GPU has low clocks."""
    x, end = torch.zeros(1 << 28, device="cuda"), time.perf_counter() + 0.5
    while time.perf_counter() < end:
        x.clone()
        torch.cuda.synchronize()


def main():
    options = parse()
    todo = cases(options)
    torch.set_grad_enabled(False)
    torch._inductor.config.autotune_local_cache = False  # as FLA_CACHE_RESULTS above
    count, found = min(options.warm, len(todo)), []
    if count >= 2:
        said = warm.run(compile_share, options, count, START + options.warm_seconds,
                        lambda: found or found.extend(load(options)))  # fmt: skip
        print(f"{said}: {time.perf_counter() - START:.0f} s since the start", flush=True)
    engines, missing = found or load(options)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, engines: {', '.join(engines)}", flush=True)
    for name, why in missing.items():
        print(f"without {name}: {why}", flush=True)
    # Kernels that choose their own settings take less time for it than Triton's 125 ms for each.
    triton.testing.do_bench = functools.partial(triton.testing.do_bench, warmup=5, rep=25)
    gc.freeze()  # each capture collects garbage, and so looks at every object of the packages
    table = Table()
    wake()
    for case in todo:
        if time.perf_counter() - START > options.budget:
            print(f"\nleft out, for the time is up: {todo.index(case)} of {len(todo)} lines were measured", flush=True)
            break
        try:
            times, wrong, bytes_moved, spent = measure(case, engines, options)
        except torch.OutOfMemoryError:
            print(f"\n{case}: out of memory", flush=True)
            continue
        finally:
            gc.collect()
            torch.cuda.empty_cache()
        show(table, case, engines, times, wrong, bytes_moved)
        if options.json:
            with open(options.json, "a") as file:
                line = {"case": case, "bytes": bytes_moved, "us": times, "wrong": wrong, "seconds": spent}
                print(json.dumps(line), file=file)
    if options.trace:
        print(dict(torch._dynamo.utils.counters["inductor"]), file=sys.stderr, flush=True)
    print(f"\n{time.perf_counter() - START:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
