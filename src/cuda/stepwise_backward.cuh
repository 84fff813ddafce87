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
  bool twice;  /* B is a multiple of T(2*e), otherwise of x or T(x/norm) */
  bool narrow; /* e is a number of T: x may be f32 */

  /* e to B, but for its rounding. */
  template <int V> __device__ __forceinline__ void by_statistic(float (&e)[V]) const {
    if (twice) {
#pragma unroll
      for (int j = 0; j < V; j++)
        e[j] += e[j];
      if (StepFactor<T>::corrects || !narrow) round_to<T>(e); /* twice a bf16 is one, which overflows where f32 does */
    } else if (st.root_k != 0) {
      st.norm.apply(e);
    }
    if (st.scale.by == 0) {
#pragma unroll
      for (int j = 0; j < V; j++)
        e[j] = 0;
    } else {
#pragma unroll
      for (int j = 0; j < V; j++)
        e[j] *= through;
    }
  }
};

/* Back from y through the statistic. over.sum(f) is T(the sum over the segment of what f(u, e) makes of u), and
 * over.sums(f, g) two of them, after which u may be what g made of it. */
template <class T, class Over>
__device__ __forceinline__ void trace_steps(const rms_layout &lay, StepGradient<T> &g, Over &over) {
  constexpr int V = vector_of<T>;
  const Steps<T> &st = g.st;
  auto product = [](float(&u)[V], const float(&e)[V]) {
#pragma unroll
    for (int j = 0; j < V; j++)
      u[j] *= e[j];
    round_to<T>(u);
  };
  if (lay.steps == RMS_STEPS_RSTD) {
    g.through = -quotient(over.sum(product) * ((st.r * st.r) * st.r), st.k);
    return;
  }
  if (lay.eps_place == RMS_EPS_CLAMP) {
    const float sum = over.sum(product);
    g.through = st.clamped ? 0 : step<T>(-step<T>(sum * st.root_k) * step<T>(st.inverse * st.inverse));
    return;
  }
  auto slope_of = [&](float(&u)[V], float(&e)[V]) { /* of the divisor: the quotient divided once more */
                                                    st.scale.apply(e);
                                                    st.scale.apply(e);
#pragma unroll
                                                    for (int j = 0; j < V; j++)
                                                      u[j] = (0 - u[j]) * e[j];
                                                    round_to<T>(u);
  };
  auto through_of = [&](float slope) {
    g.twice = lay.eps_place == RMS_EPS_INSIDE;
    g.through = g.twice ? step<T>(quotient(step<T>(quotient(slope, step<T>(st.scale.by + st.scale.by))), st.k))
                        : step<T>(slope * st.root_k);
  };
  if (!st.layer) {
    through_of(over.sum(slope_of));
    return;
  }
  const float2 both = over.sums(slope_of, [&](float(&u)[V], const float(&e)[V]) {
    (void)e;
    st.scale.apply(u);
  });
  through_of(both.x);
  const float b = over.sum([&](float(&u)[V], float(&e)[V]) {
    g.by_statistic(e);
#pragma unroll
    for (int j = 0; j < V; j++)
      u[j] = e[j];
    round_to<T>(u);
  });
  if (st.scale.by != 0) g.shift = step<T>(quotient(step<T>(-both.y - b), st.k));
}

/* u and e of a vector to dx, but for what is added to it. */
template <class T, int V>
__device__ __forceinline__ void step_dx(const StepGradient<T> &of, float (&u)[V], float (&e)[V]) {
  of.st.scale.apply(u);
  of.by_statistic(e);
  round_to<T>(e);
#pragma unroll
  for (int j = 0; j < V; j++)
    u[j] += e[j];
  round_to<T>(u);
  if (!of.st.layer) return;
#pragma unroll
  for (int j = 0; j < V; j++)
    u[j] += of.shift;
  round_to<T>(u);
}

/* The sums of trace_steps() over a segment in memory. */
template <class T> struct SegmentSums {
  static constexpr int V = vector_of<T>;
  const StepSource<T> &x;
  const AnyRow &dy;
  const Place &at;

  template <class F> __device__ __forceinline__ float sum(F term) const {
    return step<T>(x.sum([&](int64_t v, float(&u)[V]) {
      float f[V];
      dy.load(v, f);
      make_u<T>(x.lay, at, v, f, u);
      x.load(v, f);
      term(u, f);
    }));
  }
  template <class F, class G> __device__ __forceinline__ float2 sums(F first, G second) const {
    const float a = sum(first);
    return make_float2(a, sum(second));
  }
};

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
  StepSource<T> x(lay, team, AnyRow(job.x, lay, at, job.x_is_f32 ? RMS_F32 : lay.dtype),
                  AnyRow(Rows(), lay, at, lay.dtype));
  const float *saved = static_cast<const float *>(job.rstd);
  const bool narrow = !job.x_is_f32 || lay.kind == RMS_KIND_LAYER; /* x - mean is rounded */
  StepGradient<T> of = {steps_of<T>(x, g.eps_limit, saved ? saved + segment_of(lay, at) : nullptr), 0, 0, false,
                        narrow};
  SegmentSums<T> over = {x, dy, at};
  trace_steps(lay, of, over);
  team.each(x.vectors, [&](int64_t v) {
    float d[V], u[V], e[V], more[V];
    dy.load(v, d);
    make_u<T>(lay, at, v, d, u);
    x.load(v, e);
#pragma unroll
    for (int j = 0; j < V; j++)
      more[j] = e[j];
    step_dx<T>(of, u, more);
    of.st.scale.apply(e);
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
