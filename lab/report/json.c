/* SPDX-License-Identifier: MIT
 *
 * The whole report as JSON; figures that were not measured are null.
 */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "report/out.h"

/* jansson takes UTF-8 alone; names of files may be anything. */
static json_t *text_of(const char *text) {
  lab_out clean = {0};
  lab_out_text(&clean, text);
  json_t *value = json_string(clean.text ? clean.text : "");
  free(clean.text);
  return value;
}

static json_t *number_of(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

/* Integers that were not measured are -1. */
static json_t *count_of(int64_t value) {
  return value < 0 ? json_null() : json_integer(value);
}

static json_t *curve_of(const lab_run *run) {
  json_t *curve = json_array();
  for (int64_t i = 0; i < run->curve_count; i++) {
    const lab_point *point = &run->curve[i];
    json_array_append_new(
        curve, json_pack("[o, o, o]", number_of(point->step), number_of(point->seconds), number_of(point->loss)));
  }
  return curve;
}

static json_t *run_of(const lab_run *run) {
  lab_paper paper = lab_paper_figure(run->family, run->norm);
  json_t *r = json_object();
  json_object_set_new(r, "family", text_of(run->family));
  json_object_set_new(r, "norm", text_of(run->norm));
  json_object_set_new(r, "engine", text_of(run->engine));
  json_object_set_new(r, "p", number_of(run->p));
  json_object_set_new(r, "seed", json_integer((json_int_t)run->seed));
  json_object_set_new(r, "data", text_of(run->data));
  json_object_set_new(r, "synthetic", json_boolean(run->synthetic));
  json_object_set_new(r, "metric", text_of(run->metric));
  json_object_set_new(r, "higher_is_better", json_boolean(run->higher_is_better));
  json_object_set_new(r, "quality", number_of(run->quality));
  json_object_set_new(r, "details", text_of(run->details));
  json_object_set_new(r, "chance", number_of(run->chance));
  json_object_set_new(r, "timing_only", json_boolean(run->timing));
  json_object_set_new(r, "settings", text_of(run->settings));
  json_object_set_new(r, "diverged_step", count_of(run->diverged_step));
  json_object_set_new(r, "steps", count_of(run->steps));
  json_object_set_new(r, "seconds_per_1000_steps", number_of(run->seconds_per_1000));
  json_object_set_new(r, "norm_share", number_of(run->norm_share));
  json_object_set_new(r, "blas_share", number_of(run->blas_share));
  json_object_set_new(r, "parameters", count_of(run->parameters));
  json_object_set_new(r, "activation_bytes", count_of(run->activation_bytes));
  json_object_set_new(r, "paper_quality", number_of(paper.quality));
  json_object_set_new(r, "paper_seconds", number_of(paper.seconds));
  json_object_set_new(r, "paper_reduction_against_layer", number_of(paper.reduction));
  json_object_set_new(r, "curve", curve_of(run));
  return r;
}

static json_t *table_of(const lab_section *section) {
  json_t *table = json_array();
  for (int64_t row = 0; row < section->rows; row++) {
    json_t *cells = json_array();
    for (int i = 0; i < section->columns; i++)
      json_array_append_new(cells, text_of(section->cells[row * section->columns + i]));
    json_array_append_new(table, cells);
  }
  return table;
}

static json_t *series_of(const lab_series *series) {
  json_t *points = json_array();
  for (int64_t i = 0; i < series->count; i++)
    json_array_append_new(points, json_pack("[o, o]", number_of(series->x[i]), number_of(series->y[i])));
  return json_pack("{s: o, s: o}", "name", text_of(series->name), "points", points);
}

static json_t *section_of(const lab_section *section) {
  json_t *s = json_object(), *all = json_array();
  for (int64_t i = 0; i < section->series_count; i++)
    json_array_append_new(all, series_of(&section->series[i]));
  json_object_set_new(s, "key", text_of(section->key));
  json_object_set_new(s, "title", text_of(section->title));
  json_object_set_new(s, "text", text_of(section->text));
  json_object_set_new(s, "table", table_of(section));
  json_object_set_new(s, "x", text_of(section->x_label));
  json_object_set_new(s, "y", text_of(section->y_label));
  json_object_set_new(s, "series", all);
  return s;
}

static json_t *environment_of(const lab_report *report) {
  json_t *e = json_object();
  json_object_set_new(e, "cpu", text_of(report->cpu));
  json_object_set_new(e, "date", text_of(report->date));
  json_object_set_new(e, "command", text_of(report->command));
  json_object_set_new(e, "version", text_of(report->version));
  json_object_set_new(e, "isa", text_of(report->isa));
  json_object_set_new(e, "openblas_kernels", text_of(report->blas));
  json_object_set_new(e, "note", text_of(report->note));
  json_object_set_new(e, "threads", json_integer(report->threads));
  if (report->processes > 1) json_object_set_new(e, "processes", json_integer(report->processes));
  return e;
}

void lab_report_json(const lab_report *report, lab_out *out) {
  json_t *runs = json_array(), *sections = json_array();
  for (int64_t i = 0; i < report->run_count; i++)
    json_array_append_new(runs, run_of(&report->runs[i]));
  for (int64_t i = 0; i < report->section_count; i++)
    json_array_append_new(sections, section_of(&report->sections[i]));
  lab_summary *summaries;
  lab_family *families;
  lab_out verdict = {0};
  int64_t count = lab_report_summarise(report, &summaries);
  int64_t family_count = lab_report_families(summaries, count, &families);
  lab_report_verdict(families, family_count, &verdict);
  json_t *whole = json_object();
  json_object_set_new(whole, "verdict", text_of(verdict.text ? verdict.text : ""));
  free(verdict.text);
  free(families);
  free(summaries);
  json_object_set_new(whole, "environment", environment_of(report));
  json_object_set_new(whole, "runs", runs);
  json_object_set_new(whole, "sections", sections);
  char *text = json_dumps(whole, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  if (text) lab_out_format(out, "%s\n", text);
  free(text);
  json_decref(whole);
}
