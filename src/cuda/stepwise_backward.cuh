/* SPDX-License-Identifier: MIT
 *
 * The backward of the forms in stepwise.cuh: the steps of src/cpu/kernels/backward_stepwise.h, one for one. */
#ifndef RMS_CUDA_STEPWISE_BACKWARD_CUH
#define RMS_CUDA_STEPWISE_BACKWARD_CUH

#include "backward_general.cuh"
#include "stepwise.cuh"

namespace rms_cuda {

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
