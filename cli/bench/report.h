/* SPDX-License-Identifier: MIT
 *
 * The benchmark's output: text as it is measured, or one JSON document. Both go to stdout. */
#ifndef RMSNORM_BENCH_REPORT_H
#define RMSNORM_BENCH_REPORT_H

#include "../json.h"
#include "targets.h"

enum { REPORT_TARGETS_MAX = 64, REPORT_TARGET_TEXT = 64 };

typedef struct report_line {
  char subject[REPORT_TARGET_TEXT], description[REPORT_TARGET_TEXT];
  double value, limit;
  int met;
} report_line;

typedef struct report_level {
  const flat_level *level;
  double ns_per_element[FLAT_WIDTH_COUNT];
  int count;
} report_level;

typedef enum report_form {
  REPORT_TABLE,   /* a row per problem                          */
  REPORT_VERBOSE, /* a table per problem: engines and quantiles */
  REPORT_JSON     /* everything, as one document                */
} report_form;

typedef struct report {
  report_form form;
  cli_json out; /* of REPORT_JSON */
  report_level levels[FLAT_LEVEL_COUNT];
  int level_count;
  report_line targets[REPORT_TARGETS_MAX];
  int target_count;
} report;

/* The library, the processor and the instruction set: a line, or the first members of a document, which stays open. */
void report_title(cli_json *json);

/* "1.25 us" */
void report_time(double ns, char *text, size_t size);

/* Problems are written at once; levels and targets are gathered and written at the end. */
void report_begin(report *r, report_form form);
void report_problem(report *r, const bench_result *result);
void report_flat(report *r, const flat_level *level, const double *ns_per_element, int count);
void report_target(report *r, const char *subject, const char *description, double value, double limit, int met);
void report_end(report *r);

#endif
