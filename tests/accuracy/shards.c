/* SPDX-License-Identifier: MIT
 *
 * The split form over several shards against the oracle of the whole row.
 *
 * Beside the bound of the unsplit call: the shards' sums are added in double and rounded to the arithmetic once more,
 * which is within 2u of the size of the terms. For LayerNorm each shard has its own rounded mean, off by delta <= (d +
 * 2)u times the mean of |x|. The mean's part is within 2u of the terms' size again. The sum of squares gets the cross
 * terms 2 sum n_s |m_s - m| delta <= 2 sqrt(M2) sqrt(n) delta, which changes r by the relative delta*r, and so h by |h|
 * (d + 2)u h_size to first order; d + 3 covers the rest. */
#include <math.h>
#include <string.h>
#include "bounds.h"
#include "harness.h"
#include "number.h"
#include "random.h"

enum { COLS = 700, SHARDS = 3 };

static const int64_t starts[SHARDS + 1] = {0, 129, 130, COLS};
static double x[COLS], g[COLS], dy[COLS];
static double raw_x[COLS], raw_g[COLS], raw_dy[COLS], raw_out[COLS]; /* room for any type */

static void fill(rms_dtype dtype, double mean) {
  verify_random random = verify_random_start(t_seed(), 99);
  for (int j = 0; j < COLS; j++) {
    verify_store(dtype, raw_x, j, mean + verify_random_normal(&random));
    verify_store(dtype, raw_g, j, 1 + 0.25 * verify_random_normal(&random));
    verify_store(dtype, raw_dy, j, verify_random_normal(&random));
    x[j] = verify_load(dtype, raw_x, j);
    g[j] = verify_load(dtype, raw_g, j);
    dy[j] = verify_load(dtype, raw_dy, j);
  }
}

static char *at(double *raw, rms_dtype dtype, int shard) {
  return (char *)raw + starts[shard] * (int64_t)rms_dtype_size(dtype);
}

static rms_spec shard_spec(verify_spec whole, int shard) {
  whole.cols = starts[shard + 1] - starts[shard];
  return verify_library_spec(&whole);
}

static rms_forward_args forward_args(rms_dtype dtype, int shard) {
  return (rms_forward_args){.outer = 1,
                            .x = {at(raw_x, dtype, shard), (int32_t)dtype},
                            .weight = at(raw_g, dtype, shard),
                            .y.data = at(raw_out, dtype, shard)};
}

static rms_backward_args backward_args(rms_dtype dtype, int shard) {
  return (rms_backward_args){.outer = 1,
                             .x = {at(raw_x, dtype, shard), (int32_t)dtype},
                             .dy.data = at(raw_dy, dtype, shard),
                             .weight = at(raw_g, dtype, shard),
                             .dx.data = at(raw_out, dtype, shard)};
}

static rms_stat merged_statistic(const verify_spec *whole) {
  rms_stat all = {0, 0, 0}, one;
  for (int s = 0; s < SHARDS; s++) {
    rms_spec spec = shard_spec(*whole, s);
    rms_forward_args args = forward_args(whole->dtype, s);
    T_EQ_STATUS(RMS_OK, rms_stats(&spec, &args, &one, NULL));
    T_EQ_STATUS(RMS_OK, rms_stats_merge(&spec, 1, &all, &one));
  }
  return all;
}

static void run_forward(const verify_spec *whole) {
  rms_stat all = merged_statistic(whole);
  T_EQ_F64((double)COLS, all.count);
  for (int s = 0; s < SHARDS; s++) {
    rms_spec spec = shard_spec(*whole, s);
    rms_forward_args args = forward_args(whole->dtype, s);
    T_EQ_STATUS(RMS_OK, rms_apply(&spec, &args, &all, NULL));
  }
}

static void run_backward(const verify_spec *whole) {
  rms_stat all = merged_statistic(whole);
  rms_grad_sum sums = {0, 0}, one;
  for (int s = 0; s < SHARDS; s++) {
    rms_spec spec = shard_spec(*whole, s);
    rms_backward_args args = backward_args(whole->dtype, s);
    T_EQ_STATUS(RMS_OK, rms_backward_stats(&spec, &args, &all, &one, NULL));
    sums.ux += one.ux;
    sums.u += one.u;
  }
  for (int s = 0; s < SHARDS; s++) {
    rms_spec spec = shard_spec(*whole, s);
    rms_backward_args args = backward_args(whole->dtype, s);
    T_EQ_STATUS(RMS_OK, rms_backward_apply(&spec, &args, &all, &sums, NULL));
  }
}

/* Compares raw_out with the exact values, each within error and half a unit of its last place. */
static void compare(rms_dtype dtype, const dd *exact, const double *error) {
  for (int j = 0; j < COLS; j++) {
    double most = error[j] + verify_ulp(dtype, fabs(exact[j].hi) + error[j]) / 2;
    if (!T_NEAR(exact[j].hi, verify_load(dtype, raw_out, j), most)) return;
  }
}

static void check_forward(verify_row *row) {
  static double error[COLS];
  double u = verify_unit_roundoff(verify_arithmetic(row->spec.dtype)), d = row->spec.dtype == RMS_F64 ? 27 : 17;
  verify_oracle_forward(row);
  verify_bound_forward(row);
  for (int j = 0; j < COLS; j++) {
    double extra = 2 * row->h_size[j];
    if (row->spec.kind == RMS_KIND_LAYER) extra += fabs(row->h[j].hi) * (d + 3) * row->h_size[j];
    error[j] = row->y_error[j] + extra * u * fabs(g[j]);
  }
  run_forward(&row->spec);
  compare(row->spec.dtype, row->y, error);
}

static void check_backward(verify_row *row) {
  static double error[COLS];
  double u = verify_unit_roundoff(verify_arithmetic(row->spec.dtype));
  verify_oracle_backward(row);
  verify_bound_backward(row);
  for (int j = 0; j < COLS; j++)
    error[j] = row->dx_error[j] + 2 * u * row->dx_size[j];
  run_backward(&row->spec);
  compare(row->spec.dtype, row->dx, error);
}

static void check_kind(rms_kind kind, double mean) {
  static const rms_dtype types[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};
  t_isas isas = t_usable_isas();
  for (int i = 0; i < isas.count; i++)
    for (size_t t = 0; t < T_COUNT(types); t++) {
      verify_spec spec = {.cols = COLS, .eps = 1e-5, .kind = kind};
      verify_spec_set_types(&spec, types[t]);
      verify_row row;
      t_context("%s, kind %d, type %d, mean %g", isas.name[i], (int)kind, (int)types[t], mean);
      T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
      fill(types[t], mean);
      if (!T_EQ_INT(0, verify_row_create(&row, &spec))) return;
      row.x = x;
      row.g = g;
      row.dy = dy;
      verify_oracle_statistic(&row);
      check_forward(&row);
      if (kind == RMS_KIND_RMS) check_backward(&row);
      verify_row_destroy(&row);
    }
  rms_isa_force(NULL);
}

static void rms_shards(void) {
  check_kind(RMS_KIND_RMS, 0.5);
}
static void layer_shards(void) {
  check_kind(RMS_KIND_LAYER, 0.5);
}
static void layer_shards_far_mean(void) {
  check_kind(RMS_KIND_LAYER, 40);
}

static const t_case cases[] = {
    {"rms_shards", rms_shards}, {"layer_shards", layer_shards}, {"layer_shards_far_mean", layer_shards_far_mean}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
