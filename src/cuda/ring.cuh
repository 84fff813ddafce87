/* SPDX-License-Identifier: MIT
 *
 * A ring of stages in shared memory, filled ahead by asynchronous copies. Every thread reads back only the 16-byte
 * cells that it asked for itself, so the ring needs no barrier. */
#ifndef RMS_CUDA_RING_CUH
#define RMS_CUDA_RING_CUH

#include "element.cuh"

namespace rms_cuda {

/* 16 bytes to shared memory: from `from`, or zeros where bytes is 0. */
__device__ __forceinline__ void copy_ahead(void *shared, const char *from, int bytes) {
  uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void end_of_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All but the newest `stages - 1` groups have landed. */
__device__ __forceinline__ void wait_for_stage(int stages) {
  if (stages == 4)
    asm volatile("cp.async.wait_group 3;" ::: "memory");
  else if (stages == 3)
    asm volatile("cp.async.wait_group 2;" ::: "memory");
  else
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

/* Asks for n elements of type E; vectors lie in planes of one cell per thread. */
template <bool ALIGNED, class E, int V> __device__ __forceinline__ void fetch(uint4 *cell, const char *from, int n) {
  constexpr int cells = V * (int)sizeof(E) / 16;
  if constexpr (ALIGNED) {
#pragma unroll
    for (int c = 0; c < cells; c++)
      copy_ahead(cell + c * (int)blockDim.x, from + 16 * c, n > 0 ? 16 : 0);
  } else {
    Packed<E, V> v;
    clear(v);
    if (n > 0) load_narrow(v.w, from, n * (int)sizeof(E));
#pragma unroll
    for (int c = 0; c < cells; c++)
      cell[c * (int)blockDim.x] = make_uint4(v.w[4 * c], v.w[4 * c + 1], v.w[4 * c + 2], v.w[4 * c + 3]);
  }
}

template <class E, int V> __device__ __forceinline__ void take(Packed<E, V> &v, const uint4 *cell) {
#pragma unroll
  for (int c = 0; c < Packed<E, V>::words / 4; c++) {
    uint4 q = cell[c * (int)blockDim.x];
    v.w[4 * c] = q.x, v.w[4 * c + 1] = q.y, v.w[4 * c + 2] = q.z, v.w[4 * c + 3] = q.w;
  }
}

} // namespace rms_cuda

#endif
