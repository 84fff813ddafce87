/* SPDX-License-Identifier: MIT
 *
 * The copy loops, written once. The including file defines
 *   line                            64 bytes in registers
 *   line_load, line_store,
 *   line_stream, line_mix           stream: a store that bypasses the caches; mix: uses up a read that nothing stores
 *   line_fence                      after the last line_stream
 *   COPY_STORE_NAME, COPY_STREAM_NAME   the two functions */
#include <stdint.h>
#include <string.h>

#include "copy.h"

static volatile char copy_sink; /* reads that are stored nowhere end here, so that they are done */

static inline __attribute__((always_inline)) void copy_body(const copy_buffers *s, size_t begin, size_t end, int reads,
                                                            int writes, int bypass) {
  line mixed = {0};
  size_t whole = begin + (end - begin) / 64 * 64;
  for (size_t at = begin; at < whole; at += 64) {
    line last = mixed;
    for (int i = 0; i < reads || i < writes; i++) {
      if (i < reads) last = line_load((const char *)s->reads[i] + at);
      if (i >= writes)
        mixed = line_mix(mixed, last);
      else if (bypass)
        line_stream((char *)s->writes[i] + at, last);
      else
        line_store((char *)s->writes[i] + at, last);
    }
  }
  char out[64];
  line_store(out, mixed);
  copy_sink = out[0];
  for (int i = 0; i < writes; i++)
    memcpy((char *)s->writes[i] + whole, (const char *)s->reads[i < reads ? i : reads - 1] + whole, end - whole);
}

/* The counts become constants of each loop. */
static inline __attribute__((always_inline)) void copy_mix(const copy_buffers *s, size_t begin, size_t end,
                                                           int bypass) {
  switch (s->read_count * 16 + s->write_count) {
  case 1 * 16 + 1:
    copy_body(s, begin, end, 1, 1, bypass);
    break;
  case 2 * 16 + 1:
    copy_body(s, begin, end, 2, 1, bypass);
    break;
  case 2 * 16 + 2:
    copy_body(s, begin, end, 2, 2, bypass);
    break;
  case 3 * 16 + 1:
    copy_body(s, begin, end, 3, 1, bypass);
    break;
  case 4 * 16 + 1:
    copy_body(s, begin, end, 4, 1, bypass);
    break;
  default:
    copy_body(s, begin, end, s->read_count, s->write_count, bypass);
  }
}

void COPY_STORE_NAME(const copy_buffers *buffers, size_t begin, size_t end) {
  copy_mix(buffers, begin, end, 0);
}

void COPY_STREAM_NAME(const copy_buffers *buffers, size_t begin, size_t end) {
  copy_mix(buffers, begin, end, 1);
  line_fence();
}
