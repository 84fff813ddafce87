# SPDX-License-Identifier: MIT
"""python -m rmsnorm."""
import os
import subprocess
import sys


def run(*arguments, **environment):
    return subprocess.run([sys.executable, "-m", "rmsnorm", *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **environment})  # fmt: skip


def test_info():
    result = run("info")
    assert result.returncode == 0, result.stderr
    assert "scalar" in result.stdout and "in use" in result.stdout
    result = run("info", RMSNORM_ISA="scalar")
    assert [line.split() for line in result.stdout.splitlines() if "in use" in line] == [["scalar", "in", "use"]]


def test_info_with_a_bad_instruction_set():
    result = run("info", RMSNORM_ISA="mmx")
    assert result.returncode == 1 and "mmx" in result.stderr


def test_check():
    result = run("check")
    assert result.returncode == 0, result.stdout + result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["float32", "float64", "float16", "bfloat16"]
    assert all(line.endswith("ok") for line in result.stdout.splitlines())


def test_check_without_bfloat16():
    program = "import sys; sys.modules['ml_dtypes'] = None; from rmsnorm.__main__ import main; sys.exit(main(['check']))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "bfloat16  not checked: the package ml_dtypes is not installed" in result.stdout.splitlines()


def test_bench():
    result = run("bench", "--seconds", "0.01")
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("| forward")]
    assert len(lines) == 3 and "512x4096" in lines[-1]


def test_bench_for_no_time():
    for seconds in ("0", "-1", "nan", "inf", "long"):
        result = run("bench", "--seconds", seconds)
        assert result.returncode == 2 and f"--seconds: {seconds} is not a time" in result.stderr and result.stdout == ""


def test_bad_command():
    result = run("dance")
    assert result.returncode == 2 and "dance" in result.stderr


def test_cuda_without_torch():
    for command in ("check", "bench"):
        result = run(command, "--device", "cuda")
        assert result.returncode == 2 and result.stderr.splitlines() == ["CUDA cannot be used: torch is not installed"]
    assert "torch is not installed" in run("info").stdout
