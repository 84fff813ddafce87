/* SPDX-License-Identifier: MIT
 *
 * Backward of aligned rows of at most 32 vectors: `team` lanes share a row, each has one vector of it, and asks for
 * that of its next rows before it works on this one. Template parameters as in backward_block.cuh. */
#ifndef RMS_CUDA_BACKWARD_WARP_CUH
#define RMS_CUDA_BACKWARD_WARP_CUH

#include "backward_gated.cuh"
#include "backward_scaled.cuh"
#include "copies.cuh"
#include "start.cuh"

namespace rms_cuda {

/* Which rows a lane has: every `stride`-th of a slice from `row`; those of the block begin at `block_row`. */
template <Form FORM> struct WarpPlace {
  int first; /* vector of this lane */
  int teams, share, slice;
  int64_t stride, block_row, row;

  __device__ __forceinline__ explicit WarpPlace(const BackwardJob &p) {
    first = (int)threadIdx.x & (p.team - 1), teams = warp_backward_threads(FORM) / p.team;
    share = (int)blockIdx.x, slice = 0;
    if (has_options(FORM)) slice = share / p.shares, share -= slice * p.shares;
    stride = (int64_t)p.shares * teams, block_row = (int64_t)share * teams;
    row = block_row + threadIdx.x / (unsigned)p.team;
  }
};

/* The gains of a lane's columns: in registers, or where these are short in shared memory. */
template <class T, Form FORM> struct Gains {
  static constexpr bool in_registers = FORM == Form::COMMON;
  static constexpr int V = vector_of<T>, Q = V / 4, held = in_registers ? V : 1;
  float g[held];
  float4 *cells; /* Q planes of 32 */

  __device__ __forceinline__ void set(const BackwardJob &p, int slice, int first) {
    float w[V];
    load_gain<T, FORM>(p, slice, first, w);
    if (in_registers) {
#pragma unroll
      for (int j = 0; j < V; j++)
        g[j % held] = w[j];
    } else {
      if (threadIdx.x < (unsigned)p.team) {
#pragma unroll
        for (int c = 0; c < Q; c++)
          cells[c * 32] = make_float4(w[4 * c], w[4 * c + 1], w[4 * c + 2], w[4 * c + 3]);
      }
      __syncthreads();
    }
  }
  /* dy to u. */
  __device__ __forceinline__ void weigh(const BackwardJob &p, float (&u)[V]) const {
    if (in_registers) {
#pragma unroll
      for (int j = 0; j < V; j++)
        u[j] *= g[j % held];
    } else {
      rms_cuda::weigh<T, FORM>(p, u, cells, 32);
    }
  }
};

/* Sums over the lanes of a row, for the range guard. */
template <class T, Form FORM> struct LaneGuardSums {
  const BackwardJob &p;
  int slice, first;

  __device__ __forceinline__ void gain(int, float (&g)[vector_of<T>]) const { load_gain<T, FORM>(p, slice, first, g); }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) {
    float v[1] = {of_vector(0)};
    over_lanes<Op>(v, p.team);
    return v[0];
  }
};

/* ---- rows out of range ---- */

/* One row of each team of the warp, scaled where it is out of range: the others only keep it company, and have the bits
 * of the usual way. */
template <class T, bool LAYER, bool DBIAS, Form FORM, class Cells>
__device__ __forceinline__ void scaled_lanes(const BackwardJob &p, const WarpPlace<FORM> &lane, int64_t row,
                                             Cells cells) {
  const bool active = row < p.rows;
  const Norm<float> norm = norm_of<LAYER, FORM>(p);
  const int64_t known = active ? row : 0, index = index_of_row<FORM>(p, known, lane.slice);
  LaneGuardSums<T, FORM> over = {p, lane.slice, lane.first};
  RowInMemory<T, FORM, LaneGuardSums<T, FORM>> at = {p,          over,   place_in_slice<FORM>(p, known, lane.slice),
                                                     lane.first, p.team, active};
  Statistic<float> own = {0, 0, 0, 1, 1, 0};
  if (!has_saved<FORM>(p)) {
    own = row_statistic<false>(norm, at);
  } else if (active) {
    own.r = p.rstd[index];
    if (norm.layer) own.mean = p.mean[index];
  }
  const GradientSums<float> sums = row_sums<false, T>(norm, at, own, 0);
  RowFactors<float> f = scaled_factors<T>(norm, at, p.stats ? p.stats + index : nullptr);
  const bool zeros = row_adds_zeros<T>(norm, at, own) && r_in_range(own.r);
  if (zeros || row_in_range(norm, own.r, sums)) f = factors_of(norm, own, 0, sums, norm.k);
  finish_scaled<T, DBIAS, FORM>(p, norm, at, 0, f, cells);
}

/* The turns of a warp in which a row is out of range. A function of its own, so that the loop over the others has the
 * registers for itself. */
template <class T, bool LAYER, bool DBIAS, Form FORM>
__device__ __noinline__ void scaled_turns(const BackwardJob &p, const unsigned *noted, float4 *deep, uint4 *ring) {
  constexpr int V = vector_of<T>, Q = V / 4, threads = warp_backward_threads(FORM);
  const WarpPlace<FORM> lane(p);
  const int turns = rounds_from(p, lane.block_row, lane.stride);
  /* column sums lie in the lane's own cells of the ring: nothing is on its way any more */
  static_assert(Q * (DBIAS ? 2 : 1) <= 2 * warp_stages(FORM), "the column sums of a lane fit its ring");
  auto cells = [&](int plane) -> ColumnCells<1, V> {
    return {reinterpret_cast<float4 *>(ring) + plane * Q * threads, threads};
  };
#pragma unroll 1
  for (int flat = 0; flat * FLAT < turns; flat++) {
    unsigned left = noted[flat];
    if (left == 0) continue;
    for (int plane = 0; plane < (DBIAS ? 2 : 1); plane++)
      cells(plane).clear();
#pragma unroll 1
    for (; left != 0; left &= left - 1)
      scaled_lanes<T, LAYER, DBIAS, FORM>(p, lane, lane.row + (flat * FLAT + __ffs((int)left) - 1) * lane.stride,
                                          cells);
    for (int plane = 0; plane < (DBIAS ? 2 : 1); plane++)
      cells(plane).flush(deep + plane * Q * threads, true);
  }
}

/* ---- rows in range ---- */

/* The saved statistic of a row, which comes as the row does: each lane asks for it some rows ahead. */
template <bool LAYER, Form FORM> struct LaneSaved {
  static constexpr int threads = warp_backward_threads(FORM), planes = LAYER ? 2 : 1, stage_words = planes * threads;

  static __device__ __forceinline__ void request(const BackwardJob &p, float *word, int64_t row, int slice) {
    if (!has_saved<FORM>(p)) return;
    const int bytes = row < p.rows ? 4 : 0;
    const int64_t index = index_of_row<FORM>(p, row < p.rows ? row : 0, slice);
    copy_word_ahead(word, p.rstd + index, bytes);
    if (is_layer<LAYER, FORM>(p)) copy_word_ahead(word + threads, p.mean + index, bytes);
  }
  static __device__ __forceinline__ Statistic<float> take(const BackwardJob &p, const float *word) {
    return {0, is_layer<LAYER, FORM>(p) ? word[(planes - 1) * threads] : 0.0f, 0, word[0], 1, 0};
  }
};

/* What a lane has of a row: it asks for it some rows ahead, and gets it back from its own cells. */
template <class T, Form FORM> struct LaneRow {
  static constexpr int V = vector_of<T>;
  using S = sum_of<T, FORM>;
  static constexpr int wide = V * (int)sizeof(S) / 16, pitch = warp_backward_threads(FORM); /* cells of x */
  static constexpr bool shifted = is_shifted(FORM), gated = is_gated(FORM);
  /* shifted: behind x and dy the pieces beyond the last vectors; gated: the gate */
  static constexpr int cells = shifted ? 4 : gated ? 3 : wide + 1;
  static constexpr bool options = has_options(FORM);
  Packed<S, V> x[1];
  Packed<T, V> dy[1];
  float act[gated ? V : 1], slope[gated ? V : 1];

  /* Of a row that is not aligned: a piece of each lane, and of the lane with the last vector one more; nothing beyond
   * the row, but zeros. */
  static __device__ __forceinline__ void request_pieces(const BackwardJob &p, uint4 *cell, const char *row, int first) {
    const int shift = shift_of(row), end = p.bytes + shift, at = first * 16;
    copy_ahead(cell, row - shift + at, end - at < 16 ? end - at : 16);
    if (first == p.vectors - 1)
      copy_ahead(cell + 2 * pitch, row - shift + (end > at + 16 ? at + 16 : at), end > at + 16 ? end - at - 16 : 0);
  }
  static __device__ __forceinline__ void take_pieces(const BackwardJob &p, Packed<T, V> &v, const uint4 *cell,
                                                     const char *row, int first) {
    put_together(v.w, {cell[0], first == p.vectors - 1 ? cell[2 * pitch] : cell[1]}, (unsigned)shift_of(row));
  }
  __device__ __forceinline__ void take_shifted(const BackwardJob &p, const uint4 *cell, int64_t row, int slice,
                                               int first) {
    const bool active = row < p.rows;
    const RowPlace at = place_in_slice<FORM>(p, active ? row : 0, slice);
    if (first >= p.vectors) cell -= first - (p.vectors - 1); /* lanes without a vector look at nothing new */
    take_pieces(p, x[0], cell, row_at<options>(p.x, at), first);
    take_pieces(p, dy[0], cell + pitch, row_at<options>(p.dy, at), first);
    if (!active || first >= p.vectors) clear(x[0]), clear(dy[0]);
  }

  /* Zeros where there is nothing. */
  static __device__ __forceinline__ void request(const BackwardJob &p, uint4 *cell, int64_t row, int slice, int first) {
    const bool active = row < p.rows && first < p.vectors;
    const RowPlace at = place_in_slice<FORM>(p, active ? row : 0, slice);
    if constexpr (shifted) {
      if (!active) return;
      request_pieces(p, cell, row_at<options>(p.x, at), first);
      request_pieces(p, cell + pitch, row_at<options>(p.dy, at), first);
      return;
    }
    const int bytes = active ? 16 : 0, skip = active ? first : 0;
    const bool is_f32 = wide > 1 && p.x_is_f32;
#pragma unroll
    for (int c = 0; c < wide; c++)
      if (c == 0 || is_f32)
        copy_ahead(cell + c * pitch, row_at<options>(p.x, at) + skip * (is_f32 ? 16 * wide : 16) + c * 16, bytes);
    copy_ahead(cell + wide * pitch, row_at<options>(p.dy, at) + skip * 16, bytes);
    if (gated) copy_ahead(cell + 2 * pitch, row_at<options>(p.added, at) + skip * 16, bytes);
  }
  __device__ __forceinline__ void take(const BackwardJob &p, const uint4 *cell, int64_t row, int slice, int first) {
    if constexpr (shifted) {
      take_shifted(p, cell, row, slice, first);
      return;
    }
    if constexpr (gated) {
      Packed<T, V> gate;
      take_cell(gate, cell + 2 * pitch);
      activate(gate, p.sigmoid, act, slope);
      asm volatile("" ::: "memory"); /* what follows is taken when there are registers for it */
    }
    take_cell(dy[0], cell + wide * pitch);
    if constexpr (gated) open_gate<T, FORM>(p, dy[0], act);
    if constexpr (wide > 1) {
      if (!p.x_is_f32) {
        Packed<T, V> narrow;
        float f[V];
        take_cell(narrow, cell);
        unpack(narrow, f);
        pack(x[0], f);
        return;
      }
    }
    take_cell(x[0], cell, pitch);
  }
  /* x and dy as the norm has them. */
  __device__ __forceinline__ void open(float (&h)[V], float (&u)[V]) const {
    if constexpr (gated) {
      opened_x<T, FORM>(x[0], act, h);
      opened_dy<T, FORM>(dy[0], act, u);
    } else {
      unpack(x[0], h);
      unpack(dy[0], u);
    }
  }
};

/* A row of lanes in registers, for its statistic. */
template <class T, Form FORM> struct LaneValues {
  static constexpr int V = vector_of<T>;
  const BackwardJob &p;
  int first;
  const float (&x)[V];

  __device__ __forceinline__ unsigned mask(int) const { return counted_mask<T, FORM>(p, first); }
  __device__ __forceinline__ bool counts_all() const { return p.whole; }
  __device__ __forceinline__ void load_x(int, float (&f)[V]) const {
#pragma unroll
    for (int j = 0; j < V; j++)
      f[j] = x[j];
  }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) const {
    float v[1] = {of_vector(0)};
    over_lanes<Op>(v, p.team);
    return v[0];
  }
};

/* The sums of a block: of the lanes of a warp that have the same columns, then of its warps. */
template <int V, int THREADS>
__device__ __forceinline__ void write_lanes(float *to, float4 *cells, int team, int vectors) {
  constexpr int warps = THREADS / 32;
  const int lane = (int)threadIdx.x & 31;
  float sum[V];
  ColumnCells<1, V>{cells + threadIdx.x, THREADS}.get(0, sum);
  __syncthreads();
#pragma unroll
  for (int j = 0; j < V; j++)
#pragma unroll
    for (int o = 16; o >= 1; o /= 2)
      if (o >= team) sum[j] += __shfl_xor_sync(whole_warp, sum[j], o);
  if (lane < team) ColumnCells<1, V>{cells + (int)threadIdx.x / 32 * team + lane, THREADS}.set(0, sum);
  __syncthreads();
  /* a column for each thread: few of them would have four */
  const float *all = reinterpret_cast<const float *>(cells);
  for (int at = (int)threadIdx.x; at < vectors * V; at += THREADS) {
    const int place = (at % V / 4 * THREADS + at / V) * 4 + at % 4;
    double total = all[place];
#pragma unroll
    for (int w = 1; w < warps; w++)
      total += all[place + w * team * 4];
    to[at] = (float)total;
  }
}

/* Brings the first rows to L2. */
template <bool LAYER, Form FORM>
__device__ __forceinline__ void prefetch_rows(const BackwardJob &p, const WarpPlace<FORM> &lane) {
  constexpr bool options = has_options(FORM);
  if (lane.first >= p.vectors) return;
#pragma unroll 1
  for (int i = 0; i < p.ahead && lane.row + i * lane.stride < p.rows; i++) {
    const int64_t row = lane.row + i * lane.stride, index = index_of_row<FORM>(p, row, lane.slice);
    const RowPlace at = place_in_slice<FORM>(p, row, lane.slice);
    prefetch_line(row_at<options>(p.x, at) + lane.first * (FORM == Form::F32_SUM && p.x_is_f32 ? 32 : 16));
    prefetch_line(row_at<options>(p.dy, at) + lane.first * 16);
    if (is_gated(FORM)) prefetch_line(row_at<options>(p.added, at) + lane.first * 16);
    if (!options || p.rstd) prefetch_line(reinterpret_cast<const char *>(p.rstd + index));
    if (LAYER && (!options || p.mean)) prefetch_line(reinterpret_cast<const char *>(p.mean + index));
  }
}

/* A row that is not aligned, whose vectors the lanes have in cells next to each other, to memory: pieces, and what does
 * not fill one element by element. cell: of this lane. */
template <class T>
__device__ __forceinline__ void store_cells(const BackwardJob &p, char *row, const uint4 *cell, int first) {
  constexpr int size = (int)sizeof(T);
  using Bits = std::conditional_t<size == 2, uint16_t, uint32_t>;
  const int head = -shift_of(row) & 15, whole = (p.bytes - head) / 16; /* there are two vectors at least */
  if (first < whole) {
    uint32_t w[4];
    put_together(w, {cell[0], cell[1]}, (unsigned)head);
    __stcs(reinterpret_cast<uint4 *>(row + head + first * 16), make_uint4(w[0], w[1], w[2], w[3]));
  }
  auto store_elements = [&](int at, int end) {
    for (; at < end; at += p.vectors * size)
      *reinterpret_cast<Bits *>(row + at) = reinterpret_cast<const Bits *>(cell - first)[at / size];
  };
  store_elements(first * size, head);
  store_elements(head + whole * 16 + first * size, p.bytes);
}

/* dx, and what the row adds to the column sums. cell: where this lane had its vector of x, of rows that are not
 * aligned. */
template <class T, bool LAYER, bool DBIAS, Form FORM, int V>
__device__ __forceinline__ void
finish_lanes(const BackwardJob &p, const WarpPlace<FORM> &lane, int64_t row, LaneRow<T, FORM> &now,
             const Gains<T, FORM> &gains, const Statistic<float> &st, float c1, float c2, float (&h)[V], float (&u)[V],
             ColumnSums<1, V> &dweight, ColumnSums<1, V> &dbias, uint4 *cell) {
  if constexpr (is_gated(FORM)) {
    Packed<T, V> dx, dgate;
#pragma unroll
    for (int c = 0; c < V / 4; c++)
      finish_gated_four<T, LAYER, DBIAS, FORM>(p, c, now.x[0], now.dy[0], now.act, now.slope, gains.cells[c * 32], st.r,
                                               st.mean, c1, c2, lane.first * V, dweight.sum[0], dbias.sum[0], dx,
                                               dgate);
    if (lane.first < p.stored && row < p.rows)
      store_gated<FORM>(p, dx, dgate, targets_of<FORM>(p, place_in_slice<FORM>(p, row, lane.slice)), lane.first);
    return;
  }
  float d[V];
  unpack(now.dy[0], d);
  if (FORM != Form::COMMON) { /* again, to have fewer registers in between */
    unpack(now.x[0], h);
    normalise<LAYER>(h, st.r, st.mean);
    unpack(now.dy[0], u);
    gains.weigh(p, u);
  }
  add_dweight<T, FORM>(p, dweight.sum[0], now.dy[0], d, h);
  if (DBIAS) {
#pragma unroll
    for (int j = 0; j < V; j++)
      dbias.sum[0][j] += d[j];
  }
  finish_dx<T, LAYER, FORM>(p, u, h, c1, c2, st.r, lane.first * V);
  const bool stores = lane.first < p.stored && row < p.rows;
  if (!stores && !is_shifted(FORM)) return;
  const RowPlace at = place_in_slice<FORM>(p, row, lane.slice);
  if (has_options(FORM) && p.added.data && stores)
    load_sum<T, FORM>(p, now.x[0], row_at<has_options(FORM)>(p.added, at), lane.first, p.added_is_f32);
  if constexpr (is_shifted(FORM)) { /* all lanes of the warp */
    Packed<T, V> packed;
    add_and_pack<FORM>(p, u, now.x[0], packed);
    __syncwarp(); /* a vector of x ends in the next lane's cell: all have read theirs */
    *cell = make_uint4(packed.w[0], packed.w[1], packed.w[2], packed.w[3]);
    __syncwarp();
    const RowTargets to = targets_of<FORM>(p, at);
    if (stores && (!has_options(FORM) || p.dx.data)) store_cells<T>(p, to.dx, cell, lane.first);
    if (stores && has_options(FORM) && p.copy.data) store_cells<T>(p, to.copy, cell, lane.first);
    __syncwarp(); /* before the next row comes there */
  } else {
    store_dx<T, FORM>(p, u, now.x[0], targets_of<FORM>(p, at), lane.first);
  }
}

/* Whether the lanes of a row add exact zeros to its sums, all lanes of the warp at once. cell: where the row is. */
template <class T, Form FORM, int V>
__device__ __forceinline__ bool lanes_add_zeros(const BackwardJob &p, const WarpPlace<FORM> &at, int64_t row,
                                                const uint4 *cell, const Statistic<float> &st, const float (&u)[V]) {
  LaneRow<T, FORM> again;
  again.take(p, cell, row, at.slice, at.first);
  bool zeros;
  if constexpr (is_gated(FORM))
    zeros = has_zero_dy<T, FORM>(again.dy[0], again.act) ||
            (has_zero_x<T, FORM>(again.x[0], again.act, st.mean) && u_in_range(u));
  else
    zeros = is_zero(again.dy[0]) || (is_zero(again.x[0]) && st.mean == 0 && u_in_range(u));
  const unsigned lane = threadIdx.x & 31, team = p.team == 32 ? whole_warp : (1u << p.team) - 1;
  return (__ballot_sync(whole_warp, !zeros) & team << (lane & ~(unsigned)(p.team - 1))) == 0;
}

/* The same by what is in registers, of a row whose sum of u*h is zero, so that none of them is NaN. r >= 1 takes no h
 * to zero: where all are zeros, x is. It may miss rows; it is for those of zeros that there are. */
template <int V, class T>
__device__ __forceinline__ bool lanes_show_zeros(const BackwardJob &p, const Packed<T, V> &dy,
                                                 const Statistic<float> &st, const float (&h)[V], const float (&u)[V]) {
  const bool zeros = is_zero(dy) | (is_zero(h) & (st.mean == 0) & (st.r >= 1) & numbers_in_range(u));
  const unsigned lane = threadIdx.x & 31, team = p.team == 32 ? whole_warp : (1u << p.team) - 1;
  return (__ballot_sync(whole_warp, !zeros) & team << (lane & ~(unsigned)(p.team - 1))) == 0;
}

/* ---- the kernel ---- */

/* Blocks of an SM: as many as there are registers for. */
template <bool LAYER, Form FORM>
constexpr int backward_warp_blocks = FORM == Form::F32_SUM || (LAYER && FORM != Form::COMMON) ? 1 : 2;

template <class T, bool LAYER, bool DBIAS, Form FORM>
__global__ void __launch_bounds__(warp_backward_threads(FORM), (backward_warp_blocks<LAYER, FORM>))
    backward_warp_kernel(const __grid_constant__ BackwardJob p) {
  constexpr int V = vector_of<T>, Q = V / 4, threads = warp_backward_threads(FORM), stages = warp_stages(FORM);
  using Row = LaneRow<T, FORM>;
  constexpr int stage_cells = Row::cells * threads;
  __shared__ float4 cells[(DBIAS ? 2 : 1) * Q * threads];
  /* turns of a warp with rows out of range, which come last; behind them: whether there are any */
  __shared__ unsigned all_noted[threads / 32][DEEP + 1];
  __shared__ float4 shared_gain[Gains<T, FORM>::in_registers ? 1 : Q * 32];
  extern __shared__ uint4 warp_ring[]; /* stages of a row, cells of each thread */
  using Saved = LaneSaved<LAYER, FORM>;
  __shared__ float saved_ring[stages * Saved::stage_words]; /* and of its statistic */
  const WarpPlace<FORM> lane(p);
  const int first = lane.first;
  float4 *deep = cells + threadIdx.x;
  uint4 *ring = warp_ring + threadIdx.x;
  float *saved = saved_ring + threadIdx.x;
  unsigned *noted = all_noted[threadIdx.x / 32];
  Gains<T, FORM> gains;
  gains.cells = shared_gain + first;
  if (threadIdx.x % 32 <= DEEP) noted[threadIdx.x % 32] = 0;
  __syncwarp();
  prefetch_rows<LAYER, FORM>(p, lane);
  wait_for_previous();
  let_next_start();
  const int turns = rounds_from(p, lane.block_row, lane.stride);
  auto request = [&](int stage, int64_t row) {
    Row::request(p, ring + stage * stage_cells, row, lane.slice, first);
    Saved::request(p, saved + stage * Saved::stage_words, row, lane.slice);
  };
#pragma unroll 1
  for (int i = 0; i < stages - 1; i++) {
    if (i < turns) request(i, lane.row + i * lane.stride);
    end_of_copies();
  }
  gains.set(p, lane.slice, first);
  const bool layer = is_layer<LAYER, FORM>(p);
  ColumnSums<1, V> dweight, dbias;
  dweight.clear();
  dbias.clear();
  auto flush = [&](bool add) {
    dweight.flush(deep, threads, add);
    if (DBIAS) dbias.flush(deep + Q * threads, threads, add);
  };
  int64_t row = lane.row;
#pragma unroll 1
  for (int turn = 0; turn < turns; turn++, row += lane.stride) {
    if (turn + stages - 1 < turns) request((turn + stages - 1) % stages, row + (stages - 1) * lane.stride);
    end_of_copies();
    wait_for_stage(stages);
    Statistic<float> st = Saved::take(p, saved + turn % stages * Saved::stage_words);
    Row now;
    if (Row::shifted) __syncwarp(); /* pieces that other lanes asked for */
    now.take(p, ring + turn % stages * stage_cells, row, lane.slice, first);
    if (Row::shifted) __syncwarp();
    float h[V], u[V], a[1] = {0}, b[1] = {0};
    now.open(h, u);
    if (!has_saved<FORM>(p)) {
      LaneValues<T, FORM> values = {p, first, h};
      st = row_statistic<false>(norm_of<LAYER, FORM>(p), values);
    }
    normalise<LAYER>(h, st.r, st.mean);
    gains.weigh(p, u);
#pragma unroll
    for (int j = 0; j < V; j++) {
      a[0] = fused(u[j], h[j], a[0]);
      if (LAYER) b[0] += u[j];
    }
    keep_packed(now.dy);
    if (FORM != Form::COMMON) keep_packed(now.x);
    over_lanes<Add>(a, p.team);
    if (LAYER) over_lanes<Add>(b, p.team);
    bool in_range =
        row >= p.rows || is_lost(st.r) || (r_in_range(st.r) && sum_in_range(a[0]) && (!layer || sum_in_range(b[0])));
    if constexpr (FORM ==
                  Form::COMMON) { /* in the way of the others: code that is fetched for the first time is slow */
      if (!__all_sync(whole_warp, in_range)) {
        const bool zeros = lanes_show_zeros(p, now.dy[0], st, h, u) && a[0] == 0;
        in_range = in_range || (zeros && r_in_range(st.r));
      }
    }
    if (__builtin_expect(!__all_sync(whole_warp, in_range), 0)) {
      const bool zeros = lanes_add_zeros<T, FORM>(p, lane, row, ring + turn % stages * stage_cells, st, u);
      in_range = in_range || (zeros && r_in_range(st.r));
      if (is_shifted(FORM)) __syncwarp(); /* lanes have read their neighbours' cells once more */
    }
    if (__builtin_expect(__all_sync(whole_warp, in_range), 1)) {
      float c2 = divided(a[0], p.k, p.inverse_k);
      if (has_options(FORM) && p.eps_outside) c2 = corrected_outside(p, st, c2);
      finish_lanes<T, LAYER, DBIAS, FORM>(p, lane, row, now, gains, st, layer ? divided(b[0], p.k, p.inverse_k) : 0.0f,
                                          c2, h, u, dweight, dbias, ring + turn % stages * stage_cells);
    } else if (threadIdx.x % 32 == 0) {
      noted[turn / FLAT] |= 1u << turn % FLAT;
      noted[DEEP] = 1;
    }
    if (turn % FLAT == FLAT - 1) flush(turn >= FLAT);
  }
  if (turns % FLAT != 0 || turns <= 0) flush(turns > FLAT);
  __syncwarp();
  if (__builtin_expect(noted[DEEP] != 0, 0)) scaled_turns<T, LAYER, DBIAS, FORM>(p, noted, deep, ring);
  const int64_t width = (int64_t)p.vectors * V;
  float *to = p.partial + ((int64_t)lane.slice * p.shares + lane.share) * width;
  if (p.want_dweight) {
    write_lanes<V, threads>(to, cells, p.team, p.vectors);
    to += (has_options(FORM) ? p.slices : 1) * p.shares * width;
  }
  if (DBIAS && p.want_dbias) write_lanes<V, threads>(to, cells + Q * threads, p.team, p.vectors);
}

} // namespace rms_cuda

#endif
