/* SPDX-License-Identifier: MIT
 *
 * Steps of the lean backward kernels that are the same for a row of a block and one of a few lanes. MORE = 1: what is
 * switched at run time, and costs the others nothing; 2: rounding before the weight, of 16-bit types, with saved
 * statistics and nothing to add. The arithmetic is that of backward.cuh. */
#ifndef RMS_CUDA_LEAN_STEPS_CUH
#define RMS_CUDA_LEAN_STEPS_CUH

#include "guard.cuh"
#include "lean_sums.cuh"

namespace rms_cuda {

/* weight + offset of a vector; ones where there is none. */
template <class T, int V> __device__ __forceinline__ void load_gain(const LeanBackward &p, int vector, float (&g)[V]) {
#pragma unroll
  for (int j = 0; j < V; j++)
    g[j] = 1;
  if (!p.weight || vector >= p.vectors) return;
  load_parameter<true, T>(g, p.weight, vector * V, V, p.weight_wide);
  if (p.offset != 0) {
#pragma unroll
    for (int j = 0; j < V; j++)
      g[j] += p.offset;
  }
}

/* Rounds of a team whose first row this is. */
__device__ __forceinline__ int rounds_from(const LeanBackward &p, int64_t mine, int64_t stride) {
  int rounds = p.rounds - (mine + (p.rounds - 1) * stride < p.rows ? 0 : 1);
  asm volatile("" : "+r"(rounds)); /* one register, not what it came from */
  return rounds;
}

template <bool LAYER, int V> __device__ __forceinline__ void normalise(float (&x)[V], float r, float mean) {
#pragma unroll
  for (int j = 0; j < V; j++)
    x[j] = (LAYER ? x[j] - mean : x[j]) * r;
}

/* u, dy times the weight, as models see it that round before the weight. */
template <class T, int MORE, int V> __device__ __forceinline__ void round_u(const LeanBackward &p, float (&u)[V]) {
  if (MORE == 2 || (MORE && p.before)) round_to<T>(u);
}

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

/* What dweight gets from a row. */
template <class T, int MORE, int V>
__device__ __forceinline__ void add_dweight(const LeanBackward &p, float (&sum)[V], const Packed<T, V> &packed_dy,
                                            const float (&dy)[V], const float (&h)[V]) {
  if constexpr (MORE == 2) {
    Packed<T, V> packed;
    float q[V];
    pack(packed, h);
    if (p.round_product) {
      multiply(packed, packed_dy);
      unpack(packed, q);
#pragma unroll
      for (int j = 0; j < V; j++)
        sum[j] += q[j];
    } else {
      unpack(packed, q);
#pragma unroll
      for (int j = 0; j < V; j++)
        sum[j] = fused(dy[j], q[j], sum[j]);
    }
  } else if (MORE && p.before) {
    float q[V];
#pragma unroll
    for (int j = 0; j < V; j++)
      q[j] = h[j];
    round_to<T>(q);
    if (p.round_product) {
#pragma unroll
      for (int j = 0; j < V; j++)
        q[j] *= dy[j];
      round_to<T>(q);
#pragma unroll
      for (int j = 0; j < V; j++)
        sum[j] += q[j];
    } else {
#pragma unroll
      for (int j = 0; j < V; j++)
        sum[j] = fused(dy[j], q[j], sum[j]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < V; j++)
      sum[j] = fused(dy[j], h[j], sum[j]);
  }
}

/* u to dx; `column` is the first of the vector. */
template <bool LAYER, int MORE, int V>
__device__ __forceinline__ void finish_dx(const LeanBackward &p, float (&u)[V], const float (&h)[V], float c1, float c2,
                                          float r, int column) {
  if (!MORE || p.whole) {
#pragma unroll
    for (int j = 0; j < V; j++)
      u[j] = fused(-h[j], c2, LAYER ? u[j] - c1 : u[j]) * r;
  } else {
#pragma unroll
    for (int j = 0; j < V; j++)
      u[j] = fused(-h[j], column + j < p.leading ? c2 : 0.0f, LAYER ? u[j] - c1 : u[j]) * r;
  }
}

/* Elements outside the statistic become zeros. */
template <int MORE, int V>
__device__ __forceinline__ void keep_leading(const LeanBackward &p, float (&x)[V], int column) {
  if (MORE && !p.whole && column + V > p.leading) {
#pragma unroll
    for (int j = 0; j < V; j++)
      if (column + j >= p.leading) x[j] = 0;
  }
}

/* dx of a vector to memory; `in` is what is added to it. */
template <int MORE, class T, int V>
__device__ __forceinline__ void store_dx(const LeanBackward &p, float (&dx)[V], const Packed<T, V> &in, char *to,
                                         char *copy) {
  Packed<T, V> packed;
  if (MORE == 1 && p.added.data) {
    float more[V];
    unpack(in, more);
#pragma unroll
    for (int j = 0; j < V; j++)
      dx[j] += more[j];
  }
  pack(packed, dx);
  if (MORE != 1 || p.dx.data) store_vector<true>(to, packed, V);
  if (MORE == 1 && p.copy.data) store_vector<true>(copy, packed, V);
}

} // namespace rms_cuda

#endif
