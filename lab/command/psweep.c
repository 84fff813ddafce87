/* SPDX-License-Identifier: MIT
 *
 * `lab psweep`: pRMSNorm over p. How far the statistic of a part is from that of the whole row, on rows of normal
 * numbers (where 1/sqrt(2k) is predicted) and on the trained model's own rows; and what that does to
 * quality and time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "command/experiment.h"

enum { POINTS = 7, ROWS = 4000, COLS = 512 };

/* 1/64, 1/32, ..., 1 */
static double share_at(int point) {
  return ldexp(1.0, point - (POINTS - 1));
}

/* Relative deviation of the RMS of k of COLS normal numbers from its expected value 1. */
static double normal_error(int64_t k, uint64_t seed) {
  float *rows = lab_alloc((size_t)ROWS * COLS, sizeof *rows), *y = lab_alloc((size_t)ROWS * COLS, sizeof *y);
  float *rstd = lab_alloc(ROWS, sizeof *rstd);
  lab_rng rng = lab_rng_make(seed, (uint64_t)k);
  for (int64_t i = 0; i < (int64_t)ROWS * COLS; i++)
    rows[i] = (float)lab_rng_normal(&rng);
  rms_spec spec = {.cols = COLS, .partial = k};
  rms_forward_args args = {.outer = ROWS, .x = {rows, RMS_F32}, .y = {.data = y}, .rstd = rstd};
  rms_status status = rms_forward(&spec, &args, NULL);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < ROWS; i++) {
    double rms = 1 / (double)rstd[i];
    sum += rms;
    squares += rms * rms;
  }
  free(rows);
  free(y);
  free(rstd);
  double mean = sum / ROWS;
  return status == RMS_OK ? sqrt(squares / ROWS - mean * mean) / mean : (double)NAN;
}

typedef struct sweep_point {
  double p;
  double predicted, measured, in_model, quality, seconds, norm_share;
  int64_t diverged;
} sweep_point;

/* Scores the model while the tapes watch its norms. */
static model_score evaluate_watched(trainer *t, double *error) {
  int shards = t->m->config.shards;
  statistic_watch *watches = lab_alloc((size_t)shards, sizeof *watches);
  for (int i = 0; i < shards; i++)
    t->tapes[i]->watch = &watches[i];
  model_score score = trainer_evaluate(t);
  double squares = 0, count = 0;
  for (int i = 0; i < shards; i++) {
    t->tapes[i]->watch = NULL;
    squares += watches[i].squares;
    count += watches[i].count;
  }
  free(watches);
  *error = count > 0 ? sqrt(squares / count) : (double)NAN;
  return score;
}

static void measure(sweep_point *point, trainer *t) {
  int64_t k = rms_partial_count(COLS, point->p);
  point->predicted = 1 / sqrt(2 * (double)k);
  point->measured = normal_error(k, t->m->config.seed);
  point->diverged = t->diverged;
  point->in_model = point->quality = (double)NAN;
  if (t->diverged < 0) point->quality = evaluate_watched(t, &point->in_model).quality;
  point->norm_share = trainer_shares(t).norm;
}

static void add_section(lab_report *report, const sweep_point *points, const char *family, const char *metric) {
  static const char *const head[] = {
      "p",       "k of 512",         "predicted error", "measured error", "error in the model",
      "quality", "s per 1000 steps", "norm share"};
  enum { COLUMNS = sizeof head / sizeof head[0] };
  char title[96];
  snprintf(title, sizeof title, "pRMSNorm over p (%s, quality: %s)", family, metric);
  lab_section *section = lab_report_add_section(
      report, "psweep", title,
      "The error is the relative deviation of the partial RMS: predicted is 1/sqrt(2k) for k normal numbers, measured "
      "is what the library's statistic shows on 4,000 such rows of 512, and the error in the model compares the "
      "partial "
      "with the full RMS on the trained model's own rows, where elements are neither independent nor alike.");
  lab_section_row(section, COLUMNS, head);
  double x[POINTS], predicted[POINTS], measured[POINTS], in_model[POINTS];
  for (int i = 0; i < POINTS; i++) {
    const sweep_point *s = &points[i];
    char cells[COLUMNS][32];
    const char *row[COLUMNS];
    snprintf(cells[0], sizeof cells[0], "1/%d", (int)lround(1 / s->p));
    snprintf(cells[1], sizeof cells[1], "%lld", (long long)rms_partial_count(COLS, s->p));
    snprintf(cells[2], sizeof cells[2], "%.2f %%", 100 * s->predicted);
    snprintf(cells[3], sizeof cells[3], "%.2f %%", 100 * s->measured);
    snprintf(cells[4], sizeof cells[4], "%.2f %%", 100 * s->in_model);
    if (s->diverged >= 0)
      snprintf(cells[5], sizeof cells[5], "diverged at %lld", (long long)s->diverged);
    else
      snprintf(cells[5], sizeof cells[5], "%.2f", s->quality);
    snprintf(cells[6], sizeof cells[6], "%.2f", s->seconds);
    snprintf(cells[7], sizeof cells[7], "%.1f %%", 100 * s->norm_share);
    for (int j = 0; j < COLUMNS; j++)
      row[j] = cells[j];
    lab_section_row(section, COLUMNS, row);
    for (int j = 0; j < COLUMNS; j++)
      printf(j == 0 ? "%-6s" : "  %18s", row[j]);
    putchar('\n');
    x[i] = s->p;
    predicted[i] = s->predicted;
    measured[i] = s->measured;
    in_model[i] = i == POINTS - 1 ? (double)NAN : s->in_model; /* 0 has no place on a logarithmic axis */
  }
  lab_section_axes(section, "p", "relative error of the RMS", 1, 1);
  lab_section_series(section, "predicted 1/sqrt(2k)", x, predicted, POINTS, 1);
  lab_section_series(section, "measured, normal rows", x, measured, POINTS, 0);
  lab_section_series(section, "measured, in the model", x, in_model, POINTS, 1);
}

static void report_sweep(lab_context *x, trainer **trainers, lab_family family) {
  sweep_point points[POINTS];
  double seconds[POINTS];
  trainers_seconds_per_step(trainers, POINTS, seconds);
  for (int i = 0; i < POINTS; i++) {
    points[i] = (sweep_point){.p = share_at(i), .seconds = 1000 * seconds[i]};
    measure(&points[i], trainers[i]);
  }
  printf("%-6s  %18s  %18s  %18s  %18s  %18s  %18s  %18s\n", "p", "k of 512", "predicted error", "measured error",
         "error in model", trainers[0]->m->kind->metric, "s per 1000 steps", "norm share");
  add_section(x->report, points, family_name(family), trainers[0]->m->kind->metric);
}

int psweep_run(lab_context *x, lab_error *error) {
  (void)error;
  lab_family family = x->options->families[0];
  trainer *trainers[POINTS];
  const char *labels[POINTS] = {"1/64", "1/32", "1/16", "1/8", "1/4", "1/2", "1"};
  contest c = {.trainers = trainers, .labels = labels, .count = POINTS};
  for (int i = 0; i < POINTS; i++) {
    model_config config;
    train_config train;
    settings_of_family(x->options, family, &config, &train);
    config.norm.kind = NORM_PRMS;
    config.norm.p = share_at(i);
    config.seed = settings_seed(x->options);
    trainers[i] = make_trainer(x, family, &config, &train);
  }
  int result = contest_run(&c, "psweep", x->options->quiet, 0, NULL, NULL);
  if (result == 0) report_sweep(x, trainers, family);
  for (int i = 0; i < POINTS; i++)
    trainer_free(trainers[i]);
  return result;
}
