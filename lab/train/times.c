/* SPDX-License-Identifier: MIT
 *
 * The time of a step: medians over the steps of trainers that alternated.
 */
#include <math.h>
#include <stdlib.h>

#include "train/trainer.h"

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *values, int64_t count) {
  if (count == 0) return (double)NAN;
  qsort(values, (size_t)count, sizeof *values, by_value);
  return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* Of the steps [first, ...) that all measured: each trainer's CPU time and the mean of their times;
 * returns how many. */
static int64_t common_times(trainer *const *trainers, int count, int64_t steps, double **cpu, double *means) {
  int64_t first = steps < 20 ? 0 : 5, used = 0;
  for (int64_t j = first; j < steps; j++) {
    double sum = 0;
    for (int i = 0; i < count; i++)
      sum += trainers[i]->seconds[j];
    if (isnan(sum)) continue;
    for (int i = 0; i < count; i++)
      cpu[i][used] = trainers[i]->times[j].cpu;
    means[used++] = sum / count;
  }
  return used;
}

static void paired_seconds(trainer *const *trainers, int count, int64_t steps, double *seconds) {
  double **cpu = lab_alloc((size_t)count, sizeof *cpu), *means = lab_alloc((size_t)steps + 1, sizeof *means);
  for (int i = 0; i < count; i++)
    cpu[i] = lab_alloc((size_t)steps + 1, sizeof **cpu);
  int64_t used = common_times(trainers, count, steps, cpu, means);
  for (int64_t j = 0; j < used; j++) {
    double mean = 0;
    for (int i = 0; i < count; i++)
      mean += cpu[i][j] / count;
    for (int i = 0; i < count; i++)
      cpu[i][j] /= mean;
  }
  double typical = median(means, used);
  for (int i = 0; i < count; i++) {
    seconds[i] = typical * median(cpu[i], used);
    free(cpu[i]);
  }
  free(cpu);
  free(means);
}

void trainers_seconds_per_step(trainer *const *trainers, int count, double *seconds) {
  trainer **whole = lab_alloc((size_t)count, sizeof *whole);
  double *found = lab_alloc((size_t)count, sizeof *found);
  int64_t most = 0;
  int wholes = 0;
  for (int i = 0; i < count; i++)
    if (trainers[i]->step > most) most = trainers[i]->step;
  for (int i = 0; i < count; i++)
    if (trainers[i]->step == most) whole[wholes++] = trainers[i];
  paired_seconds(whole, wholes, most, found);
  for (int i = 0, at = 0; i < count; i++) {
    if (trainers[i]->step == most)
      seconds[i] = found[at++];
    else
      paired_seconds(&trainers[i], 1, trainers[i]->step, &seconds[i]); /* stopped early: alone */
  }
  free(whole);
  free(found);
}

step_shares trainer_shares(const trainer *t) {
  double *norm = lab_alloc((size_t)t->step + 1, sizeof *norm), *blas = lab_alloc((size_t)t->step + 1, sizeof *blas);
  int64_t count = 0;
  for (int64_t i = 0; i < t->step; i++) {
    if (!(t->times[i].total > 0)) continue;
    norm[count] = t->times[i].norm / t->times[i].total;
    blas[count++] = t->times[i].blas / t->times[i].total;
  }
  step_shares shares = {median(norm, count), median(blas, count)};
  free(norm);
  free(blas);
  return shares;
}
