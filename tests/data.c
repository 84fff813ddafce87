/* SPDX-License-Identifier: MIT
 * Inputs made of bits with integer arithmetic alone, so that every machine and compiler has the same ones. */
#include "call.h"

#include <string.h>
#include "../verify/splitmix.h"

typedef struct format {
  int exponent_bits, mantissa_bits;
} format;

static format format_of(rms_dtype dtype) {
  static const format formats[] = {[RMS_F32] = {8, 23}, [RMS_F64] = {11, 52}, [RMS_BF16] = {8, 7}, [RMS_F16] = {5, 10}};
  return formats[dtype];
}

static uint64_t assemble(format f, uint64_t negative, int64_t exponent_field, uint64_t mantissa) {
  uint64_t mask = (UINT64_C(1) << f.mantissa_bits) - 1;
  return negative << (f.exponent_bits + f.mantissa_bits) | (uint64_t)exponent_field << f.mantissa_bits |
         (mantissa & mask);
}

/* Inline, so that the compiler knows most divisors: most of the time of many tests is spent here. */
static inline uint64_t next(t_rng *rng) {
  return splitmix_next(&rng->state);
}

static inline int64_t between(t_rng *rng, int64_t low, int64_t high) {
  return low + (int64_t)(next(rng) % (uint64_t)(high - low + 1));
}

static uint64_t special_bits(format f, t_rng *rng) {
  int64_t top = (INT64_C(1) << f.exponent_bits) - 1;
  uint64_t negative = next(rng) & 1, mantissa = next(rng), all = ~UINT64_C(0);
  switch (between(rng, 0, 11)) {
  case 0:
    return assemble(f, negative, top, 0); /* infinity */
  case 1:
    return assemble(f, negative, top, UINT64_C(1) << (f.mantissa_bits - 1)); /* NaN */
  case 2:
    return assemble(f, negative, top, 1); /* signalling NaN */
  case 3:
    return assemble(f, negative, top - 1, all); /* largest */
  case 4:
    return assemble(f, negative, 0, 1); /* smallest */
  case 5:
    return assemble(f, negative, 0, mantissa); /* subnormal */
  case 6:
  case 7:
    return assemble(f, negative, 0, 0); /* zero */
  default:
    return assemble(f, negative, top / 2 + between(rng, -4, 1), mantissa);
  }
}

static uint64_t bits_of(format f, t_data style, int spoiled, t_rng *rng) {
  int64_t bias = (INT64_C(1) << (f.exponent_bits - 1)) - 1;
  uint64_t mantissa = next(rng), negative = next(rng) >> 63;
  switch (style) {
  case T_WIDE:
    return assemble(f, negative, bias + between(rng, -(bias / 4), bias / 4), mantissa);
  case T_HUGE:
    return assemble(f, negative, 2 * bias - between(rng, 0, 2), mantissa);
  case T_TINY:
    return assemble(f, negative, between(rng, 0, 2), mantissa);
  case T_SPECIAL:
    if (spoiled) return special_bits(f, rng);
    break;
  default:
    break;
  }
  return assemble(f, negative, bias + between(rng, -4, 1), mantissa);
}

static void put(unsigned char *p, rms_dtype dtype, uint64_t bits) {
  if (dtype == RMS_F64) {
    memcpy(p, &bits, 8);
  } else if (dtype == RMS_F32) {
    uint32_t word = (uint32_t)bits;
    memcpy(p, &word, 4);
  } else {
    uint16_t half = (uint16_t)bits;
    memcpy(p, &half, 2);
  }
}

void t_fill(void *data, rms_dtype dtype, int64_t count, t_data style, uint64_t seed, uint64_t stream, int64_t row) {
  t_rng rng = {seed * UINT64_C(0x9e3779b97f4a7c15) ^ stream * UINT64_C(0xd1342543de82ef95) ^
               (uint64_t)row * UINT64_C(0xaf251af3b0f025b5)};
  next(&rng);
  format f = format_of(dtype);
  size_t size = rms_dtype_size(dtype);
  uint64_t constant = row % 3 == 2 ? 0 : bits_of(f, T_WIDE, 0, &rng);
  for (int64_t j = 0; j < count; j++)
    put((unsigned char *)data + (size_t)j * size, dtype,
        style == T_CONSTANT ? constant : bits_of(f, style, (int)(row & 1), &rng));
}
