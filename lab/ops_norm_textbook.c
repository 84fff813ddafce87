/* SPDX-License-Identifier: MIT
 *
 * Each norm as frameworks ran it before kernels were fused: one pass over memory per elementary operation, every
 * intermediate result stored, and a backward made of the derivative of each pass. RMSNorm has fewer passes than
 * LayerNorm: that is the saving the paper measured.
 *
 *   LayerNorm forward      RMSNorm forward        pRMSNorm forward
 *   mean = mean(x)                                part = slice(x)
 *   c = x - mean
 *   q = c * c              q = x * x              q = part * part
 *   r = rsqrt(mean(q)+eps) r = rsqrt(mean(q)+eps) r = rsqrt(mean(q)+eps)
 *   h = c * r              h = x * r              h = x * r
 *   s = h * gain           s = h * gain           s = h * gain
 *   y = s + bias           y = s + bias           y = s + bias        (the gain and the bias where there is one)
 */
#include "norm_internal.h"

#include <string.h>

#include "vecmath.h"

struct textbook_norm {
  norm_config config;
  int64_t rows, cols, k;  /* k: columns in the statistic */
  const int64_t *indices; /* pRMSNorm with spread columns; NULL: the first k */
  real *c, *part, *h, *r; /* c: centred rows, or a copy of the rows */
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

LAB_VECTOR static void pass_fill_rows(real *y, const real *row, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      y[i * cols + j] = row[i];
}

LAB_VECTOR static void pass_add(real *y, const real *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i];
}

static void pass_slice(real *part, const textbook_norm *s, const real *x) {
  if (s->indices == NULL) {
    pass_copy(part, s->k, x, s->cols, s->rows, s->k);
    return;
  }
  for (int64_t i = 0; i < s->rows; i++)
    for (int64_t j = 0; j < s->k; j++)
      part[i * s->k + j] = x[i * s->cols + s->indices[j]];
}

static void pass_unslice_add(real *x, const textbook_norm *s, const real *part) {
  for (int64_t i = 0; i < s->rows; i++)
    for (int64_t j = 0; j < s->k; j++)
      x[i * s->cols + (s->indices == NULL ? j : s->indices[j])] += part[i * s->k + j];
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

static void centre(tape *t, textbook_norm *s) {
  real *mean = room(t, s->rows, 1), *centred = room(t, s->rows, s->cols);
  pass_row_sums(mean, s->c, s->rows, s->cols);
  for (int64_t i = 0; i < s->rows; i++)
    mean[i] /= (real)s->cols;
  pass_subtract_rows(centred, s->c, mean, s->rows, s->cols);
  s->c = centred;
}

/* What the sum of squares is divided by: L2-norm takes the sum itself, with RMSNorm's eps times the width. */
static real divisor(const textbook_norm *s) {
  return s->config.kind == NORM_L2 ? 1 : (real)s->k;
}

static void statistic(tape *t, textbook_norm *s) {
  real *squares = room(t, s->rows, s->k);
  double eps = s->config.kind == NORM_L2 ? s->config.eps * (double)s->cols : s->config.eps;
  pass_multiply(squares, s->part, s->part, s->rows * s->k);
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
  if (config->kind == NORM_LAYER) centre(t, s);
  s->part = s->c;
  if (config->kind == NORM_PRMS) {
    s->part = room(t, rows, s->k);
    pass_slice(s->part, s, s->c);
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

/* From dh, the gradient of h = c * r, to dc. */
static real *scale_backward(tape *t, const textbook_norm *s, real *dh) {
  int64_t rows = s->rows, cols = s->cols, k = s->k, n = rows * cols;
  real *dc = room(t, rows, cols), *product = room(t, rows, cols), *dr = room(t, rows, 1);
  pass_scale_rows(dc, dh, s->r, rows, cols);
  pass_multiply(product, dh, s->c, n);
  pass_row_sums(dr, product, rows, cols);
  /* r = (m + eps)^(-1/2), m = sum(q) / divisor, q = part^2 */
  for (int64_t i = 0; i < rows; i++)
    dr[i] *= -s->r[i] * s->r[i] * s->r[i] / divisor(s);
  real *dq = room(t, rows, k), *dpart = room(t, rows, k);
  pass_fill_rows(dq, dr, rows, k);
  pass_multiply(dpart, dq, s->part, rows * k);
  if (s->config.kind == NORM_PRMS)
    pass_unslice_add(dc, s, dpart);
  else
    pass_add(dc, dpart, n);
  return dc;
}

/* c = x - mean(x): the gradient loses its mean. */
static real *centre_backward(tape *t, const textbook_norm *s, const real *dc) {
  real *dmean = room(t, s->rows, 1), *spread = room(t, s->rows, s->cols), *dx = room(t, s->rows, s->cols);
  pass_row_sums(dmean, dc, s->rows, s->cols);
  for (int64_t i = 0; i < s->rows; i++)
    dmean[i] /= -(real)s->cols;
  pass_fill_rows(spread, dmean, s->rows, s->cols);
  pass_copy(dx, s->cols, dc, s->cols, s->rows, s->cols);
  pass_add(dx, spread, s->rows * s->cols);
  return dx;
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
  if (s->config.kind == NORM_LAYER) dx = centre_backward(t, s, dx);
  for (int64_t i = 0; i < rows; i++)
    pass_add(x->g + i * x->ld, dx + i * cols, cols);
}
