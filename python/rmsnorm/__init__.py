# SPDX-License-Identifier: MIT
"""RMSNorm, partial RMSNorm and LayerNorm on the kernels of the rmsnorm C library.

>>> import numpy as np, rmsnorm
>>> x = np.array([[1, 2, 3, 4], [-8, 0, 8, 0.5]], dtype=np.float32)
>>> rmsnorm.rms_norm(x, eps=1e-5).round(4)
array([[ 0.3651,  0.7303,  1.0954,  1.4606],
       [-1.4128,  0.    ,  1.4128,  0.0883]], dtype=float32)

The functions here take NumPy arrays and anything with ``__dlpack__``. ``rmsnorm.torch`` has them for torch tensors,
``rmsnorm.nn`` the modules, ``rmsnorm.jax`` those for JAX, and ``rmsnorm.patch(model)`` swaps the norms of a Hugging Face
model. A row's result depends on the row and the arguments alone: not on the batch, the threads or the instruction set.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from ._core import info as _info
from ._numpy import layer_norm, rms_norm
from ._numpy_backward import GatedGradients, Gradients, layer_norm_backward, rms_norm_backward
from ._numpy_modulate import ModulationGradients, modulate, modulate_backward
from ._numpy_quantised import Quantised, layer_norm_quantised, rms_norm_quantised
from ._numpy_stats import Statistics, layer_norm_stats, layer_norm_stats_backward, rms_norm_stats, rms_norm_stats_backward
from ._options import TOLERANCE as _TOLERANCE

if TYPE_CHECKING:
    from torch.nn import Module as _Module

    from .hf import Report as _Report

__version__: str = _info()["version"]
__all__ = ["GatedGradients", "Gradients", "ModulationGradients", "Quantised", "Statistics", "layer_norm", "layer_norm_backward",
           "layer_norm_quantised", "layer_norm_stats", "layer_norm_stats_backward", "modulate", "modulate_backward", "patch", "rms_norm",
           "rms_norm_backward", "rms_norm_quantised", "rms_norm_stats", "rms_norm_stats_backward"]  # fmt: skip


def patch(model: _Module, *, tolerance: float = _TOLERANCE) -> _Report:
    """Swaps the norms of a torch model for this library's where a trial run gives the same bits.

    See :func:`rmsnorm.hf.patch`, which this calls; torch is imported only then.
    """
    from .hf import patch as patch_model

    return patch_model(model, tolerance=tolerance)
