# SPDX-License-Identifier: MIT
"""Processes that fill the compilers' caches on the disk at the same time, before anything is measured."""
import os
import time
from multiprocessing import get_context


def _quietly(target, *args):
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    target(*args)


def run(target, options, count, until, meanwhile=lambda: None) -> str:
    """Runs processes that call target(options, index, count), and says how it went. They are forked, for which this process
    may not have started CUDA or OpenMP before; where all of them fail, they are started afresh. `meanwhile` is called while
    they run. Those that are not done at the time `until` are ended."""
    for method in ("fork", "spawn"):
        context = get_context(method)
        children = [context.Process(target=_quietly, args=(target, options, i, count)) for i in range(count)]
        for child in children:
            child.start()
        meanwhile()
        late = 0
        for child in children:
            child.join(max(0.0, until - time.perf_counter()))
            if child.is_alive():
                child.kill()
                child.join()
                late += 1
        failed = sum(child.exitcode != 0 for child in children) - late
        if failed < count:
            break
    return f"compiled in {count} processes ({method}), of which {late} were ended before they were done and {failed} failed"
