/* SPDX-License-Identifier: MIT
 *
 * The virtual vector on AVX2 + FMA + F16C: two 256-bit registers. Contract: vec/README.md. With eo = 1 `lo` holds the
 * even elements and `hi` the odd ones, so a register of 16 bf16 values splits by a shift and a mask. With VEC_MASKS
 * defined, the permutations of AVX-512 are used too, and incomplete vectors of 16-bit elements go through its mask
 * registers. */
#ifndef RMS_VEC_AVX2_H
#define RMS_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include "../../../include/rmsnorm.h"
#include "x86.h"

typedef struct {
  __m256 lo, hi;
} vf;
typedef struct {
  __m256d lo, hi;
} vd;

/* Keeps the compiler from swapping the halves of a line: write-combining buffers want them in ascending order. */
#ifdef VEC_MASKS
#define VEC_REGISTERS 16 /* vectors that fit in the registers */
#else
#define VEC_REGISTERS 8
#endif
#define VEC_INLINE __attribute__((always_inline)) /* of the kernels */

/* An element goes from one half of a 256-bit register to the other by an instruction of its own, so that these would
 * gain nothing. */
#define VEC_SQUARE       16
#define VEC_SQUARE_16BIT 16

static inline void vec_stream_part(char *to, const void *from, int bytes) {
  (void)bytes;
  _mm_stream_si128((__m128i *)(void *)to, _mm_loadu_si128((const __m128i *)from));
}

static inline __attribute__((always_inline)) void vec_in_order(void) {
  __asm__ volatile("" ::: "memory");
}

static inline int vf_lane(int element, int eo) {
  return eo ? (element & 1) * 8 + element / 2 : element;
}

static inline vf vf_set(float f) {
  vf r = {_mm256_set1_ps(f), _mm256_set1_ps(f)};
  return r;
}

#ifdef VEC_MASKS
static inline vf vf_deinterleave(__m256 a, __m256 b) {
  vf r = {_mm256_permutex2var_ps(a, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14), b),
          _mm256_permutex2var_ps(a, _mm256_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15), b)};
  return r;
}

static inline vf vf_interleave(vf a) {
  vf r = {_mm256_permutex2var_ps(a.lo, _mm256_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11), a.hi),
          _mm256_permutex2var_ps(a.lo, _mm256_setr_epi32(4, 12, 5, 13, 6, 14, 7, 15), a.hi)};
  return r;
}
#else
static inline vf vf_deinterleave(__m256 a, __m256 b) {
  __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), odd = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
  vf r = {_mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8)), _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8))};
  return r;
}

static inline vf vf_interleave(vf a) {
  __m256 low = _mm256_unpacklo_ps(a.lo, a.hi), high = _mm256_unpackhi_ps(a.lo, a.hi);
  vf r = {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
  return r;
}
#endif

static inline vf vf_from_bits16(__m256i h, rms_dtype type, int eo) {
  if (type == RMS_F16) {
    vf r = {_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
    return eo ? vf_deinterleave(r.lo, r.hi) : r;
  }
  vf r = {_mm256_castsi256_ps(_mm256_slli_epi32(h, 16)),
          _mm256_castsi256_ps(_mm256_and_si256(h, _mm256_set1_epi32((int)0xffff0000u)))};
  return eo ? r : vf_interleave(r);
}

static inline __m256i vf_bf16_round_bits(__m256 a) {
  __m256i u = _mm256_castps_si256(a), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
#ifdef VEC_MASKS
  return _mm256_mask_or_epi32(rounded, _mm256_cmp_ps_mask(a, a, _CMP_UNORD_Q), u, _mm256_set1_epi32(0x400000));
#else
  __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, nan);
#endif
}

/* Sixteen even/odd lanes to bf16 at once, in 16-bit halves: a high half goes up by one if its low half is above 0x8000,
 * or equal to it beside an odd one. Right for all numbers, and for NaNs whose low half is zero. */
static inline __m256i vf_bf16_pack_clean(vf a) {
  __m256i even = _mm256_castps_si256(a.lo), odd = _mm256_castps_si256(a.hi);
  __m256i high = _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
  __m256i low = _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xaa);
  __m256i up = _mm256_subs_epu16(low, _mm256_andnot_si256(high, _mm256_set1_epi16(1)));
  return _mm256_add_epi16(high, _mm256_srli_epi16(up, 15));
}

static inline __m128i vf_f16_bits(__m256 a) {
  return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline __m256i vf_to_bits16(vf a, rms_dtype type, int eo) {
  if (type == RMS_F16) {
    if (eo) a = vf_interleave(a);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(vf_f16_bits(a.lo)), vf_f16_bits(a.hi), 1);
  }
  if (!eo) a = vf_deinterleave(a.lo, a.hi);
  return _mm256_blend_epi16(_mm256_srli_epi32(vf_bf16_round_bits(a.lo), 16), vf_bf16_round_bits(a.hi), 0xaa);
}

static inline vf vf_load(const void *p, rms_dtype type, int eo) {
  if (type == RMS_F32) {
    vf r = {_mm256_loadu_ps((const float *)p), _mm256_loadu_ps((const float *)p + 8)};
    return eo ? vf_deinterleave(r.lo, r.hi) : r;
  }
  if (type == RMS_F16) {
    vf r = {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
            _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p + 1))};
    return eo ? vf_deinterleave(r.lo, r.hi) : r;
  }
  return vf_from_bits16(_mm256_loadu_si256((const __m256i *)p), type, eo);
}

/* Lanes 0..n-1 all ones, for n of 0..8 (less and more saturate). */
static inline __m256i vf_mask8(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The first n 16-bit elements of at most 8, and zeros, by loads that overlap and never reach past them. A way through
 * memory would wait until its small stores have left for the cache. */
static inline __m128i vec_load16_n(const char *p, int n) {
  uint64_t low = 0, high = 0;
  uint32_t first, last;
  uint16_t only;
  if (n >= 4) {
    memcpy(&low, p, 8);
    memcpy(&high, p + 2 * n - 8, 8);
    high = n > 4 ? high >> 16 * (8 - n) : 0;
  } else if (n >= 2) {
    memcpy(&first, p, 4);
    memcpy(&last, p + 2 * n - 4, 4);
    low = first | (uint64_t)last << 16 * (n - 2);
  } else if (n == 1) {
    memcpy(&only, p, 2);
    low = only;
  }
  return _mm_set_epi64x((int64_t)high, (int64_t)low);
}

/* The first n 16-bit elements, in pieces that never reach past them. */
static inline void vec_copy16(char *to, const char *from, int n) {
  if (n & 8) memcpy(to, from, 16), to += 16, from += 16;
  if (n & 4) memcpy(to, from, 8), to += 8, from += 8;
  if (n & 2) memcpy(to, from, 4), to += 4, from += 4;
  if (n & 1) memcpy(to, from, 2);
}

static inline vf vf_load_n(const void *p, int n, rms_dtype type, int eo) {
  if (type == RMS_F32) {
    vf r = {_mm256_maskload_ps((const float *)p, vf_mask8(n)),
            n > 8 ? _mm256_maskload_ps((const float *)p + 8, vf_mask8(n - 8)) : _mm256_setzero_ps()};
    return eo ? vf_deinterleave(r.lo, r.hi) : r;
  }
#ifdef VEC_MASKS
  return vf_from_bits16(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1u), p), type, eo);
#else
  __m128i low = n >= 8 ? _mm_loadu_si128((const __m128i *)p) : vec_load16_n((const char *)p, n);
  __m128i high = n > 8 ? vec_load16_n((const char *)p + 16, n - 8) : _mm_setzero_si128();
  return vf_from_bits16(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1), type, eo);
#endif
}

/* Lanes n..7 all ones, for n of 0..8 (less and more saturate). */
static inline __m256i vf_mask8_from(int n) {
  return _mm256_cmpgt_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(n - 1));
}

static inline vf vf_load_from(const void *p, int n) {
  vf r = {n < 8 ? _mm256_maskload_ps((const float *)p, vf_mask8_from(n)) : _mm256_setzero_ps(),
          _mm256_maskload_ps((const float *)p + 8, vf_mask8_from(n - 8))};
  return r;
}

static inline void vf_store(void *p, vf a, rms_dtype type, int eo) {
  if (type == RMS_F32) {
    if (eo) a = vf_interleave(a);
    _mm256_storeu_ps((float *)p, a.lo);
    _mm256_storeu_ps((float *)p + 8, a.hi);
  } else if (type == RMS_F16) {
    if (eo) a = vf_interleave(a);
    _mm_storeu_si128((__m128i *)p, vf_f16_bits(a.lo));
    _mm_storeu_si128((__m128i *)p + 1, vf_f16_bits(a.hi));
  } else {
    _mm256_storeu_si256((__m256i *)p, vf_to_bits16(a, type, eo));
  }
}

static inline void vf_stream(void *p, vf a, rms_dtype type, int eo) {
  if (type == RMS_F32) {
    if (eo) a = vf_interleave(a);
    _mm256_stream_ps((float *)p, a.lo);
    vec_in_order();
    _mm256_stream_ps((float *)p + 8, a.hi);
    vec_in_order();
  } else {
    _mm256_stream_si256((__m256i *)p, vf_to_bits16(a, type, eo));
  }
}

static inline void vf_store_clean(void *p, vf a, rms_dtype type, int eo, int stream) {
  if (type == RMS_BF16 && eo) {
    if (stream)
      _mm256_stream_si256((__m256i *)p, vf_bf16_pack_clean(a));
    else
      _mm256_storeu_si256((__m256i *)p, vf_bf16_pack_clean(a));
  } else if (stream) {
    vf_stream(p, a, type, eo);
  } else {
    vf_store(p, a, type, eo);
  }
}

static inline void vf_store_n(void *p, vf a, int n, rms_dtype type, int eo) {
  if (type == RMS_F32) {
    if (eo) a = vf_interleave(a);
    _mm256_maskstore_ps((float *)p, vf_mask8(n), a.lo);
    if (n > 8) _mm256_maskstore_ps((float *)p + 8, vf_mask8(n - 8), a.hi);
  } else {
#ifdef VEC_MASKS
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1u), vf_to_bits16(a, type, eo));
#else
    char bytes[32];
    _mm256_storeu_si256((__m256i *)bytes, vf_to_bits16(a, type, eo));
    vec_copy16((char *)p, bytes, n);
#endif
  }
}

static inline vf vf_round(vf a, rms_dtype type) {
  if (type == RMS_BF16) {
    __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    a.lo = _mm256_castsi256_ps(_mm256_and_si256(vf_bf16_round_bits(a.lo), high));
    a.hi = _mm256_castsi256_ps(_mm256_and_si256(vf_bf16_round_bits(a.hi), high));
  } else if (type == RMS_F16) {
    a = vf_from_bits16(vf_to_bits16(a, RMS_F16, 0), RMS_F16, 0);
  }
  return a;
}

static inline vf vf_round_clean(vf a, rms_dtype type) {
  if (type != RMS_BF16) return vf_round(a, type);
  const __m256i high = _mm256_set1_epi32((int)0xffff0000u), half = _mm256_set1_epi32(0x7fff);
  __m256i lo = _mm256_castps_si256(a.lo), hi = _mm256_castps_si256(a.hi), one = _mm256_set1_epi32(1);
  lo = _mm256_add_epi32(_mm256_add_epi32(lo, half), _mm256_and_si256(_mm256_srli_epi32(lo, 16), one));
  hi = _mm256_add_epi32(_mm256_add_epi32(hi, half), _mm256_and_si256(_mm256_srli_epi32(hi, 16), one));
  vf r = {_mm256_castsi256_ps(_mm256_and_si256(lo, high)), _mm256_castsi256_ps(_mm256_and_si256(hi, high))};
  return r;
}

static inline vf vf_first(vf a, int n, int eo) {
  int lo = eo ? (n + 1) / 2 : n, hi = eo ? n / 2 : n - 8;
  a.lo = _mm256_and_ps(a.lo, _mm256_castsi256_ps(vf_mask8(lo)));
  a.hi = _mm256_and_ps(a.hi, _mm256_castsi256_ps(vf_mask8(hi)));
  return a;
}

static inline vf vf_join(vf a, vf b, int n) {
  vf r = {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(vf_mask8(n))),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(vf_mask8(n - 8)))};
  return r;
}

static inline vf vf_add(vf a, vf b) {
  vf r = {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  return r;
}

static inline vf vf_sub(vf a, vf b) {
  vf r = {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
  return r;
}

static inline vf vf_mul(vf a, vf b) {
  vf r = {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  return r;
}

static inline vf vf_fma(vf a, vf b, vf c) {
  vf r = {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  return r;
}

static inline vf vf_div(vf a, vf b) {
  vf r = {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
  return r;
}

static inline vf vf_max(vf a, vf b) {
  vf r = {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
  return r;
}

static inline vf vf_min(vf a, vf b) {
  vf r = {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
  return r;
}

/* c where the mask is set, d elsewhere. Of two constants c ^ d is one too: two instructions, fewer than a blend has. */
static inline __m256 vec_blend_ps(__m256 mask, __m256 c, __m256 d) {
  __m256i from = _mm256_castps_si256(c), to = _mm256_castps_si256(d);
  return _mm256_castsi256_ps(
      _mm256_xor_si256(to, _mm256_and_si256(_mm256_castps_si256(mask), _mm256_xor_si256(from, to))));
}

static inline __m256 vec_if_less_ps(__m256 a, __m256 b, __m256 c, __m256 d) {
#ifdef VEC_MASKS
  return _mm256_mask_blend_ps(_mm256_cmp_ps_mask(a, b, _CMP_LT_OQ), d, c);
#else
  return vec_blend_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), c, d);
#endif
}

static inline vf vf_if_less(vf a, vf b, vf c, vf d) {
  vf r = {vec_if_less_ps(a.lo, b.lo, c.lo, d.lo), vec_if_less_ps(a.hi, b.hi, c.hi, d.hi)};
  return r;
}

static inline int vf_all_less(vf a, vf b) {
  __m256 not_lo = _mm256_cmp_ps(a.lo, b.lo, _CMP_NLT_UQ), not_hi = _mm256_cmp_ps(a.hi, b.hi, _CMP_NLT_UQ);
  return _mm256_movemask_ps(_mm256_or_ps(not_lo, not_hi)) == 0;
}

static inline vf vf_exponent(vf a) {
  vf r = {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.lo), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.hi), 23))};
  return r;
}

static inline vf vf_max_bits(vf a, vf b) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i lo = _mm256_and_si256(_mm256_castps_si256(b.lo), magnitude);
  __m256i hi = _mm256_and_si256(_mm256_castps_si256(b.hi), magnitude);
  vf r = {_mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a.lo), lo)),
          _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a.hi), hi))};
  return r;
}

static inline vf vf_max_magnitude(vf a, vf b) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  vf r = {_mm256_max_ps(_mm256_andnot_ps(sign, b.lo), a.lo), _mm256_max_ps(_mm256_andnot_ps(sign, b.hi), a.hi)};
  return r;
}

static inline float vf_most(vf a) {
  return vec_most8(_mm256_max_epu32(_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)));
}

/* rms_i8_from_f32 for each lane. */
static inline VEC_INLINE __m256i vf_i8_code(__m256 a, int within) {
  if (within) return _mm256_cvtps_epi32(a);
  __m256 number = _mm256_and_ps(a, _mm256_cmp_ps(a, a, _CMP_ORD_Q));
  return _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(number, _mm256_set1_ps(127)), _mm256_set1_ps(-127)));
}

/* Two halves of the elements as 16-bit numbers in order, or what packing them in order needs. */
static inline VEC_INLINE __m256i vf_join16(__m256i lo, __m256i hi, int eo) {
  return eo ? _mm256_blend_epi16(lo, _mm256_slli_epi32(hi, 16), 0xaa) : _mm256_packs_epi32(lo, hi);
}

/* The same of the upper halves, for their signs. */
static inline VEC_INLINE __m256i vf_join16_signs(vf a, int eo) {
  __m256i lo = _mm256_castps_si256(a.lo), hi = _mm256_castps_si256(a.hi);
  return eo ? _mm256_blend_epi16(_mm256_srli_epi32(lo, 16), hi, 0xaa) : _mm256_packs_epi32(lo, hi);
}

/* What rms_f8_from_f32 makes of each lane, but for the sign, in the last seven bits: those of the sum with `up`, and
 * the exponent moved to its place. What the exponent counts too much is added to `up` beforehand, an even number of
 * steps, so that no rounding changes. */
static inline VEC_INLINE __m256i vf_f8_magnitude(__m256 a, const rms_f8_format *to, int within) {
  const __m256i seven = _mm256_set1_epi32(0x7f);
  const int bias = (int)(-(to->normal >> to->shift) & 0xff);
  __m256 w = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
  if (!within) w = _mm256_min_ps(w, _mm256_set1_ps(to->largest)); /* of a NaN: the largest number */
  __m256i at_least = _mm256_max_epu32(_mm256_castps_si256(w), _mm256_set1_epi32((int)to->normal));
  __m256i exponent = _mm256_and_si256(at_least, _mm256_set1_epi32(0x7f800000));
  __m256i up = _mm256_add_epi32(exponent, _mm256_set1_epi32((to->shift << 23) + bias));
  __m256i sum = _mm256_castps_si256(_mm256_add_ps(w, _mm256_castsi256_ps(up)));
  __m256i code = _mm256_and_si256(_mm256_add_epi32(sum, _mm256_srli_epi32(exponent, to->shift)), seven);
  if (within) return code;
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(code, _mm256_set1_epi32((int)to->nan), nan);
}

/* A NaN has no sign. */
static inline VEC_INLINE vf vf_f8_signed(vf a, int within) {
  if (within) return a;
  vf r = {_mm256_and_ps(a.lo, _mm256_cmp_ps(a.lo, a.lo, _CMP_ORD_Q)),
          _mm256_and_ps(a.hi, _mm256_cmp_ps(a.hi, a.hi, _CMP_ORD_Q))};
  return r;
}

/* Of 32 elements, before their quarters are put in order. */
static inline VEC_INLINE __m256i vf_f8_codes(vf a, vf b, const rms_f8_format *to, int eo, int within) {
  __m256i first = vf_join16(vf_f8_magnitude(a.lo, to, within), vf_f8_magnitude(a.hi, to, within), eo);
  __m256i last = vf_join16(vf_f8_magnitude(b.lo, to, within), vf_f8_magnitude(b.hi, to, within), eo);
  __m256i signs = _mm256_packs_epi16(vf_join16_signs(vf_f8_signed(a, within), eo),
                                     vf_join16_signs(vf_f8_signed(b, within), eo)); /* saturating keeps them */
  return _mm256_or_si256(_mm256_packus_epi16(first, last), _mm256_and_si256(signs, _mm256_set1_epi8(-128)));
}

static inline VEC_INLINE __m256i vf_i8_codes(vf a, vf b, int eo, int within) {
  __m256i first = vf_join16(vf_i8_code(a.lo, within), vf_i8_code(a.hi, within), eo);
  __m256i last = vf_join16(vf_i8_code(b.lo, within), vf_i8_code(b.hi, within), eo);
  return _mm256_packs_epi16(first, last);
}

static inline VEC_INLINE void vf_store8_half(void *p, vf a, vf b, rms_dtype type, int eo, int within) {
  __m256i all = type == RMS_I8 ? vf_i8_codes(a, b, eo, within)
                               : vf_f8_codes(a, b, type == RMS_F8E4M3 ? &rms_e4m3 : &rms_e5m2, eo, within);
  __m256i in_order = eo ? _mm256_permute4x64_epi64(all, 0xd8)
                        : _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256((__m256i *)p, in_order);
}

static inline VEC_INLINE void vf_store8(void *p, void *more, vf a, vf b, vf c, vf d, rms_dtype type, int eo,
                                        int within) {
  vf_store8_half(p, a, b, type, eo, within);
  vf_store8_half(more, c, d, type, eo, within);
}

/* As f16, without what is beyond its digits. */
static inline VEC_INLINE __m256i vf_f16_cut(__m256 a, __m256 b) {
  enum { CUT = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm256_cvtps_ph(a, CUT)), _mm256_cvtps_ph(b, CUT), 1);
}

static inline VEC_INLINE __m256i vf_clear_code(__m256i f16, rms_dtype type) {
  const __m256i digits = _mm256_set1_epi16(vec_f8_digits(type));
  return _mm256_mulhrs_epi16(_mm256_and_si256(f16, _mm256_set1_epi16(0x7fff)), digits);
}

/* Even elements go to the lower bytes, odd ones to the upper ones. */
static inline VEC_INLINE void vf_store8_clear_half(void *p, vf a, vf b, rms_dtype type, int eo) {
  __m256i all;
  if (eo) {
    __m256i even = vf_f16_cut(a.lo, b.lo), odd = vf_f16_cut(a.hi, b.hi);
    __m256i codes = _mm256_or_si256(vf_clear_code(even, type), _mm256_slli_epi16(vf_clear_code(odd, type), 8));
    __m256i signs = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(even, 8), _mm256_set1_epi16(0x80)),
                                    _mm256_and_si256(odd, _mm256_set1_epi16((short)0x8000)));
    all = _mm256_or_si256(codes, signs);
  } else {
    __m256i first = vf_f16_cut(a.lo, a.hi), last = vf_f16_cut(b.lo, b.hi);
    __m256i codes = _mm256_packus_epi16(vf_clear_code(first, type), vf_clear_code(last, type));
    __m256i signs =
        _mm256_and_si256(_mm256_packs_epi16(first, last), _mm256_set1_epi8(-128)); /* saturating keeps them */
    all = _mm256_permute4x64_epi64(_mm256_or_si256(codes, signs), 0xd8);
  }
  _mm256_storeu_si256((__m256i *)p, all);
}

static inline VEC_INLINE void vf_store8_clear(void *p, void *more, vf a, vf b, vf c, vf d, rms_dtype type, int eo) {
  vf_store8_clear_half(p, a, b, type, eo);
  vf_store8_clear_half(more, c, d, type, eo);
}

/* The larger lanes of the halves of a vector, against the same of another, so that their lanes alternate. */
static inline __m256i vf_most_of_pair(vf a, vf b) {
  __m256i first = _mm256_max_epu32(_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi));
  __m256i second = _mm256_max_epu32(_mm256_castps_si256(b.lo), _mm256_castps_si256(b.hi));
  return _mm256_max_epu32(_mm256_unpacklo_epi32(first, second), _mm256_unpackhi_epi32(first, second));
}

static inline __m256i vf_most_of_four(const vf *v) {
  __m256i a = vf_most_of_pair(v[0], v[1]), b = vf_most_of_pair(v[2], v[3]);
  return _mm256_max_epu32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

static inline __m256 vf_most_of_eight(const vf *v) {
  __m256i a = vf_most_of_four(v), b = vf_most_of_four(v + 4);
  return _mm256_castsi256_ps(
      _mm256_max_epu32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31)));
}

static inline vf vf_most16(const vf *v) {
  vf r = {vf_most_of_eight(v), vf_most_of_eight(v + 8)};
  return r;
}

static inline __m128 vf_half_sum(__m256 a) {
  return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
}

static inline float vf_sum4(vf a, vf b, vf c, vf d, int eo) {
  vf s = vf_add(vf_add(a, c), vf_add(b, d));
  if (eo) {
    __m128 even = vf_half_sum(s.lo), odd = vf_half_sum(s.hi);
    __m128 both = _mm_add_ps(_mm_movelh_ps(even, odd), _mm_movehl_ps(odd, even)); /* e0+e2 e1+e3 o0+o2 o1+o3 */
    both = _mm_add_ps(both, _mm_movehdup_ps(both));
    return _mm_cvtss_f32(_mm_add_ss(both, _mm_movehl_ps(both, both)));
  }
  __m128 quad = vf_half_sum(_mm256_add_ps(s.lo, s.hi));
  __m128 pair = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

static inline void vf_sum8(float *sums, const vf *v, int eo) {
  __m256 all;
  if (eo)
    all = _mm256_add_ps(vec_sum8x8(v[0].lo, v[1].lo, v[2].lo, v[3].lo, v[4].lo, v[5].lo, v[6].lo, v[7].lo),
                        vec_sum8x8(v[0].hi, v[1].hi, v[2].hi, v[3].hi, v[4].hi, v[5].hi, v[6].hi, v[7].hi));
  else
    all = vec_sum8x8(_mm256_add_ps(v[0].lo, v[0].hi), _mm256_add_ps(v[1].lo, v[1].hi), _mm256_add_ps(v[2].lo, v[2].hi),
                     _mm256_add_ps(v[3].lo, v[3].hi), _mm256_add_ps(v[4].lo, v[4].hi), _mm256_add_ps(v[5].lo, v[5].hi),
                     _mm256_add_ps(v[6].lo, v[6].hi), _mm256_add_ps(v[7].lo, v[7].hi));
  _mm256_storeu_ps(sums, all);
}

static inline vd vd_set(double f) {
  vd r = {_mm256_set1_pd(f), _mm256_set1_pd(f)};
  return r;
}

static inline vd vd_load(const void *p, rms_dtype type, int eo) {
  (void)eo;
  if (type == RMS_F64) {
    vd r = {_mm256_loadu_pd((const double *)p), _mm256_loadu_pd((const double *)p + 4)};
    return r;
  }
  vd r = {_mm256_cvtps_pd(_mm_loadu_ps((const float *)p)), _mm256_cvtps_pd(_mm_loadu_ps((const float *)p + 4))};
  return r;
}

static inline __m256i vd_mask4(int n) {
  return _mm256_cvtepi32_epi64(_mm256_castsi256_si128(vf_mask8(n)));
}

static inline __m256i vd_mask4_from(int n) {
  return _mm256_cvtepi32_epi64(_mm256_castsi256_si128(vf_mask8_from(n)));
}

static inline vd vd_load_from(const void *p, int n) {
  vd r = {n < 4 ? _mm256_maskload_pd((const double *)p, vd_mask4_from(n)) : _mm256_setzero_pd(),
          _mm256_maskload_pd((const double *)p + 4, vd_mask4_from(n - 4))};
  return r;
}

static inline vd vd_load_n(const void *p, int n, rms_dtype type, int eo) {
  (void)eo;
  if (type == RMS_F64) {
    vd r = {_mm256_maskload_pd((const double *)p, vd_mask4(n)),
            n > 4 ? _mm256_maskload_pd((const double *)p + 4, vd_mask4(n - 4)) : _mm256_setzero_pd()};
    return r;
  }
  __m256 f = _mm256_maskload_ps((const float *)p, vf_mask8(n));
  vd r = {_mm256_cvtps_pd(_mm256_castps256_ps128(f)), _mm256_cvtps_pd(_mm256_extractf128_ps(f, 1))};
  return r;
}

static inline void vd_store(void *p, vd a, rms_dtype type, int eo) {
  (void)type;
  (void)eo;
  _mm256_storeu_pd((double *)p, a.lo);
  _mm256_storeu_pd((double *)p + 4, a.hi);
}

static inline void vd_stream(void *p, vd a, rms_dtype type, int eo) {
  (void)type;
  (void)eo;
  _mm256_stream_pd((double *)p, a.lo);
  vec_in_order();
  _mm256_stream_pd((double *)p + 4, a.hi);
  vec_in_order();
}

static inline void vd_store_n(void *p, vd a, int n, rms_dtype type, int eo) {
  (void)type;
  (void)eo;
  _mm256_maskstore_pd((double *)p, vd_mask4(n), a.lo);
  if (n > 4) _mm256_maskstore_pd((double *)p + 4, vd_mask4(n - 4), a.hi);
}

static inline vd vd_first(vd a, int n, int eo) {
  (void)eo;
  a.lo = _mm256_and_pd(a.lo, _mm256_castsi256_pd(vd_mask4(n)));
  a.hi = _mm256_and_pd(a.hi, _mm256_castsi256_pd(vd_mask4(n - 4)));
  return a;
}

static inline vd vd_join(vd a, vd b, int n) {
  vd r = {_mm256_blendv_pd(b.lo, a.lo, _mm256_castsi256_pd(vd_mask4(n))),
          _mm256_blendv_pd(b.hi, a.hi, _mm256_castsi256_pd(vd_mask4(n - 4)))};
  return r;
}

static inline vd vd_add(vd a, vd b) {
  vd r = {_mm256_add_pd(a.lo, b.lo), _mm256_add_pd(a.hi, b.hi)};
  return r;
}

static inline vd vd_sub(vd a, vd b) {
  vd r = {_mm256_sub_pd(a.lo, b.lo), _mm256_sub_pd(a.hi, b.hi)};
  return r;
}

/* b's magnitude is no negative number of 64 bits, and neither is a. */
static inline __m256d vec_max_bits_pd(__m256d a, __m256d b) {
  b = _mm256_andnot_pd(_mm256_set1_pd(-0.0), b);
  __m256i larger = _mm256_cmpgt_epi64(_mm256_castpd_si256(b), _mm256_castpd_si256(a));
  return _mm256_blendv_pd(a, b, _mm256_castsi256_pd(larger));
}

static inline vd vd_max_bits(vd a, vd b) {
  vd r = {vec_max_bits_pd(a.lo, b.lo), vec_max_bits_pd(a.hi, b.hi)};
  return r;
}

static inline vd vd_mul(vd a, vd b) {
  vd r = {_mm256_mul_pd(a.lo, b.lo), _mm256_mul_pd(a.hi, b.hi)};
  return r;
}

static inline vd vd_fma(vd a, vd b, vd c) {
  vd r = {_mm256_fmadd_pd(a.lo, b.lo, c.lo), _mm256_fmadd_pd(a.hi, b.hi, c.hi)};
  return r;
}

static inline vd vd_div(vd a, vd b) {
  vd r = {_mm256_div_pd(a.lo, b.lo), _mm256_div_pd(a.hi, b.hi)};
  return r;
}

static inline vd vd_max(vd a, vd b) {
  vd r = {_mm256_max_pd(a.lo, b.lo), _mm256_max_pd(a.hi, b.hi)};
  return r;
}

static inline vd vd_min(vd a, vd b) {
  vd r = {_mm256_min_pd(a.lo, b.lo), _mm256_min_pd(a.hi, b.hi)};
  return r;
}

static inline __m256d vec_if_less_pd(__m256d a, __m256d b, __m256d c, __m256d d) {
#ifdef VEC_MASKS
  return _mm256_mask_blend_pd(_mm256_cmp_pd_mask(a, b, _CMP_LT_OQ), d, c);
#else
  __m256 mask = _mm256_castpd_ps(_mm256_cmp_pd(a, b, _CMP_LT_OQ));
  return _mm256_castps_pd(vec_blend_ps(mask, _mm256_castpd_ps(c), _mm256_castpd_ps(d)));
#endif
}

static inline vd vd_if_less(vd a, vd b, vd c, vd d) {
  vd r = {vec_if_less_pd(a.lo, b.lo, c.lo, d.lo), vec_if_less_pd(a.hi, b.hi, c.hi, d.hi)};
  return r;
}

static inline int vd_all_less(vd a, vd b) {
  __m256d not_lo = _mm256_cmp_pd(a.lo, b.lo, _CMP_NLT_UQ), not_hi = _mm256_cmp_pd(a.hi, b.hi, _CMP_NLT_UQ);
  return _mm256_movemask_pd(_mm256_or_pd(not_lo, not_hi)) == 0;
}

static inline vd vd_exponent(vd a) {
  vd r = {_mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(a.lo), 52)),
          _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(a.hi), 52))};
  return r;
}

static inline double vd_sum(vd s) {
  return vec_sum4_f64(_mm256_add_pd(s.lo, s.hi));
}

#include "same.h"

#endif
