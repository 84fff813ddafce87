/* SPDX-License-Identifier: MIT */
#include "cuda_memory.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* ---- copies ---- */

template <int READS, int WRITES, int UNROLL> __global__ void __launch_bounds__(256) copy_kernel(CopyBuffers s) {
  int64_t first = (int64_t)blockIdx.x * 256 * UNROLL + threadIdx.x;
  uint4 v[UNROLL][READS];
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
#pragma unroll
    for (int r = 0; r < READS; r++)
      if (first + u * 256 < s.vectors) v[u][r] = s.in[r][first + u * 256];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    if (first + u * 256 >= s.vectors) continue;
    uint4 x = v[u][0];
#pragma unroll
    for (int r = 1; r < READS; r++)
      x.x ^= v[u][r].x, x.y ^= v[u][r].y, x.z ^= v[u][r].z, x.w ^= v[u][r].w;
#pragma unroll
    for (int w = 0; w < WRITES; w++)
      s.out[w][first + u * 256] = x;
  }
}

template <int READS, int WRITES> static void copy_with(const CopyBuffers &s, int unroll, cudaStream_t stream) {
  unsigned blocks = (unsigned)((s.vectors + 256 * unroll - 1) / (256 * unroll));
  if (unroll == 1) copy_kernel<READS, WRITES, 1><<<blocks, 256, 0, stream>>>(s);
  if (unroll == 2) copy_kernel<READS, WRITES, 2><<<blocks, 256, 0, stream>>>(s);
  if (unroll == 4) copy_kernel<READS, WRITES, 4><<<blocks, 256, 0, stream>>>(s);
}

void copy_buffers_on(const CopyBuffers &s, int unroll, cudaStream_t stream) {
  switch (s.reads * 10 + s.writes) {
  case 11:
    return copy_with<1, 1>(s, unroll, stream);
  case 12:
    return copy_with<1, 2>(s, unroll, stream);
  case 21:
    return copy_with<2, 1>(s, unroll, stream);
  case 22:
    return copy_with<2, 2>(s, unroll, stream);
  case 31:
    return copy_with<3, 1>(s, unroll, stream);
  case 32:
    return copy_with<3, 2>(s, unroll, stream);
  case 41:
    return copy_with<4, 1>(s, unroll, stream);
  case 42:
    return copy_with<4, 2>(s, unroll, stream);
  case 13:
    return copy_with<1, 3>(s, unroll, stream);
  case 23:
    return copy_with<2, 3>(s, unroll, stream);
  case 33:
    return copy_with<3, 3>(s, unroll, stream);
  case 43:
    return copy_with<4, 3>(s, unroll, stream);
  }
}

/* ---- contents ---- */

__device__ static float noise(uint64_t i) {
  i = (i + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
  i ^= i >> 29;
  i *= 0x94d049bb133111ebull;
  i ^= i >> 32;
  return (float)(int32_t)(uint32_t)i * 0x1p-30f;
}

__device__ static void store(void *p, int64_t i, rms_dtype type, float f) {
  const uint32_t bits = __float_as_uint(f);
  if (type == RMS_F32) static_cast<float *>(p)[i] = f;
  if (type == RMS_F64) static_cast<double *>(p)[i] = f;
  if (type == RMS_BF16) static_cast<uint16_t *>(p)[i] = (uint16_t)(bits >> 16);
  if (type == RMS_F16) /* sign, exponent 2^-1..2^0, random fraction */
    static_cast<uint16_t *>(p)[i] = (uint16_t)((bits >> 16 & 0x8000) | 0x3800 | (bits & 0x7ff));
}

__global__ void noise_kernel(void *p, int64_t count, rms_dtype type, uint64_t seed) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
    store(p, i, type, noise((uint64_t)i + (seed << 40)));
}

__global__ void ones_kernel(void *p, int64_t count, rms_dtype type) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
    store(p, i, type, 1.0f);
}

__device__ static float load(const void *p, int64_t i, rms_dtype type) {
  if (type == RMS_F32) return static_cast<const float *>(p)[i];
  if (type == RMS_F64) return (float)static_cast<const double *>(p)[i];
  const uint16_t bits = static_cast<const uint16_t *>(p)[i];
  return type == RMS_BF16 ? __uint_as_float((uint32_t)bits << 16) : __half2float(__ushort_as_half(bits));
}

/* A block for each row. */
__global__ void multiply_kernel(void *p, rms_dtype type, int64_t rows, int64_t inner_rows, int64_t outer, int64_t inner,
                                int64_t cols, const double *factors) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t at = row / inner_rows * outer + row % inner_rows * inner;
    const double factor = factors[row];
    if (factor == 1) continue;
    for (int64_t j = threadIdx.x; j < (factor == factor ? cols : 1); j += blockDim.x) {
      const double value = factor == factor ? factor * load(p, at + j, type) : factor;
      if (type == RMS_F64)
        static_cast<double *>(p)[at + j] = value;
      else if (type == RMS_F16)
        static_cast<uint16_t *>(p)[at + j] = __half_as_ushort(__double2half(value));
      else
        store(p, at + j, type, (float)value);
    }
  }
}

void multiply_rows(void *data, rms_dtype type, int64_t rows, int64_t inner_rows, int64_t outer, int64_t inner,
                   int64_t cols, const double *factors, cudaStream_t stream) {
  multiply_kernel<<<1024, 256, 0, stream>>>(data, type, rows, inner_rows, outer, inner, cols, factors);
}

void fill_noise(void *data, int64_t count, rms_dtype type, uint64_t seed, cudaStream_t stream) {
  noise_kernel<<<1024, 256, 0, stream>>>(data, count, type, seed);
}

void fill_ones(void *data, int64_t count, rms_dtype type, cudaStream_t stream) {
  ones_kernel<<<256, 256, 0, stream>>>(data, count, type);
}
