/* SPDX-License-Identifier: MIT
 *
 * Forward of aligned rows whose weights belong to inner indices with few rows each (scale and shift of rows, adaLN): a
 * row per block. Each thread asks for its weights and bias with its part of the row. Template parameters as in
 * forward_steps.cuh. */
#ifndef RMS_CUDA_FORWARD_OWN_CUH
#define RMS_CUDA_FORWARD_OWN_CUH

#include "forward_block.cuh"
#include "own.h"

namespace rms_cuda {

/* WIDE: weight and bias in f32 beside 16-bit data. */
template <class T, bool LAYER, bool WIDE>
__global__ void __launch_bounds__(OWN_THREADS, (WIDE ? 1 : 2))
    forward_own_kernel(const __grid_constant__ ForwardJob p) {
  constexpr int V = vector_of<T>, NV = OWN_VECTORS;
  __shared__ __align__(16) float chunk[USES][32];
  const int64_t row = blockIdx.x;
  const int step = (int)blockDim.x, left = p.vectors - (int)threadIdx.x;
  const RowPlace place = divide_row(p.inner, row);
  wait_for_previous();
  let_next_start();

  Packed<T, V> x[1][NV];
  Packed<std::conditional_t<WIDE, float, T>, V> weight[NV], bias[NV];
  const int64_t skip = place.inner * p.weight_inner + (int)threadIdx.x * (int)sizeof(weight[0]);
  const char *x_at = row_at<true>(p.x, place) + (int)threadIdx.x * 16;
#pragma unroll
  for (int i = 0; i < NV; i++) {
    clear(x[0][i]);
    if (i * step < left) load_vector<true, true, true>(x[0][i], x_at + i * step * 16, V);
  }
#pragma unroll
  for (int i = 0; i < NV; i++)
    if (i * step < left) load_vector<true, false>(weight[i], p.weight + skip + i * step * (int)sizeof(weight[i]), V);
  if (p.bias) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      if (i * step < left) load_vector<true, false>(bias[i], p.bias + skip + i * step * (int)sizeof(bias[i]), V);
  }

  Statistic<float> st[1];
  BlockSums<NV, 1, false> over(chunk, step, left);
  measure_rows<LAYER, false, T>(p, x, st, over);
  if (threadIdx.x == 0) write_statistic(p, row, st[0]);
  char *y_at = row_at<true>(p.y, place) + (int)threadIdx.x * 16;
  by_rounding<true>(p, [&](auto before) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      if (i * step >= left) continue;
      constexpr bool early = decltype(before)::value; /* rounds before the weight */
      float h[V], g[V], b[V];
      normalise<LAYER>(x[0][i], st[0], h);
      unpack(weight[i], g);
      add_offset<T>(g, p.offset, p.round_gain);
      if (p.bias) unpack(bias[i], b);
      affine<T>(h, g, b, {true, p.bias != nullptr, early, WIDE});
      Packed<T, V> out;
      pack(out, h);
      store_vector<true>(y_at + i * step * 16, out, V);
    }
  });
}

} // namespace rms_cuda

#endif
