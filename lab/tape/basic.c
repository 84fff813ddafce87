/* SPDX-License-Identifier: MIT */
#include "tape/ops.h"

#include <string.h>

#include "tape/vecmath.h"

/* ---- linear ---- */

typedef struct linear_op {
  tensor *x, *w, *b, *y;
  activation act;
} linear_op;

/* All rows become b; what is filled is copied on, in ever larger blocks. */
static void fill_rows(real *y, const real *b, int64_t rows, int64_t cols) {
  memcpy(y, b, (size_t)cols * sizeof(real));
  for (int64_t done = 1; done < rows; done *= 2)
    memcpy(y + done * cols, y, (size_t)((2 * done < rows ? done : rows - done) * cols) * sizeof(real));
}

LAB_VECTOR static void add_rows_to_row(real *sum, const real *y, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      sum[j] += y[i * cols + j];
}

LAB_VECTOR static void relu(real *y, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = y[i] < 0 ? 0 : y[i]; /* lets a NaN through */
}

LAB_VECTOR static void relu_backward(real *dy, const real *y, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    dy[i] = y[i] > 0 ? dy[i] : 0;
}

LAB_VECTOR static void tanh_in_place(real *y, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = real_tanh(y[i]);
}

LAB_VECTOR static void tanh_backward_in_place(real *dy, const real *y, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    dy[i] *= 1 - y[i] * y[i];
}

static void linear_backward(tape *t, void *arg) {
  linear_op *op = arg;
  tensor *x = op->x, *w = op->w, *y = op->y;
  int64_t count = y->rows * y->cols;
  if (op->act == ACT_RELU) relu_backward(y->g, y->v, count);
  if (op->act == ACT_TANH) tanh_backward_in_place(y->g, y->v, count);
  if (op->b != NULL) add_rows_to_row(op->b->g, y->g, y->rows, y->cols);
  gemm(t, (gemm_shape){w->rows, w->cols, x->rows, 1, 1}, transposed(x->v, x->ld), as_is(y->g, y->ld), w->g, w->ld);
  gemm(t, (gemm_shape){x->rows, x->cols, w->cols, 1, 1}, as_is(y->g, y->ld), transposed(w->v, w->ld), x->g, x->ld);
}

tensor *op_linear(tape *t, tensor *x, tensor *w, tensor *b, activation act) {
  tensor *y = tape_tensor(t, x->rows, w->cols);
  if (b != NULL) fill_rows(y->v, b->v, y->rows, y->cols);
  gemm(t, (gemm_shape){x->rows, w->cols, w->rows, 1, b != NULL}, as_is(x->v, x->ld), as_is(w->v, w->ld), y->v, y->ld);
  if (act == ACT_RELU) relu(y->v, y->rows * y->cols);
  if (act == ACT_TANH) tanh_in_place(y->v, y->rows * y->cols);
  linear_op *op = tape_keep(t, sizeof *op);
  *op = (linear_op){x, w, b, y, act};
  tape_push(t, linear_backward, op);
  return y;
}

static void logits_backward(tape *t, void *arg) {
  linear_op *op = arg;
  tensor *x = op->x, *w = op->w, *y = op->y;
  gemm(t, (gemm_shape){w->rows, w->cols, x->rows, 1, 1}, transposed(y->g, y->ld), as_is(x->v, x->ld), w->g, w->ld);
  gemm(t, (gemm_shape){x->rows, x->cols, w->rows, 1, 1}, as_is(y->g, y->ld), as_is(w->v, w->ld), x->g, x->ld);
}

tensor *op_logits(tape *t, tensor *x, tensor *w) {
  tensor *y = tape_constant(t, x->rows, w->rows);
  y->g = y->v;
  gemm(t, (gemm_shape){x->rows, w->rows, w->cols, 1, 0}, as_is(x->v, x->ld), transposed(w->v, w->ld), y->v, y->ld);
  linear_op *op = tape_keep(t, sizeof *op);
  *op = (linear_op){x, w, NULL, y, ACT_NONE};
  tape_push(t, logits_backward, op);
  return y;
}

/* ---- embeddings and positions ---- */

typedef struct embed_op {
  tensor *table, *y;
  int32_t *ids;
  real scale;
} embed_op;

LAB_VECTOR static void scaled_copy(real *restrict y, const real *restrict x, real scale, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = scale * x[i];
}

LAB_VECTOR void add_scaled(real *restrict y, const real *restrict x, real scale, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] += scale * x[i];
}

static void embed_backward(tape *t, void *arg) {
  (void)t;
  embed_op *op = arg;
  int64_t cols = op->y->cols;
  for (int64_t i = 0; i < op->y->rows; i++)
    add_scaled(op->table->g + op->ids[i] * cols, op->y->g + i * cols, op->scale, cols);
}

tensor *op_embed(tape *t, tensor *table, const int32_t *ids, int64_t count, real scale) {
  int64_t cols = table->cols;
  tensor *y = tape_tensor(t, count, cols);
  embed_op *op = tape_keep(t, sizeof *op);
  *op = (embed_op){table, y, tape_keep(t, (size_t)count * sizeof *ids), scale};
  memcpy(op->ids, ids, (size_t)count * sizeof *ids);
  for (int64_t i = 0; i < count; i++)
    scaled_copy(y->v + i * cols, table->v + ids[i] * cols, scale, cols);
  tape_push(t, embed_backward, op);
  return y;
}

/* y = f(x) where the gradient passes unchanged, or a and b that both get it. */
typedef struct sum_op {
  tensor *a, *b, *y;
} sum_op;

LAB_VECTOR void add_to(real *restrict y, const real *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i];
}

static void sum_backward(tape *t, void *arg) {
  (void)t;
  sum_op *op = arg;
  int64_t n = op->y->rows * op->y->cols;
  add_to(op->a->g, op->y->g, n);
  if (op->b != NULL) add_to(op->b->g, op->y->g, n);
}

static tensor *push_sum(tape *t, tensor *a, tensor *b, tensor *y) {
  sum_op *op = tape_keep(t, sizeof *op);
  *op = (sum_op){a, b, y};
  tape_push(t, sum_backward, op);
  return y;
}

tensor *op_add_positions(tape *t, tensor *x, const real *table, int64_t length) {
  tensor *y = tape_input(t, x->v, x->rows, x->cols);
  for (int64_t i = 0; i < x->rows; i++)
    add_to(y->v + i * x->cols, table + i % length * x->cols, x->cols);
  return push_sum(t, x, NULL, y);
}

tensor *op_add(tape *t, tensor *a, tensor *b) {
  tensor *y = tape_input(t, a->v, a->rows, a->cols);
  add_to(y->v, b->v, a->rows * a->cols);
  return push_sum(t, a, b, y);
}

/* ---- stacking, tanh, concat ---- */

typedef struct stack_op {
  tensor **parts, *y;
  int64_t count;
} stack_op;

static void stack_rows_backward(tape *t, void *arg) {
  (void)t;
  stack_op *op = arg;
  int64_t n = op->y->rows * op->y->cols / op->count;
  for (int64_t i = 0; i < op->count; i++)
    add_to(op->parts[i]->g, op->y->g + i * n, n);
}

tensor *op_stack_rows(tape *t, tensor **parts, int64_t count) {
  stack_op *op = tape_keep(t, sizeof *op);
  int64_t n = parts[0]->rows * parts[0]->cols;
  *op = (stack_op){tape_keep(t, (size_t)count * sizeof *parts), tape_tensor(t, count * parts[0]->rows, parts[0]->cols),
                   count};
  memcpy(op->parts, parts, (size_t)count * sizeof *parts);
  for (int64_t i = 0; i < count; i++)
    memcpy(op->y->v + i * n, parts[i]->v, (size_t)n * sizeof(real));
  tape_push(t, stack_rows_backward, op);
  return op->y;
}

typedef struct unary_op {
  tensor *x, *y;
  real *mask;
} unary_op;

LAB_VECTOR static void tanh_backward_add(real *restrict dx, const real *restrict dy, const real *restrict y,
                                         int64_t n) {
  for (int64_t i = 0; i < n; i++)
    dx[i] += dy[i] * (1 - y[i] * y[i]);
}

static void tanh_backward(tape *t, void *arg) {
  (void)t;
  unary_op *op = arg;
  tanh_backward_add(op->x->g, op->y->g, op->y->v, op->y->rows * op->y->cols);
}

tensor *op_tanh(tape *t, tensor *x) {
  tensor *y = tape_input(t, x->v, x->rows, x->cols);
  tanh_in_place(y->v, x->rows * x->cols);
  unary_op *op = tape_keep(t, sizeof *op);
  *op = (unary_op){x, y, NULL};
  tape_push(t, tanh_backward, op);
  return y;
}

static void concat_backward(tape *t, void *arg) {
  (void)t;
  sum_op *op = arg;
  for (int64_t i = 0; i < op->y->rows; i++) {
    add_to(op->a->g + i * op->a->ld, op->y->g + i * op->y->ld, op->a->cols);
    add_to(op->b->g + i * op->b->ld, op->y->g + i * op->y->ld + op->a->cols, op->b->cols);
  }
}

tensor *op_concat(tape *t, tensor *a, tensor *b) {
  tensor *y = tape_tensor(t, a->rows, a->cols + b->cols);
  for (int64_t i = 0; i < y->rows; i++) {
    memcpy(y->v + i * y->ld, a->v + i * a->ld, (size_t)a->cols * sizeof(real));
    memcpy(y->v + i * y->ld + a->cols, b->v + i * b->ld, (size_t)b->cols * sizeof(real));
  }
  sum_op *op = tape_keep(t, sizeof *op);
  *op = (sum_op){a, b, y};
  tape_push(t, concat_backward, op);
  return y;
}

/* ---- dropout, noise: a function of the step's key, the number of the operation and the element ---- */

static inline uint32_t noise_bits(uint32_t key, uint32_t i) {
  uint32_t x = i * 0x9E3779B1u + key;
  x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  return x ^ (x >> 16);
}

static uint32_t next_noise_key(tape *t) {
  lab_rng rng = lab_rng_make(t->noise_key, t->noise_operations++);
  return (uint32_t)(lab_rng_next(&rng) >> 32);
}

LAB_VECTOR static void dropout_mask(real *mask, int64_t n, uint32_t key, int32_t threshold, real scale) {
  for (int64_t i = 0; i < n; i++)
    mask[i] = (int32_t)(noise_bits(key, (uint32_t)i) >> 1) < threshold ? 0 : scale;
}

LAB_VECTOR static void multiply(real *restrict y, const real *restrict x, const real *restrict m, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = x[i] * m[i];
}

LAB_VECTOR static void multiply_add(real *restrict y, const real *restrict x, const real *restrict m, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i] * m[i];
}

static void dropout_backward(tape *t, void *arg) {
  (void)t;
  unary_op *op = arg;
  multiply_add(op->x->g, op->y->g, op->mask, op->y->rows * op->y->cols);
}

tensor *op_dropout(tape *t, tensor *x, double probability) {
  if (!t->training || probability <= 0) return x;
  int64_t n = x->rows * x->cols;
  tensor *y = tape_tensor(t, x->rows, x->cols);
  unary_op *op = tape_keep(t, sizeof *op);
  *op = (unary_op){x, y, tape_keep(t, (size_t)n * sizeof(real))};
  dropout_mask(op->mask, n, next_noise_key(t), (int32_t)(probability * 2147483648.0), (real)(1 / (1 - probability)));
  multiply(y->v, x->v, op->mask, n);
  tape_push(t, dropout_backward, op);
  return y;
}

/* The sum of four uniform numbers, scaled to deviation 1: near enough to a normal number, and fast. */
LAB_VECTOR static void noise_into(real *y, int64_t n, uint32_t key, real deviation) {
  real scale = deviation * (real)(1.7320508 / 65536.0);
  for (int64_t i = 0; i < n; i++) {
    uint32_t a = noise_bits(key, (uint32_t)(2 * i)), b = noise_bits(key, (uint32_t)(2 * i + 1));
    int32_t sum = (int32_t)((a & 65535u) + (a >> 16) + (b & 65535u) + (b >> 16)) - 2 * 65535;
    y[i] += scale * (real)sum;
  }
}

void add_noise(tape *t, tensor *x, double deviation) {
  if (!t->training || deviation <= 0) return;
  noise_into(x->v, x->rows * x->cols, next_noise_key(t), (real)deviation);
}
