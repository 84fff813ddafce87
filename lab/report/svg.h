/* SPDX-License-Identifier: MIT
 *
 * Charts as inline SVG. Colours come from the page: each line or bar carries a class.
 */
#ifndef LAB_REPORT_SVG_H
#define LAB_REPORT_SVG_H

#include "report/out.h"

typedef struct lab_xy {
  double x, y;
} lab_xy;

typedef struct lab_line {
  const char *style; /* class: "n-rms"                           */
  const char *name;  /* in the legend; NULL: not listed          */
  lab_xy *points;    /* finite                                   */
  int64_t count;
  int faint; /* one run beside the mean of all           */
  int dots;  /* points instead of a line                 */
} lab_line;

typedef struct lab_chart {
  const char *id, *title, *x_label, *y_label;
  int log_x, log_y;
  int loss; /* 1: the axis ends a little above where most curves start, so that no outlier flattens the others */
  lab_line *lines;
  int64_t count;
} lab_chart;

/* A figure with caption and legend. */
void lab_svg_lines(lab_out *out, const lab_chart *chart);

typedef struct lab_bar {
  const char *style, *name;
  double value, sd; /* sd LAB_NONE: no spread */
} lab_bar;

/* Lying bars from zero, each with its value and spread written at the end. */
void lab_svg_bars(lab_out *out, const char *id, const char *title, const lab_bar *bars, int64_t count);

#endif
