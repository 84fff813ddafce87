/* SPDX-License-Identifier: MIT
 *
 * Steps of the forward of aligned rows that are the same for rows of a warp, a block and a cluster.
 *
 * T: data type. S: type of what is normalised: T, or f32 for the sum with an f32 residual beside 16-bit data. NV:
 * vectors of a row that a thread has. OPTIONS: false for the common case: rows at one distance, the whole row in the
 * statistic, eps inside the root, weight and bias (if any) in the data type, no bias without a weight, one rounding.
 * SHIFTED: with options, of rows that are not aligned (shifted.cuh). GATE: the place of a gate (activation.cuh); S is
 * f32 where it comes before the norm. Without options there is then a weight, neither offset nor bias, and either order
 * of rounding. */
#ifndef RMS_CUDA_FORWARD_STEPS_CUH
#define RMS_CUDA_FORWARD_STEPS_CUH

#include <type_traits>
#include "activation.cuh"
#include "shifted.cuh"
#include "statistic.cuh"

namespace rms_cuda {

/* ---- where things are ---- */

/* Bytes from the first weights to those of a row. */
template <bool OPTIONS> __device__ __forceinline__ int64_t weight_skip(const ForwardJob &p, int64_t row) {
  return OPTIONS && p.weight_inner != 0 ? place_of_row<OPTIONS>(p.inner, row).inner * p.weight_inner : 0;
}

/* Elements of the row that are in its statistic, from a vector on. */
template <bool OPTIONS, class T> __device__ __forceinline__ int counted(const ForwardJob &p, int vector) {
  return OPTIONS ? p.statistic - vector * vector_of<T> : vector_of<T>;
}

/* Bytes of a row before one of its vectors. */
template <class S, int V> __device__ __forceinline__ int64_t bytes_before(int vector) {
  return (int64_t)vector * (V * (int)sizeof(S));
}

/* ---- vectors ---- */

/* x + residual, rounded to S. */
template <class T, class S, int V>
__device__ __forceinline__ void add_residual(Packed<S, V> &x, const Packed<T, V> &in, const Packed<S, V> &residual) {
  float a[V], b[V];
  unpack(in, a);
  unpack(residual, b);
#pragma unroll
  for (int j = 0; j < V; j++)
    a[j] += b[j];
  pack(x, a);
}

/* x*act(z). */
template <class T, int V>
__device__ __forceinline__ void open_gate(Packed<float, V> &x, const Packed<T, V> &in, const Packed<T, V> &gate,
                                          bool sigmoid) {
  float a[V], z[V];
  unpack(in, a);
  activate(gate, sigmoid, z);
  multiply(a, z);
  pack(x, a);
}

/* Sum of the squares, or of the elements, of at most `count` elements of a vector. */
template <bool SQUARES, bool LAYER, bool SCALED, bool PARTIAL, class S, int V>
__device__ __forceinline__ float sum_of_vector(const Packed<S, V> &packed, int count, float scale, float mean) {
  float x[V], sum = 0;
  if (PARTIAL && count <= 0) return 0;
  unpack(packed, x);
  auto add = [&](int j) {
    float d = SCALED ? fused(x[j], scale, SQUARES ? -mean : 0.0f) : SQUARES && LAYER ? x[j] - mean : x[j];
    sum = SQUARES ? fused(d, d, sum) : sum + d;
  };
  if (PARTIAL && count < V) {
#pragma unroll
    for (int j = 0; j < V; j++)
      if (j < count) add(j);
  } else {
#pragma unroll
    for (int j = 0; j < V; j++)
      add(j);
  }
  return sum;
}

template <bool OPTIONS, class S, int V>
__device__ __forceinline__ float largest_of_vector(const Packed<S, V> &packed, int count) {
  float x[V], most = 0;
  unpack(packed, x);
#pragma unroll
  for (int j = 0; j < V; j++)
    if (!OPTIONS || j < count) most = Max::of(most, size_for_scale(x[j]));
  return most;
}

/* ---- the statistic ---- */

/* r of a sum within the range, or of zeros. */
template <bool OPTIONS> __device__ __forceinline__ float root_of(const ForwardJob &p, float sum) {
  const float square = divided(sum, p.k, p.inverse_k);
  float root;
  if (OPTIONS && p.eps_outside) {
    root = __fsqrt_rn(square);
    root = !p.eps_clamp ? root + p.eps : root < p.eps ? p.eps : root;
  } else {
    root = __fsqrt_rn(square + p.eps);
  }
  return root == 0 ? 0.0f : __frcp_rn(root);
}

/* The sums of ROWS rows. Over: which vectors a thread has, and sums over all threads of a row.
 *   sums<...>(p, x, st, a) a[r][i]: of the elements or squares of vector i of row r (VectorSums: of whole vectors)
 *   vector(i)             number of vector i in its row
 *   has(p, i)             whether the row has that many
 *   of<Op, USE>(sum, a)   sum[r] over a[r][..] of all threads; USE is another one for each sum of a row
 *   any(yes)              whether any row says yes that takes part in the same sums
 *   some(yes)             yes[r]: whether any thread of row r says yes
 *   cuts                  a row may end within a vector */
enum { USE_MEAN, USE_SQUARES, USE_LARGEST, USE_SCALED_MEAN, USE_SCALED_SQUARES, USES };

template <class Over> struct VectorSums {
  template <bool SQUARES, bool LAYER, bool SCALED, bool OPTIONS, class T, class S, int V, int ROWS, int NV>
  __device__ __forceinline__ void sums(const ForwardJob &p, const Packed<S, V> (&x)[ROWS][NV],
                                       const Statistic<float> (&st)[ROWS], float (&a)[ROWS][NV]) const {
    constexpr bool partial = OPTIONS && (!LAYER || Over::cuts);
    const Over &over = static_cast<const Over &>(*this);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int i = 0; i < NV; i++) {
        a[r][i] = sum_of_vector<SQUARES, LAYER, SCALED, partial>(x[r][i], counted<OPTIONS, T>(p, over.vector(i)),
                                                                 st[r].scale, SQUARES ? st[r].mean : 0);
        if (SQUARES && LAYER && !over.has(p, i)) a[r][i] = 0;
      }
  }
};

template <bool LAYER, bool SCALED, bool OPTIONS, class T, class S, int V, int ROWS, int NV, class Over>
__device__ __forceinline__ void measure(const ForwardJob &p, Packed<S, V> (&x)[ROWS][NV], Statistic<float> (&st)[ROWS],
                                        Over &over) {
  float a[ROWS][NV], sum[ROWS];
  if (LAYER) {
    over.template sums<false, LAYER, SCALED, OPTIONS, T>(p, x, st, a);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      keep_packed(x[r]);
    over.template of<Add, SCALED ? USE_SCALED_MEAN : USE_MEAN>(sum, a);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      st[r].mean = SCALED ? quotient(sum[r], p.k) : divided(sum[r], p.k, p.inverse_k);
  }
  over.template sums<true, LAYER, SCALED, OPTIONS, T>(p, x, st, a);
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    keep_packed(x[r]);
  over.template of<Add, SCALED ? USE_SCALED_SQUARES : USE_SQUARES>(sum, a);
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    st[r].sum = sum[r];
}

/* Whether there is more than zeros in a row whose sum of squares is out of range. */
template <class S, int V, int ROWS, int NV, class Over>
__device__ __forceinline__ bool more_than_zeros(const Packed<S, V> (&x)[ROWS][NV], const Statistic<float> (&st)[ROWS],
                                                Over &over) {
  bool some[ROWS], more = false;
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    some[r] = false;
#pragma unroll
    for (int i = 0; i < NV; i++)
      some[r] = some[r] || !is_zero(x[r][i]);
  }
  over.some(some);
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    more = more || (!squares_in_range(st[r].sum) && some[r]);
  return over.any(more);
}

/* Once more, scaled where the sum of squares is out of range. The other rows keep them company, with a scale of one and
 * the same bits as before. Where no row has another scale (a NaN, infinity) the sums are right as they are. */
template <bool LAYER, bool OPTIONS, class T, class S, int V, int ROWS, int NV, class Over>
__device__ __forceinline__ void measure_scaled(const ForwardJob &p, Packed<S, V> (&x)[ROWS][NV],
                                               Statistic<float> (&st)[ROWS], Over &over) {
  float a[ROWS][NV], most[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      a[r][i] = largest_of_vector<OPTIONS>(x[r][i], counted<OPTIONS, T>(p, over.vector(i)));
    keep_packed(x[r]);
  }
  over.template of<Max, USE_LARGEST>(most, a);
  bool scaled = false;
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    if (!squares_in_range(st[r].sum)) st[r].scale = scale_for(most[r], p.eps_limit);
    scaled = scaled || st[r].scale != 1.0f || LAYER; /* a mean that is not finite needs the quotient */
  }
  if (over.any(scaled)) measure<LAYER, true, OPTIONS, T>(p, x, st, over);
  const Norm<float> norm = {
      p.wide_eps, p.eps, p.k, p.eps_limit, LAYER, OPTIONS && p.eps_outside, false, OPTIONS && p.eps_clamp};
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    finish(norm, st[r], p.k);
}

/* Whether threads share the work of root_of(): over.roots<OPTIONS>(p, st) has those of all rows. */
template <class Over> constexpr bool shares_roots = false;

/* The statistics of ROWS rows. */
template <bool LAYER, bool OPTIONS, class T, class S, int V, int ROWS, int NV, class Over>
__device__ __forceinline__ void measure_rows(const ForwardJob &p, Packed<S, V> (&x)[ROWS][NV],
                                             Statistic<float> (&st)[ROWS], Over &over) {
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    st[r] = {0, 0, 0, 0, 1, 0};
  measure<LAYER, false, OPTIONS, T>(p, x, st, over);
  bool again = false;
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    again = again || !squares_in_range(st[r].sum);
  constexpr bool asks = !LAYER || NV < 4; /* there are registers for it */
  if (__builtin_expect(!over.any(again), 1) || (asks && !more_than_zeros(x, st, over))) {
    if constexpr (shares_roots<Over>) {
      over.template roots<OPTIONS>(p, st);
    } else {
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        st[r].r = root_of<OPTIONS>(p, st[r].sum);
    }
  } else {
    measure_scaled<LAYER, OPTIONS, T>(p, x, st, over);
  }
}

__device__ __forceinline__ void write_statistic(const ForwardJob &p, int64_t row, const Statistic<float> &st) {
  if (p.rstd) p.rstd[row] = st.r * st.scale;
  if (p.mean) p.mean[row] = quotient(st.mean, st.scale);
}

/* ---- y ---- */

/* Weights of a vector in the data type. */
template <bool SHIFTED, class T, int V>
__device__ __forceinline__ void load_weights(const ForwardJob &p, int64_t skip, int vector, Packed<T, V> &weight) {
  if constexpr (SHIFTED)
    load_parameter_vector(weight, p.weight + skip, vector, p.bytes);
  else
    load_vector<true, false>(weight, p.weight + skip + vector * 16, V);
}

/* A vector of a row to memory; of rows that are not aligned by all lanes of a warp. Lanes that share a row: `lanes`,
 * at most 32. */
template <bool SHIFTED, class S, int V>
__device__ __forceinline__ void store_row(const ForwardJob &p, char *row, int vector, const Packed<S, V> &v, bool there,
                                          int lanes) {
  if constexpr (SHIFTED) {
    const int lane = (int)threadIdx.x & (lanes - 1);
    store_shifted(row, vector, v, there ? p.bytes : 0, lane == 0, lane == lanes - 1);
  } else {
    if (there) store_vector<true>(row + bytes_before<S, V>(vector), v, V);
  }
}

/* Weight or bias of a vector. */
template <bool SHIFTED, class T, int V>
__device__ __forceinline__ void load_parameter_at(const ForwardJob &p, const char *from, int vector, bool is_f32,
                                                  float (&f)[V]) {
  const int left = SHIFTED ? p.width - vector * V : V;
  load_parameter<!SHIFTED, T>(f, from, vector * V, left < V ? left : V, is_f32);
}

/* h of a vector. */
template <bool LAYER, class S, int V>
__device__ __forceinline__ void normalise(const Packed<S, V> &x, const Statistic<float> &st, float (&h)[V]) {
  unpack(x, h);
  if (__builtin_expect(st.scale != 1.0f, 0)) {
#pragma unroll
    for (int j = 0; j < V; j++)
      h[j] *= st.scale;
  }
#pragma unroll
  for (int j = 0; j < V; j++)
    h[j] = (LAYER ? h[j] - st.mean : h[j]) * st.r;
}

/* One vector of y of the common case, whose weight, bias and gate are at hand. */
template <bool LAYER, rms_gate_place GATE, class T, class S, int V>
__device__ __forceinline__ void finish_common(const ForwardJob &p, const Packed<S, V> &x, const Statistic<float> &st,
                                              const Packed<T, V> &weight, const Packed<T, V> &bias,
                                              const Packed<T, V> &gate, Packed<T, V> &out) {
  float h[V], g[V], b[V];
  normalise<LAYER>(x, st, h);
  if (p.weight) {
    unpack(weight, g);
    add_offset<T>(g, p.offset, false);
    if (p.bias) unpack(bias, b);
    affine<T>(h, g, b, {true, p.bias != nullptr, false, false});
  }
  if constexpr (GATE == RMS_GATE_AFTER) {
    activate(gate, p.sigmoid, g);
    multiply(h, g);
  }
  pack(out, h);
}

/* One vector of y but for its last rounding, rounded before the weight or not. `weight` has its weights if they are in
 * the data type; those of the row's inner index are `skip` bytes from the first. gate: of one after the norm. own_type:
 * the last rounding is to another type than T. */
template <bool LAYER, bool OPTIONS, bool SHIFTED, bool BEFORE, rms_gate_place GATE, class T, class S, int V>
__device__ __forceinline__ void finish_values(const ForwardJob &p, const Packed<S, V> &x, const Statistic<float> &st,
                                              const Packed<T, V> &weight, const Packed<T, V> &gate, int64_t skip,
                                              int vector, float (&h)[V], bool own_type) {
  const bool is_f32 = OPTIONS && p.weight_is_f32;
  float g[V], b[V];
  normalise<LAYER>(x, st, h);
  if (p.weight) {
    if (is_f32)
      load_parameter_at<SHIFTED, T>(p, p.weight + skip, vector, true, g);
    else
      unpack(weight, g);
    add_offset<T>(g, p.offset, OPTIONS && p.round_gain);
    if (p.bias) {
      load_parameter_at<SHIFTED, T>(p, p.bias + skip, vector, is_f32, b);
      affine<T>(h, g, b, {true, true, BEFORE, is_f32, own_type});
    } else {
      affine<T>(h, g, b, {true, false, BEFORE, is_f32, own_type});
    }
  } else if (OPTIONS) {
    if (p.bias) load_parameter_at<SHIFTED, T>(p, p.bias + skip, vector, is_f32, b);
    affine<T>(h, g, b, {false, p.bias != nullptr, BEFORE, is_f32, own_type});
  }
  if constexpr (GATE == RMS_GATE_AFTER) {
    if (BEFORE && !is_f32) round_to<T>(h);
    activate(gate, p.sigmoid, b);
    multiply(h, b);
  }
}

/* The same, rounded to T. */
template <bool LAYER, bool OPTIONS, bool SHIFTED, bool BEFORE, rms_gate_place GATE, class T, class S, int V>
__device__ __forceinline__ void finish_vector(const ForwardJob &p, const Packed<S, V> &x, const Statistic<float> &st,
                                              const Packed<T, V> &weight, const Packed<T, V> &gate, int64_t skip,
                                              int vector, Packed<T, V> &out) {
  float h[V];
  finish_values<LAYER, OPTIONS, SHIFTED, BEFORE, GATE>(p, x, st, weight, gate, skip, vector, h, false);
  pack(out, h);
}

/* Calls f with the order of rounding as a type, so that there is a branch for a row and not for each vector. */
template <bool OPTIONS, class F> __device__ __forceinline__ void by_rounding(const ForwardJob &p, F f) {
  if (OPTIONS && p.round_before)
    f(std::true_type());
  else
    f(std::false_type());
}

/* ---- y with a gate ---- */

/* With a gate the instructions of an element count. Rows that need no more than a weight of the data type, which are
 * most, are PLAIN: what else there may be is asked once for a row, and not for each vector. Without options there is
 * nothing else but the scale of a row that was out of range. */
template <bool OPTIONS> __device__ __forceinline__ bool is_plain(const ForwardJob &p, const Statistic<float> &st) {
  return (!OPTIONS || (p.weight && !p.weight_is_f32 && p.offset == 0 && !p.bias)) && st.scale == 1;
}

/* finish_vector of PLAIN rows. g: the weights. */
template <bool LAYER, bool BEFORE, rms_gate_place GATE, class T, class S, int V>
__device__ __forceinline__ void finish_plain(const ForwardJob &p, const Packed<S, V> &x, const Statistic<float> &st,
                                             const float (&g)[V], const Packed<T, V> &gate, Packed<T, V> &out) {
  constexpr Affine form = {true, false, BEFORE, false};
  float h[V], act[V];
  unpack(x, h);
#pragma unroll
  for (int j = 0; j < V; j++)
    h[j] = (LAYER ? h[j] - st.mean : h[j]) * st.r;
  affine<T>(h, g, g, form);
  if constexpr (GATE == RMS_GATE_AFTER) {
    round_before_gate<T>(h, form);
    activate(gate, p.sigmoid, act);
    multiply(h, act);
  }
  pack(out, h);
}

} // namespace rms_cuda

#endif
