/* SPDX-License-Identifier: MIT
 * The vector layer of every instruction set compiled in, each run if this CPU can. */
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

#if defined(__x86_64__)
static void avx2(void) {
  unless_unusable("avx2", vec_check_avx2);
}

static void avx512(void) {
  unless_unusable("avx512", vec_check_avx512);
}

static const t_case cases[] = {{"scalar", scalar}, {"avx2", avx2}, {"avx512", avx512}};
#elif defined(__aarch64__)
static void neon(void) {
  unless_unusable("neon", vec_check_neon);
}

static const t_case cases[] = {{"scalar", scalar}, {"neon", neon}};
#else
static const t_case cases[] = {{"scalar", scalar}};
#endif

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
