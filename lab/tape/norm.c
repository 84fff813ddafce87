/* SPDX-License-Identifier: MIT
 *
 * Normalization through the library's public header.
 */
#include "tape/norm_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *norm_name(norm_kind kind) {
  static const char *const names[NORM_KINDS] = {"none", "layer", "rms", "prms", "l2", "batch", "prms-local"};
  return names[kind];
}

/* Columns [start, start + spec.cols) of the rows, normalised on their own. */
typedef struct segment {
  rms_spec spec;
  int64_t start;
  real *rstd, *mean;
  real *weight;            /* the gain, or L2-norm's gain / sqrt(cols); NULL: none */
  textbook_norm *textbook; /* with ENGINE_TEXTBOOK */
  tensor *x, *y;           /* windows on the columns */
} segment;

typedef struct norm_op {
  norm_config config;
  tensor *x, *y, *gain, *bias;
  tensor *a, *b; /* op_add_norm: x = a + b */
  int alone;     /* 1: nothing else uses x, so its gradient is set, not added to */
  int segments;
  segment segment[2];
} norm_op;

void norm_must(rms_status status) {
  if (status == RMS_OK) return;
  fprintf(stderr, "rmsnorm lab: %s\n", rms_status_string(status));
  exit(2);
}

static int64_t *spread_indices(tape *t, int64_t cols, int64_t count) {
  int64_t *indices = tape_keep(t, (size_t)count * sizeof *indices);
  for (int64_t i = 0; i < count; i++)
    indices[i] = (2 * i + 1) * cols / (2 * count);
  return indices;
}

rms_spec norm_spec(tape *t, const norm_config *config, int64_t cols) {
  rms_spec spec = {
      .cols = cols, .eps = config->eps, .kind = config->kind == NORM_LAYER ? RMS_KIND_LAYER : RMS_KIND_RMS};
  if (config->kind == NORM_PRMS) {
    spec.partial = rms_partial_count(cols, config->p);
    if (config->spread) spec.indices = spread_indices(t, cols, spec.partial);
  }
  if (config->kind == NORM_PRMS_LOCAL) {
    spec.groups = config->ranks;
    spec.partial = rms_partial_count(cols / config->ranks, config->p);
    if (config->spread) spec.indices = spread_indices(t, cols / config->ranks, spec.partial);
  }
  return spec;
}

/* L2-norm is RMSNorm with its gain divided by sqrt(cols). */
static real *effective_weight(tape *t, const norm_config *config, const tensor *gain, int64_t start, int64_t cols) {
  if (config->kind != NORM_L2) return gain == NULL ? NULL : gain->v + start;
  real *weight = tape_keep(t, (size_t)cols * sizeof *weight);
  for (int64_t j = 0; j < cols; j++)
    weight[j] = (gain == NULL ? 1 : gain->v[start + j]) / (real)sqrt((double)cols);
  return weight;
}

static void add_segment(tape *t, norm_op *op, int64_t start, int64_t cols) {
  segment *s = &op->segment[op->segments++];
  size_t rows = (size_t)op->x->rows;
  *s = (segment){.spec = norm_spec(t, &op->config, cols), .start = start};
  s->x = tape_view(t, op->x, 0, op->x->rows, start, cols);
  s->y = tape_view(t, op->y, 0, op->y->rows, start, cols);
  if (op->config.engine == ENGINE_TEXTBOOK) return;
  s->weight = effective_weight(t, &op->config, op->gain, start, cols);
  s->rstd = tape_keep(t, rows * (size_t)(s->spec.groups > 1 ? s->spec.groups : 1) * sizeof(real));
  if (op->config.kind == NORM_LAYER) s->mean = tape_keep(t, rows * sizeof(real));
}

static norm_op *make_op(tape *t, const norm_config *config, tensor *x, tensor *gain, tensor *bias, int64_t split) {
  norm_op *op = tape_keep(t, sizeof *op);
  *op = (norm_op){.config = *config, .x = x, .gain = gain, .bias = bias};
  op->y = tape_tensor(t, x->rows, x->cols);
  if (config->kind == NORM_NONE) return op;
  add_segment(t, op, 0, split > 0 ? split : x->cols);
  if (split > 0) add_segment(t, op, split, x->cols - split);
  return op;
}

static const real *row_part(const tensor *row, int64_t start) {
  return row == NULL ? NULL : row->v + start;
}

static real *gradient_part(const tensor *row, int64_t start) {
  return row == NULL ? NULL : row->g + start;
}

/* With a residual, x = residual_a + residual_b is formed by the same call. */
static void segment_forward(tape *t, norm_op *op, segment *s) {
  if (op->config.engine == ENGINE_TEXTBOOK) {
    s->textbook =
        textbook_forward(t, &op->config, s->x, s->y, row_part(op->gain, s->start), row_part(op->bias, s->start));
    return;
  }
  rms_forward_args args = {.outer = op->x->rows,
                           .x = {.data = s->x->v, .dtype = REAL_DTYPE, .outer_stride = s->x->ld},
                           .weight = s->weight,
                           .bias = row_part(op->bias, s->start),
                           .y = {.data = s->y->v, .outer_stride = s->y->ld},
                           .rstd = s->rstd,
                           .mean = s->mean};
  if (op->a != NULL) {
    args.x = (rms_const_view){.data = op->a->v, .dtype = REAL_DTYPE, .outer_stride = op->a->ld};
    args.residual = (rms_const_view){.data = op->b->v, .outer_stride = op->b->ld};
    args.residual_out = (rms_view){.data = s->x->v, .outer_stride = s->x->ld};
  }
  norm_must(rms_forward(&s->spec, &args, NULL));
}

/* Compares the statistic that was used with that of the whole row. */
static void watch_segment(tape *t, const norm_op *op, const segment *s) {
  if (t->watch == NULL || op->config.kind != NORM_PRMS || s->rstd == NULL) return;
  for (int64_t i = 0; i < s->x->rows; i++) {
    double sum = 0;
    for (int64_t j = 0; j < s->x->cols; j++)
      sum += pow((double)s->x->v[i * s->x->ld + j], 2);
    double error = 1 / ((double)s->rstd[i] * sqrt(sum / (double)s->x->cols + op->config.eps)) - 1;
    t->watch->squares += error * error;
    t->watch->count++;
  }
}

static void segment_backward_library(tape *t, norm_op *op, segment *s) {
  int64_t cols = s->spec.cols;
  int l2 = op->config.kind == NORM_L2 && op->gain != NULL;
  real *l2_gradient = l2 ? tape_keep(t, (size_t)cols * sizeof(real)) : NULL;
  rms_backward_args args = {.outer = op->x->rows,
                            .dy = {.data = s->y->g, .outer_stride = s->y->ld},
                            .x = {.data = s->x->v, .dtype = REAL_DTYPE, .outer_stride = s->x->ld},
                            .accumulate = RMS_ACCUMULATE_DBIAS,
                            .weight = s->weight,
                            .rstd = s->rstd,
                            .mean = s->mean,
                            .dx = {.data = s->x->g, .outer_stride = s->x->ld},
                            .dweight = l2 ? l2_gradient : gradient_part(op->gain, s->start),
                            .dbias = gradient_part(op->bias, s->start)};
  if (!l2) args.accumulate |= RMS_ACCUMULATE_DWEIGHT;
  if (!op->alone) args.accumulate |= RMS_ACCUMULATE_DX;
  if (args.dweight != NULL || args.dbias != NULL) {
    args.workspace_bytes = rms_backward_workspace(&s->spec, &args);
    args.workspace = tape_scratch(t, args.workspace_bytes);
  }
  norm_must(rms_backward(&s->spec, &args, NULL));
  for (int64_t j = 0; l2 && j < cols; j++)
    op->gain->g[s->start + j] += l2_gradient[j] / (real)sqrt((double)cols);
}

LAB_VECTOR static void add_windows(real *restrict y, int64_t y_ld, const real *restrict x, int64_t x_ld, int64_t rows,
                                   int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      y[i * y_ld + j] += x[i * x_ld + j];
}

static void bias_only_forward(norm_op *op) {
  for (int64_t i = 0; i < op->x->rows; i++)
    memcpy(op->y->v + i * op->y->ld, op->x->v + i * op->x->ld, (size_t)op->x->cols * sizeof(real));
  if (op->bias != NULL) add_windows(op->y->v, op->y->ld, op->bias->v, 0, op->y->rows, op->y->cols);
}

static void bias_only_backward(norm_op *op) {
  add_windows(op->x->g, op->x->ld, op->y->g, op->y->ld, op->x->rows, op->x->cols);
  if (op->bias != NULL) add_windows(op->bias->g, 0, op->y->g, op->y->ld, op->y->rows, op->y->cols);
}

static void norm_backward(tape *t, void *arg) {
  norm_op *op = arg;
  double start = lab_seconds();
  for (int i = 0; i < op->segments; i++) {
    segment *s = &op->segment[i];
    if (op->config.engine == ENGINE_LIBRARY)
      segment_backward_library(t, op, s);
    else
      textbook_backward(t, s->textbook, s->x, s->y, row_part(op->gain, s->start), gradient_part(op->gain, s->start),
                        gradient_part(op->bias, s->start));
  }
  if (op->config.kind == NORM_NONE)
    bias_only_backward(op);
  else
    t->times.norm += lab_seconds() - start;
}

static tensor *run(tape *t, norm_op *op) {
  if (op->config.kind == NORM_NONE) {
    bias_only_forward(op);
  } else {
    double start = lab_seconds();
    for (int i = 0; i < op->segments; i++)
      segment_forward(t, op, &op->segment[i]);
    t->times.norm += lab_seconds() - start;
    for (int i = 0; i < op->segments; i++)
      watch_segment(t, op, &op->segment[i]);
  }
  tape_push(t, norm_backward, op);
  return op->y;
}

tensor *op_norm(tape *t, const norm_config *config, tensor *x, tensor *gain, tensor *bias, int64_t split) {
  if (config->kind == NORM_NONE && bias == NULL) return x;
  return run(t, make_op(t, config, x, gain, bias, split));
}

tensor *op_project(tape *t, const norm_config *config, tensor *x, tensor *w, tensor *gain, tensor *bias,
                   int64_t split) {
  tensor *y = op_linear(t, x, w, NULL, ACT_NONE);
  if (config->kind == NORM_NONE && bias == NULL) return y;
  norm_op *op = make_op(t, config, y, gain, bias, split);
  op->alone = 1;
  return run(t, op);
}

LAB_VECTOR static void add_dense(real *restrict sum, const real *restrict a, const real *restrict b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    sum[i] = a[i] + b[i];
}

tensor *op_add_norm(tape *t, const norm_config *config, tensor *x, tensor *f, tensor *gain, tensor *bias,
                    tensor **sum) {
  *sum = tape_constant(t, x->rows, x->cols);
  (*sum)->g = f->g = x->g;
  if (config->kind == NORM_NONE || config->engine == ENGINE_TEXTBOOK) {
    add_dense((*sum)->v, x->v, f->v, x->rows * x->cols);
    return op_norm(t, config, *sum, gain, bias, 0);
  }
  norm_op *op = make_op(t, config, *sum, gain, bias, 0);
  op->a = x;
  op->b = f;
  return run(t, op);
}
