/* SPDX-License-Identifier: MIT
 *
 * The forms of models that round between x and y where others do not (RMS_STEPS_RSTD, RMS_STEPS_ALL), of 16-bit data: a
 * block for each segment, whatever the layout of its rows is. The steps are those of src/cpu/kernels/stepwise.h and
 * backward_stepwise.h, one for one; the sums have the order of sum.cuh. No step is scaled: what overflows in such a
 * model overflows here. T(v) is v rounded to T. */
#ifndef RMS_CUDA_STEPWISE_CUH
#define RMS_CUDA_STEPWISE_CUH

#include "any_element.cuh"
#include "backward_general.cuh"
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

/* ---- backward ---- */

/* u of vector v: T(dy*g), from dy. */
template <class T, int V>
__device__ __forceinline__ void make_u(const rms_layout &lay, const Place &at, int64_t v, const float (&dy)[V],
                                       float (&u)[V]) {
  float gain[V];
  if (lay.weight)
    load_gains<T, false>(gain, parameter_at(lay.weight, lay, at, lay.weight_is_f32 ? 4 : (int)sizeof(T)), lay, v);
#pragma unroll
  for (int j = 0; j < V; j++)
    u[j] = step<T>(lay.weight ? dy[j] * gain[j] : dy[j]);
}

/* dx = T(A + B), for LayerNorm T(T(A + B) + shift):
 *   A = T(u/by) or T(u*by)                                               what reaches e directly
 *   B = T(through * T(2*e)), T(through * T(x/norm)) or T(through * x)    and through the statistic
 *   shift = T(T(-T(sum A) - T(sum B)) / k)                               and through the mean */
template <class T> struct StepGradient {
  Steps<T> st;
  float through, shift;
  bool twice; /* B is a multiple of T(2*e), otherwise of x or T(x/norm) */

  __device__ __forceinline__ float by_statistic(float e) const {
    if (twice)
      e = step<T>(e + e);
    else if (st.root_k != 0)
      e = st.norm == 0 ? 0 : step<T>(quotient(e, st.norm));
    return st.by == 0 ? 0 : step<T>(through * e);
  }
};

/* Back from y through the statistic. sum_of(f): T(the sum of f(u, x, e) over the segment). */
template <class T, class F>
__device__ __forceinline__ void trace_steps(const rms_layout &lay, StepGradient<T> &g, F sum_of) {
  const Steps<T> &st = g.st;
  if (lay.steps == RMS_STEPS_RSTD) {
    const float sum = sum_of([](float u, float x, float) { return step<T>(u * x); });
    g.through = -quotient(sum * ((st.r * st.r) * st.r), st.k);
  } else if (lay.eps_place == RMS_EPS_CLAMP) {
    const float sum = sum_of([](float u, float x, float) { return step<T>(u * x); });
    g.through = st.clamped ? 0 : step<T>(-step<T>(sum * st.root_k) * step<T>(st.inverse * st.inverse));
  } else { /* of the divisor: the quotient divided once more */
    const float slope = sum_of([&](float u, float, float e) { return step<T>((0 - u) * st.scale(st.scale(e))); });
    g.twice = lay.eps_place == RMS_EPS_INSIDE;
    g.through = g.twice ? step<T>(quotient(step<T>(quotient(slope, step<T>(st.by + st.by))), st.k))
                        : step<T>(slope * st.root_k);
  }
  if (!st.layer || st.by == 0) return;
  const float a = sum_of([&](float u, float, float) { return st.scale(u); });
  const float b = sum_of([&](float, float, float e) { return g.by_statistic(e); });
  g.shift = step<T>(quotient(step<T>(-a - b), st.k));
}

/* Adds a vector's part to the column sums of a block, in memory; at: those of its first element. first: there is
 * nothing yet. */
template <class T, int V>
__device__ __forceinline__ void add_columns(const GeneralBackward &g, double *at, int n, bool first,
                                            const float (&dy)[V], float (&h)[V]) {
  const int64_t plane = g.want_dweight ? g.slices * g.shares * g.job.lay.width : 0;
  double sum[V];
  auto get = [&](const double *from) {
#pragma unroll
    for (int j = 0; j < V; j++)
      sum[j] = first || j >= n ? 0 : from[j];
  };
  auto set = [&](double *to) {
#pragma unroll
    for (int j = 0; j < V; j++)
      if (j < n) to[j] = sum[j];
  };
  if (g.want_dbias) {
    get(at + plane);
#pragma unroll
    for (int j = 0; j < V; j++)
      sum[j] += (double)dy[j];
    set(at + plane);
  }
  if (g.want_dweight) {
    get(at);
    dweight_terms<T>(g, dy, h, sum);
    set(at);
  }
}

/* One row: dx, and its part of the column sums. Everything that is read of a vector is read before it is written. */
template <class T>
__device__ __forceinline__ void backward_step_row(const GeneralBackward &g, const Team &team, const Place &at,
                                                  double *columns, bool first) {
  constexpr int V = vector_of<T>;
  const rms_backward_job &job = g.job;
  const rms_layout &lay = job.lay;
  const AnyRow dy(job.dy, lay, at, job.dy_type), dx(job.dx, lay, at, lay.dtype);
  const AnyRow dresidual(job.dresidual, lay, at, residual_type(lay)),
      copy(job.dresidual_out, lay, at, residual_type(lay));
  const StepSource<T> x(lay, team, AnyRow(job.x, lay, at, job.x_is_f32 ? RMS_F32 : lay.dtype),
                        AnyRow(Rows(), lay, at, lay.dtype));
  const float *saved = static_cast<const float *>(job.rstd);
  StepGradient<T> of = {steps_of(x, g.eps_limit, saved ? saved + segment_of(lay, at) : nullptr), 0, 0, false};
  trace_steps(lay, of, [&](auto term) {
    return step<T>(x.sum([&](int64_t v, float(&f)[V]) {
      float u[V];
      dy.load(v, f);
      make_u<T>(lay, at, v, f, u);
      x.load_x(v, f);
#pragma unroll
      for (int j = 0; j < V; j++)
        f[j] = term(u[j], f[j], of.st.centre(f[j]));
    }));
  });
  team.each(x.vectors, [&](int64_t v) {
    float d[V], u[V], e[V], more[V];
    dy.load(v, d);
    make_u<T>(lay, at, v, d, u);
    x.load_x(v, e);
#pragma unroll
    for (int j = 0; j < V; j++) {
      e[j] = of.st.centre(e[j]);
      u[j] = step<T>(of.st.scale(u[j]) + of.by_statistic(e[j]));
      if (of.st.layer) u[j] = step<T>(u[j] + of.shift);
      e[j] = of.st.scale(e[j]);
    }
    auto add = [&](const AnyRow &from) {
      from.load(v, more);
#pragma unroll
      for (int j = 0; j < V; j++)
        u[j] += more[j];
    };
    if (dresidual.row) add(dresidual);
    if (job.add_to_dx) add(dx);
    if (dx.row) dx.store(v, u);
    if (copy.row) copy.store(v, u);
    if (columns) add_columns<T>(g, columns + v * V, count_at<V>(lay, v), first, d, e);
  });
}

/* Blocks come slice by slice; one has every `shares`-th row. */
template <class T>
__global__ void __launch_bounds__(GENERAL_THREADS) backward_stepwise_kernel(const __grid_constant__ GeneralBackward g) {
  __shared__ double slots[32];
  const Team team((int)blockDim.x, slots);
  const rms_layout &lay = g.job.lay;
  const int64_t slice = blockIdx.x / g.shares, share = blockIdx.x - slice * g.shares;
  double *columns = g.columns_kept ? g.partial + (slice * g.shares + share) * lay.width : nullptr;
#pragma unroll 1
  for (int64_t row = share; row < g.count; row += g.shares)
    backward_step_row<T>(g, team, place_in_slice(lay, slice, g.first + row), columns, row == share);
}

} // namespace rms_cuda

#endif
