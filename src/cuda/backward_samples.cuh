/* SPDX-License-Identifier: MIT
 *
 * Backward of aligned rows that share the weights of their inner index (scale and shift of samples, adaLN): persistent
 * blocks that walk the rows of one slice, several rows at once, so that one exchange of sums is for all of them. A
 * thread has one vector of each row, its gains and its column sums in registers; the rows come through a ring, and are
 * read from there for each of the two passes.
 *
 * T: data type. LAYER: LayerNorm. */
#ifndef RMS_CUDA_BACKWARD_SAMPLES_CUH
#define RMS_CUDA_BACKWARD_SAMPLES_CUH

#include "backward_own.cuh"
#include "samples.h"

namespace rms_cuda {

/* A block: its shared memory, and the rows that it has. Batch b of a share has rows (b*shares + share)*ROWS on. */
template <class T, bool LAYER> struct SamplesBlock {
  static constexpr Form FORM = Form::OPTIONS;
  static constexpr int ROWS = SAMPLE_ROWS, NV = 1, V = vector_of<T>, Q = V / 4, SUMS = LAYER ? 2 : 1;
  static constexpr int values = ROWS * SUMS; /* sums of a batch */
  using Sums = OwnSums<NV, SUMS>;            /* of one row      */
  static_assert(FLAT % ROWS == 0, "a flat sum is whole batches");
  int t, slice, share;
  SamplesShared where;

  __device__ __forceinline__ explicit SamplesBlock(const BackwardJob &p) {
    t = (int)threadIdx.x;
    slice = (int)(blockIdx.x / (unsigned)p.shares), share = (int)blockIdx.x - slice * p.shares;
    where = samples_shared(p.vectors, p.stages, values);
  }
  __device__ __forceinline__ uint64_t *full(char *shared) const {
    return reinterpret_cast<uint64_t *>(shared + where.barrier);
  }
  __device__ __forceinline__ float *chunks(char *shared) const {
    return reinterpret_cast<float *>(shared + where.chunk);
  }
  __device__ __forceinline__ unsigned *noted(char *shared) const {
    return reinterpret_cast<unsigned *>(shared + where.noted);
  }
  __device__ __forceinline__ unsigned *any_noted(char *shared) const { return noted(shared) + DEEP; }
  __device__ __forceinline__ int batches(const BackwardJob &p) const {
    const int64_t all = (p.rows + ROWS - 1) / ROWS;
    return (int)((all - share + p.shares - 1) / p.shares);
  }
  __device__ __forceinline__ int64_t row_of(const BackwardJob &p, int batch) const {
    return ((int64_t)batch * p.shares + share) * ROWS;
  }
  /* Where this thread's column sums of a plane go; the sums of a slice's shares lie side by side. */
  __device__ __forceinline__ float4 *partial(const BackwardJob &p, int plane) const {
    const int64_t width = (int64_t)p.vectors * V;
    return reinterpret_cast<float4 *>(p.partial + ((plane * p.slices + slice) * (int64_t)p.shares + share) * width) +
           t * Q;
  }

  /* ---- the ring ---- */

  /* Lanes of the last warp ask for the copies of a stage: x and dy of each row. f(lane's row, whether of dy). */
  template <class F> __device__ __forceinline__ void each_stream(const BackwardJob &p, int batch, F f) const {
    const int lane = t - ((int)blockDim.x - 32);
    const int64_t row = row_of(p, batch) + lane / 2;
    if (lane >= 0 && lane < 2 * ROWS && row < p.rows) f(RowPlace{row, (unsigned)slice}, lane);
  }
  __device__ __forceinline__ void prefetch(const BackwardJob &p) const {
    each_stream(p, 0,
                [&](const RowPlace &at, int lane) { prefetch_bulk(row_at<true>(lane % 2 ? p.dy : p.x, at), p.bytes); });
  }
  __device__ __forceinline__ void fill(const BackwardJob &p, char *shared, int batch, int stage) const {
    uint64_t *barrier = full(shared) + stage;
    if (t == (int)blockDim.x - 32) expect_bytes(barrier, 2 * p.bytes * rows_at(p, batch));
    each_stream(p, batch, [&](const RowPlace &at, int lane) {
      copy_bulk<false>(shared + where.ring + (stage * 2 * ROWS + lane) * p.bytes,
                       row_at<true>(lane % 2 ? p.dy : p.x, at), p.bytes, barrier);
    });
  }
  __device__ __forceinline__ int rows_at(const BackwardJob &p, int batch) const {
    const int64_t left = p.rows - row_of(p, batch);
    return left < ROWS ? (int)left : ROWS;
  }
};

/* ---- rows out of range ---- */

template <class T, bool LAYER> __device__ __noinline__ void scaled_samples(const BackwardJob &p) {
  using Block = SamplesBlock<T, LAYER>;
  extern __shared__ __align__(128) char samples_room[];
  char *const shared = samples_room;
  const Block block(p);
  const int team = (int)blockDim.x;
  typename Block::Sums team_sums = {{block.chunks(shared), nullptr, nullptr,
                                     place_of_lane<Block::SUMS, 1, 1>(block.t / 32, team / 32), 0, team, 1, 0, 0, 0}};
  /* column sums and gains lie where the ring was: all its copies have arrived */
  float4 *const room = reinterpret_cast<float4 *>(shared + block.where.ring) + block.t * Block::Q;
  auto cells = [&](int plane) -> ColumnCells<1, Block::V> { return {room + plane * team * Block::Q, 1}; };
  {
    float g[Block::V];
    load_gain<T, Block::FORM>(p, block.slice, block.t, g);
    cells(2).set(0, g);
  }
  GuardSums<Block> sums = {team_sums, room + 2 * team * Block::Q, 1};
#pragma unroll 1
  for (int flat = 0; flat < DEEP; flat++) {
    unsigned left = block.noted(shared)[flat];
    if (left == 0) continue;
    for (int plane = 0; plane < 2; plane++)
      cells(plane).clear();
#pragma unroll 1
    for (; left != 0; left &= left - 1) {
      const int round = flat * FLAT + __ffs((int)left) - 1;
      const int64_t row = block.row_of(p, round / Block::ROWS) + round % Block::ROWS;
      const Norm<float> norm = norm_of<LAYER, Block::FORM>(p);
      RowInMemory<T, Block::FORM, GuardSums<Block>> at = {p, sums, {row, (unsigned)block.slice}, block.t, team, true};
      const RowFactors<float> f =
          scaled_factors<T>(norm, at, p.stats ? p.stats + index_of_row<Block::FORM>(p, row, block.slice) : nullptr);
      finish_scaled<T, true, Block::FORM>(p, norm, at, 0, f, cells);
    }
    if (block.t >= p.vectors) continue;
    if (p.want_dweight) cells(0).flush(block.partial(p, 0), true);
    if (p.want_dbias) cells(1).flush(block.partial(p, p.want_dweight ? 1 : 0), true);
  }
}

/* ---- the kernel ---- */

/* At 80 registers. */
template <class T, bool LAYER>
__global__ void __launch_bounds__(768, 1) backward_samples_kernel(const __grid_constant__ BackwardJob p) {
  if (!has_early_starts) return; /* never launched in older code, which has no bulk copies */
  using Block = SamplesBlock<T, LAYER>;
  constexpr int ROWS = Block::ROWS, V = Block::V, values = Block::values;
  extern __shared__ __align__(128) char samples_room[];
  char *const shared = samples_room;
  const Block block(p);
  const int batches = block.batches(p), lane = block.t & 31;
  const bool mine = block.t < p.vectors;
  if (block.t == 0) start_barriers(block.full(shared), p.stages);
  for (int i = block.t; i < 2 * values * 32; i += (int)blockDim.x)
    block.chunks(shared)[i] = exact_zero;
  if (block.t <= DEEP) block.noted(shared)[block.t] = 0; /* and any_noted behind them */
  __syncthreads();
  block.prefetch(p);
  wait_for_previous();
  let_next_start();
  for (int i = 0; i < p.stages && i < batches; i++)
    block.fill(p, shared, i, i);

  float g[V];
  load_gain<T, Block::FORM>(p, block.slice, block.t, g);
  /* lane k has r of row k of a batch, lane ROWS + k the mean */
  auto statistic_of = [&](int batch) -> float {
    const int64_t row = block.row_of(p, batch) + lane % ROWS;
    if (lane >= values || row >= p.rows) return 0;
    return (lane < ROWS ? p.rstd : p.mean)[index_of_row<Block::FORM>(p, row, block.slice)];
  };
  float next = statistic_of(0);
  ColumnSums<1, V> dweight, dbias;
  dweight.clear();
  dbias.clear();
  const int place = lane % (32 / values) == 0 ? lane / (32 / values) * 32 + chunk_place(block.t / 32) : -1;
  int stage = 0, turn = 0, phase = 0;
#pragma unroll 1
  for (int batch = 0; batch < batches; batch++) {
    const float statistic = next;
    const int count = block.rows_at(p, batch);
    if (batch + 1 < batches) next = statistic_of(batch + 1);
    wait_for_copies(block.full(shared) + stage, turn);
    const char *from = shared + block.where.ring + stage * 2 * ROWS * p.bytes + block.t * 16;
    auto take = [&](Packed<T, V> &v, int stream) {
      clear(v);
      if (mine) take_cell(v, reinterpret_cast<const uint4 *>(from + stream * p.bytes));
    };
    auto r_of = [&](int k) { return __shfl_sync(whole_warp, statistic, k); };
    auto mean_of = [&](int k) { return LAYER ? __shfl_sync(whole_warp, statistic, ROWS + k) : 0.0f; };

    float v[values];
    bool zeros = false;
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
      Packed<T, V> x, dy;
      float a = 0, b = 0, h[V], u[V];
      v[k] = exact_zero;
      if (LAYER) v[values - ROWS + k] = 0;
      if (k >= count) continue;
      take(x, 2 * k);
      take(dy, 2 * k + 1);
      unpack(x, h);
      unpack(dy, u);
      normalise<LAYER>(h, r_of(k), mean_of(k));
#pragma unroll
      for (int j = 0; j < V; j++) {
        u[j] *= g[j];
        a = fused(u[j], h[j], a);
        if (LAYER) b += u[j];
      }
      v[k] = mine ? a : exact_zero;
      if (LAYER) v[values - ROWS + k] = b;
      zeros = zeros || (mine && a == 0);
    }
    /* as in backward_row.cuh: a vector that adds nothing but exact zeros adds -0 */
    if (__builtin_expect(__any_sync(whole_warp, zeros), 0)) {
#pragma unroll
      for (int k = 0; k < ROWS; k++) {
        const float mean = mean_of(k);
        if (k >= count || v[k] != 0) continue;
        Packed<T, V> x, dy;
        float u[V];
        take(x, 2 * k);
        take(dy, 2 * k + 1);
        unpack(dy, u);
#pragma unroll
        for (int j = 0; j < V; j++)
          u[j] *= g[j];
        const bool exact = is_zero(dy) || (is_zero(x) && (!LAYER || mean == 0) && u_in_range(u));
        v[k] = exact ? exact_zero : 0.0f;
      }
    }
    float *chunk = block.chunks(shared) + phase * (values * 32);
    const float folded = fold<Add>(v);
    if (place >= 0) chunk[place] = folded;
    __syncthreads();
    /* all have done with the batch before this one */
    if (batch > 0 && batch - 1 + p.stages < batches)
      block.fill(p, shared, batch - 1 + p.stages, stage == 0 ? p.stages - 1 : stage - 1);
    float parts[values / 4];
#pragma unroll
    for (int i = 0; i < values / 4; i++)
      parts[i] = panel_sums<Add, 4, 1>(chunk + i * 128);
    auto sum_of_row = [&](int i) { return __shfl_sync(whole_warp, parts[i / 4], i % 4 * 8); };
    phase ^= 1;

#pragma unroll
    for (int k = 0; k < ROWS; k++) {
      if (k >= count) continue;
      const float r = r_of(k), mean = mean_of(k), dot = sum_of_row(k), sum = LAYER ? sum_of_row(values - ROWS + k) : 0;
      const bool in_range = sum_in_range(dot) && (!LAYER || sum_in_range(sum));
      if (__builtin_expect((r_in_range(r) & (in_range | is_exact_zero(dot))) | is_lost(r), 1)) {
        const float c2 = divided(dot, p.k, p.inverse_k), c1 = LAYER ? divided(sum, p.k, p.inverse_k) : 0.0f;
        const RowPlace at = {block.row_of(p, batch) + k, (unsigned)block.slice};
        Packed<T, V> x, dy, added;
        float h[V], u[V];
        if (p.added.data && block.t < p.stored)
          load_vector<true, true>(added, row_at<true>(p.added, at) + block.t * 16, V);
        take(x, 2 * k);
        take(dy, 2 * k + 1);
        unpack(x, h);
        unpack(dy, u);
        normalise<LAYER>(h, r, mean);
        add_dweight<T, false>(p, dweight.sum[0], u, h);
#pragma unroll
        for (int j = 0; j < V; j++) {
          dbias.sum[0][j] += u[j];
          u[j] *= g[j];
        }
        finish_dx<T, LAYER, Form::COMMON>(p, u, h, c1, c2, r, 0);
        if (block.t < p.stored) store_dx<T, Block::FORM>(p, u, added, targets_of<Block::FORM>(p, at), block.t);
      } else if (block.t == 0) { /* it comes after the others */
        const int round = batch * ROWS + k;
        block.noted(shared)[round / FLAT] |= 1u << (round % FLAT);
        *block.any_noted(shared) = 1;
      }
    }
    if (++stage == p.stages) stage = 0, turn ^= 1;
    const int done = (batch + 1) * ROWS;
    if (__builtin_expect((done % FLAT == 0 || batch + 1 == batches) && mine, 0)) {
      const bool add = done > FLAT;
      if (p.want_dweight) dweight.flush(block.partial(p, 0), 1, add);
      if (p.want_dbias) dbias.flush(block.partial(p, p.want_dweight ? 1 : 0), 1, add);
    }
  }
  __syncthreads();
  if (__builtin_expect(*block.any_noted(shared) != 0, 0)) scaled_samples<T, LAYER>(p);
}

} // namespace rms_cuda

#endif
