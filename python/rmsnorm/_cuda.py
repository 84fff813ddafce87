# SPDX-License-Identifier: MIT
"""Where librmsnorm_cuda is: RMSNORM_CUDA_LIBRARY names the file; otherwise it is that of the distribution rmsnorm-cuda."""
from __future__ import annotations

import importlib.util
import os


def cuda_library() -> str | None:
    named = os.environ.get("RMSNORM_CUDA_LIBRARY")
    if named is not None:
        if not os.path.isfile(named):
            raise RuntimeError(f"RMSNORM_CUDA_LIBRARY is {named!r}, where there is no file")
        return named
    if importlib.util.find_spec("rmsnorm_cuda") is None:
        return None
    import rmsnorm_cuda

    return rmsnorm_cuda.library()
