# SPDX-License-Identifier: MIT
"""Threads, forks, memory and the environment."""
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import rmsnorm

X = np.random.default_rng(1).standard_normal((600, 1024)).astype(np.float32)


def run(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})  # fmt: skip


def test_a_fork_has_its_own_threads():
    expected = rmsnorm.rms_norm(X, threads=2)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(rmsnorm.rms_norm(X, threads=2), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(rmsnorm.rms_norm(X, threads=2), expected)


def test_many_python_threads():
    expected, wrong = rmsnorm.rms_norm(X), []

    def work(threads):
        for _ in range(20):
            if not np.array_equal(rmsnorm.rms_norm(X, threads=threads), expected):
                wrong.append(threads)

    workers = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_the_interpreter_is_released():
    """Another thread can only stop the clock while the call runs if the call has released the interpreter."""
    big = np.ones((4096, 4096), np.float32)
    sys.setswitchinterval(10)  # nothing else makes the main thread give way
    try:
        seen, stop, started = [], threading.Event(), threading.Event()

        def count():
            started.set()
            while not stop.is_set():
                seen.append(None)
                stop.wait(0.0005)

        counter = threading.Thread(target=count)
        counter.start()
        started.wait()
        before = len(seen)
        for _ in range(10):
            rmsnorm.rms_norm(big, out=big)
        after = len(seen)
        stop.set()
        counter.join()
        assert after > before
    finally:
        sys.setswitchinterval(0.005)


def memory():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_constant_memory():
    x, w = np.ones((4, 64), np.float32), np.ones(64, np.float32)
    strided = np.ones((4, 128), np.float32)[:, ::2]

    def calls(count):
        for _ in range(count):
            rmsnorm.rms_norm(x, w)
            rmsnorm.rms_norm(strided, w, indices=[1, 2])
            rmsnorm.rms_norm_backward(x, strided, w)
            for bad in (dict(weight=w[:3]), dict(weight=strided[:3]), dict(indices=[2, 1]), dict(out=w), dict(eps=-1.0)):
                with pytest.raises(ValueError):
                    rmsnorm.rms_norm(x, **bad)

    calls(500)
    before = memory()
    calls(12500)  # 100,000 calls
    assert memory() - before < 2**20


@pytest.mark.parametrize("name, value", [("RMSNORM_ISA", "mmx"), ("RMSNORM_STREAM_BYTES", "many")])
def test_environment(name, value):
    result = run("import numpy, rmsnorm; rmsnorm.rms_norm(numpy.ones(8))", **{name: value})
    assert result.returncode == 1
    assert name in result.stderr.splitlines()[-1] and result.stderr.splitlines()[-1].startswith("RuntimeError")


def test_import_needs_no_framework():
    result = run("import sys, rmsnorm; print(sorted({'torch', 'jax', 'ml_dtypes', 'transformers'} & set(sys.modules)))")
    assert result.stdout.strip() == "[]", result.stderr
