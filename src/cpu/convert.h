/* SPDX-License-Identifier: MIT
 *
 * Conversions between the storage types and the arithmetic types in plain C, bit for bit what the vector units do:
 * widening is exact, narrowing rounds to nearest even, overflow gives infinity, a NaN stays a (quiet) NaN. */
#ifndef RMS_CPU_CONVERT_H
#define RMS_CPU_CONVERT_H

#include <stdint.h>
#include <string.h>

static inline uint32_t rms_bits_f32(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

static inline float rms_f32_from_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static inline uint64_t rms_bits_f64(double d) {
  uint64_t u;
  memcpy(&u, &d, sizeof u);
  return u;
}

static inline double rms_f64_from_bits(uint64_t u) {
  double d;
  memcpy(&d, &u, sizeof d);
  return d;
}

static inline float rms_f32_from_bf16(uint16_t h) {
  return rms_f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t rms_bf16_from_f32(float f) {
  uint32_t u = rms_bits_f32(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float rms_f32_from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
  if (rest >= 0x7c00u) {
    uint32_t quiet = rest > 0x7c00u ? 0x400000u : 0;
    return rms_f32_from_bits(sign | 0x7f800000u | quiet | ((rest & 0x3ffu) << 13));
  }
  if (rest >= 0x400u) return rms_f32_from_bits(sign | ((rest << 13) + (112u << 23)));
  float tiny = (float)rest * 0x1p-24f;
  return rms_f32_from_bits(sign | rms_bits_f32(tiny));
}

static inline uint16_t rms_f16_from_f32(float f) {
  uint32_t u = rms_bits_f32(f), sign = (u >> 16) & 0x8000u, rest = u & 0x7fffffffu;
  if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((rest >> 13) & 0x1ffu));
  if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above round to infinity */
  if (rest >= 0x38800000u) {
    uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - (112u << 23)) >> 13));
  }
  /* A subnormal of the narrow type: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits. */
  float shifted = rms_f32_from_bits(rest) + 0.5f;
  return (uint16_t)(sign | (rms_bits_f32(shifted) - 0x3f000000u));
}

/* ---- 8-bit types: rounded to nearest even, saturating; a NaN without its sign, in int8 as 0 ---- */

static inline int8_t rms_i8_from_f32(float f) {
  if (f != f) return 0;
  if (f > 127) return 127;
  if (f < -127) return -127;
  return (int8_t)(int)((f + 0x1.8p23f) - 0x1.8p23f); /* the sum has no digits behind the point */
}

/* A format of 8-bit floats. */
typedef struct {
  int shift;       /* digits that a significand of f32 has more than one of this format     */
  uint32_t normal; /* the smallest normal number, as f32                                    */
  uint32_t nan;    /* code of a NaN                                                         */
  float largest;   /* number                                                                */
} rms_f8_format;

static const rms_f8_format rms_e4m3 = {20, 0x3c800000, 0x7f, 448.0f};
static const rms_f8_format rms_e5m2 = {21, 0x38800000, 0x7e, 57344.0f};

/* The sum with 2^shift times the power of two below the number has as its last digits the significand of the rounded
 * number, in steps of the format; numbers below the normal ones have the steps of those. */
static inline uint8_t rms_f8_from_f32(float f, const rms_f8_format *to) {
  uint32_t u = rms_bits_f32(f), sign = u >> 24 & 0x80u, rest = u & 0x7fffffffu;
  if (rest > 0x7f800000u) return (uint8_t)to->nan;
  if (rest > rms_bits_f32(to->largest)) rest = rms_bits_f32(to->largest);
  uint32_t exponent = (rest > to->normal ? rest : to->normal) & 0x7f800000u,
           up = exponent + ((uint32_t)to->shift << 23);
  uint32_t steps = rms_bits_f32(rms_f32_from_bits(rest) + rms_f32_from_bits(up)) - up;
  return (uint8_t)(sign | (steps + ((exponent - to->normal) >> to->shift)));
}

/* f64 to f32 rounded to odd: a later rounding to at most 22 bits is then a single rounding of the f64 value. */
static inline float rms_f32_odd_from_f64(double d) {
  float f = (float)d;
  double back = (double)f;
  uint32_t u = rms_bits_f32(f);
  if (back == d || d != d) return f;
  if (u & 1u) return f;
  int away = (back > d) == (d > 0); /* rounded away from zero: the truncated neighbour is one step back, and odd */
  return rms_f32_from_bits(away ? u - 1u : u + 1u);
}

#endif
