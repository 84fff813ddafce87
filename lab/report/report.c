/* SPDX-License-Identifier: MIT
 *
 * Collecting results and summing them up.
 */
#define _POSIX_C_SOURCE 200809L
#include "report/out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rmsnorm.h"

#define SET(field, ...) snprintf((field), sizeof(field), __VA_ARGS__)

/* ---- Environment ---- */

static void join_command(char *command, size_t size, int argc, char *const *argv) {
  size_t used = (size_t)snprintf(command, size, "rmsnorm");
  for (int i = 0; i < argc && used + 1 < size; i++) {
    const char *quote = strpbrk(argv[i], " \t\n\"'$&|;<>*?") || !*argv[i] ? "'" : "";
    int length = snprintf(command + used, size - used, " %s%s%s", quote, argv[i], quote);
    used += length > 0 ? (size_t)length : 0;
  }
}

void lab_report_environment(lab_report *report, const char *cpu, const char *blas, int argc, char *const *argv,
                            int threads) {
  time_t now = time(NULL);
  struct tm utc;
  SET(report->cpu, "%s", cpu);
  join_command(report->command, sizeof report->command, argc, argv);
  if (gmtime_r(&now, &utc)) strftime(report->date, sizeof report->date, "%Y-%m-%d %H:%M UTC", &utc);
  SET(report->version, "%s", rms_version());
  SET(report->isa, "%s", rms_isa_active() ? rms_isa_active() : "none");
  SET(report->blas, "%s", blas);
  report->threads = threads;
}

/* ---- Runs and sections ---- */

lab_run lab_run_start(const char *family, const char *norm, const char *engine) {
  lab_run run = {.p = LAB_NONE,
                 .quality = LAB_NONE,
                 .seconds_per_1000 = LAB_NONE,
                 .norm_share = LAB_NONE,
                 .blas_share = LAB_NONE,
                 .chance = LAB_NONE,
                 .parameters = -1,
                 .activation_bytes = -1,
                 .diverged_step = -1};
  SET(run.family, "%s", family);
  SET(run.norm, "%s", norm);
  SET(run.engine, "%s", engine);
  return run;
}

static void *copy_of(const void *data, int64_t count, size_t size) {
  void *copy = lab_alloc((size_t)count, size);
  if (count > 0) memcpy(copy, data, (size_t)count * size);
  return copy;
}

void lab_report_add_run(lab_report *report, const lab_run *run, const lab_point *curve, int64_t curve_count) {
  report->runs = lab_grow(report->runs, &report->run_capacity, report->run_count + 1, sizeof *report->runs);
  lab_run *added = &report->runs[report->run_count++];
  *added = *run;
  added->curve = copy_of(curve, curve_count, sizeof *curve);
  added->curve_count = curve_count;
}

lab_section *lab_report_add_section(lab_report *report, const char *key, const char *title, const char *text) {
  report->sections =
      lab_grow(report->sections, &report->section_capacity, report->section_count + 1, sizeof *report->sections);
  lab_section *section = &report->sections[report->section_count++];
  *section = (lab_section){.text = lab_copy(text, strlen(text))};
  SET(section->key, "%s", key);
  SET(section->title, "%s", title);
  return section;
}

void lab_section_row(lab_section *section, int columns, const char *const *cells) {
  if (section->rows == 0) section->columns = columns;
  int64_t held = section->rows * section->columns;
  section->cells = lab_grow(section->cells, &held, held + section->columns, sizeof *section->cells);
  for (int i = 0; i < section->columns; i++) {
    const char *cell = i < columns ? cells[i] : "";
    section->cells[section->rows * section->columns + i] = lab_copy(cell, strlen(cell));
  }
  section->rows++;
}

void lab_section_text(lab_section *section, const char *text) {
  size_t before = strlen(section->text), size = before + strlen(text) + 3;
  char *longer = lab_alloc(size, 1);
  snprintf(longer, size, "%s%s%s", section->text, before ? "\n\n" : "", text);
  free(section->text);
  section->text = longer;
}

void lab_section_axes(lab_section *section, const char *x_label, const char *y_label, int log_x, int log_y) {
  SET(section->x_label, "%s", x_label);
  SET(section->y_label, "%s", y_label);
  section->log_x = log_x;
  section->log_y = log_y;
}

void lab_section_series(lab_section *section, const char *name, const double *x, const double *y, int64_t count,
                        int line) {
  int64_t held = section->series_count;
  section->series = lab_grow(section->series, &held, held + 1, sizeof *section->series);
  lab_series *series = &section->series[section->series_count++];
  *series =
      (lab_series){.x = copy_of(x, count, sizeof *x), .y = copy_of(y, count, sizeof *y), .count = count, .line = line};
  SET(series->name, "%s", name);
}

void lab_report_free(lab_report *report) {
  for (int64_t i = 0; i < report->run_count; i++)
    free(report->runs[i].curve);
  for (int64_t i = 0; i < report->section_count; i++) {
    lab_section *section = &report->sections[i];
    for (int64_t c = 0; c < section->rows * section->columns; c++)
      free(section->cells[c]);
    for (int64_t s = 0; s < section->series_count; s++) {
      free(section->series[s].x);
      free(section->series[s].y);
    }
    free(section->series);
    free(section->cells);
    free(section->text);
  }
  free(report->runs);
  free(report->sections);
  *report = (lab_report){0};
}

/* ---- Names ---- */

void lab_norm_title(char *title, size_t size, const char *norm, double p) {
  static const char *const names[][2] = {
      {"none", "no norm"}, {"layer", "LayerNorm"}, {"rms", "RMSNorm"},       {"prms", "pRMSNorm"},
      {"l2", "L2-norm"},   {"batch", "BatchNorm"}, {"weight", "WeightNorm"}, {"prms-local", "local pRMSNorm"}};
  const char *name = norm;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i][0], norm) == 0) name = names[i][1];
  if (isfinite(p))
    snprintf(title, size, "%s %.4g %%", name, 100 * p);
  else
    snprintf(title, size, "%s", name);
}

const char *lab_family_title(const char *family) {
  static const char *const names[][2] = {{"rnnsearch", "RNNSearch: translation with a GRU and attention"},
                                         {"transformer", "Transformer: translation"},
                                         {"lm", "Transformer: language model"},
                                         {"convpool", "ConvPool-CNN-C: images"},
                                         {"reader", "Attentive reader: cloze questions"},
                                         {"order", "Order-embeddings: retrieval"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i][0], family) == 0) return names[i][1];
  return family;
}
