/* SPDX-License-Identifier: MIT
 * Gradients of weights that each inner index (head) has for itself, against the sums that docs/numerics.md describes,
 * formed one after the other: chunks of rows that begin at any head, blocks of 64 rows of a head, f64 totals. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "harness.h"
#include "../include/rmsnorm.h"

typedef struct {
  int64_t outer, inner, cols;
  rms_kind kind;
  float *x, *dy, *weight, *rstd, *mean, *dx, *dweight, *dbias;
} heads;

static float *draw(t_rng *rng, int64_t count) {
  float *data = malloc((size_t)count * sizeof *data);
  for (int64_t i = 0; i < count; i++)
    data[i] = (float)((double)(t_random(rng) >> 40) * 0x1p-23 - 1);
  return data;
}

static heads draw_heads(int64_t outer, int64_t inner, int64_t cols, rms_kind kind) {
  t_rng rng = t_rng_make((uint64_t)(outer * inner + cols));
  const int64_t rows = outer * inner;
  heads h = {outer, inner, cols, kind, draw(&rng, rows * cols), draw(&rng, rows * cols), draw(&rng, inner * cols)};
  h.rstd = draw(&rng, rows);
  h.mean = draw(&rng, rows);
  h.dx = draw(&rng, rows * cols);
  h.dweight = draw(&rng, inner * cols);
  h.dbias = draw(&rng, inner * cols);
  return h;
}

static void free_heads(heads *h) {
  float *all[] = {h->x, h->dy, h->weight, h->rstd, h->mean, h->dx, h->dweight, h->dbias};
  for (size_t i = 0; i < T_COUNT(all); i++)
    free(all[i]);
}

/* The forward, which saves the statistics, and the backward. */
static void run(const heads *h, const rms_executor *executor) {
  const rms_spec spec = {.cols = h->cols, .kind = h->kind, .eps = 1e-5, .weight_per_inner = 1};
  const bool layer = h->kind == RMS_KIND_LAYER;
  rms_forward_args f = {
      .outer = h->outer, .inner = h->inner, .x = {.data = h->x, .dtype = RMS_F32}, .weight = h->weight};
  f.y.data = h->dx;
  f.rstd = h->rstd;
  if (layer) f.mean = h->mean;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &f, executor));
  rms_backward_args b = {
      .outer = h->outer, .inner = h->inner, .x = {.data = h->x, .dtype = RMS_F32}, .weight = h->weight};
  b.dy.data = h->dy;
  b.dx.data = h->dx;
  b.rstd = h->rstd;
  if (layer) b.mean = h->mean, b.dbias = h->dbias;
  b.dweight = h->dweight;
  b.workspace_bytes = rms_backward_workspace(&spec, &b);
  b.workspace = aligned_alloc(64, (b.workspace_bytes + 63) / 64 * 64);
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &b, executor));
  free(b.workspace);
}

/* What a row adds to the gradient of a weight or of a bias. */
static float term_of(const heads *h, int64_t row, int64_t col, bool bias) {
  const float dy = h->dy[row * h->cols + col], x = h->x[row * h->cols + col];
  const float e = h->kind == RMS_KIND_LAYER ? x - h->mean[row] : x, normed = e * h->rstd[row];
  return bias ? dy : dy * normed;
}

static int64_t chunks_of(const heads *h) {
  const int64_t wanted = (h->outer * h->inner + 31) / 32;
  return wanted < 64 ? wanted : 64;
}

/* The row at which a chunk ends. */
static int64_t chunk_end(const heads *h, int64_t c) {
  const int64_t rows = h->outer * h->inner, chunks = chunks_of(h), longer = rows % chunks;
  return (c + 1) * (rows / chunks) + (c < longer ? c + 1 : longer);
}

/* The gradient of column `col` of the weight of a head, or of its bias. */
static float sum_of(const heads *h, int64_t head, int64_t col, bool bias) {
  double total = 0;
  for (int64_t c = 0, row = head; c < chunks_of(h); c++) {
    double of_chunk = 0;
    float block = 0;
    int64_t in_block = 0;
    for (; row < chunk_end(h, c); row += h->inner) {
      block += term_of(h, row, col, bias);
      if (++in_block < 64) continue;
      of_chunk += (double)block;
      block = 0;
      in_block = 0;
    }
    total += of_chunk + (double)block;
  }
  return (float)total;
}

static bool is_right(const heads *h, const float *gradient, bool bias) {
  for (int64_t head = 0; head < h->inner; head++)
    for (int64_t col = 0; col < h->cols; col++) {
      const float right = sum_of(h, head, col, bias);
      if (!T_EQ_BYTES(&right, &gradient[head * h->cols + col], sizeof right)) return false;
    }
  return true;
}

/* In the second chunk, the first block of each head gets a number that its second block takes away: the total keeps
 * what it had only if the blocks of a chunk are added up by themselves. */
static void add_far_numbers(heads *h) {
  for (int64_t head = 0; chunks_of(h) > 1 && head < h->inner; head++) {
    const int64_t begin = chunk_end(h, 0), first = begin + (head - begin % h->inner + h->inner) % h->inner;
    const int64_t second = first + 64 * h->inner;
    for (int64_t col = 0; second < chunk_end(h, 1) && col < h->cols; col++) {
      h->dy[first * h->cols + col] = 0x1p40f;
      h->dy[second * h->cols + col] = -0x1p40f;
    }
  }
}

static void check(const int64_t *shape, rms_kind kind, const rms_executor *executor) {
  heads h = draw_heads(shape[0], shape[1], shape[2], kind);
  add_far_numbers(&h);
  run(&h, executor);
  t_context("%d x %d x %d, kind %d", (int)shape[0], (int)shape[1], (int)shape[2], (int)kind);
  if (is_right(&h, h.dweight, false) && kind == RMS_KIND_LAYER) (void)is_right(&h, h.dbias, true);
  free_heads(&h);
}

/* Short rows and others, one block and many, chunks that begin at each head, as many heads as have a thread each. */
static void sums_in_order(void) {
  static const int64_t shapes[][3] = {{3, 2, 16},   {16, 4, 24},   {31, 3, 128}, {100, 7, 33},
                                      {333, 5, 64}, {2000, 3, 8},  {4500, 2, 5}, {40, 40, 100},
                                      {50, 3, 300}, {700, 31, 17}, {4300, 33, 3}};
  t_isas isas = t_usable_isas();
  rms_pool *pool = NULL;
  T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, 3));
  const rms_executor executor = rms_pool_executor(pool);
  for (int i = 0; i < isas.count; i++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
    for (size_t s = 0; s < T_COUNT(shapes); s++) {
      check(shapes[s], RMS_KIND_RMS, NULL);
      check(shapes[s], RMS_KIND_RMS, &executor);
      check(shapes[s], RMS_KIND_LAYER, &executor);
    }
  }
  rms_pool_destroy(pool);
}

static const t_case cases[] = {{"sums_in_order", sums_in_order}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
