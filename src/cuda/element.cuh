/* SPDX-License-Identifier: MIT
 *
 * Elements and vectors of them. A vector is the elements that 16 bytes of the data type hold (8 of bf16 and f16, 4 of
 * f32, 2 of f64), counted from the start of the segment whatever the alignment: sums are defined on these vectors, so
 * every way of loading them gives the same bits. */
#ifndef RMS_CUDA_ELEMENT_CUH
#define RMS_CUDA_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "jobs.h"

namespace rms_cuda {

template <class T> constexpr int vector_of = 16 / (int)sizeof(T);

/* The arithmetic of a data type. */
template <class T> struct RealOf { using type = float; };
template <> struct RealOf<double> { using type = double; };
template <class T> using real_of = typename RealOf<T>::type;

/* V elements of type S as they lie in memory, in registers. */
template <class S, int V> struct Packed {
  using element = S;
  static constexpr int words = V * (int)sizeof(S) / 4;
  uint32_t w[words];
};

/* ---- unpacking and rounding ---- */

template <int V> __device__ __forceinline__ void unpack(const Packed<float, V> &p, float (&f)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    f[i] = __uint_as_float(p.w[i]);
}

template <int V> __device__ __forceinline__ void unpack(const Packed<__nv_bfloat16, V> &p, float (&f)[V]) {
#pragma unroll
  for (int i = 0; i < V / 2; i++) {
    f[2 * i] = __uint_as_float(p.w[i] << 16);
    f[2 * i + 1] = __uint_as_float(p.w[i] & 0xffff0000u);
  }
}

template <int V> __device__ __forceinline__ void unpack(const Packed<__half, V> &p, float (&f)[V]) {
#pragma unroll
  for (int i = 0; i < V / 2; i++) {
    __half2 h = *reinterpret_cast<const __half2 *>(&p.w[i]);
    float2 two = __half22float2(h);
    f[2 * i] = two.x;
    f[2 * i + 1] = two.y;
  }
}

template <int V> __device__ __forceinline__ void unpack(const Packed<double, V> &p, double (&f)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    f[i] = __hiloint2double((int)p.w[2 * i + 1], (int)p.w[2 * i]);
}

template <int V> __device__ __forceinline__ void unpack(const Packed<float, V> &p, double (&f)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    f[i] = __uint_as_float(p.w[i]);
}

template <int V> __device__ __forceinline__ void pack(Packed<float, V> &p, const float (&f)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    p.w[i] = __float_as_uint(f[i]);
}

template <int V> __device__ __forceinline__ void pack(Packed<__nv_bfloat16, V> &p, const float (&f)[V]) {
#pragma unroll
  for (int i = 0; i < V / 2; i++) {
    __nv_bfloat162 two = __floats2bfloat162_rn(f[2 * i], f[2 * i + 1]);
    p.w[i] = *reinterpret_cast<uint32_t *>(&two);
  }
}

template <int V> __device__ __forceinline__ void pack(Packed<__half, V> &p, const float (&f)[V]) {
#pragma unroll
  for (int i = 0; i < V / 2; i++) {
    __half2 two = __floats2half2_rn(f[2 * i], f[2 * i + 1]);
    p.w[i] = *reinterpret_cast<uint32_t *>(&two);
  }
}

template <int V> __device__ __forceinline__ void pack(Packed<double, V> &p, const double (&f)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++) {
    p.w[2 * i] = (uint32_t)__double2loint(f[i]);
    p.w[2 * i + 1] = (uint32_t)__double2hiint(f[i]);
  }
}

/* Values rounded to S, kept in the arithmetic type. */
template <class S, int V, class R> __device__ __forceinline__ void round_to(R (&f)[V]) {
  if constexpr (sizeof(S) < sizeof(R)) {
    Packed<S, V> p;
    pack(p, f);
    unpack(p, f);
  }
}

/* ---- memory ---- */

/* How long what a forward reads stays in L2. LAST: it leaves L2 last, though nobody reads it again. Measured, that is
 * worth 3 to 5 % of a forward, however many bytes pass before a row comes again; not where there are few rows. */
template <bool LAST> __device__ __forceinline__ uint64_t read_policy() {
  uint64_t policy;
  if (LAST)
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  else
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/* Rows are read once: they need no place in L1. Not the read-only path, for y may be x. */
template <bool LAST> __device__ __forceinline__ uint4 load_once(const char *p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p), "l"(read_policy<LAST>())
               : "memory");
  return v;
}

/* The same, but for a piece that two vectors have parts of: the second finds it in L1. */
__device__ __forceinline__ uint4 load_piece(const char *p) {
  uint4 v;
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p), "l"(read_policy<false>())
               : "memory");
  return v;
}

/* What all rows need stays in L1. Not __ldg either: a kernel that starts early may be there before the weights are. */
__device__ __forceinline__ uint4 load_shared_by_rows(const char *p) {
  return *reinterpret_cast<const uint4 *>(p);
}

/* `bytes` of the words, each access as wide as the address allows. */
template <int WORDS> __device__ __forceinline__ void load_narrow(uint32_t (&w)[WORDS], const char *p, int bytes) {
  unsigned low = (unsigned)(uintptr_t)p & 3;
#pragma unroll
  for (int i = 0; i < WORDS; i++) {
    const char *q = p + 4 * i;
    w[i] = 0;
    if (4 * i + 4 <= bytes && low == 0) {
      w[i] = *reinterpret_cast<const volatile uint32_t *>(q);
    } else if (4 * i < bytes && (low & 1) == 0) {
      w[i] = *reinterpret_cast<const volatile uint16_t *>(q);
      if (4 * i + 2 < bytes) w[i] |= (uint32_t) * reinterpret_cast<const volatile uint16_t *>(q + 2) << 16;
    } else {
      for (int b = 0; b < 4; b++)
        if (4 * i + b < bytes) w[i] |= (uint32_t) * reinterpret_cast<const volatile uint8_t *>(q + b) << 8 * b;
    }
  }
}

template <int WORDS> __device__ __forceinline__ void store_narrow(char *p, const uint32_t (&w)[WORDS], int bytes) {
  unsigned low = (unsigned)(uintptr_t)p & 3;
#pragma unroll
  for (int i = 0; i < WORDS; i++) {
    char *q = p + 4 * i;
    if (4 * i + 4 <= bytes && low == 0) {
      *reinterpret_cast<uint32_t *>(q) = w[i];
    } else if (4 * i < bytes && (low & 1) == 0) {
      *reinterpret_cast<uint16_t *>(q) = (uint16_t)w[i];
      if (4 * i + 2 < bytes) *reinterpret_cast<uint16_t *>(q + 2) = (uint16_t)(w[i] >> 16);
    } else {
      for (int b = 0; b < 4; b++)
        if (4 * i + b < bytes) *reinterpret_cast<uint8_t *>(q + b) = (uint8_t)(w[i] >> 8 * b);
    }
  }
}

/* n <= V elements at p; the rest is zero. ALIGNED: n is V and p a multiple of 16, or of their size if that is less. */
template <bool ALIGNED, bool ONCE, bool LAST = false, class S, int V>
__device__ __forceinline__ void load_vector(Packed<S, V> &v, const char *p, int n) {
  if constexpr (ALIGNED) {
#pragma unroll
    for (int i = 0; i < Packed<S, V>::words / 4; i++) {
      uint4 q = ONCE ? load_once<LAST>(p + 16 * i) : load_shared_by_rows(p + 16 * i);
      v.w[4 * i] = q.x, v.w[4 * i + 1] = q.y, v.w[4 * i + 2] = q.z, v.w[4 * i + 3] = q.w;
    }
  } else {
    load_narrow(v.w, p, n * (int)sizeof(S));
  }
}

template <bool ALIGNED, class S, int V>
__device__ __forceinline__ void store_vector(char *p, const Packed<S, V> &v, int n) {
  if constexpr (ALIGNED && Packed<S, V>::words == 2) { /* 16-bit elements beside f32 data */
    __stcs(reinterpret_cast<uint2 *>(p), make_uint2(v.w[0], v.w[1]));
  } else if constexpr (ALIGNED) {
#pragma unroll
    for (int i = 0; i < Packed<S, V>::words / 4; i++)
      __stcs(reinterpret_cast<uint4 *>(p + 16 * i),
             make_uint4(v.w[4 * i], v.w[4 * i + 1], v.w[4 * i + 2], v.w[4 * i + 3]));
  } else {
    store_narrow(p, v.w, n * (int)sizeof(S));
  }
}

template <class S, int V> __device__ __forceinline__ void clear(Packed<S, V> &v) {
#pragma unroll
  for (int i = 0; i < Packed<S, V>::words; i++)
    v.w[i] = 0;
}

/* Whether all elements are zeros, of either sign. */
template <class S, int V> __device__ __forceinline__ bool is_zero(const Packed<S, V> &v) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < Packed<S, V>::words; i++)
    bits |= v.w[i];
  return (bits & (sizeof(S) == 2 ? 0x7fff7fffu : 0x7fffffffu)) == 0;
}

/* Bits of the mantissa of an element, and what is added to its exponent. */
template <class S> struct Exponent { static constexpr int mantissa = 23, bias = 127; };
template <> struct Exponent<__nv_bfloat16> { static constexpr int mantissa = 7, bias = 127; };
template <> struct Exponent<__half> { static constexpr int mantissa = 10, bias = 15; };

/* Whether the largest element is zero or within 2^-30 and 2^30, of either sign. Every finite f16 is. */
constexpr int calm_exponent = 30;
template <class S, int V> __device__ __forceinline__ bool is_calm(const Packed<S, V> &v) {
  using E = Exponent<S>;
  constexpr bool wide = E::bias > calm_exponent;
  constexpr uint32_t least = wide ? (uint32_t)(E::bias - calm_exponent) << E::mantissa : 0,
                     most = wide ? (uint32_t)(E::bias + calm_exponent) << E::mantissa
                                 : ((uint32_t)(2 * E::bias + 1) << E::mantissa) - 1;
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < Packed<S, V>::words; i++)
    largest = sizeof(S) == 2 ? __vmaxu2(largest, v.w[i] & 0x7fff7fffu) : max(largest, v.w[i] & 0x7fffffffu);
  if (sizeof(S) == 2) largest = max(largest >> 16, largest & 0xffffu);
  return (largest == 0) | (largest - least <= most - least);
}

/* Keeps the compiler from unpacking a row once for all its uses: that would double the registers it takes. */
template <class S, int V, int NV> __device__ __forceinline__ void keep_packed(Packed<S, V> (&x)[NV]) {
#pragma unroll
  for (int i = 0; i < NV; i++)
#pragma unroll
    for (int j = 0; j < Packed<S, V>::words; j++)
      asm volatile("" : "+r"(x[i].w[j]));
}

/* ---- the parameters of a row: weight and bias ---- */

/* Elements j.. of a weight or bias array, in the data type T or in f32. */
template <bool ALIGNED, class T, int V, class R>
__device__ __forceinline__ void load_parameter(R (&f)[V], const char *p, int64_t j, int n, bool is_f32) {
  if (sizeof(T) != 4 && is_f32) {
    Packed<float, V> w;
    if constexpr (sizeof(Packed<float, V>) >= 16)
      load_vector<ALIGNED, false>(w, p + j * 4, n);
    else
      load_narrow(w.w, p + j * 4, n * 4);
    unpack(w, f);
  } else {
    Packed<T, V> w;
    load_vector<ALIGNED, false>(w, p + j * (int64_t)sizeof(T), n);
    unpack(w, f);
  }
}

/* ---- where aligned rows are ---- */

/* Rows at one distance have outer indices alone. */
struct RowPlace {
  int64_t outer;
  unsigned inner;
};

/* A row's number divided by the rows of an outer index. */
__device__ __forceinline__ RowPlace divide_row(const Inner &inner, int64_t row) {
  const unsigned outer = __umulhi((unsigned)row, inner.factor) >> inner.shift;
  return {outer, (unsigned)row - outer * inner.rows};
}

/* SEVERAL: there may be inner indices. */
template <bool SEVERAL> __device__ __forceinline__ RowPlace place_of_row(const Inner &inner, int64_t row) {
  if (SEVERAL && inner.rows != 0) return divide_row(inner, row);
  return {row, 0};
}

template <bool SEVERAL> __device__ __forceinline__ char *row_at(const Rows &rows, const RowPlace &at) {
  return rows.data + at.outer * rows.outer + (SEVERAL ? at.inner * rows.inner : 0);
}

} // namespace rms_cuda

#endif
