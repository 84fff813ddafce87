/* SPDX-License-Identifier: MIT */
#include "strategy.h"
#include <stdatomic.h>
#include <time.h>

enum {
  SAMPLES = 9,           /* of each way: the middle one counts, so that a thread that was held up does not decide */
  PIECE_BYTES = 1 << 20, /* what a sample moves, so that its ends do not show; a quarter of it at least            */
};

typedef struct {
  _Atomic int started, finished;    /* samples                                   */
  _Atomic int64_t time[2][SAMPLES]; /* nanoseconds for PIECE_BYTES, of both ways */
  _Atomic bool known, large_batches;
} trial;

static trial trials[RMS_DIRECTIONS];

bool rms_strategy_known(rms_direction direction) {
  return atomic_load_explicit(&trials[direction].known, memory_order_acquire);
}

static int64_t nanoseconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t middle_sample(_Atomic int64_t *samples) {
  int64_t sorted[SAMPLES];
  for (int i = 0; i < SAMPLES; i++) {
    int64_t time = atomic_load_explicit(&samples[i], memory_order_relaxed);
    int at = i;
    for (; at > 0 && sorted[at - 1] > time; at--)
      sorted[at] = sorted[at - 1];
    sorted[at] = time;
  }
  return sorted[SAMPLES / 2];
}

/* The next sample's number, or -1 if there are enough. */
static int next_sample(trial *t) {
  if (atomic_load_explicit(&t->started, memory_order_relaxed) >= 2 * SAMPLES) return -1;
  int number = atomic_fetch_add_explicit(&t->started, 1, memory_order_relaxed);
  return number < 2 * SAMPLES ? number : -1;
}

static void end_sample(trial *t, int number, int64_t nanoseconds, int64_t bytes) {
  atomic_store_explicit(&t->time[number % 2][number / 2], nanoseconds * PIECE_BYTES / bytes, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&t->finished, 1, memory_order_acq_rel) != 2 * SAMPLES - 1) return;
  atomic_store_explicit(&t->large_batches, middle_sample(t->time[1]) < middle_sample(t->time[0]), memory_order_relaxed);
  atomic_store_explicit(&t->known, true, memory_order_release);
}

void rms_run_strategy(rms_direction direction, int64_t bytes_each, int64_t first, int64_t last,
                      void (*run)(const void *arg, int64_t from, int64_t to, bool large_batches), const void *arg) {
  trial *t = &trials[direction];
  const int64_t piece = bytes_each < PIECE_BYTES ? PIECE_BYTES / bytes_each : 1;
  while (!rms_strategy_known(direction) && (last - first) * bytes_each >= PIECE_BYTES / 4) {
    const int64_t end = last - first > piece ? first + piece : last;
    const int number = next_sample(t);
    if (number < 0) break;
    const int64_t start = nanoseconds_now();
    run(arg, first, end, number % 2 == 1);
    end_sample(t, number, nanoseconds_now() - start, (end - first) * bytes_each);
    first = end;
  }
  if (first < last) run(arg, first, last, atomic_load_explicit(&t->large_batches, memory_order_relaxed));
}
