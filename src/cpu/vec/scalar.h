/* SPDX-License-Identifier: MIT
 *
 * The virtual vector in plain C: 16 f32 lanes (vf) or 8 f64 lanes (vd). See vec/README.md for the contract that this
 * header and its siblings share; this one is the definition, the others must match it bit for bit. */
#ifndef RMS_VEC_SCALAR_H
#define RMS_VEC_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include "../../../include/rmsnorm.h"
#include "../convert.h"
#include "../exact.h"

/* Real functions: unrolled into every kernel they would make a megabyte of code. */
#define VEC_CALL __attribute__((noinline, unused))

#define VEC_HIGH_WORD (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) /* where a double's sign and exponent are */

typedef struct {
  float v[16];
} vf;
typedef struct {
  double v[8];
} vd;

#define VEC_REGISTERS 8 /* vectors that fit in the registers */
#define VEC_INLINE      /* of the kernels: operations are calls here, so that the compiler may choose */

/* Bytes of the registers in which squares of elements are turned over; those of 16-bit elements. */
#define VEC_SQUARE       16
#define VEC_SQUARE_16BIT 16

static inline int vf_lane(int element, int eo) {
  (void)eo;
  return element;
}

static VEC_CALL vf vf_set(float f) {
  vf r;
  for (int i = 0; i < 16; i++)
    r.v[i] = f;
  return r;
}

static inline float vf_widen(const char *p, rms_dtype type) {
  uint16_t h;
  float f;
  if (type == RMS_F32) {
    memcpy(&f, p, 4);
    return f;
  }
  memcpy(&h, p, 2);
  return type == RMS_BF16 ? rms_f32_from_bf16(h) : rms_f32_from_f16(h);
}

static inline void vf_narrow(char *p, float f, rms_dtype type) {
  if (type == RMS_F32) {
    memcpy(p, &f, 4);
    return;
  }
  uint16_t h = type == RMS_BF16 ? rms_bf16_from_f32(f) : rms_f16_from_f32(f);
  memcpy(p, &h, 2);
}

static VEC_CALL vf vf_load_n(const void *p, int n, rms_dtype type, int eo) {
  vf r = {{0}};
  int size = type == RMS_F32 ? 4 : 2;
  (void)eo;
  for (int i = 0; i < n; i++)
    r.v[i] = vf_widen((const char *)p + i * size, type);
  return r;
}

static inline vf vf_load(const void *p, rms_dtype type, int eo) {
  vf r;
  if (type != RMS_F32) return vf_load_n(p, 16, type, eo);
  memcpy(&r, p, sizeof r);
  return r;
}

static VEC_CALL void vf_store_n(void *p, vf a, int n, rms_dtype type, int eo) {
  int size = type == RMS_F32 ? 4 : 2;
  (void)eo;
  for (int i = 0; i < n; i++)
    vf_narrow((char *)p + i * size, a.v[i], type);
}

static inline void vf_store(void *p, vf a, rms_dtype type, int eo) {
  if (type == RMS_F32)
    memcpy(p, &a, sizeof a);
  else
    vf_store_n(p, a, 16, type, eo);
}

static inline void vf_stream(void *p, vf a, rms_dtype type, int eo) {
  vf_store(p, a, type, eo);
}

static inline void vf_store_clean(void *p, vf a, rms_dtype type, int eo, int stream) {
  if (stream)
    vf_stream(p, a, type, eo);
  else
    vf_store(p, a, type, eo);
}

static VEC_CALL vf vf_round(vf a, rms_dtype type) {
  char narrow[4];
  for (int i = 0; i < 16; i++) {
    vf_narrow(narrow, a.v[i], type);
    a.v[i] = vf_widen(narrow, type);
  }
  return a;
}

static VEC_CALL vf vf_round_clean(vf a, rms_dtype type) {
  return vf_round(a, type);
}

static VEC_CALL vf vf_first(vf a, int n, int eo) {
  (void)eo;
  for (int i = n; i < 16; i++)
    a.v[i] = 0.0f;
  return a;
}

static VEC_CALL vf vf_join(vf a, vf b, int n) {
  for (int i = n; i < 16; i++)
    a.v[i] = b.v[i];
  return a;
}

static VEC_CALL vf vf_load_from(const void *p, int n) {
  vf r = {{0}};
  memcpy(r.v + n, (const char *)p + n * (int)sizeof *r.v, (size_t)(16 - n) * sizeof *r.v);
  return r;
}

static VEC_CALL vf vf_add(vf a, vf b) {
  for (int i = 0; i < 16; i++)
    a.v[i] += b.v[i];
  return a;
}

static VEC_CALL vf vf_sub(vf a, vf b) {
  for (int i = 0; i < 16; i++)
    a.v[i] -= b.v[i];
  return a;
}

static VEC_CALL vf vf_mul(vf a, vf b) {
  for (int i = 0; i < 16; i++)
    a.v[i] *= b.v[i];
  return a;
}

/* fmaf for each lane, exactly. The product is exact in f64; the sum, rounded there and again to f32, is that of fmaf
 * unless it falls on the middle between two f32 numbers, or below the normal ones where that middle lies elsewhere:
 * only then is fmaf called. */
static VEC_CALL vf vf_fma(vf a, vf b, vf c) {
  vf r;
  double sum[16];
  uint32_t words[32], unsure = 0;
  for (int i = 0; i < 16; i++)
    sum[i] = (double)a.v[i] * (double)b.v[i] + (double)c.v[i];
  for (int i = 0; i < 16; i++)
    r.v[i] = (float)sum[i];
  memcpy(words, sum, sizeof words);
  for (int i = 0; i < 16; i++) {
    uint32_t high = words[2 * i + VEC_HIGH_WORD] & 0x7fffffff, low = words[2 * i + 1 - VEC_HIGH_WORD];
    unsure |= (low & 0x1fffffff) == 0x10000000;
    unsure |= high - 1 < 0x38200000 - 1; /* below 2^-125, but not 0 */
  }
  if (unsure)
    for (int i = 0; i < 16; i++)
      r.v[i] = rms_fmaf(a.v[i], b.v[i], c.v[i]);
  return r;
}

static VEC_CALL vf vf_div(vf a, vf b) {
  for (int i = 0; i < 16; i++)
    a.v[i] /= b.v[i];
  return a;
}

static VEC_CALL vf vf_max(vf a, vf b) {
  for (int i = 0; i < 16; i++)
    a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}

static VEC_CALL vf vf_min(vf a, vf b) {
  for (int i = 0; i < 16; i++)
    a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}

static VEC_CALL vf vf_if_less(vf a, vf b, vf c, vf d) {
  for (int i = 0; i < 16; i++)
    a.v[i] = a.v[i] < b.v[i] ? c.v[i] : d.v[i];
  return a;
}

static VEC_CALL int vf_all_less(vf a, vf b) {
  int all = 1;
  for (int i = 0; i < 16; i++)
    all &= a.v[i] < b.v[i];
  return all;
}

static VEC_CALL vf vf_exponent(vf a) {
  for (int i = 0; i < 16; i++)
    a.v[i] = rms_f32_from_bits(rms_bits_f32(a.v[i]) << 23);
  return a;
}

static VEC_CALL vf vf_max_bits(vf a, vf b) {
  for (int i = 0; i < 16; i++) {
    uint32_t magnitude = rms_bits_f32(b.v[i]) & 0x7fffffffu;
    if (magnitude > rms_bits_f32(a.v[i])) a.v[i] = rms_f32_from_bits(magnitude);
  }
  return a;
}

static VEC_CALL vf vf_max_magnitude(vf a, vf b) {
  for (int i = 0; i < 16; i++)
    a.v[i] = fabsf(b.v[i]) > a.v[i] ? fabsf(b.v[i]) : a.v[i];
  return a;
}

static VEC_CALL float vf_most(vf a) {
  uint32_t most = 0;
  for (int i = 0; i < 16; i++)
    most = rms_bits_f32(a.v[i]) > most ? rms_bits_f32(a.v[i]) : most;
  return rms_f32_from_bits(most);
}

static VEC_CALL void vf_store8(void *p, void *more, vf a, vf b, vf c, vf d, rms_dtype type, int eo, int within) {
  const rms_f8_format *format = type == RMS_F8E4M3 ? &rms_e4m3 : &rms_e5m2;
  const vf *from[4] = {&a, &b, &c, &d};
  (void)eo;
  (void)within;
  for (int i = 0; i < 64; i++) {
    unsigned char *to = (unsigned char *)(i < 32 ? p : more) + i % 32;
    float f = from[i / 16]->v[i % 16];
    *to = type == RMS_I8 ? (unsigned char)rms_i8_from_f32(f) : rms_f8_from_f32(f, format);
  }
}

static VEC_CALL void vf_store8_clear(void *p, void *more, vf a, vf b, vf c, vf d, rms_dtype type, int eo) {
  const vf up = vf_set(type == RMS_F8E4M3 ? 256 : 1);
  vf_store8(p, more, vf_mul(a, up), vf_mul(b, up), vf_mul(c, up), vf_mul(d, up), type, eo, 1);
}

static VEC_CALL vf vf_most16(const vf *v) {
  vf most;
  for (int i = 0; i < 16; i++)
    most.v[i] = vf_most(v[i]);
  return most;
}

static VEC_CALL float vf_sum(vf s) {
  for (int half = 8; half >= 1; half /= 2)
    for (int i = 0; i < half; i++)
      s.v[i] += s.v[i + half];
  return s.v[0];
}

static VEC_CALL float vf_sum4(vf a, vf b, vf c, vf d, int eo) {
  (void)eo;
  return vf_sum(vf_add(vf_add(a, c), vf_add(b, d)));
}

static inline void vf_sum8(float *sums, const vf *v, int eo) {
  (void)eo;
  for (int i = 0; i < 8; i++)
    sums[i] = vf_sum(v[i]);
}

static VEC_CALL vd vd_set(double f) {
  vd r;
  for (int i = 0; i < 8; i++)
    r.v[i] = f;
  return r;
}

static VEC_CALL vd vd_load_n(const void *p, int n, rms_dtype type, int eo) {
  vd r = vd_set(0.0);
  (void)eo;
  for (int i = 0; i < n; i++) {
    if (type == RMS_F64) {
      memcpy(&r.v[i], (const char *)p + 8 * i, 8);
    } else {
      float f;
      memcpy(&f, (const char *)p + 4 * i, 4);
      r.v[i] = (double)f;
    }
  }
  return r;
}

static inline vd vd_load(const void *p, rms_dtype type, int eo) {
  return vd_load_n(p, 8, type, eo);
}

static VEC_CALL void vd_store_n(void *p, vd a, int n, rms_dtype type, int eo) {
  (void)type;
  (void)eo;
  memcpy(p, a.v, 8 * (size_t)n);
}

static inline void vd_store(void *p, vd a, rms_dtype type, int eo) {
  vd_store_n(p, a, 8, type, eo);
}

static inline void vd_stream(void *p, vd a, rms_dtype type, int eo) {
  vd_store_n(p, a, 8, type, eo);
}

static VEC_CALL vd vd_first(vd a, int n, int eo) {
  (void)eo;
  for (int i = n; i < 8; i++)
    a.v[i] = 0.0;
  return a;
}

static VEC_CALL vd vd_join(vd a, vd b, int n) {
  for (int i = n; i < 8; i++)
    a.v[i] = b.v[i];
  return a;
}

static VEC_CALL vd vd_load_from(const void *p, int n) {
  vd r = {{0}};
  memcpy(r.v + n, (const char *)p + n * (int)sizeof *r.v, (size_t)(8 - n) * sizeof *r.v);
  return r;
}

static VEC_CALL vd vd_add(vd a, vd b) {
  for (int i = 0; i < 8; i++)
    a.v[i] += b.v[i];
  return a;
}

static VEC_CALL vd vd_sub(vd a, vd b) {
  for (int i = 0; i < 8; i++)
    a.v[i] -= b.v[i];
  return a;
}

static VEC_CALL vd vd_max_bits(vd a, vd b) {
  for (int i = 0; i < 8; i++) {
    uint64_t magnitude = rms_bits_f64(b.v[i]) & 0x7fffffffffffffffu;
    if (magnitude > rms_bits_f64(a.v[i])) a.v[i] = rms_f64_from_bits(magnitude);
  }
  return a;
}

static VEC_CALL vd vd_mul(vd a, vd b) {
  for (int i = 0; i < 8; i++)
    a.v[i] *= b.v[i];
  return a;
}

static VEC_CALL vd vd_fma(vd a, vd b, vd c) {
  for (int i = 0; i < 8; i++)
    a.v[i] = rms_fma(a.v[i], b.v[i], c.v[i]);
  return a;
}

static VEC_CALL vd vd_div(vd a, vd b) {
  for (int i = 0; i < 8; i++)
    a.v[i] /= b.v[i];
  return a;
}

static VEC_CALL vd vd_max(vd a, vd b) {
  for (int i = 0; i < 8; i++)
    a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}

static VEC_CALL vd vd_min(vd a, vd b) {
  for (int i = 0; i < 8; i++)
    a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}

static VEC_CALL vd vd_if_less(vd a, vd b, vd c, vd d) {
  for (int i = 0; i < 8; i++)
    a.v[i] = a.v[i] < b.v[i] ? c.v[i] : d.v[i];
  return a;
}

static VEC_CALL int vd_all_less(vd a, vd b) {
  int all = 1;
  for (int i = 0; i < 8; i++)
    all &= a.v[i] < b.v[i];
  return all;
}

static VEC_CALL vd vd_exponent(vd a) {
  for (int i = 0; i < 8; i++)
    a.v[i] = rms_f64_from_bits(rms_bits_f64(a.v[i]) << 52);
  return a;
}

static VEC_CALL double vd_sum(vd s) {
  for (int half = 4; half >= 1; half /= 2)
    for (int i = 0; i < half; i++)
      s.v[i] += s.v[i + half];
  return s.v[0];
}

#include "same.h"

static inline __attribute__((always_inline)) void vec_prefetch(const void *p) {
  (void)p;
}

static inline __attribute__((always_inline)) void vec_prefetch_near(const void *p) {
  (void)p;
}

static inline unsigned vec_most16(const char *p, int64_t n) {
  unsigned most = 0;
  for (int64_t i = 0; i < n; i++) {
    uint16_t half;
    memcpy(&half, p + 2 * i, 2);
    if ((half & 0x7fffu) > most) most = half & 0x7fffu;
  }
  return most;
}

static inline void vec_copy_stream(char *to, const char *from, int64_t bytes) {
  memcpy(to, from, (size_t)bytes);
}

static inline void vec_stream_part(char *to, const void *from, int bytes) {
  memcpy(to, from, (size_t)bytes);
}

static inline void vec_stream_fence(void) {}

#endif
