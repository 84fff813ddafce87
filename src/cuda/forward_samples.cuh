/* SPDX-License-Identifier: MIT
 *
 * Forward of aligned rows whose weights belong to inner indices (scale and shift of samples, adaLN): a warp has a row,
 * and the warps of a block have rows of one inner index. Its gains and shifts are worked out once for all of them.
 * Template parameters as in forward_steps.cuh. */
#ifndef RMS_CUDA_FORWARD_SAMPLES_CUH
#define RMS_CUDA_FORWARD_SAMPLES_CUH

#include "forward_warp.cuh"
#include "samples.h"

namespace rms_cuda {

/* Gains and shifts of an inner index in shared memory, as f32: four columns of each vector, then the next four. */
template <class T, bool BIAS> struct SharedGains {
  static constexpr int V = vector_of<T>, Q = V / 4;
  float4 *gain;
  int vectors;

  __device__ __forceinline__ float4 *shift() const { return gain + Q * vectors; }
  static __device__ __forceinline__ void put(float4 *to, int pitch, const float (&f)[V]) {
#pragma unroll
    for (int c = 0; c < Q; c++)
      to[c * pitch] = make_float4(f[4 * c], f[4 * c + 1], f[4 * c + 2], f[4 * c + 3]);
  }
  static __device__ __forceinline__ void get(const float4 *from, int pitch, float (&f)[V]) {
#pragma unroll
    for (int c = 0; c < Q; c++) {
      const float4 four = from[c * pitch];
      f[4 * c] = four.x, f[4 * c + 1] = four.y, f[4 * c + 2] = four.z, f[4 * c + 3] = four.w;
    }
  }
  /* By all threads of the block. */
  __device__ __forceinline__ void load(const ForwardJob &p, int64_t skip) const {
    for (int v = (int)threadIdx.x; v < vectors; v += SAMPLE_THREADS) {
      float f[V];
      load_parameter<true, T>(f, p.weight + skip, v * V, V, p.weight_is_f32);
      add_offset<T>(f, p.offset, p.round_gain);
      put(gain + v, vectors, f);
      if (BIAS) {
        load_parameter<true, T>(f, p.bias + skip, v * V, V, p.weight_is_f32);
        put(shift() + v, vectors, f);
      }
    }
  }
};

template <class T, int NV, bool LAYER, bool BIAS>
__global__ void __launch_bounds__(SAMPLE_THREADS, (NV > 5 ? 3 : 4))
    forward_samples_kernel(const __grid_constant__ ForwardJob p) {
  constexpr int V = vector_of<T>;
  extern __shared__ float4 sample_gains[];
  const RowPlace block = divide_row(p.inner, blockIdx.x);
  const RowPlace place = {block.outer * (SAMPLE_THREADS / 32) + threadIdx.x / 32, block.inner};
  const int64_t row = place.outer * p.inner.rows + place.inner;
  const int lane = (int)threadIdx.x & 31;
  const bool there = row < p.rows;
  wait_for_previous();
  let_next_start();

  Packed<T, V> x[1][NV];
  const char *x_at = row_at<true>(p.x, place) + lane * 16;
#pragma unroll
  for (int i = 0; i < NV; i++) {
    clear(x[0][i]);
    if (there && lane + i * 32 < p.vectors) load_vector<true, true>(x[0][i], x_at + i * 512, V);
  }
  const SharedGains<T, BIAS> gains = {sample_gains, p.vectors};
  gains.load(p, block.inner * p.weight_inner);
  __syncthreads();
  if (!there) return;

  Statistic<float> st[1];
  LaneSums<1, NV, false> over = {lane, 32};
  measure_rows<LAYER, false, T>(p, x, st, over);
  if (lane == 0) write_statistic(p, row, st[0]);
  char *y_at = row_at<true>(p.y, place) + lane * 16;
  by_rounding<true>(p, [&](auto before) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      if (lane + i * 32 >= p.vectors) continue;
      float h[V], g[V], b[V];
      unpack(x[0][i], h);
#pragma unroll
      for (int j = 0; j < V; j++)
        h[j] = ((LAYER ? h[j] * st[0].scale - st[0].mean : h[j] * st[0].scale)) * st[0].r;
      gains.get(gains.gain + lane + i * 32, p.vectors, g);
      if (BIAS) gains.get(gains.shift() + lane + i * 32, p.vectors, b);
      constexpr bool early = decltype(before)::value; /* rounds before the weight */
      affine<T>(h, g, b, {true, BIAS, early, p.weight_is_f32});
      Packed<T, V> out;
      pack(out, h);
      store_vector<true>(y_at + i * 512, out, V);
    }
  });
}

} // namespace rms_cuda

#endif
