/* SPDX-License-Identifier: MIT
 * The short check of common calls takes nothing that the full check would refuse, and makes the same job of it. This
 * test looks inside the library: from outside the two cannot be told apart, and that is the point. */
#include "../../src/core/check.h"
#include "harness.h"

#include <math.h>
#include <string.h>

enum { COLS = 40, ROWS = 6 };

static double x[COLS * ROWS + 8], y[COLS * ROWS + 8], weight[COLS * 2];

/* Mostly what a common call has, sometimes something else. */
static int64_t pick(t_rng *rng, int64_t usual, const int64_t *others, size_t count) {
  if (t_random_below(rng, 8) != 0) return usual;
  return others[t_random_below(rng, (int64_t)count)];
}
#define PICK(rng, usual, ...)                                                                                          \
  pick(rng, usual, (const int64_t[]){__VA_ARGS__}, sizeof(const int64_t[]){__VA_ARGS__} / sizeof(int64_t))

static rms_spec draw_spec(t_rng *rng) {
  static const double eps[] = {0, 1e-5, 1, 2, -1, 1e300, -0.0, 1e-320};
  static const int64_t indices[] = {0, 1};
  rms_spec spec = {.cols =
                       PICK(rng, 1 + t_random_below(rng, COLS), 0, -1, INT64_MAX, INT64_MIN, 1 << 24, (1 << 24) + 1)};
  spec.eps = t_random_below(rng, 8) ? 1e-5 : eps[t_random_below(rng, (int64_t)T_COUNT(eps))];
  if (t_random_below(rng, 50) == 0) spec.eps = (double)(t_random_below(rng, 2) ? NAN : INFINITY);
  spec.partial = PICK(rng, 0, 1, -1, COLS + 1, INT64_MIN);
  spec.indices = t_random_below(rng, 20) ? NULL : indices;
  spec.groups = PICK(rng, t_random_below(rng, 2), 2, 3, -1, INT64_MAX);
  spec.weight_offset = t_random_below(rng, 10) ? 0 : t_random_below(rng, 2) ? 1 : -0.0;
  spec.kind = (int32_t)PICK(rng, 0, 1, 2, -1);
  spec.eps_place = (int32_t)PICK(rng, 0, 1, 2, 3, -1);
  spec.rounding = (int32_t)PICK(rng, 0, 1, 2, -1);
  spec.weight_per_inner = (int32_t)PICK(rng, 0, 1, 2, -1);
  spec.gate_place = (int32_t)PICK(rng, 0, 1, 2, 3, -1);
  spec.activation = (int32_t)PICK(rng, 0, 1, 2, -1);
  spec.steps = (int32_t)PICK(rng, 0, 1, 2, 3, 4, -1);
  return spec;
}

static rms_forward_args draw_args(t_rng *rng, int64_t cols) {
  static float statistic[COLS * ROWS];
  char *bytes = (char *)(t_random_below(rng, 2) ? y : x);
  int32_t dtype = (int32_t)PICK(rng, 1 + t_random_below(rng, 4), 0, 5, -1);
  rms_forward_args args = {.outer = PICK(rng, 1 + t_random_below(rng, ROWS), 0, -1, INT64_MAX, 1 << 24)};
  args.inner = PICK(rng, t_random_below(rng, 2), 2, -1, INT64_MAX);
  args.x = (rms_const_view){t_random_below(rng, 20) ? x : NULL, dtype, 0, 0, 0, 0};
  args.y = (rms_view){t_random_below(rng, 20) ? bytes + PICK(rng, 0, 1, 4, 64, 200) : NULL, 0, 0, 0, 0, 0};
  args.y.dtype = (int32_t)PICK(rng, t_random_below(rng, 2) ? dtype : 0, 1, 2, 3, 4, 9);
  args.x.reserved = (int32_t)PICK(rng, 0, 1, -1);
  args.y.reserved = (int32_t)PICK(rng, 0, 1, -1);
  args.x.col_stride = PICK(rng, t_random_below(rng, 2), 2, -1);
  args.y.col_stride = PICK(rng, t_random_below(rng, 2), 2, -1);
  args.x.outer_stride = PICK(rng, t_random_below(rng, 2) ? cols : 0, 1, -1, INT64_MAX);
  args.y.outer_stride = PICK(rng, t_random_below(rng, 2) ? cols : 0, 1, -1, INT64_MAX);
  args.x.inner_stride = PICK(rng, t_random_below(rng, 2) ? cols : 0, 1, -1, INT64_MAX);
  args.y.inner_stride = PICK(rng, t_random_below(rng, 2) ? cols : 0, 1, -1, INT64_MAX);
  if (t_random_below(rng, 3)) args.weight = t_random_below(rng, 10) ? weight : (void *)y;
  args.weight_dtype = (int32_t)PICK(rng, t_random_below(rng, 2) ? dtype : 0, 1, 2, 3, 4, 9);
  if (t_random_below(rng, 20) == 0) args.bias = weight;
  if (t_random_below(rng, 20) == 0) args.rstd = statistic;
  if (t_random_below(rng, 20) == 0) args.residual.data = y;
  if (t_random_below(rng, 20) == 0) args.gate.data = weight;
  return args;
}

static void same_rows(rms_rows common, rms_rows full, int64_t outer, int64_t inner) {
  T_CHECK(common.data == full.data);
  if (outer > 1) T_EQ_INT(full.outer, common.outer);
  if (inner > 1) T_EQ_INT(full.inner, common.inner);
}

static void same_job(const rms_forward_job *common, const rms_forward_job *full, int64_t outer) {
  const rms_layout *p = &common->lay, *f = &full->lay;
  T_EQ_INT(f->inner, p->inner);
  T_EQ_INT(f->groups, p->groups);
  T_EQ_INT(f->width, p->width);
  T_EQ_INT(f->k, p->k);
  T_CHECK(f->indices == p->indices && f->weight == p->weight);
  T_EQ_F64(f->eps, p->eps);
  T_EQ_F64(f->offset, p->offset);
  T_EQ_INT(f->dtype, p->dtype);
  T_EQ_INT(f->kind, p->kind);
  T_EQ_INT(f->eps_place, p->eps_place);
  T_EQ_INT(f->steps, p->steps);
  T_EQ_INT(f->rounding, p->rounding);
  T_EQ_INT(f->gate_place, p->gate_place);
  T_EQ_INT(f->activation, p->activation);
  T_EQ_INT(f->weight_inner, p->weight_inner);
  T_EQ_INT(f->per_inner, p->per_inner);
  if (p->weight) T_EQ_INT(f->weight_is_f32, p->weight_is_f32);
  same_rows(common->x, full->x, outer, p->inner);
  same_rows(common->y, full->y, outer, p->inner);
  T_CHECK(!full->gate.data && !common->gate.data);
  T_CHECK(!full->residual.data && !full->residual_out.data && !full->bias && !full->rstd && !full->mean);
  T_CHECK(!common->residual.data && !common->residual_out.data && !common->bias && !common->rstd && !common->mean);
}

static void common_within_full(void) {
  int64_t taken = 0;
  t_rng rng = {t_seed()};
  for (int64_t i = 0; i < t_effort(300000) && t_failures() < 10; i++) {
    rms_spec spec = draw_spec(&rng);
    rms_forward_args args = draw_args(&rng, spec.cols);
    rms_forward_job common, full;
    int64_t segments, bytes = rms_check_common_forward(&spec, &args);
    if (bytes == 0) continue;
    taken++;
    t_context("draw %lld", (long long)i);
    if (!T_EQ_STATUS(RMS_OK, rms_check_forward(&spec, &args, 0, NULL, NULL, &full, &segments))) continue;
    rms_fill_common_forward(&spec, &args, &common);
    T_EQ_INT(args.outer, segments);
    T_EQ_INT(args.outer * spec.cols * (int64_t)rms_dtype_size((rms_dtype)args.x.dtype), bytes);
    same_job(&common, &full, args.outer);
  }
  T_CHECK(taken > 100);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"common_within_full", common_within_full}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
