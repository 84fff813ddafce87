# SPDX-License-Identifier: MIT
"""A suite is what one environment can run: the tests of its files and the doctests of its modules. Nothing is skipped."""
import importlib
import os

import pytest

# Some virtual machines announce AMX and then forbid it; torch's bfloat16 products die there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

pytest.register_assert_rewrite("torch_cases")

SUITES = {
    "numpy": (["test_numpy.py", "test_numpy_errors.py", "test_gates_numpy.py", "test_numpy_types.py", "test_numpy_quantised.py",
               "test_numpy_stats.py", "test_numpy_modulate.py", "test_process.py", "test_command.py", "test_types.py"],
              ["rmsnorm", "rmsnorm._numpy", "rmsnorm._numpy_backward", "rmsnorm._numpy_quantised", "rmsnorm._numpy_stats",
               "rmsnorm._numpy_modulate"]),  # fmt: skip
    "torch": (
        ["test_torch.py", "test_torch_nn.py", "test_torch_device.py", "test_torch_more.py", "test_torch_split.py",
         "test_torch_channels.py", "test_torch_types.py", "test_torch_modulate.py", "test_torch_steps.py", "test_torch_add.py",
         "test_torch_stats.py", "test_torch_quantised.py",
         "test_torch_sharded.py", "test_torch_dtensor.py", "test_patch.py", "test_patch_forms.py", "test_gates_torch.py",
         "test_gates_patch.py"],
        ["rmsnorm.torch", "rmsnorm._torch_quantised", "rmsnorm._torch_stats", "rmsnorm.nn", "rmsnorm.sharded"],
    ),  # fmt: skip
    "cuda": (["test_torch_cuda.py", "test_torch_cuda_forms.py"], []),
    "transformers": (["test_transformers.py", "test_transformers_classes.py", "test_kernels.py", "test_gates_transformers.py"], []),
    "jax": (["test_jax.py", "test_jax_stats.py"], ["rmsnorm.jax", "rmsnorm._jax_stats"]),
}


def pytest_addoption(parser):
    parser.addoption("--suite", default="numpy", choices=sorted(SUITES))


def pytest_configure(config):
    files, modules = SUITES[config.getoption("--suite")]
    if config.args in ([str(config.invocation_params.dir)], ["python/tests"], []):
        here = __file__.rsplit("/", 1)[0]
        config.args = [f"{here}/{name}" for name in files]
        config.args += [importlib.import_module(name).__file__ for name in modules]
        config.option.doctestmodules = True
