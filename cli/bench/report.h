/* SPDX-License-Identifier: MIT
 *
 * The benchmark's output: text as it is measured, or one JSON document. Both go to stdout. */
#ifndef RMSNORM_BENCH_REPORT_H
#define RMSNORM_BENCH_REPORT_H

#include "bars.h"

enum { REPORT_BARS_MAX = 32, REPORT_BAR_TEXT = 64 };

typedef struct report_line {
  char subject[REPORT_BAR_TEXT], description[REPORT_BAR_TEXT];
  double value, limit;
  int reached;
} report_line;

typedef struct report_level {
  const flat_level *level;
  double ns_per_element[FLAT_WIDTH_COUNT];
  int count;
} report_level;

typedef struct report {
  int json;
  int problem_count;
  report_level levels[FLAT_LEVEL_COUNT];
  int level_count;
  report_line bars[REPORT_BARS_MAX];
  int bar_count;
} report;

/* Problems are written at once; levels and bars are gathered and written at the end. */
void report_begin(report *r, int json);
void report_problem(report *r, const bench_result *result);
void report_flat(report *r, const flat_level *level, const double *ns_per_element, int count);
void report_bar(report *r, const char *subject, const char *description, double value, double limit, int reached);
void report_end(const report *r);

#endif
