/* SPDX-License-Identifier: MIT
 *
 * Backward of aligned rows within a block, or across a cluster of them: persistent blocks whose teams walk the rows of
 * one slice, which come through a ring of stages that is filled ahead. Template parameters as in backward_steps.cuh.
 * LAYER: LayerNorm, or dbias with options. CLUSTER: a row is shared by the blocks of a cluster, one team each. */
#ifndef RMS_CUDA_BACKWARD_BLOCK_CUH
#define RMS_CUDA_BACKWARD_BLOCK_CUH

#include "backward_ring.cuh"
#include "backward_scaled.cuh"
#include "start.cuh"

namespace rms_cuda {

/* ---- rows out of range ---- */

/* Sums over a row of a team, for the range guard. */
template <class Block> struct GuardSums {
  typename Block::Sums &sums;
  const float4 *gains;
  int plane; /* from one float4 of a vector's gains to the next */

  __device__ __forceinline__ void gain(int i, float (&g)[Block::V]) const {
#pragma unroll
    for (int c = 0; c < Block::Q; c++) {
      const float4 four = gains[i * sums.team + c * plane];
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
  RowInMemory<T, FORM, GuardSums<Block>> at = {p,           sums,           place_in_slice<FORM>(p, known, block.slice),
                                               block.first, sums.sums.team, active};
  const RowFactors<float> f =
      scaled_factors<T>(norm, at, p.stats ? p.stats + index_of_row<FORM>(p, known, block.slice) : nullptr);
  if (!active) return;
#pragma unroll 1
  for (int i = 0; i < Block::NV; i++)
    finish_scaled<T, DBIAS, FORM>(p, norm, at, i, f, cells);
}

/* The rows of a block that are out of range, FLAT rounds after FLAT rounds, the teams in step. A function of its own,
 * so that the loop over the other rows has the registers for itself. phase, parity: where the sums over rows are. */
template <class T, bool LAYER, bool DBIAS, bool CLUSTER, Form FORM>
__device__ __noinline__ void scaled_rows(const BackwardJob &p, int phase, int parity) {
  using Block = BackwardBlock<T, LAYER, DBIAS, CLUSTER, FORM>;
  extern __shared__ __align__(128) char shared[];
  const Block block(p);
  /* worked out where it is needed: registers are short */
  auto noted = [&](int team, int flat) -> unsigned {
    return reinterpret_cast<const volatile unsigned *>(shared + block.where.noted)[team * DEEP + flat];
  };
  typename Block::Sums team_sums = block.sums(p, shared, phase, parity);
  GuardSums<Block> sums = {team_sums, block.gain(shared), block.cells};
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
      scaled_row<T, LAYER, DBIAS, FORM>(
          p, block, sums,
          left != 0 ? block.mine + (int64_t)(flat * FLAT + __ffs((int)left) - 1) * block.stride : (int64_t)-1, cells);
    for (int plane = 0; plane < (DBIAS ? 2 : 1); plane++)
      cells(plane).flush(block.column_cells(shared, block.where.deep, plane), true);
  }
}

/* ---- rows in range ---- */

/* What all threads of a warp load alike the compiler keeps in a uniform register, and waits for it at once; and
 * addresses that are the same for all it works out on the uniform data path, whose every step takes several times as
 * long as that of a thread. With this it does not know that they are. */
__device__ __forceinline__ unsigned always_zero() {
  unsigned thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread >= blockDim.x ? 1 : 0;
}

/* A row of a team, in registers: h, u and dy between the two passes over it, or x and dy, packed, to make room. */
template <class T, bool LAYER, bool DBIAS, bool CLUSTER, Form FORM> struct RowInRegisters {
  using Block = BackwardBlock<T, LAYER, DBIAS, CLUSTER, FORM>;
  using S = sum_of<T, FORM>;
  static constexpr int NV = Block::NV, V = Block::V, SUMS = Block::SUMS;
  static constexpr bool options = Block::options;
  static constexpr bool h_again = FORM != Form::COMMON, u_again = h_again || DBIAS; /* computed twice */
  const BackwardJob &p;
  const Block &block;
  typename Block::Sums &sums;
  const float4 *gain;
  bool calm; /* gains_are_calm() */
  Packed<S, V> x[NV], added[NV];
  Packed<T, V> dy[NV], rounded[NV]; /* rounded: u of 16-bit types, which is kept */
  float h[NV][V], u[NV][V];

  /* act(z) of vector i and its slope; the gate is what is added. */
  __device__ __forceinline__ void open_gate(int i, float (&act)[V], float (&slope)[V]) const {
    unpack(added[i], act);
    activate(act, slope, p.sigmoid);
  }
  /* x and dy of vector i as the norm has them. */
  __device__ __forceinline__ void open_x(int i, float (&f)[V]) const {
    unpack(x[i], f);
    if constexpr (FORM == Form::GATED) {
      float act[V], slope[V];
      if (!p.gate_before) return;
      open_gate(i, act, slope);
      multiply(f, act);
    }
  }
  __device__ __forceinline__ void open_dy(int i, float (&f)[V]) const {
    unpack(dy[i], f);
    if constexpr (FORM == Form::GATED) {
      float act[V], slope[V];
      if (p.gate_before) return;
      open_gate(i, act, slope);
      rms_cuda::open_dy<T>(p, f, act);
    }
  }
  __device__ __forceinline__ unsigned mask(int i) const {
    return counted_mask<T, FORM>(p, block.first + i * block.team);
  }
  __device__ __forceinline__ bool counts_all() const { return p.whole; }
  __device__ __forceinline__ void load_x(int i, float (&f)[V]) const { open_x(i, f); }
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
  /* What is added stays in its stage where registers are short. */
  static constexpr bool adds_late = FORM == Form::F32_SUM;
  __device__ __forceinline__ void take_added(const char *stage) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      block.take(added[i], stage + block.stream * 16 * (Block::wide + 1), i, p.added_is_f32);
  }
  __device__ __forceinline__ void take(const char *stage) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      block.take(x[i], stage, i, p.x_is_f32);
      take_cell(dy[i],
                reinterpret_cast<const uint4 *>(stage + block.stream * 16 * Block::wide) + block.t + i * block.team);
    }
    if (options && !adds_late && p.added.data) take_added(stage);
  }
  __device__ __forceinline__ void take_shifted(const char *stage, const RowPlace &at) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      block.take_shifted(p, x[i], stage, i, row_at<true>(p.x, at), p.x_end);
      block.take_shifted(p, dy[i], stage + block.stream * 16, i, row_at<true>(p.dy, at), p.dy_end);
      if (p.added.data)
        block.take_shifted(p, added[i], stage + block.stream * 32, i, row_at<true>(p.added, at), p.added_end);
    }
  }
  /* Where dx goes is worked out while the sums are on their way, where there are registers for it. */
  static constexpr bool aims_early = FORM != Form::SHIFTED;
  static constexpr bool asks_late = CLUSTER || (FORM == Form::COMMON ? !DBIAS
                                                : is_rounded(FORM)   ? !std::is_same_v<T, __half>
                                                                     : FORM != Form::SHIFTED);
  /* Where there is a register for what it needs to know, rows of zeros get a quicker test. */
  static constexpr bool asks_quickly = CLUSTER || (asks_late && has_options(FORM) && FORM != Form::GATED);
  /* Whether all gains of the thread lie within 2^-30 and 2^30. With such elements of dy, u is in range: its largest
   * element is within 2^-60 and 2^60. Rounded to f16 it may not be. */
  static __device__ __forceinline__ bool gains_are_calm(const BackwardJob &p, const Block &block, const float4 *gain) {
    static_assert(Limits<float>::sum >= (float)(1ll << 2 * calm_exponent), "u is in range");
    bool within = !(std::is_same_v<T, __half> && rounds_before<FORM>(p));
#pragma unroll
    for (int i = 0; i < NV * Block::Q; i++) {
      const float4 g = gain[i / Block::Q * block.team + i % Block::Q * block.cells];
      const Packed<float, 1> four[4] = {
          {{__float_as_uint(g.x)}}, {{__float_as_uint(g.y)}}, {{__float_as_uint(g.z)}}, {{__float_as_uint(g.w)}}};
#pragma unroll
      for (int j = 0; j < 4; j++)
        within &= is_calm(four[j]) & !is_zero(four[j]);
    }
    return within;
  }
  /* Whether all vectors add exact zeros to the sum of u*h, by a test without branches that may miss some: it is for the
   * rows of zeros that there are. */
  __device__ __forceinline__ bool adds_zeros(float mean) const {
    const bool centred = !LAYER || mean == 0;
    bool zeros = true;
#pragma unroll
    for (int i = 0; i < NV; i++)
      zeros &= is_zero(dy[i]) | (calm & centred & is_zero(x[i]) & is_calm(dy[i]));
    return zeros;
  }
  /* What a vector adds to the sum of u*h, which is zero. */
  __device__ __forceinline__ float zero_of(int i, float mean) const {
    if constexpr (FORM == Form::GATED) {
      float f[V];
      open_dy(i, f);
      if (is_zero(f)) return exact_zero;
      open_x(i, f);
      if (!is_zero(f)) return 0.0f;
    } else {
      if (is_zero(dy[i])) return exact_zero;
      if (!is_zero(x[i]) || (LAYER && mean != 0)) return 0.0f;
    }
    /* u once more, from what the compiler does not know to be the same: it would keep all of it in registers until
     * here, for every row */
    Packed<T, V> same = dy[i];
#pragma unroll
    for (int j = 0; j < Packed<T, V>::words; j++)
      same.w[j] ^= always_zero();
    float again[V], g[V];
    if constexpr (FORM == Form::GATED)
      open_dy(i, again);
    else
      unpack(same, again);
#pragma unroll
    for (int j = 0; j < V; j++) {
      g[j] = reinterpret_cast<const volatile float *>(gain + i * block.team + j / 4 * block.cells)[j % 4];
      again[j] *= g[j];
    }
    if (rounds_before<FORM>(p)) round_to<T>(again);
    return u_in_range(again) ? exact_zero : 0.0f;
  }
  /* h and u, and the sums of u*h and u. A thread that adds nothing but exact zeros to the former adds -0 (sum.cuh).
   * Only threads whose sums are all zero have to look at their vectors: a sum that is not zero keeps that of the row
   * from being -0. They do so when all loads are under way, where there are registers for it: a branch between the
   * loads would have each of them waited for. */
  __device__ __forceinline__ void sum_up(float r, float mean, float (&v)[SUMS * NV]) {
    bool zeros = true;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float a = 0, b = 0;
      open_x(i, h[i]);
      open_dy(i, u[i]);
      normalise<LAYER>(h[i], r, mean);
      weigh<T, is_rounded(FORM) ? Form::COMMON : FORM>(p, u[i], gain + i * block.team, block.cells);
      if (is_rounded(FORM)) {
        pack(rounded[i], u[i]);
        unpack(rounded[i], u[i]);
      }
#pragma unroll
      for (int j = 0; j < V; j++) {
        a = fused(u[i][j], h[i][j], a);
        if (LAYER) b += u[i][j];
      }
      v[i] = a;
      zeros = zeros && a == 0;
      if (!asks_late && __builtin_expect(zeros, 0)) v[i] = zero_of(i, mean);
      if (LAYER) v[NV * (SUMS - 1) + i] = b;
    }
    if (h_again) keep_packed(x);
    if (is_rounded(FORM)) keep_packed(rounded);
    keep_packed(dy);
    if (FORM == Form::GATED) keep_packed(added);
    if (asks_late && __builtin_expect(zeros, 0)) {
      const bool quick = asks_quickly && adds_zeros(mean);
#pragma unroll
      for (int i = 0; i < NV; i++)
        v[i] = quick ? exact_zero : zero_of(i, mean);
    }
  }
  /* Of a vector with a gate. */
  __device__ __forceinline__ void finish_gated(const RowTargets &to, float r, float c2, ColumnSums<NV, V> &dweight,
                                               int i, int vector) {
    float d[V], g[V];
    open_x(i, h[i]);
    open_dy(i, d);
    normalise<LAYER>(h[i], r, 0);
    add_dweight<T, FORM>(p, dweight.sum[i], dy[i], d, h[i]);
    weigh<T, FORM>(p, d, gain + i * block.team, block.cells);
    finish_dx<T, LAYER, FORM>(p, d, h[i], 0, c2, r, vector * V);
    keep_packed(x), keep_packed(dy), keep_packed(added); /* what follows is formed again: fewer registers */
    if (vector >= p.stored) return;
    float act[V], slope[V], given[V];
    unpack(dy[i], given);
    if (p.gate_before) {
      unpack(x[i], given);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++)
        g[j] = reinterpret_cast<const float *>(gain + i * block.team + j / 4 * block.cells)[j % 4];
      make_ungated<T>(p, h[i], g);
    }
    open_gate(i, act, slope);
    store_gated<T>(p, d, given, h[i], act, slope, to, vector);
    asm volatile("" ::: "memory"); /* one vector after the other: fewer registers */
  }
  /* dx, and what the row adds to the column sums. */
  __device__ __forceinline__ void finish(const RowTargets &to, float r, float mean, float c1, float c2,
                                         ColumnSums<NV, V> &dweight, ColumnSums<NV, V> &dbias) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      const int vector = block.first + i * block.team;
      float d[V];
      if constexpr (FORM == Form::GATED) {
        finish_gated(to, r, c2, dweight, i, vector);
        continue;
      }
      unpack(dy[i], d);
      if (h_again) {
        unpack(x[i], h[i]);
        normalise<LAYER>(h[i], r, mean);
      }
      if (u_again) {
        unpack(is_rounded(FORM) ? rounded[i] : dy[i], u[i]);
        if (!is_rounded(FORM)) weigh<T, FORM>(p, u[i], gain + i * block.team, block.cells);
      }
      add_dweight<T, FORM>(p, dweight.sum[i], dy[i], d, h[i]);
      if (DBIAS) {
#pragma unroll
        for (int j = 0; j < V; j++)
          dbias.sum[i][j] += d[j];
      }
      finish_dx<T, LAYER, FORM>(p, u[i], h[i], c1, c2, r, vector * V);
      if (FORM == Form::SHIFTED ? p.stored > 0 : vector < p.stored) store_dx<T, FORM>(p, u[i], added[i], to, vector);
      if (u_again) asm volatile("" ::: "memory"); /* one vector after the other: fewer registers */
    }
  }
};

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

template <class T, bool LAYER, bool DBIAS, bool CLUSTER, Form FORM>
__global__ void
__launch_bounds__(most_backward_threads(LAYER, DBIAS, CLUSTER, FORM, std::is_same_v<T, __half>, has_early_starts), 1)
    backward_block_kernel(const __grid_constant__ BackwardJob p) {
  using Block = BackwardBlock<T, LAYER, DBIAS, CLUSTER, FORM>;
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

  using Row = RowInRegisters<T, LAYER, DBIAS, CLUSTER, FORM>;
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
    Row row = {p, block, sums, block.gain(shared), calm};
    const char *from = block.ring(shared) + stage * stage_bytes;
    if constexpr (FORM == Form::SHIFTED)
      row.take_shifted(from, place());
    else
      row.take(from);
    if (Block::options && !saved) st = row_statistic<false>(norm_of<LAYER, FORM>(p), row);
    float v[SUMS * NV];
    row.sum_up(st.r, st.mean, v);
    sums.template publish<Add>(v);
    if (!late) block.fill(p, shared, round + stages, stage, round + stages < rounds); /* all have read the stage */
    RowTargets to;
    if (Row::aims_early) {
      to = targets_of<FORM>(p, place());
      asm volatile("" : "+l"(to.dx));
    }
    const float2 sum = sums.template collect<Add>();
    const bool in_range = sum_in_range(sum.x) && (!layer || sum_in_range(sum.y));
    /* no short cuts: they would be branches, which every row waits for */
    if (__builtin_expect((r_in_range(st.r) & (in_range | is_exact_zero(sum.x))) | is_lost(st.r), 1)) {
      float c2 = divided(sum.x, p.k, p.inverse_k);
      if (Block::options && p.eps_outside) c2 *= outside_factor(st);
      if (adds_late) row.take_added(from);
      if (!Row::aims_early) to = targets_of<FORM>(p, place());
      row.finish(to, st.r, st.mean, layer ? divided(sum.y, p.k, p.inverse_k) : 0.0f, c2, dweight, dbias);
    } else if (block.t == 0) { /* it comes after the others */
      block.noted(shared)[round / FLAT] |= 1u << (round % FLAT);
      atomicOr(block.any_noted(shared), 1u); /* all teams write it */
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
    for (int i = 1 + (saved ? 0 : layer ? 2 : 1) + (adds_late ? 1 : 0); i > 0; i--)
      team_sync(block.which, block.team);
  __syncthreads();
  /* the blocks of a cluster have the same rows, and so the same answer */
  if (__builtin_expect(*block.any_noted(shared) != 0, 0)) {
    scaled_rows<T, LAYER, DBIAS, CLUSTER, FORM>(p, sums.phase, sums.parity);
    __syncthreads();
  }
  block.write_partial(p, shared);
}

} // namespace rms_cuda

#endif
