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
    print(f"stores bypass the cache beyond {known['stream_bytes']} bytes")
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rmsnorm", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="version and instruction sets")
    commands.add_parser("check", help="every type against float64 formulas, instruction sets against each other")
    timing = commands.add_parser("bench", help="times beside torch.nn.functional, or NumPy where torch is missing")
    timing.add_argument("--full", action="store_true", help="larger shapes too")
    timing.add_argument("--seconds", type=float, default=0.5, help="for each line (default 0.5)")
    options = parser.parse_args(arguments)
    if options.command == "info":
        return info()
    if options.command == "bench":
        from ._bench import bench

        bench(options.full, options.seconds)
        return 0
    from ._check import check

    return 0 if check() else 1


if __name__ == "__main__":
    sys.exit(main())
