/* SPDX-License-Identifier: MIT */
#include "tape/ops.h"

#include <string.h>

#include "tape/vecmath.h"

/* ---- cross entropy ---- */

typedef struct cross_entropy_op {
  tensor *logits, *loss; /* the logits' values become exponentials */
  int32_t *targets;
  real *sums; /* of each row's exponentials */
  real smoothing, scale;
} cross_entropy_op;

/* Turns the logits into exponentials and adds them up; returns the row's loss. */
LAB_VECTOR static real row_loss(real *logits, int64_t n, int32_t target, real smoothing, real *sum) {
  real wanted = (1 - smoothing) * logits[target];
  if (smoothing > 0) wanted += smoothing * vec_sum(logits, n) / (real)n;
  real most = vec_exp(logits, n);
  *sum = vec_sum(logits, n);
  return most + REAL_LOG(*sum) - wanted;
}

/* dlogits may be the exponentials. */
LAB_VECTOR static void row_loss_backward(real *dlogits, const real *exponentials, int64_t n, int32_t target, real sum,
                                         real smoothing, real scale) {
  real factor = scale / sum, uniform = scale * smoothing / (real)n;
  for (int64_t j = 0; j < n; j++)
    dlogits[j] = factor * exponentials[j] - uniform;
  dlogits[target] -= scale * (1 - smoothing);
}

static void cross_entropy_backward(tape *t, void *arg) {
  (void)t;
  cross_entropy_op *op = arg;
  int64_t n = op->logits->cols;
  for (int64_t i = 0; i < op->logits->rows; i++) {
    real *dlogits = op->logits->g + i * n;
    if (op->targets[i] >= 0)
      row_loss_backward(dlogits, op->logits->v + i * n, n, op->targets[i], op->sums[i], op->smoothing,
                        op->scale * op->loss->g[0]);
    else
      memset(dlogits, 0, (size_t)n * sizeof(real));
  }
}

tensor *op_cross_entropy(tape *t, tensor *logits, const int32_t *targets, double smoothing, double scale) {
  cross_entropy_op *op = tape_keep(t, sizeof *op);
  size_t rows = (size_t)logits->rows;
  *op = (cross_entropy_op){.logits = logits, .smoothing = (real)smoothing, .scale = (real)scale};
  op->loss = tape_tensor(t, 1, 1);
  op->targets = tape_keep(t, rows * sizeof *targets);
  op->sums = tape_keep(t, rows * sizeof(real));
  memcpy(op->targets, targets, rows * sizeof *targets);
  double sum = 0;
  int64_t n = logits->cols;
  for (int64_t i = 0; i < logits->rows; i++)
    if (targets[i] >= 0) sum += (double)row_loss(logits->v + i * n, n, targets[i], (real)smoothing, &op->sums[i]);
  op->loss->v[0] = (real)(sum * scale);
  tape_push(t, cross_entropy_backward, op);
  return op->loss;
}

LAB_VECTOR static real log_sum_exp(const real *x, int64_t n) {
  real most = vec_max(x, n), lane[8] = {0};
  int64_t j = 0;
  for (; j + 8 <= n; j += 8)
    for (int l = 0; l < 8; l++)
      lane[l] += real_exp(x[j + l] - most);
  for (int l = 0; j < n; j++, l++)
    lane[l] += real_exp(x[j] - most);
  return most + REAL_LOG(lanes_total(lane));
}

void log_softmax_rows(real *x, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++) {
    real log_sum = log_sum_exp(x + i * cols, cols);
    for (int64_t j = 0; j < cols; j++)
      x[i * cols + j] -= log_sum;
  }
}

/* ---- order embeddings ---- */

typedef struct order_op {
  tensor *a, *b, *loss;
  real *errors; /* rows x rows */
  real margin, scale;
} order_op;

/* |max(0, b - a)|^2 */
LAB_VECTOR static real order_error(const real *a, const real *b, int64_t n) {
  real lane[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; l++) {
      real d = b[i + l] - a[i + l];
      d = d > 0 ? d : 0;
      lane[l] += d * d;
    }
  for (int l = 0; i < n; i++, l++) {
    real d = b[i] - a[i] > 0 ? b[i] - a[i] : 0;
    lane[l] += d * d;
  }
  return lanes_total(lane);
}

LAB_VECTOR static void order_error_backward(const real *a, const real *b, real *da, real *db, int64_t n, real weight) {
  for (int64_t i = 0; i < n; i++) {
    real d = b[i] - a[i];
    d = 2 * weight * (d > 0 ? d : 0);
    da[i] -= d;
    db[i] += d;
  }
}

void order_errors(const real *a, int64_t rows_a, const real *b, int64_t rows_b, int64_t cols, real *errors) {
  for (int64_t i = 0; i < rows_a; i++)
    for (int64_t j = 0; j < rows_b; j++)
      errors[i * rows_b + j] = order_error(a + i * cols, b + j * cols, cols);
}

/* How much more a wrong pairing's error should exceed the right one's; 0: it does. */
static real shortfall(const order_op *op, int64_t right, int64_t i, int64_t j) {
  int64_t n = op->a->rows;
  real missing = op->margin + op->errors[right * n + right] - op->errors[i * n + j];
  return i != j && missing > 0 ? missing : 0;
}

static void order_backward(tape *t, void *arg) {
  order_op *op = arg;
  int64_t n = op->a->rows, cols = op->a->cols;
  real scale = op->scale * op->loss->g[0];
  real *weights = tape_scratch(t, (size_t)(n * n) * sizeof(real));
  memset(weights, 0, (size_t)(n * n) * sizeof(real));
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) {
      if (shortfall(op, i, i, j) > 0) weights[i * n + i] += scale, weights[i * n + j] -= scale;
      if (shortfall(op, j, i, j) > 0) weights[j * n + j] += scale, weights[i * n + j] -= scale;
    }
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++)
      if (weights[i * n + j] < 0 || weights[i * n + j] > 0)
        order_error_backward(op->a->v + i * cols, op->b->v + j * cols, op->a->g + i * cols, op->b->g + j * cols, cols,
                             weights[i * n + j]);
}

tensor *op_order_loss(tape *t, tensor *a, tensor *b, double margin, double scale) {
  order_op *op = tape_keep(t, sizeof *op);
  *op = (order_op){
      a, b, tape_tensor(t, 1, 1), tape_keep(t, (size_t)(a->rows * a->rows) * sizeof(real)), (real)margin, (real)scale};
  order_errors(a->v, a->rows, b->v, b->rows, a->cols, op->errors);
  double sum = 0;
  for (int64_t i = 0; i < a->rows; i++)
    for (int64_t j = 0; j < a->rows; j++)
      sum += (double)shortfall(op, i, i, j) + (double)shortfall(op, j, i, j);
  op->loss->v[0] = (real)(sum * scale);
  tape_push(t, order_backward, op);
  return op->loss;
}

typedef struct unit_op {
  tensor *x, *y;
  real *length;
} unit_op;

static void unit_abs_backward(tape *t, void *arg) {
  (void)t;
  unit_op *op = arg;
  int64_t n = op->x->cols;
  for (int64_t i = 0; i < op->x->rows; i++) {
    const real *x = op->x->v + i * n, *y = op->y->v + i * n, *dy = op->y->g + i * n;
    real along = vec_dot(dy, y, n);
    for (int64_t j = 0; j < n; j++)
      op->x->g[i * n + j] += (x[j] < 0 ? -1 : 1) * (dy[j] - y[j] * along) / op->length[i];
  }
}

tensor *op_unit_abs(tape *t, tensor *x) {
  unit_op *op = tape_keep(t, sizeof *op);
  *op = (unit_op){x, tape_tensor(t, x->rows, x->cols), tape_keep(t, (size_t)x->rows * sizeof(real))};
  int64_t n = x->cols;
  for (int64_t i = 0; i < x->rows; i++) {
    const real *row = x->v + i * n;
    op->length[i] = REAL_SQRT(vec_dot(row, row, n)) + (real)1e-8;
    for (int64_t j = 0; j < n; j++)
      op->y->v[i * n + j] = (row[j] < 0 ? -row[j] : row[j]) / op->length[i];
  }
  tape_push(t, unit_abs_backward, op);
  return op->y;
}
