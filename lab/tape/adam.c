/* SPDX-License-Identifier: MIT
 *
 * Adam over blocks of fixed size: the blocks run on any threads and processes, every sum has a fixed order.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cluster.h"
#include "base/tasks.h"
#include "tape/params.h"
#include "tape/vecmath.h"

enum { BLOCK = PARAM_BLOCK, LANES = 8 };

typedef struct update {
  params *p;
  double *squares; /* per block: sum of squares of the gradient */
  real rate, beta1, beta2, epsilon, scale, correct1, correct2;
} update;

LAB_VECTOR static void add_into(real *restrict sum, const real *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    sum[i] += x[i];
}

LAB_VECTOR static double sum_of_squares(const real *x, int64_t n) {
  double lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int l = 0; l < LANES; l++)
      lane[l] += (double)x[i + l] * (double)x[i + l];
  double sum = 0;
  for (int l = 0; l < LANES; l++)
    sum += lane[l];
  for (; i < n; i++)
    sum += (double)x[i] * (double)x[i];
  return sum;
}

LAB_VECTOR static void update_block(real *restrict value, real *restrict m, real *restrict v, const real *restrict grad,
                                    int64_t n, const update *u) {
  real beta1 = u->beta1, beta2 = u->beta2, scale = u->scale, rate = u->rate, epsilon = u->epsilon;
  real correct1 = u->correct1, correct2 = u->correct2;
  for (int64_t i = 0; i < n; i++) {
    real g = grad[i] * scale;
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    value[i] -= rate * (m[i] * correct1) / (REAL_SQRT(v[i] * correct2) + epsilon);
  }
}

static int64_t block_length(const params *p, int64_t block) {
  int64_t left = p->size - block * BLOCK;
  return left < BLOCK ? left : BLOCK;
}

static void reduce_task(void *arg, int64_t block) {
  params *p = ((update *)arg)->p;
  real *sum = p->grads + block * BLOCK;
  for (int shard = 1; shard < p->own; shard++)
    add_into(sum, sum + shard * p->size, block_length(p, block));
}

static int is_own(const params *p, int64_t block) {
  return block * BLOCK >= p->part && block * BLOCK < p->end;
}

static void squares_task(void *arg, int64_t block) {
  update *u = arg;
  if (is_own(u->p, block)) u->squares[block] = sum_of_squares(u->p->grads + block * BLOCK, block_length(u->p, block));
}

static void update_task(void *arg, int64_t block) {
  update *u = arg;
  params *p = u->p;
  int64_t at = block * BLOCK, n = block_length(p, block);
  if (is_own(p, block)) update_block(p->value + at, p->m + at, p->v + at, p->grads + at, n, u);
  for (int shard = 0; shard < p->own; shard++)
    memset(p->grads + shard * p->size + at, 0, (size_t)n * sizeof(real));
}

/* Running averages move a tenth towards the shards' mean. Their gradient is then zero, which Adam leaves alone. */
static void update_running(params *p) {
  for (int64_t i = 0; i < p->count; i++) {
    const param *item = &p->items[i];
    if (item->kind != PARAM_RUNNING) continue;
    for (int64_t j = item->offset; j < item->offset + item->rows * item->cols; j++) {
      if (j < p->part || j >= p->end) continue;
      p->value[j] += (real)0.1 * (p->grads[j] / (real)p->shards - p->value[j]);
      p->grads[j] = 0;
    }
  }
}

double adam_step(params *p, const adam_config *config, int64_t step, const rms_executor *executor) {
  int64_t blocks = p->blocks;
  update u = {.p = p, .squares = lab_alloc((size_t)blocks, sizeof(double))};
  if (!p->added_up) run_tasks(executor, blocks, reduce_task, &u);
  p->added_up = 0;
  update_running(p);
  run_tasks(executor, blocks, squares_task, &u);
  cluster_collect(u.squares, blocks, sizeof *u.squares);
  double sum = 0;
  for (int64_t i = 0; i < blocks; i++)
    sum += u.squares[i];
  free(u.squares);
  double norm = sqrt(sum);
  u.scale = (real)(config->clip > 0 && norm > config->clip ? config->clip / norm : 1);
  u.rate = (real)config->rate;
  u.beta1 = (real)config->beta1;
  u.beta2 = (real)config->beta2;
  u.epsilon = (real)config->epsilon;
  u.correct1 = (real)(1 / (1 - pow(config->beta1, (double)step)));
  u.correct2 = (real)(1 / (1 - pow(config->beta2, (double)step)));
  run_tasks(executor, blocks, update_task, &u);
  cluster_collect(p->value, blocks, BLOCK * sizeof(real));
  return norm;
}
