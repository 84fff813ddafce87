# SPDX-License-Identifier: MIT
"""Rows whose columns are spread over processes: 2 and 4 of them, on the CPU."""
import pytest
import torch

import ranks
import rmsnorm.nn
import rmsnorm.torch as rt
from rmsnorm import sharded

CASES = ["values", "one_shard_has_the_bits_of_the_whole_call", "strides", "second_derivatives", "partial", "collectives",
         "modules", "local", "olmo2"]  # fmt: skip


@pytest.mark.parametrize("size", (2, 4))
def test_cases(size, tmp_path):
    ranks.run(CASES, size, tmp_path)


def test_compiled(tmp_path):
    ranks.run(["compiled"], 2, tmp_path)


def test_a_rank_that_raises_stops_the_others(tmp_path):
    codes, outputs = ranks.finish(ranks.start(["one_raises"], 4, tmp_path), tmp_path)
    assert all(code not in (0, None) for code in codes), codes
    assert "dtype of x is not offered" in outputs[1] or "int32 is not offered" in outputs[1]
    assert all("RuntimeError" in output for output in outputs)


def test_without_a_group():
    for call in (lambda: sharded.rms_norm(torch.ones(2, 4)), lambda: rmsnorm.nn.ShardedRMSNorm(4)(torch.ones(2, 4))):
        with pytest.raises(RuntimeError, match="init_process_group"):
            call()


def test_local_needs_no_group():
    x = torch.randn(3, 64)
    module = rmsnorm.nn.LocalRMSNorm(64, p=0.25, eps=1e-6)
    assert torch.equal(module(x), rt.rms_norm(x, module.weight, 1e-6, partial=16))
