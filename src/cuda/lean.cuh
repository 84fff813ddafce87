/* SPDX-License-Identifier: MIT
 *
 * What the kernels of the common case share: sums of a block's or a cluster's row with one barrier each, and bulk
 * copies. The order of every sum is that of sum.cuh. */
#ifndef RMS_CUDA_LEAN_CUH
#define RMS_CUDA_LEAN_CUH

#include "start.cuh"
#include "statistic.cuh"

namespace rms_cuda {

/* Vectors of a panel: 32 chunks of 32. */
enum { PANEL = 1024 };

/* a/k with the bits of a division, where neither a nor the quotient is at the edge of the range: inverse is 1/k,
 * rounded once. */
__device__ __forceinline__ float divided(float a, float k, float inverse) {
  float q = a * inverse;
  return fused(fused(-q, k, a), inverse, q);
}

/* ---- where rows are ---- */

/* Rows at one distance have outer indices alone. */
struct RowPlace {
  int64_t outer;
  unsigned inner;
};

/* SEVERAL: there may be inner indices. */
template <int SEVERAL> __device__ __forceinline__ RowPlace place_of_row(const Inner &inner, int64_t row) {
  RowPlace at = {row, 0};
  if (SEVERAL && inner.rows != 0) {
    const unsigned outer = __umulhi((unsigned)row, inner.factor) >> inner.shift;
    at.inner = (unsigned)row - outer * inner.rows;
    at.outer = outer;
  }
  return at;
}

template <int SEVERAL> __device__ __forceinline__ char *row_at(const Rows &rows, const RowPlace &at) {
  return rows.data + at.outer * rows.outer + (SEVERAL ? at.inner * rows.inner : 0);
}

/* ---- barriers ---- */

/* The threads of one team; teams of a block have barriers of their own. */
__device__ __forceinline__ void team_sync(int team, int threads) {
  if (threads == 32)
    __syncwarp();
  else
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "r"(threads) : "memory");
}

/* Brings what a kernel will read first to L2. No value is read, so it may come before the wait for the kernel that
 * writes it. */
__device__ __forceinline__ void prefetch_bulk(const char *from, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#else
  (void)from, (void)bytes;
#endif
}
__device__ __forceinline__ void prefetch_line(const char *from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

/* One thread copies `bytes` (a multiple of 16) to shared memory; they count on the barrier `full`. ONCE: nobody reads
 * them again, which helps the forward and, measured, hurts the backward. */
template <bool ONCE>
__device__ __forceinline__ void copy_bulk(void *shared, const char *from, int bytes, uint64_t *full) {
#if __CUDA_ARCH__ >= 900
  uint32_t to = (uint32_t)__cvta_generic_to_shared(shared), barrier = (uint32_t)__cvta_generic_to_shared(full);
  if (ONCE) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
        "%4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "l"(once_policy())
        : "memory");
    return;
  }
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
#else
  (void)shared, (void)from, (void)bytes, (void)full;
#endif
}

/* Keeps the compiler from unpacking a row once for all its uses: that would double the registers it takes. */
template <class T, int V, int NV> __device__ __forceinline__ void keep_packed(Packed<T, V> (&x)[NV]) {
#pragma unroll
  for (int i = 0; i < NV; i++)
#pragma unroll
    for (int j = 0; j < Packed<T, V>::words; j++)
      asm volatile("" : "+r"(x[i].w[j]));
}

/* ---- sums ---- */

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
  const int lane = (int)threadIdx.x & 31, group = SUMS * PANELS == 1 ? 0 : (lane >> 3) % (SUMS * PANELS);
  const float4 c = *reinterpret_cast<const float4 *>(chunk + group * 32 + (lane & 7) * 4);
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

/* What the blocks of a cluster sent: `count` panel sums in increasing order. */
template <class Op> __device__ __forceinline__ float over_mail(const float *mail, int count) {
  float total = mail[0];
#pragma unroll 4
  for (int i = 1; i < count; i++)
    total = Op::of(total, mail[i]);
  return total;
}

} // namespace rms_cuda

#endif
