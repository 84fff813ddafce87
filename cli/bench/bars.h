/* SPDX-License-Identifier: MIT
 *
 * The default list of the benchmark: what the library promises to reach, as problems and figures. */
#ifndef RMSNORM_BENCH_BARS_H
#define RMSNORM_BENCH_BARS_H

#include "measure.h"

typedef enum bar_measure {
  BAR_CEILING, /* at least this fraction of the speed of the fastest copy         */
  BAR_MEMCPY,  /* at least this fraction of the speed of memcpy                   */
  BAR_CALL,    /* at most this many ns a call                                     */
  BAR_LAYER,   /* at least this share less time than LayerNorm on the same data   */
  BAR_PARTIAL  /* pRMSNorm p = 1/16: at least this share less time than RMSNorm   */
} bar_measure;

typedef struct bench_bar {
  const char *problem;
  bar_measure measure;
  double limit;
} bench_bar;

extern const bench_bar BENCH_BARS[];
extern const int BENCH_BAR_COUNT;

/* "at least 0.90 of the fastest copy" */
void bar_describe(const bench_bar *bar, char *text, size_t size);

/* The figure that the bar is about. */
double bar_value(const bench_bar *bar, const bench_result *result);
int bar_reached(const bench_bar *bar, double value);

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
