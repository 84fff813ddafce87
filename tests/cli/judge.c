/* SPDX-License-Identifier: MIT
 * How `rmsnorm bench` judges times: from samples that are made up, so that the answers are known. */
#include "../../cli/bench/judge.h"
#include "../../cli/bench/scaling.h"
#include "../../cli/bench/walk.h"
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 40 };

/* ---- measurements that are made up ---- */

/* An engine whose sample of round i is median + spread * (i - the middle), in an order that is not sorted. */
static void add_engine(bench_result *r, engine_role role, const char *name, int threads, double median, double spread) {
  bench_engine *e = &r->engines[r->engine_count++];
  *e = (bench_engine){.type = ENGINE_LIBRARY, .role = role, .threads = threads, .scale = 1};
  snprintf(e->name, sizeof e->name, "%s", name);
  e->samples = malloc(ROUNDS * sizeof *e->samples);
  if (!T_CHECK(e->samples != NULL)) exit(1);
  for (int i = 0; i < ROUNDS; i++)
    e->samples[i] = median + spread * (i * 7 % ROUNDS - (ROUNDS - 1) / 2.0);
  e->sample_count = ROUNDS;
  engine_summarise(e);
}

typedef struct script {
  double first, second; /* ns of RMSNorm; LayerNorm takes 100 */
  double spread;        /* of RMSNorm */
  int fails;            /* which measurement fails; 0: none   */
  int runs, longer_runs;
} script;

static int follow(void *ctx, const verify_problem *problem, int longer, bench_result *result, char *reason,
                  size_t size) {
  script *s = ctx;
  (void)problem;
  s->runs++;
  s->longer_runs += longer;
  if (s->fails == s->runs) {
    snprintf(reason, size, "as written");
    return -1;
  }
  *result = (bench_result){.engine_count = 0};
  add_engine(result, ROLE_PARTIAL, "pRMSNorm 1/16", 1, 50, 0);
  add_engine(result, ROLE_RMS, "RMSNorm", 1, s->runs == 1 ? s->first : s->second, s->spread);
  add_engine(result, ROLE_LAYER, "LayerNorm", 1, 100, 0);
  return 0;
}

static const judge_rule RULES[] = {{ROLE_PARTIAL, ROLE_RMS, 1.02}, {ROLE_RMS, ROLE_LAYER, 1.02}};

static int judge(script *s, judge_finding *findings, char *reason, size_t size) {
  static const verify_problem problem;
  return judge_problem(&problem, RULES, 2, follow, s, findings, reason, size);
}

/* ---- judgements ---- */

static void within_the_limit(void) {
  script s = {.first = 101.9};
  judge_finding f[2];
  char reason[64];
  T_EQ_INT(0, judge(&s, f, reason, sizeof reason));
  T_EQ_INT(1, s.runs); /* nothing to confirm */
  T_EQ_INT(0, f[0].violated);
  T_EQ_INT(0, f[1].violated);
  T_EQ_STR("RMSNorm", f[1].engine);
  T_EQ_STR("LayerNorm", f[1].other);
  T_NEAR(1.019, f[1].ratio.median, 1e-12);
  T_CHECK(f[1].engine_ns == 101.9 && f[1].other_ns == 100);
}

static void noise_is_not_reported(void) {
  script once = {.first = 120, .second = 101}; /* the second time it is fine */
  judge_finding f[2];
  char reason[64];
  T_EQ_INT(0, judge(&once, f, reason, sizeof reason));
  T_EQ_INT(2, once.runs);
  T_EQ_INT(1, once.longer_runs);
  T_EQ_INT(0, f[1].violated);
  T_NEAR(1.01, f[1].ratio.median, 1e-12); /* the figures of the second time */

  script scattered = {.first = 120, .second = 103, .spread = 1}; /* over the limit, but within its scatter */
  T_EQ_INT(0, judge(&scattered, f, reason, sizeof reason));
  T_EQ_INT(2, scattered.runs);
  T_CHECK(f[1].ratio.median > 1.02 && f[1].ratio.low < 1.02);
  T_EQ_INT(0, f[1].violated);
}

static void violations_are_confirmed(void) {
  script s = {.first = 110, .second = 108, .spread = 0.1};
  judge_finding f[2];
  char reason[64];
  T_EQ_INT(0, judge(&s, f, reason, sizeof reason));
  T_EQ_INT(2, s.runs);
  T_EQ_INT(0, f[0].violated);
  T_EQ_INT(1, f[1].violated);
  T_CHECK(f[1].ratio.low > 1.02 && f[1].ratio.low < f[1].ratio.median && f[1].ratio.median < f[1].ratio.high);
  T_EQ_INT(ROUNDS, f[1].ratio.rounds);

  script late = {.first = 101, .second = 110}; /* nobody looks twice */
  T_EQ_INT(0, judge(&late, f, reason, sizeof reason));
  T_EQ_INT(1, late.runs);
  T_EQ_INT(0, f[1].violated);
}

static void failures_end_it(void) {
  judge_finding f[2];
  char reason[64];
  for (int at = 1; at <= 2; at++) {
    script s = {.first = 110, .second = 110, .fails = at};
    reason[0] = 0;
    T_EQ_INT(-1, judge(&s, f, reason, sizeof reason));
    T_EQ_STR("as written", reason);
    T_EQ_INT(at, s.runs);
  }
}

/* Of 40 rounds the interval leaves out 13 at either end: 20 - 0.98 * sqrt(40). */
static void interval_of_the_median(void) {
  bench_result r = {.engine_count = 0};
  add_engine(&r, ROLE_RMS, "RMSNorm", 1, 1000, 1);
  add_engine(&r, ROLE_LAYER, "LayerNorm", 1, 1000, 0);
  ratio_spread s = engine_ratio_spread(&r.engines[1], &r.engines[0]);
  T_NEAR(1, s.median, 1e-12);
  T_NEAR((1000 + 13 - 19.5) / 1000, s.low, 1e-12);
  T_NEAR((1000 + 26 - 19.5) / 1000, s.high, 1e-12);
  measure_free(&r);
}

/* ---- threads ---- */

static void thread_counts(void) {
  int counts[THREAD_COUNTS_MAX];
  T_EQ_INT(1, scaling_counts(1, counts));
  T_EQ_INT(1, counts[0]);
  T_EQ_INT(2, scaling_counts(2, counts));
  T_EQ_INT(4, scaling_counts(6, counts));
  T_EQ_INT(4, counts[2]);
  T_EQ_INT(6, counts[3]);
  T_EQ_INT(5, scaling_counts(16, counts));
  T_EQ_INT(16, counts[4]);
  T_EQ_INT(THREAD_COUNTS_MAX, scaling_counts(1 << 20, counts));
  T_EQ_INT(1 << 20, counts[THREAD_COUNTS_MAX - 1]);
}

static void time_of_fewer_threads(void) {
  static const int counts[] = {1, 2, 4};
  bench_result r = {.engine_count = 0};
  add_engine(&r, ROLE_SELF, "1", 1, 100, 0);
  add_engine(&r, ROLE_SELF, "2", 2, 50, 0);
  add_engine(&r, ROLE_SELF, "4", 4, 60, 0);
  T_EQ_F64(0.0, scaling_of_fewer(&r, counts, 0));
  T_NEAR(0.5, scaling_of_fewer(&r, counts, 1), 1e-12);
  T_NEAR(1.2, scaling_of_fewer(&r, counts, 2), 1e-12); /* of the best, not of one thread */
  measure_free(&r);
}

/* ---- the grid ---- */

static void levels_of_caches(void) {
  walk_level l[WALK_LEVELS];
  walk_levels(48 << 10, 2 << 20, (int64_t)260 << 20, 0, l); /* a third level that is a whole socket's */
  T_EQ_INT(24 << 10, l[0].bytes);
  T_EQ_INT(1 << 20, l[1].bytes);
  T_EQ_INT(8 << 20, l[2].bytes);
  T_EQ_INT((int64_t)256 << 20, l[3].bytes);
  walk_levels(0, 0, 0, 1, l); /* unknown */
  T_EQ_INT(16 << 10, l[0].bytes);
  T_EQ_INT(512 << 10, l[1].bytes);
  T_EQ_INT(4 << 20, l[2].bytes);
  T_EQ_INT((int64_t)64 << 20, l[3].bytes);
}

static void rows_that_fit(void) {
  verify_problem p;
  const walk_shape forward = {"fwd", "f32", 4096, 1}, backward = {"bwd", "bf16", 4096, 2};
  T_EQ_INT(0, walk_problem(&forward, 1 << 20, &p));
  T_EQ_INT(32, p.outer);
  T_EQ_INT(0, walk_problem(&backward, 1 << 20, &p));
  T_EQ_INT(42, p.outer);
  T_EQ_INT(2, p.threads);
  T_EQ_INT(-1, walk_problem(&forward, 2 * 4 * 4096 - 1, &p));
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"within_the_limit", within_the_limit},
                                 {"noise_is_not_reported", noise_is_not_reported},
                                 {"violations_are_confirmed", violations_are_confirmed},
                                 {"failures_end_it", failures_end_it},
                                 {"interval_of_the_median", interval_of_the_median},
                                 {"thread_counts", thread_counts},
                                 {"time_of_fewer_threads", time_of_fewer_threads},
                                 {"levels_of_caches", levels_of_caches},
                                 {"rows_that_fit", rows_that_fit}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
