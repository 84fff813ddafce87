/* SPDX-License-Identifier: MIT
 *
 * What this CPU and operating system can run. */
#ifndef RMS_CPU_DETECT_H
#define RMS_CPU_DETECT_H

#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* Bytes of the second and of the third level of cache that a core has its data in; 0: none, or not known. */
typedef struct {
  int64_t second, third;
} rms_cpu_caches;

static inline int rms_cpu_any(void) {
  return 1;
}

#if defined(__x86_64__)
#include <cpuid.h>

typedef struct {
  unsigned int ecx1, ebx7, eax71, state;
} rms_cpu_words;

static inline rms_cpu_words rms_cpu_read(void) {
  rms_cpu_words w = {0, 0, 0, 0};
  unsigned int a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return w;
  w.ecx1 = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    w.ebx7 = b;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) w.eax71 = a;
  }
  if (w.ecx1 & bit_OSXSAVE) __asm__("xgetbv" : "=a"(w.state), "=d"(d) : "c"(0));
  return w;
}

static inline int rms_cpu_has_avx2(void) {
  rms_cpu_words w = rms_cpu_read();
  const unsigned int one = bit_FMA | bit_F16C | bit_AVX | bit_OSXSAVE, ymm_state = 0x6;
  return (w.ecx1 & one) == one && (w.ebx7 & bit_AVX2) && (w.state & ymm_state) == ymm_state;
}

/* The leaf that describes each cache by itself: sysconf() may report the sum of all third-level caches of a socket. */
static inline rms_cpu_caches rms_cpu_find_caches(void) {
  rms_cpu_caches caches = {0, 0};
  unsigned int a, b, c, d;
  const unsigned int extended = 0x8000001d, has_extended = 1u << 22; /* in ecx of 0x80000001 */
  unsigned int leaf = __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & has_extended) ? extended : 4;
  for (unsigned int i = 0; i < 8 && __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & 31) != 0; i++) {
    const int64_t ways = (b >> 22) + 1, parts = (b >> 12 & 0x3ff) + 1, line = (b & 0xfff) + 1, sets = (int64_t)c + 1;
    const unsigned int level = a >> 5 & 7;
    if (level == 2) caches.second = ways * parts * line * sets;
    if (level == 3) caches.third = ways * parts * line * sets;
  }
  return caches;
}

static inline int rms_cpu_has_avx512(void) {
  rms_cpu_words w = rms_cpu_read();
  const unsigned int seven = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL, zmm_state = 0xe6;
  return rms_cpu_has_avx2() && (w.ebx7 & seven) == seven && (w.state & zmm_state) == zmm_state;
}

static inline int rms_cpu_has_avx512_bf16(void) {
  const unsigned int bf16 = 1u << 5;
  return rms_cpu_has_avx512() && (rms_cpu_read().eax71 & bf16);
}
#else
static inline rms_cpu_caches rms_cpu_find_caches(void) {
  rms_cpu_caches caches = {0, 0};
#ifdef _SC_LEVEL3_CACHE_SIZE
  caches.second = (int64_t)sysconf(_SC_LEVEL2_CACHE_SIZE);
  caches.third = (int64_t)sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
  return caches;
}

#endif

#endif
