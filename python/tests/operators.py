# SPDX-License-Identifier: MIT
"""What tests of patched modules share. Whether the library ran at all: a module that used its old forward would give the right
results too. And how many results of 16 bits may differ."""
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class CountedOperators(TorchDispatchMode):
    """Counts the calls of this library's operators inside a with statement."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.count += "rmsnorm" in str(function)
        return function(*arguments, **(keywords or {}))


def few(dtype):
    """The share of results that a difference of 24 steps of float32 moves to another number of dtype."""
    return 24 * torch.finfo(torch.float32).eps / torch.finfo(dtype).eps
