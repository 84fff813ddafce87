/* SPDX-License-Identifier: MIT
 *
 * Runs summed up: per family and norm, then per family.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/out.h"

typedef struct moments {
  double sum, squares;
  int64_t count;
} moments;

static void observe(moments *m, double value) {
  if (!isfinite(value)) return;
  m->sum += value;
  m->squares += value * value;
  m->count++;
}

static double mean_of(const moments *m) {
  return m->count > 0 ? m->sum / (double)m->count : LAB_NONE;
}

static double deviation_of(const moments *m) {
  if (m->count < 2) return LAB_NONE;
  double mean = mean_of(m), rest = m->squares - (double)m->count * mean * mean;
  return sqrt(fmax(0, rest) / (double)(m->count - 1));
}

int lab_same_kind(const lab_run *a, const lab_run *b) {
  return strcmp(a->family, b->family) == 0 && strcmp(a->norm, b->norm) == 0 &&
         (a->p == b->p || (isnan(a->p) && isnan(b->p)));
}

/* Guessing scores `chance`: a tenth of it, or one point, on the good side counts as guessing too. */
static int near_chance(const lab_run *run, double quality) {
  if (!isfinite(quality) || !isfinite(run->chance)) return 0;
  if (run->higher_is_better) return quality <= fmax(1.1 * run->chance, run->chance + 1);
  return quality >= 0.95 * run->chance;
}

/* Without a norm, and with batch normalization, there is one way to compute: it stands for both. */
static int is_engine(const lab_run *run, int engine) {
  if (strcmp(run->norm, "none") == 0 || strcmp(run->norm, "batch") == 0) return 1;
  return strcmp(run->engine, engine == LAB_LIBRARY ? "library" : "textbook") == 0;
}

static lab_times times_of(const lab_report *report, const lab_run *first, int engine) {
  moments seconds = {0}, norm_share = {0}, blas_share = {0};
  lab_times times = {.activation_bytes = -1};
  /* Times of different contests are not compared: where there are runs for time alone, they alone count. */
  int timed = 0;
  for (const lab_run *run = report->runs; run < report->runs + report->run_count; run++)
    timed |= run->timing && strcmp(run->family, first->family) == 0;
  for (const lab_run *run = report->runs; run < report->runs + report->run_count; run++) {
    if (run->timing != timed || run->diverged_step >= 0 || !lab_same_kind(run, first) || !is_engine(run, engine))
      continue;
    observe(&seconds, run->seconds_per_1000);
    observe(&norm_share, run->norm_share);
    observe(&blas_share, run->blas_share);
    times.activation_bytes = run->activation_bytes;
  }
  times.seconds = mean_of(&seconds);
  times.seconds_sd = deviation_of(&seconds);
  times.norm_share = mean_of(&norm_share);
  times.blas_share = mean_of(&blas_share);
  times.reduction = LAB_NONE;
  return times;
}

static lab_summary summarise(const lab_report *report, const lab_run *first) {
  lab_summary summary = {.first = first};
  moments quality = {0};
  for (const lab_run *run = first; run < report->runs + report->run_count; run++) {
    if (run->timing || !lab_same_kind(run, first)) continue;
    summary.runs++;
    summary.diverged += run->diverged_step >= 0;
    if (run->diverged_step < 0) observe(&quality, run->quality);
  }
  summary.quality = mean_of(&quality);
  summary.quality_sd = deviation_of(&quality);
  summary.at_chance = near_chance(first, summary.quality);
  for (int engine = 0; engine < LAB_ENGINES; engine++)
    summary.times[engine] = times_of(report, first, engine);
  return summary;
}

/* Times against those of the family's LayerNorm. */
static void compare(lab_summary *summaries, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < count; j++) {
      const lab_run *a = summaries[i].first, *b = summaries[j].first;
      if (strcmp(a->family, b->family) != 0 || strcmp(b->norm, "layer") != 0) continue;
      for (int engine = 0; engine < LAB_ENGINES; engine++)
        summaries[i].times[engine].reduction =
            1 - summaries[i].times[engine].seconds / summaries[j].times[engine].seconds;
    }
}

int64_t lab_report_summarise(const lab_report *report, lab_summary **summaries) {
  int64_t count = 0;
  *summaries = lab_alloc((size_t)report->run_count, sizeof **summaries);
  for (int64_t i = 0; i < report->run_count; i++) {
    int64_t known = 0;
    if (report->runs[i].timing) continue;
    while (known < count && !lab_same_kind((*summaries)[known].first, &report->runs[i]))
      known++;
    if (known == count) (*summaries)[count++] = summarise(report, &report->runs[i]);
  }
  compare(*summaries, count);
  return count;
}

int64_t lab_report_families(lab_summary *summaries, int64_t count, lab_family **families) {
  int64_t made = 0;
  *families = lab_alloc((size_t)count, sizeof **families);
  for (int64_t start = 0; start < count;) {
    int64_t end = start + 1;
    for (int64_t i = end; i < count; i++) {
      if (strcmp(summaries[i].first->family, summaries[start].first->family) != 0) continue;
      lab_summary moved = summaries[i];
      memmove(summaries + end + 1, summaries + end, (size_t)(i - end) * sizeof *summaries);
      summaries[end++] = moved;
    }
    (*families)[made++] = (lab_family){summaries[start].first, summaries + start, end - start};
    start = end;
  }
  return made;
}

const lab_summary *lab_family_norm(const lab_family *family, const char *norm) {
  for (int64_t i = 0; i < family->count; i++)
    if (strcmp(family->summaries[i].first->norm, norm) == 0) return &family->summaries[i];
  return NULL;
}
