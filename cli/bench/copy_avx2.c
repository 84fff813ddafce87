/* SPDX-License-Identifier: MIT */
#include <immintrin.h>

typedef struct line {
  __m256i low, high;
} line;

static inline line line_load(const void *from) {
  return (line){_mm256_loadu_si256((const __m256i *)from), _mm256_loadu_si256((const __m256i *)from + 1)};
}

static inline void line_store(void *to, line value) {
  _mm256_storeu_si256((__m256i *)to, value.low);
  _mm256_storeu_si256((__m256i *)to + 1, value.high);
}

static inline void line_stream(void *to, line value) {
  _mm256_stream_si256((__m256i *)to, value.low);
  _mm256_stream_si256((__m256i *)to + 1, value.high);
}

static inline line line_mix(line a, line b) {
  return (line){_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}

static inline void line_fence(void) {
  _mm_sfence();
}

#define COPY_STORE_NAME  copy_avx2
#define COPY_STREAM_NAME copy_avx2_stream
#include "copy_lines.h"
