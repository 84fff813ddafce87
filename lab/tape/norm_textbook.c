/* SPDX-License-Identifier: MIT
 *
 * Each norm as frameworks ran it before kernels were fused: one pass over memory per operation of the graph, every
 * intermediate result stored, and a backward made of the derivative of each operation. The graphs are those of the
 * usual definitions, in which LayerNorm writes x - mean twice:
 *
 *   LayerNorm                          RMSNorm                       pRMSNorm
 *   mean = mean(x)                                                   part = slice(x)
 *   var  = mean(square(x - mean))      ms = mean(square(x))          ms = mean(square(part))
 *   h    = (x - mean) * rsqrt(var+eps) h  = x * rsqrt(ms+eps)        h  = x * rsqrt(ms+eps)
 *   y    = h * gain + bias             y  = h * gain + bias          y  = h * gain + bias   (gain, bias: where given)
 *
 * The derivative of a mean is its gradient divided and broadcast, that of a square 2*x and a product, that of a
 * difference the gradient and its negative, summed where it was broadcast, that of a slice a padding with zeros;
 * gradients that meet are added in a pass of their own. RMSNorm has 15 passes with a gain, LayerNorm 26 with a gain and
 * a bias: that is the saving the paper measured.
 */
#include "tape/norm_internal.h"

#include <string.h>

#include "tape/vecmath.h"

struct textbook_norm {
  norm_config config;
  int64_t rows, cols, k;  /* k: columns in the statistic */
  const int64_t *indices; /* pRMSNorm with spread columns; NULL: the first k */
  real *c;                /* LayerNorm: x - mean; else x */
  real *measured;         /* what is squared: x - mean again, x, or the slice; rows x k */
  real *h, *r;
};

/* ---- the passes; `x` dense unless it has a leading dimension ---- */

static void pass_copy(real *y, int64_t y_ld, const real *x, int64_t x_ld, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    memcpy(y + i * y_ld, x + i * x_ld, (size_t)cols * sizeof(real));
}

LAB_VECTOR static void pass_row_sums(real *sum, const real *x, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    sum[i] = vec_sum(x + i * cols, cols);
}

LAB_VECTOR static void pass_subtract_rows(real *y, const real *x, const real *row, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      y[i * cols + j] = x[i * cols + j] - row[i];
}

LAB_VECTOR static void pass_multiply(real *y, const real *a, const real *b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = a[i] * b[i];
}

LAB_VECTOR static void pass_scale_rows(real *y, const real *x, const real *row, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      y[i * cols + j] = x[i * cols + j] * row[i];
}

LAB_VECTOR static void pass_scale_columns(real *y, const real *x, const real *col, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      y[i * cols + j] = x[i * cols + j] * col[j];
}

LAB_VECTOR static void pass_add_columns(real *y, const real *x, const real *col, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      y[i * cols + j] = x[i * cols + j] + col[j];
}

LAB_VECTOR static void pass_column_sums(real *sum, const real *x, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      sum[j] += x[i * cols + j];
}

LAB_VECTOR static void pass_divide_rows(real *y, const real *row, real divisor, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      y[i * cols + j] = row[i] / divisor;
}

LAB_VECTOR static void pass_scale(real *y, const real *x, real factor, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = x[i] * factor;
}

LAB_VECTOR static void pass_negate(real *y, const real *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = -x[i];
}

LAB_VECTOR static void pass_add(real *y, const real *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i];
}

static int64_t measured_column(const textbook_norm *s, int64_t j) {
  return s->indices == NULL ? j : s->indices[j];
}

static void pass_slice(real *part, const textbook_norm *s, const real *x) {
  for (int64_t i = 0; i < s->rows; i++)
    for (int64_t j = 0; j < s->k; j++)
      part[i * s->k + j] = x[i * s->cols + measured_column(s, j)];
}

static void pass_pad(real *x, const textbook_norm *s, const real *part) {
  memset(x, 0, (size_t)(s->rows * s->cols) * sizeof(real));
  for (int64_t i = 0; i < s->rows; i++)
    for (int64_t j = 0; j < s->k; j++)
      x[i * s->cols + measured_column(s, j)] = part[i * s->k + j];
}

static real *room(tape *t, int64_t rows, int64_t cols) {
  return tape_keep(t, (size_t)(rows * cols) * sizeof(real));
}

/* ---- forward ---- */

static textbook_norm *make_record(tape *t, const norm_config *config, int64_t rows, int64_t cols) {
  textbook_norm *s = tape_keep(t, sizeof *s);
  rms_spec spec = norm_spec(t, config, cols);
  *s = (textbook_norm){.config = *config, .rows = rows, .cols = cols, .indices = spec.indices};
  s->k = spec.partial > 0 ? spec.partial : cols;
  return s;
}

static void centre(tape *t, textbook_norm *s, const real *x) {
  real *mean = room(t, s->rows, 1);
  pass_row_sums(mean, x, s->rows, s->cols);
  for (int64_t i = 0; i < s->rows; i++)
    mean[i] /= (real)s->cols;
  s->measured = room(t, s->rows, s->cols);
  pass_subtract_rows(s->measured, x, mean, s->rows, s->cols);
  s->c = room(t, s->rows, s->cols);
  pass_subtract_rows(s->c, x, mean, s->rows, s->cols);
}

/* What the sum of squares is divided by: L2-norm takes the sum itself, with RMSNorm's eps times the width. */
static real divisor(const textbook_norm *s) {
  return s->config.kind == NORM_L2 ? 1 : (real)s->k;
}

static void statistic(tape *t, textbook_norm *s) {
  real *squares = room(t, s->rows, s->k);
  double eps = s->config.kind == NORM_L2 ? s->config.eps * (double)s->cols : s->config.eps;
  pass_multiply(squares, s->measured, s->measured, s->rows * s->k);
  s->r = room(t, s->rows, 1);
  pass_row_sums(s->r, squares, s->rows, s->k);
  for (int64_t i = 0; i < s->rows; i++)
    s->r[i] = 1 / REAL_SQRT(s->r[i] / divisor(s) + (real)eps);
}

textbook_norm *textbook_forward(tape *t, const norm_config *config, tensor *x, tensor *y, const real *gain,
                                const real *bias) {
  textbook_norm *s = make_record(t, config, x->rows, x->cols);
  int64_t rows = s->rows, cols = s->cols;
  s->c = x->v;
  if (x->ld != cols) { /* the slice of the concatenated gates that a framework would make */
    s->c = room(t, rows, cols);
    pass_copy(s->c, cols, x->v, x->ld, rows, cols);
  }
  s->measured = s->c;
  if (config->kind == NORM_LAYER) centre(t, s, s->c);
  if (config->kind == NORM_PRMS) {
    s->measured = room(t, rows, s->k);
    pass_slice(s->measured, s, s->c);
  }
  statistic(t, s);
  int dense = y->ld == cols;
  s->h = gain == NULL && bias == NULL && dense ? y->v : room(t, rows, cols);
  pass_scale_rows(s->h, s->c, s->r, rows, cols);
  real *result = s->h;
  if (gain != NULL) {
    real *scaled = bias == NULL && dense ? y->v : room(t, rows, cols);
    pass_scale_columns(scaled, result, gain, rows, cols);
    result = scaled;
  }
  if (bias != NULL) {
    real *shifted = dense ? y->v : room(t, rows, cols);
    pass_add_columns(shifted, result, bias, rows, cols);
    result = shifted;
  }
  if (!dense) pass_copy(y->v, y->ld, result, cols, rows, cols);
  return s;
}

/* ---- backward: the derivative of each pass, last first ---- */

static real *mean_backward(tape *t, const real *dmean, real count, int64_t rows, int64_t cols) {
  real *divided = room(t, rows, cols);
  pass_divide_rows(divided, dmean, count, rows, cols);
  return divided;
}

/* From dr to the gradient of what was squared: r = (m + eps)^(-1/2), m = mean(square(measured)). */
static real *statistic_backward(tape *t, const textbook_norm *s, real *dr) {
  int64_t n = s->rows * s->k;
  for (int64_t i = 0; i < s->rows; i++)
    dr[i] *= (real)-0.5 * s->r[i] * s->r[i] * s->r[i];
  real *dsquare = mean_backward(t, dr, divisor(s), s->rows, s->k);
  real *doubled = room(t, s->rows, s->k), *dmeasured = room(t, s->rows, s->k);
  pass_scale(doubled, s->measured, 2, n);
  pass_multiply(dmeasured, dsquare, doubled, n);
  return dmeasured;
}

/* What the mean gets of the gradient of x - mean. */
static real *subtrahend_backward(tape *t, const textbook_norm *s, const real *ddifference) {
  real *negative = room(t, s->rows, s->cols), *dmean = room(t, s->rows, 1);
  pass_negate(negative, ddifference, s->rows * s->cols);
  pass_row_sums(dmean, negative, s->rows, s->cols);
  return dmean;
}

/* Both x - mean pass their gradient on to x, here dc, and to the mean. */
static void centre_backward(tape *t, const textbook_norm *s, real *dc, const real *dmeasured) {
  real *dmean = subtrahend_backward(t, s, dc);
  pass_add(dmean, subtrahend_backward(t, s, dmeasured), s->rows);
  pass_add(dc, mean_backward(t, dmean, (real)s->cols, s->rows, s->cols), s->rows * s->cols);
}

/* From dh, the gradient of h = c * r, to dx. */
static real *scale_backward(tape *t, const textbook_norm *s, const real *dh) {
  int64_t rows = s->rows, cols = s->cols, n = rows * cols;
  real *dc = room(t, rows, cols), *product = room(t, rows, cols), *dr = room(t, rows, 1);
  pass_scale_rows(dc, dh, s->r, rows, cols);
  pass_multiply(product, dh, s->c, n);
  pass_row_sums(dr, product, rows, cols);
  real *dmeasured = statistic_backward(t, s, dr);
  if (s->config.kind == NORM_LAYER) centre_backward(t, s, dc, dmeasured);
  if (s->config.kind == NORM_PRMS) {
    real *padded = room(t, rows, cols);
    pass_pad(padded, s, dmeasured);
    dmeasured = padded;
  }
  pass_add(dc, dmeasured, n);
  return dc;
}

void textbook_backward(tape *t, textbook_norm *s, tensor *x, tensor *y, const real *gain, real *dgain, real *dbias) {
  int64_t rows = s->rows, cols = s->cols;
  real *dy = y->g;
  if (y->ld != cols) {
    dy = room(t, rows, cols);
    pass_copy(dy, cols, y->g, y->ld, rows, cols);
  }
  if (dbias != NULL) pass_column_sums(dbias, dy, rows, cols);
  real *dh = dy;
  if (gain != NULL) {
    real *product = room(t, rows, cols);
    pass_multiply(product, dy, s->h, rows * cols);
    pass_column_sums(dgain, product, rows, cols);
    dh = room(t, rows, cols);
    pass_scale_columns(dh, dy, gain, rows, cols);
  }
  real *dx = scale_backward(t, s, dh);
  for (int64_t i = 0; i < rows; i++)
    pass_add(x->g + i * x->ld, dx + i * cols, cols);
}
