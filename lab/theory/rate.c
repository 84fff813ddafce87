/* SPDX-License-Identifier: MIT
 *
 * The implicit learning-rate adaptation: with a norm after them, weights that are c times as large get a gradient that
 * is c times as small, and the scale of the inputs has no influence. Without a norm the scale of the weights has no
 * influence, and the gradient grows with the inputs. */
#include "theory/theory.h"

#include <math.h>
#include <stdio.h>

#include "theory/layer.h"

enum { SCALES = 13 };

static const net_norm measured[] = {NET_LAYER, NET_RMS, NET_PRMS, NET_NONE};
enum { MEASURED = sizeof measured / sizeof *measured };

typedef struct sweep {
  double scale[SCALES], norm[SCALES]; /* of the gradient of W */
  double slope;
  double gain_change; /* largest relative change of the gradient of the gain */
  double cosine;      /* between W and its gradient, the largest */
} sweep;

/* Least squares in log-log. */
static double fitted_slope(const double *x, const double *y, int count) {
  double mx = 0, my = 0, xx = 0, xy = 0;
  for (int i = 0; i < count; i++) {
    mx += log(x[i]) / count;
    my += log(y[i]) / count;
  }
  for (int i = 0; i < count; i++) {
    xx += (log(x[i]) - mx) * (log(x[i]) - mx);
    xy += (log(x[i]) - mx) * (log(y[i]) - my);
  }
  return xy / xx;
}

static double dot(const double *a, const double *b, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++)
    sum += a[i] * b[i];
  return sum;
}

static rms_status run_sweep(sweep *s, net_norm norm, int of_inputs, uint64_t seed) {
  enum { WEIGHTS = NET_UNITS * NET_INPUTS };
  lab_rng rng = lab_rng_make(seed, 77);
  net start;
  net_output dy;
  net_gradient gradient, first = {{{0}}, {0}};
  net_fill(&start, &rng);
  for (int i = 0; i < NET_CASES; i++)
    for (int u = 0; u < NET_UNITS; u++)
      dy.y[i][u] = lab_rng_normal(&rng);
  *s = (sweep){.slope = 0};
  for (int k = 0; k < SCALES; k++) {
    net n = start;
    s->scale[k] = pow(10, (k - SCALES / 2) / 3.0);
    double *values = of_inputs ? n.z[0] : n.w[0];
    for (int i = 0; i < (of_inputs ? NET_CASES * NET_INPUTS : WEIGHTS); i++)
      values[i] *= s->scale[k];
    rms_status status = net_backward(&n, norm, &dy, &gradient);
    if (status != RMS_OK) return status;
    s->norm[k] = sqrt(dot(gradient.w[0], gradient.w[0], WEIGHTS));
    double across = dot(n.w[0], gradient.w[0], WEIGHTS) / (s->norm[k] * sqrt(dot(n.w[0], n.w[0], WEIGHTS)));
    s->cosine = fmax(s->cosine, fabs(across));
    if (k == 0) first = gradient;
    for (int u = 0; u < NET_UNITS && norm != NET_NONE; u++)
      s->gain_change = fmax(s->gain_change, fabs(gradient.gain[u] / first.gain[u] - 1));
  }
  s->slope = fitted_slope(s->scale, s->norm, SCALES);
  return RMS_OK;
}

static void add_row(lab_section *section, net_norm norm, const sweep *weights, const sweep *inputs) {
  char cells[4][48];
  snprintf(cells[0], sizeof cells[0], "%.9f (%d)", weights->slope, norm == NET_NONE ? 0 : -1);
  snprintf(cells[1], sizeof cells[1], "%.9f (%d)", fabs(inputs->slope) < 5e-10 ? 0 : inputs->slope,
           norm == NET_NONE ? 1 : 0);
  snprintf(cells[2], sizeof cells[2], "%.0e", fmax(weights->cosine, inputs->cosine));
  snprintf(cells[3], sizeof cells[3], "%.0e", fmax(weights->gain_change, inputs->gain_change));
  lab_section_row(section, 5,
                  (const char *const[]){net_names[norm], cells[0], cells[1],
                                        norm == NET_NONE ? "not orthogonal" : cells[2],
                                        norm == NET_NONE ? "no gain" : cells[3]});
}

/* Gradients are right to some 1e-13; the slope over four decades is then right to better than that. */
static int as_predicted(net_norm norm, const sweep *weights, const sweep *inputs) {
  double expected = norm == NET_NONE ? 0 : -1;
  int slopes = fabs(weights->slope - expected) < 1e-10 && fabs(inputs->slope - (expected + 1)) < 1e-10;
  int invariances = norm == NET_NONE || (weights->cosine < 1e-10 && inputs->cosine < 1e-10 &&
                                         weights->gain_change < 1e-10 && inputs->gain_change < 1e-10);
  return slopes && invariances;
}

int lab_theory_rate(lab_report *report, uint64_t seed, FILE *out, lab_error *error) {
  lab_section *section =
      lab_report_add_section(report, "rate", "Implicit learning-rate adaptation",
                             "The norm of the gradient of W in y = norm(W z), for the same gradient of y, while W or "
                             "the inputs z are scaled by 0.01 "
                             "to 100. Slopes are fitted in log-log, the prediction in brackets. The gradient stands at "
                             "a right angle to W, so plain "
                             "gradient descent only lets W grow, and the effective rate falls by itself.");
  lab_section_row(section, 5,
                  (const char *const[]){"norm", "slope against scale of W", "slope against scale of z",
                                        "cosine of W and its gradient", "change of the gain's gradient"});
  lab_section_axes(section, "scale of W", "norm of the gradient of W", 1, 1);
  int wrong = 0;
  for (int m = 0; m < MEASURED; m++) {
    sweep weights, inputs;
    rms_status status = run_sweep(&weights, measured[m], 0, seed);
    if (status == RMS_OK) status = run_sweep(&inputs, measured[m], 1, seed);
    if (status != RMS_OK) return lab_fail(error, "rate: %s", rms_status_string(status));
    add_row(section, measured[m], &weights, &inputs);
    lab_section_series(section, net_names[measured[m]], weights.scale, weights.norm, SCALES, 1);
    wrong += !as_predicted(measured[m], &weights, &inputs);
  }
  lab_section_text(section,
                   wrong ? "Not as predicted." : "As predicted: -1 against the weights, 0 against the inputs.");
  lab_section_print(section, out);
  return wrong ? 1 : 0;
}
