/* SPDX-License-Identifier: MIT
 *
 * The measurements of the theory come out as the paper says, whatever the seed, and would notice if they
 * did not. */
#include "theory/theory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "theory/layer.h"

static lab_error error;

static void invariances(void) {
  for (uint64_t seed = 1; seed <= 5; seed++) {
    lab_report report = {0};
    FILE *out = tmpfile();
    if (!T_CHECK(out != NULL)) return;
    t_context("seed %d", (int)seed);
    T_EQ_INT(0, lab_theory_invariance(&report, seed, out, &error));
    T_CHECK(ftell(out) > 200);
    if (T_EQ_INT(1, report.section_count)) {
      const lab_section *section = &report.sections[0];
      T_CHECK(strstr(section->text, "All 30 cells agree with the paper.") != NULL);
      T_EQ_INT(6, section->rows);
      T_EQ_INT(7, section->columns);
      /* LayerNorm: yes yes no yes no yes. */
      T_EQ_STR("LayerNorm", section->cells[3 * 7]);
      for (int c = 0; c < 6; c++)
        T_EQ_INT("yynyny"[c], section -> cells[3 * 7 + 1 + c][0]);
    }
    fclose(out);
    lab_report_free(&report);
  }
}

static void rates(void) {
  for (uint64_t seed = 1; seed <= 5; seed++) {
    lab_report report = {0};
    FILE *out = tmpfile();
    if (!T_CHECK(out != NULL)) return;
    t_context("seed %d", (int)seed);
    T_EQ_INT(0, lab_theory_rate(&report, seed, out, &error));
    if (T_EQ_INT(1, report.section_count)) {
      const lab_section *section = &report.sections[0];
      T_EQ_INT(5, section->rows);
      T_EQ_INT(4, section->series_count);
      T_CHECK(strncmp(section->cells[2 * 5 + 1], "-1.000000000 (-1)", 17) == 0);
      T_CHECK(strncmp(section->cells[4 * 5 + 2], "1.000000000 (1)", 15) == 0); /* no norm: grows with the input */
    }
    fclose(out);
    lab_report_free(&report);
  }
}

/* The backward that the measurements rest on, against central differences: with steps of 1e-5 the quotient's own error
 * is about 1e-10 (third derivative) + 1e-16 / 1e-5 (cancellation), for gradients of size 1. */
static void gradients(void) {
  static const net_norm norms[] = {NET_LAYER, NET_RMS, NET_PRMS, NET_NONE};
  for (size_t k = 0; k < T_COUNT(norms); k++) {
    lab_rng rng = lab_rng_make(t_seed(), k);
    net n;
    net_output dy, plus, minus;
    net_gradient gradient;
    net_fill(&n, &rng);
    for (int i = 0; i < NET_CASES; i++)
      for (int u = 0; u < NET_UNITS; u++)
        dy.y[i][u] = lab_rng_normal(&rng);
    T_EQ_STATUS(RMS_OK, net_backward(&n, norms[k], &dy, &gradient));
    for (int trial = 0; trial < 20; trial++) {
      int u = (int)lab_rng_below(&rng, NET_UNITS), j = (int)lab_rng_below(&rng, NET_INPUTS);
      double kept = n.w[u][j], difference = 0;
      n.w[u][j] = kept + 1e-5;
      T_EQ_STATUS(RMS_OK, net_forward(&n, norms[k], &plus));
      n.w[u][j] = kept - 1e-5;
      T_EQ_STATUS(RMS_OK, net_forward(&n, norms[k], &minus));
      n.w[u][j] = kept;
      for (int i = 0; i < NET_CASES; i++)
        for (int v = 0; v < NET_UNITS; v++)
          difference += dy.y[i][v] * (plus.y[i][v] - minus.y[i][v]) / 2e-5;
      t_context("%s, unit %d, input %d", net_names[norms[k]], u, j);
      T_NEAR(difference, gradient.w[u][j], 1e-7);
    }
  }
}

static const t_case cases[] = {{"invariances", invariances}, {"rates", rates}, {"gradients", gradients}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
