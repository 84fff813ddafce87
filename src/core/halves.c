/* SPDX-License-Identifier: MIT */
#include "halves.h"
#include <time.h>
#include "fp_env.h"

enum { HALVES_WIDTH = 512, HALVES_CALLS = 16, HALVES_ROUNDS = 5 };

/* Nanoseconds of a few calls on a row in the first-level cache. */
static int64_t time_rows(const rms_kernels *kernels, uint16_t *y, const uint16_t *x) {
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (int i = 0; i < HALVES_CALLS; i++)
    kernels->row[RMS_F16]((char *)y, (const char *)x, (const char *)x, HALVES_WIDTH, HALVES_WIDTH, 1, false, false);
  clock_gettime(CLOCK_MONOTONIC, &to);
  return (int64_t)(to.tv_sec - from.tv_sec) * 1000000000 + (to.tv_nsec - from.tv_nsec);
}

bool rms_halves_are_quicker(const rms_kernels *narrow, const rms_kernels *wide) {
  uint16_t x[HALVES_WIDTH], y[HALVES_WIDTH];
  int64_t least[2] = {INT64_MAX, INT64_MAX}; /* a thread that is held up does not decide */
  for (int i = 0; i < HALVES_WIDTH; i++)
    x[i] = 0x3c00; /* 1 */
  const rms_fp_word callers = rms_fp_enter();
  for (int i = 0; i < 2 * HALVES_ROUNDS; i++) {
    const int64_t time = time_rows(i % 2 ? wide : narrow, y, x);
    if (time < least[i % 2]) least[i % 2] = time;
  }
  rms_fp_leave(callers);
  return least[0] * 20 < least[1] * 19;
}
