/* SPDX-License-Identifier: MIT
 * Every field of every argument, spoiled: the right status from every function, and nothing written. */
#include "world.h"

#include <math.h>
#include <string.h>

/* What the other cases start from is legal for every function. */
static void legal(void) {
  for (int function = 1; function <= W_BACKWARD_APPLY; function *= 2)
    w_expect(w_fresh(), function, RMS_OK);
  world *w = w_fresh();
  T_CHECK(rms_backward_workspace(&w->spec, W_OUTER, W_INNER) > 0);
  T_CHECK(rms_backward_workspace(&w->spec, W_OUTER, W_INNER) <= sizeof w->workspace);
}

/* Every function refuses the spec, and no workspace is offered for it. */
static void refused(world *w, rms_status expected) {
  w_expect(w, W_ALL, expected);
  T_EQ_INT(0, rms_backward_workspace(&w->spec, W_OUTER, W_INNER));
}

static void spec_numbers(void) {
  static const int64_t bad_cols[] = {0, -1, INT64_MIN};
  for (size_t i = 0; i < T_COUNT(bad_cols); i++) {
    world *w = w_fresh();
    w->spec.cols = bad_cols[i];
    refused(w, RMS_E_COLS);
  }
  static const double bad_eps[] = {-1e-300, -1, (double)NAN, (double)INFINITY, -(double)INFINITY};
  for (size_t i = 0; i < T_COUNT(bad_eps); i++) {
    world *w = w_fresh();
    w->spec.eps = bad_eps[i];
    refused(w, RMS_E_EPS);
  }
  static const int64_t bad_groups[] = {-1, 3, 5, 7, 9, 16, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < T_COUNT(bad_groups); i++) {
    world *w = w_fresh();
    w->spec.groups = bad_groups[i];
    refused(w, RMS_E_GROUPS);
  }
  static const double bad_offset[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
  for (size_t i = 0; i < T_COUNT(bad_offset); i++) {
    world *w = w_fresh();
    w->spec.weight_offset = bad_offset[i];
    refused(w, RMS_E_MODE);
  }
}

static void spec_partial(void) {
  static const int64_t bad[] = {W_COLS + 1, INT64_MAX, -2, INT64_MIN};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    world *w = w_fresh();
    w->spec.kind = RMS_KIND_RMS;
    w->forward.mean = NULL;
    w->spec.partial = bad[i];
    refused(w, RMS_E_PARTIAL);
    w->spec.partial = 5; /* of groups of 4 */
    w->spec.groups = 2;
    refused(w, RMS_E_PARTIAL);
  }
  static const int64_t bad_lists[][3] = {{0, 0, 1}, {1, 0, 2}, {0, 1, W_COLS}, {-1, 0, 1}, {2, 5, 5}};
  for (size_t i = 0; i < T_COUNT(bad_lists); i++) {
    world *w = w_fresh();
    w->spec.kind = RMS_KIND_RMS;
    w->forward.mean = NULL;
    w->spec.partial = 3;
    w->spec.indices = bad_lists[i];
    refused(w, RMS_E_PARTIAL);
  }
  static const int64_t beyond_group[] = {1, 2, 4};
  world *w = w_fresh();
  w->spec.kind = RMS_KIND_RMS;
  w->forward.mean = NULL;
  w->spec.partial = 3;
  w->spec.indices = beyond_group;
  w_expect(w, W_ALL, RMS_OK);
  w->spec.groups = 2;
  refused(w, RMS_E_PARTIAL);

  /* A shard without any element of the statistic exists in the split functions alone. */
  w = w_fresh();
  w->spec.kind = RMS_KIND_RMS;
  w->forward.mean = NULL;
  w->spec.partial = RMS_PARTIAL_NONE;
  w_expect(w, W_FORWARD | W_BACKWARD, RMS_E_PARTIAL);
  w_expect(w, W_SPLIT, RMS_OK);
  /* LayerNorm has no partial form. */
  w = w_fresh();
  w->spec.partial = 4;
  w_expect(w, W_ALL, RMS_E_PARTIAL);
}

static void spec_enums(void) {
  static const int bad[] = {-1, 2, 77};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    world *w = w_fresh();
    w->spec.kind = (rms_kind)bad[i];
    refused(w, RMS_E_KIND);
    w = w_fresh();
    w->spec.eps_place = (rms_eps_place)bad[i];
    refused(w, RMS_E_MODE);
    w = w_fresh();
    w->spec.rounding = (rms_rounding)bad[i];
    refused(w, RMS_E_MODE);
  }
}

static void spec_dtypes(void) {
  static const int bad[] = {-1, 4, 99};
  for (size_t i = 0; i < T_COUNT(bad); i++)
    for (int field = 0; field < 4; field++) {
      world *w = w_fresh();
      rms_dtype *fields[] = {&w->spec.dtype, &w->spec.weight_dtype, &w->spec.residual_dtype, &w->spec.grad_dtype};
      *fields[field] = (rms_dtype)bad[i];
      refused(w, RMS_E_DTYPE);
    }
  /* Every combination of the four types, against the rule in the header. */
  for (int code = 0; code < 256; code++) {
    rms_dtype d = (rms_dtype)(code & 3), weight = (rms_dtype)(code >> 2 & 3), residual = (rms_dtype)(code >> 4 & 3),
              grad = (rms_dtype)(code >> 6);
    int narrow = d == RMS_BF16 || d == RMS_F16;
    int fine = (weight == d || weight == RMS_F32) && (residual == d || (narrow && residual == RMS_F32)) &&
               (grad == d || grad == weight || grad == RMS_F32);
    world *w = w_fresh();
    w->spec.dtype = d;
    w->spec.weight_dtype = weight;
    w->spec.residual_dtype = residual;
    w->spec.grad_dtype = grad;
    t_context("code=%d", code);
    w_expect(w, W_ALL, fine ? RMS_OK : RMS_E_DTYPE);
  }
}

static void pointers(void) {
  world *w = w_fresh();
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_forward(NULL, &w->forward, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_forward(&w->spec, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward(NULL, &w->backward, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward(&w->spec, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats(NULL, &w->forward, w->stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats(&w->spec, NULL, w->stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats(&w->spec, &w->forward, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_apply(NULL, &w->forward, w->stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_apply(&w->spec, NULL, w->stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_apply(&w->spec, &w->forward, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_stats(NULL, &w->backward, w->stats, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_stats(&w->spec, NULL, w->stats, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_stats(&w->spec, &w->backward, NULL, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_stats(&w->spec, &w->backward, w->stats, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_apply(NULL, &w->backward, w->stats, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_apply(&w->spec, NULL, w->stats, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_apply(&w->spec, &w->backward, NULL, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_apply(&w->spec, &w->backward, w->stats, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats_merge(NULL, 1, w->stats, w->stats));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats_merge(&w->spec, 1, NULL, w->stats));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats_merge(&w->spec, 1, w->stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats_merge(&w->spec, -1, w->stats, w->stats + 1));
  T_EQ_INT(0, rms_backward_workspace(NULL, 1, 1));
  T_EQ_INT(0, rms_backward_workspace(&w->spec, -1, 1));
  T_EQ_INT(0, rms_backward_workspace(&w->spec, 1, -1));
  w->forward.x.data = NULL;
  w_expect(w, W_FORWARD | W_STATS | W_APPLY, RMS_E_ARGUMENT);
  w = w_fresh();
  w->forward.y.data = NULL;
  w_expect(w, W_FORWARDS, RMS_E_ARGUMENT);
  w = w_fresh();
  w->forward.residual.data = NULL; /* residual_out without residual */
  w_expect(w, W_FORWARDS, RMS_E_ARGUMENT);
  w = w_fresh();
  w->backward.x.data = NULL;
  w_expect(w, W_BACKWARDS | W_BACKWARD_STATS, RMS_E_ARGUMENT);
  w = w_fresh();
  w->backward.dy.data = NULL;
  w_expect(w, W_BACKWARDS | W_BACKWARD_STATS, RMS_E_ARGUMENT);
  w = w_fresh();
  w->backward.rstd = w->rstd; /* LayerNorm: both or neither */
  w_expect(w, W_BACKWARD, RMS_E_ARGUMENT);
  w = w_fresh();
  w->backward.mean = w->mean;
  w_expect(w, W_BACKWARD, RMS_E_ARGUMENT);
}

static void counts(void) {
  world *w = w_fresh();
  w->forward.outer = w->backward.outer = -1;
  w_expect(w, W_ALL, RMS_E_ARGUMENT);
  w = w_fresh();
  w->forward.inner = w->backward.inner = -1;
  w_expect(w, W_ALL, RMS_E_ARGUMENT);
}

static void accumulate_flags(void) {
  static const int bad[] = {8, 16, -1, 1 << 20};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    world *w = w_fresh();
    w->backward.accumulate = bad[i];
    w_expect(w, W_BACKWARDS, RMS_E_MODE);
  }
}

/* Strides of each view: negative, or so small that rows overlap. */
static void strides(void) {
  static const int64_t bad[][2] = {{-16, 8}, {16, -8}, {0, -1}, {-1, 0}, {15, 8}, {16, 7}, {8, 8}, {1, 8}, {3, 0}};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    for (int which = 0; which < 4; which++) {
      world *w = w_fresh();
      if (which == 0) w->forward.x = (rms_const_view){w->x, bad[i][0], bad[i][1]};
      if (which == 1) w->forward.residual = (rms_const_view){w->residual, bad[i][0], bad[i][1]};
      if (which == 2) w->forward.y = (rms_view){w->y, bad[i][0], bad[i][1]};
      if (which == 3) w->forward.residual_out = (rms_view){w->residual_out, bad[i][0], bad[i][1]};
      w_expect(w, W_FORWARDS | (which < 2 ? W_STATS : 0), RMS_E_STRIDE);
    }
    for (int which = 0; which < 5; which++) {
      world *w = w_fresh();
      if (which == 0) w->backward.dy = (rms_const_view){w->dy, bad[i][0], bad[i][1]};
      if (which == 1) w->backward.x = (rms_const_view){w->x, bad[i][0], bad[i][1]};
      if (which == 2) w->backward.dresidual = (rms_const_view){w->dresidual, bad[i][0], bad[i][1]};
      if (which == 3) w->backward.dx = (rms_view){w->dx, bad[i][0], bad[i][1]};
      if (which == 4) w->backward.dresidual_out = (rms_view){w->dresidual_out, bad[i][0], bad[i][1]};
      w_expect(w, W_BACKWARDS | (which < 2 ? W_BACKWARD_STATS : 0), RMS_E_STRIDE);
    }
  }
}

/* Products and sums that leave 64 bits are refused before any address is formed. */
static void sizes(void) {
  world *w = w_fresh();
  w->spec.cols = INT64_MAX;
  w_expect(w, W_ALL, RMS_E_SIZE);
  T_EQ_INT(0, rms_backward_workspace(&w->spec, W_OUTER, W_INNER));
  w = w_fresh();
  w->forward.outer = w->backward.outer = INT64_MAX;
  w_expect(w, W_ALL, RMS_E_SIZE);
  w = w_fresh();
  w->forward.inner = w->backward.inner = INT64_MAX / 4;
  w_expect(w, W_ALL, RMS_E_SIZE);
  w = w_fresh();
  w->forward.x.outer_stride = w->backward.dy.outer_stride = INT64_MAX / 2;
  w_expect(w, W_ALL, RMS_E_SIZE);
  w = w_fresh();
  w->forward.y.inner_stride = w->backward.dx.inner_stride = INT64_MAX / 4; /* fits alone, not with the rest */
  w->forward.y.outer_stride = w->backward.dx.outer_stride = 8;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_E_SIZE);
}

static void run_serially(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  (void)ctx;
  for (int64_t i = 0; i < tasks; i++)
    task(arg, i);
}

static void executors(void) {
  static const rms_executor bad[] = {{NULL, 2, NULL}, {NULL, 0, run_serially}, {NULL, -1, run_serially}};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    world *w = w_fresh();
    w->executor = &bad[i];
    w_expect(w, W_ALL, RMS_E_EXECUTOR);
  }
  static const rms_executor good = {NULL, 1, run_serially};
  world *w = w_fresh();
  w->executor = &good;
  w_expect(w, W_ALL, RMS_OK);
}

static void workspace(void) {
  world *w = w_fresh();
  size_t need = rms_backward_workspace(&w->spec, W_OUTER, W_INNER);
  w->backward.workspace_bytes = need;
  w_expect(w, W_BACKWARDS, RMS_OK);
  w = w_fresh();
  w->backward.workspace_bytes = need - 1;
  w_expect(w, W_BACKWARDS, RMS_E_WORKSPACE);
  w->backward.workspace_bytes = 0;
  w_expect(w, W_BACKWARDS, RMS_E_WORKSPACE);
  for (int by = 1; by < 64; by += by < 8 ? 1 : 8) {
    w = w_fresh();
    w->backward.workspace = w->workspace + by;
    w->backward.workspace_bytes = sizeof w->workspace - 64;
    w_expect(w, W_BACKWARDS, RMS_E_WORKSPACE);
  }
  w = w_fresh();
  w->backward.workspace = NULL;
  w_expect(w, W_BACKWARDS, RMS_E_WORKSPACE);
  w->backward.dweight = NULL; /* dbias alone needs it too */
  w_expect(w, W_BACKWARDS, RMS_E_WORKSPACE);
  w->backward.dbias = NULL;
  w->backward.workspace_bytes = 0;
  w_expect(w, W_BACKWARDS, RMS_OK);
  /* Bounded: more rows do not need more and more. */
  rms_spec spec = {.cols = 4096};
  T_CHECK(rms_backward_workspace(&spec, INT64_C(1) << 30, 1) <= 2 * rms_backward_workspace(&spec, 100000, 1));
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"legal", legal},
                                 {"spec_numbers", spec_numbers},
                                 {"spec_partial", spec_partial},
                                 {"spec_enums", spec_enums},
                                 {"spec_dtypes", spec_dtypes},
                                 {"pointers", pointers},
                                 {"counts", counts},
                                 {"accumulate_flags", accumulate_flags},
                                 {"strides", strides},
                                 {"sizes", sizes},
                                 {"executors", executors},
                                 {"workspace", workspace}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
