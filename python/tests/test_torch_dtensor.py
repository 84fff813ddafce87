# SPDX-License-Identifier: MIT
"""The sharding rules for DTensor, on 2 and 4 processes of the CPU."""
import pytest

import ranks


@pytest.mark.parametrize("size", (2, 4))
def test_placements(size, tmp_path):
    cases = ["rows", "columns", "columns_of_modules", "columns_and_rows", "fallbacks"]
    ranks.run([f"dtensor_{case}" for case in cases], size, tmp_path)


def test_compiled(tmp_path):
    ranks.run(["dtensor_compiled"], 2, tmp_path)
