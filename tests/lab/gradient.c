/* SPDX-License-Identifier: MIT */
#include "gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

typedef struct combine_op {
  tensor *y, *sum;
} combine_op;

static real coefficient(int64_t i) {
  return (real)sin(1.0 + 1.7 * (double)i);
}

static void combine_backward(tape *t, void *arg) {
  (void)t;
  combine_op *op = arg;
  for (int64_t i = 0; i < op->y->rows; i++)
    for (int64_t j = 0; j < op->y->cols; j++)
      op->y->g[i * op->y->ld + j] += op->sum->g[0] * coefficient(i * op->y->cols + j);
}

static tensor *combine(tape *t, tensor *y) {
  combine_op *op = tape_keep(t, sizeof *op);
  *op = (combine_op){y, tape_zeros(t, 1, 1)};
  for (int64_t i = 0; i < y->rows; i++)
    for (int64_t j = 0; j < y->cols; j++)
      op->sum->v[0] += y->v[i * y->ld + j] * coefficient(i * y->cols + j);
  tape_push(t, combine_backward, op);
  return op->sum;
}

static tensor *run(tape *t, params *p, const norm_config *norm, build_fn build, void *arg) {
  tape_reset(t, 1, 12345);
  net n = {t, p, 0, norm};
  return combine(t, build(&n, arg));
}

/* With step h the central difference is off by h^2/6 |f'''| + u |f| c / h, where u = 1.1e-16 and c counts the roundings
 * that do not cancel. At h = 2^-17 the first is 1e-11 |f'''|, the second 1.5e-11 c |f|. The values here are of order 1,
 * so 1e-7 (1 + |f| + |gradient|) covers third derivatives and rounding counts of 10^3, and grows as 1/h for smaller
 * steps; a wrong gradient is off by far more. */
static double tolerance(double f, double gradient, double h) {
  return 1e-7 * (1.0 / 131072 / h) * (1 + fabs(f) + fabs(gradient));
}

typedef struct check {
  tape *t;
  params *p;
  const norm_config *norm;
  build_fn build;
  void *arg;
} check;

static double central_difference(const check *c, real *value, double h) {
  real kept = *value;
  *value = kept + (real)h;
  double above = (double)run(c->t, c->p, c->norm, c->build, c->arg)->v[0];
  *value = kept - (real)h;
  double below = (double)run(c->t, c->p, c->norm, c->build, c->arg)->v[0];
  *value = kept;
  return (above - below) / (2 * h);
}

/* A step that crosses the kink of a ReLU or of a maximum measures a mixture of two slopes; a smaller one does not. */
static void check_element(const check *c, real *value, double f, double gradient) {
  static const double steps[] = {1.0 / (1 << 17), 1.0 / (1 << 21), 1.0 / (1 << 24)};
  double difference = 0, h = 0;
  for (size_t i = 0; i < T_COUNT(steps); i++) {
    h = steps[i];
    difference = central_difference(c, value, h);
    if (fabs(difference - gradient) <= tolerance(f, gradient, h)) break;
  }
  T_NEAR(difference, gradient, tolerance(f, gradient, h));
}

void check_gradients(params *p, const norm_config *norm, build_fn build, void *arg, int64_t stride) {
  tape *t = tape_create();
  check c = {t, p, norm, build, arg};
  memset(p->grads, 0, (size_t)p->size * sizeof(real));
  tensor *loss = run(t, p, norm, build, arg);
  double f = (double)loss->v[0];
  tape_backward(t, loss);
  real *gradients = lab_alloc((size_t)p->size, sizeof *gradients);
  memcpy(gradients, p->grads, (size_t)p->size * sizeof(real));
  int64_t turn = 0;
  for (int64_t i = 0; i < p->count && t_failures() == 0; i++) {
    const param *item = &p->items[i];
    if (item->kind == PARAM_RUNNING) continue;
    for (int64_t j = 0; j < item->rows * item->cols; j++) {
      if (turn++ % stride != 0) continue;
      t_context("%s element %lld", item->name, (long long)j);
      check_element(&c, p->value + item->offset + j, f, (double)gradients[item->offset + j]);
    }
  }
  free(gradients);
  tape_free(t);
}
