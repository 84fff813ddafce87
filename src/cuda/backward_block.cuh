/* SPDX-License-Identifier: MIT
 *
 * Backward of aligned rows within a block, or across a cluster of them: persistent blocks whose teams walk the rows of
 * one slice, which come through a ring of stages that is filled ahead. Template parameters as in backward_steps.cuh.
 * LAYER: LayerNorm, or dbias with options. CLUSTER: a row is shared by the blocks of a cluster, one team each. PAIRED:
 * these blocks have two teams, each with a row of its own. */
#ifndef RMS_CUDA_BACKWARD_BLOCK_CUH
#define RMS_CUDA_BACKWARD_BLOCK_CUH

#include "backward_gated_row.cuh"
#include "backward_scaled.cuh"
#include "start.cuh"

namespace rms_cuda {

/* ---- rows out of range ---- */

/* Sums over a row of a team, for the range guard. */
template <class Block> struct GuardSums {
  typename Block::Sums &sums;
  const float4 *gains;
  int plane;            /* from one float4 of a vector's gains to the next */
  int step = sums.team; /* and from one vector of the thread to the next   */

  __device__ __forceinline__ void gain(int i, float (&g)[Block::V]) const {
#pragma unroll
    for (int c = 0; c < Block::Q; c++) {
      const float4 four = gains[i * step + c * plane];
      g[4 * c] = four.x, g[4 * c + 1] = four.y, g[4 * c + 2] = four.z, g[4 * c + 3] = four.w;
    }
  }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) {
    float v[Block::SUMS * Block::NV];
#pragma unroll
    for (int i = 0; i < Block::NV; i++) {
      v[i] = of_vector(i);
      asm volatile("" ::: "memory"); /* one vector after the other: fewer registers */
    }
#pragma unroll
    for (int i = Block::NV; i < Block::SUMS * Block::NV; i++)
      v[i] = 0;
    return sums.template of<Op>(v).x;
  }
};

/* One row of a team; none where row is negative. Every team of a block goes through the same barriers, whether it has a
 * row or not. */
template <class T, bool LAYER, bool DBIAS, Form FORM, class Block, class Cells>
__device__ __forceinline__ void scaled_row(const BackwardJob &p, const Block &block, GuardSums<Block> &sums,
                                           int64_t row, Cells cells) {
  const bool active = row >= 0;
  const Norm<float> norm = norm_of<LAYER, FORM>(p);
  const int64_t known = active ? row : 0;
  RowInMemory<T, FORM, GuardSums<Block>> at = {p,           sums,      place_in_slice<FORM>(p, known, block.slice),
                                               block.first, sums.step, active};
  const RowFactors<float> f =
      scaled_factors<T>(norm, at, p.stats ? p.stats + index_of_row<FORM>(p, known, block.slice) : nullptr);
  if (!active) return;
#pragma unroll 1
  for (int i = 0; i < Block::NV; i++)
    finish_scaled<T, DBIAS, FORM>(p, norm, at, i, f, cells);
}

/* The rows of a block that are out of range, FLAT rounds after FLAT rounds, the teams in step. A function of its own,
 * so that the loop over the other rows has the registers for itself. phase, parity: where the sums over rows are. */
template <class T, bool LAYER, bool DBIAS, bool CLUSTER, Form FORM, bool PAIRED>
__device__ __noinline__ void scaled_rows(const BackwardJob &p, int phase, int parity) {
  using Block = BackwardBlock<T, LAYER, DBIAS, CLUSTER, FORM, PAIRED>;
  extern __shared__ __align__(128) char shared[];
  const Block block(p);
  /* worked out where it is needed: registers are short */
  auto noted = [&](int team, int flat) -> unsigned {
    return reinterpret_cast<const volatile unsigned *>(shared + block.where.noted)[team * DEEP + flat];
  };
  auto row_of = [&](int round) {
    return block.share(p) * block.teams + block.which + (int64_t)round * (p.shares * block.teams);
  };
  typename Block::Sums team_sums = block.sums(p, shared, phase, parity);
  GuardSums<Block> sums = {team_sums, block.gain(shared), block.cells, block.step()};
  /* column sums lie where the ring was: all its copies have arrived */
  static_assert(Block::Q * (DBIAS ? 2 : 1) <= 4, "the column sums of a thread fit two stages of two streams");
  auto cells = [&](int plane) -> ColumnCells<Block::NV, Block::V> {
    return {block.column_cells(shared, block.where.ring, plane), (int)blockDim.x};
  };
#pragma unroll 1
  for (int flat = 0; flat < DEEP; flat++) { /* what no round has is zero */
    int steps = 0;
    for (int g = 0; g < block.teams; g++)
      steps = max(steps, __popc(noted(g, flat)));
    if (steps == 0) continue;
    unsigned left = noted(block.which, flat);
    for (int plane = 0; plane < (DBIAS ? 2 : 1); plane++)
      cells(plane).clear();
#pragma unroll 1
    for (; steps > 0; steps--, left &= left - 1)
      scaled_row<T, LAYER, DBIAS, FORM>(p, block, sums,
                                        left != 0 ? row_of(flat * FLAT + __ffs((int)left) - 1) : (int64_t)-1, cells);
    for (int plane = 0; plane < (DBIAS ? 2 : 1); plane++)
      cells(plane).flush(block.column_cells(shared, block.where.deep, plane), true);
  }
}

/* ---- rows in range ---- */

/* The saved statistic of a row. */
template <bool LAYER, Form FORM> struct Saved {
  float r, mean;

  __device__ __forceinline__ void load(const BackwardJob &p, int64_t row, int slice) {
    const int64_t index = index_of_row<FORM>(p, row, slice);
    r = p.rstd[index];
    if (LAYER) mean = is_layer<LAYER, FORM>(p) ? p.mean[index] : 0.0f;
  }
};

/* ---- the kernel ---- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool has_early_starts = false;
#else
constexpr bool has_early_starts = true;
#endif

template <class T, bool LAYER, bool DBIAS, bool CLUSTER, Form FORM, bool PAIRED = false>
__global__ void __launch_bounds__(PAIRED ? (int)BACKWARD_TEAM
                                         : most_backward_threads(LAYER, DBIAS, CLUSTER, FORM, std::is_same_v<T, __half>,
                                                                 has_early_starts),
                                  1) backward_block_kernel(const __grid_constant__ BackwardJob p) {
  if (PAIRED && !has_early_starts) return; /* never launched in older code, where one of them spills */
  using Block = BackwardBlock<T, LAYER, DBIAS, CLUSTER, FORM, PAIRED>;
  constexpr int NV = Block::NV, V = Block::V, SUMS = Block::SUMS;
  extern __shared__ __align__(128) char shared[];
  const Block block(p);
  const int stages = block.stages, stage_bytes = block.stage_bytes;
  const int rounds = rounds_from(p, block.mine, block.stride);
  typename Block::Sums sums = block.sums(p, shared, 0, 0);
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

  using Row = std::conditional_t<is_gated(FORM), GatedRow<T, LAYER, DBIAS, CLUSTER, FORM>,
                                 RowInRegisters<T, LAYER, DBIAS, CLUSTER, FORM, PAIRED>>;
  const bool saved = has_saved<FORM>(p), layer = is_layer<LAYER, FORM>(p);
  const bool calm = Row::asks_quickly && Row::gains_are_calm(p, block, block.gain(shared));
  const bool adds_late = Row::adds_late && p.added.data, late = adds_late || (!LAYER && p.late);
  Saved<LAYER, FORM> next = {0, 0};
  int64_t number = block.mine + always_zero(); /* of the team's row */
  if (saved && rounds > 0) next.load(p, number, block.slice);
  ColumnSums<NV, V> dweight, dbias;
  dweight.clear();
  if (DBIAS) dbias.clear();
  auto flush = [&](bool add) {
    dweight.flush(block.column_cells(shared, block.where.deep, 0), (int)blockDim.x, add);
    if (DBIAS) dbias.flush(block.column_cells(shared, block.where.deep, 1), (int)blockDim.x, add);
  };
  int stage = 0, turn = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    Statistic<float> st = {0, next.mean, 0, next.r, 1, 0};
    if (saved && round + 1 < rounds) next.load(p, number + block.stride, block.slice);
    auto place = [&] { return place_in_slice<FORM>(p, number, block.slice); };
    block.wait(shared, stage, turn);
    Row row(p, block, sums, block.gain(shared), calm);
    const char *from = block.ring(shared) + stage * stage_bytes;
    if constexpr (is_shifted(FORM))
      row.take_shifted(from, number);
    else
      row.take(from);
    if (Block::options && !saved) st = row_statistic<false>(norm_of<LAYER, FORM>(p), row);
    float v[SUMS * NV];
    row.sum_up(st.r, st.mean, v);
    sums.template publish<Add>(v);
    if (!late) block.fill(p, shared, round + stages, stage, round + stages < rounds); /* all have read the stage */
    RowTargets to;
    if (!is_shifted(FORM)) { /* while the sums are on their way */
      to = targets_of<FORM>(p, place());
      asm volatile("" : "+l"(to.dx));
    }
    const float2 sum = sums.template collect<Add>();
    const bool in_range = sum_in_range(sum.x) && (!layer || sum_in_range(sum.y));
    /* no short cuts: they would be branches, which every row waits for */
    const bool as_it_is = (r_in_range(st.r) & (in_range | is_exact_zero(sum.x))) | is_lost(st.r);
    if (__builtin_expect(as_it_is, 1)) {
      float c2 = divided(sum.x, p.k, p.inverse_k);
      if (Block::options && p.eps_outside) c2 = corrected_outside(p, st, c2);
      if (adds_late) row.take_added(from);
      row.finish(to, shared, st.r, st.mean, layer ? divided(sum.y, p.k, p.inverse_k) : 0.0f, c2, dweight, dbias);
    } else if (block.t == 0) { /* it comes after the others */
      block.noted(shared)[round / FLAT] |= 1u << (round % FLAT);
      atomicOr(block.any_noted(shared), 1u); /* all teams write it */
    }
    if constexpr (is_shifted(FORM)) {
      team_sync(block.which, block.team); /* all have kept their results */
      if (as_it_is && p.stored > 0) {
        to = targets_of<FORM>(p, place());
        if (!Block::options || p.dx.data) block.store_pieces(p, shared, 0, to.dx);
        if (Block::options && p.copy.data) block.store_pieces(p, shared, shifted_results(FORM) - 1, to.copy);
      }
    }
    if (late) {
      if (adds_late) team_sync(block.which, block.team); /* all have read what is added */
      block.fill(p, shared, round + stages, stage, round + stages < rounds);
    }
    number += block.stride;
    if (++stage == stages) stage = 0, turn ^= 1;
    if (__builtin_expect(round % FLAT == FLAT - 1 || round + 1 == rounds, 0)) flush(round >= FLAT);
  }
  if (rounds <= 0) flush(false);
  /* through the same number of barriers as the block's first team */
  if (rounds < rounds_from(p, block.share(p) * block.teams, block.stride))
    for (int i = 1 + (saved ? 0 : layer ? 2 : 1) + (adds_late || is_shifted(FORM) ? 1 : 0); i > 0; i--)
      team_sync(block.which, block.team);
  __syncthreads();
  /* the blocks of a cluster have the same rows, and so the same answer */
  if (__builtin_expect(*block.any_noted(shared) != 0, 0)) {
    scaled_rows<T, LAYER, DBIAS, CLUSTER, FORM, PAIRED>(p, sums.phase, sums.parity);
    __syncthreads();
  }
  block.write_partial(p, shared);
}

} // namespace rms_cuda

#endif
