/* SPDX-License-Identifier: MIT
 * Quotients by an inverse, as src/cpu/kernels/quantise.h forms them, are the correctly rounded ones: for every
 * significand of bf16, or of f16, over significands of f32: one in 211, or all with RMSNORM_EFFORT=21100. */
#include "harness.h"

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

int main(int argc, char **argv) {
  static const t_case cases[] = {{"of_bf16", of_bf16}, {"of_f16", of_f16}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
