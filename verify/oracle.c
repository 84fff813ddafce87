/* SPDX-License-Identifier: MIT
 * The operations from their definitions, in double-double. */
#include "oracle.h"

#include <stdlib.h>
#include "dd_exp.h"
#include "number.h"

enum { EXACT_ROWS = 12, PLAIN_ROWS = 13 };

/* Every array of the row with an element for each column. */
static void list_rows(verify_row *row, dd **exact[EXACT_ROWS], double **plain[PLAIN_ROWS]) {
  dd **all[EXACT_ROWS] = {&row->act, &row->v, &row->h,  &row->q,  &row->m,  &row->dm,
                          &row->u,   &row->y, &row->dx, &row->dw, &row->dz, &row->d};
  double **rest[PLAIN_ROWS] = {&row->h_error,  &row->q_error, &row->u_error,  &row->y_error,  &row->dx_error,
                               &row->dw_error, &row->v_error, &row->dm_error, &row->dz_error, &row->h_size,
                               &row->y_size,   &row->dx_size, &row->dz_size};
  memcpy(exact, all, sizeof all);
  memcpy(plain, rest, sizeof rest);
}

int verify_row_create(verify_row *row, const verify_spec *spec) {
  *row = (verify_row){.spec = *spec};
  row->groups = spec->groups ? spec->groups : 1;
  row->width = spec->cols / row->groups;
  row->k = spec->partial ? spec->partial : row->width;
  size_t cols = (size_t)spec->cols, groups = (size_t)row->groups;
  dd **exact[EXACT_ROWS];
  double **plain[PLAIN_ROWS];
  int ok = 1;
  list_rows(row, exact, plain);
  for (size_t i = 0; i < EXACT_ROWS; i++)
    ok &= (*exact[i] = calloc(cols, sizeof(dd))) != NULL;
  for (size_t i = 0; i < PLAIN_ROWS; i++)
    ok &= (*plain[i] = calloc(cols, sizeof(double))) != NULL;
  ok &= (row->in_stat = calloc((size_t)row->width, 1)) != NULL;
  ok &= (row->group = calloc(groups, sizeof *row->group)) != NULL;
  ok &= (row->r_error = calloc(groups, sizeof(double))) != NULL;
  ok &= (row->mean_error = calloc(groups, sizeof(double))) != NULL;
  if (!ok) {
    verify_row_destroy(row);
    return -1;
  }
  for (int64_t i = 0; i < row->k; i++)
    row->in_stat[spec->indices ? spec->indices[i] : i] = 1;
  return 0;
}

void verify_row_destroy(verify_row *row) {
  dd **exact[EXACT_ROWS];
  double **plain[PLAIN_ROWS];
  list_rows(row, exact, plain);
  for (size_t i = 0; i < EXACT_ROWS; i++)
    free(*exact[i]);
  for (size_t i = 0; i < PLAIN_ROWS; i++)
    free(*plain[i]);
  free(row->in_stat);
  free(row->group);
  free(row->r_error);
  free(row->mean_error);
  *row = (verify_row){0};
}

double verify_gain(const verify_spec *spec, double weight) {
  rms_dtype type = verify_arithmetic(spec->dtype);
  double gain = verify_round(type, weight + verify_round(type, spec->weight_offset));
  return spec->gain_rounding == RMS_GAIN_AS_WEIGHT ? verify_round(spec->weight_dtype, gain) : gain;
}

/* The sum in double is rounded twice, but 53 bits are more than twice 24 and two: the result is that of
 * one rounding. */
double verify_residual_sum(const verify_spec *spec, double x, double residual) {
  return verify_round(spec->residual_dtype, x + residual);
}

int verify_product_is_rounded(const verify_spec *spec) {
  return spec->weight_dtype == spec->dtype;
}

/* Element j of the group, in its units. */
static dd scaled(const verify_row *row, const verify_group *g, int64_t start, int64_t j) {
  return dd_scale(row->v[start + j], -g->scale);
}

static int exponent_of(double value) {
  int exponent;
  frexp(value, &exponent);
  return exponent;
}

/* The contract rounds eps to the arithmetic of the data before anything else. */
static double eps_of(const verify_row *row) {
  return verify_round(verify_arithmetic(row->spec.dtype), row->spec.eps);
}

/* Near the largest element of the statistic; eps may be larger still, unless a norm is rounded before eps is seen.
 * Elements at the upper end of f64 are left some orders of magnitude larger than one: 1/eps, which is r where they are
 * all alike, is scaled the other way and must stay a number that can be multiplied exactly. */
static int choose_scale(const verify_row *row, int64_t start) {
  double most = row->spec.eps_place == RMS_EPS_INSIDE ? sqrt(eps_of(row)) : eps_of(row);
  if (row->spec.eps_place != RMS_EPS_INSIDE && verify_is_stepwise(&row->spec)) most = 0;
  for (int64_t j = 0; j < row->width; j++)
    if (row->in_stat[j] || row->spec.kind == RMS_KIND_LAYER) most = fmax(most, fabs(row->v[start + j].hi));
  const int exponent = most > 0 ? exponent_of(most) : 0;
  return exponent > 300 ? exponent - 150 : exponent;
}

static dd mean_of(const verify_row *row, const verify_group *g, int64_t start) {
  dd sum = dd_from(0);
  for (int64_t j = 0; j < row->width; j++)
    sum = dd_add(sum, scaled(row, g, start, j));
  return dd_divide(sum, dd_from((double)row->width));
}

static void group_statistic(const verify_row *row, verify_group *g, int64_t start) {
  int inside = row->spec.eps_place == RMS_EPS_INSIDE;
  g->scale = choose_scale(row, start);
  g->eps = ldexp(eps_of(row), inside ? -2 * g->scale : -g->scale);
  g->mean = row->spec.kind == RMS_KIND_LAYER ? mean_of(row, g, start) : dd_from(0);
  g->m2 = dd_from(0);
  for (int64_t j = 0; j < row->width; j++)
    if (row->in_stat[j]) {
      dd difference = dd_subtract(scaled(row, g, start, j), g->mean);
      g->m2 = dd_add(g->m2, dd_multiply(difference, difference));
    }
  dd ms = dd_divide(g->m2, dd_from((double)row->k));
  g->rms = dd_sqrt(ms);
  g->clamped = row->spec.eps_place == RMS_EPS_CLAMP && dd_subtract(g->rms, dd_from(g->eps)).hi < 0;
  dd root = inside ? dd_sqrt(dd_add(ms, dd_from(g->eps))) : dd_add(g->rms, dd_from(g->eps));
  if (row->spec.eps_place == RMS_EPS_CLAMP) root = g->clamped ? dd_from(g->eps) : g->rms;
  g->r = root.hi > 0 ? dd_divide(dd_from(1), root) : dd_from(0); /* a zero statistic with eps = 0 gives r = 0 */
  if (isnan(g->m2.hi)) g->r = dd_from((double)NAN);
}

/* act(z), and what is normalised. */
static void open_gate(verify_row *row) {
  for (int64_t j = 0; j < row->spec.cols; j++) {
    row->v[j] = dd_from(row->x[j]);
    if (!row->z) continue;
    row->act[j] = dd_activation(dd_from(row->z[j]), row->spec.activation == RMS_ACT_SIGMOID);
    if (row->spec.gate_place == RMS_GATE_BEFORE) row->v[j] = dd_multiply(row->act[j], row->v[j]);
  }
}

void verify_oracle_statistic(verify_row *row) {
  open_gate(row);
  for (int64_t i = 0; i < row->groups; i++)
    group_statistic(row, &row->group[i], i * row->width);
}

dd verify_round_exactly(rms_dtype dtype, dd value) {
  return dtype == RMS_F64 ? dd_from(value.hi + value.lo) : dd_from(verify_round(dtype, dd_to_odd(value)));
}

static void normalise(verify_row *row) {
  for (int64_t j = 0; j < row->spec.cols; j++) {
    const verify_group *g = &row->group[j / row->width];
    row->h[j] = dd_multiply(dd_subtract(scaled(row, g, 0, j), g->mean), g->r);
    row->q[j] =
        row->spec.rounding == RMS_ROUND_BEFORE_WEIGHT ? verify_round_exactly(row->spec.dtype, row->h[j]) : row->h[j];
  }
}

/* P of the header: the type of a product with the weight when rounding before. */
static dd round_product(const verify_row *row, dd value) {
  int rounds = row->spec.rounding == RMS_ROUND_BEFORE_WEIGHT && verify_product_is_rounded(&row->spec);
  return rounds ? verify_round_exactly(row->spec.dtype, value) : value;
}

static int is_gated_after(const verify_row *row) {
  return row->spec.gate_place == RMS_GATE_AFTER;
}

/* y, or with a gate after the norm what it multiplies. */
static dd affine(const verify_row *row, int64_t j) {
  dd value = row->g ? dd_multiply(row->q[j], dd_from(row->g[j])) : row->q[j];
  value = round_product(row, value);
  if (row->b) value = dd_add(value, dd_from(row->b[j]));
  return is_gated_after(row) ? round_product(row, value) : value;
}

void verify_oracle_forward(verify_row *row) {
  normalise(row);
  for (int64_t j = 0; j < row->spec.cols; j++) {
    row->m[j] = affine(row, j);
    row->y[j] = is_gated_after(row) ? dd_multiply(row->m[j], row->act[j]) : row->m[j];
  }
}

/* ---- Backward ---- */

/* u of one group. A rounding that belongs to the definition is done in true units. drstd: of r, in true units. */
static void gradient_of_h(verify_row *row, verify_group *g, int64_t start, double drstd) {
  int before = row->spec.rounding == RMS_ROUND_BEFORE_WEIGHT;
  double most = ldexp(fabs(drstd), -g->scale);
  for (int64_t j = start; j < start + row->width; j++) {
    row->dm[j] = dd_from(row->dy[j]);
    if (is_gated_after(row)) row->dm[j] = round_product(row, dd_multiply(row->act[j], row->dm[j]));
    most = fmax(most, fabs(row->dm[j].hi));
  }
  g->u_scale = most > 0 && isfinite(most) ? exponent_of(most) : 0;
  g->drstd = ldexp(drstd, -g->scale - g->u_scale);
  for (int64_t j = start; j < start + row->width; j++) {
    dd dm = before ? row->dm[j] : dd_scale(row->dm[j], -g->u_scale);
    dd value = row->g ? dd_multiply(dm, dd_from(row->g[j])) : dm;
    row->u[j] = before ? dd_scale(verify_round_exactly(row->spec.dtype, value), -g->u_scale) : value;
  }
}

/* r depends on each element x_j of the statistic by dr/dx_j = -(r^3 x_j)/k with eps inside the root, and by
 * -(r^2 x_j)/(k rms) with eps outside or as a bound of rms, below which r is 1/eps. This is r^3/k or r^2/(k rms); 0
 * when the statistic is zero or r does not depend on it. */
static dd slope_of_r(const verify_row *row, const verify_group *g) {
  dd square = dd_multiply(g->r, g->r), k = dd_from((double)row->k);
  if (row->spec.eps_place == RMS_EPS_INSIDE) return dd_divide(dd_multiply(square, g->r), k);
  if (g->rms.hi == 0 || g->clamped) return dd_from(0);
  return dd_divide(dd_divide(square, g->rms), k);
}

/* RMS_STEPS_TERMS: the two terms of dx, in the group's units, as the definition rounds them in true ones. */
static dd round_terms(const verify_row *row, const verify_group *g, dd first, dd second) {
  const int scale = g->u_scale - g->scale;
  first = verify_round_exactly(row->spec.dtype, dd_scale(first, scale));
  second = verify_round_exactly(row->spec.dtype, dd_scale(second, scale));
  dd sum = dd_from(first.hi - second.hi); /* 16-bit numbers, or beyond their range: a double has enough of its digits */
  if (isfinite(sum.hi)) sum = dd_subtract(first, second);
  return dd_scale(verify_round_exactly(row->spec.dtype, sum), -scale);
}

/* dL/dx_j = u_j r + (dr/dx_j) * (sum(u x) + dL/dr) */
static void rms_gradient(verify_row *row, verify_group *g, int64_t start) {
  g->sum_ux = dd_from(g->drstd);
  for (int64_t j = 0; j < row->width; j++)
    g->sum_ux = dd_add(g->sum_ux, dd_multiply(row->u[start + j], scaled(row, g, start, j)));
  dd factor = dd_multiply(g->sum_ux, slope_of_r(row, g));
  for (int64_t j = 0; j < row->width; j++) {
    dd first = dd_multiply(row->u[start + j], g->r), second = dd_from(0);
    if (row->in_stat[j]) second = dd_multiply(factor, scaled(row, g, start, j));
    row->dx[start + j] =
        verify_steps(&row->spec) == RMS_STEPS_TERMS ? round_terms(row, g, first, second) : dd_subtract(first, second);
  }
}

/* With e = x - mean: dL/de_j = u_j r + (dr/de_j) * (sum(u e) + dL/dr), and dL/dx_j is that less its mean over the
 * group. The slope's part has mean 0, since the e_j have. */
static void layer_gradient(verify_row *row, verify_group *g, int64_t start) {
  dd sum_ue = dd_from(g->drstd);
  g->sum_u = dd_from(0);
  g->sum_ux = dd_multiply(g->r, dd_from(g->drstd));
  for (int64_t j = 0; j < row->width; j++) {
    dd e = dd_subtract(scaled(row, g, start, j), g->mean);
    g->sum_u = dd_add(g->sum_u, row->u[start + j]);
    g->sum_ux = dd_add(g->sum_ux, dd_multiply(row->u[start + j], row->h[start + j]));
    sum_ue = dd_add(sum_ue, dd_multiply(row->u[start + j], e));
  }
  dd mean_u = dd_divide(g->sum_u, dd_from((double)row->width)), factor = dd_multiply(sum_ue, slope_of_r(row, g));
  for (int64_t j = 0; j < row->width; j++) {
    dd e = dd_subtract(scaled(row, g, start, j), g->mean);
    dd value = dd_multiply(dd_subtract(row->u[start + j], mean_u), g->r);
    row->dx[start + j] = dd_subtract(value, dd_multiply(factor, e));
  }
}

/* The gradient of z; and through a gate before the norm, that of x. */
static void gradient_of_gate(verify_row *row, int64_t j) {
  dd of_act;
  if (!row->z) return;
  if (is_gated_after(row)) {
    row->m[j] = affine(row, j);
    of_act = dd_multiply(row->m[j], dd_from(row->dy[j]));
  } else {
    of_act = dd_multiply(row->d[j], dd_from(row->x[j]));
    row->dx[j] = dd_multiply(row->d[j], row->act[j]);
  }
  row->dz[j] = dd_multiply(of_act, dd_activation_slope(dd_from(row->z[j]), row->spec.activation == RMS_ACT_SIGMOID));
}

void verify_oracle_backward(verify_row *row) {
  normalise(row);
  for (int64_t i = 0; i < row->groups; i++) {
    gradient_of_h(row, &row->group[i], i * row->width, row->drstd ? row->drstd[i] : 0);
    if (row->spec.kind == RMS_KIND_LAYER)
      layer_gradient(row, &row->group[i], i * row->width);
    else
      rms_gradient(row, &row->group[i], i * row->width);
  }
  for (int64_t j = 0; j < row->spec.cols; j++) {
    const verify_group *g = &row->group[j / row->width];
    dd dx = dd_scale(row->dx[j], g->u_scale - g->scale);
    if (row->dmean) dx = dd_add(dx, dd_divide(dd_from(row->dmean[j / row->width]), dd_from((double)row->width)));
    row->d[j] = row->dx[j] = dx;
    gradient_of_gate(row, j);
    if (row->dres) row->dx[j] = dd_add(row->dx[j], dd_from(row->dres[j]));
    if (row->old) row->dx[j] = dd_add(row->dx[j], dd_from(row->old[j]));
    row->dw[j] = round_product(row, dd_multiply(row->dm[j], row->q[j]));
  }
}
