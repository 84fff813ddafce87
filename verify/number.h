/* SPDX-License-Identifier: MIT
 *
 * Element types in software: every value of every type as a double, and the rounding of a double to each type. Written
 * apart from the library's own conversions, so that the two check each other. */
#ifndef RMSNORM_VERIFY_NUMBER_H
#define RMSNORM_VERIFY_NUMBER_H

#include "rmsnorm.h"

/* Nearest value of the type, ties to even, overflow to infinity. Exact for values that the type holds. */
double verify_round(rms_dtype dtype, double value);

/* The same for the 8-bit floats too, and saturating: beyond the largest number there is only that. */
double verify_round_saturating(rms_dtype dtype, double value);

/* Distance between neighbours of the type at `value`: its unit in the last place, 2^-149 and the like at the bottom. */
double verify_ulp(rms_dtype dtype, double value);

/* Half the spacing at 1, and half the smallest subnormal: the two constants of rounding-error analysis. */
double verify_unit_roundoff(rms_dtype dtype);
double verify_underflow_unit(rms_dtype dtype);

double verify_load(rms_dtype dtype, const void *data, int64_t index);
void verify_store(rms_dtype dtype, void *data, int64_t index, double value); /* rounds */

/* The arithmetic of the contract: f64 for f64 data, f32 otherwise. */
static inline rms_dtype verify_arithmetic(rms_dtype dtype) {
  return dtype == RMS_F64 ? RMS_F64 : RMS_F32;
}

#endif
