/* SPDX-License-Identifier: MIT
 *
 * Backward of the common case (lean_backward.cuh) for rows of at most 32 vectors: `team` lanes share a row, each has
 * one vector of it, and asks for that of its next rows before it works on this one. */
#ifndef RMS_CUDA_SHORT_BACKWARD_CUH
#define RMS_CUDA_SHORT_BACKWARD_CUH

#include "lean_backward.cuh"
#include "ring.cuh"

namespace rms_cuda {

/* Sums over the `team` lanes of ROWS rows at once. */
template <class Op, int ROWS> __device__ __forceinline__ void over_lanes(float (&a)[ROWS], int team) {
#pragma unroll
  for (int o = 16; o >= 1; o /= 2)
    if (o < team) {
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        a[r] = Op::of(a[r], __shfl_xor_sync(whole_warp, a[r], o));
    }
}

/* The gains of a lane's columns: in registers, or where these are short in shared memory. */
template <class T, int MORE> struct Gains {
  static constexpr int V = vector_of<T>, Q = V / 4, held = MORE ? 1 : V;
  float g[held];
  float4 *cells; /* MORE: Q planes of 32 */

  __device__ __forceinline__ void set(const LeanBackward &p, int first) {
    float w[V];
    load_gain<T>(p, first, w);
    if (MORE) {
      if (threadIdx.x < (unsigned)p.team) {
#pragma unroll
        for (int c = 0; c < Q; c++)
          cells[c * 32] = make_float4(w[4 * c], w[4 * c + 1], w[4 * c + 2], w[4 * c + 3]);
      }
      __syncthreads();
    } else {
#pragma unroll
      for (int j = 0; j < V; j++)
        g[j % held] = w[j];
    }
  }
  /* dy to u. */
  __device__ __forceinline__ void weigh(const LeanBackward &p, float (&u)[V]) const {
    if (MORE) {
      rms_cuda::weigh<T, MORE>(p, u, cells, 32);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++)
        u[j] *= g[j % held];
    }
  }
};

/* A row of a few lanes, in memory. */
template <class T, int MORE> struct LanesRow {
  static constexpr int V = vector_of<T>;
  const LeanBackward &p;
  RowPlace at;
  int first; /* vector of this lane */
  bool active;

  __device__ __forceinline__ int vector(int) const { return first; }
  __device__ __forceinline__ unsigned mask(int) const { return counted_mask<T, MORE>(p, first); }
  __device__ __forceinline__ void load(int, const Rows &rows, Packed<T, V> &v) const {
    clear(v);
    if (active && first < p.vectors) load_vector<true, true>(v, row_at<MORE>(rows, at) + first * 16, V);
  }
  __device__ __forceinline__ void load_x(int i, float (&x)[V]) const {
    Packed<T, V> v;
    load(i, p.x, v);
    unpack(v, x);
  }
  __device__ __forceinline__ void load_dy(int i, float (&dy)[V]) const {
    Packed<T, V> v;
    load(i, p.dy, v);
    unpack(v, dy);
  }
  __device__ __forceinline__ void load_g(int, float (&g)[V]) const { load_gain<T>(p, first, g); }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) {
    float v[1] = {of_vector(0)};
    over_lanes<Op>(v, p.team);
    return v[0];
  }
};

/* One row of each team of the warp, scaled where it is not calm: the others only keep it company, and have the bits of
 * the usual way. */
template <class T, bool LAYER, bool DBIAS, int MORE, class Cells>
__device__ __forceinline__ void scaled_lanes(const LeanBackward &p, int64_t row, int first, Cells cells) {
  const bool active = row < p.rows;
  const GuardSpec<float> spec = guard_of<LAYER, MORE>(p);
  LanesRow<T, MORE> at = {p, place_of_row<MORE>(p.inner, active ? row : 0), first, active};
  Statistic<float> own = {0, 0, 0, 1, 1};
  if (MORE == 1 && !p.rstd) {
    own = row_statistic<false>(spec, at);
  } else if (active) {
    own.r = p.rstd[row];
    if (LAYER) own.mean = p.mean[row];
  }
  const GradientSums<float> sums = row_sums<false, T>(spec, at, own, 0);
  RowFactors<float> f = scaled_factors<T>(spec, at, p.stats ? p.stats + (active ? row : 0) : nullptr);
  if (calm(spec, own.r, sums)) f = factors_of(spec, own, 0, sums, spec.k);
  finish_scaled<T, DBIAS, MORE>(p, spec, at, 0, f, cells);
}

/* The turns of a warp in which a row is not calm. A function of its own, so that the loop over the others has the
 * registers for itself. */
template <class T, bool LAYER, bool DBIAS, int MORE>
__device__ __noinline__ void scaled_turns(const LeanBackward &p, const unsigned *odd, float4 *deep, uint4 *ring) {
  constexpr int V = vector_of<T>, Q = V / 4;
  const int first = (int)threadIdx.x & (p.team - 1), teams = SHORT_THREADS / p.team;
  const int64_t stride = (int64_t)p.shares * teams, mine = (int64_t)blockIdx.x * teams;
  const int turns = rounds_from(p, mine, stride);
  /* column sums lie in the lane's own cells of the ring: nothing is on its way any more */
  static_assert(Q * (DBIAS ? 2 : 1) <= 2 * SHORT_STAGES, "the column sums of a lane fit its ring");
  auto cells = [&](int plane) -> ColumnCells<1, V> {
    return {reinterpret_cast<float4 *>(ring) + plane * Q * SHORT_THREADS, SHORT_THREADS};
  };
#pragma unroll 1
  for (int flat = 0; flat * FLAT < turns; flat++) {
    unsigned odd_turns = odd[flat];
    if (odd_turns == 0) continue;
    for (int plane = 0; plane < (DBIAS ? 2 : 1); plane++)
      cells(plane).clear();
#pragma unroll 1
    for (; odd_turns != 0; odd_turns &= odd_turns - 1)
      scaled_lanes<T, LAYER, DBIAS, MORE>(
          p, mine + threadIdx.x / (unsigned)p.team + (flat * FLAT + __ffs((int)odd_turns) - 1) * stride, first, cells);
    for (int plane = 0; plane < (DBIAS ? 2 : 1); plane++)
      cells(plane).flush(deep + plane * Q * SHORT_THREADS, true);
  }
}

/* The statistic of a row that was not saved. Where its sum is out of range, r is not calm, or eps outweighs the sum. */
template <bool LAYER, int V>
__device__ __forceinline__ void measure_lanes(const LeanBackward &p, const float (&x)[V], int first, float &r,
                                              float &mean) {
  float f[V], a[1] = {0};
#pragma unroll
  for (int j = 0; j < V; j++)
    f[j] = x[j];
  keep_leading<true>(p, f, first * V);
  mean = 0;
  if (LAYER) {
#pragma unroll
    for (int j = 0; j < V; j++)
      a[0] += f[j];
    over_lanes<Add>(a, p.team);
    mean = quotient(a[0], p.k);
    a[0] = 0;
  }
#pragma unroll
  for (int j = 0; j < V; j++) {
    const float d = LAYER ? f[j] - mean : f[j];
    a[0] = fused(d, d, a[0]);
  }
  if (first >= p.vectors) a[0] = 0;
  over_lanes<Add>(a, p.team);
  const float root = square_root(quotient(a[0], p.k) + p.eps);
  r = root == 0 ? 0.0f : quotient(1.0f, root); /* of lanes without a row too */
}

/* The saved statistic of a row. */
template <bool LAYER, int MORE> struct Saved {
  float r, mean;

  __device__ __forceinline__ void load(const LeanBackward &p, int64_t row) {
    r = 1, mean = 0;
    if (row >= p.rows || (MORE == 1 && !p.rstd)) return;
    r = p.rstd[row];
    if (LAYER) mean = p.mean[row];
  }
};

/* What a lane has of a row: it asks for it some rows ahead, and gets it back from its own cells. */
template <class T, int MORE> struct Piece {
  Packed<T, vector_of<T>> x[1], dy[1];

  /* Zeros where there is nothing. */
  static __device__ __forceinline__ void request(const LeanBackward &p, uint4 *cell, int64_t row, int first) {
    const bool active = row < p.rows && first < p.vectors;
    const RowPlace at = place_of_row<MORE>(p.inner, active ? row : 0);
    const int bytes = active ? 16 : 0, skip = active ? first * 16 : 0;
    copy_ahead(cell, row_at<MORE>(p.x, at) + skip, bytes);
    copy_ahead(cell + SHORT_THREADS, row_at<MORE>(p.dy, at) + skip, bytes);
  }
  __device__ __forceinline__ void take(const uint4 *cell) {
    take_cell(x[0], cell);
    take_cell(dy[0], cell + SHORT_THREADS);
  }
};

/* The sums of a block: of the lanes of a warp that have the same columns, then of its warps. */
template <int V> __device__ __forceinline__ void write_lanes(float *to, float4 *cells, int team, int vectors) {
  const int lane = (int)threadIdx.x & 31;
  float sum[V];
  ColumnCells<1, V>{cells + threadIdx.x, SHORT_THREADS}.get(0, sum);
  __syncthreads();
#pragma unroll
  for (int j = 0; j < V; j++)
#pragma unroll
    for (int o = 16; o >= 1; o /= 2)
      if (o >= team) sum[j] += __shfl_xor_sync(whole_warp, sum[j], o);
  if (lane < team) ColumnCells<1, V>{cells + (int)threadIdx.x / 32 * team + lane, SHORT_THREADS}.set(0, sum);
  __syncthreads();
  write_columns<1, V / 4>(to, cells, team, SHORT_THREADS / 32, vectors);
}

/* Blocks of an SM: as many as there are registers for. */
template <bool LAYER, int MORE> constexpr int short_backward_blocks = (LAYER && MORE != 0) ? 1 : SHORT_BLOCKS;

template <class T, bool LAYER, bool DBIAS, int MORE>
__global__ void __launch_bounds__(SHORT_THREADS, short_backward_blocks<LAYER, MORE>)
    short_backward_kernel(const __grid_constant__ LeanBackward p) {
  constexpr int V = vector_of<T>, Q = V / 4;
  __shared__ float4 cells[(DBIAS ? 2 : 1) * Q * SHORT_THREADS];
  /* turns of a warp with rows that are not calm, which come last; behind them: whether there are any */
  __shared__ unsigned odd[SHORT_THREADS / 32][DEEP + 1];
  const int first = (int)threadIdx.x & (p.team - 1), teams = SHORT_THREADS / p.team;
  const int64_t stride = (int64_t)p.shares * teams;
  float4 *deep = cells + threadIdx.x;
  extern __shared__ uint4 short_ring[]; /* stages of two cells a thread */
  uint4 *ring = short_ring + threadIdx.x;
  __shared__ float4 shared_gain[MORE ? Q * 32 : 1];
  Gains<T, MORE> gains;
  gains.cells = shared_gain + first;
  if (threadIdx.x % 32 <= DEEP) odd[threadIdx.x / 32][threadIdx.x % 32] = 0;
  __syncwarp();
  int64_t row = (int64_t)blockIdx.x * teams + threadIdx.x / (unsigned)p.team;
  if (first < p.vectors) {
#pragma unroll 1
    for (int i = 0; i < p.ahead && row + i * stride < p.rows; i++) {
      const RowPlace at = place_of_row<MORE>(p.inner, row + i * stride);
      prefetch_line(row_at<MORE>(p.x, at) + first * 16);
      prefetch_line(row_at<MORE>(p.dy, at) + first * 16);
      if (MORE != 1 || p.rstd) prefetch_line(reinterpret_cast<const char *>(p.rstd + row + i * stride));
      if (LAYER && (MORE != 1 || p.mean)) prefetch_line(reinterpret_cast<const char *>(p.mean + row + i * stride));
    }
  }
  wait_for_previous();
  let_next_start();
  const int turns = rounds_from(p, (int64_t)blockIdx.x * teams, stride);
#pragma unroll 1
  for (int i = 0; i < SHORT_STAGES - 1; i++) {
    if (i < turns) Piece<T, MORE>::request(p, ring + i * 2 * SHORT_THREADS, row + i * stride, first);
    end_of_copies();
  }
  Saved<LAYER, MORE> next;
  next.load(p, row);
  gains.set(p, first);
  ColumnSums<1, V> dweight, dbias;
  dweight.clear();
  dbias.clear();
#pragma unroll 1
  for (int turn = 0; turn < turns; turn++, row += stride) {
    if (turn + SHORT_STAGES - 1 < turns)
      Piece<T, MORE>::request(p, ring + (turn + SHORT_STAGES - 1) % SHORT_STAGES * 2 * SHORT_THREADS,
                              row + (SHORT_STAGES - 1) * stride, first);
    end_of_copies();
    Saved<LAYER, MORE> saved = next;
    next.load(p, row + stride);
    wait_for_stage(SHORT_STAGES);
    Piece<T, MORE> now;
    now.take(ring + turn % SHORT_STAGES * 2 * SHORT_THREADS);
    float h[V], u[V], a[1] = {0}, b[1] = {0};
    unpack(now.x[0], h);
    unpack(now.dy[0], u);
    if (MORE == 1 && !p.rstd) measure_lanes<LAYER>(p, h, first, saved.r, saved.mean);
    normalise<LAYER>(h, saved.r, saved.mean);
    gains.weigh(p, u);
#pragma unroll
    for (int j = 0; j < V; j++) {
      a[0] = fused(u[j], h[j], a[0]);
      if (LAYER) b[0] += u[j];
    }
    keep_packed(now.dy);
    if (MORE) keep_packed(now.x);
    over_lanes<Add>(a, p.team);
    if (LAYER) over_lanes<Add>(b, p.team);
    const bool good = row >= p.rows || (calm_r(saved.r) && calm_sum(a[0]) && (!LAYER || calm_sum(b[0])));
    if (__builtin_expect(__all_sync(whole_warp, good), 1)) {
      const float c2 = divided(a[0], p.k, p.inverse_k), c1 = LAYER ? divided(b[0], p.k, p.inverse_k) : 0.0f;
      float d[V];
      unpack(now.dy[0], d);
      if (MORE) { /* again, to have fewer registers in between */
        unpack(now.x[0], h);
        normalise<LAYER>(h, saved.r, saved.mean);
        unpack(now.dy[0], u);
        gains.weigh(p, u);
      }
      add_dweight<T, MORE>(p, dweight.sum[0], now.dy[0], d, h);
      if (DBIAS) {
#pragma unroll
        for (int j = 0; j < V; j++)
          dbias.sum[0][j] += d[j];
      }
      finish_dx<LAYER, MORE>(p, u, h, c1, c2, saved.r, first * V);
      if (first < p.stored && row < p.rows) {
        const RowPlace at = place_of_row<MORE>(p.inner, row);
        if (MORE == 1 && p.added.data) load_vector<true, true>(now.x[0], row_at<MORE>(p.added, at) + first * 16, V);
        store_dx<MORE>(p, u, now.x[0], row_at<MORE>(p.dx, at) + first * 16, row_at<MORE>(p.copy, at) + first * 16);
      }
    } else if (threadIdx.x % 32 == 0) {
      odd[threadIdx.x / 32][turn / FLAT] |= 1u << turn % FLAT;
      odd[threadIdx.x / 32][DEEP] = 1;
    }
    if (turn % FLAT == FLAT - 1) {
      dweight.flush(deep, SHORT_THREADS, turn >= FLAT);
      if (DBIAS) dbias.flush(deep + Q * SHORT_THREADS, SHORT_THREADS, turn >= FLAT);
    }
  }
  if (turns % FLAT != 0 || turns <= 0) {
    dweight.flush(deep, SHORT_THREADS, turns > FLAT);
    if (DBIAS) dbias.flush(deep + Q * SHORT_THREADS, SHORT_THREADS, turns > FLAT);
  }
  __syncwarp();
  if (__builtin_expect(odd[threadIdx.x / 32][DEEP] != 0, 0))
    scaled_turns<T, LAYER, DBIAS, MORE>(p, odd[threadIdx.x / 32], deep, ring);
  const int64_t width = (int64_t)p.vectors * V;
  float *to = p.partial + blockIdx.x * width;
  if (p.want_dweight) {
    write_lanes<V>(to, cells, p.team, p.vectors);
    to += p.shares * width;
  }
  if (DBIAS && p.want_dbias) write_lanes<V>(to, cells + Q * SHORT_THREADS, p.team, p.vectors);
}

} // namespace rms_cuda

#endif
