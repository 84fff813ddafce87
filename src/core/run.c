/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mincore */
#endif
#include "run.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#include "../cpu/detect.h"
#include "fp_env.h"

typedef struct {
  void (*run)(const void *arg, int64_t first, int64_t last);
  const void *arg;
  int64_t count, each; /* segments (or whatever is counted), and how many of them a task takes */
} tasks;

/* Every kernel runs in here, on whatever thread, but for the shortcut of a single row. */
static void run_range(const tasks *t, int64_t first, int64_t last) {
  rms_fp_word callers = rms_fp_enter();
  t->run(t->arg, first, last);
  rms_fp_leave(callers);
}

static void run_task(void *arg, int64_t i) {
  const tasks *t = arg;
  int64_t first = i * t->each, last = first + t->each;
  run_range(t, first, last < t->count ? last : t->count);
}

/* How many tasks of at least `least` bytes there can be. */
static int64_t tasks_of(int64_t least, int64_t count, int64_t bytes_each) {
  return bytes_each >= least ? count : count / ((least + bytes_each - 1) / bytes_each);
}

/* How many tasks the work is worth. Up to one for each thread: handing over a task costs less than moving 32 KB through
 * the caches. Beyond that there are whole rounds of larger tasks, so that all threads end at the same time and one that
 * is held up does not hold up the call (docs/log/cpu.md). */
static int64_t task_count(int64_t concurrency, int64_t count, int64_t bytes_each) {
  const int64_t least = RMS_SERIAL_BYTES / 8, least_in_rounds = RMS_SERIAL_BYTES / 2, most = 256, most_rounds = 8;
  const int64_t worth = tasks_of(least, count, bytes_each);
  if (worth <= concurrency) return worth > 1 ? worth : 1;
  int64_t rounds = tasks_of(least_in_rounds, count, bytes_each) / concurrency;
  if (rounds > most_rounds) rounds = most_rounds;
  while (rounds > 1 && rounds * concurrency > most)
    rounds--;
  return rounds > 1 ? rounds * concurrency : concurrency;
}

/* What each task takes of what is counted. */
static int64_t task_size(const rms_executor *executor, int64_t count, int64_t bytes_each) {
  if (bytes_each < 1) bytes_each = 1;
  bool small = bytes_each < RMS_SERIAL_BYTES && count * bytes_each < RMS_SERIAL_BYTES;
  int64_t worth = executor && !small ? task_count(executor->concurrency, count, bytes_each) : 1;
  return (count + worth - 1) / worth;
}

void rms_run_tasks(const rms_executor *executor, int64_t count, int64_t bytes_each,
                   void (*run)(const void *arg, int64_t first, int64_t last), const void *arg) {
  if (count == 0) return;
  tasks t = {run, arg, count, task_size(executor, count, bytes_each)};
  if (t.each == count)
    run_range(&t, 0, count);
  else
    executor->run(executor->ctx, (count + t.each - 1) / t.each, run_task, &t);
}

int64_t rms_tasks_at_once(const rms_executor *executor, int64_t count, int64_t bytes_each) {
  if (count == 0) return 0;
  const int64_t each = task_size(executor, count, bytes_each), all = (count + each - 1) / each;
  return executor && executor->concurrency < all ? executor->concurrency : all;
}

/* Whether the page of an address has not been touched since it was allocated. The first store to it will have the
 * system fill it with zeros, through the caches: a plain store then finds its lines there, and a non-temporal one has
 * to push them out first. */
static bool is_untouched(const char *address) {
#if defined(__linux__)
  const long page = sysconf(_SC_PAGESIZE);
  unsigned char resident = 1;
  if (page <= 0) return false;
  return mincore((void *)((uintptr_t)address & ~(uintptr_t)(page - 1)), 1, &resident) == 0 && !(resident & 1);
#else
  (void)address;
  return false;
#endif
}

bool rms_can_stream(const rms_rows *out, const rms_layout *lay, int64_t segment_bytes, int64_t segments) {
  if (!out->data) return false;
  int64_t starts = (int64_t)((uintptr_t)out->data) | out->outer | (out->col ? out->col : out->inner);
  if (lay->groups > 1 && !out->col) starts |= segment_bytes;
  if (starts % 64 != 0) return false;
  return !is_untouched(out->data + segments / (lay->inner * lay->groups) / 2 * out->outer);
}

/* ---- the threshold: bytes, or one of the two below ---- */

enum { NOT_KNOWN = -1, NOT_VALID = -2 };

static _Atomic int64_t threshold = NOT_KNOWN;
static _Atomic int64_t each_thread; /* where the threshold is the default: the cache that each thread has to itself */

/* Digits and nothing else. */
static int64_t parse_bytes(const char *text) {
  int64_t bytes = 0;
  for (; *text; text++) {
    if (*text < '0' || *text > '9' || __builtin_mul_overflow(bytes, 10, &bytes) ||
        __builtin_add_overflow(bytes, *text - '0', &bytes))
      return NOT_VALID;
  }
  return bytes;
}

/* Rows that fit a cache are still there for who reads them next, and plain stores are quicker. A third-level cache is
 * shared: with other callers, and with x, so that half of it counts. One of over 100 MB is that of a whole socket, of
 * which a core has no more than its own second level, and is no quicker than memory is with non-temporal stores
 * (docs/performance.md). */
static int64_t cache_threshold(int64_t *second) {
  const rms_cpu_caches caches = rms_cpu_find_caches();
  const int64_t socket = 100 << 20, otherwise = 32 << 20;
  const int64_t third = caches.third > 0 && caches.third <= socket ? caches.third / 2 : 0;
  *second = caches.second > 0 ? caches.second : 0;
  if (third > 0) return third > *second ? third : *second;
  return caches.third > 0 && *second > 0 ? *second : otherwise;
}

static int64_t default_threshold(int64_t *second) {
  const char *text = getenv("RMSNORM_STREAM_BYTES");
  *second = 0;
  return text && *text ? parse_bytes(text) : cache_threshold(second);
}

int64_t rms_stream_threshold(void) {
  int64_t now = atomic_load_explicit(&threshold, memory_order_relaxed);
  if (now == NOT_KNOWN) {
    int64_t second, first = default_threshold(&second);
    if (atomic_compare_exchange_strong(&threshold, &now, first)) {
      now = first;
      atomic_store_explicit(&each_thread, second, memory_order_relaxed);
    }
  }
  return now >= 0 ? now : -1;
}

rms_status rms_stream_threshold_set(int64_t bytes) {
  int64_t second = 0;
  if (bytes < 0) bytes = default_threshold(&second);
  if (bytes < 0) return RMS_E_ENVIRONMENT;
  atomic_store_explicit(&threshold, bytes, memory_order_relaxed);
  atomic_store_explicit(&each_thread, second, memory_order_relaxed);
  return RMS_OK;
}

bool rms_streams(int64_t count, int64_t bytes_each, int64_t parts, const rms_executor *executor) {
  int64_t bytes = count * bytes_each;
  if (bytes <= rms_stream_threshold()) return false;
  int64_t threads = executor ? task_count(executor->concurrency, count, bytes_each) : 1;
  if (executor && threads > executor->concurrency) threads = executor->concurrency;
  return bytes / threads > atomic_load_explicit(&each_thread, memory_order_relaxed) / (threads > 1 ? parts : 1);
}
