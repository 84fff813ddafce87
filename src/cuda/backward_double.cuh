/* SPDX-License-Identifier: MIT
 *
 * Backward of f64 data, the common case: aligned rows at one distance, all elements in the statistic, a weight for all
 * rows or none, nothing added to dx, no gate. Persistent blocks walk the rows, which come ahead through a ring of two
 * stages, and keep x, dy and their column sums in registers. Rows that are out of range or whose statistic was not
 * saved have their factors from the steps of the general kernels (backward_general.cuh). */
#ifndef RMS_CUDA_BACKWARD_DOUBLE_CUH
#define RMS_CUDA_BACKWARD_DOUBLE_CUH

#include "backward_general.cuh"

namespace rms_cuda {

/* The shared memory of a block: stages of dy and x as BackwardSegment has them, gains, chunk sums in two buffers. */
template <bool LAYER> struct DoubleBlock {
  static constexpr int NV = DOUBLE_VECTORS, V = vector_of<double>, SUMS = LAYER ? 2 : 1, chunks = 2 * 32;
  int vectors;

  __device__ __forceinline__ uint4 *stage(uint4 *shared, int which) const { return shared + which * 2 * vectors; }
  __device__ __forceinline__ uint4 *gains(uint4 *shared) const { return shared + 4 * vectors; }
  __device__ __forceinline__ double *chunk(uint4 *shared, int phase) const {
    return reinterpret_cast<double *>(shared + 5 * vectors) + phase * SUMS * chunks;
  }
};

__device__ __forceinline__ void take_doubles(double (&f)[2], const uint4 *cell) {
  const double2 two = *reinterpret_cast<const double2 *>(cell);
  f[0] = two.x, f[1] = two.y;
}

/* The sums of all threads of a block, from those of its vectors, in the order of sum.cuh. */
template <bool LAYER>
__device__ __forceinline__ void double_sums(double *chunk, int vectors,
                                            double (&v)[DoubleBlock<LAYER>::SUMS][DOUBLE_VECTORS],
                                            GradientSums<double> &sums) {
  using Block = DoubleBlock<LAYER>;
  constexpr int copies = 32 / Block::NV;
  const int lane = (int)threadIdx.x & 31, place = lane / copies * ((int)blockDim.x / 32) + (int)threadIdx.x / 32;
#pragma unroll
  for (int s = 0; s < Block::SUMS; s++) {
    const double folded = fold<Add>(v[s]);
    if (lane % copies == 0) chunk[s * Block::chunks + place] = folded;
  }
  __syncthreads();
#pragma unroll
  for (int s = 0; s < Block::SUMS; s++) {
    double total = butterfly<Add>(chunk[s * Block::chunks + lane], 16, 1);
    if (vectors > PANEL) total += butterfly<Add>(chunk[s * Block::chunks + 32 + lane], 16, 1);
    (s == 0 ? sums.dot : sums.u) = total;
  }
}

/* A row whose factors the general steps find: writes dx, and h in the place of x. In a function of its own, so that the
 * usual way has the registers for itself. */
static __device__ __noinline__ void general_row(const GeneralBackward &g, int64_t row, uint4 *stage, const uint4 *gains,
                                                double *slots) {
  const Team team(g.team, slots);
  const Place at = {row, 0, 0};
  const BackwardSegment<double, true, false> segment(g, team, at, stage);
  const RowFactors<double> f = segment_factors(g, segment, at, false);
  const Norm<double> norm = norm_of<double>(g.job.lay, g.eps_limit);
  const int vectors = (int)segment.vectors;
  __syncthreads(); /* all have read the row */
#pragma unroll 1
  for (int v = (int)threadIdx.x; v < vectors; v += (int)blockDim.x) {
    double out[2], gain[2], h[2];
    take_doubles(out, stage + v);
    take_doubles(h, stage + vectors + v);
    take_doubles(gain, gains + v);
    gradient_h(h, f.scale, f.mean, f.r);
    if (f.up == 0 && f.down == 0) {
      gradient_u<false, double>(norm, out, gain, 0);
      gradient_dx<false>(f, out, h, 3);
    } else {
      gradient_u<true, double>(norm, out, gain, f.up);
      gradient_dx<true>(f, out, h, 3);
    }
    *reinterpret_cast<double2 *>(stage + vectors + v) = make_double2(h[0], h[1]);
    if (g.job.dx.data)
      *reinterpret_cast<double2 *>(g.job.dx.data + row * g.job.dx.outer + v * 16) = make_double2(out[0], out[1]);
  }
  share_with_copies(); /* the stage is for another row now */
}

template <bool LAYER>
__global__ void __launch_bounds__(DOUBLE_THREADS, 1) backward_double_kernel(const __grid_constant__ GeneralBackward g) {
#if __CUDA_ARCH__ >= 900
  using Block = DoubleBlock<LAYER>;
  constexpr int NV = Block::NV, V = Block::V;
  extern __shared__ uint4 general_cells[];
  __shared__ double slots[32];
  __shared__ uint64_t full[2];
  const rms_backward_job &job = g.job;
  const Block block = {(int)(job.lay.width / V)};
  const int t = (int)threadIdx.x, threads = (int)blockDim.x, vectors = block.vectors;
  const int64_t first = blockIdx.x;
  const Norm<double> norm = norm_of<double>(job.lay, g.eps_limit);
  const bool saved = job.rstd && !job.stats_in && !norm.eps_outside;
  auto request = [&](int64_t row, int stage) {
    if (t != 0 || row >= g.count) return;
    uint4 *to = block.stage(general_cells, stage);
    expect_bytes(full + stage, vectors * 32);
    copy_bulk<false>(to, job.dy.data + row * job.dy.outer, vectors * 16, full + stage);
    copy_bulk<false>(to + vectors, job.x.data + row * job.x.outer, vectors * 16, full + stage);
  };
  if (t == 0) start_barriers(full, 2);
  for (int i = t; i < 2 * Block::SUMS * Block::chunks; i += threads)
    block.chunk(general_cells, 0)[i] = 0;
  __syncthreads();
  request(first, 0);
  request(first + g.shares, 1);
  {
    const Team team(g.team, slots);
    const Place at = {0, 0, 0};
    const BackwardSegment<double, true, false> segment(g, team, at, nullptr);
    for (int v = t; v < vectors; v += threads) {
      double gain[V];
      segment.load_g(v, gain);
      *reinterpret_cast<double2 *>(block.gains(general_cells) + v) = make_double2(gain[0], gain[1]);
    }
  }
  __syncthreads();

  double dweight[NV][V] = {}, dbias[LAYER ? NV : 1][V] = {};
  int stage = 0, turn = 0;
  int64_t row = first;
  auto add = [&](int i, const double(&dm)[V], const double(&h)[V]) {
#pragma unroll
    for (int j = 0; j < V; j++) {
      dweight[i][j] = fused(dm[j], h[j], dweight[i][j]);
      if (LAYER) dbias[LAYER ? i : 0][j] += dm[j];
    }
  };
  auto go_on = [&] { /* all have read the stage */
                     request(row + 2 * g.shares, stage);
                     row += g.shares;
                     stage ^= 1;
                     if (stage == 0) turn ^= 1;
  };
#pragma unroll 1
  for (;;) {
#pragma unroll 1
    while (row < g.count) {
      Statistic<double> st = {0, 0, 0, 0, 1, 0};
      if (saved) st.r = static_cast<const double *>(job.rstd)[row];
      if (LAYER && saved && job.mean) st.mean = static_cast<const double *>(job.mean)[row];
      const uint4 *cells = block.stage(general_cells, stage), *gains = block.gains(general_cells);
      double x[NV][V] = {}, dy[NV][V] = {}, v[Block::SUMS][NV] = {};
      wait_for_copies(full + stage, turn);
#pragma unroll
      for (int i = 0; i < NV; i++) {
        const int vector = t + i * threads;
        double u[V], gain[V];
        if (vector >= vectors) continue;
        take_doubles(dy[i], cells + vector);
        take_doubles(x[i], cells + vectors + vector);
        take_doubles(gain, gains + vector);
#pragma unroll
        for (int j = 0; j < V; j++) {
          u[j] = dy[i][j] * gain[j];
          v[0][i] = fused(u[j], LAYER ? (x[i][j] - st.mean) * st.r : x[i][j], v[0][i]);
          if (LAYER) v[Block::SUMS - 1][i] += u[j];
        }
      }
      GradientSums<double> sums = {0, 0};
      double_sums<LAYER>(block.chunk(general_cells, stage), vectors, v, sums);
      if (__builtin_expect(!saved || !row_in_range(norm, st.r, sums), 0)) break;
      const RowFactors<double> f = factors_of(norm, st, 0, sums, norm.k);
      char *dx = job.dx.data ? job.dx.data + row * job.dx.outer : nullptr;
      go_on();
#pragma unroll
      for (int i = 0; i < NV; i++) {
        const int vector = t + i * threads;
        double out[V], gain[V];
        if (vector >= vectors) continue;
        take_doubles(gain, gains + vector);
        gradient_h(x[i], f.scale, f.mean, f.r);
        add(i, dy[i], x[i]);
#pragma unroll
        for (int j = 0; j < V; j++)
          out[j] = dy[i][j];
        gradient_u<false, double>(norm, out, gain, 0);
        gradient_dx<false>(f, out, x[i], 3);
        if (dx) __stcs(reinterpret_cast<double2 *>(dx + vector * 16), make_double2(out[0], out[1]));
      }
    }
    if (row >= g.count) break;
    const uint4 *cells = block.stage(general_cells, stage);
    general_row(g, row, block.stage(general_cells, stage), block.gains(general_cells), slots);
#pragma unroll
    for (int i = 0; i < NV; i++) {
      const int vector = t + i * threads;
      double h[V], dy[V];
      if (vector >= vectors) continue;
      take_doubles(dy, cells + vector);
      take_doubles(h, cells + vectors + vector);
      add(i, dy, h);
    }
    __syncthreads();
    go_on();
  }

  double *to = g.partial + blockIdx.x * job.lay.width;
#pragma unroll
  for (int i = 0; i < NV; i++) {
    const int vector = t + i * threads;
    if (vector >= vectors) continue;
    auto write = [&](double *plane, const double(&sum)[V]) {
      reinterpret_cast<double2 *>(plane)[vector] = make_double2(sum[0], sum[1]);
    };
    if (g.want_dweight) write(to, dweight[i]);
    if (LAYER && g.want_dbias) write(to + (g.want_dweight ? g.shares * job.lay.width : 0), dbias[LAYER ? i : 0]);
  }
#else
  (void)g;
#endif
}

} // namespace rms_cuda

#endif
