/* SPDX-License-Identifier: MIT
 *
 * Device memory for bench --device cuda: contents, and the copies that stand beside a timing. */
#ifndef RMSNORM_BENCH_CUDA_MEMORY_H
#define RMSNORM_BENCH_CUDA_MEMORY_H

#include <cuda_runtime_api.h>
#include <stdint.h>
#include "rmsnorm.h"

/* Random numbers of either sign, of magnitudes below 2. */
void fill_noise(void *data, int64_t count, rms_dtype type, uint64_t seed, cudaStream_t stream);
void fill_ones(void *data, int64_t count, rms_dtype type, cudaStream_t stream);
/* Multiplies row (i, h), `cols` elements at i*outer + h*inner, by factors[i*inner_rows + h], on the device; where that
 * is NaN the first element becomes one. */
void multiply_rows(void *data, rms_dtype type, int64_t rows, int64_t inner_rows, int64_t outer, int64_t inner,
                   int64_t cols, const double *factors, cudaStream_t stream);

/* Tensors that a copy reads and writes at most. */
enum { COPY_READS = 4, COPY_WRITES = 3 };

/* Buffers of a copy, in vectors of 16 bytes: each write receives all reads, combined. */
struct CopyBuffers {
  const uint4 *in[COPY_READS];
  uint4 *out[COPY_WRITES];
  int reads, writes;
  int64_t vectors;
};

/* One copy, `unroll` vectors (1, 2 or 4) per thread. */
void copy_buffers_on(const CopyBuffers &s, int unroll, cudaStream_t stream);

#endif
