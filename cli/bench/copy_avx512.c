/* SPDX-License-Identifier: MIT */
#include <immintrin.h>

typedef __m512i line;

static inline line line_load(const void *from) {
  return _mm512_loadu_si512(from);
}

static inline void line_store(void *to, line value) {
  _mm512_storeu_si512(to, value);
}

static inline void line_stream(void *to, line value) {
  _mm512_stream_si512((__m512i *)to, value);
}

static inline line line_mix(line a, line b) {
  return _mm512_xor_si512(a, b);
}

static inline void line_fence(void) {
  _mm_sfence();
}

#define COPY_STORE_NAME  copy_avx512
#define COPY_STREAM_NAME copy_avx512_stream
#include "copy_lines.h"
