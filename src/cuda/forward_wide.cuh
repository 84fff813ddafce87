/* SPDX-License-Identifier: MIT
 *
 * Forward of the widest aligned rows, of the common case: persistent clusters of up to 16 blocks walk the rows, and
 * every block has some panels of each. They lie in a ring of panels in shared memory from their first use to their
 * last, and a panel's place is filled with one to come as soon as its y is made. Every warp has a ring of its own, with
 * 64 vectors of each panel, so that warps wait for each other in the sums alone. */
#ifndef RMS_CUDA_FORWARD_WIDE_CUH
#define RMS_CUDA_FORWARD_WIDE_CUH

#include "forward_steps.cuh"
#include "guard.cuh"
#include "start.cuh"
#include "wide_sums.cuh"

namespace rms_cuda {

/* The parts of a block's shared memory, in bytes from its start: the ring, the weights and the bias where they are
 * kept, chunk sums, mail, barriers. */
struct WideForwardShared {
  int parameters, chunks, mail, barriers, total;
};
__host__ __device__ constexpr WideForwardShared wide_forward_shared(int places, int panels, int kept) {
  WideForwardShared s = {};
  s.parameters = places * PANEL * 16;
  s.chunks = s.parameters + kept * panels * PANEL * 16;
  s.mail = s.chunks + WideSums<1>::chunk_bytes(panels);
  s.barriers = s.mail + WideSums<1>::mail_bytes;
  s.total = s.barriers + (places * (WIDE_THREADS / 32) + 2) * 8;
  return s;
}

/* A vector of a thread, in the ring. */
struct WideVector {
  const uint4 *cell;
  bool there;
};

/* A warp of a block: which part of which rows it has, and its ring. */
template <class T> struct WideForward {
  static constexpr int V = vector_of<T>, NV = WIDE_VECTORS;
  const ForwardJob &p;
  char *shared;
  WideForwardShared where;
  int warp, lane;
  int share;               /* which cluster                                            */
  int rounds;              /* its rows                                                 */
  int first, panels;       /* of a row: those of this block                            */
  int round, panel, place; /* what is asked for next                                   */
  int place_now, turn;     /* of the row that is worked on: of its first panel         */

  __device__ __forceinline__ WideForward(const ForwardJob &job, char *memory) : p(job), shared(memory) {
    const int rank = (int)(blockIdx.x % (unsigned)p.cluster), all = (p.vectors + PANEL - 1) / PANEL;
    where = wide_forward_shared(p.stages, p.panels, p.kept);
    warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31;
    share = (int)(blockIdx.x / (unsigned)p.cluster);
    rounds = (int)((p.rows - share + p.shares - 1) / p.shares);
    first = rank * p.panels;
    panels = all - first < p.panels ? all - first : p.panels;
    round = panel = place = place_now = turn = 0;
  }
  __device__ __forceinline__ WideSums<1> sums() const {
    return {reinterpret_cast<float *>(shared + where.chunks),
            reinterpret_cast<float *>(shared + where.mail),
            barrier(p.stages),
            panels,
            first,
            (p.vectors + PANEL - 1) / PANEL,
            p.cluster,
            0,
            0};
  }
  /* Of place 0 and so on of all warps; behind them are the mailboxes. */
  __device__ __forceinline__ uint64_t *barrier(int at) const {
    return reinterpret_cast<uint64_t *>(shared + where.barriers) + at * (WIDE_THREADS / 32);
  }
  __device__ __forceinline__ void start() const {
    if (threadIdx.x == 0) start_barriers(barrier(0), p.stages * (WIDE_THREADS / 32) + 2);
    WideSums<1>::clear_mail(reinterpret_cast<float *>(shared + where.mail));
    __syncthreads();
  }
  /* This lane's first vector of a panel of the block, as a number in the row. */
  __device__ __forceinline__ int vector(int of) const { return (first + of) * PANEL + warp * WIDE_WARP_VECTORS + lane; }
  __device__ __forceinline__ uint4 *cells(int at) const {
    return reinterpret_cast<uint4 *>(shared) + at * PANEL + warp * WIDE_WARP_VECTORS;
  }
  /* Fills a place that all lanes of the warp have read. */
  __device__ __forceinline__ void request() {
    if (round >= rounds) return;
    if (lane == 0) {
      const int from = vector(panel), left = p.vectors - from,
                bytes = 16 * (left < 0                   ? 0
                              : left < WIDE_WARP_VECTORS ? left
                                                         : WIDE_WARP_VECTORS);
      const char *row = row_at<false>(p.x, {share + (int64_t)round * p.shares, 0});
      uint64_t *full = barrier(place) + warp;
      expect_bytes(full, bytes);
      if (bytes > 0) copy_bulk<true>(cells(place), row + (int64_t)from * 16, bytes, full);
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
  /* Weight or bias (which = 1) of this thread's vectors of a panel, where they are kept. */
  __device__ __forceinline__ uint4 *parameters(int which, int of) const {
    return reinterpret_cast<uint4 *>(shared + where.parameters) + (which * p.panels + of) * PANEL +
           warp * WIDE_WARP_VECTORS + lane;
  }
};

/* Sums over a row, in the shape that guard.cuh asks for. */
template <class T> struct WideForwardRow {
  static constexpr int V = vector_of<T>, NV = WIDE_VECTORS, AT_ONCE = 2; /* panels */
  const WideForward<T> &block;
  WideSums<1> &sums;

  __device__ __forceinline__ void take(const WideVector &at, Packed<T, V> &x) const {
    clear(x);
    if (at.there) take_cell(x, at.cell);
  }
  __device__ __forceinline__ void load_x(const WideVector &at, float (&f)[V]) const {
    Packed<T, V> x;
    take(at, x);
    unpack(x, f);
  }
  __device__ __forceinline__ unsigned mask(const WideVector &at) const { return at.there ? (1u << V) - 1 : 0; }
  __device__ __forceinline__ bool counts_all() const { return true; }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) {
#pragma unroll 1
    for (int panel = 0; panel < block.panels; panel += AT_ONCE) {
      float a[AT_ONCE * NV];
#pragma unroll
      for (int k = 0; k < AT_ONCE; k++) {
#pragma unroll
        for (int i = 0; i < NV; i++)
          a[k * NV + i] = 0;
        if (panel + k >= block.panels) continue;
        const uint4 *cells = block.arrived(panel + k);
        const int left = block.p.vectors - block.vector(panel + k);
#pragma unroll
        for (int i = 0; i < NV; i++)
          a[k * NV + i] = of_vector(WideVector{cells + i * 32, i * 32 < left});
      }
      const float sum = fold<Op>(a);
      constexpr int copies = 32 / (AT_ONCE * NV);
      const int number = block.lane / copies, of = panel + number / NV;
      if (block.lane % copies == 0 && of < block.panels) sums.put(0, of, block.warp * NV + number % NV, sum);
    }
    return sums.template exchange<Op>().x;
  }
};

template <bool LAYER, class T>
__device__ __forceinline__ Statistic<float> measure_wide(const ForwardJob &p, WideForwardRow<T> &row) {
  constexpr int V = vector_of<T>;
  Statistic<float> st = {0, 0, 0, 0, 1, 0};
  if (LAYER) {
    const float sum = row.template over<Add>([&](const WideVector &at) {
      Packed<T, V> x;
      row.take(at, x);
      return sum_of_vector<false, LAYER, false, false>(x, V, 1.0f, 0.0f);
    });
    st.mean = divided(sum, p.k, p.inverse_k);
  }
  st.sum = row.template over<Add>([&](const WideVector &at) {
    Packed<T, V> x;
    row.take(at, x);
    const float sum = sum_of_vector<true, LAYER, false, false>(x, V, 1.0f, st.mean);
    return at.there ? sum : 0.0f;
  });
  if (__builtin_expect(squares_in_range(st.sum), 1))
    st.r = root_of<false>(p, st.sum);
  else
    st = row_statistic<true>(Norm<float>{p.wide_eps, p.eps, p.k, p.eps_limit, LAYER, false, false}, row);
  return st;
}

template <class T, bool LAYER>
__global__ void __launch_bounds__(WIDE_THREADS, 1) forward_wide_kernel(const __grid_constant__ ForwardJob p) {
  constexpr int V = vector_of<T>, NV = WIDE_VECTORS;
  extern __shared__ __align__(128) char shared[];
  WideForward<T> block(p, shared);
  WideSums<1> sums = block.sums();
  block.start();
  cluster_arrive();
  wait_for_previous();
#pragma unroll 1
  for (int i = 0; i < p.stages; i++)
    block.request();
    /* each thread reads what it wrote */
#pragma unroll 1
  for (int panel = 0; panel < block.panels; panel++)
#pragma unroll
    for (int i = 0; i < NV; i++) {
      const int vector = block.vector(panel) + i * 32;
      if (vector >= p.vectors) continue;
      if (p.kept > 0) block.parameters(0, panel)[i * 32] = load_shared_by_rows(p.weight + (int64_t)vector * 16);
      if (p.kept > 1) block.parameters(1, panel)[i * 32] = load_shared_by_rows(p.bias + (int64_t)vector * 16);
    }
  cluster_wait();

#pragma unroll 1
  for (int round = 0; round < block.rounds; round++) {
    const int64_t row = block.share + (int64_t)round * p.shares;
    WideForwardRow<T> over = {block, sums};
    Packed<T, V> weight[NV], bias[NV];
    /* weight and bias of a panel, which are asked for while the one ahead of it is worked on */
    auto ask = [&](int panel) {
      const int vector = block.vector(panel), left = p.vectors - vector;
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (i * 32 >= left) continue;
        if (p.kept > 0)
          take_cell(weight[i], block.parameters(0, panel) + i * 32);
        else if (p.weight)
          load_vector<true, false>(weight[i], p.weight + (int64_t)(vector + i * 32) * 16, V);
        if (p.kept > 1)
          take_cell(bias[i], block.parameters(1, panel) + i * 32);
        else if (p.bias)
          load_vector<true, false>(bias[i], p.bias + (int64_t)(vector + i * 32) * 16, V);
      }
    };
    ask(0);
    const Statistic<float> st = measure_wide<LAYER, T>(p, over);
    if (threadIdx.x == 0 && block.first == 0) write_statistic(p, row, st);
    char *y_at = row_at<false>(p.y, {row, 0});
#pragma unroll 1
    for (int panel = 0; panel < block.panels; panel++) {
      const uint4 *cells = block.arrived(panel);
      const int vector = block.vector(panel), left = p.vectors - vector;
      Packed<T, V> x[NV], weight_now[NV], bias_now[NV];
#pragma unroll
      for (int i = 0; i < NV; i++) {
        take_cell(x[i], cells + i * 32);
        weight_now[i] = weight[i], bias_now[i] = bias[i];
      }
      if (panel + 1 < block.panels) ask(panel + 1);
#pragma unroll
      for (int i = 0; i < NV; i++) {
        Packed<T, V> out;
        if (i * 32 >= left) continue;
        finish_common<LAYER, RMS_GATE_NONE>(p, x[i], st, weight_now[i], bias_now[i], out, out);
        store_vector<true>(y_at + (int64_t)(vector + i * 32) * 16, out, V);
      }
      __syncwarp();
      block.request();
    }
    block.end_row();
    if (round + 2 == block.rounds) let_next_start();
  }
}

} // namespace rms_cuda

#endif
