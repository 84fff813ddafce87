/* SPDX-License-Identifier: MIT
 *
 * The order of every sum over a segment. It is defined on elements, so that it is the same for every division of the
 * work:
 *
 *   vector   16 bytes of the data type: one chain of fma (or additions) in increasing order from zero
 *   chunk    32 vectors: l with l+16, then l+8, l+4, l+2, l+1
 *   panel    32 chunks, in the same way
 *   portion  16 panels in increasing order
 *   segment  its portion; or if there are more, their sums in increasing order in f64, rounded once
 *
 * What is missing counts as zeros. A team of 2^n < 32 lanes, a warp, a block or a cluster of blocks may share a
 * segment. */
#ifndef RMS_CUDA_SUM_CUH
#define RMS_CUDA_SUM_CUH

#include "element.cuh"

namespace rms_cuda {

constexpr unsigned whole_warp = 0xffffffffu;

/* Vectors of a panel: 32 chunks of 32; panels of a portion, which is as much as any but the general kernels take. */
enum { PANEL = 1024, PORTION = 16 };

struct Add {
  template <class R> static __device__ __forceinline__ R of(R a, R b) { return a + b; }
};
struct Max {
  template <class R> static __device__ __forceinline__ R of(R a, R b) { return a > b ? a : b; }
};

/* ---- sums of exact zeros ---- */

/* A sum can say of itself that each of its terms is an exact zero: whoever has such terms alone adds -0 for them, and
 * the sum is -0 only where all did. Nothing else makes it so: a sum of numbers that cancel is +0. What is missing is an
 * exact zero. */
constexpr float exact_zero = -0.0f;

__device__ __forceinline__ bool is_exact_zero(float sum) {
  return __float_as_uint(sum) == 0x80000000u;
}

/* ---- within a warp ---- */

template <class Op, class R> __device__ __forceinline__ R butterfly(R a, int from, int down_to) {
  for (int o = from; o >= down_to; o >>= 1)
    a = Op::of(a, __shfl_xor_sync(whole_warp, a, o));
  return a;
}

/* Sums over the `team` lanes of ROWS rows at once. */
template <class Op, int ROWS> __device__ __forceinline__ void over_lanes(float (&a)[ROWS], int team) {
#pragma unroll
  for (int o = 16; o >= 1; o /= 2)
    if (o < team) {
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        a[r] = Op::of(a[r], __shfl_xor_sync(whole_warp, a[r], o));
    }
}

/* n = 2^log2_of(n). */
__host__ __device__ constexpr int log2_of(int n) {
  return n <= 1 ? 0 : 1 + log2_of(n / 2);
}

/* The power of two from n on. */
__host__ __device__ constexpr int power_from(int n) {
  return n <= 1 ? 1 : 2 * power_from((n + 1) / 2);
}

/* Sums NV vector sums a[i], each over the 32 lanes of the warp, all at once: on return lane l has that of
 * i = l >> (5 - log2 NV), where what is missing to a power of two counts as zeros. The additions are those of NV
 * butterflies. */
template <class Op, int NV, class R> __device__ __forceinline__ R fold(R (&a)[NV]) {
  if constexpr (power_from(NV) != NV) {
    R all[power_from(NV)];
#pragma unroll
    for (int i = 0; i < power_from(NV); i++)
      all[i] = i < NV ? a[i < NV ? i : 0] : 0;
    return fold<Op>(all);
  }
  int lane = threadIdx.x & 31, o = 16;
#pragma unroll
  for (int n = NV / 2; n >= 1; n /= 2) {
    bool upper = (lane & o) != 0;
#pragma unroll
    for (int j = 0; j < n; j++) {
      R send = upper ? a[j] : a[j + n], keep = upper ? a[j + n] : a[j];
      a[j] = Op::of(keep, __shfl_xor_sync(whole_warp, send, o));
    }
    o >>= 1;
  }
  return butterfly<Op>(a[0], o, 1);
}

/* ---- from chunk sums in shared memory ---- */

/* Chunk sums of a team lie in shared memory as [SUMS][PANELS][32], those of a panel in an order that lets a lane read
 * chunks l, l+8, l+16, l+24 at once. Places without a chunk hold zeros. */
__device__ __forceinline__ int chunk_place(int chunk) {
  return (chunk & ~31) + (chunk & 7) * 4 + (chunk >> 3 & 3);
}

/* Where the lanes of a warp write what fold() gives them: SUMS sums of NV vectors each; negative: nowhere. */
template <int SUMS, int PANELS, int NV> __device__ __forceinline__ int place_of_lane(int warp, int warps) {
  constexpr int copies = 32 / (SUMS * NV);
  const int lane = (int)threadIdx.x & 31, i = lane / copies;
  return lane % copies == 0 ? i / NV * PANELS * 32 + chunk_place(i % NV * warps + warp) : -1;
}

/* Panel sums: the 8 lanes from 8*g have that of sum g / PANELS, panel g % PANELS on return. */
template <class Op, int SUMS, int PANELS> __device__ __forceinline__ float panel_sums(const float *chunk) {
  const int lane = (int)threadIdx.x & 31, which = SUMS * PANELS == 1 ? 0 : (lane >> 3) % (SUMS * PANELS);
  const float4 c = *reinterpret_cast<const float4 *>(chunk + which * 32 + (lane & 7) * 4);
  return butterfly<Op>(Op::of(Op::of(c.x, c.z), Op::of(c.y, c.w)), 4, 1);
}

/* The panels of sum s of panel_sums(), in increasing order, after those of `before` if there are any. */
template <class Op, int SUMS, int PANELS, bool FIRST = true>
__device__ __forceinline__ float over_panels(float sum, int s, float before = 0) {
  if (FIRST && SUMS * PANELS == 1) return sum;
  float total = before;
#pragma unroll
  for (int i = 0; i < PANELS; i++) {
    const float panel = __shfl_sync(whole_warp, sum, (s * PANELS + i) * 8);
    total = FIRST && i == 0 ? panel : Op::of(total, panel);
  }
  return total;
}

} // namespace rms_cuda

#endif
