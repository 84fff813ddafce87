/* SPDX-License-Identifier: MIT
 *
 * The floating-point settings of a thread as one word, written anew for the tests: the library's own look at them is
 * what is tested. Settings that a machine lacks are not in its list; bits that its CPU lacks stay zero when they are
 * set. */
#ifndef RMSNORM_TESTS_FP_WORD_H
#define RMSNORM_TESTS_FP_WORD_H

#include <fenv.h>
#include <stdint.h>

typedef struct fp_setting {
  const char *name;
  uint64_t word;
} fp_setting;

#if defined(__SSE2_MATH__)
#include <xmmintrin.h>
enum { FP_WORD_DEFAULT = 0x1f80, FP_WORD_FLAGS = 0x3f };

static const fp_setting fp_settings[] = {
    {"flush to zero", 0x9f80}, {"denormals are zero", 0x1fc0}, {"both", 0x9fc0},       {"down", 0x3f80}, {"up", 0x5f80},
    {"toward zero", 0x7f80},   {"exceptions trap", 0x0000},    {"all of them", 0xe040}};

static inline uint64_t fp_word(void) {
  return _mm_getcsr();
}

static inline void fp_set_word(uint64_t word) {
  _mm_setcsr((unsigned)word);
}

#elif defined(__aarch64__)
enum { FP_WORD_DEFAULT = 0, FP_WORD_FLAGS = 0 };

static const fp_setting fp_settings[] = {{"flush to zero", 1 << 24},
                                         {"flush halves to zero", 1 << 19},
                                         {"default NaN", 1 << 25},
                                         {"alternative halves", 1 << 26},
                                         {"up", 1 << 22},
                                         {"down", 2 << 22},
                                         {"toward zero", 3 << 22},
                                         {"exceptions trap", 0x9f00},
                                         {"flush inputs, alternate handling, upper elements", 7},
                                         {"all of them", 0x07c89f07}};

static inline uint64_t fp_word(void) {
  uint64_t word;
  __asm__ volatile("mrs %0, fpcr" : "=r"(word));
  return word;
}

static inline void fp_set_word(uint64_t word) {
  __asm__ volatile("msr fpcr, %0" : : "r"(word));
}

#else
enum { FP_WORD_DEFAULT = FE_TONEAREST, FP_WORD_FLAGS = 0 };

static const fp_setting fp_settings[] = {{"down", FE_DOWNWARD}, {"up", FE_UPWARD}, {"toward zero", FE_TOWARDZERO}};

static inline uint64_t fp_word(void) {
  return (uint64_t)fegetround();
}

static inline void fp_set_word(uint64_t word) {
  fesetround((int)word);
}
#endif

#endif
