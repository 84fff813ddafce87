/* SPDX-License-Identifier: MIT
 *
 * The backward of stepwise.cuh for aligned rows, which stay in registers from the first sum to dx: persistent blocks,
 * whose teams walk the rows as in backward_block.cuh and backward_warp.cuh, and sum up columns as they do. BOTH:
 * LayerNorm, or dbias; RMSNorm without dbias has kernels of its own. */
#ifndef RMS_CUDA_STEPWISE_ROWS_BACKWARD_CUH
#define RMS_CUDA_STEPWISE_ROWS_BACKWARD_CUH

#include "backward_ring.cuh"
#include "backward_warp.cuh"
#include "stepwise_backward.cuh"
#include "stepwise_rows.cuh"

namespace rms_cuda {

/* ---- sums over a row ---- */

/* Over the team of a block, as StepLanes. */
template <class Block> struct StepTeam {
  static constexpr int NV = Block::NV, SUMS = Block::SUMS;
  typename Block::Sums &sums;

  __device__ __forceinline__ bool any(bool yes) const { return yes; }
  template <class Op> __device__ __forceinline__ float of(float (&a)[NV]) const {
    float v[SUMS * NV];
#pragma unroll
    for (int i = 0; i < SUMS * NV; i++)
      v[i] = i < NV ? a[i % NV] : 0;
    return sums.template of<Op>(v).x;
  }
  /* Two sums at once. */
  __device__ __forceinline__ float2 two(float (&a)[NV], float (&b)[NV]) const {
    if constexpr (SUMS == 2) {
      float v[2 * NV];
#pragma unroll
      for (int i = 0; i < NV; i++)
        v[i] = a[i], v[NV + i] = b[i];
      return sums.template of<Add>(v);
    } else {
      const float first = of<Add>(a);
      return make_float2(first, of<Add>(b));
    }
  }
};

/* The sums of trace_steps() over a row in registers: of e, which x has, and u, which sums() replaces by A. */
template <class T, int NV, class Source> struct RegisterSums {
  static constexpr int V = vector_of<T>;
  const Source &x;
  Packed<T, V> (&u)[NV];

  template <class F> __device__ __forceinline__ float of_vector(int i, F term) const {
    float f[V], e[V];
    unpack(u[i], f);
    x.load(i, e);
    term(f, e);
    return x.has(i) ? Source::chain(f) : 0.0f;
  }
  template <class F> __device__ __forceinline__ float sum(F term) const {
    const float total = x.template over<Add>([&](int i) -> float { return of_vector(i, term); });
    keep_packed(u);
    return step<T>(total);
  }
  template <class F, class G> __device__ __forceinline__ float2 sums(F first, G second) const {
    float a[NV], b[NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float f[V], e[V];
      a[i] = of_vector(i, first);
      unpack(u[i], f);
      x.load(i, e);
      second(f, e);
      b[i] = x.has(i) ? Source::chain(f) : 0.0f;
      pack(u[i], f);
    }
    keep_packed(x.x);
    keep_packed(u);
    const float2 both = x.team.two(a, b);
    return make_float2(step<T>(both.x), step<T>(both.y));
  }
};

/* ---- a row ---- */

/* Everything up to the second half of a row, from x and u. r: that was saved, of RMS_STEPS_RSTD; NULL: none. */
template <class T, int NV, class Source, int V>
__device__ __forceinline__ StepGradient<T> trace_row(const StepwiseBackward &g, Source &x, Packed<T, V> (&u)[NV],
                                                     const float *r) {
  StepGradient<T> of = {steps_of<T>(x, g.p.eps_limit, r), 0, 0, false, Source::narrow};
  RegisterSums<T, NV, Source> over = {x, u};
  trace_steps(g.lay, of, over);
  return of;
}

/* The second half of a vector: dx, and what it adds to the column sums. a: A of LayerNorm, otherwise u. to: NULL where
 * there is none. */
template <class T, bool BOTH, int V>
__device__ __forceinline__ void finish_step_vector(const BackwardJob &p, const StepGradient<T> &of,
                                                   const Packed<T, V> &e, Packed<T, V> a, const Packed<T, V> &dy,
                                                   char *to, float (&dweight)[V], float (&dbias)[V]) {
  const bool layer = BOTH && of.st.layer;
  Packed<T, V> b;
  float f[V], d[V];
  if (!layer) {
    unpack(a, f);
    of.st.scale.apply_wide(f);
    pack(a, f);
  }
  unpack(e, f);
  of.by_statistic(f);
  pack(b, f);
  add_packed(a, b);
  if (layer) add_packed(a, repeated<T, V>(of.shift));
  if (to) store_vector<true>(to, a, V);
  unpack(dy, d);
  unpack(e, f);
  of.st.scale.apply_wide(f);
  add_dweight<T, Form::STEPS>(p, dweight, dy, d, f);
  if constexpr (BOTH) {
#pragma unroll
    for (int j = 0; j < V; j++)
      dbias[j] += d[j];
  }
}

/* Whether r of a row comes from a forward. */
__device__ __forceinline__ bool has_saved_r(const StepwiseBackward &g) {
  return g.lay.steps == RMS_STEPS_RSTD && g.p.rstd;
}

/* ---- rows within a block, or across a cluster ---- */

template <class T, bool BOTH, bool CLUSTER>
__global__ void __launch_bounds__(BACKWARD_TEAM, 1)
    stepwise_backward_block_kernel(const __grid_constant__ StepwiseBackward g) {
  using Block = BackwardBlock<T, BOTH, BOTH, CLUSTER, Form::STEPS, false>;
  using Source = StepRegisters<T, Block::NV, const StepTeam<Block>, BOTH>;
  constexpr int NV = Block::NV, V = Block::V;
  extern __shared__ __align__(128) char shared[];
  const BackwardJob &p = g.p;
  const Block block(p);
  const int stages = block.stages, rounds = rounds_from(p, block.mine, block.stride);
  typename Block::Sums sums = block.sums(p, shared, 0, 0);
  const StepTeam<Block> team = {sums};
  block.start(p, shared);
  if (CLUSTER) cluster_arrive();
  if (block.issues()) block.prefetch(p, rounds);
  wait_for_previous();
  let_next_start();
#pragma unroll 1
  for (int i = 0; i < stages; i++)
    block.fill(p, shared, i, i, i < rounds);
  block.set_gain(p, shared);
  __syncthreads();
  if (CLUSTER) cluster_wait();

  const bool saved = has_saved_r(g);
  float next = saved && rounds > 0 ? p.rstd[block.mine] : 0.0f;
  int64_t number = block.mine; /* of the team's row */
  ColumnSums<NV, V> dweight, dbias;
  dweight.clear();
  dbias.clear();
  auto flush = [&](bool add) {
    dweight.flush(block.column_cells(shared, block.where.deep, 0), (int)blockDim.x, add);
    if (BOTH) dbias.flush(block.column_cells(shared, block.where.deep, 1), (int)blockDim.x, add);
  };
  int stage = 0, turn = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    const float r = next;
    if (saved && round + 1 < rounds) next = p.rstd[number + block.stride];
    block.wait(shared, stage, turn, 1);
    const char *x_at = block.ring(shared) + stage * block.stage_bytes, *dy_at = x_at + block.stream * 16;
    Packed<T, V> x[NV], u[NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      Packed<T, V> dy;
      float f[V];
      block.take(x[i], x_at, i, false);
      block.take(dy, dy_at, i, false);
      unpack(dy, f);
      weigh<T, Form::STEPS>(p, f, block.gain(shared) + i * block.team, block.cells);
      pack(u[i], f);
    }
    keep_packed(u);
    Source source = {g.lay, team, x, block.first, block.team, p.vectors};
    const StepGradient<T> of = trace_row(g, source, u, saved ? &r : nullptr);
    /* dy stays in its stage until the row is done, so the stage before it is asked for now: all have passed a barrier
     * since they were done with that one */
    block.fill(p, shared, round - 1 + stages, stage > 0 ? stage - 1 : stages - 1,
               round > 0 && round - 1 + stages < rounds);
    char *to = row_at<false>(p.dx, {number, 0});
#pragma unroll
    for (int i = 0; i < NV; i++) {
      Packed<T, V> dy;
      block.take(dy, dy_at, i, false);
      finish_step_vector<T, BOTH>(p, of, x[i], u[i], dy,
                                  source.vector(i) < p.stored ? to + source.vector(i) * 16 : nullptr, dweight.sum[i],
                                  dbias.sum[i]);
      asm volatile("" ::: "memory"); /* one vector after the other: fewer registers */
    }
    number += block.stride;
    if (++stage == stages) stage = 0, turn ^= 1;
    if (round % FLAT == FLAT - 1 || round + 1 == rounds) flush(round >= FLAT);
  }
  if (rounds <= 0) flush(false);
  __syncthreads();
  block.write_partial(p, shared);
}

/* ---- rows within a warp ---- */

/* Blocks of an SM: as many as there are registers for. */
template <class T> constexpr int stepwise_backward_warp_blocks = std::is_same<T, __half>::value ? 1 : 2;

template <class T, bool BOTH>
__global__ void __launch_bounds__(warp_backward_threads(Form::STEPS), stepwise_backward_warp_blocks<T>)
    stepwise_backward_warp_kernel(const __grid_constant__ StepwiseBackward g) {
  constexpr int V = vector_of<T>, Q = V / 4, threads = warp_backward_threads(Form::STEPS),
                stages = warp_stages(Form::STEPS);
  using Row = LaneRow<T, Form::STEPS>;
  using Source = StepRegisters<T, 1, const StepLanes<1>, BOTH>;
  constexpr int stage_cells = Row::cells * threads;
  __shared__ float4 cells[(BOTH ? 2 : 1) * Q * threads];
  __shared__ float4 shared_gain[Q * 32];
  extern __shared__ uint4 warp_ring[]; /* stages of a row, cells of each thread */
  const BackwardJob &p = g.p;
  const WarpPlace<Form::STEPS> lane(p);
  const StepLanes<1> team = {p.team};
  float4 *deep = cells + threadIdx.x;
  uint4 *ring = warp_ring + threadIdx.x;
  Gains<T, Form::STEPS> gains;
  gains.cells = shared_gain + lane.first;
  wait_for_previous();
  let_next_start();
  const int turns = rounds_from(p, lane.block_row, lane.stride);
#pragma unroll 1
  for (int i = 0; i < stages - 1; i++) {
    if (i < turns) Row::request(p, ring + i * stage_cells, lane.row + i * lane.stride, 0, lane.first);
    end_of_copies();
  }
  gains.set(p, 0, lane.first);
  const bool saved = has_saved_r(g);
  int64_t row = lane.row;
  float next = saved && row < p.rows ? p.rstd[row] : 0.0f;
  ColumnSums<1, V> dweight, dbias;
  dweight.clear();
  dbias.clear();
  auto flush = [&](bool add) {
    dweight.flush(deep, threads, add);
    if (BOTH) dbias.flush(deep + Q * threads, threads, add);
  };
#pragma unroll 1
  for (int turn = 0; turn < turns; turn++, row += lane.stride) {
    const float r = next;
    next = saved && row + lane.stride < p.rows ? p.rstd[row + lane.stride] : 0.0f;
    if (turn + stages - 1 < turns)
      Row::request(p, ring + (turn + stages - 1) % stages * stage_cells, row + (stages - 1) * lane.stride, 0,
                   lane.first);
    end_of_copies();
    wait_for_stage(stages);
    Row now;
    now.take(p, ring + turn % stages * stage_cells, row, 0, lane.first);
    Packed<T, V> u[1];
    float f[V];
    unpack(now.dy[0], f);
    gains.weigh(p, f);
    pack(u[0], f);
    keep_packed(u);
    const bool there = row < p.rows;
    Source source = {g.lay, team, now.x, lane.first, 32, there ? p.vectors : 0};
    const StepGradient<T> of = trace_row(g, source, u, saved ? &r : nullptr);
    finish_step_vector<T, BOTH>(p, of, now.x[0], u[0], now.dy[0],
                                there && lane.first < p.stored ? row_at<false>(p.dx, {row, 0}) + lane.first * 16
                                                               : nullptr,
                                dweight.sum[0], dbias.sum[0]);
    if (turn % FLAT == FLAT - 1) flush(turn >= FLAT);
  }
  if (turns % FLAT != 0 || turns <= 0) flush(turns > FLAT);
  const int64_t width = (int64_t)p.vectors * V;
  float *to = p.partial + lane.share * width;
  if (p.want_dweight) {
    write_lanes<V, threads>(to, cells, p.team, p.vectors);
    to += p.shares * width;
  }
  if (BOTH && p.want_dbias) write_lanes<V, threads>(to, cells + Q * threads, p.team, p.vectors);
}

} // namespace rms_cuda

#endif
