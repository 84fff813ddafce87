/* SPDX-License-Identifier: MIT
 *
 * The virtual vector on AVX-512 (F, BW, VL, DQ): one 512-bit register. Contract: vec/README.md. Lanes are always in
 * order: widening and narrowing 16-bit elements is one instruction here. With VEC_NATIVE_BF16 (AVX512_BF16 too)
 * rounding to bf16 is one as well, of two vectors at once. */
#ifndef RMS_VEC_AVX512_H
#define RMS_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include "../../../include/rmsnorm.h"
#include "x86.h"

typedef __m512 vf;
typedef __m512d vd;

#define VEC_REGISTERS 32                             /* vectors that fit in the registers */
#define VEC_INLINE    __attribute__((always_inline)) /* of the kernels */

/* Thirty-two registers have no room for a square of thirty-two vectors. */
#define VEC_SQUARE       64
#define VEC_SQUARE_16BIT 32

static inline VEC_INLINE void vec_stream_part(char *to, const void *from, int bytes) {
  if (bytes == 64)
    _mm512_stream_si512((__m512i *)(void *)to, _mm512_loadu_si512(from));
  else if (bytes == 32)
    _mm256_stream_si256((__m256i *)(void *)to, _mm256_loadu_si256((const __m256i *)from));
  else
    _mm_stream_si128((__m128i *)(void *)to, _mm_loadu_si128((const __m128i *)from));
}

static inline int vf_lane(int element, int eo) {
  (void)eo;
  return element;
}

static inline vf vf_set(float f) {
  return _mm512_set1_ps(f);
}

static inline __mmask16 vf_mask(int n) {
  return (__mmask16)((1u << n) - 1u);
}

static inline vf vf_from_bits16(__m256i h, rms_dtype type) {
  if (type == RMS_F16) return _mm512_cvtph_ps(h);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

static inline __m512i vf_bf16_round_bits(vf a) {
  __m512i u = _mm512_castps_si512(a), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
}

/* The upper halves. */
static inline __m256i vf_upper_halves(__m512i a) {
  const __m512i odd = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 31, 29, 27, 25, 23, 21, 19, 17,
                                       15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_castsi512_si256(_mm512_permutexvar_epi16(odd, a));
}

#ifdef VEC_NATIVE_BF16
#include "avx512_native.h"
#endif

static inline __m256i vf_to_bits16(vf a, rms_dtype type) {
  if (type == RMS_F16) return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#ifdef VEC_NATIVE_BF16
  return vf_to_bf16(a);
#else
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(vf_bf16_round_bits(a), 16));
#endif
}

static inline vf vf_load(const void *p, rms_dtype type, int eo) {
  (void)eo;
  if (type == RMS_F32) return _mm512_loadu_ps(p);
  return vf_from_bits16(_mm256_loadu_si256((const __m256i *)p), type);
}

static inline vf vf_load_n(const void *p, int n, rms_dtype type, int eo) {
  (void)eo;
  if (type == RMS_F32) return _mm512_maskz_loadu_ps(vf_mask(n), p);
  return vf_from_bits16(_mm256_maskz_loadu_epi16(vf_mask(n), p), type);
}

static inline vf vf_load_from(const void *p, int n) {
  return _mm512_maskz_loadu_ps((__mmask16)~vf_mask(n), p);
}

static inline void vf_store(void *p, vf a, rms_dtype type, int eo) {
  (void)eo;
  if (type == RMS_F32)
    _mm512_storeu_ps(p, a);
  else
    _mm256_storeu_si256((__m256i *)p, vf_to_bits16(a, type));
}

static inline void vf_stream(void *p, vf a, rms_dtype type, int eo) {
  (void)eo;
  if (type == RMS_F32)
    _mm512_stream_ps((float *)p, a);
  else
    _mm256_stream_si256((__m256i *)p, vf_to_bits16(a, type));
}

static inline void vf_store_n(void *p, vf a, int n, rms_dtype type, int eo) {
  (void)eo;
  if (type == RMS_F32)
    _mm512_mask_storeu_ps(p, vf_mask(n), a);
  else
    _mm256_mask_storeu_epi16(p, vf_mask(n), vf_to_bits16(a, type));
}

static inline __m512i vf_bf16_round_clean(vf a) {
  __m512i u = _mm512_castps_si512(a), rounded = _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff));
  return _mm512_mask_add_epi32(rounded, _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000)), rounded,
                               _mm512_set1_epi32(1));
}

static inline __m256i vf_bf16_pack_clean(vf a) {
#ifdef VEC_NATIVE_BF16
  return vf_to_bf16(a);
#else
  return vf_upper_halves(vf_bf16_round_clean(a));
#endif
}

static inline void vf_store_clean(void *p, vf a, rms_dtype type, int eo, int stream) {
  if (type == RMS_BF16 && stream)
    _mm256_stream_si256((__m256i *)p, vf_bf16_pack_clean(a));
  else if (type == RMS_BF16)
    _mm256_storeu_si256((__m256i *)p, vf_bf16_pack_clean(a));
  else if (stream)
    vf_stream(p, a, type, eo);
  else
    vf_store(p, a, type, eo);
}

static inline vf vf_round(vf a, rms_dtype type) {
  if (type == RMS_BF16)
    return _mm512_castsi512_ps(_mm512_and_si512(vf_bf16_round_bits(a), _mm512_set1_epi32((int)0xffff0000u)));
  return type == RMS_F16 ? vf_from_bits16(vf_to_bits16(a, RMS_F16), RMS_F16) : a;
}

static inline vf vf_round_clean(vf a, rms_dtype type) {
  if (type != RMS_BF16) return vf_round(a, type);
  return _mm512_castsi512_ps(_mm512_and_si512(vf_bf16_round_clean(a), _mm512_set1_epi32((int)0xffff0000u)));
}

static inline vf vf_first(vf a, int n, int eo) {
  (void)eo;
  return _mm512_maskz_mov_ps(vf_mask(n), a);
}

static inline vf vf_join(vf a, vf b, int n) {
  return _mm512_mask_mov_ps(b, vf_mask(n), a);
}

static inline vf vf_add(vf a, vf b) {
  return _mm512_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b) {
  return _mm512_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b) {
  return _mm512_mul_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c) {
  return _mm512_fmadd_ps(a, b, c);
}

static inline vf vf_div(vf a, vf b) {
  return _mm512_div_ps(a, b);
}

static inline vf vf_max(vf a, vf b) {
  return _mm512_max_ps(a, b);
}

static inline vf vf_min(vf a, vf b) {
  return _mm512_min_ps(a, b);
}

static inline vf vf_if_less(vf a, vf b, vf c, vf d) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), d, c);
}

static inline int vf_all_less(vf a, vf b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ) == 0;
}

static inline vf vf_exponent(vf a) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a), 23));
}

static inline vf vf_max_bits(vf a, vf b) {
  __m512i magnitude = _mm512_castps_si512(_mm512_abs_ps(b));
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), magnitude));
}

static inline vf vf_max_magnitude(vf a, vf b) {
  return _mm512_range_ps(a, b, 0xb); /* the larger magnitude, as a positive number */
}

static inline float vf_most(vf a) {
  __m512i bits = _mm512_castps_si512(a);
  return vec_most8(_mm256_max_epu32(_mm512_castsi512_si256(bits), _mm512_extracti32x8_epi32(bits, 1)));
}

/* rms_i8_from_f32 for each lane. */
static inline VEC_INLINE __m512i vf_i8_code(vf a, int within) {
  if (within) return _mm512_cvtps_epi32(a);
  vf cut = _mm512_max_ps(_mm512_min_ps(a, _mm512_set1_ps(127)), _mm512_set1_ps(-127));
  return _mm512_maskz_cvtps_epi32(_mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), cut);
}

/* rms_f8_from_f32 for each lane. The last seven bits of the sum with `up`, and the exponent moved to its place, are the
 * code: what the exponent counts too much is added to `up` beforehand, an even number of steps, so that no rounding
 * changes. Everything has the sign of the number, so that no magnitude need be formed. */
static inline VEC_INLINE __m512i vf_f8_code(vf a, const rms_f8_format *to, int within) {
  enum { LARGER_MAGNITUDE = 3, SMALLER_MAGNITUDE = 2 }; /* with the sign of the first operand; not NaN if one is not */
  const int bias = (int)(-(to->normal >> to->shift) & 0xff);
  vf w = within ? a : _mm512_range_ps(a, _mm512_set1_ps(to->largest), SMALLER_MAGNITUDE);
  __m512i at_least = _mm512_castps_si512(
      _mm512_range_ps(w, _mm512_castsi512_ps(_mm512_set1_epi32((int)to->normal)), LARGER_MAGNITUDE));
  __m512i exponent = _mm512_and_si512(at_least, _mm512_set1_epi32((int)0xff800000u));
  __m512i up = _mm512_add_epi32(exponent, _mm512_set1_epi32((to->shift << 23) + bias));
  __m512i sum = _mm512_castps_si512(_mm512_add_ps(w, _mm512_castsi512_ps(up)));
  __m512i code = _mm512_add_epi32(sum, _mm512_srli_epi32(exponent, (unsigned)to->shift));
  __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(w), 24);
  code = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x7f), code, sign, 0xca); /* sign but for seven bits */
  if (within) return code;
  return _mm512_mask_mov_epi32(code, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), _mm512_set1_epi32((int)to->nan));
}

static inline VEC_INLINE __m512i vf_code8(vf a, rms_dtype type, int within) {
  if (type == RMS_I8) return vf_i8_code(a, within);
  return vf_f8_code(a, type == RMS_F8E4M3 ? &rms_e4m3 : &rms_e5m2, within);
}

static inline VEC_INLINE void vf_store8(void *p, void *more, vf a, vf b, vf c, vf d, rms_dtype type, int eo,
                                        int within) {
  (void)eo;
  __m512i low = _mm512_packs_epi32(vf_code8(a, type, within), vf_code8(b, type, within));
  __m512i high = _mm512_packs_epi32(vf_code8(c, type, within), vf_code8(d, type, within));
  __m512i all = type == RMS_I8 ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  all = _mm512_permutexvar_epi32(order, all);
  _mm256_storeu_si256((__m256i *)p, _mm512_castsi512_si256(all));
  _mm256_storeu_si256((__m256i *)more, _mm512_extracti64x4_epi64(all, 1));
}

/* As f16, without what is beyond its digits. */
static inline VEC_INLINE __m512i vf_f16_cut(vf a, vf b) {
  enum { CUT = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC };
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(a, CUT)), _mm512_cvtps_ph(b, CUT), 1);
}

static inline VEC_INLINE void vf_store8_clear(void *p, void *more, vf a, vf b, vf c, vf d, rms_dtype type, int eo) {
  (void)eo;
  const __m512i digits = _mm512_set1_epi16(vec_f8_digits(type)), magnitude = _mm512_set1_epi16(0x7fff);
  __m512i first = vf_f16_cut(a, b), last = vf_f16_cut(c, d);
  __m512i codes = _mm512_packus_epi16(_mm512_mulhrs_epi16(_mm512_and_si512(first, magnitude), digits),
                                      _mm512_mulhrs_epi16(_mm512_and_si512(last, magnitude), digits));
  __m512i signs = _mm512_packs_epi16(first, last); /* saturating keeps them */
  __m512i all = _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x7f), codes, signs, 0xca);
  all = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), all);
  _mm256_storeu_si256((__m256i *)p, _mm512_castsi512_si256(all));
  _mm256_storeu_si256((__m256i *)more, _mm512_extracti64x4_epi64(all, 1));
}

/* Half of the numbers of two vectors against the other half, so that their lanes alternate. */
static inline __m512i vf_most_of_pair(__m512i a, __m512i b) {
  return _mm512_max_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

static inline __m512i vf_most_of_four(const vf *v) {
  __m512i a = vf_most_of_pair(_mm512_castps_si512(v[0]), _mm512_castps_si512(v[1]));
  __m512i b = vf_most_of_pair(_mm512_castps_si512(v[2]), _mm512_castps_si512(v[3]));
  return _mm512_max_epu32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

static inline __m512i vf_most_of_quarters(__m512i a, __m512i b) {
  return _mm512_max_epu32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

static inline vf vf_most16(const vf *v) {
  __m512i low = vf_most_of_quarters(vf_most_of_four(v), vf_most_of_four(v + 4));
  __m512i high = vf_most_of_quarters(vf_most_of_four(v + 8), vf_most_of_four(v + 12));
  return _mm512_castsi512_ps(vf_most_of_quarters(low, high));
}

static inline __m256 vf_half_sum(vf a) {
  return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}

static inline float vf_sum4(vf a, vf b, vf c, vf d, int eo) {
  __m256 eight = vf_half_sum(vf_add(vf_add(a, c), vf_add(b, d)));
  (void)eo;
  __m128 quad = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 pair = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

/* The two halves of a vector in memory, added: quicker than to load it whole and take its upper half out of it. */
static inline __m256 vf_half_sum_at(const vf *v) {
  const float *p = (const float *)v;
  return _mm256_add_ps(_mm256_load_ps(p), _mm256_load_ps(p + 8));
}

static inline void vf_sum8(float *sums, const vf *v, int eo) {
  (void)eo;
  _mm256_storeu_ps(sums, vec_sum8x8(vf_half_sum_at(v), vf_half_sum_at(v + 1), vf_half_sum_at(v + 2),
                                    vf_half_sum_at(v + 3), vf_half_sum_at(v + 4), vf_half_sum_at(v + 5),
                                    vf_half_sum_at(v + 6), vf_half_sum_at(v + 7)));
}

static inline vd vd_set(double f) {
  return _mm512_set1_pd(f);
}

static inline vd vd_load(const void *p, rms_dtype type, int eo) {
  (void)eo;
  return type == RMS_F64 ? _mm512_loadu_pd(p) : _mm512_cvtps_pd(_mm256_loadu_ps((const float *)p));
}

static inline vd vd_load_n(const void *p, int n, rms_dtype type, int eo) {
  __mmask8 mask = (__mmask8)vf_mask(n);
  (void)eo;
  return type == RMS_F64 ? _mm512_maskz_loadu_pd(mask, p) : _mm512_cvtps_pd(_mm256_maskz_loadu_ps(mask, p));
}

static inline vd vd_load_from(const void *p, int n) {
  return _mm512_maskz_loadu_pd((__mmask8)~vf_mask(n), p);
}

static inline void vd_store(void *p, vd a, rms_dtype type, int eo) {
  (void)type;
  (void)eo;
  _mm512_storeu_pd(p, a);
}

static inline void vd_stream(void *p, vd a, rms_dtype type, int eo) {
  (void)type;
  (void)eo;
  _mm512_stream_pd((double *)p, a);
}

static inline void vd_store_n(void *p, vd a, int n, rms_dtype type, int eo) {
  (void)type;
  (void)eo;
  _mm512_mask_storeu_pd(p, (__mmask8)vf_mask(n), a);
}

static inline vd vd_first(vd a, int n, int eo) {
  (void)eo;
  return _mm512_maskz_mov_pd((__mmask8)vf_mask(n), a);
}

static inline vd vd_join(vd a, vd b, int n) {
  return _mm512_mask_mov_pd(b, (__mmask8)vf_mask(n), a);
}

static inline vd vd_add(vd a, vd b) {
  return _mm512_add_pd(a, b);
}

static inline vd vd_sub(vd a, vd b) {
  return _mm512_sub_pd(a, b);
}

static inline vd vd_max_bits(vd a, vd b) {
  __m512i magnitude = _mm512_castpd_si512(_mm512_abs_pd(b));
  return _mm512_castsi512_pd(_mm512_max_epu64(_mm512_castpd_si512(a), magnitude));
}

static inline vd vd_mul(vd a, vd b) {
  return _mm512_mul_pd(a, b);
}

static inline vd vd_fma(vd a, vd b, vd c) {
  return _mm512_fmadd_pd(a, b, c);
}

static inline vd vd_div(vd a, vd b) {
  return _mm512_div_pd(a, b);
}

static inline vd vd_max(vd a, vd b) {
  return _mm512_max_pd(a, b);
}

static inline vd vd_min(vd a, vd b) {
  return _mm512_min_pd(a, b);
}

static inline vd vd_if_less(vd a, vd b, vd c, vd d) {
  return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_LT_OQ), d, c);
}

static inline int vd_all_less(vd a, vd b) {
  return _mm512_cmp_pd_mask(a, b, _CMP_NLT_UQ) == 0;
}

static inline vd vd_exponent(vd a) {
  return _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(a), 52));
}

static inline double vd_sum(vd s) {
  return vec_sum4_f64(_mm256_add_pd(_mm512_castpd512_pd256(s), _mm512_extractf64x4_pd(s, 1)));
}

#include "same.h"

#endif
