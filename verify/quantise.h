/* SPDX-License-Identifier: MIT
 *
 * Quantised outputs in plain C, from docs/numerics.md: one block, one element after the other. */
#ifndef RMSNORM_VERIFY_QUANTISE_H
#define RMSNORM_VERIFY_QUANTISE_H

#include "spec.h"

/* M: the largest number of a quantised type. */
double verify_quantised_largest(rms_dtype type);

/* A block's scale as it is stored (that of q8_0 rounded to f16) and by what elements are divided or multiplied. */
typedef struct verify_scale {
  float stored, factor;
  int divide;
} verify_scale;

/* Computed from the largest magnitude of the block; NaN: it has a NaN or an infinity. */
verify_scale verify_scale_of(const verify_spec *spec, float most);
/* Given for the whole tensor. */
verify_scale verify_scale_given(const verify_spec *spec, float scale);

/* An element as a number of the quantised type. */
double verify_quantise(const verify_spec *spec, verify_scale scale, float y);

/* Such a number as its byte, and back. */
unsigned char verify_quantised_byte(rms_dtype type, double number);
double verify_quantised_number(rms_dtype type, unsigned char byte);

#endif
