/* SPDX-License-Identifier: MIT */
#include "strategy.h"
#include <stdatomic.h>
#include <time.h>
#include "run.h"

enum {
  SAMPLES = 9,           /* of each way: the middle one counts, so that a thread that was held up does not decide */
  PIECE_BYTES = 1 << 20, /* what a sample moves, so that its ends do not show; a quarter of it at least            */
};

/* The usual way comes first. */
typedef struct {
  int count;
  rms_way ways[3];
} choice;

typedef struct {
  _Atomic int started, finished;    /* samples                                    */
  _Atomic int32_t time[3][SAMPLES]; /* nanoseconds for PIECE_BYTES, of every way  */
  _Atomic bool known;
  _Atomic int quickest; /* the number of a way in the choice */
} trial;

static trial trials[RMS_MOST_ISAS][RMS_ROW_KINDS];

/* Bits of a kind of rows. Norms that take different times are different kinds, or a way would win because more of its
 * samples were of the cheaper one; partial ones are so in a forward alone. Narrow: of a 16-bit type. A larger row is a
 * short one of more than some lines, or a wide one of more than a page or two. */
enum { LAYER = 1, NARROW = 2, LARGER = 4, WIDE = 8, BACKWARD = 16, PARTIAL = 32 };

static const choice *choice_of(rms_row_kind kind) {
  static const choice forward = {3, {RMS_WAY_FETCH, RMS_WAY_SPACED, RMS_WAY_BATCHES}};
  static const choice short_backward = {3, {RMS_WAY_FETCH, RMS_WAY_BURST, RMS_WAY_LEFT}};
  static const choice wide_backward = {3, {RMS_WAY_FETCH, RMS_WAY_BATCHES, RMS_WAY_LEFT}};
  static const choice narrow_backward = {3, {RMS_WAY_BATCHES, RMS_WAY_FETCH, RMS_WAY_LEFT}};
  if (!(kind & BACKWARD)) return &forward;
  if (!(kind & WIDE)) return &short_backward;
  return kind & NARROW ? &narrow_backward : &wide_backward;
}

rms_way rms_usual_way(rms_direction direction, rms_dtype type) {
  return direction == RMS_BACKWARD && rms_dtype_size(type) == 2 ? RMS_WAY_BATCHES : RMS_WAY_FETCH;
}

rms_row_kind rms_row_kind_of(rms_direction direction, const rms_layout *lay) {
  const int64_t bytes = lay->width * (int64_t)rms_dtype_size(lay->dtype), some_lines = 256, pages = 16 * 1024;
  const bool narrow = rms_dtype_size(lay->dtype) == 2, layer = lay->kind == RMS_KIND_LAYER;
  const bool backward = direction == RMS_BACKWARD;
  const int64_t is_short = 1024, is_wide = backward ? RMS_WIDE_BYTES / 2 : RMS_WIDE_BYTES;
  const rms_row_kind kind = (layer ? LAYER : 0) | (narrow ? NARROW : 0) |
                            (backward              ? BACKWARD
                             : lay->k < lay->width ? PARTIAL
                                                   : 0);
  if (backward && bytes <= is_short) return kind | (bytes > some_lines ? LARGER : 0);
  /* in a forward with more arithmetic the ways do not differ by much */
  if (bytes <= is_wide || (!backward && (narrow || layer))) return RMS_ONE_WAY;
  return kind | WIDE | (bytes > pages ? LARGER : 0);
}

bool rms_strategy_known(int isa, rms_row_kind kind) {
  return atomic_load_explicit(&trials[isa][kind].known, memory_order_acquire);
}

static int64_t nanoseconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t middle_sample(_Atomic int32_t *samples) {
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
static int next_sample(trial *t, int ways) {
  if (atomic_load_explicit(&t->started, memory_order_relaxed) >= ways * SAMPLES) return -1;
  int number = atomic_fetch_add_explicit(&t->started, 1, memory_order_relaxed);
  return number < ways * SAMPLES ? number : -1;
}

/* In turn, and each way first in its turn: the first sample of a call finds the caches in another state. */
static int way_of(int number, int ways) {
  return (number + number / ways) % ways;
}

static void end_sample(trial *t, int ways, int number, int64_t nanoseconds, int64_t bytes) {
  const int64_t time = nanoseconds * PIECE_BYTES / bytes;
  atomic_store_explicit(&t->time[way_of(number, ways)][number / ways], time < INT32_MAX ? (int32_t)time : INT32_MAX,
                        memory_order_relaxed);
  if (atomic_fetch_add_explicit(&t->finished, 1, memory_order_acq_rel) != ways * SAMPLES - 1) return;
  int quickest = 0;
  for (int way = 1; way < ways; way++)
    if (middle_sample(t->time[way]) < middle_sample(t->time[quickest])) quickest = way;
  atomic_store_explicit(&t->quickest, quickest, memory_order_relaxed);
  atomic_store_explicit(&t->known, true, memory_order_release);
}

void rms_run_strategy(int isa, rms_row_kind kind, int64_t bytes_each, int64_t first, int64_t last,
                      void (*run)(const void *arg, int64_t from, int64_t to, rms_way way), const void *arg) {
  trial *t = &trials[isa][kind];
  const choice *of = choice_of(kind);
  const bool known = rms_strategy_known(isa, kind);
  const int64_t piece = bytes_each < PIECE_BYTES ? PIECE_BYTES / bytes_each : 1;
  /* The last pieces of a call's first task are samples, at most one of each way: the caches are in use by then as they
   * are in most of the call, and no single call decides. A task too small for them gives fewer, or none. */
  int64_t end = last;
  if (!known && first == 0) end = last - first > of->count * piece ? last - of->count * piece : first;
  const rms_way usual = of->ways[atomic_load_explicit(&t->quickest, memory_order_relaxed)];
  if (first < end) run(arg, first, end, usual);
  for (; end < last; end += piece) {
    const int64_t next = last - end > piece ? end + piece : last;
    const int number = (next - end) * bytes_each >= PIECE_BYTES / 4 ? next_sample(t, of->count) : -1;
    const int64_t start = nanoseconds_now();
    run(arg, end, next, number < 0 ? usual : of->ways[way_of(number, of->count)]);
    if (number >= 0) end_sample(t, of->count, number, nanoseconds_now() - start, (next - end) * bytes_each);
  }
}
