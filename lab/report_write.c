/* SPDX-License-Identifier: MIT
 *
 * JSON, CSV and the files.
 */
#define _POSIX_C_SOURCE 200809L
#include "report_out.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- JSON
 * -----------------------------------------------------------------------------------------------------------------------
 */

static void json_text(lab_out *out, const char *key, const char *text) {
  lab_out_format(out, "\"%s\": ", key);
  lab_out_json(out, text);
  lab_out_format(out, ", ");
}

static void json_number(lab_out *out, const char *key, double value) {
  lab_out_format(out, "\"%s\": ", key);
  lab_out_number(out, value);
  lab_out_format(out, ", ");
}

/* Integers that were not measured are -1. */
static void json_count(lab_out *out, const char *key, int64_t value) {
  if (value < 0)
    lab_out_format(out, "\"%s\": null, ", key);
  else
    lab_out_format(out, "\"%s\": %" PRId64 ", ", key, value);
}

static void json_run(lab_out *out, const lab_run *run) {
  lab_paper paper = lab_paper_figure(run->family, run->norm);
  lab_out_format(out, "    {");
  json_text(out, "family", run->family);
  json_text(out, "norm", run->norm);
  json_text(out, "engine", run->engine);
  json_number(out, "p", run->p);
  lab_out_format(out, "\"seed\": %" PRIu64 ", ", run->seed);
  json_text(out, "data", run->data);
  lab_out_format(out, "\"synthetic\": %s,\n     ", run->synthetic ? "true" : "false");
  json_text(out, "metric", run->metric);
  lab_out_format(out, "\"higher_is_better\": %s, ", run->higher_is_better ? "true" : "false");
  json_number(out, "quality", run->quality);
  json_text(out, "details", run->details);
  json_count(out, "diverged_step", run->diverged_step);
  lab_out_format(out, "\n     ");
  json_count(out, "steps", run->steps);
  json_number(out, "seconds_per_1000_steps", run->seconds_per_1000);
  json_number(out, "norm_share", run->norm_share);
  json_number(out, "blas_share", run->blas_share);
  json_count(out, "parameters", run->parameters);
  json_count(out, "activation_bytes", run->activation_bytes);
  lab_out_format(out, "\n     ");
  json_number(out, "paper_quality", paper.quality);
  json_number(out, "paper_seconds", paper.seconds);
  json_number(out, "paper_reduction_against_layer", paper.reduction);
  lab_out_format(out, "\n     \"curve\": [");
  for (int64_t i = 0; i < run->curve_count; i++) {
    lab_out_format(out, "%s[", i ? ", " : "");
    lab_out_number(out, run->curve[i].step);
    lab_out_format(out, ", ");
    lab_out_number(out, run->curve[i].seconds);
    lab_out_format(out, ", ");
    lab_out_number(out, run->curve[i].loss);
    lab_out_format(out, "]");
  }
  lab_out_format(out, "]}");
}

static void json_points(lab_out *out, const lab_series *series) {
  for (int64_t i = 0; i < series->count; i++) {
    lab_out_format(out, "%s[", i ? ", " : "");
    lab_out_number(out, series->x[i]);
    lab_out_format(out, ", ");
    lab_out_number(out, series->y[i]);
    lab_out_format(out, "]");
  }
}

static void json_section(lab_out *out, const lab_section *section) {
  lab_out_format(out, "    {");
  json_text(out, "key", section->key);
  json_text(out, "title", section->title);
  json_text(out, "text", section->text);
  lab_out_format(out, "\n     \"table\": [");
  for (int64_t row = 0; row < section->rows; row++) {
    lab_out_format(out, "%s[", row ? ",\n      " : "");
    for (int i = 0; i < section->columns; i++) {
      if (i) lab_out_format(out, ", ");
      lab_out_json(out, section->cells[row * section->columns + i]);
    }
    lab_out_format(out, "]");
  }
  lab_out_format(out, "],\n     ");
  json_text(out, "x", section->x_label);
  json_text(out, "y", section->y_label);
  lab_out_format(out, "\"series\": [");
  for (int64_t s = 0; s < section->series_count; s++) {
    lab_out_format(out, "%s{\"name\": ", s ? ",\n      " : "");
    lab_out_json(out, section->series[s].name);
    lab_out_format(out, ", \"points\": [");
    json_points(out, &section->series[s]);
    lab_out_format(out, "]}");
  }
  lab_out_format(out, "]}");
}

static void write_json(const lab_report *report, lab_out *out) {
  lab_out_format(out, "{\n  \"environment\": {");
  json_text(out, "cpu", report->cpu);
  json_text(out, "date", report->date);
  json_text(out, "command", report->command);
  json_text(out, "version", report->version);
  json_text(out, "isa", report->isa);
  json_text(out, "note", report->note);
  lab_out_format(out, "\"threads\": %d},\n  \"runs\": [", report->threads);
  for (int64_t i = 0; i < report->run_count; i++) {
    lab_out_format(out, i ? ",\n" : "\n");
    json_run(out, &report->runs[i]);
  }
  lab_out_format(out, "\n  ],\n  \"sections\": [");
  for (int64_t i = 0; i < report->section_count; i++) {
    lab_out_format(out, i ? ",\n" : "\n");
    json_section(out, &report->sections[i]);
  }
  lab_out_format(out, "\n  ]\n}\n");
}

/* ---- CSV: fields that were not measured are empty
 * ------------------------------------------------------------------------------ */

static void csv_number(lab_out *out, double value) {
  if (isfinite(value)) lab_out_format(out, "%.9g", value);
  lab_out_format(out, ",");
}

static void csv_count(lab_out *out, int64_t value) {
  if (value >= 0) lab_out_format(out, "%" PRId64, value);
  lab_out_format(out, ",");
}

static void write_runs(const lab_report *report, lab_out *out) {
  lab_out_format(out,
                 "family,norm,engine,p,seed,metric,quality,diverged_step,steps,seconds_per_1000_steps,norm_share,"
                 "blas_share,parameters,activation_bytes,paper_quality,paper_seconds,paper_reduction,synthetic,data\n");
  for (int64_t i = 0; i < report->run_count; i++) {
    const lab_run *run = &report->runs[i];
    lab_paper paper = lab_paper_figure(run->family, run->norm);
    lab_out_format(out, "%s,%s,%s,", run->family, run->norm, run->engine);
    csv_number(out, run->p);
    lab_out_format(out, "%" PRIu64 ",", run->seed);
    lab_out_csv(out, run->metric);
    lab_out_format(out, ",");
    csv_number(out, run->quality);
    csv_count(out, run->diverged_step);
    csv_count(out, run->steps);
    csv_number(out, run->seconds_per_1000);
    csv_number(out, run->norm_share);
    csv_number(out, run->blas_share);
    csv_count(out, run->parameters);
    csv_count(out, run->activation_bytes);
    csv_number(out, paper.quality);
    csv_number(out, paper.seconds);
    csv_number(out, paper.reduction);
    lab_out_format(out, "%d,", run->synthetic);
    lab_out_csv(out, run->data);
    lab_out_format(out, "\n");
  }
}

static void write_curves(const lab_report *report, lab_out *out) {
  lab_out_format(out, "family,norm,engine,p,seed,step,seconds,loss\n");
  for (int64_t i = 0; i < report->run_count; i++) {
    const lab_run *run = &report->runs[i];
    for (int64_t j = 0; j < run->curve_count; j++) {
      lab_out_format(out, "%s,%s,%s,", run->family, run->norm, run->engine);
      csv_number(out, run->p);
      lab_out_format(out, "%" PRIu64 ",%.9g,%.9g,", run->seed, run->curve[j].step, run->curve[j].seconds);
      if (isfinite(run->curve[j].loss)) lab_out_format(out, "%.9g", run->curve[j].loss);
      lab_out_format(out, "\n");
    }
  }
}

/* ---- Files
 * ------------------------------------------------------------------------------------------------------------------------
 */

static int make_folder(const char *folder, lab_error *error) {
  char path[1024];
  if (!*folder || strlen(folder) > 900) return lab_fail(error, "'%.60s': not a usable folder name", folder);
  snprintf(path, sizeof path, "%s", folder);
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0777); /* what matters is whether the last one is there */
    *slash = '/';
  }
  struct stat status;
  if (mkdir(path, 0777) != 0 && errno != EEXIST) return lab_fail(error, "%s: %s", folder, strerror(errno));
  if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) return lab_fail(error, "%s: not a folder", folder);
  return 0;
}

static int write_file(const char *folder, const char *name, const lab_out *out, lab_error *error) {
  char path[1024], part[1024];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  snprintf(part, sizeof part, "%s/.%s.part", folder, name);
  FILE *file = fopen(part, "wb");
  if (!file) return lab_fail(error, "%s: %s", path, strerror(errno));
  int good = fwrite(out->text, 1, (size_t)out->length, file) == (size_t)out->length;
  good = fclose(file) == 0 && good;
  if (good && rename(part, path) == 0) return 0;
  lab_fail(error, "%s: %s", path, strerror(errno));
  remove(part);
  return -1;
}

int lab_report_write(const lab_report *report, const char *folder, lab_error *error) {
  static const struct {
    const char *name;
    void (*write)(const lab_report *report, lab_out *out);
  } files[] = {{"report.json", write_json},
               {"runs.csv", write_runs},
               {"curves.csv", write_curves},
               {"report.html", lab_report_html}};
  if (make_folder(folder, error) < 0) return -1;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    lab_out out = {0};
    files[i].write(report, &out);
    int status = write_file(folder, files[i].name, &out, error);
    free(out.text);
    if (status < 0) return -1;
  }
  return 0;
}
