/* SPDX-License-Identifier: MIT
 *
 * Steps of the backward of aligned rows that are the same for a row of a warp, a block and a cluster. With h the
 * normalised row and u = dy*g:  dx = r * (u - mean(u) - h * mean(u*h)), where mean(u) is LayerNorm's alone.
 *
 * T: data type. FORM: plan.h; what COMMON rows never need costs them nothing. */
#ifndef RMS_CUDA_BACKWARD_STEPS_CUH
#define RMS_CUDA_BACKWARD_STEPS_CUH

#include <type_traits>
#include "activation.cuh"
#include "columns.cuh"
#include "guard.cuh"
#include "plan.h"
#include "shifted.cuh"

namespace rms_cuda {

/* The type of x, of what is added to dx and of its second place. */
template <class T, Form FORM> using sum_of = std::conditional_t<FORM == Form::F32_SUM, float, T>;

/* The type of dy. */
template <class T, Form FORM> using gradient_of = std::conditional_t<FORM == Form::F32_DY, float, T>;

template <bool LAYER, Form FORM> __device__ __forceinline__ bool is_layer(const BackwardJob &p) {
  return LAYER && (!has_options(FORM) || p.layer);
}
template <Form FORM> __device__ __forceinline__ bool rounds_before(const BackwardJob &p) {
  return is_rounded(FORM) || is_gated_rounded(FORM) || (has_options(FORM) && !is_gated(FORM) && p.round_before);
}
template <bool LAYER, Form FORM> __device__ __forceinline__ Norm<float> norm_of(const BackwardJob &p) {
  return {p.wide_eps,
          p.eps,
          p.k,
          p.eps_limit,
          is_layer<LAYER, FORM>(p),
          has_options(FORM) && p.eps_outside,
          rounds_before<FORM>(p),
          has_options(FORM) && p.eps_clamp};
}
/* Whether rstd and mean are there, and all that is needed. */
template <Form FORM> __device__ __forceinline__ bool has_saved(const BackwardJob &p) {
  return !has_options(FORM) || p.saved;
}

/* c2 of a row in range with eps outside the root, whose statistic is not a saved one. */
__device__ __forceinline__ float corrected_outside(const BackwardJob &p, const Statistic<float> &st, float c2) {
  if (p.eps_clamp) return st.rms > 0 ? c2 : 0;
  return c2 * outside_factor(st);
}

/* ---- which rows ---- */

/* There are no inner indices beside slices. Without branches: every row waits for this. */
template <Form FORM> __device__ __forceinline__ RowPlace place_in_slice(const BackwardJob &p, int64_t row, int slice) {
  if (!has_options(FORM)) return {row, 0};
  const bool several = p.inner.rows != 0;
  const RowPlace at = divide_row(p.inner, row);
  return {several ? at.outer : row, several ? at.inner : (unsigned)slice};
}
template <Form FORM> __device__ __forceinline__ int64_t index_of_row(const BackwardJob &p, int64_t row, int slice) {
  return has_options(FORM) ? row * p.slices + slice : row;
}

/* Rounds of a team whose first row this is. */
__device__ __forceinline__ int rounds_from(const BackwardJob &p, int64_t mine, int64_t stride) {
  int rounds = p.rounds - (mine + (p.rounds - 1) * stride < p.rows ? 0 : 1);
  asm volatile("" : "+r"(rounds)); /* one register, not what it came from */
  return rounds;
}

/* Which elements of a vector are in the statistic. */
template <class T, Form FORM> __device__ __forceinline__ unsigned counted_mask(const BackwardJob &p, int vector) {
  constexpr int V = vector_of<T>;
  constexpr unsigned all = (1u << V) - 1;
  if (vector >= p.vectors) return 0;
  const int left = is_shifted(FORM) || (has_options(FORM) && !p.whole) ? p.leading - vector * V : V;
  return left >= V ? all : left > 0 ? (1u << left) - 1 : 0;
}

/* Elements of a vector that there are. */
template <class T, Form FORM> __device__ __forceinline__ int elements_at(const BackwardJob &p, int vector) {
  constexpr int V = vector_of<T>;
  const int left = is_shifted(FORM) ? p.bytes / (int)sizeof(T) - vector * V : V;
  return left < V ? left : V;
}

/* ---- h and u ---- */

/* weight + offset of a vector of a slice; ones where there is none. */
template <class T, Form FORM, int V>
__device__ __forceinline__ void load_gain(const BackwardJob &p, int slice, int vector, float (&g)[V]) {
#pragma unroll
  for (int j = 0; j < V; j++)
    g[j] = 1;
  if (!p.weight || vector >= p.vectors) return;
  load_parameter<!is_shifted(FORM), T>(g, p.weight + (has_options(FORM) ? slice * p.weight_inner : 0), vector * V,
                                       elements_at<T, FORM>(p, vector), p.weight_is_f32);
  add_offset<T>(g, p.offset, has_options(FORM) && p.round_gain);
}

template <bool LAYER, int V> __device__ __forceinline__ void normalise(float (&x)[V], float r, float mean) {
#pragma unroll
  for (int j = 0; j < V; j++)
    x[j] = (LAYER ? x[j] - mean : x[j]) * r;
}

/* dy to u, rounded where models round before the weight. The gains of four columns are `plane` apart. */
template <class T, Form FORM, int V>
__device__ __forceinline__ void weigh(const BackwardJob &p, float (&u)[V], const float4 *gain, int plane) {
#pragma unroll
  for (int c = 0; c < V / 4; c++) {
    float4 g = gain[c * plane];
    u[4 * c] *= g.x, u[4 * c + 1] *= g.y, u[4 * c + 2] *= g.z, u[4 * c + 3] *= g.w;
  }
  if (rounds_before<FORM>(p)) round_to<T>(u);
}

/* Where the dx of a row goes. */
struct RowTargets {
  char *dx, *copy;
};
template <Form FORM> __device__ __forceinline__ RowTargets targets_of(const BackwardJob &p, const RowPlace &at) {
  constexpr bool options = has_options(FORM);
  return {row_at<options>(p.dx, at), options && p.copy.data ? row_at<options>(p.copy, at) : nullptr};
}

/* ---- dweight ---- */

/* Products of elements, each rounded to the type. */
template <int V>
__device__ __forceinline__ void multiply(Packed<__nv_bfloat16, V> &a, const Packed<__nv_bfloat16, V> &b) {
#pragma unroll
  for (int i = 0; i < V / 2; i++) {
    __nv_bfloat162 two =
        __hmul2(*reinterpret_cast<const __nv_bfloat162 *>(&a.w[i]), *reinterpret_cast<const __nv_bfloat162 *>(&b.w[i]));
    a.w[i] = *reinterpret_cast<uint32_t *>(&two);
  }
}
template <int V> __device__ __forceinline__ void multiply(Packed<__half, V> &a, const Packed<__half, V> &b) {
#pragma unroll
  for (int i = 0; i < V / 2; i++) {
    __half2 two = __hmul2(*reinterpret_cast<const __half2 *>(&a.w[i]), *reinterpret_cast<const __half2 *>(&b.w[i]));
    a.w[i] = *reinterpret_cast<uint32_t *>(&two);
  }
}

/* What dweight gets from a row. ROUNDED: before the weight; product: q holds rounded products with dy. */
template <class T, bool ROUNDED, int V>
__device__ __forceinline__ void add_dweight(const BackwardJob &p, float (&sum)[V], const float (&dy)[V],
                                            const float (&h)[V]) {
  float q[V];
#pragma unroll
  for (int j = 0; j < V; j++)
    q[j] = h[j];
  if (ROUNDED) round_to<T>(q);
  if (ROUNDED && p.round_product) {
    multiply(q, dy);
    round_to<T>(q);
#pragma unroll
    for (int j = 0; j < V; j++)
      sum[j] += q[j];
  } else {
#pragma unroll
    for (int j = 0; j < V; j++)
      sum[j] = fused(dy[j], q[j], sum[j]);
  }
}
template <class T, Form FORM, int V>
__device__ __forceinline__ void add_dweight(const BackwardJob &p, float (&sum)[V],
                                            const Packed<gradient_of<T, FORM>, V> &packed_dy, const float (&dy)[V],
                                            const float (&h)[V]) {
  if constexpr (is_rounded(FORM)) {
    Packed<T, V> packed;
    float q[V];
    pack(packed, h);
    if (p.round_product) multiply(packed, packed_dy);
    unpack(packed, q);
#pragma unroll
    for (int j = 0; j < V; j++)
      sum[j] = p.round_product ? sum[j] + q[j] : fused(dy[j], q[j], sum[j]);
  } else if (rounds_before<FORM>(p)) {
    add_dweight<T, true>(p, sum, dy, h);
  } else {
    add_dweight<T, false>(p, sum, dy, h);
  }
}

/* ---- dx ---- */

/* Whether the two terms of dx are rounded on their own (RMS_STEPS_TERMS, RMSNorm of 16-bit types). */
template <class T, Form FORM> __device__ __forceinline__ bool rounds_terms(const BackwardJob &p) {
  return FORM == Form::TERMS || (sizeof(T) == 2 && has_options(FORM) && !is_gated(FORM) && p.terms);
}

/* u to dx; `column` is the first of the vector. */
template <class T, bool LAYER, Form FORM, int V>
__device__ __forceinline__ void finish_dx(const BackwardJob &p, float (&u)[V], const float (&h)[V], float c1, float c2,
                                          float r, int column) {
  if (rounds_terms<T, FORM>(p)) {
    float second[V];
#pragma unroll
    for (int j = 0; j < V; j++)
      u[j] *= r, second[j] = h[j] * (!has_options(FORM) || column + j < p.leading ? c2 : 0.0f) * r;
    round_to<T>(u);
    round_to<T>(second);
#pragma unroll
    for (int j = 0; j < V; j++)
      u[j] -= second[j];
    if (has_options(FORM)) round_to<T>(u); /* otherwise the store is the last rounding */
  } else if (!has_options(FORM) || p.whole) {
#pragma unroll
    for (int j = 0; j < V; j++)
      u[j] = fused(-h[j], c2, LAYER ? u[j] - c1 : u[j]) * r;
  } else {
#pragma unroll
    for (int j = 0; j < V; j++)
      u[j] = fused(-h[j], column + j < p.leading ? c2 : 0.0f, LAYER ? u[j] - c1 : u[j]) * r;
  }
}

/* Vector `vector` of a row of type S, or where the sums are f32 and this is not of type T. */
template <class T, Form FORM, class S, int V>
__device__ __forceinline__ void load_sum(const BackwardJob &p, Packed<S, V> &v, const char *row, int vector,
                                         bool is_f32) {
  if constexpr (is_shifted(FORM)) {
    load_vector<false, true>(v, row + vector * 16, elements_at<T, FORM>(p, vector));
  } else if constexpr (sizeof(S) == sizeof(T)) {
    load_vector<true, true>(v, row + (int64_t)vector * 16, V);
  } else if (is_f32) {
    load_vector<true, true>(v, row + (int64_t)vector * (V * 4), V);
  } else {
    Packed<T, V> narrow;
    float f[V];
    load_vector<true, true>(narrow, row + (int64_t)vector * 16, V);
    unpack(narrow, f);
    pack(v, f);
  }
}

/* A vector of a row of the data type to memory. */
template <class T, Form FORM, int V>
__device__ __forceinline__ void store_row(const BackwardJob &p, char *row, const Packed<T, V> &v, int vector) {
  store_vector<!is_shifted(FORM)>(row + vector * 16, v, elements_at<T, FORM>(p, vector));
}

/* dx of a vector, rounded; `in` is what is added to it. */
template <Form FORM, class T, class S, int V>
__device__ __forceinline__ void add_and_pack(const BackwardJob &p, float (&dx)[V], const Packed<S, V> &in,
                                             Packed<T, V> &packed) {
  if (has_options(FORM) && p.added.data) {
    float more[V];
    unpack(in, more);
#pragma unroll
    for (int j = 0; j < V; j++)
      dx[j] += more[j];
  }
  pack(packed, dx);
}

/* dx of a vector to memory; `in` is what is added to it. Each lane for itself. */
template <class T, Form FORM, class S, int V>
__device__ __forceinline__ void store_dx(const BackwardJob &p, float (&dx)[V], const Packed<S, V> &in,
                                         const RowTargets &to, int vector) {
  constexpr bool options = has_options(FORM);
  Packed<T, V> packed;
  add_and_pack<FORM>(p, dx, in, packed);
  if (!options || p.dx.data) store_row<T, FORM>(p, to.dx, packed, vector);
  if (!options || !p.copy.data) return;
  if constexpr (FORM == Form::F32_SUM) {
    if (p.copy_is_f32) {
      Packed<float, V> wide;
      pack(wide, dx);
      store_vector<true>(to.copy + (int64_t)vector * (V * 4), wide, V);
      return;
    }
  }
  store_row<T, FORM>(p, to.copy, packed, vector);
}

} // namespace rms_cuda

#endif
