/* SPDX-License-Identifier: MIT
 *
 * a*b + c and the square root with one rounding, to nearest even. C libraries do that, but mingw-w64's rounds twice,
 * once in the format of x87: there both are computed here. */
#ifndef RMS_CPU_EXACT_H
#define RMS_CPU_EXACT_H

#include <math.h>
#include "convert.h"

/* The product is exact in f64. The sum is rounded to odd, so that its rounding to f32 is that of the exact sum. */
static inline float rms_soft_fmaf(float a, float b, float c) {
  double product = (double)a * (double)b, sum = product + (double)c;
  double part = sum - product, lost = (product - (sum - part)) + ((double)c - part);
  uint64_t bits = rms_bits_f64(sum);
  if (lost != 0 && lost == lost && !(bits & 1)) bits += (lost > 0) == (sum > 0) ? 1u : UINT64_MAX;
  return (float)rms_f64_from_bits(bits);
}

#if defined(__SIZEOF_INT128__)

__extension__ typedef unsigned __int128 rms_u128;

/* A number is whole * 2^exponent. */
static inline double rms_round_u128(rms_u128 whole, int exponent, int negative) {
  const int least_exponent = -1074;
  uint64_t high = (uint64_t)(whole >> 64);
  int top = high ? 127 - __builtin_clzll(high) : 63 - __builtin_clzll((uint64_t)whole);
  int drop = top - 52 > least_exponent - exponent ? top - 52 : least_exponent - exponent;
  if (drop > 127) return negative ? -0.0 : 0.0;
  if (drop > 0) {
    rms_u128 kept = whole >> drop, rest = whole - (kept << drop), half = (rms_u128)1 << (drop - 1);
    whole = kept + (rest > half || (rest == half && (kept & 1)));
    exponent += drop;
  }
  double result = ldexp((double)(uint64_t)whole, exponent);
  return negative ? -result : result;
}

/* Shifted to the right; a last bit of 1 stands for anything that is lost. */
static inline rms_u128 rms_shift_u128(rms_u128 whole, int by) {
  if (by > 127) return whole != 0;
  return whole >> by | ((whole & (((rms_u128)1 << by) - 1)) != 0);
}

static inline rms_u128 rms_whole_u128(double d, int *exponent) {
  uint64_t whole = (uint64_t)(fabs(frexp(d, exponent)) * 0x1p53);
  *exponent -= 53;
  return whole;
}

static inline int rms_is_finite(double d) {
  return d - d == 0;
}

/* Product and addend stand in 126 bits, with zeros behind them. Where one loses bits to the right it is so much smaller
 * that they lie far below the rounding. */
static inline double rms_soft_fma(double a, double b, double c) {
  if (!rms_is_finite(a) || !rms_is_finite(b) || a == 0 || b == 0) return a * b + c;
  if (!rms_is_finite(c)) return c + 0.0;
  if (c == 0) return a * b;
  int ea, eb, ec, negative = (a < 0) != (b < 0), minus = negative != (c < 0);
  rms_u128 product = rms_whole_u128(a, &ea) * rms_whole_u128(b, &eb) << 20;
  rms_u128 addend = rms_whole_u128(c, &ec) << 72;
  ea += eb - 20;
  ec -= 72;
  if (ea >= ec)
    addend = rms_shift_u128(addend, ea - ec);
  else
    product = rms_shift_u128(product, ec - ea);
  int exponent = ea >= ec ? ea : ec;
  if (!minus) return rms_round_u128(product + addend, exponent, negative);
  if (product == addend) return 0.0;
  if (product > addend) return rms_round_u128(product - addend, exponent, negative);
  return rms_round_u128(addend - product, exponent, !negative);
}

#endif

#if defined(_WIN32) && !defined(__FMA__)
#if !defined(__SIZEOF_INT128__)
#error "rmsnorm: this compiler for Windows has neither an exact fma nor 128-bit integers"
#endif
#define rms_fma  rms_soft_fma
#define rms_fmaf rms_soft_fmaf
#else
#define rms_fma  fma
#define rms_fmaf fmaf
#endif

/* In f32 a second rounding, of far more digits than two numbers need, does no harm. */
#if defined(_WIN32) && defined(__x86_64__)
#include <emmintrin.h>
static inline double rms_sqrt(double a) {
  return _mm_cvtsd_f64(_mm_sqrt_pd(_mm_set1_pd(a)));
}
#else
#define rms_sqrt sqrt
#endif

#endif
