/* SPDX-License-Identifier: MIT
 *
 * What the virtual vector must do, in plain C that shares nothing with the library: conversions by exact arithmetic in
 * double, sums by the tree of the contract. */
#ifndef RMSNORM_TESTS_VEC_REFERENCE_H
#define RMSNORM_TESTS_VEC_REFERENCE_H

#include <stdint.h>
#include "rmsnorm.h"

/* The value of a 16-bit element. */
double ref_widen(uint16_t bits, rms_dtype type);
/* The nearest 16-bit element, ties to even; NaN gives some NaN. */
uint16_t ref_narrow(float value, rms_dtype type);
/* l + l+n/2, then l + l+n/4 ... over n lanes; n is a power of two. The lanes are overwritten. */
float ref_tree_f32(float *lanes, int n);
double ref_tree_f64(double *lanes, int n);

/* One per instruction set: every operation of its header. */
void vec_check_scalar(void);
void vec_check_avx2(void);
void vec_check_avx512(void);
void vec_check_avx512_narrow(void);
void vec_check_avx512_native(void);
void vec_check_neon(void);

/* The activations of one vector, as the kernels of an instruction set compute them. */
typedef struct ref_activated_f32 {
  float sigmoid[16], silu[16], sigmoid_slope[16], silu_slope[16];
} ref_activated_f32;
typedef struct ref_activated_f64 {
  double sigmoid[8], silu[8], sigmoid_slope[8], silu_slope[8];
} ref_activated_f64;
typedef struct ref_activations {
  void (*f32)(const float *z, ref_activated_f32 *out);
  void (*f64)(const double *z, ref_activated_f64 *out);
} ref_activations;
extern const ref_activations vec_activations_scalar;
extern const ref_activations vec_activations_avx2;
extern const ref_activations vec_activations_avx512;
extern const ref_activations vec_activations_avx512_narrow;
extern const ref_activations vec_activations_avx512_native;
extern const ref_activations vec_activations_neon;

#endif
