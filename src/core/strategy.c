/* SPDX-License-Identifier: MIT */
#include "strategy.h"
#include <stdatomic.h>
#include <time.h>
#include "run.h"

enum {
  SAMPLES = 9,           /* of each way: the middle one counts, so that a thread that was held up does not decide */
  PIECE_BYTES = 1 << 20, /* what a sample moves, so that its ends do not show; a quarter of it at least            */
};

typedef struct {
  _Atomic int started, finished;           /* samples                                    */
  _Atomic int64_t time[RMS_WAYS][SAMPLES]; /* nanoseconds for PIECE_BYTES, of every way  */
  _Atomic bool known;
  _Atomic int quickest; /* rms_way */
} trial;

static trial trials[RMS_MOST_ISAS][RMS_DIRECTIONS];

bool rms_strategy_known(int isa, rms_direction direction) {
  return atomic_load_explicit(&trials[isa][direction].known, memory_order_acquire);
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
  if (atomic_load_explicit(&t->started, memory_order_relaxed) >= RMS_WAYS * SAMPLES) return -1;
  int number = atomic_fetch_add_explicit(&t->started, 1, memory_order_relaxed);
  return number < RMS_WAYS * SAMPLES ? number : -1;
}

/* In turn, and each way first in its turn: the first sample of a call finds the caches in another state. */
static rms_way way_of(int number) {
  return (rms_way)((number + number / RMS_WAYS) % RMS_WAYS);
}

static void end_sample(trial *t, int number, int64_t nanoseconds, int64_t bytes) {
  atomic_store_explicit(&t->time[way_of(number)][number / RMS_WAYS], nanoseconds * PIECE_BYTES / bytes,
                        memory_order_relaxed);
  if (atomic_fetch_add_explicit(&t->finished, 1, memory_order_acq_rel) != RMS_WAYS * SAMPLES - 1) return;
  int quickest = 0;
  for (int way = 1; way < RMS_WAYS; way++)
    if (middle_sample(t->time[way]) < middle_sample(t->time[quickest])) quickest = way;
  atomic_store_explicit(&t->quickest, quickest, memory_order_relaxed);
  atomic_store_explicit(&t->known, true, memory_order_release);
}

void rms_run_strategy(int isa, rms_direction direction, int64_t bytes_each, int64_t first, int64_t last,
                      void (*run)(const void *arg, int64_t from, int64_t to, rms_way way), const void *arg) {
  trial *t = &trials[isa][direction];
  const bool known = rms_strategy_known(isa, direction);
  const int64_t piece = bytes_each < PIECE_BYTES ? PIECE_BYTES / bytes_each : 1;
  /* The last pieces of a call's first task are samples, at most one of each way: the caches are in use by then as they
   * are in most of the call, and no single call decides. A task too small for them gives fewer, or none. */
  int64_t end = last;
  if (!known && first == 0) end = last - first > RMS_WAYS * piece ? last - RMS_WAYS * piece : first;
  const rms_way usual = (rms_way)atomic_load_explicit(&t->quickest, memory_order_relaxed);
  if (first < end) run(arg, first, end, usual);
  for (; end < last; end += piece) {
    const int64_t next = last - end > piece ? end + piece : last;
    const int number = (next - end) * bytes_each >= PIECE_BYTES / 4 ? next_sample(t) : -1;
    const int64_t start = nanoseconds_now();
    run(arg, end, next, number < 0 ? usual : way_of(number));
    if (number >= 0) end_sample(t, number, nanoseconds_now() - start, (next - end) * bytes_each);
  }
}
