/* SPDX-License-Identifier: MIT
 *
 * Figures from the samples of the rounds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double quantile(const double *sorted, int count, double q) {
  double at = q * (count - 1);
  int below = (int)at;
  int above = below + 1 < count ? below + 1 : below;
  return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

void engine_summarise(bench_engine *e) {
  double sorted[ROUNDS_MAX];
  memcpy(sorted, e->samples, (size_t)e->sample_count * sizeof *sorted);
  qsort(sorted, (size_t)e->sample_count, sizeof *sorted, compare_doubles);
  e->low = quantile(sorted, e->sample_count, 0.2);
  e->median = quantile(sorted, e->sample_count, 0.5);
  e->high = quantile(sorted, e->sample_count, 0.8);
}

/* Of n rounds, about n/2 lie on either side of the median, give or take the square root of n: sqrt(n)/2 is one standard
 * deviation of that number. */
ratio_spread engine_ratio_spread(const bench_engine *engine, const bench_engine *of) {
  double ratios[ROUNDS_MAX];
  int count = engine->sample_count < of->sample_count ? engine->sample_count : of->sample_count;
  for (int i = 0; i < count; i++)
    ratios[i] = of->samples[i] / engine->samples[i];
  qsort(ratios, (size_t)count, sizeof *ratios, compare_doubles);
  int below = (int)floor(0.5 * count - 0.98 * sqrt(count));
  if (below < 0) below = 0;
  return (ratio_spread){quantile(ratios, count, 0.5), ratios[below], ratios[count - 1 - below], count};
}

double engine_ratio(const bench_engine *engine, const bench_engine *of) {
  return engine_ratio_spread(engine, of).median;
}

const bench_engine *result_engine(const bench_result *result, engine_role role) {
  for (int i = 0; i < result->engine_count; i++)
    if (result->engines[i].role == role) return &result->engines[i];
  return NULL;
}

const bench_engine *result_engine_on(const bench_result *result, engine_role role, int threads) {
  for (int i = 0; i < result->engine_count; i++)
    if (result->engines[i].role == role && result->engines[i].threads == threads) return &result->engines[i];
  return NULL;
}
