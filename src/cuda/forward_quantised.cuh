/* SPDX-License-Identifier: MIT
 *
 * Forward of aligned rows of RMSNorm, a row per block, whose outputs are others than y in the data type: y quantised
 * (QUANTISED), y of another type, or the statistics alone. A row stays in registers from x to its codes, packed. With
 * all options of forward_steps.cuh; template parameters as there. */
#ifndef RMS_CUDA_FORWARD_QUANTISED_CUH
#define RMS_CUDA_FORWARD_QUANTISED_CUH

#include "forward_block.cuh"
#include "general.cuh"
#include "quantise.cuh"
#include "quantised.h"

namespace rms_cuda {

/* The vectors of a row that a thread has: x, and then y. */
template <class T, int NV, bool OPTIONS> struct QuantisedRow {
  static constexpr int V = vector_of<T>;
  const QuantisedJob &job;
  int64_t row;
  RowPlace place;
  Packed<T, V> (&x)[NV];

  __device__ __forceinline__ int vector(int i) const { return (int)threadIdx.x + i * (int)blockDim.x; }
  __device__ __forceinline__ bool has(int i) const { return vector(i) < job.p.vectors; }
  __device__ __forceinline__ int block_of(int i) const { return vector(i) >> job.shift; }
  __device__ __forceinline__ int within(int i) const { return vector(i) & (job.lanes - 1); }
  /* f(i, h) for each vector h of y, but for its last rounding. */
  template <class F> __device__ __forceinline__ void each_y(const Statistic<float> &st, bool own_type, F f) const {
    const ForwardJob &p = job.p;
    const int64_t skip = weight_skip<OPTIONS>(p, row);
    by_rounding<OPTIONS>(p, [&](auto before) {
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (!has(i)) continue;
        Packed<T, V> weight, no_gate;
        float h[V];
        if (p.weight && !p.weight_is_f32) load_weights<false>(p, skip, vector(i), weight);
        finish_values<false, OPTIONS, false, before, RMS_GATE_NONE>(p, x[i], st, weight, no_gate, skip, vector(i), h,
                                                                    own_type);
        f(i, h);
      }
    });
  }
  /* y of another type. Of 16-bit data that is f32. */
  __device__ __forceinline__ void write_own_type(const Statistic<float> &st) const {
    char *y_at = row_at<OPTIONS>(job.p.y, place);
    auto store = [&](int i, auto out, const float(&h)[V]) {
      pack(out, h);
      store_vector<true>(y_at + bytes_before<typename decltype(out)::element, V>(vector(i)), out, V);
    };
    each_y(st, true, [&](int i, const float(&h)[V]) {
      if constexpr (sizeof(T) == 2) {
        store(i, Packed<float, V>(), h);
      } else {
        if (job.y_type == RMS_BF16)
          store(i, Packed<__nv_bfloat16, V>(), h);
        else
          store(i, Packed<__half, V>(), h);
      }
    });
  }
  /* y in the place of x, and to memory where it is wanted. What is not there stays zeros. */
  __device__ __forceinline__ void make_y(const Statistic<float> &st) const {
    char *y_at = job.p.y.data ? row_at<OPTIONS>(job.p.y, place) : nullptr;
    each_y(st, false, [&](int i, const float(&h)[V]) {
      pack(x[i], h);
      if (y_at) store_vector<true>(y_at + bytes_before<T, V>(vector(i)), x[i], V);
    });
    keep_packed(x);
  }
  /* The largest magnitude of the block of vector i, for each of its lanes. By all lanes of a warp. */
  __device__ __forceinline__ float largest_of_block(int i) const {
    float most = largest_magnitude(x[i]);
    for (int o = job.lanes / 2; o >= 1; o /= 2)
      most = fmaxf(most, __shfl_xor_sync(whole_warp, most, o));
    return most;
  }
  template <class Q> __device__ __forceinline__ void code(int i, const Q &quantiser, uint32_t (&codes)[V / 4]) const {
    float y[V];
    unpack(x[i], y);
    quantiser.of(y, codes);
  }
  template <class Q> __device__ __forceinline__ void write_codes(int i, const Q &quantiser) const {
    uint32_t codes[V / 4];
    if (!has(i)) return;
    code(i, quantiser, codes);
    char *to = row_at<OPTIONS>(job.q, place) + (int64_t)vector(i) * V;
    if constexpr (V == 8)
      __stcs(reinterpret_cast<uint2 *>(to), make_uint2(codes[0], codes[1]));
    else
      __stcs(reinterpret_cast<uint32_t *>(to), codes[0]);
  }
  /* f(quantiser) of a computed scale. */
  template <Codes CODE, class F> static __device__ __forceinline__ void by_range(const Scale &scale, F f) {
    if (scale.within)
      f(QuantiserWithin<CODE, T>(scale.factor));
    else
      f(Quantiser<CODE, false>(scale.factor));
  }
  /* Scales given, or computed of the row or of blocks. of_row: the largest of the row, for which all threads are asked.
   */
  template <Codes CODE, class F> __device__ __forceinline__ void quantise(float given, F of_row) const {
    if (job.blocks == 0) {
      const Quantiser<CODE, true> quantiser = given_quantiser<CODE>(given);
#pragma unroll
      for (int i = 0; i < NV; i++)
        write_codes(i, quantiser);
    } else if (job.lanes == 0) {
      const Scale scale = block_scale<CODE>(of_row(), job.least);
      if (threadIdx.x == 0) job.scale[row] = scale.written;
      by_range<CODE>(scale, [&](const auto &quantiser) {
#pragma unroll
        for (int i = 0; i < NV; i++)
          write_codes(i, quantiser);
      });
    } else {
#pragma unroll
      for (int i = 0; i < NV; i++) {
        const Scale scale = block_scale<CODE>(largest_of_block(i), job.least);
        if (has(i) && within(i) == 0) job.scale[row * job.blocks + block_of(i)] = scale.written;
        by_range<CODE>(scale, [&](const auto &quantiser) { write_codes(i, quantiser); });
      }
    }
  }
  /* Blocks of RMS_Q8_0, whose 34 bytes no aligned store fits: by way of shared memory. */
  __device__ __forceinline__ void quantise_q8_0(uint4 *cells) const {
    char *bytes = reinterpret_cast<char *>(cells);
#pragma unroll
    for (int i = 0; i < NV; i++) {
      const Scale scale = q8_0_scale(largest_of_block(i), job.least);
      if (!has(i)) continue;
      uint32_t codes[V / 4];
      by_range<Codes::I8>(scale, [&](const auto &quantiser) { code(i, quantiser, codes); });
      uint16_t *to = reinterpret_cast<uint16_t *>(bytes + block_of(i) * 34), *at = to + 1 + within(i) * (V / 2);
      if (within(i) == 0) to[0] = q8_0_bits(scale.written);
#pragma unroll
      for (int c = 0; c < V / 4; c++)
        at[2 * c] = (uint16_t)codes[c], at[2 * c + 1] = (uint16_t)(codes[c] >> 16);
    }
    __syncthreads();
    copy_out(Team((int)blockDim.x, nullptr), cells, row_at<OPTIONS>(job.q, place), job.p.width / 32 * 34);
  }
};

/* MOST: threads of a block. */
template <class T, int NV, bool RESIDUAL, bool QUANTISED, bool OPTIONS, int MOST>
__global__ void __launch_bounds__(MOST, (NV == 8 ? 1 : 1024 / MOST))
    quantised_forward_block_kernel(const __grid_constant__ QuantisedJob job) {
  constexpr int V = vector_of<T>, PANELS = NV * MOST > PANEL ? NV * MOST / PANEL : 1;
  __shared__ __align__(16) float chunk[USES][PANELS * 32];
  extern __shared__ uint4 quantised_cells[];
  const ForwardJob &p = job.p;
  const int64_t row = blockIdx.x;
  const int step = (int)blockDim.x, left = p.vectors - (int)threadIdx.x;
  const RowPlace place = place_of_row<OPTIONS>(p.inner, row);
  wait_for_previous();
  let_next_start();

  Packed<T, V> x[1][NV], no_gate[NV];
  load_row<T, T, RESIDUAL, OPTIONS, RMS_GATE_NONE>(p, place, x[0], no_gate);
  float given = 0;
  if (QUANTISED && job.blocks == 0 && job.scale) given = *job.scale;
  if (RESIDUAL && p.sum.data) {
    char *sum_at = row_at<OPTIONS>(p.sum, place);
#pragma unroll
    for (int i = 0; i < NV; i++)
      store_row<false>(p, sum_at, (int)threadIdx.x + i * step, x[0][i], i * step < left, 32);
  }
  Statistic<float> st[1];
  BlockSums<NV, PANELS, false> over = {chunk, step, left};
  measure_rows<false, OPTIONS, T>(p, x, st, over);
  if (threadIdx.x == 0) write_statistic(p, row, st[0]);

  const QuantisedRow<T, NV, OPTIONS> of = {job, row, place, x[0]};
  if constexpr (!QUANTISED) {
    if (p.y.data) of.write_own_type(st[0]);
  } else {
    of.make_y(st[0]);
    auto largest = [&]() -> float {
      float a[1][NV], most[1];
#pragma unroll
      for (int i = 0; i < NV; i++)
        a[0][i] = largest_magnitude(x[0][i]);
      over.template of<Max, USE_MEAN>(most, a); /* RMSNorm has no other use for that place */
      return most[0];
    };
    if (job.q_type == RMS_I8)
      of.template quantise<Codes::I8>(given, largest);
    else if (job.q_type == RMS_F8E4M3)
      of.template quantise<Codes::E4M3>(given, largest);
    else if (job.q_type == RMS_F8E5M2)
      of.template quantise<Codes::E5M2>(given, largest);
    else
      of.quantise_q8_0(quantised_cells);
  }
}

} // namespace rms_cuda

#endif
