/* SPDX-License-Identifier: MIT */
#include "walk.h"

#include <stdio.h>
#include <string.h>

#include "../cli.h"
#include "../machine.h"

void walk_levels(int64_t first, int64_t second, int64_t third, int shorter, walk_level *levels) {
  const int64_t least = (int64_t)64 << 20, most = (int64_t)(shorter ? 64 : 256) << 20;
  if (first <= 0) first = 32 << 10;
  if (second <= 0) second = 1 << 20;
  if (third <= 0) third = 32 << 20;
  int64_t beyond = 2 * third < least ? least : 2 * third > most ? most : 2 * third;
  levels[0] = (walk_level){"L1", first / 2};
  levels[1] = (walk_level){"L2", second / 2};
  levels[2] = (walk_level){"L3", 4 * second < third / 2 ? 4 * second : third / 2};
  levels[3] = (walk_level){"memory", beyond};
}

void walk_caches(int64_t *first, int64_t *second, int64_t *third) {
  machine m;
  int64_t bytes[4] = {0};
  machine_read(&m);
  for (int i = 0; i < m.cache_count; i++)
    if (m.caches[i].level >= 1 && m.caches[i].level <= 3) bytes[m.caches[i].level] = m.caches[i].bytes;
  *first = bytes[1];
  *second = bytes[2];
  *third = bytes[3];
}

int walk_problem(const walk_shape *shape, int64_t bytes, verify_problem *problem) {
  const int tensors = strcmp(shape->direction, "bwd") == 0 ? 3 : 2;
  const int64_t size = strcmp(shape->type, "f64") == 0 ? 8 : strcmp(shape->type, "f32") == 0 ? 4 : 2;
  const int64_t rows = bytes / (tensors * size * shape->cols);
  char text[VERIFY_TEXT_MAX], reason[256];
  if (rows < 1) return -1;
  snprintf(text, sizeof text, "rms:%s:%s:%lldx%lld:threads=%d", shape->direction, shape->type, (long long)rows,
           (long long)shape->cols, shape->threads);
  return verify_problem_parse(text, problem, reason, sizeof reason);
}

int walk_judge(const verify_problem *problem, const judge_rule *rules, int count, judge_timing *timing,
               judge_finding *findings) {
  char text[VERIFY_TEXT_MAX], reason[256];
  verify_problem_print(problem, text, sizeof text);
  cli_progress(text);
  int code = judge_problem(problem, rules, count, judge_by_clock, timing, findings, reason, sizeof reason);
  cli_progress(NULL);
  return code ? cli_error(text, "%s", reason) : CLI_OK;
}
