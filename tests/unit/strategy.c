/* SPDX-License-Identifier: MIT
 * The choice between the ways of writing rows past the caches: every row is done once whatever is being timed, from
 * several threads at once too, and the results do not depend on it. Memory that nobody has touched yet is not written
 * past the caches. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include "../../src/core/strategy.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "../../src/core/run.h"
#include "call.h"
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { THREADS = 4, UNITS = 1000, UNIT_BYTES = 64 << 10, ROWS = 600, COLS = 4096 };

static _Atomic int done[THREADS][UNITS], ways[RMS_WAYS];

static void mark(const void *arg, int64_t from, int64_t to, rms_way way) {
  _Atomic int *units = (_Atomic int *)(uintptr_t)arg;
  for (int64_t i = from; i < to; i++)
    atomic_fetch_add(&units[i], 1);
  atomic_fetch_add(&ways[way], 1);
}

static void *run_all(void *units) {
  rms_run_strategy(0, RMS_BACKWARD, UNIT_BYTES, 0, UNITS, mark, units);
  return NULL;
}

/* One sample of each way in a call at most, nine of each. */
static void every_unit_once(void) {
  pthread_t thread[THREADS];
  int calls = 0;
  T_CHECK(!rms_strategy_known(0, RMS_BACKWARD));
  for (; !rms_strategy_known(0, RMS_BACKWARD) && calls < 9; calls++) {
    memset(done, 0, sizeof done);
    for (int t = 0; t < THREADS; t++)
      T_EQ_INT(0, pthread_create(&thread[t], NULL, run_all, done[t]));
    for (int t = 0; t < THREADS; t++)
      T_EQ_INT(0, pthread_join(thread[t], NULL));
    for (int t = 0; t < THREADS; t++)
      for (int i = 0; i < UNITS; i++)
        T_EQ_INT(1, atomic_load(&done[t][i]));
  }
  T_CHECK(rms_strategy_known(0, RMS_BACKWARD));
  T_CHECK(calls * THREADS >= 9);
  for (int way = 0; way < RMS_WAYS; way++)
    T_CHECK(atomic_load(&ways[way]) >= 9);
}

static rms_status forward(float *y, const float *x, const float *weight) {
  return rms_norm_f32(y, x, weight, ROWS, COLS, 1e-6);
}

/* Without streams, while all ways are timed, and after that. */
static void same_results(void) {
  const size_t bytes = sizeof(float) * ROWS * COLS;
  float *x = aligned_alloc(64, bytes), *want = aligned_alloc(64, bytes), *y = aligned_alloc(64, bytes), weight[COLS];
  t_fill(x, RMS_F32, (int64_t)ROWS * COLS, T_NORMAL, t_seed(), 1, 0);
  t_fill(weight, RMS_F32, COLS, T_NORMAL, t_seed(), 2, 0);
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(INT64_MAX));
  T_EQ_STATUS(RMS_OK, forward(want, x, weight));
  const int isa = rms_isa_number(rms_active_kernels());
  T_CHECK(!rms_strategy_known(isa, RMS_FORWARD));
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(0));
  for (int call = 0; call < 10; call++) {
    memset(y, 0, bytes);
    T_EQ_STATUS(RMS_OK, forward(y, x, weight));
    T_EQ_BYTES(want, y, bytes);
  }
  T_CHECK(rms_strategy_known(isa, RMS_FORWARD));
  for (int other = 0; other < RMS_MOST_ISAS; other++)
    T_CHECK(other == isa || !rms_strategy_known(other, RMS_FORWARD));
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(-1));
  free(x);
  free(want);
  free(y);
}

#if defined(__linux__)
/* Pages are mapped in by the first store to them; the row in the middle decides. */
static void untouched_memory(void) {
  const size_t bytes = sizeof(float) * ROWS * COLS;
  float *x = aligned_alloc(64, bytes), *want = aligned_alloc(64, bytes), weight[COLS];
  char *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const rms_layout lay = {.inner = 1, .groups = 1, .width = COLS};
  const rms_rows rows = {.data = fresh, .outer = COLS * sizeof(float), .inner = 0};
  t_fill(x, RMS_F32, (int64_t)ROWS * COLS, T_NORMAL, t_seed(), 1, 0);
  t_fill(weight, RMS_F32, COLS, T_NORMAL, t_seed(), 2, 0);
  if (!T_CHECK(fresh != MAP_FAILED)) return;
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(0));
  T_EQ_STATUS(RMS_OK, forward(want, x, weight));
  unsigned char resident = 1; /* some systems say so of every page */
  T_EQ_INT(0, mincore(fresh, 1, &resident));
  T_EQ_INT(resident & 1, rms_can_stream(&rows, &lay, COLS * sizeof(float), ROWS));
  T_EQ_STATUS(RMS_OK, forward((float *)(void *)fresh, x, weight));
  T_EQ_BYTES(want, fresh, bytes);
  T_CHECK(rms_can_stream(&rows, &lay, COLS * sizeof(float), ROWS));
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(-1));
  T_EQ_INT(0, munmap(fresh, bytes));
  free(x);
  free(want);
}
#endif

int main(int argc, char **argv) {
  static const t_case cases[] = {
    {"every_unit_once", every_unit_once},
    {"same_results", same_results},
#if defined(__linux__)
    {"untouched_memory", untouched_memory}
#endif
  };
  return t_main(argc, argv, cases, T_COUNT(cases));
}
