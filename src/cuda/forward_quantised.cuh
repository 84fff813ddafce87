/* SPDX-License-Identifier: MIT
 *
 * Forward of aligned rows whose outputs are others than y in the data type: y quantised, y of another type, or the
 * statistics alone. A row stays in registers from x to its codes, packed. With all options of forward_steps.cuh;
 * template parameters as there. */
#ifndef RMS_CUDA_FORWARD_QUANTISED_CUH
#define RMS_CUDA_FORWARD_QUANTISED_CUH

#include "forward_block.cuh"
#include "forward_warp.cuh"
#include "general.cuh"
#include "quantise.cuh"
#include "quantised.h"

namespace rms_cuda {

/* What a kernel writes: y of another type than the data, or no y; codes of any kind, which the job says, with y or
 * without it; or codes of one kind with scales of one kind, without y: what is executed lies together there. */
enum class Output { OWN_TYPE, ANY_CODES, I8_GIVEN, I8_ROW, E4M3_GIVEN, E4M3_ROW, E4M3_BLOCKS, Q8_0 };

constexpr int common_block = 128; /* elements of the blocks of E4M3_BLOCKS */

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
  /* y in the place of x. What is not there stays zeros. */
  __device__ __forceinline__ void make_y(const Statistic<float> &st) const {
    each_y(st, false, [&](int i, const float(&h)[V]) { pack(x[i], h); });
    keep_packed(x);
  }
  __device__ __forceinline__ void write_y() const {
    char *y_at = row_at<OPTIONS>(job.p.y, place);
#pragma unroll
    for (int i = 0; i < NV; i++)
      if (has(i)) store_vector<true>(y_at + bytes_before<T, V>(vector(i)), x[i], V);
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
  /* The same with any factor. What is made of it is not kept from one vector to the next: registers are few. */
  template <Codes CODE> __device__ __forceinline__ void write_unusual_row(float factor) const {
    char *q_at = row_at<OPTIONS>(job.q, place);
#pragma unroll
    for (int i = 0; i < NV; i++) {
      asm volatile("" : "+f"(factor));
      write_codes(q_at, i, Quantiser<CODE, false>(factor));
    }
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
  template <Codes CODE> __device__ __forceinline__ void divide_row(float scale) const {
    if constexpr (sizeof(T) == 2) {
      const QuantiserSplit<CODE> split(scale);
      const float factor = factor_for_codes<CODE, T>(scale, split);
      if (factor != 0)
        write_row(QuantiserNear<CODE>{factor});
      else
        write_row(split);
    } else {
      write_row(QuantiserWithin<CODE, T, true>{scale, __frcp_rn(scale)});
    }
  }
  template <Codes CODE> __device__ __forceinline__ void quantise_given(float scale) const {
    if constexpr (CODE == Codes::I8) {
      const float size = fabsf(scale), most = largest_as_float<T>(largest_of(x));
      if (size >= 0x1p-60f && size <= 0x1p60f && __all_sync(whole_warp, most <= 126.0f * size)) {
        divide_row<CODE>(scale);
        return;
      }
    }
    write_row(given_quantiser<CODE>(scale));
  }
  template <Codes CODE> __device__ __forceinline__ void quantise_row() const {
    const Scale scale = block_scale<CODE>(size_for_scale(largest_of_row()), job.least);
    if (first() == 0) job.scale[row] = scale.written;
    if (!scale.within)
      write_unusual_row<CODE>(scale.factor);
    else if constexpr (CODE == Codes::I8)
      write_row(QuantiserWithin<CODE, T, false>{scale.written, scale.factor});
    else
      divide_row<CODE>(scale.factor);
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
  /* What elements of a block are divided by or multiplied with, in the slots: two parts of the inverse where SPLIT,
   * else the factor and its inverse where DIVIDES, else the factor twice. */
  template <bool DIVIDES, bool SPLIT> __device__ __forceinline__ float2 for_slot(float factor) const {
    if constexpr (SPLIT) {
      const QuantiserSplit<Codes::E4M3> split(factor);
      return make_float2(split.high, split.low);
    }
    return make_float2(factor, DIVIDES ? __frcp_rn(factor) : factor);
  }
  /* Scales of the warp's blocks: scale_of(largest) has one, and put(scale, slot) writes it. Each lane works on blocks
   * of its own: a scale is two divisions. Whether all scales are within; if not, the factors are in the slots. */
  template <bool DIVIDES, int LANES, class F, class P>
  __device__ __forceinline__ bool scale_blocks(F scale_of, P put) const {
    float2 *slot_of = slots<LANES>();
    bool within = true;
    if constexpr (LANES != 0) {
      using Shared = SharedOut<T, NV, LANES>;
      constexpr bool split = DIVIDES && sizeof(T) == 2;
      const uint32_t most = largest_shared<LANES>(x);
      const bool writes = Shared::is_first(lane());
      float factor[Shared::vectors];
      int at[Shared::vectors];
#pragma unroll
      for (int k = 0; k < Shared::vectors; k++) {
        const Scale scale = scale_of(size_for_scale(largest_as_float<T>(Shared::bits(most, lane(), k))));
        at[k] = slot<LANES>(Shared::vector(lane(), k)), factor[k] = scale.factor;
        within = within && scale.within;
        if (writes) {
          put(scale, at[k]);
          slot_of[at[k]] = for_slot<DIVIDES, split>(scale.factor);
        }
      }
      __syncwarp();
      if (__all_sync(whole_warp, within)) return true;
#pragma unroll
      for (int k = 0; k < Shared::vectors; k++)
        if (writes) slot_of[at[k]].x = factor[k];
      __syncwarp();
      return false;
    } else {
      uint32_t most[NV];
      largest_of_vectors(x, most, 1 << shift<LANES>());
      if ((lane() & ((1 << shift<LANES>()) - 1)) == 0) {
#pragma unroll
        for (int i = 0; i < NV; i++)
          slot_of[slot<LANES>(i)].x = largest_as_float<T>(most[i]);
      }
      __syncwarp();
#pragma unroll 1
      for (int b = lane(); b < NV * 32 >> shift<LANES>(); b += 32) {
        const Scale scale = scale_of(size_for_scale(slot_of[b].x));
        put(scale, b);
        within = within && scale.within;
        slot_of[b] = for_slot<DIVIDES, false>(scale.factor);
      }
      __syncwarp();
      return __all_sync(whole_warp, within);
    }
  }
  template <Codes CODE, int LANES> __device__ __forceinline__ void quantise_blocks() const {
    constexpr bool divides = CODE != Codes::I8;
    auto scale_of = [&](float largest) { return block_scale<CODE>(largest, job.least); };
    auto put = [&](const Scale &scale, int slot) {
      const int block = block_of<LANES>(slot);
      if (FULL || block < job.blocks) job.scale[row * job.blocks + block] = scale.written;
    };
    const bool within = scale_blocks<divides, LANES>(scale_of, put);
    char *q_at = row_at<OPTIONS>(job.q, place);
    auto write = [&](auto quantiser_of) {
#pragma unroll
      for (int i = 0; i < NV; i++)
        write_codes(q_at, i, quantiser_of(slots<LANES>()[slot<LANES>(i)]));
    };
    if (!within)
      write([](float2 by) { return Quantiser<CODE, false>(by.x); });
    else if constexpr (divides && LANES != 0 && sizeof(T) == 2)
      write([](float2 by) { return QuantiserSplit<CODE>(by.x, by.y); });
    else
      write([](float2 by) { return QuantiserWithin<CODE, T, divides>{by.x, by.y}; });
  }

  /* ---- blocks of RMS_Q8_0, whose 34 bytes no aligned store fits: by way of shared memory ---- */

  static constexpr int q8_0_lanes = 32 / V, q8_0_chunk = 32 / q8_0_lanes * 34; /* bytes of a vector of each lane */

  /* Scales to at_slot(slot), where they are in the row, and codes of vector i to at_vector(i). */
  template <class S, class C> __device__ __forceinline__ void stage_q8_0(S at_slot, C at_vector) const {
    constexpr int LANES = q8_0_lanes;
    auto scale_of = [&](float largest) { return q8_0_scale(largest, job.least); };
    auto put = [&](const Scale &scale, int slot) {
      if (!FULL && block_of<LANES>(slot) >= job.blocks) return;
      *reinterpret_cast<uint16_t *>(at_slot(slot)) = q8_0_bits(scale.written);
    };
    const bool within = scale_blocks<false, LANES>(scale_of, put);
    auto stage = [&](auto quantiser_of) {
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (!has(i)) continue;
        const auto quantiser = quantiser_of(slots<LANES>()[slot<LANES>(i)]);
        uint16_t *at = reinterpret_cast<uint16_t *>(at_vector(i));
        float y[V];
        unpack(x[i], y);
#pragma unroll
        for (int j = 0; j < V; j += 2)
          at[j / 2] = (uint16_t)low_bytes(quantiser.shifted_of(y[j]), quantiser.shifted_of(y[j + 1]));
      }
    };
    if (within)
      stage([](float2 by) { return QuantiserWithin<Codes::I8, T, false>{by.x, by.y}; });
    else
      stage([](float2 by) { return Quantiser<Codes::I8, false>(by.x); });
  }
  __device__ __forceinline__ void quantise_q8_0(uint4 *cells) const {
    constexpr int LANES = q8_0_lanes;
    char *bytes = reinterpret_cast<char *>(cells), *q_at = row_at<OPTIONS>(job.q, place);
    if constexpr (FULL && q8_0_chunk % 16 == 0) {
      if (__builtin_expect(((uintptr_t)q_at & 15) == 0, 1)) {
        quantise_chunks_q8_0(cells, q_at);
        return;
      }
    }
    stage_q8_0([&](int slot) { return bytes + block_of<LANES>(slot) * 34; },
               [&](int i) { return bytes + vector(i) / LANES * 34 + 2 + vector(i) % LANES * V; });
    if (WARP)
      __syncwarp();
    else
      __syncthreads();
    copy_out(Team(WARP ? 32 : (int)blockDim.x, nullptr), cells, q_at, job.p.width / 32 * 34);
  }
  /* The same where the vectors of a warp's lanes that are next to each other are whole cells in q: a warp has its cells
   * for itself and waits for no other. */
  __device__ __forceinline__ void quantise_chunks_q8_0(uint4 *cells, char *q_at) const {
    constexpr int LANES = q8_0_lanes, chunk_cells = q8_0_chunk / 16;
    const int warp = WARP ? 0 : (int)threadIdx.x / 32, warps = step() / 32;
    cells += warp * (NV * chunk_cells);
    char *bytes = reinterpret_cast<char *>(cells), *codes = bytes + lane() / LANES * 34 + 2 + lane() % LANES * V;
    stage_q8_0([&](int slot) { return bytes + slot * 34; }, [&](int i) { return codes + i * q8_0_chunk; });
    __syncwarp();
    if (lane() < chunk_cells) {
      uint4 *to = reinterpret_cast<uint4 *>(q_at) + warp * chunk_cells + lane();
#pragma unroll
      for (int i = 0; i < NV; i++)
        __stcs(to + i * warps * chunk_cells, cells[i * chunk_cells + lane()]);
    }
  }

  template <Codes CODE> __device__ __forceinline__ void quantise(float given) const {
    if (job.blocks == 0)
      quantise_given<CODE>(given);
    else if (job.lanes == 0)
      quantise_row<CODE>();
    else if (CODE == Codes::E4M3 && job.lanes == common_block / V)
      quantise_blocks<CODE, common_block / V>();
    else
      quantise_blocks<CODE, 0>();
  }
  template <Output OUT> __device__ __forceinline__ void write(float given, uint4 *cells) const {
    if constexpr (OUT == Output::I8_GIVEN)
      quantise_given<Codes::I8>(given);
    else if constexpr (OUT == Output::I8_ROW)
      quantise_row<Codes::I8>();
    else if constexpr (OUT == Output::E4M3_GIVEN)
      quantise_given<Codes::E4M3>(given);
    else if constexpr (OUT == Output::E4M3_ROW)
      quantise_row<Codes::E4M3>();
    else if constexpr (OUT == Output::E4M3_BLOCKS)
      quantise_blocks<Codes::E4M3, common_block / V>();
    else if constexpr (OUT == Output::Q8_0)
      quantise_q8_0(cells);
    else if (job.q_type == RMS_I8)
      quantise<Codes::I8>(given);
    else if (job.q_type == RMS_F8E4M3)
      quantise<Codes::E4M3>(given);
    else if (job.q_type == RMS_F8E5M2)
      quantise<Codes::E5M2>(given);
    else
      quantise_q8_0(cells);
  }
};

/* Blocks of an SM that there must be registers for: code for older chips takes a few more. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <int NV, int MOST, int BLOCKS>
constexpr int quantised_blocks = NV == 8 && BLOCKS *MOST > 768 ? 768 / MOST : BLOCKS;
#else
template <int NV, int MOST, int BLOCKS> constexpr int quantised_blocks = BLOCKS;
#endif

/* MOST: threads of a block, BLOCKS: see above. */
template <class T, int NV, bool LAYER, bool RESIDUAL, Output OUT, bool OPTIONS, bool WARP, bool FULL, int MOST,
          int BLOCKS>
__global__ void __launch_bounds__(MOST, quantised_blocks<NV, MOST, BLOCKS>)
    quantised_forward_block_kernel(const __grid_constant__ QuantisedJob job) {
  constexpr bool QUANTISED = OUT != Output::OWN_TYPE;
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
    if (FULL || i * step < left) load_vector<true, true, true>(x[0][i], x_at + bytes_before<T, V>(i * step), V);
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
      if (i * step < left) load_vector<true, true, true>(residual[i], residual_at + bytes_before<T, V>(i * step), V);
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
    if (OUT == Output::ANY_CODES && p.y.data) of.write_y();
    of.template write<OUT>(given, quantised_cells + job.slots + (WARP ? (int)threadIdx.x / 32 * job.staged : 0));
  }
}

} // namespace rms_cuda

#endif
