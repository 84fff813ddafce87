/* SPDX-License-Identifier: MIT
 * Zero rows, absent pieces, statistics of zero: calls that are legal and easily wrong. */
#include "call.h"
#include "world.h"

#include <math.h>
#include <string.h>

static void make_empty(world *w) {
  w->forward.outer = w->backward.outer = 0;
}

static void zero_rows_write_nothing(void) {
  static world before;
  world *w = w_fresh();
  make_empty(w);
  w->backward.dweight = w->backward.dbias = NULL;
  memcpy(&before, w, sizeof before);
  w_expect(w, W_ALL, RMS_OK);
  T_EQ_BYTES(&before, w, sizeof before);
  w->forward.x.data = w->forward.residual.data = w->backward.x.data = w->backward.dy.data = NULL;
  w->forward.y.data = w->forward.residual_out.data = w->backward.dx.data = NULL;
  w_expect(w, W_ALL, RMS_OK); /* no rows, so no memory is needed */
  T_EQ_STATUS(RMS_OK, rms_stats_merge(&w->spec, 0, NULL, NULL));
}

/* Bad arguments stay bad without rows. */
static void zero_rows_are_checked(void) {
  world *w = w_fresh();
  make_empty(w);
  w->spec.eps = -1;
  w_expect(w, W_ALL, RMS_E_EPS);
}

static void zero_rows_set_gradients(void) {
  for (int accumulate = 0; accumulate < 8; accumulate++)
    for (int type = RMS_F32; type <= RMS_F16; type++)
      for (int per_inner = 0; per_inner < 2; per_inner++) {
        world *w = w_fresh();
        make_empty(w);
        size_t size = rms_dtype_size((rms_dtype)type), set = size * W_COLS * (per_inner ? W_INNER : 1);
        unsigned char zeros[sizeof w->dweight], ones[sizeof w->dweight];
        memset(zeros, 0, sizeof zeros);
        memset(ones, 0x11, sizeof ones);
        w_set_types(w, (rms_dtype)type, (rms_dtype)type, (rms_dtype)type, (rms_dtype)type);
        w->spec.weight_per_inner = per_inner;
        w->backward.accumulate = accumulate;
        memset(w->dweight, 0x11, sizeof w->dweight);
        memset(w->dbias, 0x11, sizeof w->dbias);
        w_expect(w, W_BACKWARDS, RMS_OK);
        int keep_weight = accumulate & RMS_ACCUMULATE_DWEIGHT, keep_bias = accumulate & RMS_ACCUMULATE_DBIAS;
        T_EQ_BYTES(keep_weight ? ones : zeros, w->dweight, set);
        T_EQ_BYTES(keep_bias ? ones : zeros, w->dbias, set);
        T_EQ_BYTES(ones, (unsigned char *)w->dweight + set, sizeof w->dweight - set);
        T_EQ_BYTES(ones, (unsigned char *)w->dbias + set, sizeof w->dbias - set);
      }
}

/* inner = 0 means 1. */
static void inner_zero(void) {
  world *w = w_fresh();
  w->forward.inner = 1;
  w_expect(w, W_FORWARD, RMS_OK);
  double expected[W_ELEMENTS];
  memcpy(expected, w->y, sizeof expected);
  w = w_fresh();
  w->forward.inner = 0;
  w_expect(w, W_FORWARD, RMS_OK);
  T_EQ_BYTES(expected, w->y, sizeof expected);
}

/* Every subset of the optional outputs; what is left is the same, whoever else is asked for. */
static void optional_outputs(void) {
  world *w = w_fresh();
  w_expect(w, W_FORWARD | W_BACKWARD, RMS_OK);
  double y[W_ELEMENTS], dx[W_ELEMENTS], dresidual_out[W_ELEMENTS], dweight[W_ELEMENTS], dbias[W_ELEMENTS];
  memcpy(y, w->y, sizeof y);
  memcpy(dx, w->dx, sizeof dx);
  memcpy(dresidual_out, w->dresidual_out, sizeof dx);
  memcpy(dweight, w->dweight, sizeof dweight);
  memcpy(dbias, w->dbias, sizeof dbias);
  for (int set = 0; set < 8; set++) {
    w = w_fresh();
    if (!(set & 1)) w->forward.residual_out.data = NULL;
    if (!(set & 2)) w->forward.rstd = NULL;
    if (!(set & 4)) w->forward.mean = NULL;
    w_expect(w, W_FORWARDS & W_FORWARD, RMS_OK);
    T_EQ_BYTES(y, w->y, sizeof y);
  }
  for (int set = 1; set < 16; set++) {
    w = w_fresh();
    static const double zeros[W_ELEMENTS];
    if (!(set & 1)) w->backward.dx.data = NULL;
    if (!(set & 2)) w->backward.dresidual_out.data = NULL;
    if (!(set & 4)) w->backward.dweight = NULL;
    if (!(set & 8)) w->backward.dbias = NULL;
    t_context("set=%d", set);
    w_expect(w, W_BACKWARD, RMS_OK);
    T_EQ_BYTES(set & 1 ? dx : zeros, w->dx, sizeof dx);
    T_EQ_BYTES(set & 2 ? dresidual_out : zeros, w->dresidual_out, sizeof dx);
    T_EQ_BYTES(set & 4 ? dweight : zeros, w->dweight, sizeof dx);
    T_EQ_BYTES(set & 8 ? dbias : zeros, w->dbias, sizeof dx);
  }
}

/* A statistic of exactly zero with eps = 0: r = 0, so nothing becomes infinite or NaN. */
static void statistic_of_zero(void) {
  for (int kind = 0; kind < 2; kind++)
    for (int place = 0; place < 2; place++) {
      world *w = w_fresh();
      float *x = (float *)w->x;
      for (int i = 0; i < W_ELEMENTS; i++)
        x[i] = kind == RMS_KIND_LAYER ? 2.5f : 0.0f;
      w->spec.kind = (rms_kind)kind;
      w->spec.eps_place = (rms_eps_place)place;
      w->spec.eps = 0;
      w->forward.residual.data = w->forward.residual_out.data = NULL;
      w->forward.bias = NULL;
      if (kind == RMS_KIND_RMS) w->forward.mean = NULL;
      w->backward.dresidual.data = NULL;
      w_expect(w, W_FORWARD | W_BACKWARD, RMS_OK);
      for (int i = 0; i < W_ELEMENTS; i++) {
        T_EQ_F64(0.0, (double)((float *)w->y)[i]);
        T_EQ_F64(0.0, (double)((float *)w->dx)[i]);
      }
      for (int i = 0; i < W_ROWS; i++)
        T_EQ_F64(0.0, (double)((float *)w->rstd)[i]);
      for (int j = 0; j < W_COLS; j++)
        T_EQ_F64(0.0, (double)((float *)w->dweight)[j]);
    }
}

/* A NaN or an infinity spoils its own row alone. */
static void spoiled_row(void) {
  world *w = w_fresh();
  w_expect(w, W_FORWARD | W_BACKWARD, RMS_OK);
  float clean_y[W_ELEMENTS], clean_dx[W_ELEMENTS];
  memcpy(clean_y, w->y, sizeof clean_y);
  memcpy(clean_dx, w->dx, sizeof clean_dx);
  static const float poison[] = {NAN, INFINITY, -INFINITY};
  for (int p = 0; p < 3; p++)
    for (int row = 0; row < W_ROWS; row++) {
      w = w_fresh();
      ((float *)w->x)[row * W_COLS + 3] = poison[p];
      w_expect(w, W_FORWARD | W_BACKWARD, RMS_OK);
      for (int r = 0; r < W_ROWS; r++) {
        if (r == row) continue;
        T_EQ_BYTES(clean_y + r * W_COLS, (float *)w->y + r * W_COLS, W_COLS * sizeof(float));
        T_EQ_BYTES(clean_dx + r * W_COLS, (float *)w->dx + r * W_COLS, W_COLS * sizeof(float));
      }
      T_CHECK(isnan(((float *)w->y)[row * W_COLS + 3]));
      if (p == 0) T_CHECK(isnan(((float *)w->y)[row * W_COLS]));
    }
}

/* A backward whose x is a residual sum kept in f32 gives the bits of one whose x is in the data type, for the same
 * values. */
static void sum_in_f32(void) {
  for (int kind = 0; kind < 2; kind++)
    for (int extra = 0; extra < 2; extra++) {
      world *w = w_fresh();
      uint16_t narrow[W_ELEMENTS];
      uint32_t wide[W_ELEMENTS];
      t_fill(narrow, RMS_BF16, W_ELEMENTS, T_NORMAL, t_seed(), 1, 0);
      for (int i = 0; i < W_ELEMENTS; i++)
        wide[i] = (uint32_t)narrow[i] << 16;
      double dx[W_ELEMENTS], dweight[W_ELEMENTS];
      for (int sum = 0; sum < 2; sum++) {
        w->spec.kind = (rms_kind)kind;
        w_set_types(w, RMS_BF16, RMS_F32, sum ? RMS_F32 : RMS_BF16, RMS_F32);
        w->backward.x.dtype = sum ? RMS_F32 : RMS_BF16;
        t_fill(w->dy, RMS_BF16, W_ELEMENTS, T_NORMAL, t_seed(), 2, 0);
        memcpy(w->x, sum ? (void *)wide : (void *)narrow, sum ? sizeof wide : sizeof narrow);
        w->backward.dresidual.data = w->backward.dresidual_out.data = NULL;
        if (kind == RMS_KIND_RMS && !extra) w->backward.dbias = NULL;
        w_expect(w, W_BACKWARD, RMS_OK);
        t_context("kind=%d extra=%d", kind, extra);
        if (sum) T_EQ_BYTES(dx, w->dx, W_ELEMENTS * 2);
        if (sum) T_EQ_BYTES(dweight, w->dweight, W_COLS * 4);
        memcpy(dx, w->dx, sizeof dx);
        memcpy(dweight, w->dweight, sizeof dweight);
      }
    }
}

static int is_nan16(uint16_t bits, rms_dtype type) {
  return (bits & 0x7fff) > (type == RMS_BF16 ? 0x7f80 : 0x7c00);
}

/* A NaN in the weight or the bias is a NaN in every row, whatever its payload: rounded like a number to 16 bits, this
 * one would become a zero. Many rows with a bias, and a single one without; either rounding, with and without a gate.
 */
static void spoiled_weight(void) {
  enum { ROWS = 9, COLS = 40 };
  static const rms_dtype types[] = {RMS_BF16, RMS_F16};
  const uint32_t nan = 0x7fffffff;
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++)
    for (int k = 0; k < 8 * 6; k++) {
      rms_dtype type = types[k / 2 % 2];
      int single = k / 4 % 2, rows = single ? 1 : ROWS, in_bias = !single && k % 2;
      uint16_t x[ROWS * COLS], y[ROWS * COLS], z[ROWS * COLS];
      float weight[COLS], bias[COLS];
      t_fill(x, type, ROWS * COLS, T_NORMAL, t_seed(), 1, 0);
      t_fill(weight, RMS_F32, COLS, T_NORMAL, t_seed(), 2, 0);
      t_fill(bias, RMS_F32, COLS, T_NORMAL, t_seed(), 3, 0);
      memcpy(in_bias ? &bias[5] : &weight[5], &nan, sizeof nan);
      t_fill(z, type, ROWS * COLS, T_NORMAL, t_seed(), 4, 0);
      rms_spec spec = {.cols = COLS, .eps = 1e-5, .rounding = k / 8 % 2, .gate_place = k / 16};
      rms_forward_args args = {
          .outer = rows, .x = {x, (int32_t)type}, .y = {.data = y}, .weight = weight, .weight_dtype = RMS_F32};
      args.bias_dtype = RMS_F32;
      if (!single) args.bias = bias;
      if (spec.gate_place) args.gate.data = z;
      T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
      T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
      t_context("isa=%s k=%d", isas.name[isa], k);
      for (int i = 0; i < rows * COLS; i++)
        T_EQ_INT(i % COLS == 5, is_nan16(y[i], type));
    }
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
}

/* A row called alone has its own loops; it gets the bits it has among others, and a weight of -0 keeps its sign in
 * both. Widths with and without a whole group of vectors, every type of data and weight, either rounding. */
static void row_alone(void) {
  enum { ROWS = 9, COLS = 200 };
  static const int64_t widths[] = {5, 40, 64, 128, COLS};
  static const int32_t types[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++)
    for (int k = 0; k < 5 * 4 * 2 * 2; k++) {
      const int32_t type = types[k / 5 % 4], weight_type = k / 20 % 2 && type != RMS_F64 ? RMS_F32 : type;
      const int64_t cols = widths[k % 5], size = (int64_t)rms_dtype_size(type);
      double x[ROWS * COLS], together[ROWS * COLS], alone[ROWS * COLS], weight[COLS];
      t_fill(x, (rms_dtype)type, ROWS * cols, T_NORMAL, t_seed(), 1, 0);
      t_fill(weight, (rms_dtype)weight_type, cols, T_NORMAL, t_seed(), 2, 0);
      const size_t weight_size = rms_dtype_size(weight_type);
      memset((char *)weight + 3 * weight_size, 0, weight_size);
      ((char *)weight)[4 * weight_size - 1] = (char)0x80; /* -0 */
      rms_spec spec = {.cols = cols, .eps = 1e-5, .rounding = k / 40};
      rms_forward_args args = {
          .outer = ROWS, .x = {x, type}, .y = {.data = together}, .weight = weight, .weight_dtype = weight_type};
      T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
      T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
      t_context("isa=%s k=%d", isas.name[isa], k);
      args.outer = 1;
      for (int row = 0; row < ROWS; row++) {
        args.x.data = (char *)x + row * cols * size;
        args.y.data = (char *)alone + row * cols * size;
        T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
        const int64_t sign = (row * cols + 4) * size - 1;
        T_EQ_INT((((char *)x)[sign] ^ 0x80) & 0x80, ((char *)together)[sign] & 0x80);
      }
      T_EQ_BYTES(together, alone, (size_t)(ROWS * cols * size));
    }
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
}

/* A statistic over a list of all elements is that over the row, beside a residual too. */
static void every_element_listed(void) {
  enum { ROWS = 9, COLS = 200 };
  static const int32_t types[] = {RMS_F32, RMS_BF16, RMS_F16};
  int64_t indices[COLS];
  for (int64_t i = 0; i < COLS; i++)
    indices[i] = i;
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++)
    for (int k = 0; k < 3 * 2; k++) {
      const int32_t type = types[k % 3];
      const size_t bytes = ROWS * COLS * rms_dtype_size(type);
      float x[ROWS * COLS], residual[ROWS * COLS], weight[COLS], y[2][ROWS * COLS], sum[2][ROWS * COLS];
      t_fill(x, (rms_dtype)type, ROWS * COLS, T_NORMAL, t_seed(), 1, 0);
      t_fill(residual, (rms_dtype)type, ROWS * COLS, T_NORMAL, t_seed(), 2, 0);
      t_fill(weight, (rms_dtype)type, COLS, T_NORMAL, t_seed(), 3, 0);
      T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
      t_context("isa=%s k=%d", isas.name[isa], k);
      for (int listed = 0; listed < 2; listed++) {
        const rms_spec spec = {.cols = COLS,
                               .eps = 1e-5,
                               .rounding = k / 3,
                               .partial = listed ? COLS : 0,
                               .indices = listed ? indices : NULL};
        const rms_forward_args args = {.outer = ROWS,
                                       .x = {x, type},
                                       .residual = {.data = residual},
                                       .weight = weight,
                                       .y = {.data = y[listed]},
                                       .residual_out = {.data = sum[listed]}};
        T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
      }
      T_EQ_BYTES(y[0], y[1], bytes);
      T_EQ_BYTES(sum[0], sum[1], bytes);
    }
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
}

/* The gradient of a gate behind the norm depends on the bias, whether the bias' own gradient is asked for or not. */
static void gate_beside_bias(void) {
  enum { ROWS = 9, COLS = 40 };
  static _Alignas(64) unsigned char workspace[1 << 16];
  static const rms_dtype types[] = {RMS_F32, RMS_BF16};
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++)
    for (int k = 0; k < 4; k++) {
      const rms_dtype type = types[k % 2];
      float x[ROWS * COLS], dy[ROWS * COLS], z[ROWS * COLS], weight[COLS], bias[COLS], dbias[COLS];
      float dx[2][ROWS * COLS], dz[3][ROWS * COLS];
      t_fill(x, type, ROWS * COLS, T_NORMAL, t_seed(), 1, 0);
      t_fill(dy, type, ROWS * COLS, T_NORMAL, t_seed(), 2, 0);
      t_fill(z, type, ROWS * COLS, T_NORMAL, t_seed(), 3, 0);
      t_fill(weight, type, COLS, T_NORMAL, t_seed(), 4, 0);
      t_fill(bias, type, COLS, T_NORMAL, t_seed(), 5, 0);
      rms_spec spec = {.cols = COLS, .eps = 1e-5, .rounding = k / 2, .gate_place = RMS_GATE_AFTER};
      T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
      for (int run = 0; run < 3; run++) { /* with dbias, without, without a bias */
        rms_backward_args args = {.outer = ROWS,
                                  .dy = {dy, (int32_t)type},
                                  .x = {x, (int32_t)type},
                                  .weight = weight,
                                  .dx = {.data = dx[run % 2]},
                                  .gate = {.data = z},
                                  .dgate = {.data = dz[run]},
                                  .bias = run < 2 ? bias : NULL,
                                  .dbias = run == 0 ? dbias : NULL,
                                  .workspace = workspace,
                                  .workspace_bytes = sizeof workspace};
        T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
      }
      t_context("isa=%s k=%d", isas.name[isa], k);
      const size_t bytes = ROWS * COLS * rms_dtype_size(type);
      T_EQ_BYTES(dx[0], dx[1], bytes);
      T_EQ_BYTES(dz[0], dz[1], bytes);
      T_CHECK(memcmp(dz[0], dz[2], bytes) != 0);
    }
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
}

/* The gradient of every element of a row depends on all of them: a NaN in the weight makes them all NaN, also beside an
 * infinity, which makes r zero. And a NaN with a payload in an f32 residual, outside the statistic, stays one. */
static void spoiled_gradients(void) {
  enum { ROWS = 9, COLS = 40 };
  static _Alignas(64) unsigned char workspace[1 << 16];
  const uint32_t nan = 0x7fffffff;
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++)
    for (int k = 0; k < 12; k++) {
      uint16_t x[ROWS * COLS], dy[ROWS * COLS], z[ROWS * COLS], dx[ROWS * COLS], dz[ROWS * COLS];
      float weight[COLS], whole[COLS], dweight[COLS], residual[COLS];
      t_fill(x, RMS_BF16, ROWS * COLS, T_NORMAL, t_seed(), 1, 0);
      t_fill(dy, RMS_BF16, ROWS * COLS, T_NORMAL, t_seed(), 2, 0);
      t_fill(z, RMS_BF16, ROWS * COLS, T_NORMAL, t_seed(), 3, 0);
      t_fill(weight, RMS_F32, COLS, T_NORMAL, t_seed(), 4, 0);
      t_fill(residual, RMS_F32, COLS, T_NORMAL, t_seed(), 5, 0);
      memcpy(whole, weight, sizeof whole);
      memcpy(&weight[5], &nan, sizeof nan);
      memcpy(&residual[20], &nan, sizeof nan);
      if (k % 2) x[3 * COLS] = 0x7f80;
      rms_spec spec = {.cols = COLS, .eps = 1e-5, .rounding = k / 2 % 2, .gate_place = k / 4};
      rms_backward_args args = {.outer = ROWS,
                                .dy = {dy, RMS_BF16},
                                .x = {x, RMS_BF16},
                                .weight = weight,
                                .weight_dtype = RMS_F32,
                                .dx = {dx, RMS_BF16},
                                .dweight = dweight,
                                .dweight_dtype = RMS_F32,
                                .workspace = workspace,
                                .workspace_bytes = sizeof workspace};
      if (spec.gate_place) args.gate.data = z, args.dgate.data = dz;
      T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
      T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
      t_context("isa=%s k=%d", isas.name[isa], k);
      for (int i = 0; i < ROWS * COLS; i++)
        T_EQ_INT(1, is_nan16(dx[i], RMS_BF16));

      spec.partial = 16;
      spec.gate_place = RMS_GATE_NONE;
      rms_forward_args forward = {.outer = 1,
                                  .x = {x, RMS_BF16},
                                  .residual = {residual, RMS_F32},
                                  .weight = whole,
                                  .weight_dtype = RMS_F32,
                                  .y = {.data = dz}};
      T_EQ_STATUS(RMS_OK, rms_forward(&spec, &forward, NULL));
      for (int i = 0; i < COLS; i++)
        T_EQ_INT(i == 20, is_nan16(dz[i], RMS_BF16));
    }
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
}

/* Rows of ones: r = 1, and every sum is a whole number. Enough rows for several blocks of each part of the sums. */
static void sums_of_ones(void) {
  enum { ROWS = 9000, COLS = 4 };
  static float x[ROWS * COLS], dx[ROWS * COLS];
  static _Alignas(64) unsigned char workspace[1 << 18];
  float dweight[COLS], dbias[COLS];
  for (int i = 0; i < ROWS * COLS; i++)
    x[i] = 1, dx[i] = 3;
  rms_spec spec = {.cols = COLS};
  rms_backward_args args = {.outer = ROWS, .dy = {.data = x}, .x = {x, RMS_F32}, .dx = {.data = dx}};
  args.accumulate = RMS_ACCUMULATE_DX;
  args.dweight = dweight, args.dbias = dbias;
  args.workspace = workspace, args.workspace_bytes = sizeof workspace;
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
  for (int j = 0; j < COLS; j++) {
    T_EQ_F64((double)ROWS, (double)dweight[j]);
    T_EQ_F64((double)ROWS, (double)dbias[j]);
  }
  for (int i = 0; i < ROWS * COLS; i += 7)
    T_EQ_F64(3, (double)dx[i]); /* the gradient along x is 0 */
  args.dy.data = dx, args.x.data = x;
  args.dx.data = NULL, args.accumulate = 0;
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
  T_EQ_F64(3.0 * ROWS, (double)dweight[0]);
  for (int i = 0; i < COLS; i++)
    dx[i] = (float)(i + 1);
  args.outer = 1, args.dx.data = x, args.dweight = args.dbias = NULL;
  args.accumulate = RMS_ACCUMULATE_DX; /* x is dx too: 1 + the gradient i + 1 - 2.5 */
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
  for (int i = 0; i < COLS; i++)
    T_EQ_F64(i - 0.5, (double)x[i]);
}

/* dbias of one column; dy is zero but for the given rows. */
static uint32_t column_sum(rms_dtype type, int rows, int count, const int *at, const uint32_t *bits) {
  enum { MOST = 96 };
  static _Alignas(64) unsigned char workspace[1 << 16];
  static union {
    uint16_t narrow[MOST];
    uint32_t wide[MOST];
  } x, dy;
  uint32_t dbias = 0;
  rms_spec spec = {.cols = 1, .eps = 1e-5};
  rms_backward_args args = {.outer = rows, .dy = {.data = &dy}, .x = {&x, (int32_t)type}, .dbias = &dbias};
  memset(&x, 0, sizeof x);
  memset(&dy, 0, sizeof dy);
  for (int i = 0; i < count; i++)
    if (type == RMS_F32)
      dy.wide[at[i]] = bits[i];
    else
      dy.narrow[at[i]] = (uint16_t)bits[i];
  args.workspace = workspace;
  args.workspace_bytes = sizeof workspace;
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
  return type == RMS_F32 ? dbias : dbias & 0xffff;
}

/* 1 + 2^-8 + 2^-40 in bf16 is 1 + 2^-7: rounded to f32 first, it would be the middle between that and 1. */
static void sums_rounded_once(void) {
  static const int at[] = {0, 1, 64};
  static const uint32_t bits[] = {0x3f80, 0x3b80, 0x2b80};
  T_EQ_INT(0x3f81, column_sum(RMS_BF16, 96, 3, at, bits));
}

/* 64 rows are two chunks of 32: 1 + 2^-24 + 2^-24 within the first is 1 in f32. Cut elsewhere it would be more. */
static void sums_cut_by_the_shape(void) {
  static const int at[] = {0, 30, 31};
  static const uint32_t bits[] = {0x3f800000, 0x33800000, 0x33800000};
  T_EQ_INT(0x3f800000, column_sum(RMS_F32, 64, 3, at, bits));
}

/* Products u*x that vanish are no sign that dy is zero: half of each gradient is their share. */
static void products_below_the_range(void) {
  const float x[2] = {0x1p-20f, 0x1p-20f}, dy[2] = {0x1p-140f, 0};
  float dx[2] = {7, 7};
  rms_spec spec = {.cols = 2};
  rms_backward_args args = {.outer = 1, .dy = {.data = dy}, .x = {x, RMS_F32}, .dx = {.data = dx}};
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
  T_EQ_F64(0x1p-121, (double)dx[0]);
  T_EQ_F64(-0x1p-121, (double)dx[1]);
}

/* dx is finite where the mathematics says so, whatever the sizes of x, dy and eps: against doubles, in which nothing of
 * this leaves the range. The tolerance is far above the bound of a row this short and far below a lost term. */
static void gradients_at_the_ends(void) {
  enum { COLS = 24 };
  static const double eps[] = {0, 1e-6, 1e-26, 1e-34};
  for (int x_size = -36; x_size <= 36; x_size += 3)
    for (int dy_size = -30; dy_size <= 30; dy_size += 3)
      for (size_t e = 0; e < 2 * T_COUNT(eps); e++) {
        float x[COLS], dy[COLS], dx[COLS];
        double squares = 0, sum = 0, largest = 0;
        t_fill(x, RMS_F32, COLS, T_NORMAL, t_seed(), 1, x_size);
        t_fill(dy, RMS_F32, COLS, T_NORMAL, t_seed(), 2, dy_size);
        for (int i = 0; i < COLS; i++) {
          x[i] = e % 2 && x_size == 0 ? 0.0f : (float)((double)x[i] * pow(10, x_size));
          dy[i] = (float)((double)dy[i] * pow(10, dy_size));
          squares += (double)x[i] * (double)x[i];
          sum += (double)dy[i] * (double)x[i];
        }
        rms_spec spec = {.cols = COLS, .eps = eps[e / 2]};
        double root = sqrt(squares / COLS + (double)(float)spec.eps), r = root > 0 ? 1 / root : 0;
        for (int i = 0; i < COLS; i++)
          if (fabs((double)dy[i] * r) > largest) largest = fabs((double)dy[i] * r);
        if (largest > 1e37 || largest < 1e-36) continue;
        rms_backward_args args = {.outer = 1, .dy = {.data = dy}, .x = {x, RMS_F32}, .dx = {.data = dx}};
        T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
        t_context("x=1e%d dy=1e%d eps=%g", x_size, dy_size, spec.eps);
        for (int i = 0; i < COLS; i++) {
          double want = (double)dy[i] * r - (double)x[i] * (sum * r * r * r / COLS);
          T_CHECK(fabs((double)dx[i] - want) <= COLS * 64 * 0x1p-24 * largest);
        }
      }
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"zero_rows_write_nothing", zero_rows_write_nothing},
                                 {"zero_rows_are_checked", zero_rows_are_checked},
                                 {"zero_rows_set_gradients", zero_rows_set_gradients},
                                 {"inner_zero", inner_zero},
                                 {"optional_outputs", optional_outputs},
                                 {"statistic_of_zero", statistic_of_zero},
                                 {"spoiled_row", spoiled_row},
                                 {"row_alone", row_alone},
                                 {"every_element_listed", every_element_listed},
                                 {"spoiled_weight", spoiled_weight},
                                 {"gate_beside_bias", gate_beside_bias},
                                 {"spoiled_gradients", spoiled_gradients},
                                 {"sum_in_f32", sum_in_f32},
                                 {"sums_of_ones", sums_of_ones},
                                 {"products_below_the_range", products_below_the_range},
                                 {"sums_rounded_once", sums_rounded_once},
                                 {"sums_cut_by_the_shape", sums_cut_by_the_shape},
                                 {"gradients_at_the_ends", gradients_at_the_ends}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
