/* SPDX-License-Identifier: MIT
 *
 * Rows of the lean backward that are not calm: once more, from memory, scaled (guard.cuh). */
#ifndef RMS_CUDA_LEAN_SCALED_CUH
#define RMS_CUDA_LEAN_SCALED_CUH

#include "lean_block.cuh"

namespace rms_cuda {

template <bool LAYER, int MORE> __device__ __forceinline__ GuardSpec<float> guard_of(const LeanBackward &p) {
  return {p.exact_eps, p.k, p.eps_limit, LAYER, false, MORE == 2 || (MORE == 1 && p.before)};
}

/* Which elements of a vector are in the statistic. */
template <class T, int MORE> __device__ __forceinline__ unsigned counted_mask(const LeanBackward &p, int vector) {
  constexpr int V = vector_of<T>;
  constexpr unsigned all = (1u << V) - 1;
  if (vector >= p.vectors) return 0;
  const int left = MORE && !p.whole ? p.leading - vector * V : V;
  return left >= V ? all : left > 0 ? (1u << left) - 1 : 0;
}

/* dy to u. */
template <class T, int MORE, int V>
__device__ __forceinline__ void weigh(const LeanBackward &p, float (&u)[V], const float4 *gain, int plane) {
#pragma unroll
  for (int c = 0; c < V / 4; c++) {
    float4 g = gain[c * plane];
    u[4 * c] *= g.x, u[4 * c + 1] *= g.y, u[4 * c + 2] *= g.z, u[4 * c + 3] *= g.w;
  }
  round_u<T, MORE>(p, u);
}

/* A row of a team, in memory. Every team of a block goes through the same barriers, whether it has a row or not. */
template <class T, int NV, int MORE, class Sums, int SUMS> struct LeanRow {
  static constexpr int V = vector_of<T>;
  const LeanBackward &p;
  Sums &sums;
  RowPlace at;
  int first; /* vector of this thread */
  const float4 *gain;
  int plane; /* from one float4 of a vector's gains to the next */
  bool active;

  __device__ __forceinline__ int vector(int i) const { return first + i * sums.team; }
  __device__ __forceinline__ bool here(int i) const { return active && vector(i) < p.vectors; }
  __device__ __forceinline__ unsigned mask(int i) const { return counted_mask<T, MORE>(p, vector(i)); }
  __device__ __forceinline__ void load(int i, const Rows &rows, Packed<T, V> &v) const {
    clear(v);
    if (here(i)) load_vector<true, true>(v, row_at<MORE>(rows, at) + vector(i) * 16, V);
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
  __device__ __forceinline__ void load_g(int i, float (&g)[V]) const {
#pragma unroll
    for (int c = 0; c < V / 4; c++) {
      const float4 four = gain[i * sums.team + c * plane];
      g[4 * c] = four.x, g[4 * c + 1] = four.y, g[4 * c + 2] = four.z, g[4 * c + 3] = four.w;
    }
  }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) {
    float v[SUMS * NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      v[i] = of_vector(i);
      asm volatile("" ::: "memory"); /* one vector after the other: fewer registers */
    }
#pragma unroll
    for (int i = NV; i < SUMS * NV; i++)
      v[i] = 0;
    return sums.template of<Op>(v).x;
  }
};

/* The second half of a vector: dx, and what it adds to the column sums, of which cells(0) and cells(1) are those of
 * dweight and dbias. */
template <class T, bool DBIAS, int MORE, class Row, class Cells>
__device__ __forceinline__ void finish_scaled(const LeanBackward &p, const GuardSpec<float> &spec, const Row &row,
                                              int i, const RowFactors<float> &f, Cells cells) {
  constexpr int V = vector_of<T>;
  Packed<T, V> dy, added;
  float u[V], g[V], h[V];
  row.load(i, p.dy, dy);
  unpack(dy, u);
  row.load_x(i, h);
  gradient_h(h, f.scale, f.mean, f.r);
  {
    float sum[V];
    cells(0).get(i, sum);
    add_dweight<T, MORE>(p, sum, dy, u, h);
    cells(0).set(i, sum);
    if (DBIAS) {
      cells(1).get(i, sum);
#pragma unroll
      for (int j = 0; j < V; j++)
        sum[j] += u[j];
      cells(1).set(i, sum);
    }
  }
  row.load_g(i, g);
  gradient_u<true, T>(spec, u, g, f.up);
  gradient_dx<true>(f, u, h, row.mask(i));
  if (!row.active || row.vector(i) >= p.stored) return;
  clear(added);
  if (MORE == 1 && p.added.data) row.load(i, p.added, added);
  store_dx<MORE>(p, u, added, row_at<MORE>(p.dx, row.at) + row.vector(i) * 16,
                 row_at<MORE>(p.copy, row.at) + row.vector(i) * 16);
}

/* One row of a team; none where row is negative. */
template <class T, int NV, bool LAYER, bool DBIAS, int MORE, int SUMS, class Sums, class Cells>
__device__ __forceinline__ void scaled_row(const LeanBackward &p, Sums &sums, int64_t row, int first,
                                           const float4 *gain, int plane, Cells cells) {
  const bool active = row >= 0;
  const GuardSpec<float> spec = guard_of<LAYER, MORE>(p);
  LeanRow<T, NV, MORE, Sums, SUMS> at = {p,     sums,  place_of_row<MORE>(p.inner, active ? row : 0), first, gain,
                                         plane, active};
  const RowFactors<float> f = scaled_factors<T>(spec, at, p.stats ? p.stats + (active ? row : 0) : nullptr);
  if (!active) return;
#pragma unroll 1
  for (int i = 0; i < NV; i++)
    finish_scaled<T, DBIAS, MORE>(p, spec, at, i, f, cells);
}

/* The rows of a block that are not calm, FLAT rounds after FLAT rounds, the teams in step. A function of its own, so
 * that the loop over the other rows has the registers for itself. phase, parity: where the sums over rows are. */
template <class T, int NV, bool LAYER, bool DBIAS, bool CLUSTER, int MORE>
__device__ __noinline__ void scaled_rows(const LeanBackward &p, int phase, int parity) {
  using Block = BackwardBlock<T, NV, LAYER, DBIAS, CLUSTER, MORE>;
  constexpr int V = Block::V, Q = Block::Q;
  extern __shared__ __align__(128) char shared[];
  const Block block(p);
  const int threads = (int)blockDim.x, rounds = rounds_from(p, block.share * block.teams, block.stride);
  const unsigned *odd_rows = reinterpret_cast<const unsigned *>(shared + block.where.odd);
  typename Block::Sums sums = block.sums(p, shared, phase, parity);
  /* column sums lie where the ring was: all its copies have arrived */
  static_assert(Q * (DBIAS ? 2 : 1) <= 4, "the column sums of a thread fit two stages of two streams");
  auto at = [&](int offset, int plane) -> float4 * {
    unsigned thread; /* worked out anew where it is needed: it is not worth a register */
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return reinterpret_cast<float4 *>(shared + offset) + plane * NV * Q * threads + thread;
  };
  auto cells = [&](int plane) -> ColumnCells<NV, V> { return {at(block.where.ring, plane), threads}; };
#pragma unroll 1
  for (int flat = 0; flat * FLAT < rounds; flat++) {
    int steps = 0;
    for (int g = 0; g < block.teams; g++)
      steps = max(steps, __popc(odd_rows[g * DEEP + flat]));
    if (steps == 0) continue;
    unsigned odd = odd_rows[block.group * DEEP + flat];
    for (int plane = 0; plane < (DBIAS ? 2 : 1); plane++)
      cells(plane).clear();
#pragma unroll 1
    for (; steps > 0; steps--, odd &= odd - 1)
      scaled_row<T, NV, LAYER, DBIAS, MORE, Block::SUMS>(
          p, sums, odd != 0 ? block.mine + (int64_t)(flat * FLAT + __ffs((int)odd) - 1) * block.stride : (int64_t)-1,
          block.first, block.gain(shared), block.cells, cells);
    for (int plane = 0; plane < (DBIAS ? 2 : 1); plane++)
      cells(plane).flush(at(block.where.deep, plane), true);
  }
}

} // namespace rms_cuda

#endif
