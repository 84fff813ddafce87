/* SPDX-License-Identifier: MIT
 *
 * rmsnorm_mpi.h against the unsplit call. Every rank has the whole rows, runs the unsplit call on them, and compares
 * its own columns of the split one. All ranks draw the same random numbers, so their calls belong together. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "call.h"
#include "rmsnorm_mpi.h"

enum { ROWS = 23, INNER = 2, SEGMENTS = ROWS * INNER, COLS = 448, BLOCK = 32, MOST_RANKS = 16 };

static int rank, ranks;

/* ---- Rows, whole and split ---- */

typedef struct rows_f32 {
  float x[SEGMENTS * COLS], residual[SEGMENTS * COLS], dy[SEGMENTS * COLS], weight[COLS], bias[COLS];
  float y[SEGMENTS * COLS], sum[SEGMENTS * COLS], dx[SEGMENTS * COLS], dweight[COLS], dbias[COLS];
  float rstd[SEGMENTS * COLS], mean[SEGMENTS * COLS];
  float gate[SEGMENTS * COLS], dgate[SEGMENTS * COLS];
} rows_f32;

static rows_f32 whole, split, other;
static rms_stat stats[SEGMENTS * COLS];
_Alignas(64) static unsigned char workspace[1 << 20];

static rms_forward_args forward_of(rows_f32 *r, int64_t first) {
  return (rms_forward_args){.outer = ROWS,
                            .inner = INNER,
                            .x = {r->x + first, RMS_F32, 0, INNER * COLS, COLS, 0},
                            .residual = {r->residual + first, 0, 0, INNER * COLS, COLS, 0},
                            .weight = r->weight + first,
                            .bias = r->bias + first,
                            .y = {r->y + first, 0, 0, INNER * COLS, COLS, 0},
                            .residual_out = {r->sum + first, 0, 0, INNER * COLS, COLS, 0},
                            .rstd = r->rstd,
                            .mean = r->mean};
}

static rms_backward_args backward_of(rows_f32 *r, int64_t first) {
  return (rms_backward_args){.outer = ROWS,
                             .inner = INNER,
                             .dy = {r->dy + first, 0, 0, INNER * COLS, COLS, 0},
                             .x = {r->sum + first, RMS_F32, 0, INNER * COLS, COLS, 0},
                             .weight = r->weight + first,
                             .dx = {r->dx + first, 0, 0, INNER * COLS, COLS, 0},
                             .dweight = r->dweight + first,
                             .dbias = r->dbias + first,
                             .workspace = workspace,
                             .workspace_bytes = sizeof workspace};
}

/* Where the spec has a place for it. */
static void add_gate(const rms_spec *spec, rows_f32 *r, int64_t first, rms_forward_args *f, rms_backward_args *b) {
  if (spec->gate_place == RMS_GATE_NONE) return;
  f->gate = b->gate = (rms_const_view){r->gate + first, 0, 0, INNER * COLS, COLS, 0};
  b->dgate = (rms_view){r->dgate + first, 0, 0, INNER * COLS, COLS, 0};
  b->bias = r->bias + first;
}

static void run_whole(const rms_spec *spec, rows_f32 *r) {
  rms_forward_args f = forward_of(r, 0);
  rms_backward_args b = backward_of(r, 0);
  add_gate(spec, r, 0, &f, &b);
  T_EQ_STATUS(RMS_OK, rms_forward(spec, &f, NULL));
  T_EQ_STATUS(RMS_OK, rms_backward(spec, &b, NULL));
}

/* Columns [start[rank], start[rank + 1]) are a rank's. */
typedef struct cut {
  int64_t start[MOST_RANKS + 1];
} cut;

/* Any split, at multiples of `unit`: shards of very different sizes, some of them empty. */
static cut draw_cut(t_rng *rng, int64_t unit) {
  cut c = {{0}};
  c.start[ranks] = COLS;
  for (int i = 1; i < ranks; i++)
    c.start[i] = t_random_below(rng, COLS / unit + 1) * unit;
  for (int i = 1; i < ranks; i++)
    for (int j = i + 1; j < ranks; j++)
      if (c.start[j] < c.start[i]) {
        int64_t start = c.start[i];
        c.start[i] = c.start[j];
        c.start[j] = start;
      }
  return c;
}

/* What rank r says of its part of a row; with groups the parts must be cut alike, see grouped(). */
static rms_spec shard_spec(const rms_spec *spec, const cut *c, int r) {
  rms_spec s = *spec;
  int64_t left = spec->partial - c->start[r];
  s.cols = c->start[r + 1] - c->start[r];
  if (spec->partial) s.partial = left <= 0 ? RMS_PARTIAL_NONE : left < s.cols ? left : 0;
  return s;
}

/* A call with scratch memory of exactly the size that it asks for. */
static rms_mpi prepare(MPI_Comm comm, rms_mpi_mode mode, int64_t block, int64_t chunk, const rms_spec *spec) {
  rms_mpi m = {comm, (int32_t)mode, 0, block, chunk, NULL, 0};
  m.scratch_bytes = rms_mpi_scratch(&m, spec, ROWS, INNER);
  m.scratch = malloc(m.scratch_bytes);
  return m;
}

static void run_split(const rms_spec *spec, const cut *c, rms_mpi_mode mode, int64_t block, int64_t chunk,
                      rows_f32 *r) {
  const rms_spec s = shard_spec(spec, c, rank);
  rms_forward_args f = forward_of(r, c->start[rank]);
  rms_backward_args b = backward_of(r, c->start[rank]);
  add_gate(&s, r, c->start[rank], &f, &b);
  rms_mpi m = prepare(MPI_COMM_WORLD, mode, block, chunk, &s);
  T_EQ_STATUS(RMS_OK, rms_mpi_forward(&m, &s, &f, stats, NULL));
  T_EQ_STATUS(RMS_OK, rms_mpi_backward(&m, &s, &b, stats, NULL));
  free(m.scratch);
}

static void same_columns(const rows_f32 *a, const rows_f32 *b, const cut *c, const rms_spec *spec) {
  const int64_t first = c->start[rank], cols = c->start[rank + 1] - first;
  if (cols == 0) return;
  for (int i = 0; i < SEGMENTS; i++) {
    T_EQ_ELEMENTS(a->y + i * COLS + first, b->y + i * COLS + first, RMS_F32, cols);
    T_EQ_ELEMENTS(a->dx + i * COLS + first, b->dx + i * COLS + first, RMS_F32, cols);
    T_EQ_ELEMENTS(a->dgate + i * COLS + first, b->dgate + i * COLS + first, RMS_F32, cols);
  }
  T_EQ_ELEMENTS(a->dweight + first, b->dweight + first, RMS_F32, cols);
  T_EQ_ELEMENTS(a->dbias + first, b->dbias + first, RMS_F32, cols);
  T_EQ_ELEMENTS(a->rstd, b->rstd, RMS_F32, SEGMENTS);
  if (spec->kind == RMS_KIND_LAYER) T_EQ_ELEMENTS(a->mean, b->mean, RMS_F32, SEGMENTS);
}

static void fill(rows_f32 *r, uint64_t k) {
  memset(r, 0, sizeof *r);
  t_fill(r->x, RMS_F32, SEGMENTS * COLS, T_NORMAL, t_seed(), 10 * k, 0);
  t_fill(r->residual, RMS_F32, SEGMENTS * COLS, T_NORMAL, t_seed(), 10 * k + 1, 0);
  t_fill(r->dy, RMS_F32, SEGMENTS * COLS, T_NORMAL, t_seed(), 10 * k + 2, 0);
  t_fill(r->weight, RMS_F32, COLS, T_NORMAL, t_seed(), 10 * k + 3, 0);
  t_fill(r->bias, RMS_F32, COLS, T_NORMAL, t_seed(), 10 * k + 4, 0);
}

static void fill_integers(float *data, int64_t count, t_rng *rng) {
  for (int64_t i = 0; i < count; i++)
    data[i] = (float)(t_random_below(rng, 17) - 8);
}

/* ---- Equal bits where every sum is exact: sigmoid(0) = 1/2 and sigmoid(100) = 1 in f32 ---- */

static void exact(void) {
  t_rng rng = t_rng_make(1);
  for (int k = 0; k < 36; k++) {
    const cut c = draw_cut(&rng, 1);
    rms_spec spec = {.cols = COLS, .eps = 1e-5, .partial = k % 3 ? t_random_below(&rng, COLS + 1) : 0};
    memset(&whole, 0, sizeof whole);
    fill_integers(whole.x, SEGMENTS * COLS, &rng);
    fill_integers(whole.residual, SEGMENTS * COLS, &rng);
    fill_integers(whole.dy, SEGMENTS * COLS, &rng);
    fill_integers(whole.weight, COLS, &rng);
    spec.gate_place = k < 24 ? RMS_GATE_NONE : k % 2 ? RMS_GATE_BEFORE : RMS_GATE_AFTER;
    spec.activation = RMS_ACT_SIGMOID;
    for (int i = 0; i < SEGMENTS * COLS; i++)
      whole.gate[i] = t_random_below(&rng, 2) ? 100 : 0;
    split = whole;
    run_whole(&spec, &whole);
    t_context("k=%d, partial=%d, columns from %d", k, (int)spec.partial, (int)c.start[rank]);
    run_split(&spec, &c, k % 2 ? RMS_MPI_FOLD : RMS_MPI_REDUCE, k % 4 == 3 ? 1 + t_random_below(&rng, 70) : 0,
              t_random_below(&rng, 30), &split);
    same_columns(&whole, &split, &c, &spec);
  }
}

/* ---- Close where not: the bound is derived in tests/bits/split.c, for the same two ways to add ---- */

static void check_near(const rms_spec *spec, const cut *c) {
  const double u = 0x1p-24, e = 2.0 * (COLS / 64 + 6) * u;
  for (int i = 0; i < SEGMENTS; i++) {
    double square = 0, sum = 0, magnitude = 0, most_u = 0, most_h = 0;
    for (int j = 0; j < COLS; j++) {
      double x = (double)whole.sum[i * COLS + j];
      square += x * x;
      sum += x;
      magnitude += fabs(x);
    }
    double mean = spec->kind == RMS_KIND_LAYER ? sum / COLS : 0.0;
    double r = 1.0 / sqrt(square / COLS - mean * mean + spec->eps);
    double shift = spec->kind == RMS_KIND_LAYER ? r * e * magnitude / COLS : 0.0;
    for (int j = 0; j < COLS; j++) {
      double grad = fabs((double)whole.dy[i * COLS + j] * (double)whole.weight[j]);
      double h = fabs((double)whole.sum[i * COLS + j] - mean) * r;
      if (grad > most_u) most_u = grad;
      if (h > most_h) most_h = h;
    }
    double scale = r * most_u * (1 + 1 + most_h * most_h);
    for (int64_t j = c->start[rank]; j < c->start[rank + 1]; j++) {
      double y = (double)whole.y[i * COLS + j], g = fabs((double)whole.weight[j]);
      double size = fabs(y) + fabs((double)whole.bias[j]); /* of the product that the bias is added to */
      T_NEAR(y, (double)split.y[i * COLS + j], size * (e + 8 * u) + g * shift);
      T_NEAR((double)whole.dx[i * COLS + j], (double)split.dx[i * COLS + j], scale * (4 * e + 2 * shift + 16 * u));
    }
  }
  /* dbias is the sum of the same rows in the same order, whatever the statistics are */
  T_EQ_ELEMENTS(whole.dbias + c->start[rank], split.dbias + c->start[rank], RMS_F32,
                c->start[rank + 1] - c->start[rank]);
}

static void near(void) {
  t_rng rng = t_rng_make(2);
  for (uint64_t k = 0; k < 18; k++) {
    const cut c = draw_cut(&rng, 1);
    rms_spec spec = {.cols = COLS, .eps = 1e-5, .kind = k & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS};
    fill(&whole, k);
    split = whole;
    run_whole(&spec, &whole);
    t_context("k=%d, columns from %d", (int)k, (int)c.start[rank]);
    run_split(&spec, &c, k % 3 ? RMS_MPI_FOLD : RMS_MPI_REDUCE, k % 3 == 2 ? BLOCK : 0, t_random_below(&rng, 30),
              &split);
    check_near(&spec, &c);
  }
}

/* ---- Bits that are promised ---- */

/* Folding has the bits of a fold by hand, whatever the MPI and the chunks are. */
static void fold_by_hand(void) {
  static rms_stat shard[SEGMENTS], all[SEGMENTS];
  t_rng rng = t_rng_make(3);
  for (uint64_t k = 0; k < 12; k++) {
    const cut c = draw_cut(&rng, 1);
    rms_spec spec = {.cols = COLS, .eps = 1e-5, .kind = k & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS};
    if (k % 4 == 2) spec.partial = 1 + t_random_below(&rng, COLS);
    fill(&whole, 100 + k);
    split = whole;
    memset(all, 0, sizeof all);
    for (int r = 0; r < ranks; r++) {
      const rms_spec s = shard_spec(&spec, &c, r);
      const rms_forward_args f = forward_of(&whole, c.start[r]);
      if (s.cols == 0) continue;
      T_EQ_STATUS(RMS_OK, rms_stats(&s, &f, shard, NULL));
      T_EQ_STATUS(RMS_OK, rms_stats_merge(&spec, SEGMENTS, all, shard));
    }
    t_context("k=%d, columns from %d", (int)k, (int)c.start[rank]);
    run_split(&spec, &c, RMS_MPI_FOLD, 0, 1 + t_random_below(&rng, ROWS), &split);
    T_EQ_BYTES(all, stats, sizeof all);
    other = whole;
    run_split(&spec, &c, RMS_MPI_FOLD, 0, 0, &other);
    same_columns(&split, &other, &c, &spec);
  }
}

/* In blocks, the bits are those that one rank with all columns has. */
static void blocks_of_any_split(void) {
  static rms_stat alone[SEGMENTS];
  t_rng rng = t_rng_make(4);
  for (uint64_t k = 0; k < 16; k++) {
    const int64_t cols = COLS - 5; /* the last block is short */
    cut c = draw_cut(&rng, BLOCK), all = {{0}};
    rms_spec spec = {.cols = cols, .eps = 1e-5, .kind = k & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS};
    if (k % 4 == 2) spec.partial = 1 + t_random_below(&rng, cols);
    for (int i = 0; i <= ranks; i++)
      if (c.start[i] > cols) c.start[i] = cols;
    all.start[1] = cols;
    fill(&whole, 200 + k);
    split = whole;
    const rms_spec s = shard_spec(&spec, &all, 0);
    const rms_forward_args f = forward_of(&whole, 0);
    const rms_backward_args b = backward_of(&whole, 0);
    rms_mpi m = prepare(MPI_COMM_SELF, RMS_MPI_FOLD, BLOCK, 0, &s);
    t_context("k=%d, columns from %d", (int)k, (int)c.start[rank]);
    T_EQ_STATUS(RMS_OK, rms_mpi_forward(&m, &s, &f, stats, NULL));
    T_EQ_STATUS(RMS_OK, rms_mpi_backward(&m, &s, &b, stats, NULL));
    memcpy(alone, stats, sizeof alone);
    free(m.scratch);
    run_split(&spec, &c, RMS_MPI_FOLD, BLOCK, 1 + t_random_below(&rng, ROWS), &split);
    T_EQ_BYTES(alone, stats, sizeof alone);
    same_columns(&whole, &split, &c, &spec);
  }
}

/* One shard has the bits of the unsplit call in every mode without blocks, on a pool's threads too. */
static void alone(void) {
  rms_pool *pool = NULL;
  T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, 2));
  const rms_executor executor = rms_pool_executor(pool);
  for (uint64_t k = 0; k < 8; k++) {
    rms_spec spec = {.cols = COLS, .eps = 1e-5, .kind = k & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS};
    cut all = {{0}};
    fill(&whole, 300 + k);
    split = whole;
    run_whole(&spec, &whole);
    for (int i = rank + 1; i <= ranks; i++)
      all.start[i] = COLS;
    const rms_forward_args f = forward_of(&split, 0);
    const rms_backward_args b = backward_of(&split, 0);
    rms_mpi m = prepare(MPI_COMM_SELF, k & 2 ? RMS_MPI_FOLD : RMS_MPI_REDUCE, 0, 7, &spec);
    t_context("k=%d", (int)k);
    T_EQ_STATUS(RMS_OK, rms_mpi_forward(&m, &spec, &f, stats, k & 4 ? &executor : NULL));
    T_EQ_STATUS(RMS_OK, rms_mpi_backward(&m, &spec, &b, stats, k & 4 ? &executor : NULL));
    same_columns(&whole, &split, &all, &spec);
    free(m.scratch);
  }
  rms_pool_destroy(pool);
}

/* ---- Groups ---- */

/* Group g of the row is the union of the ranks' groups g. Each rank has WIDTH columns of each of four groups. */
static void grouped(void) {
  enum { GROUPS = 4, WIDTH = 6 };
  static float own[SEGMENTS * GROUPS * WIDTH], y[SEGMENTS * GROUPS * WIDTH];
  static float all[SEGMENTS * GROUPS * WIDTH * MOST_RANKS], expected[SEGMENTS * GROUPS * WIDTH * MOST_RANKS];
  t_rng rng = t_rng_make(5);
  for (int k = 0; k < 4; k++) {
    rms_spec spec = {.cols = GROUPS * WIDTH * ranks, .eps = 1e-5, .groups = GROUPS}, s = spec;
    s.cols = GROUPS * WIDTH;
    fill_integers(all, SEGMENTS * spec.cols, &rng);
    for (int64_t i = 0; i < SEGMENTS * GROUPS; i++)
      memcpy(own + i * WIDTH, all + (i * ranks + rank) * WIDTH, sizeof *own * WIDTH);
    const rms_forward_args f = {.outer = ROWS, .inner = INNER, .x = {all, RMS_F32}, .y = {.data = expected}};
    const rms_forward_args g = {.outer = ROWS, .inner = INNER, .x = {own, RMS_F32}, .y = {.data = y}};
    rms_mpi m = prepare(MPI_COMM_WORLD, k & 1 ? RMS_MPI_FOLD : RMS_MPI_REDUCE, 0, 5, &s);
    T_EQ_STATUS(RMS_OK, rms_forward(&spec, &f, NULL));
    T_EQ_STATUS(RMS_OK, rms_mpi_forward(&m, &s, &g, stats, NULL));
    for (int64_t i = 0; i < SEGMENTS * GROUPS; i++)
      T_EQ_ELEMENTS(expected + (i * ranks + rank) * WIDTH, y + i * WIDTH, RMS_F32, WIDTH);
    free(m.scratch);
  }
}

/* ---- Other types, and shards without communication ---- */

static void bf16_in_place(void) {
  enum { MINE = 40 };
  static uint16_t x[SEGMENTS * MINE * MOST_RANKS], expected[SEGMENTS * MINE * MOST_RANKS], own[SEGMENTS * MINE];
  const int64_t cols = (int64_t)MINE * ranks;
  t_rng rng = t_rng_make(6);
  for (int64_t i = 0; i < SEGMENTS * cols; i++) { /* -8 .. 8 in bf16: the upper half of the float */
    const float value = (float)(t_random_below(&rng, 17) - 8);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    x[i] = (uint16_t)(bits >> 16);
  }
  for (int64_t i = 0; i < SEGMENTS; i++)
    memcpy(own + i * MINE, x + i * cols + rank * MINE, sizeof *own * MINE);
  rms_spec spec = {.cols = cols, .eps = 1e-6}, s = spec;
  s.cols = MINE;
  const rms_forward_args f = {.outer = ROWS, .inner = INNER, .x = {x, RMS_BF16}, .y = {.data = expected}};
  const rms_forward_args g = {.outer = ROWS, .inner = INNER, .x = {own, RMS_BF16}, .y = {.data = own}};
  rms_mpi m = prepare(MPI_COMM_WORLD, RMS_MPI_REDUCE, 0, 4, &s);
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &f, NULL));
  T_EQ_STATUS(RMS_OK, rms_mpi_forward(&m, &s, &g, stats, NULL));
  for (int64_t i = 0; i < SEGMENTS; i++)
    T_EQ_ELEMENTS(expected + i * cols + rank * MINE, own + i * MINE, RMS_BF16, MINE);
  free(m.scratch);
}

/* RMS_MPI_LOCAL: rank 0 alone calls, so a message to or from another rank would never end. */
static void local(void) {
  rms_spec spec = {.cols = COLS, .eps = 1e-5, .partial = 100};
  rms_mpi m = {MPI_COMM_WORLD, RMS_MPI_LOCAL, 0, 0, 0, NULL, 0};
  T_EQ_INT(0, rms_mpi_scratch(&m, &spec, ROWS, INNER));
  if (rank != 0) return;
  fill(&whole, 400);
  split = whole;
  run_whole(&spec, &whole);
  const rms_forward_args f = forward_of(&split, 0);
  const rms_backward_args b = backward_of(&split, 0);
  T_EQ_STATUS(RMS_OK, rms_mpi_forward(&m, &spec, &f, NULL, NULL));
  T_EQ_STATUS(RMS_OK, rms_mpi_backward(&m, &spec, &b, NULL, NULL));
  T_EQ_BYTES(&whole, &split, sizeof whole);
}

/* ---- Errors reach every rank, and nothing is written ---- */

typedef struct attempt {
  rms_mpi m;
  rms_spec spec;
  rms_forward_args f;
  rms_backward_args b;
  rms_executor executor;
} attempt;

static void no_y(attempt *a) {
  a->f.y.data = NULL;
  a->f.rstd = a->f.mean = NULL; /* statistics alone would be a result */
}
static void shifted_y(attempt *a) {
  a->f.y.data = (float *)(uintptr_t)a->f.x.data + 1;
}
static void other_rows(attempt *a) {
  a->f.outer--, a->b.outer--;
}
static void other_eps(attempt *a) {
  a->spec.eps = 1e-3;
}
static void other_mode(attempt *a) {
  a->m.mode = RMS_MPI_REDUCE;
}
static void bad_mode(attempt *a) {
  a->m.mode = 7;
}
static void bad_kind(attempt *a) {
  a->spec.kind = 9;
}
static void bad_type(attempt *a) {
  a->f.x.dtype = 77, a->b.x.dtype = 77;
}
static void negative_rows(attempt *a) {
  a->f.outer = a->b.outer = -1;
}
static void little_scratch(attempt *a) {
  a->m.scratch_bytes = 8;
}
static void no_scratch(attempt *a) {
  a->m.scratch = NULL;
}
static void bad_executor(attempt *a) {
  a->executor.run = NULL;
}
static void little_workspace(attempt *a) {
  a->b.workspace_bytes = 1;
}
static void shifted_dx(attempt *a) {
  a->b.dx.data = (float *)(uintptr_t)a->b.x.data + 1;
}

static void run_inline(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  (void)ctx;
  for (int64_t i = 0; i < tasks; i++)
    task(arg, i);
}

static const struct mistake {
  const char *name;
  void (*make)(attempt *a);
  rms_status forward, backward; /* what the rank itself returns */
} mistakes[] = {
    {"no y", no_y, RMS_E_ARGUMENT, RMS_OK},
    {"y beside x", shifted_y, RMS_E_ALIAS, RMS_OK},
    {"one row less", other_rows, RMS_E_ARGUMENT, RMS_E_ARGUMENT},
    {"another eps", other_eps, RMS_E_ARGUMENT, RMS_E_ARGUMENT},
    {"another mode", other_mode, RMS_E_ARGUMENT, RMS_E_ARGUMENT},
    {"unknown mode", bad_mode, RMS_E_MODE, RMS_E_MODE},
    {"unknown kind", bad_kind, RMS_E_KIND, RMS_E_KIND},
    {"unknown type", bad_type, RMS_E_DTYPE, RMS_E_DTYPE},
    {"negative rows", negative_rows, RMS_E_ARGUMENT, RMS_E_ARGUMENT},
    {"too little scratch memory", little_scratch, RMS_E_WORKSPACE, RMS_E_WORKSPACE},
    {"no scratch memory", no_scratch, RMS_E_WORKSPACE, RMS_E_WORKSPACE},
    {"an executor without run", bad_executor, RMS_E_EXECUTOR, RMS_E_EXECUTOR},
    {"too small a workspace", little_workspace, RMS_OK, RMS_E_WORKSPACE},
    {"dx beside x", shifted_dx, RMS_OK, RMS_E_ALIAS},
};

static void make_mistake(const struct mistake *mistake, int culprit) {
  const int64_t mine = COLS / ranks;
  attempt a = {.spec = {.cols = mine, .eps = 1e-5}, .executor = {NULL, 1, run_inline}};
  fill(&split, 500);
  other = split;
  a.f = forward_of(&split, rank * mine);
  a.b = backward_of(&split, rank * mine);
  a.m = prepare(MPI_COMM_WORLD, RMS_MPI_FOLD, 0, 0, &a.spec);
  void *scratch = a.m.scratch;
  if (rank == culprit) mistake->make(&a);
  t_context("rank %d: %s", culprit, mistake->name);
  /* every rank sees what is wrong with the forward; the culprit sees what it did */
  rms_status forward = rms_mpi_forward(&a.m, &a.spec, &a.f, stats, &a.executor);
  if (rank == culprit || mistake->forward == RMS_OK || ranks == 1)
    T_EQ_STATUS(ranks == 1 && forward == RMS_OK ? RMS_OK : mistake->forward, forward);
  else
    T_CHECK(forward != RMS_OK);
  if (mistake->forward != RMS_OK && forward != RMS_OK) T_EQ_BYTES(&other, &split, sizeof split);
  other = split;
  rms_status backward = rms_mpi_backward(&a.m, &a.spec, &a.b, stats, &a.executor);
  if (rank == culprit || mistake->backward == RMS_OK || ranks == 1)
    T_EQ_STATUS(ranks == 1 && backward == RMS_OK ? RMS_OK : mistake->backward, backward);
  else
    T_CHECK(backward != RMS_OK);
  if (mistake->backward != RMS_OK && backward != RMS_OK) T_EQ_BYTES(&other, &split, sizeof split);
  free(scratch);
}

static void errors(void) {
  for (size_t i = 0; i < T_COUNT(mistakes); i++)
    for (int culprit = 0; culprit < ranks; culprit++)
      make_mistake(&mistakes[i], culprit);
}

static void absent_structs(void) {
  rms_spec spec = {.cols = COLS / ranks, .eps = 1e-5};
  rms_mpi m = prepare(MPI_COMM_WORLD, RMS_MPI_FOLD, 0, 0, &spec);
  fill(&split, 600);
  const rms_forward_args f = forward_of(&split, rank * spec.cols);
  const rms_backward_args b = backward_of(&split, rank * spec.cols);
  const int last = rank == ranks - 1;
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_mpi_forward(NULL, &spec, &f, stats, NULL)); /* before anything is sent */
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_mpi_forward(&m, last ? NULL : &spec, &f, stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_mpi_forward(&m, &spec, last ? NULL : &f, stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_mpi_forward(&m, &spec, &f, last ? NULL : stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_mpi_backward(&m, &spec, last ? NULL : &b, stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_mpi_backward(&m, &spec, &b, last ? NULL : stats, NULL));
  free(m.scratch);
}

static void no_statistic_anywhere(void) {
  rms_spec spec = {.cols = COLS / ranks, .eps = 1e-5, .partial = RMS_PARTIAL_NONE};
  rms_mpi m = prepare(MPI_COMM_WORLD, RMS_MPI_FOLD, 0, 0, &spec);
  fill(&split, 700);
  const rms_forward_args f = forward_of(&split, rank * spec.cols);
  T_EQ_STATUS(RMS_E_PARTIAL, rms_mpi_forward(&m, &spec, &f, stats, NULL));
  spec.cols = 0;
  T_EQ_STATUS(RMS_E_PARTIAL, rms_mpi_forward(&m, &spec, &f, stats, NULL));
  free(m.scratch);
}

static void no_rows(void) {
  rms_spec spec = {.cols = COLS / ranks, .eps = 1e-5};
  rms_mpi m = {MPI_COMM_WORLD, RMS_MPI_FOLD, 0, 0, 0, NULL, 0};
  fill(&split, 800);
  split.dweight[0] = 5;
  const rms_forward_args f = {.x = {.dtype = RMS_F32}};
  const rms_backward_args b = {.x = {.dtype = RMS_F32}, .dweight = split.dweight};
  T_EQ_INT(0, rms_mpi_scratch(&m, &spec, 0, 1));
  T_EQ_STATUS(RMS_OK, rms_mpi_forward(&m, &spec, &f, stats, NULL));
  T_EQ_STATUS(RMS_OK, rms_mpi_backward(&m, &spec, &b, stats, NULL));
  T_EQ_F64(0, (double)split.dweight[0]);
}

static void errors_of_mpi(void) {
  rms_spec spec = {.cols = COLS, .eps = 1e-5};
  rms_mpi m = {MPI_COMM_NULL, RMS_MPI_REDUCE, 0, 0, 0, NULL, 0};
  const rms_forward_args f = forward_of(&split, 0);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* where errors without a communicator go */
  T_EQ_STATUS(RMS_E_COMMUNICATION, rms_mpi_forward(&m, &spec, &f, stats, NULL));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* ---- Jobs that must end: run by run.sh ---- */

static int one_fails(const char *how) {
  rms_spec spec = {.cols = COLS / ranks, .eps = 1e-5};
  rms_mpi m = prepare(MPI_COMM_WORLD, RMS_MPI_REDUCE, 0, 0, &spec);
  fill(&split, 900);
  rms_forward_args f = forward_of(&split, rank * spec.cols);
  if (rank == 1 && strcmp(how, "dies") == 0) abort();
  if (rank == 1) f.x.dtype = 77;
  const rms_status status = rms_mpi_forward(&m, &spec, &f, stats, NULL);
  printf("rank %d: %s\n", rank, rms_status_string(status));
  free(m.scratch);
  MPI_Finalize();
  return status != RMS_OK;
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"exact", exact},
                                 {"near", near},
                                 {"fold_by_hand", fold_by_hand},
                                 {"blocks_of_any_split", blocks_of_any_split},
                                 {"alone", alone},
                                 {"grouped", grouped},
                                 {"bf16_in_place", bf16_in_place},
                                 {"local", local},
                                 {"errors", errors},
                                 {"absent_structs", absent_structs},
                                 {"no_statistic_anywhere", no_statistic_anywhere},
                                 {"no_rows", no_rows},
                                 {"errors_of_mpi", errors_of_mpi}};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc == 3 && strcmp(argv[1], "--one") == 0) return one_fails(argv[2]);
  const int result = t_main(argc, argv, cases, T_COUNT(cases));
  MPI_Finalize();
  return result;
}
