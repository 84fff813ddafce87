/* SPDX-License-Identifier: MIT
 *
 * The forms of models that round between x and y where others do not (RMS_STEPS_RSTD, RMS_STEPS_ALL), of 16-bit data: a
 * block for each segment, whatever the layout of its rows is. The steps are those of src/cpu/kernels/stepwise.h, one
 * for one; the sums have the order of sum.cuh. No step is scaled: what overflows in such a model overflows here. T(v)
 * is v rounded to T. The backward is stepwise_backward.cuh. */
#ifndef RMS_CUDA_STEPWISE_CUH
#define RMS_CUDA_STEPWISE_CUH

#include <type_traits>
#include "any_element.cuh"
#include "quantised_general.cuh"

namespace rms_cuda {

/* ---- rows ---- */

/* A segment of any type, its elements at any distance. */
struct AnyRow {
  char *row; /* NULL: there is none */
  int64_t col, width;
  rms_dtype type;
  bool bytewise;

  __device__ __forceinline__ AnyRow(const Rows &rows, const rms_layout &lay, const Place &at, rms_dtype of)
      : row(rows.data), width(lay.width), type(of) {
    const int64_t size = element_size(type);
    col = rows.col ? rows.col : size;
    if (row) row += at.outer * rows.outer + at.inner * rows.inner + at.group * width * col;
    bytewise = ((uintptr_t)row | (uintptr_t)col) % (uintptr_t)size != 0;
  }
  /* Vector v; elements beyond the row are zeros. */
  template <int V> __device__ __forceinline__ void load(int64_t v, float (&f)[V]) const {
#pragma unroll
    for (int j = 0; j < V; j++)
      f[j] = v * V + j < width ? load_element(row + (v * V + j) * col, type, bytewise) : 0;
  }
  template <int V> __device__ __forceinline__ void store(int64_t v, const float (&f)[V]) const {
#pragma unroll
    for (int j = 0; j < V; j++)
      if (v * V + j < width) store_element(row + (v * V + j) * col, f[j], type, bytewise);
  }
};

__device__ __forceinline__ rms_dtype residual_type(const rms_layout &lay) {
  return lay.residual_is_f32 ? RMS_F32 : lay.dtype;
}

/* What is normalised, x or its sum with the residual: also what the range guard asks for (guard.cuh). Elements may be
 * f32: they are not NARROW, numbers that T holds. */
template <class T> struct StepSource {
  static constexpr int V = vector_of<T>;
  static constexpr bool narrow = false, layers = true; /* layers: LayerNorm is possible */
  using Index = int64_t;                               /* of a vector */
  const rms_layout &lay;
  const Team &team;
  AnyRow x, residual;
  int64_t vectors;
  float mean; /* LayerNorm: once it is known */

  __device__ __forceinline__ StepSource(const rms_layout &of, const Team &by, const AnyRow &x_row, const AnyRow &more)
      : lay(of), team(by), x(x_row), residual(more), vectors((of.width + V - 1) / V), mean(0) {}
  __device__ __forceinline__ void load_x(int64_t v, float (&f)[V]) const {
    x.load(v, f);
    if (!residual.row) return;
    float more[V];
    residual.load(v, more);
#pragma unroll
    for (int j = 0; j < V; j++)
      f[j] = round_as(f[j] + more[j], residual.type);
  }
  __device__ __forceinline__ void centre(float by) {
    mean = by;
  }
  /* x to e. */
  __device__ __forceinline__ void centre(float (&f)[V]) const {
    if (lay.kind != RMS_KIND_LAYER) return;
#pragma unroll
    for (int j = 0; j < V; j++)
      f[j] -= mean;
    round_to<T>(f);
  }
  /* e: x, or for LayerNorm T(x - mean). */
  __device__ __forceinline__ void load(int64_t v, float (&f)[V]) const {
    load_x(v, f);
    centre(f);
  }
  __device__ __forceinline__ unsigned mask(int64_t v) const {
    return statistic_mask<V>(lay, true, v);
  }
  __device__ __forceinline__ bool counts_all() const {
    return true;
  }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) const {
    return team.sum<Op, float>(vectors, of_vector);
  }
  /* The sum over the segment of what term(v, f) makes of each vector. */
  template <class F> __device__ __forceinline__ float sum(F term) const {
    return over<Add>([&](int64_t v) -> float {
      float f[V], sum = 0;
      const int n = count_at<V>(lay, v);
      term(v, f);
#pragma unroll
      for (int j = 0; j < V; j++)
        if (j < n) sum += f[j];
      return sum;
    });
  }
};

/* ---- steps ---- */

template <class T> __device__ __forceinline__ float step(float a) {
  return (float)(T)a;
}

/* Sums and differences of elements, rounded to T. One rounding gives the bits of a rounding to f32 before it: f32 has
 * more than twice the digits of T and two more. */
__device__ __forceinline__ __nv_bfloat162 both(float a, __nv_bfloat16) {
  return __float2bfloat162_rn(a);
}
__device__ __forceinline__ __half2 both(float a, __half) {
  return __float2half2_rn(a);
}
template <class T, int V, class F>
__device__ __forceinline__ void by_pairs(Packed<T, V> &a, const Packed<T, V> &b, F of_pair) {
  using Two = decltype(both(0.0f, T()));
#pragma unroll
  for (int i = 0; i < V / 2; i++) {
    const Two two = of_pair(*reinterpret_cast<const Two *>(&a.w[i]), *reinterpret_cast<const Two *>(&b.w[i]));
    a.w[i] = *reinterpret_cast<const uint32_t *>(&two);
  }
}
template <class T, int V> __device__ __forceinline__ void add_packed(Packed<T, V> &a, const Packed<T, V> &b) {
  by_pairs(a, b, [](auto x, auto y) { return __hadd2_rn(x, y); });
}
template <class T, int V> __device__ __forceinline__ void subtract_packed(Packed<T, V> &a, const Packed<T, V> &b) {
  by_pairs(a, b, [](auto x, auto y) { return __hsub2_rn(x, y); });
}
/* V times a number of T. */
template <class T, int V> __device__ __forceinline__ Packed<T, V> repeated(float a) {
  const auto two = both(a, T());
  Packed<T, V> v;
#pragma unroll
  for (int i = 0; i < V / 2; i++)
    v.w[i] = *reinterpret_cast<const uint32_t *>(&two);
  return v;
}

/* Elements divided or multiplied by a number of T, as the model does it, and rounded to T; zeros where it is 0.
 *
 * QUICK quotients, of elements that T holds too, have one reciprocal for all of them. bf16: the product with it is
 * within 2^-23 of the quotient, and no quotient of two numbers of 8 bits is within 2^-17 of the middle between two
 * others, so that both round to the same one; where it is subnormal, and in f32 rounded before, it is formed again.
 * f16: two more operations give the bits of a division, but of what is not finite; that is formed again. */
template <class T> struct StepFactor {
  static constexpr bool corrects = std::is_same<T, __half>::value;
  float by, inverse;
  bool divides, quick;

  __device__ __forceinline__ void set(float number, bool as_divisor, bool narrow) {
    const float most = corrects ? 65504.0f : 0x1p126f, least = corrects ? 0x1p-24f : 0x1p-126f;
    by = number, divides = as_divisor;
    quick = narrow & divides & (by >= least) & (by <= most);
    inverse = reciprocal(by);
  }
  template <int V> __device__ __forceinline__ void apply(float (&e)[V]) const {
    apply_wide(e);
    round_to<T>(e);
  }
  /* But for the rounding. Four at a time: fewer registers. */
  template <int V> __device__ __forceinline__ void apply_wide(float (&e)[V]) const {
    if (!divides) {
#pragma unroll
      for (int j = 0; j < V; j++)
        e[j] = by == 0 ? 0 : e[j] * by;
      return;
    }
#pragma unroll
    for (int c = 0; c < V; c += 4) {
      float q[4];
      bool good = quick;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        q[j] = e[c + j] * inverse;
        if (corrects) q[j] = fused(fused(q[j], by, -e[c + j]), -inverse, q[j]);
        good &= corrects ? magnitude(q[j]) <= Range<float>::most() : !(magnitude(q[j]) < 0x1p-126f);
      }
      if (__builtin_expect(!good, 0)) {
#pragma unroll
        for (int j = 0; j < 4; j++)
          q[j] = by == 0 ? 0 : quotient(e[c + j], by);
      }
#pragma unroll
      for (int j = 0; j < 4; j++)
        e[c + j] = q[j];
    }
  }
};

/* The numbers that a segment's steps end in. */
template <class T> struct Steps {
  bool layer;
  bool clamped;
  float k;
  float mean;          /* LayerNorm: T(mean of x)                                                 */
  StepFactor<T> scale; /* h = T(e/by), or T(e*by): e = x, or T(x - mean); 0: h and dx are zeros   */
  StepFactor<T> norm;  /* eps outside or a clamp: T(L2 norm of x), a divisor                      */
  float inverse;       /* a clamp: T(1/max(norm, least))                                          */
  float root_k;        /* a clamp: sqrt(k); eps outside: 1/sqrt(k)                                */
  float r;             /* RMS_STEPS_RSTD: r itself                                                */

  /* As a forward saves it. */
  __device__ __forceinline__ float rstd(const rms_layout &lay) const {
    return scale.by == 0 ? 0 : scale.divides ? quotient(1.0f, scale.by) : lay.steps == RMS_STEPS_RSTD ? r : scale.by;
  }
};

/* T(L2 norm), then eps as the model adds it, or bounds the norm by it. */
template <class T>
__device__ __forceinline__ void norm_steps(const rms_layout &lay, const Statistic<float> &of, bool narrow,
                                           Steps<T> &st) {
  const double root = square_root((double)lay.k);
  const float norm = step<T>(times_power(square_root(of.sum), -(exponent_of(of.scale) + of.more)));
  st.norm.set(norm, true, narrow);
  if (lay.eps_place == RMS_EPS_OUTSIDE) {
    st.root_k = (float)(1 / root);
    st.scale.set(step<T>(step<T>(norm * st.root_k) + step<T>((float)lay.eps)), true, narrow);
    return;
  }
  const float least = step<T>((float)(lay.eps * root));
  st.root_k = (float)root;
  st.clamped = norm < least;
  const float bound = st.clamped ? least : norm;
  st.inverse = bound == 0 ? 0 : step<T>(quotient(1.0f, bound));
  st.scale.set(step<T>(st.inverse * st.root_k), false, narrow);
}

/* saved: r of RMS_STEPS_RSTD, or NULL. x: as StepSource. */
template <class T, class Source>
__device__ __forceinline__ Steps<T> steps_of(Source &x, int eps_limit, const float *saved) {
  constexpr int V = vector_of<T>;
  const rms_layout &lay = x.lay;
  Steps<T> st = {};
  st.layer = Source::layers && lay.kind == RMS_KIND_LAYER;
  st.k = (float)lay.k;
  if (lay.steps == RMS_STEPS_RSTD && saved) {
    st.r = *saved;
    st.scale.set(step<T>(st.r), false, Source::narrow);
  } else if (lay.steps == RMS_STEPS_RSTD || lay.eps_place != RMS_EPS_INSIDE) {
    const Statistic<float> of = segment_statistic(norm_of<float>(lay, eps_limit), x);
    if (lay.steps == RMS_STEPS_ALL) {
      norm_steps(lay, of, Source::narrow, st);
    } else {
      st.r = of.r * of.scale;
      st.scale.set(step<T>(st.r), false, Source::narrow);
    }
  } else {
    if (st.layer) {
      st.mean = step<T>(quotient(x.sum([&](typename Source::Index v, float(&f)[V]) { x.load_x(v, f); }), st.k));
      x.centre(st.mean);
    }
    const float squares = x.sum([&](typename Source::Index v, float(&f)[V]) {
      x.load(v, f);
#pragma unroll
      for (int j = 0; j < V; j++)
        f[j] *= f[j];
      round_to<T>(f);
    });
    st.scale.set(step<T>(square_root(step<T>(step<T>(quotient(squares, st.k)) + step<T>((float)lay.eps)))), true,
                 Source::narrow);
  }
  return st;
}

/* ---- forward ---- */

/* y of vector v, but for its last rounding, from e. */
template <class T, int V>
__device__ __forceinline__ void make_y(const rms_forward_job &job, const Place &at, const Steps<T> &st, int64_t v,
                                       float (&h)[V]) {
  const rms_layout &lay = job.lay;
  const int size = lay.weight_is_f32 ? 4 : (int)sizeof(T);
  const Affine form = {lay.weight != nullptr, job.bias != nullptr, true, lay.weight_is_f32, job.y_type != lay.dtype};
  float gain[V], bias[V];
  st.scale.apply(h);
  if (lay.weight) load_gains<T, false>(gain, parameter_at(lay.weight, lay, at, size), lay, v);
  if (job.bias) load_parameters<T, false>(bias, parameter_at(job.bias, lay, at, size), lay, v);
  affine_rounded<T>(h, gain, bias, form);
}

template <class T>
__global__ void __launch_bounds__(GENERAL_THREADS) forward_stepwise_kernel(const __grid_constant__ GeneralForward g) {
  constexpr int V = vector_of<T>;
  __shared__ double slots[32];
  const Team team((int)blockDim.x, slots);
  const rms_forward_job &job = g.job;
  const rms_layout &lay = job.lay;
#pragma unroll 1
  for (int64_t index = blockIdx.x; index < g.segments; index += gridDim.x) {
    const Place at = place_of(lay, index);
    StepSource<T> x(lay, team, AnyRow(job.x, lay, at, lay.dtype), AnyRow(job.residual, lay, at, residual_type(lay)));
    const AnyRow y(job.y, lay, at, job.y_type), sum(job.residual_out, lay, at, residual_type(lay));
    const Steps<T> st = steps_of<T>(x, g.eps_limit, nullptr);
    if (team.leads() && job.rstd) static_cast<float *>(job.rstd)[index] = st.rstd(lay);
    if (team.leads() && job.mean) static_cast<float *>(job.mean)[index] = st.mean;
    if (job.q.rows.data)
      quantise_segment<V>(job, team, at, index, true, [&](int64_t v, float(&f)[V]) {
        x.load(v, f);
        make_y(job, at, st, v, f);
      });
    if (!y.row && !sum.row) continue;
    team.each(x.vectors, [&](int64_t v) { /* all of a vector is read before any of it is written */
                                          float f[V];
                                          x.load_x(v, f);
                                          if (sum.row) sum.store(v, f);
                                          if (!y.row) return;
                                          x.centre(f);
                                          make_y(job, at, st, v, f);
                                          y.store(v, f);
    });
  }
}

} // namespace rms_cuda

#endif
