/* SPDX-License-Identifier: MIT
 * The split operations: one shard has the bits of the unsplit call; several shards have them too where every sum is
 * exact in any order, and are close, by a derived bound, where not. */
#include "call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const rms_dtype dtypes[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};

/* ---- One shard ---- */

static void one_shard(void) {
  t_isas isas = t_usable_isas();
  t_rng rng = t_rng_make(3);
  for (int i = 0; i < t_effort(1500) && t_failures() < 20; i++) {
    t_call call = t_call_draw(&rng, 3000);
    /* squares of f64 data must stay inside the range of a double: said in the header */
    if (call.spec.dtype == RMS_F64 && (call.data == T_HUGE || call.data == T_TINY || call.data == T_SPECIAL))
      call.data = T_NORMAL;
    /* a mean of subnormals, saved as a float, has lost digits that the split form's double still has */
    if (call.spec.kind == RMS_KIND_LAYER && call.data == T_TINY) call.parts &= ~(unsigned)T_SAVE_STATS;
    t_call_repair(&call);
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i % isas.count]));
    t_result expected = t_run(&call, &t_dense, NULL);
    t_layout layout = t_layout_draw(&rng);
    layout.split = 1;
    t_result actual = t_run(&call, &layout, NULL);
    t_same(&expected, &actual);
    t_result_free(&expected);
    t_result_free(&actual);
  }
}

/* ---- Several shards ---- */

enum { ROWS = 5, COLS = 192, SHARDS = 3, WIDTH = COLS / SHARDS };

/* Whole rows of f32; the shards are column ranges of the same arrays. */
typedef struct rows_f32 {
  float x[ROWS * COLS], dy[ROWS * COLS], weight[COLS], y[ROWS * COLS], dx[ROWS * COLS], dweight[COLS];
} rows_f32;

static rms_const_view from(const float *data, int64_t first) {
  return (rms_const_view){data + first, RMS_F32, 0, COLS, 0, 0};
}

static rms_view into(float *data, int64_t first) {
  return (rms_view){data + first, RMS_F32, 0, COLS, 0, 0};
}

static void run_whole(const rms_spec *spec, rows_f32 *r) {
  _Alignas(64) static unsigned char workspace[1 << 20];
  rms_forward_args f = {.outer = ROWS, .x = from(r->x, 0), .weight = r->weight, .y = into(r->y, 0)};
  rms_backward_args b = {.outer = ROWS, .dy = from(r->dy, 0), .x = from(r->x, 0), .weight = r->weight};
  b.dx = into(r->dx, 0);
  b.dweight = r->dweight;
  b.workspace = workspace;
  b.workspace_bytes = sizeof workspace;
  T_EQ_STATUS(RMS_OK, rms_forward(spec, &f, NULL));
  T_EQ_STATUS(RMS_OK, rms_backward(spec, &b, NULL));
}

/* As the machines of the header would do it. The statistic of a partial spec lies in the first shards. */
static void run_shards(const rms_spec *whole, rows_f32 *r) {
  _Alignas(64) static unsigned char workspace[1 << 20];
  rms_spec spec[SHARDS];
  rms_stat stats[SHARDS][ROWS], all[ROWS];
  rms_grad_sum sums[SHARDS][ROWS];
  rms_forward_args f[SHARDS];
  rms_backward_args b[SHARDS];
  for (int s = 0; s < SHARDS; s++) {
    int64_t first = s * WIDTH, left = whole->partial - first;
    spec[s] = *whole;
    spec[s].cols = WIDTH;
    if (whole->partial) spec[s].partial = left <= 0 ? RMS_PARTIAL_NONE : left < WIDTH ? left : 0;
    f[s] = (rms_forward_args){.outer = ROWS, .x = from(r->x, first), .weight = r->weight + first};
    f[s].y = into(r->y, first);
    b[s] = (rms_backward_args){.outer = ROWS, .dy = from(r->dy, first), .x = from(r->x, first)};
    b[s].weight = r->weight + first;
    b[s].dx = into(r->dx, first);
    b[s].dweight = r->dweight + first;
    b[s].workspace = workspace;
    b[s].workspace_bytes = sizeof workspace;
    T_EQ_STATUS(RMS_OK, rms_stats(&spec[s], &f[s], stats[s], NULL));
  }
  memcpy(all, stats[0], sizeof all);
  for (int s = 1; s < SHARDS; s++)
    T_EQ_STATUS(RMS_OK, rms_stats_merge(whole, ROWS, all, stats[s]));
  if (whole->kind == RMS_KIND_RMS)
    for (int i = 0; i < ROWS; i++) { /* merging is adding, for RMS */
      T_EQ_F64(stats[0][i].m2 + stats[1][i].m2 + stats[2][i].m2, all[i].m2);
      T_EQ_F64(whole->partial ? (double)whole->partial : COLS, all[i].count);
      T_EQ_F64(0.0, all[i].mean);
    }
  for (int s = 0; s < SHARDS; s++) {
    T_EQ_STATUS(RMS_OK, rms_apply(&spec[s], &f[s], all, NULL));
    T_EQ_STATUS(RMS_OK, rms_backward_stats(&spec[s], &b[s], all, sums[s], NULL));
  }
  for (int i = 0; i < ROWS; i++)
    for (int s = 1; s < SHARDS; s++) {
      sums[0][i].ux += sums[s][i].ux;
      sums[0][i].u += sums[s][i].u;
    }
  for (int s = 0; s < SHARDS; s++)
    T_EQ_STATUS(RMS_OK, rms_backward_apply(&spec[s], &b[s], all, sums[0], NULL));
}

static void fill_integers(float *data, int64_t count, t_rng *rng) {
  for (int64_t i = 0; i < count; i++)
    data[i] = (float)(t_random_below(rng, 17) - 8);
}

/* Small integers: every product and partial sum is exact, so no order of additions can matter. */
static void shards_exact(void) {
  static rows_f32 whole, split;
  t_rng rng = t_rng_make(4);
  for (int64_t partial = 0; partial <= COLS; partial += 24) {
    fill_integers(whole.x, ROWS * COLS, &rng);
    fill_integers(whole.dy, ROWS * COLS, &rng);
    fill_integers(whole.weight, COLS, &rng);
    split = whole;
    rms_spec spec = {.cols = COLS, .eps = 1e-5, .partial = partial};
    t_context("partial=%d", (int)partial);
    run_whole(&spec, &whole);
    run_shards(&spec, &split);
    T_EQ_ELEMENTS(whole.y, split.y, RMS_F32, ROWS * COLS);
    T_EQ_ELEMENTS(whole.dx, split.dx, RMS_F32, ROWS * COLS);
    T_EQ_ELEMENTS(whole.dweight, split.dweight, RMS_F32, COLS);
  }
}

/* Plain data. With u = 2^-24 a sum of n f32 terms in 64 lanes, each lane a chain of n/64, and a tree of 6 errs by at
 * most (n/64 + 6) u times the sum of magnitudes; lane sums of a shard likewise, and their f64 sums by nothing to speak
 * of. Two such sums differ by at most twice that, E = 2 (COLS/64 + 6) u of the magnitudes. RMS: all terms are positive,
 * so the statistic differs by E relatively and r by E/2 + 4u. LayerNorm: the mean differs by E mean|x|, hence h by r E
 * mean|x|; the centred sum by E relatively plus the square of that. Then y by |y| (E + 8u) + |g| r E mean|x|; with
 * mean|x| r below some 4 for these data. */
static void check_near(const rms_spec *spec, const rows_f32 *whole, const rows_f32 *split) {
  const double u = 0x1p-24, e = 2.0 * (COLS / 64 + 6) * u;
  for (int i = 0; i < ROWS; i++) {
    double square = 0, sum = 0, magnitude = 0;
    for (int j = 0; j < COLS; j++) {
      double x = (double)whole->x[i * COLS + j];
      square += x * x;
      sum += x;
      magnitude += fabs(x);
    }
    double mean = spec->kind == RMS_KIND_LAYER ? sum / COLS : 0.0;
    double r = 1.0 / sqrt(square / COLS - mean * mean + spec->eps);
    double shift = spec->kind == RMS_KIND_LAYER ? r * e * magnitude / COLS : 0.0;
    for (int j = 0; j < COLS; j++) {
      double y = (double)whole->y[i * COLS + j], g = fabs((double)whole->weight[j]);
      T_NEAR(y, (double)split->y[i * COLS + j], fabs(y) * (e + 8 * u) + g * shift);
    }
    /* dx = r (u_j - mean(u) - h_j mean(u h)): each of the three terms is known to E of its magnitudes, r to E. */
    double most_u = 0, most_h = 0;
    for (int j = 0; j < COLS; j++) {
      double grad = fabs((double)whole->dy[i * COLS + j] * (double)whole->weight[j]);
      double h = fabs((double)whole->x[i * COLS + j] - mean) * r;
      if (grad > most_u) most_u = grad;
      if (h > most_h) most_h = h;
    }
    double scale = r * most_u * (1 + 1 + most_h * most_h);
    for (int j = 0; j < COLS; j++)
      T_NEAR((double)whole->dx[i * COLS + j], (double)split->dx[i * COLS + j], scale * (4 * e + 2 * shift + 16 * u));
  }
}

static void shards_near(void) {
  static rows_f32 whole, split;
  for (uint64_t k = 0; k < 20; k++) {
    rms_spec spec = {.cols = COLS, .eps = 1e-5, .kind = k & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS};
    t_fill(whole.x, RMS_F32, ROWS * COLS, T_NORMAL, t_seed(), 10 + k, 0);
    t_fill(whole.dy, RMS_F32, ROWS * COLS, T_NORMAL, t_seed(), 40 + k, 0);
    t_fill(whole.weight, RMS_F32, COLS, T_NORMAL, t_seed(), 70 + k, 0);
    split = whole;
    t_context("k=%d", (int)k);
    run_whole(&spec, &whole);
    run_shards(&spec, &split);
    check_near(&spec, &whole, &split);
  }
}

/* Merging LayerNorm statistics against the definition, where all is exact. */
static void merge(void) {
  rms_spec spec = {.cols = 4, .kind = RMS_KIND_LAYER};
  rms_stat a = {4, 2, 6}, b = {4, 6, 10}; /* mean of the union 4, m2 = 6 + 10 + 8 * 2^2 */
  T_EQ_STATUS(RMS_OK, rms_stats_merge(&spec, 1, &a, &b));
  T_EQ_F64(8, a.count);
  T_EQ_F64(4, a.mean);
  T_EQ_F64(48, a.m2);
  rms_stat none = {0, 0, 0};
  T_EQ_STATUS(RMS_OK, rms_stats_merge(&spec, 1, &a, &none));
  T_EQ_F64(8, a.count);
  T_EQ_F64(4, a.mean);
  T_EQ_F64(48, a.m2);
  T_EQ_STATUS(RMS_OK, rms_stats_merge(&spec, 1, &none, &a));
  T_EQ_F64(8, none.count);
  T_EQ_F64(4, none.mean);
  T_EQ_F64(48, none.m2);
}

static void statistics(void) {
  for (size_t d = 0; d < T_COUNT(dtypes); d++) {
    static const uint16_t bf16[] = {0x3f80, 0x4000, 0x4040, 0x4080}, f16[] = {0x3c00, 0x4000, 0x4200, 0x4400};
    static const float f32[] = {1, 2, 3, 4};
    static const double f64[] = {1, 2, 3, 4};
    const void *const data[] = {[RMS_F32] = f32, [RMS_F64] = f64, [RMS_BF16] = bf16, [RMS_F16] = f16};
    rms_forward_args args = {.outer = 1, .x = {.data = data[dtypes[d]], .dtype = (int32_t)dtypes[d]}};
    rms_spec spec = {.cols = 4};
    rms_stat stat;
    t_context("dtype=%d", (int)d);
    T_EQ_STATUS(RMS_OK, rms_stats(&spec, &args, &stat, NULL));
    T_EQ_F64(4, stat.count);
    T_EQ_F64(0, stat.mean);
    T_EQ_F64(30, stat.m2);
    spec.partial = 3;
    T_EQ_STATUS(RMS_OK, rms_stats(&spec, &args, &stat, NULL));
    T_EQ_F64(3, stat.count);
    T_EQ_F64(14, stat.m2);
    spec.partial = RMS_PARTIAL_NONE;
    T_EQ_STATUS(RMS_OK, rms_stats(&spec, &args, &stat, NULL));
    T_EQ_F64(0, stat.count);
    T_EQ_F64(0, stat.m2);
    spec.partial = 0;
    spec.kind = RMS_KIND_LAYER;
    T_EQ_STATUS(RMS_OK, rms_stats(&spec, &args, &stat, NULL));
    T_EQ_F64(4, stat.count);
    T_EQ_F64(2.5, stat.mean);
    T_EQ_F64(5, stat.m2);
  }
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"one_shard", one_shard},
                                 {"shards_exact", shards_exact},
                                 {"shards_near", shards_near},
                                 {"merge", merge},
                                 {"statistics", statistics}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
