# SPDX-License-Identifier: MIT
"""NumPy: a norm, its gradient, rows inside a larger array, and a residual stream in place.

    pip install . && python examples/python/numpy_norms.py
"""
import numpy as np

import rmsnorm

rng = np.random.default_rng(0)

# A norm and its gradients.
x = rng.standard_normal((4, 1024)).astype(np.float32)
weight = rng.standard_normal(1024).astype(np.float32)
y = rmsnorm.rms_norm(x, weight, eps=1e-6)
expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6) * weight
assert np.allclose(y, expected, rtol=1e-6)
dx, dweight, _ = rmsnorm.rms_norm_backward(np.ones_like(y), x, weight, eps=1e-6)
print("largest error:", np.abs(y - expected).max(), " |dx|:", np.linalg.norm(dx), " |dweight|:", np.linalg.norm(dweight))

# q and k are slices of one array; their heads are normalised where they are, v is not touched.
tokens, heads, kv_heads, width = 16, 8, 2, 64
qkv = rng.standard_normal((tokens, heads + 2 * kv_heads, width)).astype(np.float32)
q, k, v = np.split(qkv, [heads, heads + kv_heads], axis=1)
v_before = v.copy()
for part in (q, k):
    rmsnorm.rms_norm(part, eps=1e-6, out=part)
assert np.allclose((q * q).mean(-1), 1, atol=1e-4) and np.array_equal(v, v_before)
print("q and k have unit rows, v is as it was")

# A residual stream: add, keep the sum, normalise it, in one pass over memory.
stream = rng.standard_normal((tokens, 512)).astype(np.float32)
update = rng.standard_normal((tokens, 512)).astype(np.float32)
y, stream = rmsnorm.rms_norm(update, residual=stream, out=(None, stream))

# The same row gives the same bits, alone or in a batch, on any number of threads.
assert np.array_equal(rmsnorm.rms_norm(stream[3], threads=1), rmsnorm.rms_norm(stream, threads=2)[3])
print("a row's bits do not depend on the batch")
