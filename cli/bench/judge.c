/* SPDX-License-Identifier: MIT */
#include "judge.h"

#include <stdio.h>

static judge_finding find(const bench_result *result, const judge_rule *rule) {
  const bench_engine *engine = result_engine(result, rule->engine), *other = result_engine(result, rule->other);
  judge_finding f = {.engine_ns = engine->median, .other_ns = other->median};
  snprintf(f.engine, sizeof f.engine, "%s", engine->name);
  snprintf(f.other, sizeof f.other, "%s", other->name);
  f.ratio = engine_ratio_spread(other, engine);
  return f;
}

/* A finding for each rule; marks those that exceed their limits. */
static void find_all(const bench_result *result, const judge_rule *rules, int count, judge_finding *findings,
                     int *exceeded) {
  for (int i = 0; i < count; i++) {
    findings[i] = find(result, &rules[i]);
    exceeded[i] = findings[i].ratio.median > rules[i].limit;
  }
}

int judge_problem(const verify_problem *problem, const judge_rule *rules, int count, judge_measure *time_it, void *ctx,
                  judge_finding *findings, char *reason, size_t reason_size) {
  bench_result result;
  int first[JUDGE_RULES_MAX], second[JUDGE_RULES_MAX], doubts = 0;
  int code = time_it(ctx, problem, 0, &result, reason, reason_size);
  if (code) return code;
  find_all(&result, rules, count, findings, first);
  measure_free(&result);
  for (int i = 0; i < count; i++)
    doubts += first[i];
  if (!doubts) return 0;
  code = time_it(ctx, problem, 1, &result, reason, reason_size);
  if (code) return code;
  find_all(&result, rules, count, findings, second);
  measure_free(&result);
  for (int i = 0; i < count; i++)
    findings[i].violated = first[i] && findings[i].ratio.low > rules[i].limit;
  return 0;
}

int judge_by_clock(void *ctx, const verify_problem *problem, int longer, bench_result *result, char *reason,
                   size_t reason_size) {
  const judge_timing *timing = ctx;
  measure_options how = {.set = timing->set, .rounds = timing->rounds};
  how.seconds = (longer ? 0.4 : 0.04) * (timing->shorter ? 0.5 : 1);
  how.least_rounds = longer ? 21 : 9;
  return measure(problem, &how, result, reason, reason_size);
}
