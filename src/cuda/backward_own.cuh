/* SPDX-License-Identifier: MIT
 *
 * Backward of aligned rows that have weights of their own (scale and shift of rows, adaLN): a row per block, or several
 * short ones. dweight and dbias of a row are its products, and are written with its dx: there are no sums of columns.
 * Not persistent, and each thread asks for all that it needs at once, as in forward_block.cuh.
 *
 * T: data type. LAYER: LayerNorm. WIDE: weights in f32 beside 16-bit data. The options are those of Form::OPTIONS, with
 * dbias of RMSNorm too. */
#ifndef RMS_CUDA_BACKWARD_OWN_CUH
#define RMS_CUDA_BACKWARD_OWN_CUH

#include "backward_block.cuh"
#include "own.h"

namespace rms_cuda {

/* ---- dweight and dbias ---- */

/* a + b rounded to odd: a second rounding, to a 16-bit type, is then that of the sum itself. */
__device__ __forceinline__ float odd_sum(float a, float b) {
  const float toward = __fadd_rz(a, b);
  return __fadd_rd(a, b) == __fadd_ru(a, b) ? toward : __uint_as_float(__float_as_uint(toward) | 1u);
}

/* V elements of a gradient of type S at `to`. What is there may have to be added: with one rounding. */
template <class S, bool ALIGNED, int V>
__device__ __forceinline__ void store_sums(char *to, bool add, float (&sum)[V]) {
  Packed<S, V> v;
  if (add) {
    float old[V];
    load_vector<ALIGNED, true>(v, to, V);
    unpack(v, old);
#pragma unroll
    for (int j = 0; j < V; j++)
      sum[j] = sizeof(S) == 4 ? sum[j] + old[j] : odd_sum(sum[j], old[j]);
  }
  pack(v, sum);
  store_vector<ALIGNED>(to, v, V);
}
/* V elements from element `at` on. */
template <class T, int V>
__device__ __forceinline__ void store_gradient(const Gradient &g, int64_t at, float (&sum)[V]) {
  const bool is_f32 = sizeof(T) == 4 || g.is_f32;
  char *to = g.data + at * (is_f32 ? 4 : (int)sizeof(T));
  if (__builtin_expect(!g.aligned, 0)) {
    if (is_f32)
      store_sums<float, false>(to, g.add, sum);
    else
      store_sums<T, false>(to, g.add, sum);
  } else if (is_f32) {
    store_sums<float, true>(to, g.add, sum);
  } else {
    store_sums<T, true>(to, g.add, sum);
  }
}

/* ---- a row ---- */

/* Sums over a row: a warp of a block with several, or the whole block. Barriers that are known when compiling: all 16
 * of a block would leave room for fewer blocks. */
template <int NV, int SUMS> struct OwnSums : TeamSums<NV, SUMS, 1, false> {
  using Base = TeamSums<NV, SUMS, 1, false>;
  template <class Op> __device__ __forceinline__ void publish(float (&v)[SUMS * NV]) {
    const float sum = fold<Op>(v);
    if (Base::place >= 0) Base::chunk[Base::phase * (SUMS * 32) + Base::place] = sum;
    if (Base::team == 32)
      __syncwarp();
    else
      __syncthreads();
  }
  template <class Op> __device__ __forceinline__ float2 of(float (&v)[SUMS * NV]) {
    publish<Op>(v);
    return Base::template collect<Op>();
  }
};

/* What a block has: chunk sums of each team, then the gains of each thread, four columns of all threads side by side.
 */
template <class T, bool LAYER> struct OwnBlock {
  static constexpr int NV = OWN_VECTORS, V = vector_of<T>, Q = V / 4, SUMS = LAYER ? 2 : 1;
  using Sums = OwnSums<NV, SUMS>;
  static constexpr int chunks = 2 * SUMS * 32; /* of a team */
  int team, which, t;
  int slice; /* the row */

  __device__ __forceinline__ explicit OwnBlock(const BackwardJob &p) {
    team = p.team;
    which = __shfl_sync(whole_warp, (int)threadIdx.x / team, 0), t = (int)threadIdx.x - which * team;
    slice = (int)blockIdx.x * ((int)blockDim.x / team) + which;
  }
  __device__ __forceinline__ RowPlace place() const { return {0, (unsigned)slice}; }
  __device__ __forceinline__ int cells() const { return NV * (int)blockDim.x; }
  __device__ __forceinline__ float4 *gain(float4 *shared) const {
    return shared + (int)blockDim.x / team * (chunks / 4) + which * NV * team + t;
  }
  __device__ __forceinline__ Sums sums(float4 *shared, int phase) const {
    return {{reinterpret_cast<float *>(shared) + which * chunks, nullptr, nullptr,
             place_of_lane<SUMS, 1, NV>(t / 32, team / 32), which, team, 1, 0, phase, 0}};
  }
};
/* Bytes of shared memory of a block. */
template <class T, bool LAYER> constexpr size_t own_shared(int threads, int team) {
  using Block = OwnBlock<T, LAYER>;
  return (size_t)(threads / team * Block::chunks * 4 + threads * Block::NV * Block::V * 4);
}

/* In the place of the column sums of a row out of range (backward_scaled.cuh): the gradients themselves. */
template <class T, class Block> struct OwnCells {
  static constexpr int V = vector_of<T>;
  const OwnBackward &job;
  const Block &block;
  const Gradient &gradient;

  __device__ __forceinline__ void get(int, float (&sum)[V]) const {
#pragma unroll
    for (int j = 0; j < V; j++)
      sum[j] = 0;
  }
  __device__ __forceinline__ void set(int i, float (&sum)[V]) const {
    const int vector = block.t + i * block.team;
    if (gradient.data && vector < job.p.vectors)
      store_gradient<T>(gradient, ((int64_t)block.slice * job.p.vectors + vector) * V, sum);
  }
};

/* One out of range, from memory. The two halves are functions of their own: each has the registers for itself. */
template <class T, bool LAYER> struct ScaledOwnRow {
  using Block = OwnBlock<T, LAYER>;
  const OwnBackward &job;
  const Block block;
  typename Block::Sums team_sums;
  GuardSums<Block> sums;
  const Norm<float> norm;
  RowInMemory<T, Form::OPTIONS, GuardSums<Block>> at;

  __device__ __forceinline__ ScaledOwnRow(const OwnBackward &given, float4 *shared, int phase)
      : job(given), block(given.p),
        team_sums(block.sums(shared, phase)), sums{team_sums, block.gain(shared), block.cells()},
        norm(norm_of<LAYER, Form::OPTIONS>(given.p)), at{given.p, sums, block.place(), block.t, block.team, true} {}
};
template <class T, bool LAYER>
__device__ __noinline__ RowFactors<float> scaled_own_factors(const OwnBackward &job, int phase) {
  extern __shared__ float4 own_room[];
  ScaledOwnRow<T, LAYER> row(job, own_room, phase);
  return scaled_factors<T>(row.norm, row.at, job.p.stats ? job.p.stats + row.block.slice : nullptr);
}
template <class T, bool LAYER>
__device__ __noinline__ void finish_own_row(const OwnBackward &job, const RowFactors<float> f) {
  using Block = OwnBlock<T, LAYER>;
  extern __shared__ float4 own_room[];
  ScaledOwnRow<T, LAYER> row(job, own_room, 0);
  auto cells = [&](int plane) -> OwnCells<T, Block> { return {job, row.block, plane == 0 ? job.dweight : job.dbias}; };
#pragma unroll 1
  for (int i = 0; i < Block::NV; i++)
    finish_scaled<T, true, Form::OPTIONS>(job.p, row.norm, row.at, i, f, cells);
}

/* One in range, in registers: x and dy packed between the two passes over it, its gains in shared memory. */
template <class T, bool LAYER, bool WIDE> struct OwnRow {
  static constexpr Form FORM = Form::OPTIONS;
  using Block = OwnBlock<T, LAYER>;
  static constexpr int NV = Block::NV, V = Block::V, SUMS = Block::SUMS;
  const BackwardJob &p;
  const Block &block;
  typename Block::Sums &sums;
  float4 *gain;
  Packed<T, V> x[NV], dy[NV];
  Packed<std::conditional_t<WIDE, float, T>, V> weight[NV];

  __device__ __forceinline__ OwnRow(const BackwardJob &job, const Block &its_block, typename Block::Sums &over,
                                    float4 *gains)
      : p(job), block(its_block), sums(over), gain(gains) {}
  __device__ __forceinline__ int vector(int i) const { return block.t + i * block.team; }
  __device__ __forceinline__ unsigned mask(int i) const { return counted_mask<T, FORM>(p, vector(i)); }
  __device__ __forceinline__ bool counts_all() const { return p.whole; }
  __device__ __forceinline__ void load_x(int i, float (&f)[V]) const { unpack(x[i], f); }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) {
    float v[SUMS * NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      v[i] = of_vector(i);
      if (SUMS == 2) v[NV * (SUMS - 1) + i] = 0;
    }
    keep_packed(x);
    return sums.template of<Op>(v).x;
  }
  /* Everything at once. */
  __device__ __forceinline__ void load(const RowPlace &at) {
    const char *x_at = row_at<true>(p.x, at) + block.t * 16, *dy_at = row_at<true>(p.dy, at) + block.t * 16;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      clear(x[i]);
      if (vector(i) < p.vectors) load_vector<true, true, true>(x[i], x_at + i * block.team * 16, V);
    }
#pragma unroll
    for (int i = 0; i < NV; i++) {
      clear(dy[i]);
      if (vector(i) < p.vectors) load_vector<true, true, true>(dy[i], dy_at + i * block.team * 16, V);
    }
    if (!p.weight) return;
    const char *weight_at = p.weight + block.slice * p.weight_inner;
#pragma unroll
    for (int i = 0; i < NV; i++)
      if (vector(i) < p.vectors)
        load_vector<true, true, true>(weight[i], weight_at + vector(i) * (int)sizeof(weight[i]), V);
  }
  /* To this thread's cells: ones where there is no weight. */
  __device__ __forceinline__ void set_gain() {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float g[V];
#pragma unroll
      for (int j = 0; j < V; j++)
        g[j] = 1;
      if (p.weight && vector(i) < p.vectors) {
        unpack(weight[i], g);
        add_offset<T>(g, p.offset, p.round_gain);
      }
#pragma unroll
      for (int c = 0; c < Block::Q; c++)
        gain[c * block.cells() + i * block.team] = make_float4(g[4 * c], g[4 * c + 1], g[4 * c + 2], g[4 * c + 3]);
    }
  }
  __device__ __forceinline__ void weighted(int i, float (&u)[V]) const {
    unpack(dy[i], u);
    weigh<T, FORM>(p, u, gain + i * block.team, block.cells());
  }
  /* What a vector adds to the sum of u*h, which is zero: as in backward_row.cuh. */
  __device__ __forceinline__ float zero_of(int i, float mean) const {
    if (is_zero(dy[i])) return exact_zero;
    if (!is_zero(x[i]) || (LAYER && mean != 0)) return 0.0f;
    float u[V];
    weighted(i, u);
    return u_in_range(u) ? exact_zero : 0.0f;
  }
  /* The sums of u*h and u. */
  __device__ __forceinline__ void sum_up(float r, float mean, float (&v)[SUMS * NV]) {
    bool zeros = true;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float a = 0, b = 0, h[V], u[V];
      unpack(x[i], h);
      normalise<LAYER>(h, r, mean);
      weighted(i, u);
#pragma unroll
      for (int j = 0; j < V; j++) {
        a = fused(u[j], h[j], a);
        if (LAYER) b += u[j];
      }
      v[i] = a;
      zeros = zeros && a == 0;
      if (LAYER) v[NV * (SUMS - 1) + i] = b;
    }
    keep_packed(x);
    keep_packed(dy);
    if (__builtin_expect(zeros, 0)) {
#pragma unroll
      for (int i = 0; i < NV; i++)
        v[i] = zero_of(i, mean);
    }
  }
  /* dx, dweight and dbias. */
  __device__ __forceinline__ void finish(const OwnBackward &job, const RowPlace &at, float r, float mean, float c1,
                                         float c2) {
    const RowTargets to = targets_of<FORM>(p, at);
    const int64_t row = (int64_t)block.slice * p.vectors * V;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      if (vector(i) >= p.vectors) continue;
      float h[V], d[V], sum[V];
      unpack(x[i], h);
      unpack(dy[i], d);
      normalise<LAYER>(h, r, mean);
      if (job.dweight.data) {
#pragma unroll
        for (int j = 0; j < V; j++)
          sum[j] = 0;
        add_dweight<T, FORM>(p, sum, dy[i], d, h);
        store_gradient<T>(job.dweight, row + vector(i) * V, sum);
      }
      if (job.dbias.data) {
#pragma unroll
        for (int j = 0; j < V; j++)
          sum[j] = 0.0f + d[j];
        store_gradient<T>(job.dbias, row + vector(i) * V, sum);
      }
      if (p.stored == 0) continue;
      Packed<T, V> added;
      if (p.added.data) load_vector<true, true>(added, row_at<true>(p.added, at) + vector(i) * 16, V);
      weighted(i, d);
      finish_dx<T, LAYER, FORM>(p, d, h, c1, c2, r, vector(i) * V);
      store_dx<T, FORM>(p, d, added, to, vector(i));
    }
  }
};

/* ---- the kernel ---- */

template <class T, bool LAYER, bool WIDE>
__global__ void __launch_bounds__(OWN_THREADS, 2) backward_own_kernel(const __grid_constant__ OwnBackward job) {
  using Block = OwnBlock<T, LAYER>;
  constexpr int NV = Block::NV, SUMS = Block::SUMS;
  extern __shared__ float4 own_room[];
  const BackwardJob &p = job.p;
  const Block block(p);
  const bool there = block.slice < p.slices;
  const RowPlace place = block.place();
  typename Block::Sums sums = block.sums(own_room, 0);
  OwnRow<T, LAYER, WIDE> row(p, block, sums, block.gain(own_room));
  Statistic<float> st = {0, 0, 0, 0, 1, 0};
  wait_for_previous();
  let_next_start();

  if (there) {
    row.load(place);
    if (p.saved) {
      const unsigned number = (unsigned)block.slice + always_zero();
      st.r = p.rstd[number];
      if (LAYER) st.mean = p.mean[number];
    }
  }
  for (int i = (int)threadIdx.x; i < (int)blockDim.x / block.team * Block::chunks; i += (int)blockDim.x)
    reinterpret_cast<float *>(own_room)[i] = exact_zero;
  __syncthreads();
  if (!there) return;
  row.set_gain();
  if (!p.saved) st = row_statistic<false>(norm_of<LAYER, Form::OPTIONS>(p), row);

  float v[SUMS * NV];
  row.sum_up(st.r, st.mean, v);
  sums.template publish<Add>(v);
  const float2 sum = sums.template collect<Add>();
  const bool in_range = sum_in_range(sum.x) && (!LAYER || sum_in_range(sum.y));
  if (__builtin_expect((r_in_range(st.r) & (in_range | is_exact_zero(sum.x))) | is_lost(st.r), 1)) {
    float c2 = divided(sum.x, p.k, p.inverse_k);
    if (p.eps_outside) c2 = corrected_outside(p, st, c2);
    row.finish(job, place, st.r, st.mean, LAYER ? divided(sum.y, p.k, p.inverse_k) : 0.0f, c2);
  } else {
    finish_own_row<T, LAYER>(job, scaled_own_factors<T, LAYER>(job, sums.phase));
  }
}

} // namespace rms_cuda

#endif
