#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The table of docs/python.md: every shape, one thread and all, forward and backward. Takes a few minutes.

usage: python python/bench.py [--seconds S] [--device cuda]     with the package installed
"""
import argparse
import sys

sys.path.pop(0)  # this folder has the sources of the package; the installed one is meant

from rmsnorm._bench import bench  # noqa: E402

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each line (default 2)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    bench(full=True, seconds=options.seconds, device=options.device)
