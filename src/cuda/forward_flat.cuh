/* SPDX-License-Identifier: MIT
 *
 * Forward of short rows that are not aligned but lie one after the other in x and in y, from a multiple of 16 bytes on:
 * the rows of a block are whole pieces of memory (shifted.cuh), so they come to shared memory by one bulk copy, are
 * replaced there by y, and go back by another. The common case alone, as in forward_steps.cuh. */
#ifndef RMS_CUDA_FORWARD_FLAT_CUH
#define RMS_CUDA_FORWARD_FLAT_CUH

#include "forward_pieces.cuh"
#include "forward_warp.cuh"

namespace rms_cuda {

/* A vector of a row in shared memory, of which there are `left` bytes; beyond them there may be anything. */
template <class T, int V> __device__ __forceinline__ void take_shifted(Packed<T, V> &v, const char *at, int left) {
  clear(v);
  if (left <= 0) return;
  const unsigned half = (unsigned)(uintptr_t)at & 2;
  const uint32_t *word = reinterpret_cast<const uint32_t *>(at - half);
  uint32_t words[5];
#pragma unroll
  for (int i = 0; i < 5; i++)
    words[i] = sizeof(T) == 4 && i == 4 ? 0 : word[i];
#pragma unroll
  for (int i = 0; i < 4; i++)
    v.w[i] = sizeof(T) == 4 ? words[i] : __funnelshift_r(words[i], words[i + 1], half * 8);
  cut_off(v.w, left);
}

/* The same back; all lanes of a warp call it. begins, ends: this lane has the first or last one of the vectors that the
 * warp has of the row at once. A word that two lanes have parts of is written by the second; what begins and ends them
 * goes by halves of words. */
template <class T, int V>
__device__ __forceinline__ void put_shifted(char *at, const Packed<T, V> &v, int left, bool begins, bool ends,
                                            bool there) {
  const unsigned half = (unsigned)(uintptr_t)at & 2;
  uint32_t *word = reinterpret_cast<uint32_t *>(at - half);
  const uint32_t before = __shfl_up_sync(whole_warp, v.w[3], 1);
  if (!there || left <= 0) return;
  uint32_t w[5] = {v.w[0], v.w[1], v.w[2], v.w[3], 0};
  if (half) {
#pragma unroll
    for (int i = 4; i >= 0; i--)
      w[i] = __funnelshift_l(i > 0 ? v.w[i > 0 ? i - 1 : 0] : before, i < 4 ? v.w[i < 4 ? i : 0] : 0, 16);
  }
  const int end = (left < 16 ? left : 16) + (int)half; /* bytes from the first word on */
  if (half && begins)
    *reinterpret_cast<uint16_t *>(at) = (uint16_t)(w[0] >> 16);
  else if (end >= 4)
    word[0] = w[0];
#pragma unroll
  for (int i = 1; i < 4; i++)
    if (end >= 4 * i + 4) word[i] = w[i];
  if ((ends || left <= 16) && (end & 2)) {
#pragma unroll
    for (int i = 0; i < 5; i++)
      if (end == 4 * i + 2) *reinterpret_cast<uint16_t *>(word + i) = (uint16_t)w[i];
  }
}

/* What 16 bytes do not hold at the end of a block's rows: element by element, from one place to the other. */
template <class T> __device__ __forceinline__ void copy_rest(char *to, const char *from, int whole, int bytes) {
  const int at = whole + (int)threadIdx.x * (int)sizeof(T);
  if (at < bytes) *reinterpret_cast<T *>(to + at) = *reinterpret_cast<const volatile T *>(from + at);
}
template <> __device__ __forceinline__ void copy_rest<__half>(char *to, const char *from, int whole, int bytes) {
  copy_rest<uint16_t>(to, from, whole, bytes);
}
template <> __device__ __forceinline__ void copy_rest<__nv_bfloat16>(char *to, const char *from, int whole, int bytes) {
  copy_rest<uint16_t>(to, from, whole, bytes);
}

/* A block has ROWS * threads/team rows. In code without bulk copies it is never launched. */
template <class T, int NV, int ROWS, bool LAYER>
__global__ void __launch_bounds__(WARP_FORWARD_THREADS, LAYER ? 6 : 7)
    forward_flat_kernel(const __grid_constant__ ForwardJob p) {
#if __CUDA_ARCH__ >= 900
  constexpr int V = vector_of<T>;
  extern __shared__ __align__(128) char shared[];
  __shared__ uint64_t full;
  const int team = p.team, teams = WARP_FORWARD_THREADS / team, t = (int)threadIdx.x, first = t & (team - 1);
  const int64_t row = (int64_t)blockIdx.x * (teams * ROWS);
  const int rows = p.rows - row < teams * ROWS ? (int)(p.rows - row) : teams * ROWS;
  const int bytes = rows * p.bytes, whole = bytes & ~15;
  const char *from = p.x.data + row * p.bytes;
  char *to = p.y.data + row * p.bytes;
  if (t == 0) start_barriers(&full, 1);
  __syncthreads();
  wait_for_previous();
  if (t == 0) {
    expect_bytes(&full, whole);
    if (whole > 0) copy_bulk<true>(shared, from, whole, &full);
  }
  copy_rest<T>(shared, from, whole, bytes);
  Packed<T, V> weight[NV], bias[NV];
#pragma unroll
  for (int i = 0; i < NV; i++) {
    if (p.weight) load_first_or_all(weight[i], p.weight, first + i * 32, p.bytes);
    if (p.bias) load_first_or_all(bias[i], p.bias, first + i * 32, p.bytes);
  }
  let_next_start();
  wait_for_copies(&full, 0);
  __syncthreads();

  Packed<T, V> x[ROWS][NV];
  auto place = [&](int r, int i) { return shared + (t / team + r * teams) * p.bytes + (first + i * 32) * 16; };
  auto there = [&](int r) { return t / team + r * teams < rows; };
  auto left = [&](int i) { return p.bytes - (first + i * 32) * 16; };
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int i = 0; i < NV; i++)
      take_shifted(x[r][i], place(r, i), there(r) ? left(i) : 0);
  __syncthreads(); /* neighbouring rows share words */

  Statistic<float> st[ROWS];
  LaneSums<ROWS, NV, true> over(first, team);
  measure_rows<LAYER, LAYER, T>(p, x, st, over);
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    if (first == 0 && there(r)) write_statistic(p, row + t / team + r * teams, st[r]);
#pragma unroll
    for (int i = 0; i < NV; i++) {
      Packed<T, V> out;
      finish_common<LAYER, RMS_GATE_NONE>(p, x[r][i], st[r], weight[i], bias[i], out, out);
      put_shifted(place(r, i), out, left(i), first == 0, first == team - 1, there(r));
    }
  }
  share_with_copies();
  __syncthreads();
  if (t == 0 && whole > 0) store_bulk(to, shared, whole);
  copy_rest<T>(to, shared, whole, bytes);
  if (t == 0) wait_for_stores();
#else
  (void)p;
#endif
}

} // namespace rms_cuda

#endif
