# SPDX-License-Identifier: MIT
"""python -m rmsnorm: what runs on this machine, whether it is right, and how fast it is."""
from __future__ import annotations

import argparse
import os
import platform
import sys

from . import __version__, _core


def info() -> int:
    known = _core.info()
    print(f"rmsnorm {__version__}, Python {platform.python_version()}, {len(os.sched_getaffinity(0))} CPUs")
    for name, usable in known["instruction_sets"]:
        state = "in use" if name == known["active"] else "usable" if usable else "not on this CPU"
        print(f"  {name:8} {state}")
    if known["active"] is None:
        print(f"RMSNORM_ISA={os.environ.get('RMSNORM_ISA')} cannot be used on this machine", file=sys.stderr)
        return 1
    print(f"stores bypass the cache beyond {known['stream_bytes']} bytes, except to memory that has never been touched")
    state = _cuda_state()
    print("CUDA tensors are served" if state == "c++" else f"CUDA tensors are not served: {state}")
    return 0


def _cuda_state() -> str:
    """ "c++" if CUDA tensors are served here, or the reason why not."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    from .torch import CUDA_KERNELS

    if CUDA_KERNELS == "c++" and not torch.cuda.is_available():
        return "torch finds no CUDA device"
    return CUDA_KERNELS.removeprefix("none: ")


def _cuda_is_there() -> bool:
    state = _cuda_state()
    if state != "c++":
        print(f"CUDA cannot be used: {state}", file=sys.stderr)
    return state == "c++"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time")
    return seconds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rmsnorm", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="version and instruction sets")
    trial = commands.add_parser("check", help="every type against float64 formulas, instruction sets against each other")
    timing = commands.add_parser("bench", help="times beside torch.nn.functional, or NumPy where torch is missing")
    timing.add_argument("--full", action="store_true", help="larger shapes too")
    timing.add_argument("--seconds", type=_seconds, default=0.5, help="for each line (default 0.5)")
    for command in (trial, timing):
        command.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda needs torch and rmsnorm-cuda")
    options = parser.parse_args(arguments)
    if options.command == "info":
        return info()
    if options.device == "cuda" and not _cuda_is_there():
        return 2
    if options.command == "bench":
        from ._bench import bench

        bench(options.full, options.seconds, options.device)
        return 0
    if options.device == "cuda":
        from ._check_cuda import check
    else:
        from ._check import check
    return 0 if check() else 1


if __name__ == "__main__":
    sys.exit(main())
