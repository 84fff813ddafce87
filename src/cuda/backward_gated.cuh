/* SPDX-License-Identifier: MIT
 *
 * Steps of the backward of aligned rows with a gate. The activations and their slopes are formed once, when a row has
 * arrived, and kept until it is written: `act` and `slope` of a vector. From open_gate on, `act` of a gate after the
 * norm holds dm = dy*act(z), which is all that is still needed of it. */
#ifndef RMS_CUDA_BACKWARD_GATED_CUH
#define RMS_CUDA_BACKWARD_GATED_CUH

#include "backward_steps.cuh"

namespace rms_cuda {

/* Elements 4c to 4c + 3 of a vector. */
template <class S, int V> __device__ __forceinline__ Packed<S, 4> four_of(const Packed<S, V> &v, int c) {
  constexpr int words = Packed<S, 4>::words;
  Packed<S, 4> four;
#pragma unroll
  for (int i = 0; i < words; i++)
    four.w[i] = v.w[c * words + i];
  return four;
}
template <class S, int V> __device__ __forceinline__ void put_four(Packed<S, V> &v, int c, const float (&f)[4]) {
  constexpr int words = Packed<S, 4>::words;
  Packed<S, 4> four;
  pack(four, f);
#pragma unroll
  for (int i = 0; i < words; i++)
    v.w[c * words + i] = four.w[i];
}

/* dm of a gate after the norm, from dy and act(z), in place of the latter. */
template <class T, Form FORM, int V>
__device__ __forceinline__ void open_gate(const BackwardJob &p, const Packed<T, V> &dy, float (&act)[V]) {
  if constexpr (!is_gated_before(FORM)) {
    float d[V];
    unpack(dy, d);
    multiply(act, d);
    if (is_gated_rounded(FORM) && p.round_product) round_to<T>(act);
  }
}

/* x and dy as the norm has them. */
template <class T, Form FORM, int V>
__device__ __forceinline__ void opened_x(const Packed<T, V> &x, const float (&act)[V], float (&f)[V]) {
  unpack(x, f);
  if (is_gated_before(FORM)) multiply(f, act);
}
template <class T, Form FORM, int V>
__device__ __forceinline__ void opened_dy(const Packed<T, V> &dy, const float (&act)[V], float (&f)[V]) {
  unpack(dy, f);
  if (!is_gated_before(FORM)) {
#pragma unroll
    for (int j = 0; j < V; j++)
      f[j] = act[j];
  }
}

/* Whether dy, or x and the mean, as the norm has them, are zeros. */
template <class T, Form FORM, int V>
__device__ __forceinline__ bool has_zero_dy(const Packed<T, V> &dy, const float (&act)[V]) {
  return is_gated_before(FORM) ? is_zero(dy) : is_zero(act);
}
template <class T, Form FORM, int V>
__device__ __forceinline__ bool has_zero_x(const Packed<T, V> &x, const float (&act)[V], float mean) {
  float f[V];
  opened_x<T, FORM>(x, act, f);
  return (is_gated_before(FORM) ? is_zero(f) : is_zero(x)) && mean == 0;
}

/* The c-th four elements of dx and dgate. d: the gradient of what was normalised; given: x or dy as it is in memory,
 * whichever the gate multiplies. */
template <class T, Form FORM, int V>
__device__ __forceinline__ void finish_gate(const BackwardJob &p, int c, float (&d)[4], float (&h)[4],
                                            const float (&g)[4], float (&given)[4], const float (&act)[4],
                                            const float (&slope)[4], Packed<T, V> &dx, Packed<T, V> &dgate) {
  if (is_gated_before(FORM)) {
    multiply(given, d);
    multiply(d, act);
  } else { /* what the forward multiplied by act(z) */
    const Affine form = {true, false, is_gated_rounded(FORM), p.weight_is_f32};
    affine<T>(h, g, g, form);
    round_before_gate<T>(h, form);
    multiply(given, h);
  }
  multiply(given, slope);
  put_four(dx, c, d), put_four(dgate, c, given);
  asm volatile("" ::: "memory"); /* one after the other: fewer registers */
}

/* The same from x and dy, and what they add to the column sums. column: the first of the vector. */
template <class T, bool LAYER, bool DBIAS, Form FORM, int V>
__device__ __forceinline__ void
finish_gated_four(const BackwardJob &p, int c, const Packed<T, V> &x, const Packed<T, V> &dy, const float (&act)[V],
                  const float (&slope)[V], const float4 &gain, float r, float mean, float c1, float c2, int column,
                  float (&dweight)[V], float (&dbias)[V], Packed<T, V> &dx, Packed<T, V> &dgate) {
  const float g[4] = {gain.x, gain.y, gain.z, gain.w};
  float a[4], s[4], h[4], d[4], given[4], sum[4];
#pragma unroll
  for (int j = 0; j < 4; j++)
    a[j] = act[4 * c + j], s[j] = slope[4 * c + j], sum[j] = dweight[4 * c + j];
  unpack(four_of(is_gated_before(FORM) ? x : dy, c), given);
  opened_x<T, FORM>(four_of(x, c), a, h);
  opened_dy<T, FORM>(four_of(dy, c), a, d);
  normalise<LAYER>(h, r, mean);
  add_dweight<T, is_gated_rounded(FORM)>(p, sum, d, h);
#pragma unroll
  for (int j = 0; j < 4; j++) {
    dweight[4 * c + j] = sum[j];
    if (DBIAS) dbias[4 * c + j] += d[j];
  }
  multiply(d, g);
  if (is_gated_rounded(FORM)) round_to<T>(d);
  finish_dx<T, LAYER, FORM>(p, d, h, c1, c2, r, column + 4 * c);
  finish_gate<T, FORM>(p, c, d, h, g, given, a, s, dx, dgate);
}

template <Form FORM, class T, int V>
__device__ __forceinline__ void store_gated(const BackwardJob &p, const Packed<T, V> &dx, const Packed<T, V> &dgate,
                                            const RowTargets &to, int vector) {
  if (p.dx.data) store_row<T, FORM>(p, to.dx, dx, vector);
  if (p.copy.data) store_row<T, FORM>(p, to.copy, dgate, vector);
}

} // namespace rms_cuda

#endif
