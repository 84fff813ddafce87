/* SPDX-License-Identifier: MIT
 *
 * Rows of the backward of aligned rows that are out of range: once more, from memory, scaled (guard.cuh). */
#ifndef RMS_CUDA_BACKWARD_SCALED_CUH
#define RMS_CUDA_BACKWARD_SCALED_CUH

#include "backward_gated.cuh"

namespace rms_cuda {

/* The vectors of a row that a thread has, in memory. Sums: sums over the threads of the row, which have vectors first,
 * first + team, ...:
 *   over<Op>(f)   the sum or the largest of f(i) over all vectors
 *   gain(i, g)    weight + offset of vector i */
template <class T, Form FORM, class Sums> struct RowInMemory {
  static constexpr int V = vector_of<T>;
  using S = sum_of<T, FORM>;
  using G = gradient_of<T, FORM>;
  const BackwardJob &p;
  Sums &sums;
  RowPlace at;
  int first, team;
  bool active; /* there is a row: all teams of a block, or of a warp, go through the same sums */

  __device__ __forceinline__ int vector(int i) const { return first + i * team; }
  __device__ __forceinline__ bool here(int i) const { return active && vector(i) < p.vectors; }
  __device__ __forceinline__ unsigned mask(int i) const { return counted_mask<T, FORM>(p, vector(i)); }
  __device__ __forceinline__ bool counts_all() const { return p.whole; }
  __device__ __forceinline__ void load_packed_dy(int i, Packed<G, V> &v) const {
    clear(v);
    if (here(i))
      load_vector<!is_shifted(FORM), true>(v, row_at<has_options(FORM)>(p.dy, at) + vector(i) * (int)sizeof(v),
                                           elements_at<T, FORM>(p, vector(i)));
  }
  __device__ __forceinline__ void load_x(int i, float (&x)[V]) const {
    Packed<S, V> v;
    float act[V];
    if constexpr (is_gated_before(FORM)) load_act(i, act);
    clear(v);
    if (here(i)) load_sum<T, FORM>(p, v, row_at<has_options(FORM)>(p.x, at), vector(i), p.x_is_f32);
    unpack(v, x);
    if constexpr (is_gated_before(FORM)) multiply(x, act);
  }
  __device__ __forceinline__ void load_dy(int i, float (&dy)[V]) const {
    constexpr bool gated = is_gated(FORM) && !is_gated_before(FORM);
    Packed<G, V> v;
    if constexpr (gated) load_act(i, dy);
    load_packed_dy(i, v);
    if constexpr (gated)
      open_gate<T, FORM>(p, v, dy);
    else
      unpack(v, dy);
  }
  /* Of a form with a gate: a vector of a tensor, and the activation of the gate. */
  __device__ __forceinline__ void load_packed(const Rows &rows, int i, Packed<T, V> &v) const {
    clear(v);
    if (here(i))
      load_vector<!is_shifted(FORM), true>(v, row_at<true>(rows, at) + vector(i) * 16,
                                           elements_at<T, FORM>(p, vector(i)));
  }
  __device__ __forceinline__ void load_act(int i, float (&act)[V]) const {
    Packed<T, V> gate;
    load_packed(p.added, i, gate);
    unpack(gate, act);
    activate(act, p.sigmoid);
    asm volatile("" ::: "memory"); /* what follows is loaded then: fewer registers */
  }
  __device__ __forceinline__ void load_g(int i, float (&g)[V]) const { sums.gain(i, g); }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) {
    return sums.template over<Op>(of_vector);
  }
};

/* The second half of a vector: dx, and what it adds to the column sums, of which cells(0) and cells(1) are those of
 * dweight and dbias. */
template <class T, bool DBIAS, Form FORM, class Row, class Cells>
__device__ __forceinline__ void finish_scaled(const BackwardJob &p, const Norm<float> &norm, const Row &row, int i,
                                              const RowFactors<float> &f, Cells cells) {
  constexpr int V = vector_of<T>;
  Packed<gradient_of<T, FORM>, V> dy;
  Packed<sum_of<T, FORM>, V> added;
  float u[V], g[V], h[V];
  row.load_packed_dy(i, dy);
  row.load_dy(i, u);
  row.load_x(i, h);
  gradient_h(h, f.scale, f.mean, f.r);
  {
    float sum[V];
    cells(0).get(i, sum);
    add_dweight<T, FORM>(p, sum, dy, u, h);
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
  gradient_u<true, T>(norm, u, g, f.up);
  if (rounds_terms<T, FORM>(p))
    gradient_terms<T>(f, u, h, row.mask(i));
  else
    gradient_dx<true>(f, u, h, row.mask(i));
  if (!row.active || row.vector(i) >= p.stored) return;
  if constexpr (is_gated(FORM)) {
    Packed<T, V> dx, dgate;
#pragma unroll
    for (int c = 0; c < V / 4; c++) {
      Packed<T, V> gate, given;
      float d[4], m[4], w[4], f[4], act[4], slope[4];
      asm volatile("" ::: "memory"); /* each four from memory: fewer registers */
      row.load_packed(p.added, i, gate);
      row.load_packed(is_gated_before(FORM) ? p.x : p.dy, i, given);
      row.load_g(i, g);
#pragma unroll
      for (int j = 0; j < 4; j++)
        d[j] = u[4 * c + j], m[j] = h[4 * c + j], w[j] = g[4 * c + j];
      unpack(four_of(given, c), f);
      unpack(four_of(gate, c), act);
      activate(act, slope, p.sigmoid);
      finish_gate<T, FORM>(p, c, d, m, w, f, act, slope, dx, dgate);
    }
    store_gated<FORM>(p, dx, dgate, targets_of<FORM>(p, row.at), row.vector(i));
    return;
  }
  clear(added);
  if (has_options(FORM) && p.added.data)
    load_sum<T, FORM>(p, added, row_at<true>(p.added, row.at), row.vector(i), p.added_is_f32);
  store_dx<T, FORM>(p, u, added, targets_of<FORM>(p, row.at), row.vector(i));
}

} // namespace rms_cuda

#endif
