/* SPDX-License-Identifier: MIT
 *
 * The part of avx512.h that takes AVX512_BF16: rounding to bf16 by an instruction, of one vector or of two. */
#ifndef RMS_VEC_AVX512_NATIVE_H
#define RMS_VEC_AVX512_NATIVE_H

#define VEC_STORES_QUADS

/* The instructions that round to bf16 take subnormal numbers for zeros. So where there are zeros among the results, the
 * numbers are looked at, and if one is subnormal, all are rounded by integer operations. */
static inline __mmask16 vf_subnormal(vf a) {
  return _mm512_fpclass_ps_mask(a, 0x20);
}

static inline VEC_INLINE __m256i vf_to_bf16(vf a) {
  __m256i bits = (__m256i)_mm512_cvtneps_pbh(a);
  if (__builtin_expect(_mm256_testn_epi16_mask(bits, _mm256_set1_epi16(0x7fff)) != 0, 0))
    if (vf_subnormal(a)) return vf_upper_halves(vf_bf16_round_bits(a));
  return bits;
}

/* Whether one of four vectors, among which there are zeros, has a subnormal number. all: there may be no others. */
static inline VEC_INLINE int vf_lose_digits(vf a, vf b, vf c, vf d, int all) {
  if (all) {
    __m512i some =
        _mm512_ternarylogic_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b), _mm512_castps_si512(c), 0xfe);
    some = _mm512_or_si512(some, _mm512_castps_si512(d));
    if (_mm512_test_epi32_mask(some, _mm512_set1_epi32(0x7fffffff)) == 0) return 0;
  }
  return (vf_subnormal(a) | vf_subnormal(b) | vf_subnormal(c) | vf_subnormal(d)) != 0;
}

static inline VEC_INLINE void vf_store4_clean(void *p, vf a, vf b, vf c, vf d, int stream) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  char *to = (char *)p;
  __m512i first = (__m512i)_mm512_cvtne2ps_pbh(b, a), last = (__m512i)_mm512_cvtne2ps_pbh(d, c);
  __mmask32 zeros = _mm512_testn_epi16_mask(first, magnitude) | _mm512_testn_epi16_mask(last, magnitude);
  if (__builtin_expect(zeros != 0, 0) && vf_lose_digits(a, b, c, d, zeros == 0xffffffff)) {
    first = _mm512_inserti64x4(_mm512_castsi256_si512(vf_to_bf16(a)), vf_to_bf16(b), 1);
    last = _mm512_inserti64x4(_mm512_castsi256_si512(vf_to_bf16(c)), vf_to_bf16(d), 1);
  }
  if (stream) {
    _mm512_stream_si512((__m512i *)to, first);
    _mm512_stream_si512((__m512i *)(to + 64), last);
  } else {
    _mm512_storeu_si512(to, first);
    _mm512_storeu_si512(to + 64, last);
  }
}

#endif
