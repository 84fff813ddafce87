/* SPDX-License-Identifier: MIT
 *
 * The forward kernel: the segment stays in registers, packed, between its statistic and its output; every byte moves
 * once.
 *
 * T: data type. S: type of what is normalised: T, or f32 for the sum with a wide residual. NV: vectors of a thread. */
#ifndef RMS_CUDA_FORWARD_CUH
#define RMS_CUDA_FORWARD_CUH

#include "affine.cuh"
#include "statistic.cuh"

namespace rms_cuda {

/* Sum of (x*scale - mean)^2, or of x*scale, over the masked elements of a vector. */
template <bool SQUARES, class S, int V>
__device__ __forceinline__ float vector_sum(const Packed<S, V> &packed, unsigned mask, float scale, float mean) {
  float x[V], sum = 0;
  unpack(packed, x);
  if (mask == (1u << V) - 1) {
#pragma unroll
    for (int j = 0; j < V; j++) {
      float d = fused(x[j], scale, -mean);
      sum = SQUARES ? fused(d, d, sum) : sum + d;
    }
  } else if (mask != 0) {
#pragma unroll
    for (int j = 0; j < V; j++) {
      float d = mask >> j & 1 ? fused(x[j], scale, -mean) : 0.0f;
      sum = SQUARES ? fused(d, d, sum) : sum + d;
    }
  }
  return sum;
}

/* The vectors of a thread: elements first + i*step.. of the segment. Tuned kernels take segments of fewer than 2^31
 * elements and no index lists. */
struct Part {
  int first, step, width; /* width 0: the thread has no segment */

  template <int V> __device__ __forceinline__ int count(int i) const {
    int left = width - (first + i * step);
    return left >= V ? V : left > 0 ? left : 0;
  }
  template <int V> __device__ __forceinline__ unsigned mask(const Layout &lay, int i) const {
    int k = (int)lay.k < width ? (int)lay.k : width, left = k - (first + i * step);
    return left >= V ? (1u << V) - 1 : left > 0 ? (1u << left) - 1 : 0;
  }
};

/* Keeps the compiler from unpacking a row once for all its uses: that would double the registers it takes. */
template <class S, int V, int NV> __device__ __forceinline__ void stay_packed(Packed<S, V> (&x)[NV]) {
#pragma unroll
  for (int i = 0; i < NV; i++)
#pragma unroll
    for (int j = 0; j < Packed<S, V>::words; j++)
      asm volatile("" : "+r"(x[i].w[j]));
}

template <class S, int V, int NV>
__device__ __forceinline__ void measure(const Layout &lay, Team &team, Packed<S, V> (&x)[NV], const Part &part,
                                        Statistic<float> &st) {
  float a[NV];
  st.mean = 0;
  if (lay.layer) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      a[i] = vector_sum<false>(x[i], part.mask<V>(lay, i), st.scale, 0.0f);
    stay_packed(x);
    st.mean = quotient(reduce<Add>(team, a), (float)lay.k);
  }
#pragma unroll
  for (int i = 0; i < NV; i++)
    a[i] = vector_sum<true>(x[i], part.mask<V>(lay, i), st.scale, st.mean);
  stay_packed(x);
  st.sum = reduce<Add>(team, a);
}

/* The statistic of a segment in registers. Teams of a warp go through the guard together; those that need it not get a
 * scale of one and the same bits again. */
template <class S, int V, int NV>
__device__ __forceinline__ Statistic<float> statistic_of(const Layout &lay, Team &team, Packed<S, V> (&x)[NV],
                                                         const Part &part) {
  Statistic<float> st;
  st.scale = 1;
#pragma unroll 1
  for (bool scaled = false;; scaled = true) {
    measure(lay, team, x, part, st);
    bool again = !in_range(st.sum);
    if (scaled || !any_team(team, again)) break;
    float a[NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float f[V];
      unsigned mask = part.mask<V>(lay, i);
      unpack(x[i], f);
      a[i] = 0;
#pragma unroll
      for (int j = 0; j < V; j++)
        if (mask >> j & 1) a[i] = Max::of(a[i], size_for_scale(f[j]));
    }
    float largest = reduce<Max>(team, a);
    if (again) st.scale = scale_for(largest, lay.eps_limit);
  }
  finish(lay, st, (float)lay.k);
  return st;
}

/* Which segment and which part of it this thread works on. */
__device__ __forceinline__ int64_t join_team(Team &team, int threads, int cluster, int64_t first, void *shared,
                                             int per_thread) {
  int64_t segment;
  team.threads = threads;
  team.cluster = cluster;
  team.phase = 0;
  team.mailbox = static_cast<uint64_t *>(shared);
  team.chunks = reinterpret_cast<float *>(team.mailbox + 2);
  team.rank = 0;
  if (threads <= 32) {
    team.thread = (int)threadIdx.x & (threads - 1);
    segment = first + (int64_t)blockIdx.x * (blockDim.x / (unsigned)threads) + threadIdx.x / (unsigned)threads;
  } else {
    team.thread = (int)threadIdx.x;
    segment = first + blockIdx.x / (unsigned)cluster;
    team.rank = cluster > 1 ? (int)(blockIdx.x % (unsigned)cluster) : 0;
  }
  team.pitch = threads / 32 * cluster * per_thread;
  if (cluster > 1 && threadIdx.x == 0)
    for (int i = 0; i < 2; i++)
      start_mailbox(team.mailbox + i);
  return segment;
}

/* Blocks of FORWARD_TEAM threads that an SM must have registers for. */
template <class T, class S, int NV, bool ALIGNED>
constexpr int forward_blocks = !ALIGNED || sizeof(S) != sizeof(T) || NV == 8 ? 2
                               : NV == 4                                     ? 3
                                                                             : 4;

template <class T, class S, int NV, bool ALIGNED>
__global__ void __launch_bounds__(FORWARD_TEAM, forward_blocks<T, S, NV, ALIGNED>)
    forward_kernel(const __grid_constant__ ForwardJob job) {
  constexpr int V = vector_of<T>;
  constexpr bool early_weight = NV <= 4 && ALIGNED;
  __shared__ __align__(16) char shared[16 + 2 * sizeof(float) * MAX_CLUSTER * FORWARD_TEAM / 32 * NV];
  const Layout &lay = job.lay;
  Team team;
  int64_t segment = join_team(team, job.team, job.cluster, job.first, shared, NV);
  bool active = segment < lay.outer * lay.inner * lay.groups;
  if (job.cluster > 1) cluster_arrive();
  Place at = place_of(lay, active ? segment : 0);
  const char *x_at = segment_at(job.x, lay, at, sizeof(T));

  Packed<S, V> x[NV];
  const int first = (team.rank * NV * team.threads + team.thread) * V, step = team.threads * V;
  const Part part = {first, step, active ? (int)lay.width : 0};

  if (job.residual.data == nullptr) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      Packed<T, V> in;
      clear(in);
      int n = part.count<V>(i);
      if (n > 0) load_vector<ALIGNED, true>(in, x_at + (first + i * step) * (int)sizeof(T), n);
      if constexpr (sizeof(S) == sizeof(T)) {
#pragma unroll
        for (int j = 0; j < Packed<T, V>::words; j++)
          x[i].w[j] = in.w[j];
      } else {
        float f[V];
        unpack(in, f);
        pack(x[i], f);
      }
    }
  } else {
    const char *residual_at = segment_at(job.residual, lay, at, sizeof(S));
    Packed<T, V> in[NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      clear(in[i]);
      clear(x[i]);
      int n = part.count<V>(i);
      if (n > 0) {
        load_vector<ALIGNED, true>(in[i], x_at + (first + i * step) * (int)sizeof(T), n);
        load_vector<ALIGNED, true>(x[i], residual_at + (first + i * step) * (int)sizeof(S), n);
      }
    }
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float a[V], b[V];
      unpack(in[i], a);
      unpack(x[i], b);
#pragma unroll
      for (int j = 0; j < V; j++)
        a[j] += b[j];
      pack(x[i], a);
      int n = part.count<V>(i);
      if (job.residual_out.data && n > 0)
        store_vector<ALIGNED>(segment_at(job.residual_out, lay, at, sizeof(S)) + (first + i * step) * (int)sizeof(S),
                              x[i], n);
    }
  }
  const int weight_size = lay.weight_wide ? 4 : (int)sizeof(T);
  const char *weight_at = parameter_at(lay.weight, lay, at, weight_size);
  Packed<T, V> weight[NV];
  if (early_weight && lay.weight && !lay.weight_wide) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      if (part.count<V>(i) > 0) load_vector<true, false>(weight[i], weight_at + (first + i * step) * (int)sizeof(T), V);
  }
  if (job.cluster > 1) cluster_wait();

  Statistic<float> st = statistic_of(lay, team, x, part);
  if (active && team.thread == 0 && team.rank == 0) {
    if (job.rstd) static_cast<float *>(job.rstd)[segment] = st.r * st.scale;
    if (job.mean) static_cast<float *>(job.mean)[segment] = quotient(st.mean, st.scale);
  }

  char *y_at = segment_at(job.y, lay, at, sizeof(T));
  const char *bias_at = parameter_at(job.bias, lay, at, weight_size);
#pragma unroll
  for (int i = 0; i < NV; i++) {
    int n = part.count<V>(i);
    if (n == 0) continue;
    float h[V], g[V], b[V];
    unpack(x[i], h);
#pragma unroll
    for (int j = 0; j < V; j++)
      h[j] = fused(h[j], st.scale, -st.mean) * st.r;
    if (lay.weight) {
      if (early_weight && !lay.weight_wide)
        unpack(weight[i], g);
      else
        load_parameter<ALIGNED, T>(g, weight_at, first + i * step, n, lay.weight_wide);
      add_offset(g, lay.offset);
    }
    if (job.bias) load_parameter<ALIGNED, T>(b, bias_at, first + i * step, n, lay.weight_wide);
    affine<T>(h, g, b, {lay.weight != nullptr, job.bias != nullptr, lay.before, lay.weight_wide});
    Packed<T, V> out;
    pack(out, h);
    store_vector<ALIGNED>(y_at + (first + i * step) * (int)sizeof(T), out, n);
  }
}

} // namespace rms_cuda

#endif
