/* SPDX-License-Identifier: MIT */
#include "reference.h"

#include <math.h>

static int mantissa_bits(rms_dtype type) {
  return type == RMS_BF16 ? 7 : 10;
}

static int bias_of(rms_dtype type) {
  return type == RMS_BF16 ? 127 : 15;
}

double ref_widen(uint16_t bits, rms_dtype type) {
  int m = mantissa_bits(type), bias = bias_of(type), exponent = (bits & 0x7fff) >> m, fraction = bits & ((1 << m) - 1);
  double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == 2 * bias + 1) return fraction ? (double)NAN : sign * (double)INFINITY;
  if (exponent == 0) return sign * ldexp(fraction, 1 - bias - m);
  return sign * ldexp(fraction + (1 << m), exponent - bias - m);
}

uint16_t ref_narrow(float value, rms_dtype type) {
  int m = mantissa_bits(type), bias = bias_of(type), exponent;
  uint16_t sign = signbit(value) ? 0x8000 : 0, infinity = (uint16_t)((2 * bias + 1) << m);
  if (isnan(value)) return (uint16_t)(sign | infinity | 1);
  double magnitude = fabs((double)value);
  if (magnitude == 0) return sign;
  (void)frexp(magnitude, &exponent); /* magnitude = f 2^exponent, 0.5 <= f < 1 */
  int unit = exponent - 1 - m;       /* the last bit stands for 2^unit */
  if (unit < 1 - bias - m) unit = 1 - bias - m;
  double steps = nearbyint(ldexp(magnitude, -unit)); /* exact scaling; the rounding mode is nearest even */
  double rounded = ldexp(steps, unit);
  if (rounded >= ldexp(1.0, bias + 1)) return sign | infinity;
  (void)frexp(rounded, &exponent);
  if (rounded < ldexp(1.0, 1 - bias)) return (uint16_t)(sign | (int)ldexp(rounded, m + bias - 1));
  int field = exponent - 1 + bias;
  return (uint16_t)(sign | field << m | ((int)ldexp(rounded, m + 1 - exponent) - (1 << m)));
}

float ref_tree_f32(float *lanes, int n) {
  for (int half = n / 2; half >= 1; half /= 2)
    for (int i = 0; i < half; i++)
      lanes[i] = lanes[i] + lanes[i + half];
  return lanes[0];
}

double ref_tree_f64(double *lanes, int n) {
  for (int half = n / 2; half >= 1; half /= 2)
    for (int i = 0; i < half; i++)
      lanes[i] = lanes[i] + lanes[i + half];
  return lanes[0];
}
