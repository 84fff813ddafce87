/* SPDX-License-Identifier: MIT
 * The software number types and double-double, against facts that do not come from them. */
#include <math.h>
#include <string.h>
#include "dd.h"
#include "harness.h"
#include "number.h"
#include "random.h"

/* Every 16-bit pattern survives the way to double and back; neighbours are in order and the middle rounds to even. */
static void every_half(rms_dtype dtype, uint16_t infinity) {
  for (uint32_t bits = 0; bits < infinity; bits++) {
    uint16_t pattern = (uint16_t)bits, next = (uint16_t)(bits + 1), back, negative = (uint16_t)(bits | 0x8000u);
    double value = verify_load(dtype, &pattern, 0), above = verify_load(dtype, &next, 0);
    t_context("%s pattern %04x", dtype == RMS_BF16 ? "bf16" : "f16", (unsigned)bits);
    verify_store(dtype, &back, 0, value);
    if (!T_EQ_INT(pattern, back)) return;
    verify_store(dtype, &back, 0, -value);
    if (!T_EQ_INT(negative, back)) return;
    if (!T_CHECK(value < above)) return;
    if (next == infinity) continue;
    double middle = value + (above - value) / 2, even = bits % 2 ? above : value;
    if (!T_EQ_F64(even, verify_round(dtype, middle))) return;
    if (!T_EQ_F64(value, verify_round(dtype, nextafter(middle, 0)))) return;
    if (!T_EQ_F64(above, verify_round(dtype, nextafter(middle, HUGE_VAL)))) return;
    if (!T_EQ_F64(above - value, verify_ulp(dtype, value))) return;
  }
}

static void bf16_patterns(void) {
  every_half(RMS_BF16, 0x7f80);
}
static void f16_patterns(void) {
  every_half(RMS_F16, 0x7c00);
}

static void known_values(void) {
  uint16_t one_bf16 = 0x3f80, one_f16 = 0x3c00, smallest_f16 = 1, most_f16 = 0x7bff;
  T_EQ_F64(1.0, verify_load(RMS_BF16, &one_bf16, 0));
  T_EQ_F64(1.0, verify_load(RMS_F16, &one_f16, 0));
  T_EQ_F64(0x1p-24, verify_load(RMS_F16, &smallest_f16, 0));
  T_EQ_F64(65504.0, verify_load(RMS_F16, &most_f16, 0));
  T_EQ_F64(65504.0, verify_round(RMS_F16, 65519.99));
  T_CHECK(isinf(verify_round(RMS_F16, 65520)));
  T_CHECK(isinf(verify_round(RMS_BF16, 3.4e38)));
  T_CHECK(isnan(verify_round(RMS_BF16, (double)NAN)));
  T_EQ_F64(0x1p-24, verify_unit_roundoff(RMS_F32));
  T_EQ_F64(0x1p-53, verify_unit_roundoff(RMS_F64));
  T_EQ_F64(0x1p-150, verify_underflow_unit(RMS_F32));
}

/* The compiler's own conversion to float is the reference. */
static void f32_rounding(void) {
  verify_random random = verify_random_start(t_seed(), 0);
  for (int i = 0; i < 200000; i++) {
    uint64_t bits = verify_random_bits(&random);
    double value;
    memcpy(&value, &bits, sizeof value);
    int exponent;
    double fraction = frexp(value, &exponent);
    if (isnan(value)) continue;
    value = ldexp(fraction, exponent % 160); /* mostly inside the range of f32, some at its ends */
    t_context("value %a", value);
    if (!T_EQ_F64((double)(float)value, verify_round(RMS_F32, value))) return;
  }
}

/* ---- double-double ---- */

static void dd_constants(void) {
  dd two = dd_sqrt(dd_from(2)), third = dd_divide(dd_from(1), dd_from(3));
  T_EQ_F64(1.4142135623730951, two.hi);
  T_NEAR(-9.667293313452913e-17, two.lo, 1e-31);
  T_EQ_F64(0x1.5555555555555p-2, third.hi);
  T_EQ_F64(0x1.5555555555555p-56, third.lo);
}

static double size(dd a) {
  return fabs(a.hi + a.lo);
}

/* Identities whose right sides are exact: (a+b)-a = b, (a*b)/b = a, sqrt(a)^2 = a, to 2^-100. */
static void dd_identities(void) {
  verify_random random = verify_random_start(t_seed(), 1);
  for (int i = 0; i < 20000; i++) {
    double part[4];
    for (int k = 0; k < 4; k++)
      part[k] = verify_random_normal(&random);
    dd a = dd_fast_sum(part[0], 0x1p-55 * part[1]), b = dd_fast_sum(part[2], 0x1p-55 * part[3]);
    if (fabs(a.hi) < 0x1p-10 || fabs(b.hi) < 0x1p-10) continue;
    T_NEAR(0, size(dd_subtract(dd_subtract(dd_add(a, b), a), b)), 0x1p-100 * (size(a) + size(b)));
    T_NEAR(0, size(dd_subtract(dd_divide(dd_multiply(a, b), b), a)), 0x1p-100 * size(a));
    dd positive = a.hi < 0 ? dd_negate(a) : a, root = dd_sqrt(positive);
    if (!T_NEAR(0, size(dd_subtract(dd_multiply(root, root), positive)), 0x1p-100 * size(a))) return;
  }
}

/* A sum just off the middle of two neighbours must not be rounded as the middle. */
static void dd_rounds_once(void) {
  double middle = 1 + 0x1p-24; /* between 1 and 1 + 2^-23 */
  T_EQ_F64(1.0, verify_round(RMS_F32, dd_to_odd(dd_from(middle))));
  T_EQ_F64(1 + 0x1p-23, verify_round(RMS_F32, dd_to_odd(dd_fast_sum(middle, 0x1p-90))));
  T_EQ_F64(1.0, verify_round(RMS_F32, dd_to_odd(dd_fast_sum(middle, -0x1p-90))));
  T_EQ_F64(-1 - 0x1p-23, verify_round(RMS_F32, dd_to_odd(dd_fast_sum(-middle, -0x1p-90))));
}

/* The generator must never change: seeds in reports stay meaningful. */
static void random_is_fixed(void) {
  verify_random a = verify_random_start(1, 0), b = verify_random_start(1, 1);
  uint64_t first = verify_random_bits(&a);
  T_CHECK(first != verify_random_bits(&b));
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; i++) {
    double z = verify_random_normal(&a);
    sum += z;
    squares += z * z;
    if (!T_CHECK(fabs(z) < 6)) return;
  }
  T_NEAR(0, sum / 100000, 5 / sqrt(100000.0)); /* five standard deviations */
  T_NEAR(1, squares / 100000, 5 * sqrt(2 / 100000.0));
}

static const t_case cases[] = {
    {"bf16_patterns", bf16_patterns},   {"f16_patterns", f16_patterns},       {"known_values", known_values},
    {"f32_rounding", f32_rounding},     {"dd_constants", dd_constants},       {"dd_identities", dd_identities},
    {"dd_rounds_once", dd_rounds_once}, {"random_is_fixed", random_is_fixed},
};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
