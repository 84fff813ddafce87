/* SPDX-License-Identifier: MIT */
#include "quantise.h"

#include <float.h>
#include <math.h>
#include "number.h"

double verify_quantised_largest(rms_dtype type) {
  return type == RMS_F8E4M3 ? 448 : type == RMS_F8E5M2 ? 57344 : 127;
}

static int is_float8(rms_dtype type) {
  return type == RMS_F8E4M3 || type == RMS_F8E5M2;
}

/* 1/scale, but no infinity. */
static float finite(float inverse) {
  return inverse > FLT_MAX ? FLT_MAX : inverse;
}

static float at_least(float scale, float least) {
  return scale < least ? least : scale;
}

verify_scale verify_scale_of(const verify_spec *spec, float most) {
  const float largest = (float)verify_quantised_largest(spec->q_dtype), plain = most / largest;
  const float scale = at_least(plain, (float)spec->scale_least);
  if (is_float8(spec->q_dtype)) return (verify_scale){scale, scale == 0 ? 1 : scale, 1};
  if (spec->q_dtype == RMS_I8) return (verify_scale){scale, finite(1 / scale), 0};
  const float cut = scale > 65504 ? 65504 : scale;
  const float inverse = cut < plain || cut > plain ? 1 / cut : largest / most;
  return (verify_scale){(float)verify_round(RMS_F16, (double)cut), finite(inverse), 0};
}

verify_scale verify_scale_given(const verify_spec *spec, float scale) {
  if (spec->q_dtype == RMS_I8) return (verify_scale){scale, scale, 1};
  return (verify_scale){scale, 1 / scale, 0};
}

double verify_quantise(const verify_spec *spec, verify_scale scale, float y) {
  const float t = scale.divide ? y / scale.factor : y * scale.factor;
  if (is_float8(spec->q_dtype)) return verify_round_saturating(spec->q_dtype, (double)t);
  if (isnan(t)) return 0;
  return t > 127 ? 127 : t < -127 ? -127 : rint((double)t);
}

/* Digits of the significand without the hidden one, and the exponent of the smallest normal number. */
static int digits_of(rms_dtype type) {
  return type == RMS_F8E4M3 ? 3 : 2;
}

static int lowest_of(rms_dtype type) {
  return type == RMS_F8E4M3 ? -6 : -14;
}

unsigned char verify_quantised_byte(rms_dtype type, double number) {
  if (!is_float8(type)) return (unsigned char)(signed char)number;
  if (isnan(number)) return type == RMS_F8E4M3 ? 0x7f : 0x7e;
  const int digits = digits_of(type), lowest = lowest_of(type), sign = signbit(number) ? 0x80 : 0;
  int exponent;
  frexp(number, &exponent); /* in [1/2, 1) times 2^exponent */
  if (number == 0 || exponent - 1 < lowest) return (unsigned char)(sign | (int)ldexp(fabs(number), digits - lowest));
  const int fraction = (int)ldexp(fabs(number), digits - exponent + 1) - (1 << digits);
  return (unsigned char)(sign | (exponent - lowest) << digits | fraction);
}

double verify_quantised_number(rms_dtype type, unsigned char byte) {
  if (!is_float8(type)) return (double)(signed char)byte;
  const int digits = digits_of(type), lowest = lowest_of(type), rest = byte & 0x7f, exponent = rest >> digits;
  const int fraction = rest & ((1 << digits) - 1);
  if (type == RMS_F8E4M3 ? rest == 0x7f : rest > 0x7c) return (double)NAN;
  double magnitude =
      exponent ? ldexp((1 << digits) + fraction, exponent - 1 + lowest - digits) : ldexp(fraction, lowest - digits);
  if (type == RMS_F8E5M2 && rest == 0x7c) magnitude = (double)INFINITY;
  return byte & 0x80 ? -magnitude : magnitude;
}
