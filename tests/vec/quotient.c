/* SPDX-License-Identifier: MIT
 * Quotients by an inverse, as src/cpu/kernels/quantise.h forms them, are the correctly rounded ones: for every
 * significand of bf16, or of f16, over significands of f32: one in 211, or all with RMSNORM_EFFORT=21100; for
 * significands of f32 at random and beside the middles of their quotients. What else those kernels count on. */
#include "harness.h"
#include "../../src/cpu/convert.h"

#include <math.h>
#include <string.h>

static float number(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint32_t step(void) {
  const int64_t most = 21100 / t_effort(100);
  return most > 1 ? (uint32_t)most : 1u;
}

static void walk(int digits, uint32_t apart) {
  for (uint32_t s = (uint32_t)(t_seed() % apart); s < 1u << 23; s += apart) {
    const float scale = number(0x3f800000u | s), inverse = 1 / scale;
    for (uint32_t y = 0; y < 1u << digits; y++) {
      const float a = number(0x3f800000u | y << (23 - digits)), t = a * inverse;
      const float have = fmaf(fmaf(t, scale, -a), -inverse, t), want = a / scale;
      if (memcmp(&have, &want, sizeof have) != 0) {
        t_context("y = %a, s = %a", (double)a, (double)scale);
        T_EQ_F64((double)want, (double)have);
        return;
      }
    }
  }
  T_CHECK(1);
}

static void of_bf16(void) {
  walk(7, step());
}

static void of_f16(void) {
  walk(10, 8 * step());
}

static float corrected(float t, float y, float s, float inverse) {
  return fmaf(fmaf(t, s, -y), -inverse, t);
}

static int is_quotient(float y, float s) {
  const float inverse = 1 / s, want = y / s;
  const float have = corrected(corrected(y * inverse, y, s, inverse), y, s, inverse);
  t_context("y = %a, s = %a", (double)y, (double)s);
  return T_EQ_F64((double)want, (double)have);
}

/* Two corrections. */
static void of_f32(void) {
  t_rng rng = t_rng_make(160);
  for (int64_t i = 0; i < t_effort(400000) && t_failures() == 0; i++) {
    const uint64_t bits = t_random(&rng);
    const float s = number(0x3f800000u | (uint32_t)(bits & 0x7fffff)), y = number(0x3f800000u | (uint32_t)(bits >> 41));
    is_quotient(y, s);
    /* quotients that are nearly a number, or nearly a middle of two: the product of one of those, rounded */
    is_quotient((float)((double)y * (double)s), s);
    is_quotient((float)(((double)y + 0x1p-24) * (double)s), s);
    is_quotient(y, number(0x3fffffffu - (uint32_t)(i & 1023)));
  }
}

/* v times 2^16 + 1, less the product's excess over v, is v rounded to bf16: every significand, both signs, and zeros.
 */
static void splitting(void) {
  const int64_t effort = t_effort(100);
  for (uint32_t k = 0; k < 1u << 24 && t_failures() == 0; k += effort < 100 ? 101 : 1) {
    const uint32_t bits = (k & 1) << 31 | 0x3f800000u | k >> 1;
    const float v = number(bits), product = v * 65537;
    t_context("v = %a", (double)v);
    T_EQ_F64((double)rms_f32_from_bf16(rms_bf16_from_f32(v)), (double)(product - (product - v)));
  }
  const volatile float zero = -0.0f;
  const float product = zero * 65537;
  T_CHECK(signbit(product - (product - zero)));
}

static int product_suffices(float s, float splitter) {
  for (int odd = 1; odd < 32; odd += 2) {
    const float middle = s * (float)odd, product = middle * splitter;
    if (!(middle * 0x1p-20f < fabsf(middle - (product - (product - middle))))) return 0;
  }
  return 1;
}

/* Whether y/s and y times the inverse have the same codes, wherever between zero and the largest number y stands. */
static int same_codes(float y, float s) {
  const float inverse = 1 / s;
  for (int e = -20; e < 9; e++) {
    const float scaled = ldexpf(y, e);
    if (rms_f8_from_f32(scaled * inverse, &rms_e4m3) != rms_f8_from_f32(scaled / s, &rms_e4m3)) return 0;
    if (rms_f8_from_f32(scaled * inverse, &rms_e5m2) != rms_f8_from_f32(scaled / s, &rms_e5m2)) return 0;
  }
  return 1;
}

/* Scales beside those for which some y is the middle of two numbers of q. */
static void products(void) {
  int differ = 0;
  for (int digits = 7; digits <= 10; digits += 3)
    for (uint32_t k = 0; k < 1u << digits; k += digits == 7 ? 1 : 15)
      for (int odd = 1; odd < 32; odd += 2)
        for (int off = -16; off <= 16 && t_failures() == 0; off++) {
          const float y = number(0x3f800000u | k << (23 - digits));
          const float s = number(rms_bits_f32(y / (float)odd) + (uint32_t)off);
          const int same = same_codes(y, s);
          t_context("y = %a, s = %a", (double)y, (double)s);
          if (!same) T_CHECK(!product_suffices(s, digits == 7 ? 65537 : 8193));
          differ += !same;
        }
  T_CHECK(differ > 0);
}

/* Products with both parts of the inverse, as src/cuda/quantise.cuh forms quotients: correctly rounded beside every
 * middle between two numbers of q, which is where a code could tell. */
static void of_parts(void) {
  for (uint32_t k = (uint32_t)(t_seed() % step()); k < 1u << 23; k += step()) {
    const float s = number(0x3f800000u | k), nearest = 1 / s;
    const float high = fmaf(-s, nearest, 1) < 0 ? number(rms_bits_f32(nearest) - 1) : nearest;
    const float low = fmaf(-s, high, 1) * number(rms_bits_f32(high) + 1);
    for (int digits = 7; digits <= 10; digits += 3)
      for (int odd = 1; odd < 256; odd += 2) {
        const uint32_t beyond = (1u << (23 - digits)) - 1, middle = rms_bits_f32((float)odd * s);
        const float y = number((middle + beyond / 2 + 1) & ~beyond);
        const float have = fmaf(y, high, y * low), want = y / s;
        if (((middle + 8) & beyond) > 16 || memcmp(&have, &want, sizeof have) == 0) continue;
        t_context("y = %a, s = %a", (double)y, (double)s);
        T_EQ_F64((double)want, (double)have);
        return;
      }
  }
  T_CHECK(1);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"of_bf16", of_bf16},     {"of_f16", of_f16},     {"of_f32", of_f32},
                                 {"splitting", splitting}, {"products", products}, {"of_parts", of_parts}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
