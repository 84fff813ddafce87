/* SPDX-License-Identifier: MIT
 *
 * Backward of the widest aligned rows, of the common case: persistent clusters of up to 16 blocks walk the rows, and
 * every block has some panels of each. x and dy lie in a ring of panels in shared memory from their first use to their
 * last, as in forward_wide.cuh. The column sums of a thread stay in registers; after p.flat rows, whose terms pass as
 * many roundings, they go to a partial sum of their own. PANELS: of a block, at most. */
#ifndef RMS_CUDA_BACKWARD_WIDE_CUH
#define RMS_CUDA_BACKWARD_WIDE_CUH

#include "backward_row.cuh"
#include "backward_scaled.cuh"
#include "start.cuh"
#include "wide_sums.cuh"

namespace rms_cuda {

/* The parts of a block's shared memory, in bytes from its start: the ring, weights where they are kept, chunk sums,
 * mail, barriers. */
struct WideBackwardShared {
  int weights, chunks, mail, barriers, total;
};
__host__ __device__ constexpr WideBackwardShared wide_backward_shared(int sums, int places, int panels, int kept) {
  WideBackwardShared s = {};
  s.weights = places * 2 * PANEL * 16;
  s.chunks = s.weights + kept * panels * PANEL * 16;
  s.mail = s.chunks + sums * WideSums<1>::chunk_bytes(panels);
  s.barriers = s.mail + sums * WideSums<1>::mail_bytes;
  s.total = s.barriers + (places * (WIDE_THREADS / 32) + 2) * 8;
  return s;
}

/* A warp of a block: which part of which rows it has, and its ring. */
template <class T, bool LAYER, bool DBIAS, int PANELS> struct WideBackward {
  static constexpr int V = vector_of<T>, NV = WIDE_VECTORS, SUMS = LAYER ? 2 : 1;
  using Sums = WideSums<SUMS>;
  const BackwardJob &p;
  char *shared;
  WideBackwardShared where;
  int warp, lane;
  int share, rounds;       /* which cluster, and its rows                      */
  int first, panels;       /* of a row: those of this block                    */
  int round, panel, place; /* what is asked for next                           */
  int place_now, turn;     /* of the row that is worked on: of its first panel */
  bool kept;               /* the weights                                      */

  __device__ __forceinline__ WideBackward(const BackwardJob &job, char *memory) : p(job), shared(memory) {
    const int all = (p.vectors + PANEL - 1) / PANEL;
    where = wide_backward_shared(SUMS, p.stages, p.panels, p.kept);
    warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31;
    share = (int)(blockIdx.x / (unsigned)p.cluster);
    rounds = (int)((p.rows - share + p.shares - 1) / p.shares);
    first = (int)(blockIdx.x % (unsigned)p.cluster) * p.panels;
    panels = all - first < p.panels ? all - first : p.panels;
    round = panel = place = place_now = turn = 0;
    kept = p.kept > 0 && p.weight && (sizeof(T) == 4 || !p.weight_is_f32);
  }
  __device__ __forceinline__ Sums sums(int phase, int parity) const {
    return {reinterpret_cast<float *>(shared + where.chunks),
            reinterpret_cast<float *>(shared + where.mail),
            barrier(p.stages),
            panels,
            first,
            (p.vectors + PANEL - 1) / PANEL,
            p.cluster,
            phase,
            parity};
  }
  /* Of place 0 and so on of all warps; behind them are the mailboxes. */
  __device__ __forceinline__ uint64_t *barrier(int at) const {
    return reinterpret_cast<uint64_t *>(shared + where.barriers) + at * (WIDE_THREADS / 32);
  }
  __device__ __forceinline__ void start() const {
    if (threadIdx.x == 0) start_barriers(barrier(0), p.stages * (WIDE_THREADS / 32) + 2);
    Sums::clear_mail(reinterpret_cast<float *>(shared + where.mail));
    __syncthreads();
  }
  /* This lane's first vector of a panel of the block, as a number in the row. */
  __device__ __forceinline__ int vector(int of) const { return (first + of) * PANEL + warp * WIDE_WARP_VECTORS + lane; }
  /* x of a place; dy lies a panel behind it. */
  __device__ __forceinline__ uint4 *cells(int at) const {
    return reinterpret_cast<uint4 *>(shared) + at * 2 * PANEL + warp * WIDE_WARP_VECTORS;
  }
  /* Fills a place that all lanes of the warp have read. */
  __device__ __forceinline__ void request() {
    if (round >= rounds) return;
    if (lane == 0) {
      const int from = vector(panel), left = p.vectors - from,
                bytes = 16 * (left < 0                   ? 0
                              : left < WIDE_WARP_VECTORS ? left
                                                         : WIDE_WARP_VECTORS);
      const RowPlace row = {share + (int64_t)round * p.shares, 0};
      uint64_t *full = barrier(place) + warp;
      expect_bytes(full, 2 * bytes);
      if (bytes > 0) {
        copy_bulk<false>(cells(place), row_at<false>(p.x, row) + (int64_t)from * 16, bytes, full);
        copy_bulk<false>(cells(place) + PANEL, row_at<false>(p.dy, row) + (int64_t)from * 16, bytes, full);
      }
    }
    if (++place == p.stages) place = 0;
    if (++panel == panels) panel = 0, round++;
  }
  /* The place of a panel of the row that is worked on, once it is there. */
  __device__ __forceinline__ const uint4 *arrived(int of) const {
    const int at = place_now + of, wraps = at >= p.stages ? 1 : 0, where_at = at - wraps * p.stages;
    wait_for_copies(barrier(where_at) + warp, turn ^ wraps);
    return cells(where_at) + lane;
  }
  __device__ __forceinline__ void end_row() {
    place_now += panels;
    if (place_now >= p.stages) place_now -= p.stages, turn ^= 1;
  }
  __device__ __forceinline__ uint4 *weights(int of) const {
    return reinterpret_cast<uint4 *>(shared + where.weights) + of * PANEL + warp * WIDE_WARP_VECTORS + lane;
  }
  /* Each thread reads what it wrote. */
  __device__ __forceinline__ void keep_weights() const {
    if (!kept) return;
#pragma unroll 1
    for (int of = 0; of < panels; of++)
#pragma unroll
      for (int i = 0; i < NV; i++)
        if (vector(of) + i * 32 < p.vectors)
          weights(of)[i * 32] = load_shared_by_rows(p.weight + (int64_t)(vector(of) + i * 32) * 16);
  }
  /* Weight and offset of vector i of this thread in a panel. */
  __device__ __forceinline__ void gain(int of, int i, float (&g)[V]) const {
    if (!kept) {
      load_gain<T, Form::COMMON>(p, 0, vector(of) + i * 32, g);
      return;
    }
    Packed<T, V> weight;
    take_cell(weight, weights(of) + i * 32);
    unpack(weight, g);
    add_offset<T>(g, p.offset, false);
  }
  /* Whether the row has vector i of this thread in a panel. */
  __device__ __forceinline__ bool has(int of, int i) const {
    return of < panels && vector(of) + i * 32 < p.vectors;
  }
  /* The partial sums of columns of vector i of this thread in a panel. plane: dweight or dbias. */
  __device__ __forceinline__ float *partial(int flat, int plane, int of, int i) const {
    const int64_t width = (int64_t)p.vectors * V, set = (int64_t)share * p.flats + flat;
    return p.partial + ((int64_t)(p.want_dweight ? plane : 0) * p.partials + set) * width +
           (int64_t)(vector(of) + i * 32) * V;
  }
};

/* ---- rows out of range ---- */

/* Sums over a row of the cluster, from memory, for the range guard. Vector i of a thread is i % NV of panel i / NV. */
template <class Block> struct WideGuardSums {
  const Block &block;
  typename Block::Sums &sums;

  /* Ones where there is no vector. */
  __device__ __forceinline__ void gain(int i, float (&g)[Block::V]) const {
#pragma unroll
    for (int j = 0; j < Block::V; j++)
      g[j] = 1;
    if (block.has(i / Block::NV, i % Block::NV)) block.gain(i / Block::NV, i % Block::NV, g);
  }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) {
#pragma unroll 1
    for (int i = 0; i < block.panels * Block::NV; i++) {
      const float sum = butterfly<Op>(of_vector(i), 16, 1);
      if (block.lane == 0) sums.put(0, i / Block::NV, block.warp * Block::NV + i % Block::NV, sum);
      if (Block::SUMS == 2 && block.lane == 0)
        sums.put(Block::SUMS - 1, i / Block::NV, block.warp * Block::NV + i % Block::NV, 0.0f);
    }
    return sums.template exchange<Op>().x;
  }
};

/* The vectors of a thread in a row, in memory. */
template <class T, class Block> struct WideRowInMemory {
  static constexpr int V = vector_of<T>;
  static constexpr bool active = true;
  const BackwardJob &p;
  WideGuardSums<Block> &sums;
  RowPlace at;

  __device__ __forceinline__ int vector(int i) const { return sums.block.vector(i / Block::NV) + i % Block::NV * 32; }
  __device__ __forceinline__ unsigned mask(int i) const { return counted_mask<T, Form::COMMON>(p, vector(i)); }
  __device__ __forceinline__ bool counts_all() const { return true; }
  __device__ __forceinline__ void load_packed(const Rows &rows, int i, Packed<T, V> &v) const {
    clear(v);
    if (vector(i) < p.vectors) load_vector<true, true>(v, row_at<false>(rows, at) + (int64_t)vector(i) * 16, V);
  }
  __device__ __forceinline__ void load_packed_dy(int i, Packed<T, V> &v) const { load_packed(p.dy, i, v); }
  __device__ __forceinline__ void load_x(int i, float (&x)[V]) const {
    Packed<T, V> v;
    load_packed(p.x, i, v);
    unpack(v, x);
  }
  __device__ __forceinline__ void load_dy(int i, float (&dy)[V]) const {
    Packed<T, V> v;
    load_packed(p.dy, i, v);
    unpack(v, dy);
  }
  __device__ __forceinline__ void load_g(int i, float (&g)[V]) const { sums.gain(i, g); }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) {
    return sums.template over<Op>(of_vector);
  }
};

/* Column sums of a thread that are in the partial sums already: those of a row out of range are added to them. */
template <class Block> struct WideCells {
  const Block &block;
  int flat, plane;

  __device__ __forceinline__ float *at(int i) const { return block.partial(flat, plane, i / Block::NV, i % Block::NV); }
  __device__ __forceinline__ bool wanted(int i) const {
    return block.has(i / Block::NV, i % Block::NV) && (plane == 0 ? block.p.want_dweight : block.p.want_dbias);
  }
  __device__ __forceinline__ void get(int i, float (&sum)[Block::V]) const {
#pragma unroll
    for (int j = 0; j < Block::V; j++)
      sum[j] = wanted(i) ? at(i)[j] : 0.0f;
  }
  __device__ __forceinline__ void set(int i, const float (&sum)[Block::V]) const {
#pragma unroll
    for (int j = 0; j < Block::V; j++)
      if (wanted(i)) at(i)[j] = sum[j];
  }
};

/* One row, by all blocks of a cluster. A function of its own, so that the loop over the other rows has the registers
 * for itself. phase, parity: where the sums over rows are; returned as phase + 2*parity. */
template <class T, bool LAYER, bool DBIAS, int PANELS>
__device__ __noinline__ int wide_scaled_row(const BackwardJob &p, int64_t row, int flat, int phase, int parity) {
  using Block = WideBackward<T, LAYER, DBIAS, PANELS>;
  extern __shared__ __align__(128) char shared[];
  const Block block(p, shared);
  const Norm<float> norm = norm_of<LAYER, Form::COMMON>(p);
  typename Block::Sums sums = block.sums(phase, parity);
  WideGuardSums<Block> over = {block, sums};
  WideRowInMemory<T, Block> at = {p, over, {row, 0}};
  const RowFactors<float> f = scaled_factors<T>(norm, at, p.stats ? p.stats + row : nullptr);
  auto cells = [&](int plane) -> WideCells<Block> { return {block, flat, plane}; };
#pragma unroll 1
  for (int i = 0; i < block.panels * Block::NV; i++)
    finish_scaled<T, DBIAS, Form::COMMON>(p, norm, at, i, f, cells);
  return sums.phase + 2 * sums.parity;
}

/* ---- rows in range ---- */

/* What a vector adds to the sum of u*h where that is zero: as RowInRegisters::zero_of(). */
template <bool LAYER, class T, int V>
__device__ __forceinline__ float exact_or_zero(const Packed<T, V> &x, const Packed<T, V> &dy, const float (&u)[V],
                                               float mean) {
  return is_zero(dy) || (is_zero(x) && !(LAYER && mean != 0) && u_in_range(u)) ? exact_zero : 0.0f;
}

/* The sums of u*h and u over a row. */
template <class T, bool LAYER, class Block>
__device__ __forceinline__ float2 sum_up_wide(const Block &block, typename Block::Sums &sums, float r, float mean) {
  constexpr int V = Block::V, NV = Block::NV, SUMS = Block::SUMS;
#pragma unroll 1
  for (int panel = 0; panel < block.panels; panel++) {
    const uint4 *cells = block.arrived(panel);
    float v[SUMS * NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      Packed<T, V> x, dy;
      float h[V], u[V], g[V], a = 0, b = 0;
      v[i] = exact_zero;
      if (LAYER) v[NV * (SUMS - 1) + i] = exact_zero;
      if (!block.has(panel, i)) continue;
      take_cell(x, cells + i * 32);
      take_cell(dy, cells + PANEL + i * 32);
      block.gain(panel, i, g);
      unpack(x, h);
      unpack(dy, u);
      normalise<LAYER>(h, r, mean);
#pragma unroll
      for (int j = 0; j < V; j++) {
        u[j] *= g[j];
        a = fused(u[j], h[j], a);
        if (LAYER) b += u[j];
      }
      v[i] = a;
      if (__builtin_expect(a == 0, 0)) v[i] = exact_or_zero<LAYER>(x, dy, u, mean);
      if (LAYER) v[NV * (SUMS - 1) + i] = b;
    }
    const float sum = fold<Add>(v);
    constexpr int copies = 32 / (SUMS * NV);
    const int number = block.lane / copies;
    if (block.lane % copies == 0) sums.put(number / NV, panel, block.warp * NV + number % NV, sum);
  }
  return sums.template exchange<Add>();
}

template <class T, bool LAYER, bool DBIAS, int PANELS>
__global__ void __launch_bounds__(WIDE_THREADS, 1) backward_wide_kernel(const __grid_constant__ BackwardJob p) {
  using Block = WideBackward<T, LAYER, DBIAS, PANELS>;
  constexpr int V = Block::V, NV = Block::NV;
  extern __shared__ __align__(128) char shared[];
  Block block(p, shared);
  typename Block::Sums sums = block.sums(0, 0);
  block.start();
  cluster_arrive();
  wait_for_previous();
  let_next_start();
#pragma unroll 1
  for (int i = 0; i < p.stages; i++)
    block.request();
  block.keep_weights();
  cluster_wait();

  int64_t number = block.share + (int64_t)always_zero(); /* of the row */
  float next_r = p.rstd[number], next_mean = LAYER ? p.mean[number] : 0.0f;
#pragma unroll 1
  for (int flat = 0, round = 0; flat < p.flats; flat++) {
    const int begin = round, end = block.rounds < begin + p.flat ? block.rounds : begin + p.flat;
    unsigned noted[2] = {0, 0}; /* rounds from `begin` on that are out of range */
    ColumnSums<NV, V> dweight[PANELS], dbias[DBIAS ? PANELS : 1];
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++) {
      dweight[panel].clear();
      if (DBIAS) dbias[panel].clear();
    }
#pragma unroll 1
    for (; round < end; round++) {
      const float r = next_r, mean = next_mean;
      char *dx_at = row_at<false>(p.dx, {number, 0});
      number += p.shares;
      if (round + 1 < block.rounds) {
        next_r = p.rstd[number];
        if (LAYER) next_mean = p.mean[number];
      }
      const float2 sum = sum_up_wide<T, LAYER>(block, sums, r, mean);
      const bool in_range = sum_in_range(sum.x) && (!LAYER || sum_in_range(sum.y));
      const bool usual = (r_in_range(r) & (in_range | is_exact_zero(sum.x))) | is_lost(r);
      const float c2 = divided(sum.x, p.k, p.inverse_k), c1 = LAYER ? divided(sum.y, p.k, p.inverse_k) : 0.0f;
      if (__builtin_expect(!usual, 0)) { /* after the others */
        if (round - begin < 32)
          noted[0] |= 1u << (round - begin);
        else
          noted[1] |= 1u << (round - begin - 32);
      }
#pragma unroll
      for (int panel = 0; panel < PANELS; panel++) {
        if (panel >= block.panels) break;
        const uint4 *cells = block.arrived(panel);
#pragma unroll
        for (int i = 0; i < NV; i++) {
          Packed<T, V> x, dy, out;
          float h[V], u[V], d[V], g[V];
          if (!usual || !block.has(panel, i)) continue;
          const int vector = block.vector(panel) + i * 32;
          take_cell(x, cells + i * 32);
          take_cell(dy, cells + PANEL + i * 32);
          block.gain(panel, i, g);
          unpack(x, h);
          unpack(dy, d);
          normalise<LAYER>(h, r, mean);
          add_dweight<T, Form::COMMON>(p, dweight[panel].sum[i], dy, d, h);
#pragma unroll
          for (int j = 0; j < V; j++) {
            if (DBIAS) dbias[DBIAS ? panel : 0].sum[i][j] += d[j];
            u[j] = d[j] * g[j];
          }
          finish_dx<T, LAYER, Form::COMMON>(p, u, h, c1, c2, r, vector * V);
          pack(out, u);
          if (vector < p.stored) store_vector<true>(dx_at + (int64_t)vector * 16, out, V);
          asm volatile("" ::: "memory"); /* one vector after the other: fewer registers */
        }
        __syncwarp();
        block.request();
      }
      block.end_row();
    }
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++)
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (!block.has(panel, i)) continue;
        auto write = [&](int plane, const float(&sum)[V]) {
          float4 *to = reinterpret_cast<float4 *>(block.partial(flat, plane, panel, i));
#pragma unroll
          for (int c = 0; c < V / 4; c++)
            to[c] = make_float4(sum[4 * c], sum[4 * c + 1], sum[4 * c + 2], sum[4 * c + 3]);
        };
        if (p.want_dweight) write(0, dweight[panel].sum[i]);
        if (DBIAS && p.want_dbias) write(1, dbias[DBIAS ? panel : 0].sum[i]);
      }
      /* the blocks of a cluster have the same sums, and so the same answer */
#pragma unroll 1
    for (int word = 0; word < 2; word++)
#pragma unroll 1
      for (unsigned left = word == 0 ? noted[0] : noted[1]; left != 0; left &= left - 1) {
        const int at = begin + word * 32 + __ffs((int)left) - 1;
        const int state = wide_scaled_row<T, LAYER, DBIAS, PANELS>(p, block.share + (int64_t)at * p.shares, flat,
                                                                   sums.phase, sums.parity);
        sums.phase = state & 1, sums.parity = state >> 1;
      }
  }
}

} // namespace rms_cuda

#endif
