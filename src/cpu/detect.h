/* SPDX-License-Identifier: MIT
 *
 * What this CPU and operating system can run. */
#ifndef RMS_CPU_DETECT_H
#define RMS_CPU_DETECT_H

#include <string.h>

static inline int rms_cpu_any(void) {
  return 1;
}

#if defined(__x86_64__)
#include <cpuid.h>

typedef struct {
  unsigned int ecx1, ebx7, state;
} rms_cpu_words;

static inline rms_cpu_words rms_cpu_read(void) {
  rms_cpu_words w = {0, 0, 0};
  unsigned int a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return w;
  w.ecx1 = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) w.ebx7 = b;
  if (w.ecx1 & bit_OSXSAVE) __asm__("xgetbv" : "=a"(w.state), "=d"(d) : "c"(0));
  return w;
}

static inline int rms_cpu_has_avx2(void) {
  rms_cpu_words w = rms_cpu_read();
  const unsigned int one = bit_FMA | bit_F16C | bit_AVX | bit_OSXSAVE, ymm_state = 0x6;
  return (w.ecx1 & one) == one && (w.ebx7 & bit_AVX2) && (w.state & ymm_state) == ymm_state;
}

static inline int rms_cpu_is_amd(void) {
  unsigned int a, name[3];
  return __get_cpuid(0, &a, &name[0], &name[2], &name[1]) && !memcmp(name, "AuthenticAMD", sizeof name);
}

static inline int rms_cpu_has_avx512(void) {
  rms_cpu_words w = rms_cpu_read();
  const unsigned int seven = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL, zmm_state = 0xe6;
  return rms_cpu_has_avx2() && (w.ebx7 & seven) == seven && (w.state & zmm_state) == zmm_state;
}
#else
static inline int rms_cpu_is_amd(void) {
  return 0;
}
#endif

#endif
