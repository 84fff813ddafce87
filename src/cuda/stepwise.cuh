/* SPDX-License-Identifier: MIT
 *
 * The forms of models that round between x and y where others do not (RMS_STEPS_RSTD, RMS_STEPS_ALL), of 16-bit data: a
 * block for each segment, whatever the layout of its rows is. The steps are those of src/cpu/kernels/stepwise.h, one
 * for one; the sums have the order of sum.cuh. No step is scaled: what overflows in such a model overflows here. T(v)
 * is v rounded to T. The backward is stepwise_backward.cuh. */
#ifndef RMS_CUDA_STEPWISE_CUH
#define RMS_CUDA_STEPWISE_CUH

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

/* What is normalised, x or its sum with the residual: also what the range guard asks for (guard.cuh). */
template <class T> struct StepSource {
  static constexpr int V = vector_of<T>;
  const rms_layout &lay;
  const Team &team;
  AnyRow x, residual;
  int64_t vectors;

  __device__ __forceinline__ StepSource(const rms_layout &of, const Team &by, const AnyRow &x_row, const AnyRow &more)
      : lay(of), team(by), x(x_row), residual(more), vectors((of.width + V - 1) / V) {}
  __device__ __forceinline__ void load_x(int64_t v, float (&f)[V]) const {
    x.load(v, f);
    if (!residual.row) return;
    float more[V];
    residual.load(v, more);
#pragma unroll
    for (int j = 0; j < V; j++)
      f[j] = round_as(f[j] + more[j], residual.type);
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

/* The numbers that a segment's steps end in. */
template <class T> struct Steps {
  bool layer;
  bool divides; /* by `by`                                                                  */
  bool clamped;
  float k;
  float mean;    /* LayerNorm: T(mean of x)                                                 */
  float by;      /* h = T(e/by), or T(e*by): e = x, or T(x - mean); 0: h and dx are zeros   */
  float norm;    /* eps outside or a clamp: T(L2 norm of x)                                 */
  float inverse; /* a clamp: T(1/max(norm, least))                                          */
  float root_k;  /* a clamp: sqrt(k); eps outside: 1/sqrt(k)                                */
  float r;       /* RMS_STEPS_RSTD: r itself                                                */

  __device__ __forceinline__ float centre(float x) const { return layer ? step<T>(x - mean) : x; }
  /* e, or u, divided or multiplied as the model does it. */
  __device__ __forceinline__ float scale(float e) const {
    return by == 0 ? 0 : step<T>(divides ? quotient(e, by) : e * by);
  }
  /* As a forward saves it. */
  __device__ __forceinline__ float rstd(const rms_layout &lay) const {
    return by == 0 ? 0 : divides ? quotient(1.0f, by) : lay.steps == RMS_STEPS_RSTD ? r : by;
  }
};

/* T(L2 norm), then eps as the model adds it, or bounds the norm by it. */
template <class T>
__device__ __forceinline__ void norm_steps(const rms_layout &lay, const Statistic<float> &of, Steps<T> &st) {
  const double root = square_root((double)lay.k);
  st.norm = step<T>(times_power(square_root(of.sum), -(exponent_of(of.scale) + of.more)));
  if (lay.eps_place == RMS_EPS_OUTSIDE) {
    st.divides = true;
    st.root_k = (float)(1 / root);
    st.by = step<T>(step<T>(st.norm * st.root_k) + step<T>((float)lay.eps));
    return;
  }
  const float least = step<T>((float)(lay.eps * root));
  st.root_k = (float)root;
  st.clamped = st.norm < least;
  const float bound = st.clamped ? least : st.norm;
  st.inverse = bound == 0 ? 0 : step<T>(quotient(1.0f, bound));
  st.by = step<T>(st.inverse * st.root_k);
}

/* saved: r of RMS_STEPS_RSTD, or NULL. */
template <class T>
__device__ __forceinline__ Steps<T> steps_of(const StepSource<T> &x, int eps_limit, const float *saved) {
  constexpr int V = vector_of<T>;
  const rms_layout &lay = x.lay;
  Steps<T> st = {};
  st.layer = lay.kind == RMS_KIND_LAYER;
  st.k = (float)lay.k;
  if (lay.steps == RMS_STEPS_RSTD && saved) {
    st.r = *saved;
    st.by = step<T>(st.r);
  } else if (lay.steps == RMS_STEPS_RSTD || lay.eps_place != RMS_EPS_INSIDE) {
    const Statistic<float> of = segment_statistic(norm_of<float>(lay, eps_limit), x);
    if (lay.steps == RMS_STEPS_ALL) {
      norm_steps(lay, of, st);
    } else {
      st.r = of.r * of.scale;
      st.by = step<T>(st.r);
    }
  } else {
    if (st.layer) st.mean = step<T>(quotient(x.sum([&](int64_t v, float(&f)[V]) { x.load_x(v, f); }), st.k));
    const float squares = x.sum([&](int64_t v, float(&f)[V]) {
      x.load_x(v, f);
#pragma unroll
      for (int j = 0; j < V; j++)
        f[j] = step<T>(st.centre(f[j]) * st.centre(f[j]));
    });
    st.divides = true;
    st.by = step<T>(square_root(step<T>(step<T>(quotient(squares, st.k)) + step<T>((float)lay.eps))));
  }
  return st;
}

/* ---- forward ---- */

/* y of vector v, but for its last rounding, from what is normalised. */
template <class T, int V>
__device__ __forceinline__ void make_y(const rms_forward_job &job, const Place &at, const Steps<T> &st, int64_t v,
                                       float (&h)[V]) {
  const rms_layout &lay = job.lay;
  const int size = lay.weight_is_f32 ? 4 : (int)sizeof(T);
  const Affine form = {lay.weight != nullptr, job.bias != nullptr, true, lay.weight_is_f32, job.y_type != lay.dtype};
  float gain[V], bias[V];
#pragma unroll
  for (int j = 0; j < V; j++)
    h[j] = st.scale(st.centre(h[j]));
  if (lay.weight) load_gains<T, false>(gain, parameter_at(lay.weight, lay, at, size), lay, v);
  if (job.bias) load_parameters<T, false>(bias, parameter_at(job.bias, lay, at, size), lay, v);
  affine<T>(h, gain, bias, form);
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
    const StepSource<T> x(lay, team, AnyRow(job.x, lay, at, lay.dtype),
                          AnyRow(job.residual, lay, at, residual_type(lay)));
    const AnyRow y(job.y, lay, at, job.y_type), sum(job.residual_out, lay, at, residual_type(lay));
    const Steps<T> st = steps_of(x, g.eps_limit, nullptr);
    if (team.leads() && job.rstd) static_cast<float *>(job.rstd)[index] = st.rstd(lay);
    if (team.leads() && job.mean) static_cast<float *>(job.mean)[index] = st.mean;
    if (job.q.rows.data)
      quantise_segment<V>(job, team, at, index, true, [&](int64_t v, float(&f)[V]) {
        x.load_x(v, f);
        make_y(job, at, st, v, f);
      });
    if (!y.row && !sum.row) continue;
    team.each(x.vectors, [&](int64_t v) { /* all of a vector is read before any of it is written */
                                          float f[V];
                                          x.load_x(v, f);
                                          if (sum.row) sum.store(v, f);
                                          if (!y.row) return;
                                          make_y(job, at, st, v, f);
                                          y.store(v, f);
    });
  }
}

} // namespace rms_cuda

#endif
