/* SPDX-License-Identifier: MIT
 *
 * The forward kernel of the common case: aligned rows, the whole row in the statistic, eps inside the root, weight and
 * bias (if any) in the data type, one rounding. Little code, so that it is quick to start and to run; the sums and the
 * arithmetic are those of forward.cuh. Persistent: with RING, teams of a warp or more walk the rows through a ring of
 * stages, so that loads never wait for the arithmetic; small teams load straight into registers.
 *
 * T: data type. NV: vectors of a thread. */
#ifndef RMS_CUDA_FAST_CUH
#define RMS_CUDA_FAST_CUH

#include "forward.cuh"
#include "ring.cuh"

namespace rms_cuda {

template <bool LAYER, class T, int V, int NV>
__device__ __forceinline__ void measure_whole(const Layout &lay, Team &team, Packed<T, V> (&x)[NV], const Part &part,
                                              Statistic<float> &st) {
  float a[NV];
  st.mean = 0;
  if (LAYER) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float f[V];
      unpack(x[i], f);
      a[i] = 0;
#pragma unroll
      for (int j = 0; j < V; j++)
        a[i] += f[j] * st.scale;
    }
    stay_packed(x);
    st.mean = quotient(reduce<Add>(team, a), (float)(int)lay.width);
  }
#pragma unroll
  for (int i = 0; i < NV; i++) {
    float f[V];
    unpack(x[i], f);
    a[i] = 0;
#pragma unroll
    for (int j = 0; j < V; j++) {
      float d = LAYER ? fused(f[j], st.scale, -st.mean) : f[j] * st.scale;
      a[i] = fused(d, d, a[i]);
    }
    if (LAYER && part.first + i * part.step >= part.width) a[i] = 0;
  }
  stay_packed(x);
  st.sum = reduce<Add>(team, a);
}

/* Measures again, scaled, where the sum left its range. */
template <bool LAYER, class T, int V, int NV>
__device__ __forceinline__ void measure_scaled(const Layout &lay, Team &team, Packed<T, V> (&x)[NV], const Part &part,
                                               Statistic<float> &st) {
  bool again = !in_range(st.sum);
  float a[NV];
#pragma unroll
  for (int i = 0; i < NV; i++) {
    float f[V];
    unpack(x[i], f);
    a[i] = 0;
#pragma unroll
    for (int j = 0; j < V; j++)
      a[i] = Max::of(a[i], size_for_scale(f[j]));
  }
  float largest = reduce<Max>(team, a);
  if (again) st.scale = scale_for(largest, lay.eps_limit);
  measure_whole<LAYER>(lay, team, x, part, st);
}

template <class T, int NV, bool LAYER, bool RESIDUAL, bool RING>
__global__ void __launch_bounds__(FAST_TEAM, 2) fast_forward_kernel(const __grid_constant__ ForwardJob job) {
  constexpr int V = vector_of<T>, size = (int)sizeof(T), cells = NV * (RESIDUAL ? 2 : 1);
  extern __shared__ uint4 shared[];
  const Layout &lay = job.lay;
  const int threads = (int)blockDim.x, stages = job.stages;
  Team team;
  int64_t segment =
      join_team(team, job.team, job.cluster, job.first, shared + (RING ? (cells * stages + NV) * threads : 0), NV);
  if (job.cluster > 1) cluster_arrive();
  const int64_t segments = lay.outer * lay.inner * lay.groups;
  const int64_t stride = team.threads <= 32 ? (int64_t)gridDim.x * (blockDim.x / (unsigned)team.threads)
                                            : gridDim.x / (unsigned)job.cluster;
  const int first = (team.rank * NV * team.threads + team.thread) * V, step = team.threads * V;
  const Part part = {first, step, (int)lay.width};
  uint4 *ring = shared + threadIdx.x;

  /* Where rows follow each other at one distance, as they mostly do, addresses cost a single multiplication. */
  const bool even = lay.inner == 1 && lay.groups == 1;
  auto offset_of = [&](const Rows &rows, int64_t s) -> int64_t {
    if (even) return s * rows.outer + first * size;
    return segment_at(rows, lay, place_of(lay, s), size) - rows.data + first * size;
  };
  auto request = [&](int64_t s, int stage) {
    if (s < segments) {
      const char *x_at = job.x.data + offset_of(job.x, s);
      const char *r_at = RESIDUAL ? job.residual.data + offset_of(job.residual, s) : nullptr;
      uint4 *cell = ring + stage * cells * threads;
#pragma unroll
      for (int i = 0; i < NV; i++) {
        int n = first + i * step < part.width;
        copy_ahead(cell + i * threads, x_at + i * step * size, n ? 16 : 0);
        if (RESIDUAL) copy_ahead(cell + (NV + i) * threads, r_at + i * step * size, n ? 16 : 0);
      }
    }
    end_of_copies();
  };

  /* One weight for all rows is kept in shared memory: each thread its own part. */
  const bool one_weight = RING && lay.groups == 1 && lay.weight_inner == 0;
  uint4 *weight_cell = ring + (RING ? cells * stages * threads : 0);

  int stage = 0, ahead = stages - 1;
  if (RING)
    for (int i = 0; i < stages - 1; i++)
      request(segment + i * stride, i);
  if (lay.weight && one_weight) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      if (first + i * step < part.width)
        weight_cell[i * threads] = load_shared_by_rows(lay.weight + (first + i * step) * size);
  }
  if (job.cluster > 1) cluster_wait();

  /* All teams of a warp take part in every round; all threads of a bigger team have the same segment. */
  for (int64_t lead = segment; team.threads < 32 ? __any_sync(whole_warp, lead < segments) != 0 : lead < segments;
       lead += stride) {
    const bool active = lead < segments;
    const int64_t row = active ? lead : 0;
    int64_t weight_offset = first * size;
    if (!even) {
      const Place at = place_of(lay, row);
      weight_offset += at.inner * lay.weight_inner + at.group * lay.width * size;
    }
    Packed<T, V> x[NV];
    if (RING) {
      request(lead + (stages - 1) * stride, ahead);
      wait_for_stage(stages);
      const uint4 *cell = ring + stage * cells * threads;
#pragma unroll
      for (int i = 0; i < NV; i++)
        take(x[i], cell + i * threads);
    } else {
      const char *x_at = job.x.data + offset_of(job.x, row);
#pragma unroll
      for (int i = 0; i < NV; i++) {
        clear(x[i]);
        if (active && first + i * step < part.width) load_vector<true, true>(x[i], x_at + i * step * size, V);
      }
    }
    const char *weight_at = lay.weight + weight_offset, *bias_at = job.bias + weight_offset;
    if (RESIDUAL) {
      const char *r_at = job.residual.data + (RING ? 0 : offset_of(job.residual, row));
      char *sum_at = job.residual_out.data + (job.residual_out.data ? offset_of(job.residual_out, row) : 0);
#pragma unroll
      for (int i = 0; i < NV; i++) {
        Packed<T, V> r;
        float a[V], b[V];
        clear(r);
        const bool here = active && first + i * step < part.width;
        if (RING)
          take(r, ring + (stage * cells + NV + i) * threads);
        else if (here)
          load_vector<true, true>(r, r_at + i * step * size, V);
        unpack(x[i], a);
        unpack(r, b);
#pragma unroll
        for (int j = 0; j < V; j++)
          a[j] += b[j];
        pack(x[i], a);
        if (job.residual_out.data && here) store_vector<true>(sum_at + i * step * size, x[i], V);
      }
    }
    Statistic<float> st;
    st.scale = 1;
    measure_whole<LAYER>(lay, team, x, part, st);
    if (__builtin_expect(any_team(team, !in_range(st.sum)), 0)) measure_scaled<LAYER>(lay, team, x, part, st);
    finish(lay, st, (float)(int)lay.width);
    if (active && team.thread == 0 && team.rank == 0) {
      if (job.rstd) static_cast<float *>(job.rstd)[lead] = st.r * st.scale;
      if (job.mean) static_cast<float *>(job.mean)[lead] = quotient(st.mean, st.scale);
    }
    char *y_at = job.y.data + offset_of(job.y, row);
    const bool scaled = st.scale != 1.0f;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      if (!active || first + i * step >= part.width) continue;
      float h[V];
      unpack(x[i], h);
      if (__builtin_expect(scaled, 0)) {
#pragma unroll
        for (int j = 0; j < V; j++)
          h[j] *= st.scale;
      }
#pragma unroll
      for (int j = 0; j < V; j++)
        h[j] = (LAYER ? h[j] - st.mean : h[j]) * st.r;
      if (lay.weight) {
        float g[V];
        Packed<T, V> weight;
        if (one_weight)
          take(weight, weight_cell + i * threads);
        else
          load_vector<true, false>(weight, weight_at + i * step * size, V);
        unpack(weight, g);
        add_offset(lay, g);
        if (job.bias) {
          float b[V];
          Packed<T, V> bias;
          load_vector<true, false>(bias, bias_at + i * step * size, V);
          unpack(bias, b);
#pragma unroll
          for (int j = 0; j < V; j++)
            h[j] = fused(h[j], g[j], b[j]);
        } else {
#pragma unroll
          for (int j = 0; j < V; j++)
            h[j] *= g[j];
        }
      }
      Packed<T, V> out;
      pack(out, h);
      store_vector<true>(y_at + i * step * size, out, V);
    }
    stage = stage + 1 == stages ? 0 : stage + 1;
    ahead = ahead + 1 == stages ? 0 : ahead + 1;
  }
}

} // namespace rms_cuda

#endif
