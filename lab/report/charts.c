/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"

enum { BUCKETS = 120 };

typedef struct bucket {
  double x, y;
  int64_t count;
} bucket;

static int belongs(const lab_run *run, const lab_run *first) {
  return !run->timing && lab_same_kind(run, first);
}

/* What a step takes with the engine that the runs were trained with. */
static double step_seconds(const lab_summary *s) {
  return s->times[strcmp(s->first->engine, "textbook") == 0 ? LAB_TEXTBOOK : LAB_LIBRARY].seconds / 1000;
}

/* The points of some runs, averaged in up to BUCKETS steps along x: smooths the noise of single batches, and is the
 * mean over runs where there are several. `only` NULL: all runs of the kind of `first`. x is the step times `scale`. */
static lab_line make_curve(const lab_report *report, const lab_run *first, const lab_run *only, double scale) {
  bucket buckets[BUCKETS] = {{0, 0, 0}};
  double longest = 0;
  for (int pass = 0; pass < 2; pass++)
    for (const lab_run *run = report->runs; run < report->runs + report->run_count; run++) {
      if (only ? run != only : !belongs(run, first)) continue;
      for (int64_t i = 0; i < run->curve_count; i++) {
        double x = run->curve[i].step * scale;
        if (!isfinite(x) || !isfinite(run->curve[i].loss)) continue;
        if (pass == 0) longest = fmax(longest, x);
        if (pass == 0) continue;
        bucket *b = &buckets[longest > 0 ? (int)fmin(BUCKETS - 1, fmax(0, x / longest * BUCKETS)) : 0];
        b->x += x;
        b->y += run->curve[i].loss;
        b->count++;
      }
    }
  lab_line line = {.points = lab_alloc(BUCKETS, sizeof *line.points)};
  for (int i = 0; i < BUCKETS; i++)
    if (buckets[i].count > 0)
      line.points[line.count++] =
          (lab_xy){buckets[i].x / (double)buckets[i].count, buckets[i].y / (double)buckets[i].count};
  return line;
}

/* Against seconds: the usual time of a step times their number. The clock itself also shows what else the
 * machine did. */
static void write_curves(lab_out *out, const lab_report *report, const lab_family *family, int against_seconds) {
  lab_line *lines = lab_alloc((size_t)(family->count + report->run_count), sizeof *lines);
  lab_cell *names = lab_alloc((size_t)family->count, sizeof *names);
  char(*styles)[24] = lab_alloc((size_t)family->count, sizeof *styles), id[64];
  int64_t count = 0;
  for (int64_t i = 0; i < family->count; i++) {
    const lab_run *first = family->summaries[i].first;
    double scale = against_seconds ? step_seconds(&family->summaries[i]) : 1;
    lab_norm_title(names[i], sizeof names[i], first->norm, first->p);
    snprintf(styles[i], sizeof styles[i], "n-%s", first->norm);
    for (const lab_run *run = report->runs; family->summaries[i].runs > 1 && run < report->runs + report->run_count;
         run++)
      if (belongs(run, first)) {
        lines[count] = make_curve(report, first, run, scale);
        lines[count].faint = 1;
        lines[count++].style = styles[i];
      }
    lines[count] = make_curve(report, first, NULL, scale);
    lines[count].name = names[i];
    lines[count++].style = styles[i];
  }
  snprintf(id, sizeof id, "%s-%s", family->first->family, against_seconds ? "seconds" : "steps");
  lab_svg_lines(out,
                &(lab_chart){.id = id,
                             .title = against_seconds ? "Training loss against time" : "Training loss against steps",
                             .x_label = against_seconds ? "seconds of training" : "step",
                             .y_label = "loss",
                             .log_y = 1,
                             .loss = 1,
                             .lines = lines,
                             .count = count});
  for (int64_t i = 0; i < count; i++)
    free(lines[i].points);
  free(lines);
  free(names);
  free(styles);
}

typedef enum bar_kind { QUALITY_BARS, UNFUSED_BARS, LIBRARY_BARS } bar_kind;

static void write_bars(lab_out *out, const lab_family *family, bar_kind kind) {
  static const char *const titles[] = {NULL, "Milliseconds a step, un-fused norms (less is better)",
                                       "Milliseconds a step, this library's norms (less is better)"};
  static const char *const names_of_kind[] = {"quality", "unfused", "library"};
  lab_bar *bars = lab_alloc((size_t)family->count, sizeof *bars);
  lab_cell *names = lab_alloc((size_t)family->count, sizeof *names);
  char(*styles)[24] = lab_alloc((size_t)family->count, sizeof *styles), id[64], title[128];
  int64_t measured = 0, shown = 0;
  for (int64_t i = 0; i < family->count; i++) {
    const lab_summary *s = &family->summaries[i];
    const lab_times *times = &s->times[kind == UNFUSED_BARS ? LAB_TEXTBOOK : LAB_LIBRARY];
    lab_norm_title(names[i], sizeof names[i], s->first->norm, s->first->p);
    snprintf(styles[i], sizeof styles[i], "n-%s", s->first->norm);
    lab_bar bar = {styles[i], names[i], kind == QUALITY_BARS ? s->quality : times->seconds,
                   kind == QUALITY_BARS ? s->quality_sd : times->seconds_sd};
    if (kind == QUALITY_BARS || isfinite(bar.value)) bars[shown++] = bar;
    measured += isfinite(bar.value);
  }
  snprintf(id, sizeof id, "%s-%s", family->first->family, names_of_kind[kind]);
  if (kind == QUALITY_BARS)
    snprintf(title, sizeof title, "%s (%s is better)", family->first->metric,
             family->first->higher_is_better ? "more" : "less");
  else
    snprintf(title, sizeof title, "%s", titles[kind]);
  if (measured > 0) lab_svg_bars(out, id, title, bars, shown);
  free(bars);
  free(names);
  free(styles);
}

void lab_page_charts(lab_out *out, const lab_report *report, const lab_family *family) {
  lab_out_format(out, "<div class='charts'>\n");
  write_curves(out, report, family, 0);
  write_curves(out, report, family, 1);
  write_bars(out, family, QUALITY_BARS);
  write_bars(out, family, UNFUSED_BARS);
  write_bars(out, family, LIBRARY_BARS);
  lab_out_format(out, "</div>\n");
}
