/* SPDX-License-Identifier: MIT
 * A row of a batch has the bits of the row alone; any number of threads, any order of tasks gives the same bits. */
#include "call.h"

#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include "rmsnorm_openmp.h"
#endif

static const rms_dtype dtypes[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};

/* ---- Batches ---- */

static void compare_rows(const t_call *whole) {
  t_result all = t_run(whole, &t_dense, NULL);
  T_EQ_STATUS(RMS_OK, all.forward);
  T_EQ_STATUS(RMS_OK, all.backward);
  for (int64_t i = 0; i < whole->outer; i++) {
    t_call one = *whole;
    one.first_outer = i;
    one.outer = 1;
    t_result alone = t_run(&one, &t_dense, NULL);
    for (int out = 0; out < T_OUT_COUNT; out++)
      if (out <= T_OUT_DRESIDUAL || out >= T_OUT_Q) t_same_part(&all, &alone, (t_out)out, i * alone.count[out]);
    t_result_free(&alone);
  }
  t_result_free(&all);
}

static void rows_alone(void) {
  static const int64_t cols[] = {1, 16, 40, 64, 100, 128, 200, 256, 257, 1030};
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
    for (size_t c = 0; c < T_COUNT(cols); c++)
      for (size_t d = 0; d < T_COUNT(dtypes); d++)
        for (int64_t k = 0; k < t_effort(4) && t_failures() < 20; k++) {
          t_call call = t_call_number(k, k & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS, dtypes[d], cols[c]);
          call.outer = 19; /* more than any batch of rows that is handled together, and not a multiple */
          compare_rows(&call);
          call.parts &= ~(unsigned)T_BACKWARD;
          t_call_quantise(&call, k + (int64_t)c);
          compare_rows(&call);
        }
  }
}

/* ---- Threads ---- */

static int64_t tasks_seen;

static void run_backwards(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  (void)ctx;
  tasks_seen += tasks;
  for (int64_t i = tasks - 1; i >= 0; i--)
    task(arg, i);
}

/* Odd tasks first, then the even ones from the end: neither order nor direction may matter. */
static void run_mixed(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  (void)ctx;
  tasks_seen += tasks;
  for (int64_t i = 1; i < tasks; i += 2)
    task(arg, i);
  for (int64_t i = (tasks - 1) / 2 * 2; i >= 0; i -= 2)
    task(arg, i);
}

/* Short rows take a way of their own, on one thread and on tasks of several: y must be the same. Every
 * other row leaves the range of the squares, heads share a weight or have their own; tasks begin at any head. */
static void compare_short(const t_call *plain_call, const t_layout *layout) {
  t_call call = *plain_call;
  rms_executor mixed = {NULL, 2, run_mixed};
  t_result plain = t_run(&call, layout, &mixed);
  call.parts |= T_SAVE_STATS;
  t_result saved = t_run(&call, &t_dense, NULL);
  T_EQ_STATUS(RMS_OK, plain.forward);
  T_EQ_STATUS(RMS_OK, saved.forward);
  t_same_part(&saved, &plain, T_OUT_Y, 0);
  t_result_free(&plain);
  t_result_free(&saved);
}

static void short_rows(void) {
  static const int64_t cols[] = {1, 16, 33, 64, 128, 300}, shapes[][2] = {{1, 1}, {7, 3}, {19, 1}, {3, 11}, {211, 5}};
  static const t_layout layouts[] = {{.stream_bytes = INT64_MAX},
                                     {.outer_gap = 3, .inner_gap = 2, .stream_bytes = INT64_MAX},
                                     {.inner_major = 1, .stream_bytes = INT64_MAX},
                                     {.flush = T_FLUSH_START, .stream_bytes = 0}};
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
    for (size_t c = 0; c < T_COUNT(cols); c++)
      for (size_t d = 0; d < T_COUNT(dtypes); d++)
        for (size_t k = 0; k < 2 * T_COUNT(shapes) * T_COUNT(layouts); k++) {
          unsigned char x[2 * 300 * 8];
          const size_t n = k / 2, row = (size_t)cols[c] * rms_dtype_size(dtypes[d]), shape = n / T_COUNT(layouts);
          const int layer = k % 2;
          t_fill(x, dtypes[d], cols[c], T_HUGE, t_seed(), c, 0);
          t_fill(x + row, dtypes[d], cols[c], T_NORMAL, t_seed(), c, 1);
          t_call call = {.outer = shapes[shape][0],
                         .inner = shapes[shape][1],
                         .parts = layer ? T_WEIGHT | T_BIAS : T_WEIGHT,
                         .seed = t_seed(),
                         .raw = x,
                         .raw_bytes = 2 * row};
          verify_spec spec = {.cols = cols[c], .eps = 1e-5, .weight_per_inner = (int)((n ^ shape) & 1)};
          verify_spec_set_types(&spec, dtypes[d]);
          if (layer) spec.kind = RMS_KIND_LAYER;
          call.spec = spec;
          compare_short(&call, &layouts[n % T_COUNT(layouts)]);
        }
  }
}

enum { UNEVEN_OUTER = 5, UNEVEN_INNER = 3, UNEVEN_COLS = 24, UNEVEN_STRIDE = UNEVEN_INNER * UNEVEN_COLS + 8 };

/* Short rows of one tensor of a backward at two distances, those of the others at one: x, dy or dx, in turn. */
static void uneven_rows(void) {
  enum { DENSE = UNEVEN_OUTER * UNEVEN_INNER * UNEVEN_COLS, GAPPED = UNEVEN_OUTER * UNEVEN_STRIDE };
  float dense[2][DENSE], gapped[2][GAPPED], dx[2][GAPPED], dweight[2][UNEVEN_COLS];
  _Alignas(64) unsigned char workspace[1 << 16];
  t_isas isas = t_usable_isas();
  for (int i = 0; i < GAPPED; i++) {
    const int outer = i / UNEVEN_STRIDE, at = i % UNEVEN_STRIDE, row = UNEVEN_INNER * UNEVEN_COLS;
    for (int t = 0; t < 2; t++)
      gapped[t][i] = at < row ? (float)((i * 37 + t * 11) % 64 - 31) / 16 : -1e30f;
    for (int t = 0; at < row && t < 2; t++)
      dense[t][outer * row + at] = gapped[t][i];
  }
  for (int n = 0; n < isas.count * 6; n++) {
    const int which = n % 3;
    const rms_spec spec = {.cols = UNEVEN_COLS, .eps = 1e-5, .kind = n / 3 % 2 ? RMS_KIND_LAYER : RMS_KIND_RMS};
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[n / 6]));
    for (int set = 0; set < 2; set++) {
      rms_backward_args args = {.outer = UNEVEN_OUTER, .inner = UNEVEN_INNER, .dweight = dweight[set]};
      const int64_t stride = set ? UNEVEN_STRIDE : 0; /* 0: dense */
      args.x = (rms_const_view){set && which == 0 ? gapped[0] : dense[0], RMS_F32};
      args.dy.data = set && which == 1 ? gapped[1] : dense[1];
      args.dx.data = dx[set];
      if (which == 0) args.x.outer_stride = stride;
      if (which == 1) args.dy.outer_stride = stride;
      if (which == 2) args.dx.outer_stride = stride;
      args.workspace = workspace;
      args.workspace_bytes = sizeof workspace;
      T_CHECK(rms_backward_workspace(&spec, &args) <= sizeof workspace);
      T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
    }
    for (int outer = 0; outer < UNEVEN_OUTER; outer++)
      T_EQ_BYTES(dx[0] + outer * UNEVEN_INNER * UNEVEN_COLS,
                 dx[1] + outer * (which == 2 ? UNEVEN_STRIDE : UNEVEN_INNER * UNEVEN_COLS),
                 sizeof(float) * UNEVEN_INNER * UNEVEN_COLS);
    T_EQ_BYTES(dweight[0], dweight[1], sizeof dweight[0]);
  }
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
}

enum { MIXED_ROWS = 43, MIXED_COLS = 132 };

/* Short rows of all kinds beside each other. The forward takes them in batches but not one alone, the backward not
 * where each inner index has a weight, of which there is one here: the bits are the same. */
typedef struct mixed_rows {
  rms_kind kind;
  rms_dtype type;
  int weighted, biased, gated, before;
  int64_t partial;
  int64_t cols;
  unsigned char x[MIXED_ROWS * MIXED_COLS * 8], dy[MIXED_ROWS * MIXED_COLS * 8], y[2][MIXED_ROWS * MIXED_COLS * 8];
  unsigned char weight[MIXED_COLS * 8], bias[MIXED_COLS * 8], sums[2][2][MIXED_COLS * 8];
  unsigned char rstd[2][MIXED_ROWS * 8], mean[2][MIXED_ROWS * 8];
} mixed_rows;

/* Beside a gate, f32 for data of any other type but f64: products with it are not rounded. */
static rms_dtype weight_type_of(const mixed_rows *l) {
  return l->gated && l->type != RMS_F64 ? RMS_F32 : l->type;
}

static void fill_mixed_rows(mixed_rows *l, int spoiled) {
  static const t_data kinds[] = {T_NORMAL, T_CONSTANT, T_HUGE, T_NORMAL, T_TINY, T_SPECIAL, T_CONSTANT};
  const size_t row = (size_t)l->cols * rms_dtype_size(l->type);
  for (int64_t i = 0; i < MIXED_ROWS; i++) { /* ordinary rows come first: whole batches of them */
    t_data x = kinds[i < 16 ? 0 : i % 7], dy = i < 16        ? T_NORMAL
                                               : i % 5 == 3  ? T_CONSTANT
                                               : i % 11 == 7 ? T_HUGE
                                               : i % 13 == 8 ? T_TINY
                                                             : T_NORMAL;
    if (x == T_SPECIAL && !spoiled) x = T_NORMAL;
    /* every third constant row is one of zeros, and others begin with zeros, which are all of a partial statistic */
    t_fill(l->x + (size_t)i * row, l->type, l->cols, x, t_seed(), 1, x == T_SPECIAL ? 1 : i);
    if (i % 9 == 5) memset(l->x + (size_t)i * row, 0, (size_t)(l->cols + 3) / 4 * rms_dtype_size(l->type));
    t_fill(l->dy + (size_t)i * row, l->type, l->cols, dy, t_seed(), 2, dy == T_CONSTANT ? 2 : i);
  }
  t_fill(l->weight, weight_type_of(l), l->cols, T_NORMAL, t_seed(), 3, 0);
  t_fill(l->bias, l->type, l->cols, T_NORMAL, t_seed(), 4, 0);
}

static rms_rounding rounding_of(const mixed_rows *l) {
  return l->before ? RMS_ROUND_BEFORE_WEIGHT : RMS_ROUND_AFTER_WEIGHT;
}

/* `count` rows from `first` on; set: which of the results. */
static void forward_mixed_rows(mixed_rows *l, int set, int64_t first, int64_t count, double eps) {
  const size_t size = rms_dtype_size(l->type), row = (size_t)l->cols * size, stat = l->type == RMS_F64 ? 8 : 4;
  rms_spec spec = {.cols = l->cols, .kind = l->kind, .eps = eps, .rounding = rounding_of(l), .partial = l->partial};
  rms_forward_args args = {.outer = count};
  if (l->weighted) args.weight = l->weight;
  if (l->biased) args.bias = l->bias;
  if (l->gated) {
    spec.gate_place = RMS_GATE_AFTER;
    args.weight_dtype = weight_type_of(l);
    spec.activation = l->cols % 2 ? RMS_ACT_SIGMOID : RMS_ACT_SILU;
    args.gate.data = l->dy + (size_t)first * row;
  }
  args.x = (rms_const_view){l->x + (size_t)first * row, l->type};
  args.y.data = l->y[set] + (size_t)first * row;
  args.rstd = l->rstd[set] + (size_t)first * stat;
  args.mean = l->mean[set] + (size_t)first * stat;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
}

static void backward_mixed_rows(mixed_rows *l, int set, int saved, double eps) {
  rms_spec spec = {.cols = l->cols, .kind = l->kind, .eps = eps, .weight_per_inner = set};
  spec.rounding = rounding_of(l);
  spec.partial = l->partial;
  rms_backward_args args = {.outer = MIXED_ROWS, .dweight = l->sums[set][0]};
  if (l->weighted) args.weight = l->weight;
  if (l->kind == RMS_KIND_LAYER) args.dbias = l->sums[set][1];
  args.x = (rms_const_view){l->x, l->type};
  args.dy.data = l->dy;
  args.dx.data = l->y[set];
  if (saved) args.rstd = l->rstd[0];
  if (saved && l->kind == RMS_KIND_LAYER) args.mean = l->mean[0];
  args.workspace_bytes = rms_backward_workspace(&spec, &args);
  args.workspace = aligned_alloc(64, (args.workspace_bytes + 63) / 64 * 64);
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
  free(args.workspace);
}

/* A statistic that is no number, as a caller may have lost it: that of a finite row is formed again where the row must
 * be scaled or has dy = 0. */
static void lose_statistics(mixed_rows *l, rms_dtype stat) {
  for (int64_t i = 0; i < MIXED_ROWS; i += 3)
    memset(l->rstd[0] + (size_t)i * rms_dtype_size(stat), 0xff, rms_dtype_size(stat));
}

static void compare_mixed_rows(mixed_rows *l, int spoiled, double eps) {
  const int64_t count = MIXED_ROWS * l->cols;
  const rms_dtype stat = l->type == RMS_F64 ? RMS_F64 : RMS_F32;
  t_context("kind %d, %d columns of type %d, weight %d, bias %d, gate %d, before %d, spoiled %d, eps %g", (int)l->kind,
            (int)l->cols, (int)l->type, l->weighted, l->biased, l->gated, l->before, spoiled, eps);
  fill_mixed_rows(l, spoiled);
  forward_mixed_rows(l, 0, 0, MIXED_ROWS, eps);
  for (int64_t i = 0; i < MIXED_ROWS; i++)
    forward_mixed_rows(l, 1, i, 1, eps);
  T_EQ_ELEMENTS(l->y[1], l->y[0], l->type, count);
  T_EQ_ELEMENTS(l->rstd[1], l->rstd[0], stat, MIXED_ROWS);
  T_EQ_ELEMENTS(l->mean[1], l->mean[0], stat, MIXED_ROWS);
  for (int saved = 0; saved < 3 && !l->gated; saved++) {
    if (saved == 2) lose_statistics(l, stat);
    backward_mixed_rows(l, 0, saved, eps);
    backward_mixed_rows(l, 1, saved, eps);
    T_EQ_ELEMENTS(l->y[1], l->y[0], l->type, count);
    for (int out = 0; out < (l->kind == RMS_KIND_LAYER ? 2 : 1); out++)
      T_EQ_ELEMENTS(l->sums[1][out], l->sums[0][out], l->type, l->cols);
  }
}

static void mixed_rows_alone(void) {
  static const int64_t cols[] = {1, 16, 33, 64, 100, 128, MIXED_COLS};
  mixed_rows *l = malloc(sizeof *l);
  t_isas isas = t_usable_isas();
  for (int isa = 0; T_CHECK(l != NULL) && isa < isas.count; isa++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
    for (size_t c = 0; c < T_COUNT(cols); c++)
      for (size_t n = 0; n < T_COUNT(dtypes) * 64 && t_failures() < 20; n++) {
        /* weight, bias, gate, partial */
        static const int forms[][5] = {{RMS_KIND_RMS, 1, 0, 0, 0},   {RMS_KIND_RMS, 0, 0, 0, 0},
                                       {RMS_KIND_RMS, 1, 0, 1, 0},   {RMS_KIND_RMS, 1, 0, 0, 1},
                                       {RMS_KIND_LAYER, 1, 1, 0, 0}, {RMS_KIND_LAYER, 1, 0, 0, 0},
                                       {RMS_KIND_LAYER, 0, 1, 0, 0}, {RMS_KIND_LAYER, 0, 0, 0, 0}};
        const int *form = forms[n / 8 % 8];
        l->cols = cols[c];
        l->type = dtypes[n / 64];
        l->kind = (rms_kind)form[0];
        l->weighted = form[1];
        l->biased = form[2];
        l->gated = form[3];
        l->partial = form[4] ? (cols[c] + 3) / 4 : 0;
        l->before = n / 4 & 1;
        compare_mixed_rows(l, n & 1, n & 2 ? 0.0 : 1e-5);
      }
  }
  free(l);
}

static void compare_executor(const t_result *expected, const t_call *call, const rms_executor *executor, int64_t gap) {
  t_layout layout = t_dense;
  layout.outer_gap = gap;
  t_result actual = t_run(call, &layout, executor);
  t_same(expected, &actual);
  t_result_free(&actual);
}

static void with_pool_and_orders(const t_result *expected, const t_call *call, int threads) {
  rms_pool *pool = NULL;
  if (!T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, threads))) return;
  rms_executor on_pool = rms_pool_executor(pool), backwards = {NULL, threads, run_backwards};
  rms_executor mixed = {NULL, threads, run_mixed};
  compare_executor(expected, call, &on_pool, 0);
  compare_executor(expected, call, &backwards, 3);
  compare_executor(expected, call, &mixed, 0);
  rms_pool_destroy(pool);
}

#ifdef _OPENMP
static void with_openmp(const t_result *expected, const t_call *call, int threads) {
  rms_executor executor = rms_openmp_executor(threads);
  compare_executor(expected, call, &executor, 0);
}
#endif

/* Many short rows, a usual shape, few long rows, per-head weights: each big enough for several tasks. */
static void walk_shapes(void (*with)(const t_result *expected, const t_call *call, int threads)) {
  static const int64_t shapes[][3] = {{3000, 2, 64}, {400, 1, 1000}, {3, 1, 100000}, {1, 1, 200001}, {129, 3, 515}};
  static const int threads[] = {1, 2, 7};
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
  for (size_t s = 0; s < (size_t)t_effort((int64_t)T_COUNT(shapes)); s++)
    for (size_t d = 0; d < (size_t)t_effort((int64_t)T_COUNT(dtypes)) && t_failures() < 20; d++) {
      t_call call =
          t_call_number((int64_t)(3 * (s + d)), d & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS, dtypes[d], shapes[s][2]);
      call.outer = shapes[s][0];
      call.inner = shapes[s][1];
      call.parts |= T_WEIGHT | T_BIAS | T_DX | T_DWEIGHT | T_DBIAS;
      t_call_repair(&call);
      t_result expected = t_run(&call, &t_dense, NULL);
      T_EQ_STATUS(RMS_OK, expected.forward);
      T_EQ_STATUS(RMS_OK, expected.backward);
      for (size_t t = 0; t < T_COUNT(threads); t++)
        with(&expected, &call, threads[t]);
      t_result_free(&expected);
      call.parts &= ~(unsigned)T_BACKWARD;
      t_call_quantise(&call, (int64_t)(s + d));
      expected = t_run(&call, &t_dense, NULL);
      T_EQ_STATUS(RMS_OK, expected.forward);
      with(&expected, &call, 7);
      t_result_free(&expected);
    }
}

static void executors(void) {
  tasks_seen = 0;
  walk_shapes(with_pool_and_orders);
  T_CHECK(tasks_seen > 0); /* the executor was used at all */
}

static void openmp(void) {
#ifdef _OPENMP
  walk_shapes(with_openmp);
#else
  t_skip("built without OpenMP");
#endif
}

/* The sums over rows: row counts around the blocks of 64 and the point where blocks are merged. */
static void row_sums(void) {
  static const int64_t rows[] = {1, 2, 63, 64, 65, 128, 129, 1000, 4097};
  t_isas isas = t_usable_isas();
  for (size_t r = 0; r < T_COUNT(rows); r++)
    for (size_t d = 0; d < T_COUNT(dtypes); d++) {
      t_call call = t_call_number((int64_t)(3 * (r + d)), r & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS, dtypes[d], 33);
      call.outer = rows[r];
      call.inner = 1;
      call.data = T_NORMAL;
      call.parts |= T_DWEIGHT | T_DBIAS;
      t_call_repair(&call);
      T_EQ_STATUS(RMS_OK, rms_isa_force("scalar"));
      t_result expected = t_run(&call, &t_dense, NULL);
      for (int i = 0; i < isas.count; i++) {
        rms_executor executor = {NULL, 3, run_backwards};
        T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
        t_result actual = t_run(&call, &t_dense, &executor);
        t_same(&expected, &actual);
        t_result_free(&actual);
      }
      t_result_free(&expected);
      T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
    }
}

/* ---- Wide rows ---- */

enum { WIDE_ROWS = 4097, WIDE_COLS = 2056 }; /* chunks of 64 and 65 rows, batches of 7 rows */

static void fill_numbers(float *f, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    f[i] = (float)((int32_t)seed >> 8) * 0x1p-23f;
  }
}

/* A backward takes wide rows in batches; one that adds a residual's gradient takes them one by one. Where a block of 64
 * rows ends must be the same: adding zeros changes no bit. */
static void wide_rows(void) {
  const size_t count = (size_t)WIDE_ROWS * WIDE_COLS;
  float *x = malloc(count * 4), *dy = malloc(count * 4), *dx[2] = {malloc(count * 4), malloc(count * 4)};
  float *zeros = calloc(count, 4), dweight[2][WIDE_COLS];
  const rms_spec spec = {.cols = WIDE_COLS, .eps = 1e-5};
  if (!T_CHECK(x && dy && dx[0] && dx[1] && zeros)) return;
  fill_numbers(x, count, 1);
  fill_numbers(dy, count, 2);
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(INT64_MAX));
  for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
    rms_backward_args args = {.outer = WIDE_ROWS, .x = {x, RMS_F32}, .dweight = dweight[one_by_one]};
    args.dy.data = dy;
    args.dx.data = dx[one_by_one];
    if (one_by_one) args.dresidual.data = zeros;
    args.workspace_bytes = rms_backward_workspace(&spec, &args);
    args.workspace = aligned_alloc(64, (args.workspace_bytes + 63) / 64 * 64);
    T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
    free(args.workspace);
  }
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(-1));
  T_EQ_INT(0, memcmp(dweight[0], dweight[1], sizeof dweight[0]));
  T_EQ_INT(0, memcmp(dx[0], dx[1], count * 4));
  free(x), free(dy), free(dx[0]), free(dx[1]), free(zeros);
}

enum { LONG_COLS = 49152 }; /* three portions of a sum */

/* A call of a single row takes a way of its own. */
static void long_rows(void) {
  float *x = malloc(2 * LONG_COLS * 4), *y = malloc(2 * LONG_COLS * 4), *alone = malloc(LONG_COLS * 4);
  if (!T_CHECK(x && y && alone)) return;
  fill_numbers(x, 2 * LONG_COLS, 3);
  T_EQ_STATUS(RMS_OK, rms_norm_f32(y, x, NULL, 2, LONG_COLS, 1e-5));
  for (int i = 0; i < 2; i++) {
    T_EQ_STATUS(RMS_OK, rms_norm_f32(alone, x + i * LONG_COLS, NULL, 1, LONG_COLS, 1e-5));
    T_EQ_INT(0, memcmp(y + i * LONG_COLS, alone, LONG_COLS * 4));
  }
  free(x), free(y), free(alone);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"rows_alone", rows_alone},  {"short_rows", short_rows},
                                 {"executors", executors},    {"openmp", openmp},
                                 {"row_sums", row_sums},      {"wide_rows", wide_rows},
                                 {"long_rows", long_rows},    {"mixed_rows_alone", mixed_rows_alone},
                                 {"uneven_rows", uneven_rows}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
