/* SPDX-License-Identifier: MIT
 *
 * The default list of problems, and what the library aims at on them. */
#ifndef RMSNORM_BENCH_TARGETS_H
#define RMSNORM_BENCH_TARGETS_H

#include "measure.h"

typedef enum target_measure {
  TARGET_CEILING, /* at least this fraction of the speed of the fastest copy         */
  TARGET_MEMCPY,  /* at least this fraction of the speed of memcpy                   */
  TARGET_CALL,    /* at most this many ns a call                                     */
  TARGET_LAYER,   /* at least this share less time than LayerNorm on the same data   */
  TARGET_PARTIAL, /* pRMSNorm p = 1/16: at least this share less time than RMSNorm   */
  TARGET_SAVED,   /* at most this multiple of the time where the statistics are saved */
  TARGET_NONE     /* is timed alone                                                   */
} target_measure;

/* A problem for more threads than the machine has cores is left out. */
typedef struct bench_target {
  const char *problem;
  target_measure measure;
  double limit;
  measure_set set; /* what is timed beside it, if not everything */
} bench_target;

extern const bench_target BENCH_TARGETS[];
extern const int BENCH_TARGET_COUNT;

/* "at least 0.90 of the fastest copy" */
void target_describe(const bench_target *target, char *text, size_t size);

/* The figure that the target is about. */
double target_value(const bench_target *target, const bench_result *result);
int target_met(const bench_target *target, double value);

/* Cost per element of one total size at many widths: how flat it is. */
typedef struct flat_level {
  const char *name;
  int64_t elements;
} flat_level;

enum { FLAT_LEVEL_COUNT = 3, FLAT_WIDTH_COUNT = 8 };
extern const flat_level FLAT_LEVELS[FLAT_LEVEL_COUNT];
extern const int64_t FLAT_WIDTHS[FLAT_WIDTH_COUNT];
extern const double FLAT_LIMIT; /* most that the dearest width may cost over the cheapest */

/* Bytes of backward workspace for 4096 columns at 2^20 and at 2^40 rows. */
void workspace_sizes(size_t *few_rows, size_t *many_rows);

#endif
