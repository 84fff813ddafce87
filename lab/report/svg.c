/* SPDX-License-Identifier: MIT */
#include "report/svg.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 400, HEIGHT = 250, LEFT = 52, RIGHT = 388, TOP = 12, BOTTOM = 206 };

typedef struct axis {
  double low, high;   /* of the data, in powers of ten if logarithmic */
  double start, stop; /* in the picture                               */
  int log;
} axis;

static double position(const axis *a, double value) {
  double v = a->log ? log10(value) : value;
  double share = a->high > a->low ? (v - a->low) / (a->high - a->low) : 0.5;
  return a->start + fmin(1, fmax(0, share)) * (a->stop - a->start);
}

static void figure_start(lab_out *out, const char *title) {
  lab_out_format(out, "<figure><figcaption>");
  lab_out_html(out, title);
  lab_out_format(out, "</figcaption>\n");
}

/* ---- Axes ---- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int usable(const lab_chart *chart, lab_xy point) {
  return isfinite(point.x) && isfinite(point.y) && !(chart->log_x && point.x <= 0) && !(chart->log_y && point.y <= 0);
}

/* Gathers x or y of all points, sorted. */
static double *gather(const lab_chart *chart, int want_y, int64_t *count) {
  int64_t total = 0;
  for (int64_t i = 0; i < chart->count; i++)
    total += chart->lines[i].count;
  double *values = lab_alloc((size_t)total, sizeof *values);
  *count = 0;
  for (int64_t i = 0; i < chart->count; i++)
    for (int64_t j = 0; j < chart->lines[i].count; j++) {
      lab_xy point = chart->lines[i].points[j];
      if (usable(chart, point)) values[(*count)++] = want_y ? point.y : point.x;
    }
  qsort(values, (size_t)*count, sizeof *values, by_value);
  return values;
}

/* The middle one of the lines' first points: where training starts, whatever one run does. */
static double usual_start(const lab_chart *chart) {
  double *starts = lab_alloc((size_t)chart->count, sizeof *starts);
  int64_t count = 0;
  for (int64_t i = 0; i < chart->count; i++)
    if (chart->lines[i].count > 0 && usable(chart, chart->lines[i].points[0]))
      starts[count++] = chart->lines[i].points[0].y;
  qsort(starts, (size_t)count, sizeof *starts, by_value);
  double middle = count > 0 ? starts[count / 2] : DBL_MAX;
  free(starts);
  return middle;
}

static axis make_axis(const lab_chart *chart, int want_y) {
  int64_t count;
  double *values = gather(chart, want_y, &count);
  axis a = {.log = want_y ? chart->log_y : chart->log_x};
  if (count > 0) {
    double low = values[0], high = values[count - 1];
    if (want_y && chart->loss) high = fmin(high, fmax(low, 1.3 * usual_start(chart)));
    a.low = a.log ? log10(low) : low;
    a.high = a.log ? log10(high) : high;
    if (!(a.high - a.low > 1e-12 * fmax(1, fabs(a.high)))) {
      double half = a.log ? 0.5 : fmax(fabs(a.high) * 0.1, 1e-3);
      a.low -= half;
      a.high += half;
    } else if (want_y) {
      double margin = 0.04 * (a.high - a.low);
      a.low -= margin;
      a.high += margin;
    }
  }
  a.start = want_y ? BOTTOM : LEFT;
  a.stop = want_y ? TOP : RIGHT;
  free(values);
  return a;
}

static void draw_tick(lab_out *out, const axis *a, int is_y, double value) {
  double at = position(a, value);
  if (is_y)
    lab_out_format(out, "<path class='grid' d='M%d %.1fH%d'/><text class='y' x='%d' y='%.1f'>%.4g</text>\n", LEFT, at,
                   RIGHT, LEFT - 6, at + 4, value);
  else
    lab_out_format(out, "<path class='grid' d='M%.1f %dV%d'/><text class='x' x='%.1f' y='%d'>%.4g</text>\n", at, TOP,
                   BOTTOM, at, BOTTOM + 16, value);
}

/* About five ticks at 1, 2 or 5 times a power of ten. */
static void draw_ticks(lab_out *out, const axis *a, int is_y) {
  double range = a->high - a->low;
  if (a->log) {
    int decades = (int)ceil(range), stride = decades > 6 ? (decades + 5) / 6 : 1;
    for (int power = (int)floor(a->low); power <= (int)ceil(a->high); power++)
      for (int digit = 1; digit <= 9; digit++) {
        double value = digit * pow(10, power), v = log10(value);
        int wanted = digit == 1 ? power % stride == 0 : range < 0.9 || (range < 2.2 && (digit == 2 || digit == 5));
        if (wanted && v >= a->low - 1e-9 && v <= a->high + 1e-9) draw_tick(out, a, is_y, value);
      }
    return;
  }
  double rough = range / 5, power = pow(10, floor(log10(rough))), share = rough / power;
  double step = power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
  for (double k = ceil(a->low / step - 1e-9); k * step <= a->high + 1e-9 * step; k++)
    draw_tick(out, a, is_y, fabs(k) < 0.5 ? 0 : k * step);
}

/* ---- Lines ---- */

static void draw_line(lab_out *out, const lab_chart *chart, const lab_line *line, const axis *x, const axis *y) {
  if (line->dots) {
    for (int64_t i = 0; i < line->count; i++)
      if (usable(chart, line->points[i]))
        lab_out_format(out, "<circle class='dot %s' cx='%.1f' cy='%.1f' r='3.5'/>", line->style,
                       position(x, line->points[i].x), position(y, line->points[i].y));
    lab_out_format(out, "\n");
    return;
  }
  lab_out_format(out, "<polyline class='curve%s %s' points='", line->faint ? " faint" : "", line->style);
  for (int64_t i = 0; i < line->count; i++)
    if (usable(chart, line->points[i]))
      lab_out_format(out, "%.1f,%.1f ", position(x, line->points[i].x), position(y, line->points[i].y));
  lab_out_format(out, "'/>\n");
}

static void draw_legend(lab_out *out, const lab_chart *chart) {
  lab_out_format(out, "<p class='legend'>");
  for (int64_t i = 0; i < chart->count; i++) {
    const lab_line *line = &chart->lines[i];
    if (!line->name) continue;
    lab_out_format(out, "<span class='%s'><svg class='key' viewBox='0 0 24 10'>%s</svg><b>", line->style,
                   line->dots ? "<circle class='dot' cx='12' cy='5' r='3.5'/>" : "<path class='curve' d='M0 5H24'/>");
    lab_out_html(out, line->name);
    lab_out_format(out, "</b></span> ");
  }
  lab_out_format(out, "</p>");
}

void lab_svg_lines(lab_out *out, const lab_chart *chart) {
  axis x = make_axis(chart, 0), y = make_axis(chart, 1);
  figure_start(out, chart->title);
  lab_out_format(out, "<svg class='chart' id='%s' viewBox='0 0 %d %d' role='img' aria-label='", chart->id, WIDTH,
                 HEIGHT);
  lab_out_html(out, chart->title);
  lab_out_format(out, "'>\n");
  draw_ticks(out, &x, 0);
  draw_ticks(out, &y, 1);
  lab_out_format(out, "<path class='axis' d='M%d %dV%dH%d'/>\n<text class='x' x='%d' y='%d'>", LEFT, TOP, BOTTOM, RIGHT,
                 (LEFT + RIGHT) / 2, BOTTOM + 36);
  lab_out_html(out, chart->x_label);
  lab_out_format(out, "</text><text class='x' transform='translate(13 %d) rotate(-90)'>", (TOP + BOTTOM) / 2);
  lab_out_html(out, chart->y_label);
  lab_out_format(out, "</text>\n");
  for (int faint = 1; faint >= 0; faint--)
    for (int64_t i = 0; i < chart->count; i++)
      if (chart->lines[i].faint == faint) draw_line(out, chart, &chart->lines[i], &x, &y);
  lab_out_format(out, "</svg>");
  draw_legend(out, chart);
  lab_out_format(out, "</figure>\n");
}

/* ---- Bars ---- */

void lab_svg_bars(lab_out *out, const char *id, const char *title, const lab_bar *bars, int64_t count) {
  enum { NAME = 120, END = 300, ROW = 30 };
  double most = 0;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(bars[i].value)) most = fmax(most, bars[i].value + (isfinite(bars[i].sd) ? bars[i].sd : 0));
  axis a = {.high = most > 0 ? most : 1, .start = NAME, .stop = END};
  figure_start(out, title);
  lab_out_format(out, "<svg class='chart bars' id='%s' viewBox='0 0 %d %d' role='img' aria-label='", id, WIDTH,
                 (int)count * ROW + 8);
  lab_out_html(out, title);
  lab_out_format(out, "'>\n");
  for (int64_t i = 0; i < count; i++) {
    double top = (double)i * ROW + 6, middle = top + (ROW - 8) / 2.0;
    lab_out_format(out, "<text class='y' x='%d' y='%.1f'>", NAME - 8, middle + 4);
    lab_out_html(out, bars[i].name);
    lab_out_format(out, "</text>");
    if (!isfinite(bars[i].value)) {
      lab_out_format(out, "<text class='value' x='%d' y='%.1f'>none</text>\n", NAME + 4, middle + 4);
      continue;
    }
    char text[64];
    lab_spread_text(text, sizeof text, bars[i].value, bars[i].sd);
    double end = position(&a, bars[i].value), far = end;
    lab_out_format(out, "<rect class='bar %s' x='%d' y='%.1f' width='%.1f' height='%d' rx='2'/>", bars[i].style, NAME,
                   top, fmax(1, end - NAME), ROW - 8);
    if (isfinite(bars[i].sd)) {
      double from = position(&a, bars[i].value - bars[i].sd);
      far = position(&a, bars[i].value + bars[i].sd);
      lab_out_format(out, "<path class='spread' d='M%.1f %.1fH%.1fM%.1f %.1fv8M%.1f %.1fv8'/>", from, middle, far, from,
                     middle - 4, far, middle - 4);
    }
    lab_out_format(out, "<text class='value' x='%.1f' y='%.1f'>%s</text>\n", far + 6, middle + 4, text);
  }
  lab_out_format(out, "<path class='axis' d='M%d 0V%d'/></svg></figure>\n", NAME, (int)count * ROW + 4);
}
