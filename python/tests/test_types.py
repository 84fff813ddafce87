# SPDX-License-Identifier: MIT
"""What a type checker says of programs that use the package."""
import os
import subprocess
import sys

import rmsnorm

GOOD = """
import numpy as np
import rmsnorm

x = np.zeros((4, 8), np.float32)
y = rmsnorm.rms_norm(x, eps=1e-6, partial=0.5)
y, total = rmsnorm.layer_norm(x, residual=x, threads=None)
dx, dweight, dbias = rmsnorm.rms_norm_backward(x, x)
dx, dweight, dbias, dgate = rmsnorm.rms_norm_backward(x, x, gate=x, bias=x[0])
dx, dweight, dbias = rmsnorm.layer_norm_backward(x, x)
dx, dweight, dbias, dgate = rmsnorm.layer_norm_backward(x, x, gate=x, gate_place="before")
found = rmsnorm.rms_norm_quantised(x, dtype="q8_0", residual=x, return_y=True)
q, scale, y, total = found
y = rmsnorm.rms_norm(x, out_dtype=np.float16, gain_rounding="as_weight")
r = rmsnorm.rms_norm_stats(x, partial=0.5)
mean, r = rmsnorm.layer_norm_stats(x, threads=None)
dx = rmsnorm.rms_norm_stats_backward(r, x)
dx = rmsnorm.layer_norm_stats_backward(mean, None, x)
y = rmsnorm.modulate(x, x, kind="rms")
dx, dscale, dshift = rmsnorm.modulate_backward(x, x, x)
version: str = rmsnorm.__version__
"""
BAD = """
import numpy as np
import rmsnorm

x = np.zeros((4, 8), np.float32)
rmsnorm.rms_norm(x, eps="small")
rmsnorm.rms_norm(x, rows=3)
dx, dweight, dbias = rmsnorm.rms_norm_backward(x, x, gate=x)
rmsnorm.layer_norm_backward(x, x).dgate
rmsnorm.patch(x, tolerance="none")
rmsnorm.rms_norm_quantised(x, dtype=8)
rmsnorm.layer_norm_stats(x).variance
rmsnorm.modulate(x, 1.0)
"""


def check(folder, program):
    (folder / "program.py").write_text(program)
    (folder / "rmsnorm").symlink_to(os.path.dirname(rmsnorm.__file__))  # beside it, installed or not
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir=cache", "program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_a_program_without_mistakes(tmp_path):
    result = check(tmp_path, GOOD)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_program_with_mistakes(tmp_path):
    result = check(tmp_path, BAD)
    lines = [int(line.split(":")[1]) for line in result.stdout.splitlines() if ": error:" in line]
    assert lines == [6, 7, 8, 9, 10, 11, 12, 13], result.stdout + result.stderr
