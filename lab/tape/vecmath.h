/* SPDX-License-Identifier: MIT
 *
 * Elementary functions without branches or calls, so that the compiler vectorises the loops they stand in.
 * The relative error of the f32 exp is below 2e-7 on [-87, 88]; arguments outside are clamped. In double, libm is
 * used. */
#ifndef LAB_VECMATH_H
#define LAB_VECMATH_H

#include <math.h>
#include <stdint.h>

#include "tape/tape.h"

#ifdef LAB_DOUBLE

static inline real real_exp(real x) {
  return exp(x);
}
#define REAL_SQRT sqrt
#define REAL_LOG  log

#else

static inline real real_exp(real x) {
  const float round_to_int = 12582912.0f; /* 1.5 * 2^23: adding it leaves no room for a fraction */
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  float n = (x * 1.44269504f + round_to_int) - round_to_int;
  float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  union {
    int32_t bits;
    float value;
  } scale = {((int32_t)(n > -200 ? n : 0) + 127) << 23}; /* a NaN has no int32_t; it stays in p */
  return p * scale.value;
}
#define REAL_SQRT sqrtf
#define REAL_LOG  logf

#endif

static inline real real_sigmoid(real x) {
  return 1 / (1 + real_exp(-x));
}

static inline real real_tanh(real x) {
  return 2 / (1 + real_exp(-2 * x)) - 1;
}

/* Sums in eight interleaved lanes: a fixed order that fits vectors. */
static inline real lanes_total(const real *lane) {
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static inline real vec_dot(const real *a, const real *b, int64_t n) {
  real lane[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; l++)
      lane[l] += a[i + l] * b[i + l];
  for (int l = 0; i < n; i++, l++)
    lane[l] += a[i] * b[i];
  return lanes_total(lane);
}

static inline real vec_sum(const real *a, int64_t n) {
  real lane[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; l++)
      lane[l] += a[i + l];
  for (int l = 0; i < n; i++, l++)
    lane[l] += a[i];
  return lanes_total(lane);
}

static inline real vec_max(const real *a, int64_t n) {
  real lane[8];
  for (int l = 0; l < 8; l++)
    lane[l] = a[0];
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; l++)
      lane[l] = a[i + l] > lane[l] ? a[i + l] : lane[l];
  real most = lane[0];
  for (int l = 1; l < 8; l++)
    most = lane[l] > most ? lane[l] : most;
  for (; i < n; i++)
    most = a[i] > most ? a[i] : most;
  return most;
}

/* a = exp(a - max); returns max. */
static inline real vec_exp(real *a, int64_t n) {
  real most = vec_max(a, n);
  for (int64_t i = 0; i < n; i++)
    a[i] = real_exp(a[i] - most);
  return most;
}

#endif
