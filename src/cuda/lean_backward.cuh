/* SPDX-License-Identifier: MIT
 *
 * Backward of the common case: aligned rows, one weight for all, eps inside the root. Persistent blocks whose teams
 * walk the rows; rows come through a ring of stages that bulk copies fill ahead. The arithmetic is that of
 * backward.cuh.
 *
 * dweight and dbias are summed over FLAT rows in registers, then over at most DEEP such sums in shared memory, all in
 * f32: no chain is longer than 64.
 *
 * T: data type. NV: vectors of a thread. MORE: what else there may be, decided at run time: rounding before the weight,
 * a statistic of the leading elements alone, or one that was not saved, something to be added to dx, two distances
 * between rows. Without it rows are at one distance, their statistics are saved, the whole row is in them. */
#ifndef RMS_CUDA_LEAN_BACKWARD_CUH
#define RMS_CUDA_LEAN_BACKWARD_CUH

#include "lean_scaled.cuh"

namespace rms_cuda {

/* The most threads of a block, which decides how many registers a thread has: 96, or 128 where it needs them. At 96 a
 * block of finish_kernel fits beside it. Older chips than sm_90 are compiled for, but never launch it. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool has_overlap = false;
#else
constexpr bool has_overlap = true;
#endif
template <bool LAYER, bool DBIAS, bool CLUSTER, int MORE>
constexpr int backward_threads =
    !has_overlap || (LAYER && (MORE || (CLUSTER && !DBIAS))) ? (int)BACKWARD_TEAM : (int)BACKWARD_THREADS;

/* ---- the kernel ---- */

/* The statistic of a row that was not saved. Where its sum is out of range, r is not calm, or eps outweighs the sum. */
template <bool LAYER, class T, int V, int NV, int SUMS, int PANELS, bool CLUSTER>
__device__ __forceinline__ void measure_row(const LeanBackward &p, RowSums<NV, SUMS, PANELS, CLUSTER> &sums,
                                            const Packed<T, V> (&x)[NV], int first, float &r, float &mean) {
  float total = 0;
  mean = 0;
#pragma unroll 1
  for (int squares = LAYER ? 0 : 1; squares < 2; squares++) {
    float v[SUMS * NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float a = 0, f[V];
      unpack(x[i], f);
      keep_leading<true>(p, f, (first + i * sums.team) * V);
#pragma unroll
      for (int j = 0; j < V; j++) {
        const float d = LAYER ? f[j] - mean : f[j];
        a = squares ? fused(d, d, a) : a + d;
      }
      v[i] = first + i * sums.team < p.vectors ? a : 0.0f;
      if (LAYER) v[NV * (SUMS - 1) + i] = 0;
    }
    total = sums.template of<Add>(v).x;
    if (LAYER && !squares) mean = quotient(total, p.k);
  }
  r = quotient(1.0f, square_root(quotient(total, p.k) + p.eps));
}

/* h, u and dy stay in registers between the two passes over a row, or x and dy do, packed, to make room. */
template <class T, int NV, bool LAYER, bool DBIAS, bool CLUSTER, int MORE>
__global__ void __launch_bounds__(backward_threads<LAYER, DBIAS, CLUSTER, MORE>, 1)
    lean_backward_kernel(const __grid_constant__ LeanBackward p) {
  using Block = BackwardBlock<T, NV, LAYER, DBIAS, CLUSTER, MORE>;
  constexpr int V = Block::V, Q = Block::Q, PANELS = Block::PANELS, SUMS = Block::SUMS;
  constexpr bool AGAIN = MORE, AGAIN_U = MORE || DBIAS; /* h, u: computed twice, to need fewer registers */
  extern __shared__ __align__(128) char shared[];
  const Block block(p);
  const BackwardShared &where = block.where;
  const int team = block.team, cells = block.cells, teams = block.teams, stages = block.stages, group = block.group,
            t = block.t, rank = block.rank, share = block.share, first = block.first, own = block.own,
            streams = block.streams, mine = block.mine, stride = block.stride;
  uint64_t *barriers = block.barriers(shared), *full = barriers + group * stages;
  float *chunks = block.chunks(shared);
  float4 *gain = block.gain(shared);
  /* what follows from this is worked out anew where it is needed: it is not worth a register in the loop */
  auto this_thread = []() -> unsigned {
    unsigned thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
  };
  auto deep = [&]() -> float4 * { return reinterpret_cast<float4 *>(shared + where.deep) + this_thread(); };
  typename Block::Sums sums = block.sums(p, shared, 0, 0);
  const int rounds = rounds_from(p, mine, stride);
  const int most_rounds = rounds_from(p, share * teams, stride); /* of the block's first team */
  const int stage_bytes = streams * cells * 16;
  char *ring = shared + where.ring + group * stages * stage_bytes;

  if (threadIdx.x == 0) start_barriers(barriers, teams * stages + 2);
  /* what no copy and no sum will write */
  for (int i = (int)threadIdx.x; i < teams * 2 * SUMS * PANELS * 32; i += (int)blockDim.x)
    chunks[i] = 0;
  for (int i = (int)threadIdx.x; i < teams * DEEP + 1; i += (int)blockDim.x) /* and any_odd behind them */
    reinterpret_cast<unsigned *>(shared + where.odd)[i] = 0;
  for (int i = own + t; i < cells; i += team)
    for (int s = 0; s < streams * stages; s++)
      *reinterpret_cast<uint4 *>(ring + (s * cells + i) * 16) = make_uint4(0, 0, 0, 0);
  __syncthreads();
  if (CLUSTER) cluster_arrive();
  const bool issuer = t == team - 32; /* not of the first warp, which sends the sums to the other blocks */
  const int skip = rank * cells * 16; /* of a row, to this block's part */
  if (issuer)
#pragma unroll 1
    for (int i = 0; i < p.ahead && i < rounds; i++) {
      const RowPlace row = place_of_row<MORE>(p.inner, mine + (int64_t)i * stride);
      prefetch_bulk(row_at<MORE>(p.x, row) + skip, own * 16);
      prefetch_bulk(row_at<MORE>(p.dy, row) + skip, own * 16);
    }
  wait_for_previous();
  let_next_start();

  auto request = [&](int round, int stage) {
    const RowPlace row = place_of_row<MORE>(p.inner, mine + (int64_t)round * stride);
    char *to = ring + stage * stage_bytes;
    expect_bytes(full + stage, own * 16 * streams);
    copy_bulk<false>(to, row_at<MORE>(p.x, row) + skip, own * 16, full + stage);
    copy_bulk<false>(to + cells * 16, row_at<MORE>(p.dy, row) + skip, own * 16, full + stage);
    if (streams == 3) copy_bulk<false>(to + 2 * cells * 16, row_at<MORE>(p.added, row) + skip, own * 16, full + stage);
  };
  if (issuer)
#pragma unroll 1
    for (int i = 0; i < stages && i < rounds; i++)
      request(i, i);
  if (group == 0) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float g[V];
      load_gain<T>(p, first + i * team, g);
#pragma unroll
      for (int c = 0; c < Q; c++)
        gain[c * cells + i * team] = make_float4(g[4 * c], g[4 * c + 1], g[4 * c + 2], g[4 * c + 3]);
    }
  }
  __syncthreads();
  if (CLUSTER) cluster_wait();

  const bool saved = MORE != 1 || p.rstd;
  /* What all threads of a warp load alike the compiler keeps in a uniform register, and waits for it at once: here it
   * does not know. */
  auto always_zero = [&]() -> unsigned { return this_thread() >= blockDim.x ? 1 : 0; };
  float next_r = 0, next_mean = 0;
  if (saved && rounds > 0) {
    next_r = p.rstd[mine + always_zero()];
    if (LAYER) next_mean = p.mean[mine + always_zero()];
  }
  ColumnSums<NV, V> dweight, dbias;
  dweight.clear();
  if (DBIAS) dbias.clear();
  int stage = 0, turn = 0;
  /* rounds that are not calm, FLAT to a word; they come after the others */
  unsigned *odd_rows = reinterpret_cast<unsigned *>(shared + where.odd) + group * DEEP;
  const bool late = !LAYER && p.late;
  int64_t at = mine;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    float r = next_r, mean = next_mean;
    const RowPlace row = place_of_row<MORE>(p.inner, at);
    at += stride;
    if (saved && round + 1 < rounds) {
      next_r = p.rstd[at + always_zero()];
      if (LAYER) next_mean = p.mean[at + always_zero()];
    }
    wait_for_copies(full + stage, turn);
    const uint4 *cell = reinterpret_cast<const uint4 *>(ring + stage * stage_bytes) + t;
    Packed<T, V> x[NV], dy[NV], added[NV], kept[NV];
    float h[NV][V], u[NV][V], v[SUMS * NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      take_cell(x[i], cell + i * team);
      take_cell(dy[i], cell + cells + i * team);
      if (MORE == 1 && streams == 3) take_cell(added[i], cell + 2 * cells + i * team);
    }
    if (MORE == 1 && !saved) measure_row<LAYER>(p, sums, x, first, r, mean);
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float a = 0, b = 0;
      unpack(x[i], h[i]);
      unpack(dy[i], u[i]);
      normalise<LAYER>(h[i], r, mean);
      if (MORE == 2) { /* u is of the type: it is kept */
        weigh<T, 0>(p, u[i], gain + i * team, cells);
        pack(kept[i], u[i]);
        unpack(kept[i], u[i]);
      } else {
        weigh<T, MORE>(p, u[i], gain + i * team, cells);
      }
#pragma unroll
      for (int j = 0; j < V; j++) {
        a = fused(u[i][j], h[i][j], a);
        if (LAYER) b += u[i][j];
      }
      v[i] = a;
      if (LAYER) v[NV * (SUMS - 1) + i] = b;
    }
    if (AGAIN) keep_packed(x);
    if (MORE == 2) keep_packed(kept);
    keep_packed(dy);
    sums.template publish<Add>(v);
    if (!late && issuer && round + stages < rounds) request(round + stages, stage); /* all have read the stage */
    const float2 sum = sums.template collect<Add>();
    if (__builtin_expect(calm_r(r) && calm_sum(sum.x) && (!LAYER || calm_sum(sum.y)), 1)) {
      const float c2 = divided(sum.x, p.k, p.inverse_k), c1 = LAYER ? divided(sum.y, p.k, p.inverse_k) : 0.0f;
      char *to = row_at<MORE>(p.dx, row) + first * 16, *copy = row_at<MORE>(p.copy, row) + first * 16;
#pragma unroll
      for (int i = 0; i < NV; i++) {
        float d[V];
        unpack(dy[i], d);
        if (AGAIN) {
          unpack(x[i], h[i]);
          normalise<LAYER>(h[i], r, mean);
        }
        if (AGAIN_U) {
          unpack(MORE == 2 ? kept[i] : dy[i], u[i]);
          if (MORE != 2) weigh<T, MORE>(p, u[i], gain + i * team, cells);
        }
        add_dweight<T, MORE>(p, dweight.sum[i], dy[i], d, h[i]);
        if (DBIAS) {
#pragma unroll
          for (int j = 0; j < V; j++)
            dbias.sum[i][j] += d[j];
        }
        finish_dx<LAYER, MORE>(p, u[i], h[i], c1, c2, r, (first + i * team) * V);
        if (first + i * team < p.stored) store_dx<MORE>(p, u[i], added[i], to + i * team * 16, copy + i * team * 16);
        if (AGAIN_U) asm volatile("" ::: "memory"); /* one vector after the other: fewer registers */
      }
    } else if (t == 0) {
      odd_rows[round / FLAT] |= 1u << (round % FLAT);
      atomicOr(reinterpret_cast<unsigned *>(shared + where.any_odd), 1u); /* all teams write it */
    }
    if (late && issuer && round + stages < rounds) request(round + stages, stage);
    if (++stage == stages) stage = 0, turn ^= 1;
    if (__builtin_expect(round % FLAT == FLAT - 1 || round + 1 == rounds, 0)) {
      dweight.flush(deep(), (int)blockDim.x, round >= FLAT);
      if (DBIAS) dbias.flush(deep() + NV * Q * (int)blockDim.x, (int)blockDim.x, round >= FLAT);
    }
  }
  if (rounds <= 0) {
    dweight.flush(deep(), (int)blockDim.x, false);
    if (DBIAS) dbias.flush(deep() + NV * Q * (int)blockDim.x, (int)blockDim.x, false);
  }
  if (rounds < most_rounds) /* through the same number of barriers as the first team */
    for (int i = saved ? 1 : SUMS + 1; i > 0; i--)
      team_sync(group, team);
  __syncthreads();
  /* the blocks of a cluster have the same rows, and so the same answer */
  if (__builtin_expect(*reinterpret_cast<const unsigned *>(shared + where.any_odd) != 0, 0)) {
    scaled_rows<T, NV, LAYER, DBIAS, CLUSTER, MORE>(p, sums.phase, sums.parity);
    __syncthreads();
  }
  const float4 *all = reinterpret_cast<const float4 *>(shared + where.deep);
  const int64_t width = (int64_t)p.vectors * V;
  float *to = p.partial + share * width + (int64_t)rank * cells * V;
  if (p.want_dweight) {
    write_columns<NV, Q>(to, all, team, teams, own);
    to += p.shares * width;
  }
  if (DBIAS && p.want_dbias) write_columns<NV, Q>(to, all + NV * Q * (int)blockDim.x, team, teams, own);
}

} // namespace rms_cuda

#endif
