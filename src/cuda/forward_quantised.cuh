/* SPDX-License-Identifier: MIT
 *
 * Forward of aligned rows whose outputs are others than y in the data type: y quantised (QUANTISED), y of another type,
 * or the statistics alone. A row stays in registers from x to its codes, packed. With all options of forward_steps.cuh;
 * template parameters as there. */
#ifndef RMS_CUDA_FORWARD_QUANTISED_CUH
#define RMS_CUDA_FORWARD_QUANTISED_CUH

#include "forward_block.cuh"
#include "forward_warp.cuh"
#include "general.cuh"
#include "quantise.cuh"
#include "quantised.h"

namespace rms_cuda {

/* The vectors of a row that a thread has: x, and then y. WARP: the row is one warp's, else the block's. */
template <class T, int NV, bool LAYER, bool OPTIONS, bool WARP, bool FULL> struct QuantisedRow {
  static constexpr int V = vector_of<T>;
  const QuantisedJob &job;
  int64_t row;
  RowPlace place;
  char *shared; /* of the block, for scales */
  Packed<T, V> (&x)[NV];

  __device__ __forceinline__ int lane() const { return (int)threadIdx.x & 31; }
  __device__ __forceinline__ int first() const { return WARP ? lane() : (int)threadIdx.x; }
  __device__ __forceinline__ int step() const { return WARP ? 32 : (int)blockDim.x; }
  __device__ __forceinline__ int vector(int i) const { return first() + i * step(); }
  __device__ __forceinline__ bool has(int i) const { return FULL || vector(i) < job.p.vectors; }

  /* ---- y ---- */

  /* f(i, h) for each vector h of y, but for its last rounding. */
  template <class F> __device__ __forceinline__ void each_y(const Statistic<float> &st, bool own_type, F f) const {
    const ForwardJob &p = job.p;
    const int64_t skip = weight_skip<OPTIONS>(p, row);
    if (!OPTIONS && !LAYER && p.weight && !p.bias && p.offset == 0 && st.scale == 1.0f) {
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (!has(i)) continue;
        Packed<T, V> weight;
        float h[V], g[V];
        load_weights<false>(p, 0, vector(i), weight);
        unpack(x[i], h);
        unpack(weight, g);
#pragma unroll
        for (int j = 0; j < V; j++)
          h[j] = h[j] * st.r * g[j];
        f(i, h);
      }
      return;
    }
    by_rounding<OPTIONS>(p, [&](auto before) {
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (!has(i)) continue;
        Packed<T, V> weight, no_gate;
        float h[V];
        if (p.weight && !p.weight_is_f32) load_weights<false>(p, skip, vector(i), weight);
        finish_values<LAYER, OPTIONS, false, before, RMS_GATE_NONE>(p, x[i], st, weight, no_gate, skip, vector(i), h,
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
    each_y(st, false, [&](int i, const float(&h)[V]) { pack(x[i], h); });
    keep_packed(x);
    if (y_at) {
#pragma unroll
      for (int i = 0; i < NV; i++)
        if (has(i)) store_vector<true>(y_at + bytes_before<T, V>(vector(i)), x[i], V);
    }
  }

  /* ---- codes ---- */

  template <class Q> __device__ __forceinline__ void code(int i, const Q &quantiser, uint32_t (&codes)[V / 4]) const {
    float y[V];
    unpack(x[i], y);
    quantiser.of(y, codes);
  }
  template <class Q> __device__ __forceinline__ void write_codes(char *q_at, int i, const Q &quantiser) const {
    uint32_t codes[V / 4];
    if (!has(i)) return;
    code(i, quantiser, codes);
    char *to = q_at + vector(i) * V;
    if constexpr (V == 8)
      __stcs(reinterpret_cast<uint2 *>(to), make_uint2(codes[0], codes[1]));
    else
      __stcs(reinterpret_cast<uint32_t *>(to), codes[0]);
  }
  template <class Q> __device__ __forceinline__ void write_row(const Q &quantiser) const {
    char *q_at = row_at<OPTIONS>(job.q, place);
#pragma unroll
    for (int i = 0; i < NV; i++)
      write_codes(q_at, i, quantiser);
  }
  /* The largest magnitude of the row, as a number of T. */
  __device__ __forceinline__ float largest_of_row() const {
    uint32_t most = __reduce_max_sync(whole_warp, largest_of(x));
    if constexpr (!WARP) {
      __shared__ uint32_t of_warp[32];
      if (lane() == 0) of_warp[threadIdx.x / 32] = most;
      __syncthreads();
      most = __reduce_max_sync(whole_warp, of_warp[lane() < (int)blockDim.x / 32 ? lane() : 0]);
    }
    return largest_as_float<T>(most);
  }
  /* Quotients by a scale that is within the range of all elements. */
  template <Codes CODE> __device__ __forceinline__ void divide_row(float scale, float inverse) const {
    if constexpr (sizeof(T) == 2) {
      if (inverse_is_enough<CODE, T>(scale)) {
        write_row(QuantiserNear<CODE>{inverse});
        return;
      }
    }
    write_row(QuantiserWithin<CODE, T, true>{scale, inverse});
  }
  template <Codes CODE> __device__ __forceinline__ void quantise_given(float scale) const {
    if constexpr (CODE == Codes::I8) {
      const float size = fabsf(scale), most = largest_as_float<T>(largest_of(x));
      if (size >= 0x1p-60f && size <= 0x1p60f && __all_sync(whole_warp, most <= 126.0f * size)) {
        divide_row<CODE>(scale, __frcp_rn(scale));
        return;
      }
    }
    write_row(given_quantiser<CODE>(scale));
  }
  template <Codes CODE> __device__ __forceinline__ void quantise_row() const {
    const Scale scale = block_scale<CODE>(size_for_scale(largest_of_row()), job.least);
    if (first() == 0) job.scale[row] = scale.written;
    if (!scale.within)
      write_row(Quantiser<CODE, false>(scale.factor));
    else if constexpr (CODE == Codes::I8)
      write_row(QuantiserWithin<CODE, T, false>{scale.written, scale.factor});
    else
      divide_row<CODE>(scale.factor, __frcp_rn(scale.factor));
  }

  /* ---- blocks of lanes next to each other ---- */

  /* A warp's blocks have slots in shared memory: that of vector i; where the warp's begin; which block of the row slot
   * b is. LANES: of a block, a power of two; 0: what the job says. */
  template <int LANES> __device__ __forceinline__ int shift() const {
    return LANES ? log2_of(LANES) : job.shift;
  }
  template <int LANES> __device__ __forceinline__ int slot(int i) const {
    return (i * 32 + lane()) >> shift<LANES>();
  }
  template <int LANES> __device__ __forceinline__ float2 *slots() const {
    return reinterpret_cast<float2 *>(shared) + (threadIdx.x / 32) * (unsigned)(NV * 32 >> shift<LANES>());
  }
  template <int LANES> __device__ __forceinline__ int block_of(int b) const {
    if (WARP) return b;
    const int in_chunk = 5 - shift<LANES>(), chunk = (b >> in_chunk) * (step() / 32) + (int)threadIdx.x / 32;
    return (chunk << in_chunk) + (b & ((1 << in_chunk) - 1));
  }
  /* Factors of the warp's blocks, and what elements are multiplied with, in its slots. Each lane works on blocks of its
   * own: a scale is two divisions. Whether all scales are within. */
  template <bool DIVIDES, int LANES, class F> __device__ __forceinline__ bool scale_blocks(F scale_of) const {
    uint32_t most[NV];
    largest_of_vectors(x, most, 1 << shift<LANES>());
    float2 *slot_of = slots<LANES>();
    if ((lane() & ((1 << shift<LANES>()) - 1)) == 0) {
#pragma unroll
      for (int i = 0; i < NV; i++)
        slot_of[slot<LANES>(i)].x = largest_as_float<T>(most[i]);
    }
    __syncwarp();
    bool within = true;
#pragma unroll 1
    for (int b = lane(); b < NV * 32 >> shift<LANES>(); b += 32) {
      const Scale scale = scale_of(size_for_scale(slot_of[b].x), block_of<LANES>(b));
      within = within && scale.within;
      slot_of[b] = make_float2(scale.factor, DIVIDES ? __frcp_rn(scale.factor) : scale.factor);
    }
    __syncwarp();
    return __all_sync(whole_warp, within);
  }
  template <Codes CODE, int LANES> __device__ __forceinline__ void quantise_blocks() const {
    constexpr bool divides = CODE != Codes::I8;
    const bool within = scale_blocks<divides, LANES>([&](float largest, int block) {
      const Scale scale = block_scale<CODE>(largest, job.least);
      if (FULL || block < job.blocks) job.scale[row * job.blocks + block] = scale.written;
      return scale;
    });
    char *q_at = row_at<OPTIONS>(job.q, place);
    auto write = [&](auto quantiser_of) {
#pragma unroll
      for (int i = 0; i < NV; i++)
        write_codes(q_at, i, quantiser_of(slots<LANES>()[slot<LANES>(i)]));
    };
    if (within)
      write([](float2 by) { return QuantiserWithin<CODE, T, divides>{by.x, by.y}; });
    else
      write([](float2 by) { return Quantiser<CODE, false>(by.x); });
  }
  /* Blocks of RMS_Q8_0, whose 34 bytes no aligned store fits: by way of shared memory. */
  __device__ __forceinline__ void quantise_q8_0(uint4 *cells) const {
    constexpr int LANES = 32 / V;
    char *bytes = reinterpret_cast<char *>(cells);
    const bool within = scale_blocks<false, LANES>([&](float largest, int block) {
      const Scale scale = q8_0_scale(largest, job.least);
      if (FULL || block < job.blocks) *reinterpret_cast<uint16_t *>(bytes + block * 34) = q8_0_bits(scale.written);
      return scale;
    });
    auto stage = [&](auto quantiser_of) {
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (!has(i)) continue;
        uint32_t codes[V / 4];
        code(i, quantiser_of(slots<LANES>()[slot<LANES>(i)]), codes);
        uint16_t *at = reinterpret_cast<uint16_t *>(bytes + vector(i) / LANES * 34 + 2 + vector(i) % LANES * V);
#pragma unroll
        for (int c = 0; c < V / 4; c++)
          at[2 * c] = (uint16_t)codes[c], at[2 * c + 1] = (uint16_t)(codes[c] >> 16);
      }
    };
    if (within)
      stage([](float2 by) { return QuantiserWithin<Codes::I8, T, false>{by.x, by.y}; });
    else
      stage([](float2 by) { return Quantiser<Codes::I8, false>(by.x); });
    if (WARP)
      __syncwarp();
    else
      __syncthreads();
    copy_out(Team(WARP ? 32 : (int)blockDim.x, nullptr), cells, row_at<OPTIONS>(job.q, place), job.p.width / 32 * 34);
  }
  template <Codes CODE> __device__ __forceinline__ void quantise(float given) const {
    constexpr int common = 128 / V; /* lanes of a block of 128 elements */
    if (job.blocks == 0)
      quantise_given<CODE>(given);
    else if (job.lanes == 0)
      quantise_row<CODE>();
    else if (CODE == Codes::E4M3 && job.lanes == common)
      quantise_blocks<CODE, common>();
    else
      quantise_blocks<CODE, 0>();
  }
};

/* MOST: threads of a block, BLOCKS: that there must be registers for. */
template <class T, int NV, bool LAYER, bool RESIDUAL, bool QUANTISED, bool OPTIONS, bool WARP, bool FULL, int MOST,
          int BLOCKS>
__global__ void __launch_bounds__(MOST, BLOCKS)
    quantised_forward_block_kernel(const __grid_constant__ QuantisedJob job) {
  constexpr int V = vector_of<T>, PANELS = NV * MOST > PANEL ? NV * MOST / PANEL : 1;
  extern __shared__ uint4 quantised_cells[];
  const ForwardJob &p = job.p;
  const int64_t row = WARP ? (int64_t)blockIdx.x * (MOST / 32) + threadIdx.x / 32 : blockIdx.x;
  const int first = WARP ? (int)threadIdx.x & 31 : (int)threadIdx.x, step = WARP ? 32 : (int)blockDim.x,
            left = p.vectors - first;
  const RowPlace place = place_of_row<OPTIONS>(p.inner, row);
  wait_for_previous();
  let_next_start();
  if (WARP && row >= p.rows) return;

  Packed<T, V> x[1][NV];
  const char *x_at = row_at<OPTIONS>(p.x, place) + bytes_before<T, V>(first);
#pragma unroll
  for (int i = 0; i < NV; i++) {
    if (!FULL) clear(x[0][i]);
    if (FULL || i * step < left) load_vector<true, true>(x[0][i], x_at + bytes_before<T, V>(i * step), V);
  }
  float given = 0;
  if (QUANTISED && job.blocks == 0 && job.scale) given = *job.scale;
  if constexpr (RESIDUAL) {
    const char *residual_at = row_at<OPTIONS>(p.residual, place) + bytes_before<T, V>(first);
    char *sum_at = row_at<OPTIONS>(p.sum, place) + bytes_before<T, V>(first);
    Packed<T, V> residual[NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      clear(residual[i]);
      if (i * step < left) load_vector<true, true>(residual[i], residual_at + bytes_before<T, V>(i * step), V);
    }
#pragma unroll
    for (int i = 0; i < NV; i++) {
      add_residual(x[0][i], x[0][i], residual[i]);
      if (p.sum.data && i * step < left) store_vector<true>(sum_at + bytes_before<T, V>(i * step), x[0][i], V);
    }
  }
  Statistic<float> st[1];
  if constexpr (WARP) {
    LaneSums<1, NV, false> over = {first, 32};
    measure_rows<LAYER, OPTIONS, T>(p, x, st, over);
  } else {
    __shared__ __align__(16) float chunk[USES][PANELS * 32];
    BlockSums<NV, PANELS, false> over = {chunk, step, left};
    measure_rows<LAYER, OPTIONS, T>(p, x, st, over);
  }
  if (first == 0) write_statistic(p, row, st[0]);

  char *shared = reinterpret_cast<char *>(quantised_cells);
  const QuantisedRow<T, NV, LAYER, OPTIONS, WARP, FULL> of = {job, row, place, shared, x[0]};
  if constexpr (!QUANTISED) {
    if (p.y.data) of.write_own_type(st[0]);
  } else {
    of.make_y(st[0]);
    if (job.q_type == RMS_I8)
      of.template quantise<Codes::I8>(given);
    else if (job.q_type == RMS_F8E4M3)
      of.template quantise<Codes::E4M3>(given);
    else if (job.q_type == RMS_F8E5M2)
      of.template quantise<Codes::E5M2>(given);
    else
      of.quantise_q8_0(quantised_cells + job.slots + (WARP ? (int)threadIdx.x / 32 * job.staged : 0));
  }
}

} // namespace rms_cuda

#endif
