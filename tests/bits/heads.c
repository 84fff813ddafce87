/* SPDX-License-Identifier: MIT
 * Gradients of weights that each inner index (head) has for itself, against the sums that docs/numerics.md describes,
 * formed one after the other: chunks of rows that begin at any head, blocks of 64 rows of a head, f64 totals. */
#include <stdlib.h>
#include <string.h>
#include "harness.h"
#include "../include/rmsnorm.h"

typedef struct {
  int64_t outer, inner, cols;
  float *x, *dy, *weight, *rstd, *dx, *dweight;
} heads;

static float *draw(t_rng *rng, int64_t count) {
  float *data = malloc((size_t)count * sizeof *data);
  for (int64_t i = 0; i < count; i++)
    data[i] = (float)((double)(t_random(rng) >> 40) * 0x1p-23 - 1);
  return data;
}

static heads draw_heads(int64_t outer, int64_t inner, int64_t cols) {
  t_rng rng = t_rng_make((uint64_t)(outer * inner + cols));
  const int64_t rows = outer * inner;
  heads h = {outer, inner, cols, draw(&rng, rows * cols), draw(&rng, rows * cols), draw(&rng, inner * cols)};
  h.rstd = draw(&rng, rows);
  h.dx = draw(&rng, rows * cols);
  h.dweight = draw(&rng, inner * cols);
  return h;
}

static void free_heads(heads *h) {
  float *all[] = {h->x, h->dy, h->weight, h->rstd, h->dx, h->dweight};
  for (size_t i = 0; i < T_COUNT(all); i++)
    free(all[i]);
}

/* The forward, which saves rstd, and the backward. */
static void run(const heads *h, const rms_executor *executor) {
  const rms_spec spec = {.cols = h->cols, .eps = 1e-5, .weight_per_inner = 1};
  rms_forward_args f = {
      .outer = h->outer, .inner = h->inner, .x = {.data = h->x, .dtype = RMS_F32}, .weight = h->weight};
  f.y.data = h->dx;
  f.rstd = h->rstd;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &f, executor));
  rms_backward_args b = {
      .outer = h->outer, .inner = h->inner, .x = {.data = h->x, .dtype = RMS_F32}, .weight = h->weight};
  b.dy.data = h->dy;
  b.dx.data = h->dx;
  b.rstd = h->rstd;
  b.dweight = h->dweight;
  b.workspace_bytes = rms_backward_workspace(&spec, &b);
  b.workspace = aligned_alloc(64, (b.workspace_bytes + 63) / 64 * 64);
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &b, executor));
  free(b.workspace);
}

/* The gradient of column `col` of the weight of a head. */
static float sum_of(const heads *h, int64_t head, int64_t col) {
  const int64_t rows = h->outer * h->inner, wanted = (rows + 31) / 32, chunks = wanted < 64 ? wanted : 64;
  double total = 0;
  for (int64_t c = 0, row = 0; c < chunks; c++) {
    const int64_t end = row + rows / chunks + (c < rows % chunks);
    double of_chunk = 0;
    float block = 0;
    int64_t in_block = 0;
    for (; row < end; row++) {
      if (row % h->inner != head) continue;
      const float normed = h->x[row * h->cols + col] * h->rstd[row], term = h->dy[row * h->cols + col] * normed;
      block += term;
      if (++in_block < 64) continue;
      of_chunk += (double)block;
      block = 0;
      in_block = 0;
    }
    total += of_chunk + (double)block;
  }
  return (float)total;
}

static void check(int64_t outer, int64_t inner, int64_t cols, const rms_executor *executor) {
  heads h = draw_heads(outer, inner, cols);
  run(&h, executor);
  t_context("%d x %d x %d", (int)outer, (int)inner, (int)cols);
  for (int64_t head = 0; head < inner; head++)
    for (int64_t col = 0; col < cols; col++) {
      const float right = sum_of(&h, head, col);
      if (!T_EQ_BYTES(&right, &h.dweight[head * cols + col], sizeof right)) goto end;
    }
end:
  free_heads(&h);
}

/* Short rows and others, one block and many, chunks that begin at each head, as many heads as have a thread each. */
static void sums_in_order(void) {
  static const int64_t shapes[][3] = {{3, 2, 16},   {16, 4, 24},  {31, 3, 128},  {100, 7, 33}, {333, 5, 64},
                                      {2000, 3, 8}, {4500, 2, 5}, {40, 40, 100}, {50, 3, 300}, {700, 31, 17}};
  t_isas isas = t_usable_isas();
  rms_pool *pool = NULL;
  T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, 3));
  const rms_executor executor = rms_pool_executor(pool);
  for (int i = 0; i < isas.count; i++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
    for (size_t s = 0; s < T_COUNT(shapes); s++) {
      check(shapes[s][0], shapes[s][1], shapes[s][2], NULL);
      check(shapes[s][0], shapes[s][1], shapes[s][2], &executor);
    }
  }
  rms_pool_destroy(pool);
}

static const t_case cases[] = {{"sums_in_order", sums_in_order}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
