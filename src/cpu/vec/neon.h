/* SPDX-License-Identifier: MIT
 *
 * The virtual vector on AArch64 Advanced SIMD: four 128-bit registers. Contract: vec/README.md. Lanes are always in
 * order. There are no non-temporal vector stores worth using here: stream is a plain store. */
#ifndef RMS_VEC_NEON_H
#define RMS_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>
#include "../../../include/rmsnorm.h"
#include "../convert.h"

typedef struct {
  float32x4_t q0, q1, q2, q3;
} vf;
typedef struct {
  float64x2_t q0, q1, q2, q3;
} vd;

#define VEC_REGISTERS    8 /* vectors that fit in the registers */
#define VEC_SQUARE       16
#define VEC_SQUARE_16BIT 16
#define VEC_INLINE       __attribute__((always_inline)) /* of the kernels */

static inline int vf_lane(int element, int eo) {
  (void)eo;
  return element;
}

static inline vf vf_set(float f) {
  float32x4_t q = vdupq_n_f32(f);
  vf r = {q, q, q, q};
  return r;
}

static inline float32x4_t vf_widen4(uint16x4_t h, rms_dtype type) {
  if (type == RMS_F16) return vcvt_f32_f16(vreinterpret_f16_u16(h));
  return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(h), 16));
}

static inline uint16x4_t vf_narrow4(float32x4_t a, rms_dtype type) {
  if (type == RMS_F16) return vreinterpret_u16_f16(vcvt_f16_f32(a));
  uint32x4_t u = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
  uint32x4_t rounded = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  uint32x4_t number = vceqq_f32(a, a), quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(number, rounded, quiet), 16);
}

static inline vf vf_from_bits16(uint16x8_t lo, uint16x8_t hi, rms_dtype type) {
  vf r = {vf_widen4(vget_low_u16(lo), type), vf_widen4(vget_high_u16(lo), type), vf_widen4(vget_low_u16(hi), type),
          vf_widen4(vget_high_u16(hi), type)};
  return r;
}

static inline vf vf_load(const void *p, rms_dtype type, int eo) {
  (void)eo;
  if (type == RMS_F32) {
    const char *b = p; /* byte loads: any alignment */
    vf r = {vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)b)), vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)b + 16)),
            vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)b + 32)),
            vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)b + 48))};
    return r;
  }
  const uint8_t *h = p;
  return vf_from_bits16(vreinterpretq_u16_u8(vld1q_u8(h)), vreinterpretq_u16_u8(vld1q_u8(h + 16)), type);
}

static inline void vf_store(void *p, vf a, rms_dtype type, int eo) {
  uint8_t *b = p;
  (void)eo;
  if (type == RMS_F32) {
    vst1q_u8(b, vreinterpretq_u8_f32(a.q0));
    vst1q_u8(b + 16, vreinterpretq_u8_f32(a.q1));
    vst1q_u8(b + 32, vreinterpretq_u8_f32(a.q2));
    vst1q_u8(b + 48, vreinterpretq_u8_f32(a.q3));
  } else {
    vst1q_u8(b, vreinterpretq_u8_u16(vcombine_u16(vf_narrow4(a.q0, type), vf_narrow4(a.q1, type))));
    vst1q_u8(b + 16, vreinterpretq_u8_u16(vcombine_u16(vf_narrow4(a.q2, type), vf_narrow4(a.q3, type))));
  }
}

static inline void vf_stream(void *p, vf a, rms_dtype type, int eo) {
  vf_store(p, a, type, eo);
}

/* The tail goes through a buffer: it is read or written once a row. */
static inline vf vf_load_n(const void *p, int n, rms_dtype type, int eo) {
  char bytes[64] = {0};
  memcpy(bytes, p, (size_t)n * (type == RMS_F32 ? 4 : 2));
  return vf_load(bytes, type, eo);
}

static inline void vf_store_n(void *p, vf a, int n, rms_dtype type, int eo) {
  char bytes[64];
  vf_store(bytes, a, type, eo);
  memcpy(p, bytes, (size_t)n * (type == RMS_F32 ? 4 : 2));
}

static inline void vf_store_clean(void *p, vf a, rms_dtype type, int eo, int stream) {
  if (stream)
    vf_stream(p, a, type, eo);
  else
    vf_store(p, a, type, eo);
}

static inline vf vf_round(vf a, rms_dtype type) {
  if (type == RMS_F32) return a;
  vf r = {vf_widen4(vf_narrow4(a.q0, type), type), vf_widen4(vf_narrow4(a.q1, type), type),
          vf_widen4(vf_narrow4(a.q2, type), type), vf_widen4(vf_narrow4(a.q3, type), type)};
  return r;
}

static inline vf vf_round_clean(vf a, rms_dtype type) {
  return vf_round(a, type);
}

static inline vf vf_first(vf a, int n, int eo) {
  char bytes[64];
  vf_store(bytes, a, RMS_F32, eo);
  return vf_load_n(bytes, n, RMS_F32, eo);
}

static inline vf vf_join(vf a, vf b, int n) {
  float first[16], last[16];
  vf_store(first, a, RMS_F32, 0);
  vf_store(last, b, RMS_F32, 0);
  memcpy(last, first, (size_t)n * sizeof *last);
  return vf_load(last, RMS_F32, 0);
}

static inline vf vf_load_from(const void *p, int n) {
  float lane[16] = {0};
  memcpy(lane + n, (const char *)p + n * (int)sizeof *lane, (size_t)(16 - n) * sizeof *lane);
  return vf_load(lane, RMS_F32, 0);
}

static inline vf vf_add(vf a, vf b) {
  vf r = {vaddq_f32(a.q0, b.q0), vaddq_f32(a.q1, b.q1), vaddq_f32(a.q2, b.q2), vaddq_f32(a.q3, b.q3)};
  return r;
}

static inline vf vf_sub(vf a, vf b) {
  vf r = {vsubq_f32(a.q0, b.q0), vsubq_f32(a.q1, b.q1), vsubq_f32(a.q2, b.q2), vsubq_f32(a.q3, b.q3)};
  return r;
}

static inline vf vf_mul(vf a, vf b) {
  vf r = {vmulq_f32(a.q0, b.q0), vmulq_f32(a.q1, b.q1), vmulq_f32(a.q2, b.q2), vmulq_f32(a.q3, b.q3)};
  return r;
}

static inline vf vf_fma(vf a, vf b, vf c) {
  vf r = {vfmaq_f32(c.q0, a.q0, b.q0), vfmaq_f32(c.q1, a.q1, b.q1), vfmaq_f32(c.q2, a.q2, b.q2),
          vfmaq_f32(c.q3, a.q3, b.q3)};
  return r;
}

static inline vf vf_div(vf a, vf b) {
  vf r = {vdivq_f32(a.q0, b.q0), vdivq_f32(a.q1, b.q1), vdivq_f32(a.q2, b.q2), vdivq_f32(a.q3, b.q3)};
  return r;
}

static inline float32x4_t vf_if_less_q(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
  return vbslq_f32(vcltq_f32(a, b), c, d);
}

static inline vf vf_if_less(vf a, vf b, vf c, vf d) {
  vf r = {vf_if_less_q(a.q0, b.q0, c.q0, d.q0), vf_if_less_q(a.q1, b.q1, c.q1, d.q1),
          vf_if_less_q(a.q2, b.q2, c.q2, d.q2), vf_if_less_q(a.q3, b.q3, c.q3, d.q3)};
  return r;
}

static inline vf vf_max(vf a, vf b) {
  return vf_if_less(b, a, a, b);
}

static inline vf vf_min(vf a, vf b) {
  return vf_if_less(a, b, a, b);
}

static inline float32x4_t vf_exponent_q(float32x4_t a) {
  return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(a), 23));
}

static inline int vf_all_less(vf a, vf b) {
  uint32x4_t low = vandq_u32(vcltq_f32(a.q0, b.q0), vcltq_f32(a.q1, b.q1));
  uint32x4_t high = vandq_u32(vcltq_f32(a.q2, b.q2), vcltq_f32(a.q3, b.q3));
  return vminvq_u32(vandq_u32(low, high)) != 0;
}

static inline vf vf_exponent(vf a) {
  vf r = {vf_exponent_q(a.q0), vf_exponent_q(a.q1), vf_exponent_q(a.q2), vf_exponent_q(a.q3)};
  return r;
}

static inline float32x4_t vf_max_bits_q(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(vabsq_f32(b))));
}

static inline vf vf_max_bits(vf a, vf b) {
  vf r = {vf_max_bits_q(a.q0, b.q0), vf_max_bits_q(a.q1, b.q1), vf_max_bits_q(a.q2, b.q2), vf_max_bits_q(a.q3, b.q3)};
  return r;
}

static inline vf vf_max_magnitude(vf a, vf b) {
  return vf_max_bits(a, b);
}

static inline float vf_most(vf a) {
  uint32x4_t low = vmaxq_u32(vreinterpretq_u32_f32(a.q0), vreinterpretq_u32_f32(a.q1));
  uint32x4_t high = vmaxq_u32(vreinterpretq_u32_f32(a.q2), vreinterpretq_u32_f32(a.q3));
  return rms_f32_from_bits(vmaxvq_u32(vmaxq_u32(low, high)));
}

static inline VEC_INLINE uint16x4_t vf_i8_code_q(float32x4_t a) {
  const float32x4_t most = vdupq_n_f32(127), least = vdupq_n_f32(-127);
  a = vf_if_less_q(most, a, most, vf_if_less_q(a, least, least, a));
  return vmovn_u32(vreinterpretq_u32_s32(vcvtnq_s32_f32(a))); /* of a NaN: 0 */
}

/* rms_f8_from_f32 for each lane. */
static inline VEC_INLINE uint16x4_t vf_f8_code_q(float32x4_t a, const rms_f8_format *to) {
  const float32x4_t most = vdupq_n_f32(to->largest);
  const uint32x4_t normal = vdupq_n_u32(to->normal);
  float32x4_t w = vabsq_f32(a);
  w = vf_if_less_q(most, w, most, w);
  uint32x4_t exponent = vandq_u32(vmaxq_u32(vreinterpretq_u32_f32(w), normal), vdupq_n_u32(0x7f800000));
  uint32x4_t up = vaddq_u32(exponent, vdupq_n_u32((uint32_t)to->shift << 23));
  uint32x4_t steps = vsubq_u32(vreinterpretq_u32_f32(vaddq_f32(w, vreinterpretq_f32_u32(up))), up);
  uint32x4_t code = vaddq_u32(steps, vshlq_u32(vsubq_u32(exponent, normal), vdupq_n_s32(-to->shift)));
  uint32x4_t sign = vandq_u32(vshrq_n_u32(vreinterpretq_u32_f32(a), 24), vdupq_n_u32(0x80)), number = vceqq_f32(a, a);
  return vmovn_u32(vbslq_u32(number, vorrq_u32(code, sign), vdupq_n_u32(to->nan)));
}

static inline VEC_INLINE uint16x4_t vf_code8_q(float32x4_t a, rms_dtype type) {
  return type == RMS_I8 ? vf_i8_code_q(a) : vf_f8_code_q(a, type == RMS_F8E4M3 ? &rms_e4m3 : &rms_e5m2);
}

static inline VEC_INLINE uint8x16_t vf_code8(vf a, rms_dtype type) {
  uint16x8_t low = vcombine_u16(vf_code8_q(a.q0, type), vf_code8_q(a.q1, type));
  uint16x8_t high = vcombine_u16(vf_code8_q(a.q2, type), vf_code8_q(a.q3, type));
  return vcombine_u8(vmovn_u16(low), vmovn_u16(high));
}

static inline VEC_INLINE void vf_store8(void *p, void *more, vf a, vf b, vf c, vf d, rms_dtype type, int eo,
                                        int within) {
  (void)eo;
  (void)within;
  vst1q_u8((uint8_t *)p, vf_code8(a, type));
  vst1q_u8((uint8_t *)p + 16, vf_code8(b, type));
  vst1q_u8((uint8_t *)more, vf_code8(c, type));
  vst1q_u8((uint8_t *)more + 16, vf_code8(d, type));
}

static inline VEC_INLINE void vf_store8_clear(void *p, void *more, vf a, vf b, vf c, vf d, rms_dtype type, int eo) {
  const vf up = vf_set(type == RMS_F8E4M3 ? 256 : 1);
  vf_store8(p, more, vf_mul(a, up), vf_mul(b, up), vf_mul(c, up), vf_mul(d, up), type, eo, 1);
}

static inline vf vf_most16(const vf *v) {
  float most[16];
  for (int i = 0; i < 16; i++)
    most[i] = vf_most(v[i]);
  return vf_load(most, RMS_F32, 0);
}

static inline float vf_sum(vf s) {
  float32x4_t quad = vaddq_f32(vaddq_f32(s.q0, s.q2), vaddq_f32(s.q1, s.q3));
  float32x2_t pair = vadd_f32(vget_low_f32(quad), vget_high_f32(quad));
  return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}

static inline float vf_sum4(vf a, vf b, vf c, vf d, int eo) {
  (void)eo;
  return vf_sum(vf_add(vf_add(a, c), vf_add(b, d)));
}

static inline void vf_sum8(float *sums, const vf *v, int eo) {
  (void)eo;
  for (int i = 0; i < 8; i++)
    sums[i] = vf_sum(v[i]);
}

static inline vd vd_set(double f) {
  float64x2_t q = vdupq_n_f64(f);
  vd r = {q, q, q, q};
  return r;
}

static inline vd vd_load(const void *p, rms_dtype type, int eo) {
  const uint8_t *b = p;
  (void)eo;
  if (type == RMS_F64) {
    vd r = {vreinterpretq_f64_u8(vld1q_u8(b)), vreinterpretq_f64_u8(vld1q_u8(b + 16)),
            vreinterpretq_f64_u8(vld1q_u8(b + 32)), vreinterpretq_f64_u8(vld1q_u8(b + 48))};
    return r;
  }
  float32x4_t lo = vreinterpretq_f32_u8(vld1q_u8(b)), hi = vreinterpretq_f32_u8(vld1q_u8(b + 16));
  vd r = {vcvt_f64_f32(vget_low_f32(lo)), vcvt_high_f64_f32(lo), vcvt_f64_f32(vget_low_f32(hi)), vcvt_high_f64_f32(hi)};
  return r;
}

static inline void vd_store(void *p, vd a, rms_dtype type, int eo) {
  uint8_t *b = p;
  (void)type;
  (void)eo;
  vst1q_u8(b, vreinterpretq_u8_f64(a.q0));
  vst1q_u8(b + 16, vreinterpretq_u8_f64(a.q1));
  vst1q_u8(b + 32, vreinterpretq_u8_f64(a.q2));
  vst1q_u8(b + 48, vreinterpretq_u8_f64(a.q3));
}

static inline void vd_stream(void *p, vd a, rms_dtype type, int eo) {
  vd_store(p, a, type, eo);
}

static inline vd vd_load_n(const void *p, int n, rms_dtype type, int eo) {
  char bytes[64] = {0};
  memcpy(bytes, p, (size_t)n * (type == RMS_F64 ? 8 : 4));
  return vd_load(bytes, type, eo);
}

static inline void vd_store_n(void *p, vd a, int n, rms_dtype type, int eo) {
  char bytes[64];
  vd_store(bytes, a, type, eo);
  memcpy(p, bytes, (size_t)n * 8);
}

static inline vd vd_first(vd a, int n, int eo) {
  char bytes[64];
  vd_store(bytes, a, RMS_F64, eo);
  return vd_load_n(bytes, n, RMS_F64, eo);
}

static inline vd vd_join(vd a, vd b, int n) {
  double first[8], last[8];
  vd_store(first, a, RMS_F64, 0);
  vd_store(last, b, RMS_F64, 0);
  memcpy(last, first, (size_t)n * sizeof *last);
  return vd_load(last, RMS_F64, 0);
}

static inline vd vd_load_from(const void *p, int n) {
  double lane[8] = {0};
  memcpy(lane + n, (const char *)p + n * (int)sizeof *lane, (size_t)(8 - n) * sizeof *lane);
  return vd_load(lane, RMS_F64, 0);
}

static inline vd vd_add(vd a, vd b) {
  vd r = {vaddq_f64(a.q0, b.q0), vaddq_f64(a.q1, b.q1), vaddq_f64(a.q2, b.q2), vaddq_f64(a.q3, b.q3)};
  return r;
}

static inline vd vd_sub(vd a, vd b) {
  vd r = {vsubq_f64(a.q0, b.q0), vsubq_f64(a.q1, b.q1), vsubq_f64(a.q2, b.q2), vsubq_f64(a.q3, b.q3)};
  return r;
}

static inline float64x2_t vd_max_bits_q(float64x2_t a, float64x2_t b) {
  b = vabsq_f64(b);
  return vbslq_f64(vcgtq_u64(vreinterpretq_u64_f64(b), vreinterpretq_u64_f64(a)), b, a);
}

static inline vd vd_max_bits(vd a, vd b) {
  vd r = {vd_max_bits_q(a.q0, b.q0), vd_max_bits_q(a.q1, b.q1), vd_max_bits_q(a.q2, b.q2), vd_max_bits_q(a.q3, b.q3)};
  return r;
}

static inline vd vd_mul(vd a, vd b) {
  vd r = {vmulq_f64(a.q0, b.q0), vmulq_f64(a.q1, b.q1), vmulq_f64(a.q2, b.q2), vmulq_f64(a.q3, b.q3)};
  return r;
}

static inline vd vd_fma(vd a, vd b, vd c) {
  vd r = {vfmaq_f64(c.q0, a.q0, b.q0), vfmaq_f64(c.q1, a.q1, b.q1), vfmaq_f64(c.q2, a.q2, b.q2),
          vfmaq_f64(c.q3, a.q3, b.q3)};
  return r;
}

static inline vd vd_div(vd a, vd b) {
  vd r = {vdivq_f64(a.q0, b.q0), vdivq_f64(a.q1, b.q1), vdivq_f64(a.q2, b.q2), vdivq_f64(a.q3, b.q3)};
  return r;
}

static inline float64x2_t vd_if_less_q(float64x2_t a, float64x2_t b, float64x2_t c, float64x2_t d) {
  return vbslq_f64(vcltq_f64(a, b), c, d);
}

static inline vd vd_if_less(vd a, vd b, vd c, vd d) {
  vd r = {vd_if_less_q(a.q0, b.q0, c.q0, d.q0), vd_if_less_q(a.q1, b.q1, c.q1, d.q1),
          vd_if_less_q(a.q2, b.q2, c.q2, d.q2), vd_if_less_q(a.q3, b.q3, c.q3, d.q3)};
  return r;
}

static inline vd vd_max(vd a, vd b) {
  return vd_if_less(b, a, a, b);
}

static inline vd vd_min(vd a, vd b) {
  return vd_if_less(a, b, a, b);
}

static inline float64x2_t vd_exponent_q(float64x2_t a) {
  return vreinterpretq_f64_u64(vshlq_n_u64(vreinterpretq_u64_f64(a), 52));
}

static inline int vd_all_less(vd a, vd b) {
  uint64x2_t low = vandq_u64(vcltq_f64(a.q0, b.q0), vcltq_f64(a.q1, b.q1));
  uint64x2_t high = vandq_u64(vcltq_f64(a.q2, b.q2), vcltq_f64(a.q3, b.q3));
  return vminvq_u32(vreinterpretq_u32_u64(vandq_u64(low, high))) != 0;
}

static inline vd vd_exponent(vd a) {
  vd r = {vd_exponent_q(a.q0), vd_exponent_q(a.q1), vd_exponent_q(a.q2), vd_exponent_q(a.q3)};
  return r;
}

static inline double vd_sum(vd s) {
  float64x2_t pair = vaddq_f64(vaddq_f64(s.q0, s.q2), vaddq_f64(s.q1, s.q3));
  return vgetq_lane_f64(pair, 0) + vgetq_lane_f64(pair, 1);
}

#include "same.h"

static inline __attribute__((always_inline)) void vec_prefetch(const void *p) {
  __builtin_prefetch(p);
}

static inline __attribute__((always_inline)) void vec_prefetch_near(const void *p) {
  __builtin_prefetch(p);
}

static inline unsigned vec_most16(const char *p, int64_t n) {
  const uint16x8_t magnitude = vdupq_n_u16(0x7fff);
  uint16x8_t most = vdupq_n_u16(0);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    most = vmaxq_u16(most, vandq_u16(vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)p + 2 * i)), magnitude));
  unsigned last = vmaxvq_u16(most);
  for (; i < n; i++) {
    uint16_t half;
    memcpy(&half, p + 2 * i, 2);
    if ((half & 0x7fffu) > last) last = half & 0x7fffu;
  }
  return last;
}

static inline void vec_copy_stream(char *to, const char *from, int64_t bytes) {
  memcpy(to, from, (size_t)bytes);
}

static inline void vec_stream_part(char *to, const void *from, int bytes) {
  memcpy(to, from, (size_t)bytes);
}

static inline void vec_stream_fence(void) {}

#endif
