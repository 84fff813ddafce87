/* SPDX-License-Identifier: MIT
 * The library's own fma, for systems whose C library rounds twice, against the one of a C library that does not. */
#include "../../src/cpu/exact.h"
#include "harness.h"

static void same_f64(double a, double b, double c) {
  double expected = fma(a, b, c), actual = rms_soft_fma(a, b, c);
  t_context("fma(%a, %a, %a)", a, b, c);
  T_EQ_ELEMENTS(&expected, &actual, RMS_F64, 1);
}

static void same_f32(float a, float b, float c) {
  float expected = fmaf(a, b, c), actual = rms_soft_fmaf(a, b, c);
  t_context("fmaf(%a, %a, %a)", (double)a, (double)b, (double)c);
  T_EQ_ELEMENTS(&expected, &actual, RMS_F32, 1);
}

static const double edges[] = {0.0,
                               1.0,
                               1.5,
                               1 + 0x1p-23,
                               1 + 0x1p-52,
                               0x1p-53,
                               3.402823466385288598e38,
                               0x1p-126,
                               0x1p-149,
                               0x1p-75,
                               1.7976931348623157e308,
                               0x1p-1022,
                               0x1p-1074,
                               0x1.fffffffffffffp-1023,
                               0x1p-538,
                               0x1p511,
                               (double)INFINITY,
                               (double)NAN};
enum { EDGES = 2 * sizeof edges / sizeof edges[0] };

static double edge(int i) {
  return i % 2 ? -edges[i / 2] : edges[i / 2];
}

static void at_the_edges(void) {
  for (int a = 0; a < EDGES; a++)
    for (int b = 0; b < EDGES; b++)
      for (int c = 0; c < EDGES; c++) {
        same_f64(edge(a), edge(b), edge(c));
        same_f32((float)edge(a), (float)edge(b), (float)edge(c));
      }
}

/* A number of either sign and any exponent within 2^-span..2^span, often with few bits, so that sums meet
 * their halves. */
static double some_number(t_rng *rng, int span) {
  uint64_t fraction = t_random(rng) >> 12;
  if (t_random_below(rng, 2)) fraction &= ~UINT64_C(0) << t_random_below(rng, 53);
  double magnitude = ldexp(1 + (double)fraction * 0x1p-52, (int)t_random_below(rng, 2 * span + 1) - span);
  return t_random_below(rng, 2) ? magnitude : -magnitude;
}

/* The addend lies anywhere around the product, or cancels it all but for the last bits. */
static double near_product(t_rng *rng, double product) {
  if (t_random_below(rng, 3) == 0) return -product * (1 + (double)(t_random_below(rng, 9) - 4) * 0x1p-52);
  return product * some_number(rng, 110);
}

static void at_random(void) {
  t_rng rng = t_rng_make(0);
  for (int i = 0; i < t_effort(400000); i++) {
    double a = some_number(&rng, i % 2 ? 60 : 600), b = some_number(&rng, i % 2 ? 60 : 600);
    same_f64(a, b, near_product(&rng, a * b));
    float f = (float)some_number(&rng, i % 2 ? 20 : 100), g = (float)some_number(&rng, i % 2 ? 20 : 100);
    same_f32(f, g, (float)near_product(&rng, (double)f * (double)g));
  }
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"at_the_edges", at_the_edges}, {"at_random", at_random}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
