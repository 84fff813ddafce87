# SPDX-License-Identifier: MIT
"""The options of calls on JAX arrays."""
from __future__ import annotations

import jax.numpy as jnp

from ._jax_calls import Options
from ._numpy import _float, _indices
from ._options import groups_of, out_mode, partial_of


def options_of(x, mode, eps, weight_offset, partial=None, indices=None, groups=1, out_dtype=None) -> Options:
    if partial is not None and indices is not None:
        raise ValueError("partial and indices exclude each other")
    if out_dtype is not None:
        mode |= out_mode(jnp.dtype(out_dtype).name, x.dtype.name)
    groups = groups_of(groups)
    partial = partial_of(partial, x.shape[-1] if x.ndim else 0, groups)
    elements = () if indices is None else tuple(_indices(indices))
    return Options(_float("eps", eps), _float("weight_offset", weight_offset), partial, groups, mode, elements)
