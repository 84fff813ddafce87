/* SPDX-License-Identifier: MIT */
#include "tape/ops.h"

#include <math.h>
#include <string.h>

#include "tape/vecmath.h"

/* ---- multi-head attention ---- */

typedef struct attention_op {
  attention_shape shape;
  tensor *q, *k, *v, *y;
  real *weights; /* (batch*heads*q_length) x k_room */
  int64_t k_room;
  real scale;
} attention_op;

/* Rows of weights have room for whole vectors: a remainder of up to seven exponentials costs more than a vector. */
static int64_t whole_vectors(int64_t n) {
  return (n + 7) / 8 * 8;
}

/* Keys that query i of sequence b sees. */
static int64_t visible(const attention_shape *s, int64_t b, int64_t i) {
  int64_t seen = s->k_lengths == NULL ? s->k_length : s->k_lengths[b];
  return s->causal && i + 1 < seen ? i + 1 : seen;
}

/* Softmax of the first `seen` elements; the others up to `room`, a multiple of 8, become 0. */
LAB_VECTOR static void softmax_row(real *restrict row, int64_t seen, int64_t room) {
  for (int64_t j = seen; j < room; j++)
    row[j] = row[0];
  int64_t used = (seen + 7) / 8 * 8;
  vec_exp(row, used);
  for (int64_t j = seen; j < room; j++)
    row[j] = 0;
  real scale = 1 / vec_sum(row, used);
  for (int64_t j = 0; j < used; j++)
    row[j] *= scale;
}

/* dw -> ds in place: ds = w * (dw - sum(dw*w)) */
LAB_VECTOR static void softmax_row_backward(real *restrict dw, const real *restrict w, int64_t n) {
  real along = vec_dot(dw, w, n);
  for (int64_t j = 0; j < n; j++)
    dw[j] = w[j] * (dw[j] - along);
}

/* The windows of one sequence and head. */
typedef struct head {
  int64_t q, k, v, y, weights; /* offsets */
} head;

static head head_at(const attention_op *op, int64_t b, int64_t h) {
  const attention_shape *s = &op->shape;
  int64_t width = op->q->cols / s->heads;
  return (head){b * s->q_length * op->q->ld + h * width, b * s->k_length * op->k->ld + h * width,
                b * s->k_length * op->v->ld + h * width, b * s->q_length * op->y->ld + h * width,
                (b * s->heads + h) * s->q_length * op->k_room};
}

static void head_backward(tape *t, attention_op *op, int64_t b, int64_t h) {
  const attention_shape *s = &op->shape;
  int64_t width = op->q->cols / s->heads, nq = s->q_length, nk = s->k_length, room = op->k_room;
  tensor *q = op->q, *k = op->k, *v = op->v, *y = op->y;
  head at = head_at(op, b, h);
  const real *w = op->weights + at.weights;
  real *dw = tape_scratch(t, (size_t)(nq * room) * sizeof(real));
  gemm(t, (gemm_shape){nk, width, nq, 1, 1}, transposed(w, room), as_is(y->g + at.y, y->ld), v->g + at.v, v->ld);
  gemm(t, (gemm_shape){nq, nk, width, 1, 0}, as_is(y->g + at.y, y->ld), transposed(v->v + at.v, v->ld), dw, room);
  for (int64_t i = 0; i < nq; i++)
    softmax_row_backward(dw + i * room, w + i * room, nk);
  gemm(t, (gemm_shape){nq, width, nk, op->scale, 1}, as_is(dw, room), as_is(k->v + at.k, k->ld), q->g + at.q, q->ld);
  gemm(t, (gemm_shape){nk, width, nq, op->scale, 1}, transposed(dw, room), as_is(q->v + at.q, q->ld), k->g + at.k,
       k->ld);
}

static void attention_backward(tape *t, void *arg) {
  attention_op *op = arg;
  for (int64_t b = 0; b < op->shape.batch; b++)
    for (int64_t h = 0; h < op->shape.heads; h++)
      head_backward(t, op, b, h);
}

static void head_forward(tape *t, attention_op *op, int64_t b, int64_t h) {
  const attention_shape *s = &op->shape;
  int64_t width = op->q->cols / s->heads, nq = s->q_length, nk = s->k_length, room = op->k_room;
  head at = head_at(op, b, h);
  real *w = op->weights + at.weights;
  gemm(t, (gemm_shape){nq, nk, width, op->scale, 0}, as_is(op->q->v + at.q, op->q->ld),
       transposed(op->k->v + at.k, op->k->ld), w, room);
  for (int64_t i = 0; i < nq; i++)
    softmax_row(w + i * room, visible(s, b, i), room);
  gemm(t, (gemm_shape){nq, width, nk, 1, 0}, as_is(w, room), as_is(op->v->v + at.v, op->v->ld), op->y->v + at.y,
       op->y->ld);
}

tensor *op_attention(tape *t, const attention_shape *shape, tensor *q, tensor *k, tensor *v) {
  attention_op *op = tape_keep(t, sizeof *op);
  *op = (attention_op){.shape = *shape, .q = q, .k = k, .v = v};
  op->y = tape_tensor(t, q->rows, q->cols);
  op->k_room = whole_vectors(shape->k_length);
  op->weights = tape_keep(t, (size_t)(shape->batch * shape->heads * shape->q_length * op->k_room) * sizeof(real));
  op->scale = (real)(1 / sqrt((double)(q->cols / shape->heads)));
  if (shape->k_lengths != NULL) {
    int32_t *lengths = tape_keep(t, (size_t)shape->batch * sizeof *lengths);
    memcpy(lengths, shape->k_lengths, (size_t)shape->batch * sizeof *lengths);
    op->shape.k_lengths = lengths;
  }
  for (int64_t b = 0; b < shape->batch; b++)
    for (int64_t h = 0; h < shape->heads; h++)
      head_forward(t, op, b, h);
  tape_push(t, attention_backward, op);
  return op->y;
}

/* ---- additive attention ---- */

typedef struct additive_op {
  tensor *query, *keys, *values, *score, *y;
  real *weights; /* batch x room */
  int64_t room;
  const int32_t *lengths;
  real *sums; /* tanh(key + query), steps*batch x width */
} additive_op;

/* score . tanh(key + query); sum = tanh(key + query) is left in `sum` */
LAB_VECTOR static real additive_score(real *restrict sum, const real *restrict key, const real *restrict query,
                                      const real *restrict score, int64_t n) {
  for (int64_t j = 0; j < n; j++)
    sum[j] = real_tanh(key[j] + query[j]);
  return vec_dot(sum, score, n);
}

LAB_VECTOR static void additive_score_backward(real ds, const real *restrict sum, const real *restrict score,
                                               real *restrict dkey, real *restrict dquery, real *restrict dscore,
                                               int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    real d = ds * score[j] * (1 - sum[j] * sum[j]);
    dkey[j] += d;
    dquery[j] += d;
    dscore[j] += ds * sum[j];
  }
}

LAB_VECTOR static real dot(const real *restrict a, const real *restrict b, int64_t n) {
  return vec_dot(a, b, n);
}

static void additive_backward(tape *t, void *arg) {
  additive_op *op = arg;
  tensor *query = op->query, *keys = op->keys, *values = op->values;
  int64_t batch = query->rows, width = query->cols;
  for (int64_t b = 0; b < batch; b++) {
    const real *w = op->weights + b * op->room, *dy = op->y->g + b * op->y->ld;
    real *dw = tape_scratch(t, (size_t)op->room * sizeof(real));
    for (int64_t i = 0; i < op->lengths[b]; i++) {
      dw[i] = dot(dy, values->v + (i * batch + b) * values->ld, values->cols);
      add_scaled(values->g + (i * batch + b) * values->ld, dy, w[i], values->cols);
    }
    softmax_row_backward(dw, w, op->lengths[b]);
    for (int64_t i = 0; i < op->lengths[b]; i++) {
      int64_t row = i * batch + b;
      additive_score_backward(dw[i], op->sums + row * width, op->score->v, keys->g + row * keys->ld,
                              query->g + b * query->ld, op->score->g, width);
    }
  }
}

tensor *op_additive_attention(tape *t, tensor *query, tensor *keys, tensor *values, tensor *score,
                              const int32_t *lengths) {
  int64_t batch = query->rows, steps = keys->rows / batch, width = query->cols;
  additive_op *op = tape_keep(t, sizeof *op);
  *op = (additive_op){.query = query, .keys = keys, .values = values, .score = score, .lengths = lengths};
  op->y = tape_zeros(t, batch, values->cols);
  op->room = whole_vectors(steps);
  op->weights = tape_keep(t, (size_t)(batch * op->room) * sizeof(real));
  op->sums = tape_keep(t, (size_t)(keys->rows * width) * sizeof(real));
  for (int64_t b = 0; b < batch; b++) {
    real *w = op->weights + b * op->room;
    for (int64_t i = 0; i < lengths[b]; i++) {
      int64_t row = i * batch + b;
      w[i] =
          additive_score(op->sums + row * width, keys->v + row * keys->ld, query->v + b * query->ld, score->v, width);
    }
    softmax_row(w, lengths[b], op->room);
    for (int64_t i = 0; i < lengths[b]; i++)
      add_scaled(op->y->v + b * op->y->ld, values->v + (i * batch + b) * values->ld, w[i], values->cols);
  }
  tape_push(t, additive_backward, op);
  return op->y;
}

/* ---- mean over time ---- */

typedef struct mean_op {
  tensor *x, *y;
  const int32_t *lengths;
} mean_op;

static void mean_steps_backward(tape *t, void *arg) {
  (void)t;
  mean_op *op = arg;
  int64_t batch = op->y->rows;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < op->lengths[b]; i++)
      add_scaled(op->x->g + (i * batch + b) * op->x->ld, op->y->g + b * op->y->ld, 1 / (real)op->lengths[b],
                 op->y->cols);
}

tensor *op_mean_steps(tape *t, tensor *x, int64_t batch, const int32_t *lengths) {
  mean_op *op = tape_keep(t, sizeof *op);
  *op = (mean_op){x, tape_zeros(t, batch, x->cols), lengths};
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < lengths[b]; i++)
      add_scaled(op->y->v + b * op->y->ld, x->v + (i * batch + b) * x->ld, 1 / (real)lengths[b], x->cols);
  tape_push(t, mean_steps_backward, op);
  return op->y;
}
