/* SPDX-License-Identifier: MIT
 *
 * The answer in words. Two qualities are "within the spread" if their means differ by no more than the sum of their
 * standard deviations over the seeds.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/out.h"

enum { MOST_NAMES = 160 };

/* Names joined by commas: "rnnsearch, convpool". */
static void add_name(char *list, const char *name) {
  size_t used = strlen(list);
  snprintf(list + used, MOST_NAMES - used, "%s%s", used ? ", " : "", name);
}

/* ---- quality ---- */

typedef enum outcome { UNKNOWN, BETTER, ALIKE, WORSE, AT_CHANCE, OUTCOMES } outcome;

static outcome compare_quality(const lab_summary *a, const lab_summary *b) {
  if (!a || !b || !isfinite(a->quality_sd) || !isfinite(b->quality_sd)) return UNKNOWN;
  double more = a->quality - b->quality;
  if (a->at_chance || b->at_chance) return a->at_chance && !b->at_chance ? WORSE : AT_CHANCE;
  if (fabs(more) <= a->quality_sd + b->quality_sd) return ALIKE;
  return (more > 0) == a->first->higher_is_better ? BETTER : WORSE;
}

/* Of the norms that have a spread, the fewest seeds; 1 if none has but some have a quality, 0 if none has. */
static int64_t fewest_seeds(const lab_family *families, int64_t count) {
  int64_t fewest = 0, scored = 0;
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < families[i].count; j++) {
      const lab_summary *s = &families[i].summaries[j];
      scored |= isfinite(s->quality);
      if (isfinite(s->quality_sd) && (fewest == 0 || s->runs < fewest)) fewest = s->runs;
    }
  return fewest > 0 ? fewest : scored;
}

/* "within the spread of LayerNorm's in a, b, better in c"; returns 0 if nothing can be said. */
static int quality_part(const lab_family *families, int64_t count, const char *norm, char *text, size_t size) {
  static const char *const words[OUTCOMES] = {NULL, "better than LayerNorm's in", "within the spread of LayerNorm's in",
                                              "worse than LayerNorm's in", "not to be judged (one is at chance) in"};
  static const outcome order[] = {ALIKE, BETTER, WORSE, AT_CHANCE};
  char names[OUTCOMES][MOST_NAMES] = {""};
  size_t used = 0;
  text[0] = 0;
  for (int64_t i = 0; i < count; i++)
    add_name(names[compare_quality(lab_family_norm(&families[i], norm), lab_family_norm(&families[i], "layer"))],
             families[i].first->family);
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    if (names[order[i]][0] && used < size)
      used += (size_t)snprintf(text + used, size - used, "%s%s %s", used ? ", " : "", words[order[i]], names[order[i]]);
  return used > 0;
}

static void say_quality(const lab_family *families, int64_t count, lab_out *out) {
  char rms[512], partial[512];
  int64_t runs = fewest_seeds(families, count);
  if (runs == 1) {
    lab_out_format(out, "Quality: one seed, so no statement; --runs 2 or more makes one.\n");
    return;
  }
  if (!quality_part(families, count, "rms", rms, sizeof rms)) return;
  lab_out_format(out, "Quality: over %lld seeds RMSNorm's is %s", (long long)runs, rms);
  if (quality_part(families, count, "prms", partial, sizeof partial)) {
    if (strcmp(rms, partial) == 0)
      lab_out_format(out, ", and so is pRMSNorm's");
    else
      lab_out_format(out, "; pRMSNorm's is %s", partial);
  }
  lab_out_format(out, ".\n");
}

/* ---- time ---- */

typedef struct range {
  double low, high;
  int count;
} range;

static void widen(range *r, double value) {
  if (!isfinite(value)) return;
  r->low = r->count ? fmin(r->low, value) : value;
  r->high = r->count ? fmax(r->high, value) : value;
  r->count++;
}

/* "8 to 11 % less", "1 % more to 2 % less", "2 % less" */
static void range_text(const range *r, char *text, size_t size) {
  double low = round(100 * r->low) + 0.0, high = round(100 * r->high) + 0.0; /* + 0.0: no "-0" */
  if (low == high && low == 0)
    snprintf(text, size, "the same");
  else if (low == high)
    snprintf(text, size, "%.0f %% %s", fabs(low), low > 0 ? "less" : "more");
  else if (low >= 0)
    snprintf(text, size, "%.0f to %.0f %% less", low, high);
  else if (high <= 0)
    snprintf(text, size, "%.0f to %.0f %% more", -high, -low);
  else
    snprintf(text, size, "%.0f %% more to %.0f %% less", -low, high);
}

static void say_time(const lab_family *families, int64_t count, lab_out *out) {
  range engines[LAB_ENGINES] = {{0}}, paper = {0};
  char text[3][64];
  for (int64_t i = 0; i < count; i++) {
    const lab_summary *rms = lab_family_norm(&families[i], "rms");
    for (int engine = 0; rms && engine < LAB_ENGINES; engine++)
      widen(&engines[engine], rms->times[engine].reduction);
    widen(&paper, lab_paper_figure(families[i].first->family, "rms").reduction);
  }
  range_text(&engines[LAB_TEXTBOOK], text[0], sizeof text[0]);
  range_text(&engines[LAB_LIBRARY], text[1], sizeof text[1]);
  range_text(&paper, text[2], sizeof text[2]);
  if (!engines[LAB_TEXTBOOK].count && !engines[LAB_LIBRARY].count) return;
  lab_out_format(out, "Time: a step with RMSNorm takes ");
  if (engines[LAB_TEXTBOOK].count) lab_out_format(out, "%s than one with LayerNorm where norms are un-fused", text[0]);
  if (engines[LAB_TEXTBOOK].count && paper.count) lab_out_format(out, " (the paper: %s)", text[2]);
  if (engines[LAB_TEXTBOOK].count && engines[LAB_LIBRARY].count) lab_out_format(out, ", and ");
  if (engines[LAB_LIBRARY].count)
    lab_out_format(out, "%s%s with this library's fused kernels", text[1],
                   engines[LAB_TEXTBOOK].count ? "" : " than one with LayerNorm");
  lab_out_format(out, ".\n");
}

/* ---- no norm ---- */

static void say_without(const lab_family *families, int64_t count, lab_out *out) {
  char alike[MOST_NAMES] = "", worse[3 * MOST_NAMES] = "";
  for (int64_t i = 0; i < count; i++) {
    const lab_summary *none = lab_family_norm(&families[i], "none"), *rms = lab_family_norm(&families[i], "rms");
    size_t used = strlen(worse);
    if (!none || !rms) continue;
    outcome o = compare_quality(none, rms);
    if (none->diverged > 0)
      snprintf(worse + used, sizeof worse - used, "%s%s diverges in %lld of %lld runs", used ? ", " : "",
               families[i].first->family, (long long)none->diverged, (long long)none->runs);
    else if (o == WORSE)
      snprintf(worse + used, sizeof worse - used, "%s%s reaches %.1f %s where RMSNorm reaches %.1f", used ? ", " : "",
               families[i].first->family, none->quality, families[i].first->metric, rms->quality);
    else if (o == ALIKE || o == BETTER)
      add_name(alike, families[i].first->family);
  }
  if (!alike[0] && !worse[0]) return;
  lab_out_format(out, "Without a norm: %s", worse);
  if (alike[0])
    lab_out_format(out, "%s%s train%s as well at this size", worse[0] ? "; " : "", alike,
                   strchr(alike, ',') ? "" : "s");
  lab_out_format(out, ".\n");
}

void lab_report_verdict(const lab_family *families, int64_t count, lab_out *out) {
  if (count == 0) return;
  say_quality(families, count, out);
  say_time(families, count, out);
  say_without(families, count, out);
}
