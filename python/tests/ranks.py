# SPDX-License-Identifier: MIT
"""Runs functions of rank_cases.py, one after the other, in processes that form a gloo group. Nothing here waits without an end."""
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 420  # seconds: compiling on busy cores is slow


def start(cases, size, folder):
    """The processes; each writes to a file of the folder, so that no full pipe stops it."""
    program = os.path.join(HERE, "rank_cases.py")
    started = []
    for rank in range(size):
        with open(os.path.join(folder, f"rank{rank}.txt"), "w") as output:
            command = [sys.executable, program, str(rank), str(size), os.path.join(folder, "store"), *cases]
            started.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))
    return started


def finish(processes, folder):
    """The exit codes and the outputs. Whoever runs longer than LIMIT is ended, with the code None."""
    end = time.monotonic() + LIMIT
    codes = []
    for process in processes:
        try:
            codes.append(process.wait(timeout=max(0.1, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            codes.append(None)
    outputs = []
    for rank in range(len(processes)):
        with open(os.path.join(folder, f"rank{rank}.txt")) as output:
            outputs.append(output.read())
    return codes, outputs


def run(cases, size, folder):
    codes, outputs = finish(start(cases, size, folder), folder)
    assert codes == [0] * size, "\n".join(f"rank {i} ended with {c}:\n{o}" for i, (c, o) in enumerate(zip(codes, outputs)))
