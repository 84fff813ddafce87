/* SPDX-License-Identifier: MIT
 *
 * Powers of two without calls into the C library: rows that need a scale need a dozen of them. */
#ifndef RMS_KERNELS_POWER_H
#define RMS_KERNELS_POWER_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* x * 2^e, rounded once: ldexp. */
static inline double rms_ldexp(double x, int e) {
  if (e < -1022 || e > 1023) return ldexp(x, e);
  uint64_t bits = (uint64_t)(e + 1023) << 52;
  double power;
  memcpy(&power, &bits, sizeof power);
  return x * power;
}

/* e with 2^(e-1) <= |x| < 2^e, for finite x other than zero: the exponent of frexp. */
static inline int rms_exponent(double x) {
  uint64_t bits;
  int e;
  memcpy(&bits, &x, sizeof bits);
  e = (int)(bits >> 52 & 0x7ff);
  if (e == 0)
    (void)frexp(x, &e);
  else
    e -= 1022;
  return e;
}

#endif
