/* SPDX-License-Identifier: MIT
 *
 * Whether an engine takes no longer than another of the same problem, such that noise is not taken for an answer. */
#ifndef RMSNORM_BENCH_JUDGE_H
#define RMSNORM_BENCH_JUDGE_H

#include "measure.h"

enum { JUDGE_RULES_MAX = 4 };

/* The time of `engine` is at most `limit` times that of `other`. */
typedef struct judge_rule {
  engine_role engine, other;
  double limit;
} judge_rule;

typedef struct judge_finding {
  char engine[32], other[32]; /* their names                              */
  double engine_ns, other_ns; /* a call                                   */
  ratio_spread ratio;         /* of engine_ns to other_ns, round by round */
  int violated;
} judge_finding;

/* Times a problem; `longer`: again, with many rounds. Returns what measure() returns. */
typedef int judge_measure(void *ctx, const verify_problem *problem, int longer, bench_result *result, char *reason,
                          size_t reason_size);

/* One finding for each rule. Where a median exceeds its limit the problem is timed again, longer, and the figures are
 * those of the second time. A rule is violated where the ratio exceeds the limit both times, the second time with all
 * that its spread allows. Returns what the measurement returned. */
int judge_problem(const verify_problem *problem, const judge_rule *rules, int count, judge_measure *time_it, void *ctx,
                  judge_finding *findings, char *reason, size_t reason_size);

/* measure() for judge_problem. ctx: */
typedef struct judge_timing {
  measure_set set;
  int shorter;
  int64_t rounds; /* of either measurement; 0: as many as their time allows */
} judge_timing;
judge_measure judge_by_clock;

#endif
