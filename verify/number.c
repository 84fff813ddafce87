/* SPDX-License-Identifier: MIT
 * Element types in software. */
#include "number.h"

#include <math.h>
#include <string.h>

/* digits: bits of the significand with the hidden one; lowest: exponent of the smallest normal number. */
typedef struct format {
  int digits, lowest;
  double largest;
} format;

static format format_of(rms_dtype dtype) {
  switch (dtype) {
  case RMS_F64:
    return (format){53, -1022, 0x1.fffffffffffffp1023};
  case RMS_BF16:
    return (format){8, -126, 0x1.fep127};
  case RMS_F16:
    return (format){11, -14, 65504};
  case RMS_F8E4M3:
    return (format){4, -6, 448};
  case RMS_F8E5M2:
    return (format){3, -14, 57344};
  default:
    return (format){24, -126, 0x1.fffffep127};
  }
}

/* Exponent of the last place of a number of this size. */
static int last_place(const format *f, double value) {
  int exponent;
  frexp(value, &exponent);
  int place = exponent - f->digits, bottom = f->lowest - f->digits + 1;
  return value == 0 || place < bottom ? bottom : place;
}

double verify_round(rms_dtype dtype, double value) {
  if (dtype == RMS_F64 || !isfinite(value) || value == 0) return value;
  format f = format_of(dtype);
  int place = last_place(&f, value);
  double rounded = ldexp(rint(ldexp(value, -place)), place);
  return fabs(rounded) > f.largest ? copysign((double)INFINITY, value) : rounded;
}

double verify_round_saturating(rms_dtype dtype, double value) {
  double largest = format_of(dtype).largest;
  if (isnan(value)) return value;
  if (fabs(value) > largest) return copysign(largest, value);
  return value == 0 ? value : copysign(verify_round(dtype, value), value);
}

double verify_ulp(rms_dtype dtype, double value) {
  format f = format_of(dtype);
  if (!isfinite(value) || fabs(value) > f.largest) value = f.largest;
  return ldexp(1, last_place(&f, value));
}

double verify_unit_roundoff(rms_dtype dtype) {
  return ldexp(1, -format_of(dtype).digits);
}

double verify_underflow_unit(rms_dtype dtype) {
  format f = format_of(dtype);
  return dtype == RMS_F64 ? 0x1p-1074 : ldexp(1, f.lowest - f.digits); /* half of 2^-1074 is below every double */
}

static double f16_to_double(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                     : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                    : ldexp(fraction, -24);
  return bits >> 15 ? -magnitude : magnitude;
}

/* `value` is a value of the type. */
static uint16_t f16_from_double(double value) {
  unsigned sign = signbit(value) ? 0x8000u : 0u;
  double magnitude = fabs(value);
  if (isnan(value)) return (uint16_t)(sign | 0x7e00u);
  if (isinf(value)) return (uint16_t)(sign | 0x7c00u);
  if (magnitude < 0x1p-14) return (uint16_t)(sign | (unsigned)ldexp(magnitude, 24));
  int exponent;
  double fraction = frexp(magnitude, &exponent);
  return (uint16_t)(sign | (unsigned)(exponent + 14) << 10 | ((unsigned)ldexp(fraction, 11) & 1023u));
}

double verify_load(rms_dtype dtype, const void *data, int64_t index) {
  const char *at = (const char *)data + index * (int64_t)rms_dtype_size(dtype);
  double wide;
  float single;
  uint16_t half;
  uint32_t bits;
  switch (dtype) {
  case RMS_F64:
    memcpy(&wide, at, sizeof wide);
    return wide;
  case RMS_F32:
    memcpy(&single, at, sizeof single);
    return (double)single;
  case RMS_BF16:
    memcpy(&half, at, sizeof half);
    bits = (uint32_t)half << 16;
    memcpy(&single, &bits, sizeof single);
    return (double)single;
  default:
    memcpy(&half, at, sizeof half);
    return f16_to_double(half);
  }
}

void verify_store(rms_dtype dtype, void *data, int64_t index, double value) {
  char *at = (char *)data + index * (int64_t)rms_dtype_size(dtype);
  double rounded = verify_round(dtype, value);
  float single = (float)rounded;
  uint16_t half;
  uint32_t bits;
  switch (dtype) {
  case RMS_F64:
    memcpy(at, &rounded, sizeof rounded);
    return;
  case RMS_F32:
    memcpy(at, &single, sizeof single);
    return;
  case RMS_BF16:
    memcpy(&bits, &single, sizeof bits);
    half = (uint16_t)(bits >> 16);
    memcpy(at, &half, sizeof half);
    return;
  default:
    half = f16_from_double(rounded);
    memcpy(at, &half, sizeof half);
  }
}
