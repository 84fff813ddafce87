/* SPDX-License-Identifier: MIT
 *
 * The activations of the kernels and their slopes: the scalar ones against double-double within the derived bounds,
 * those of the other instruction sets against the scalar ones bit by bit. Inputs: all bf16 and f16 numbers, any bits,
 * and the middle of the range densely. */
#include <math.h>
#include <string.h>
#include "activation_bounds.h"
#include "harness.h"
#include "number.h"
#include "reference.h"

enum { F32_LANES = 16, F64_LANES = 8, HALVES = 65536, RESULTS = 4 };

/* ---- Inputs: number i of a list that is the same in every case ---- */

static double uniform(t_rng *rng, double least, double most) {
  return least + (most - least) * (double)(t_random(rng) >> 11) * 0x1p-53;
}

/* Any number of the type, subnormal and huge ones, infinities and NaN among them. */
static double any_bits(t_rng *rng, rms_dtype type) {
  uint64_t bits = t_random(rng);
  return verify_load(type, &bits, 0);
}

/* Where the rounding of z/ln 2 changes, or the argument that is left is zero: a few steps beside a multiple of ln 2/2.
 */
static double beside_a_multiple(t_rng *rng, rms_dtype type) {
  double multiple = verify_round(type, (double)(t_random_below(rng, 2600) - 2400) * 0.34657359027997264);
  return multiple + (double)(t_random_below(rng, 9) - 4) * verify_ulp(type, multiple);
}

static double input(int64_t i, rms_dtype type) {
  t_rng rng = t_rng_make((uint64_t)i);
  uint16_t half = (uint16_t)i;
  bool f64 = type == RMS_F64;
  if (i < HALVES) return verify_load(RMS_BF16, &half, 0);
  if (i < 2 * HALVES) return verify_load(RMS_F16, &half, 0);
  switch (i % 4) {
  case 0:
    return any_bits(&rng, type);
  case 1:
    return verify_round(type, f64 ? uniform(&rng, -810, 70) : uniform(&rng, -125, 40));
  case 2:
    return verify_round(type, uniform(&rng, -6, 6));
  default:
    return beside_a_multiple(&rng, type);
  }
}

static int64_t input_count(void) {
  return 2 * HALVES + F32_LANES * t_effort(6000);
}

/* ---- Scalar against the exact results ---- */

/* Both kinds of results as doubles: sigmoid, silu, slope of sigmoid, slope of silu. */
static void results_f32(const ref_activations *isa, const float *z, double out[RESULTS][F32_LANES]) {
  ref_activated_f32 all;
  isa->f32(z, &all);
  for (int i = 0; i < F32_LANES; i++) {
    out[0][i] = (double)all.sigmoid[i];
    out[1][i] = (double)all.silu[i];
    out[2][i] = (double)all.sigmoid_slope[i];
    out[3][i] = (double)all.silu_slope[i];
  }
}

static void check_result(double z, rms_dtype type, int which, double have) {
  double u = verify_unit_roundoff(type), eta = verify_underflow_unit(type);
  bool sigmoid = which % 2 == 0, slope = which >= 2;
  dd exact = slope ? dd_activation_slope(dd_from(z), sigmoid) : dd_activation(dd_from(z), sigmoid);
  double bound =
      slope ? verify_activation_slope_error(z, sigmoid, u, eta) : verify_activation_error(z, sigmoid, u, eta);
  double error = fabs(dd_subtract(dd_from(have), exact).hi);
  bool within = error <= bound;
  if (!within)
    t_context("%s of %s, z = %.17g: %.17g, not %.17g, off by %g, bound %g", slope ? "slope" : "value",
              sigmoid ? "sigmoid" : "silu", z, have, exact.hi, error, bound);
  T_CHECK(within);
}

/* The limits. */
static void check_special(double z, int which, double have) {
  static const double at_infinity[RESULTS] = {1, HUGE_VAL, 0, 1}, at_minus_infinity[RESULTS] = {0, -0.0, 0, -0.0};
  t_context("result %d at z = %g", which, z);
  if (isnan(z)) {
    T_CHECK(isnan(have));
    return;
  }
  double want = z > 0 ? at_infinity[which] : at_minus_infinity[which];
  T_EQ_F64(want, have);
  T_EQ_INT(signbit(want) != 0, signbit(have) != 0);
}

static void check_input(double z, rms_dtype type, int which, double have) {
  if (isfinite(z))
    check_result(z, type, which, have);
  else
    check_special(z, which, have);
}

static void within_bounds_f32(void) {
  for (int64_t base = 0; base < input_count(); base += F32_LANES) {
    float z[F32_LANES];
    double have[RESULTS][F32_LANES];
    for (int i = 0; i < F32_LANES; i++)
      z[i] = (float)input(base + i, RMS_F32);
    results_f32(&vec_activations_scalar, z, have);
    for (int which = 0; which < RESULTS; which++)
      for (int i = 0; i < F32_LANES; i++)
        check_input((double)z[i], RMS_F32, which, have[which][i]);
  }
}

static void within_bounds_f64(void) {
  for (int64_t base = 2 * HALVES; base < input_count(); base += F64_LANES) {
    double z[F64_LANES];
    ref_activated_f64 have;
    for (int i = 0; i < F64_LANES; i++)
      z[i] = input(base + i, RMS_F64);
    vec_activations_scalar.f64(z, &have);
    for (int i = 0; i < F64_LANES; i++) {
      check_input(z[i], RMS_F64, 0, have.sigmoid[i]);
      check_input(z[i], RMS_F64, 1, have.silu[i]);
      check_input(z[i], RMS_F64, 2, have.sigmoid_slope[i]);
      check_input(z[i], RMS_F64, 3, have.silu_slope[i]);
    }
  }
}

/* Zeros keep their sign, NaNs stay NaN whatever their payload: bits of it could be taken for an exponent. */
static void zeros_and_nans(void) {
  static const uint32_t nans[F32_LANES] = {0x7f800001, 0x7f8000ff, 0x7f8001ff, 0x7fbfffff, 0x7fc00000, 0x7fc00001,
                                           0x7fc00080, 0x7fc00155, 0x7fffffff, 0xff800001, 0xff8000aa, 0xffc00000,
                                           0xffc00017, 0xffc0007f, 0xffc00180, 0xffffffff};
  const float zeros[F32_LANES] = {0, -0.0f};
  float z[F32_LANES];
  double have[RESULTS][F32_LANES];
  memcpy(z, nans, sizeof z);
  results_f32(&vec_activations_scalar, z, have);
  for (int which = 0; which < RESULTS; which++)
    for (int i = 0; i < F32_LANES; i++)
      check_special((double)NAN, which, have[which][i]);
  results_f32(&vec_activations_scalar, zeros, have);
  for (int i = 0; i < 2; i++) {
    T_EQ_F64(0.5, have[0][i]);
    T_EQ_F64(0.0, have[1][i]);
    T_EQ_INT(i, signbit(have[1][i]) != 0);
    T_EQ_F64(0.25, have[2][i]);
    T_EQ_F64(0.5, have[3][i]);
  }
}

static uint64_t hash(uint64_t sum, const void *numbers, rms_dtype type, int count) {
  for (int i = 0; i < count; i++)
    sum = (sum ^ t_element_bits((const char *)numbers + (size_t)i * rms_dtype_size(type), type)) *
          UINT64_C(0x100000001b3);
  return sum;
}

/* The bits of all results for all bf16 and f16 numbers, in f32 and in f64: other compilers and machines have the same.
 */
static void digests(void) {
  uint64_t narrow = UINT64_C(0xcbf29ce484222325), wide = narrow;
  for (int64_t base = 0; base < 2 * HALVES; base += F64_LANES) {
    float z[F32_LANES] = {0};
    double wide_z[F64_LANES];
    ref_activated_f32 results;
    ref_activated_f64 wide_results;
    for (int i = 0; i < F64_LANES; i++) {
      wide_z[i] = input(base + i, RMS_F64);
      z[i] = (float)wide_z[i];
    }
    vec_activations_scalar.f32(z, &results);
    vec_activations_scalar.f64(wide_z, &wide_results);
    narrow = hash(narrow, &results, RMS_F32, sizeof results / sizeof(float));
    wide = hash(wide, &wide_results, RMS_F64, sizeof wide_results / sizeof(double));
  }
  t_context("a change of these digests is a change of the contract in docs/numerics.md");
  T_EQ_INT(UINT64_C(0x563911bd2dc95812), narrow);
  T_EQ_INT(UINT64_C(0x85a2875859cf1552), wide);
}

/* ---- Every instruction set against scalar ---- */

static void same_bits(const char *isa, const ref_activations *activations) {
  if (!rms_isa_usable(isa)) {
    t_skip("compiled only: this CPU lacks it");
    return;
  }
  for (int64_t base = 0; base < input_count(); base += F32_LANES) {
    float z[F32_LANES];
    double wide[F32_LANES];
    for (int i = 0; i < F32_LANES; i++) {
      z[i] = (float)input(base + i, RMS_F32);
      wide[i] = input(base + i, RMS_F64);
    }
    ref_activated_f32 want, have;
    vec_activations_scalar.f32(z, &want);
    activations->f32(z, &have);
    t_context("f32, inputs from %d on", (int)base);
    T_EQ_ELEMENTS(&want, &have, RMS_F32, sizeof want / sizeof(float));
    for (int half = 0; half < F32_LANES; half += F64_LANES) {
      ref_activated_f64 want_wide, have_wide;
      vec_activations_scalar.f64(wide + half, &want_wide);
      activations->f64(wide + half, &have_wide);
      t_context("f64, inputs from %d on", (int)base + half);
      T_EQ_ELEMENTS(&want_wide, &have_wide, RMS_F64, sizeof want_wide / sizeof(double));
    }
  }
}

#ifdef RMS_WITH_AVX2
static void avx2(void) {
  same_bits("avx2", &vec_activations_avx2);
}
#endif

#ifdef RMS_WITH_AVX512
static void avx512(void) {
  same_bits("avx512", &vec_activations_avx512);
}

static void avx512_narrow(void) {
  same_bits("avx512", &vec_activations_avx512_narrow);
}

static void avx512_native(void) {
  same_bits("avx512bf16", &vec_activations_avx512_native);
}
#endif

#ifdef RMS_WITH_NEON
static void neon(void) {
  same_bits("neon", &vec_activations_neon);
}
#endif

int main(int argc, char **argv) {
  static const t_case cases[] = {
      {"within_bounds_f32", within_bounds_f32},
      {"within_bounds_f64", within_bounds_f64},
      {"zeros_and_nans", zeros_and_nans},
      {"digests", digests},
#ifdef RMS_WITH_AVX2
      {"avx2", avx2},
#endif
#ifdef RMS_WITH_AVX512
      {"avx512", avx512},
      {"avx512_narrow", avx512_narrow},
      {"avx512_native", avx512_native},
#endif
#ifdef RMS_WITH_NEON
      {"neon", neon},
#endif
  };
  return t_main(argc, argv, cases, T_COUNT(cases));
}
