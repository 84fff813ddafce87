/* SPDX-License-Identifier: MIT
 *
 * What the AVX2 and the AVX-512 vector share. */
#ifndef RMS_VEC_X86_H
#define RMS_VEC_X86_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include "../convert.h"

/* One step of several halving trees: half of the lanes of a and b are added to the other half. */
static inline __m256 vec_add_halves(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

static inline __m256 vec_add_pairs(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}

/* Eight halving trees at once: sum i is that of the lanes of argument i, l + l+4, then +2, then +1. Arguments, not an
 * array: compilers would keep that in memory. */
static inline __m256 vec_sum8x8(__m256 v0, __m256 v1, __m256 v2, __m256 v3, __m256 v4, __m256 v5, __m256 v6,
                                __m256 v7) {
  __m256 a = vec_add_pairs(vec_add_halves(v0, v4), vec_add_halves(v1, v5));
  __m256 b = vec_add_pairs(vec_add_halves(v2, v6), vec_add_halves(v3, v7));
  return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

/* One halving tree: l + l+2, then +1. */
static inline double vec_sum4_f64(__m256d v) {
  __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

/* always_inline: gcc takes an ordinary function for one without effect and drops the call. */
static inline __attribute__((always_inline)) void vec_prefetch(const void *p) {
  _mm_prefetch((const char *)p, _MM_HINT_T1);
}

/* The same into the first-level cache: for what is read next. */
static inline __attribute__((always_inline)) void vec_prefetch_near(const void *p) {
  _mm_prefetch((const char *)p, _MM_HINT_T0);
}

/* The largest of eight magnitudes, whose order is that of their bits. */
static inline float vec_most8(__m256i a) {
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  __m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epu32(two, _mm_shuffle_epi32(two, 0xb1))));
}

/* By what vf_store8_clear multiplies magnitudes of f16, so that the upper half of the product is rounded to the digits
 * of e4m3, or e5m2: a shift to the right by 7, or 8. */
static inline short vec_f8_digits(rms_dtype type) {
  return type == RMS_F8E4M3 ? 256 : 128;
}

/* The largest of n magnitudes of 16 bits. */
static inline unsigned vec_most16(const char *p, int64_t n) {
  const __m256i magnitude = _mm256_set1_epi16(0x7fff);
  __m256i a = _mm256_setzero_si256(), b = a;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i *at = (const __m256i *)(const void *)(p + 2 * i);
    a = _mm256_max_epu16(a, _mm256_and_si256(_mm256_loadu_si256(at), magnitude));
    b = _mm256_max_epu16(b, _mm256_and_si256(_mm256_loadu_si256(at + 1), magnitude));
  }
  a = _mm256_max_epu16(a, b);
  __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  /* the instruction finds the least of eight, so of what is missing to 0xffff */
  unsigned most = 0xffffu & ~(unsigned)_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1))));
  for (; i < n; i++) {
    uint16_t half;
    memcpy(&half, p + 2 * i, 2);
    if ((half & 0x7fffu) > most) most = half & 0x7fffu;
  }
  return most;
}

/* Whole lines by non-temporal stores, what stands before and behind them by plain ones. */
static inline void vec_copy_stream(char *to, const char *from, int64_t bytes) {
  int64_t j = -(int64_t)(uintptr_t)to & 63;
  if (j > bytes) j = bytes;
  memcpy(to, from, (size_t)j);
  for (; j + 64 <= bytes; j += 64) {
    __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)(from + j));
    __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(from + j + 32));
    _mm256_stream_si256((__m256i *)(void *)(to + j), low);
    _mm256_stream_si256((__m256i *)(void *)(to + j + 32), high);
  }
  memcpy(to + j, from + j, (size_t)(bytes - j));
}

static inline void vec_stream_fence(void) {
  _mm_sfence();
}

#endif
