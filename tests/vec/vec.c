/* SPDX-License-Identifier: MIT
 * The vector layer of every instruction set compiled in (RMS_WITH_...), each run if this CPU can. */
#include "harness.h"
#include "reference.h"

static void unless_unusable(const char *isa, void (*check)(void)) {
  if (rms_isa_usable(isa))
    check();
  else
    t_skip("compiled only: this CPU lacks it");
}

static void scalar(void) {
  unless_unusable("scalar", vec_check_scalar);
}

#ifdef RMS_WITH_AVX2
static void avx2(void) {
  unless_unusable("avx2", vec_check_avx2);
}
#endif

#ifdef RMS_WITH_AVX512
static void avx512(void) {
  unless_unusable("avx512", vec_check_avx512);
}

static void avx512_narrow(void) {
  unless_unusable("avx512", vec_check_avx512_narrow);
}

static void avx512_native(void) {
  unless_unusable("avx512bf16", vec_check_avx512_native);
}
#endif

#ifdef RMS_WITH_NEON
static void neon(void) {
  unless_unusable("neon", vec_check_neon);
}
#endif

int main(int argc, char **argv) {
  static const t_case cases[] = {
      {"scalar", scalar},
#ifdef RMS_WITH_AVX2
      {"avx2", avx2},
#endif
#ifdef RMS_WITH_AVX512
      {"avx512", avx512}, {"avx512_narrow", avx512_narrow}, {"avx512_native", avx512_native},
#endif
#ifdef RMS_WITH_NEON
      {"neon", neon},
#endif
  };
  return t_main(argc, argv, cases, T_COUNT(cases));
}
