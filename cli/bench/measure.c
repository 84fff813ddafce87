/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "compare.h"

static const double SAMPLE_SECONDS = 100e-6; /* a sample is at least this long: the clock and the warm-up do not show */
static const double CACHED_BYTES = 64e6;     /* more leaves nothing of a call in the caches that the next could use */
static const double SETTLE_SECONDS = 100e-6; /* the threads of a pool have gone to sleep */
enum { SLOW_ROUNDS = 3, LEAST_ROUNDS = 9, MOST_ROUNDS = 201 };

double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- Rounds ---- */

static double sample(const bench_engine *e, const bench_case *c, int64_t calls) {
  if (e->type == ENGINE_LIBRARY) (void)rms_isa_force(e->isa);
  if (e->stream_bytes >= 0) (void)rms_stream_threshold_set(e->stream_bytes);
  double start = seconds_now();
  (void)engine_run(e, c, e->executor, calls);
  double seconds = seconds_now() - start;
  if (e->stream_bytes >= 0) (void)rms_stream_threshold_set(-1);
  return seconds;
}

static double choose_calls(bench_engine *e, const bench_case *c) {
  e->calls = 1;
  (void)sample(e, c, 1);
  for (;;) {
    double seconds = sample(e, c, e->calls);
    if (seconds >= SAMPLE_SECONDS) return seconds;
    double wanted = seconds > 0 ? SAMPLE_SECONDS / seconds * 1.2 : 10;
    e->calls = 1 + (int64_t)((double)e->calls * (wanted < 10 ? wanted : 10));
  }
}

/* The threads of another pool spin for a while after its last call. Wakes those of this engine's. */
static void change_threads(const bench_engine *e, const bench_case *c) {
  const double start = seconds_now();
  while (seconds_now() - start < SETTLE_SECONDS) {
  }
  (void)sample(e, c, 1);
}

/* One sample of an engine; the one before it was on `threads` threads. */
static void take_sample(bench_engine *e, const bench_case *c, int threads) {
  if (e->threads != threads) change_threads(e, c);
  if (e->calls > 1 || c->bytes <= CACHED_BYTES) (void)sample(e, c, 2); /* the caches as this engine leaves them */
  e->samples[e->sample_count++] = 1e9 * e->scale * sample(e, c, e->calls) / (double)e->calls;
}

/* An engine that takes much longer than the fastest on as many threads has few rounds; returns the time of a round. */
static double find_slow(bench_result *r, const bench_case *c, int *slow) {
  double once[ENGINES_MAX], round_seconds = 0;
  for (int i = 0; i < r->engine_count; i++)
    once[i] = choose_calls(&r->engines[i], c);
  for (int i = 0; i < r->engine_count; i++) {
    double fastest = once[i];
    for (int k = 0; k < r->engine_count; k++)
      if (r->engines[k].threads == r->engines[i].threads && once[k] < fastest) fastest = once[k];
    slow[i] = once[i] > 3 * fastest && r->engines[i].calls == 1;
    if (once[i] <= 3 * fastest) round_seconds += once[i];
  }
  return round_seconds;
}

static int64_t count_rounds(const measure_options *options, double round_seconds) {
  if (options->rounds) return options->rounds;
  const int64_t least = options->least_rounds ? options->least_rounds : LEAST_ROUNDS;
  const int64_t rounds = (int64_t)(options->seconds / round_seconds);
  return rounds < least ? least : rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds;
}

static int run_rounds(bench_result *r, const bench_case *c, const measure_options *options) {
  int slow[ENGINES_MAX];
  const int64_t rounds = count_rounds(options, find_slow(r, c, slow));
  for (int i = 0; i < r->engine_count; i++) {
    r->engines[i].samples = malloc((size_t)rounds * sizeof(double));
    if (!r->engines[i].samples) return -1;
  }
  for (int64_t round = 0; round < rounds; round++)
    for (int i = 0; i < r->engine_count; i++) {
      const int before = r->engines[i ? i - 1 : r->engine_count - 1].threads;
      if (!slow[i] || round < SLOW_ROUNDS) take_sample(&r->engines[i], c, before);
    }
  return 0;
}

/* The fastest copy on so many threads; -1: none. */
static int find_ceiling(const bench_result *r, int threads) {
  int ceiling = -1;
  for (int i = 0; i < r->engine_count; i++) {
    const bench_engine *e = &r->engines[i];
    if (e->type != ENGINE_COPY || e->threads != threads) continue;
    if (ceiling < 0 || e->median < r->engines[ceiling].median) ceiling = i;
  }
  return ceiling;
}

static void conclude(bench_result *r) {
  for (int i = 0; i < r->engine_count; i++)
    engine_summarise(&r->engines[i]);
  for (int i = 0; i < r->engine_count; i++) {
    const int ceiling = find_ceiling(r, r->engines[i].threads);
    if (ceiling >= 0) r->engines[i].of_ceiling = engine_ratio(&r->engines[i], &r->engines[ceiling]);
  }
  r->ceiling = find_ceiling(r, r->engines[0].threads);
}

/* ---- A problem ---- */

/* Compares what the engines compute. */
static int check_results(const bench_result *r, bench_case *c, char *reason, size_t size) {
  int code = 0;
  for (int i = 0; i < r->engine_count && code == 0; i++)
    if (r->engines[i].type == ENGINE_LIBRARY)
      code = compare_with_scalar(&r->engines[i], c, r->engines[i].executor, reason, size);
  if (code == 0 && r->engines[r->engine_count - 1].type == ENGINE_NAIVE)
    code = compare_naive(result_engine(r, ROLE_SELF), c, reason, size);
  return code;
}

/* The pool of each number of threads, with its executor. */
typedef struct crew {
  rms_pool *pool;
  rms_executor executor;
} crew;

static int measure_case(bench_case *c, const measure_options *options, crew *crews, bench_result *r, char *reason,
                        size_t size) {
  const int *threads = options->thread_count ? options->threads : &c->base.problem.threads;
  const int count = options->thread_count ? options->thread_count : 1;
  for (int i = 0; i < count; i++) {
    if (threads[i] > 1 && rms_pool_create(&crews[i].pool, threads[i]) != RMS_OK) {
      snprintf(reason, size, "cannot start %d threads", threads[i]);
      return -1;
    }
    crews[i].executor = rms_pool_executor(crews[i].pool);
    engines_add(r, c, options->set, threads[i], threads[i] > 1 ? &crews[i].executor : NULL);
  }
  const int compares = options->set == MEASURE_ALL || options->set == MEASURE_ESSENTIAL;
  int code = compares ? check_results(r, c, reason, size) : 0;
  if (code == 0 && run_rounds(r, c, options)) {
    snprintf(reason, size, "not enough memory");
    code = -1;
  }
  if (code == 0) conclude(r);
  (void)rms_isa_force(NULL);
  return code;
}

int measure_check(const verify_problem *problem, char *reason, size_t reason_size) {
  const double most_elements = 4e9;
  const char *why = NULL;
  double rows = (double)problem->outer * (double)problem->inner;
  if (problem->split) why = "split problems are for check only";
  if (rows < 1) why = "there is nothing to time in zero rows";
  if (rows * (double)(problem->spec.cols + problem->pad) > most_elements)
    why = "more than 4e9 elements: too large to time";
  if (problem->isa[0] && !rms_isa_usable(problem->isa)) why = "its instruction set is unknown or cannot run here";
  if (!why) return 0;
  snprintf(reason, reason_size, "%s", why);
  return -1;
}

int measure(const verify_problem *problem, const measure_options *options, bench_result *result, char *reason,
            size_t reason_size) {
  bench_case c;
  *result = (bench_result){.problem = *problem};
  if (measure_check(problem, reason, reason_size)) return -1;
  if (case_create(&c, problem)) {
    snprintf(reason, reason_size, "not enough memory");
    return -1;
  }
  result->elements = c.elements;
  result->bytes = c.bytes;
  result->reads = c.buffers.read_count;
  result->writes = c.buffers.write_count;
  crew crews[THREAD_COUNTS_MAX] = {{0}};
  int code = measure_case(&c, options, crews, result, reason, reason_size);
  for (int i = 0; i < THREAD_COUNTS_MAX; i++)
    rms_pool_destroy(crews[i].pool);
  case_destroy(&c);
  if (code) measure_free(result);
  return code;
}

void measure_free(bench_result *result) {
  for (int i = 0; i < result->engine_count; i++) {
    free(result->engines[i].samples);
    result->engines[i].samples = NULL;
  }
}
