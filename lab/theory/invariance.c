/* SPDX-License-Identifier: MIT
 *
 * The paper's Table 1 by experiment: change the weights or the data, and see whether the output of the normalised layer
 * stays what it was.
 */
#include "theory/theory.h"

#include <math.h>
#include <stdio.h>

#include "theory/layer.h"

enum { CHANGES = 6, TRIALS = 8 };

static const char *const change_names[CHANGES] = {"W rescaled",    "W recentred",    "one unit's w rescaled",
                                                  "data rescaled", "data recentred", "one case rescaled"};

/* 1: the output does not change. Rows: batch, weight, layer, RMS, pRMS. */
static const int paper[NET_NONE][CHANGES] = {
    {1, 0, 1, 1, 1, 0}, {1, 0, 1, 0, 0, 0}, {1, 1, 0, 1, 0, 1}, {1, 0, 0, 1, 0, 1}, {1, 0, 0, 1, 0, 1}};

static void apply_change(net *n, int change, lab_rng *rng) {
  double factor = exp2(0.5 + 2 * lab_rng_unit(rng)), shift[NET_INPUTS];
  /* In the statistic of pRMSNorm and outside it. */
  int unit = lab_rng_below(rng, 2) ? 0 : NET_UNITS - 1;
  for (int j = 0; j < NET_INPUTS; j++)
    shift[j] = lab_rng_normal(rng);
  for (int j = 0; j < NET_INPUTS; j++) {
    for (int u = 0; u < NET_UNITS; u++) {
      if (change == 0 || (change == 2 && u == unit)) n->w[u][j] *= factor;
      if (change == 1) n->w[u][j] += shift[j];
    }
    for (int i = 0; i < NET_CASES; i++) {
      if (change == 3 || (change == 5 && i == 0)) n->z[i][j] *= factor;
      if (change == 4) n->z[i][j] += shift[j];
    }
  }
}

/* The largest change of an output, relative to the largest output. */
static double difference(const net_output *before, const net_output *after) {
  double most = 0, size = 0;
  for (int i = 0; i < NET_CASES; i++)
    for (int u = 0; u < NET_UNITS; u++) {
      most = fmax(most, fabs(after->y[i][u] - before->y[i][u]));
      size = fmax(size, fabs(before->y[i][u]));
    }
  return most / size;
}

/* The least and the largest difference over the trials. */
static rms_status measure(net_norm norm, int change, uint64_t seed, double *least, double *largest) {
  *least = HUGE_VAL;
  *largest = 0;
  for (int trial = 0; trial < TRIALS; trial++) {
    lab_rng rng = lab_rng_make(seed, (uint64_t)trial);
    net n;
    net_output before, after;
    net_fill(&n, &rng);
    rms_status status = net_forward(&n, norm, &before);
    apply_change(&n, change, &rng);
    if (status == RMS_OK) status = net_forward(&n, norm, &after);
    if (status != RMS_OK) return status;
    double d = difference(&before, &after);
    *least = fmin(*least, d);
    *largest = fmax(*largest, d);
  }
  return RMS_OK;
}

/* What rounding can do: a summed input has at most about NET_INPUTS roundings of 2^-53, of terms whose sizes add up to
 * some ten times the input; the norm adds no more. 1e-11 is far above that, and a real change is far above 1e-3. */
static int verdict(double least, double largest) {
  if (largest < 1e-11) return 1;
  return least > 1e-3 ? 0 : -1;
}

int lab_theory_invariance(lab_report *report, uint64_t seed, FILE *out, lab_error *error) {
  lab_section *section = lab_report_add_section(
      report, "invariance", "Invariances: the paper's Table 1, found by experiment",
      "Does the output of a normalised layer stay the same when its weights W or its data change like this? In "
      "brackets the "
      "largest relative change seen in 8 random layers (double precision, eps = 0); rounding alone gives about 1e-15.");
  const char *row[1 + CHANGES] = {"norm"};
  for (int c = 0; c < CHANGES; c++)
    row[1 + c] = change_names[c];
  lab_section_row(section, 1 + CHANGES, row);
  int differing = 0;
  for (net_norm norm = NET_BATCH; norm < NET_NONE; norm++) {
    char cells[CHANGES][64];
    row[0] = net_names[norm];
    for (int c = 0; c < CHANGES; c++) {
      double least, largest;
      rms_status status = measure(norm, c, seed, &least, &largest);
      if (status != RMS_OK) return lab_fail(error, "invariance: %s", rms_status_string(status));
      int found = verdict(least, largest);
      const char *note = found == paper[norm][c] ? "" : paper[norm][c] ? "; the paper: yes" : "; the paper: no";
      differing += found != paper[norm][c];
      snprintf(cells[c], sizeof cells[c], "%s (%.0e%s)",
               found == 1   ? "yes"
               : found == 0 ? "no"
                            : "unclear",
               largest, note);
      row[1 + c] = cells[c];
    }
    lab_section_row(section, 1 + CHANGES, row);
  }
  char result[64];
  if (differing == 0)
    snprintf(result, sizeof result, "All %d cells agree with the paper.", NET_NONE * CHANGES);
  else
    snprintf(result, sizeof result, "%d of %d cells differ from the paper.", differing, NET_NONE * CHANGES);
  lab_section_text(section, result);
  lab_section_print(section, out);
  return differing;
}
