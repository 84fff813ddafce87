/* SPDX-License-Identifier: MIT
 * Quantised outputs: every status that their arguments can have, with all outputs untouched; what they may share. */
#include "harness.h"
#include "number.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { ROWS = 4, COLS = 64 };

typedef struct memory {
  float x[ROWS * COLS], y[ROWS * COLS], sum[ROWS * COLS], residual[ROWS * COLS], weight[COLS], rstd[ROWS];
  float scale[ROWS * COLS + 1];
  unsigned char q[ROWS * COLS * 2];
} memory;

static memory m, before;
static rms_spec spec;
static rms_forward_args args;

/* A legal call: int8 with a scale for each row, y beside it. */
static void fresh(void) {
  memset(&m, 0x5a, sizeof m);
  for (int i = 0; i < ROWS * COLS; i++)
    m.x[i] = m.residual[i] = (float)(i % 7) - 3;
  for (int i = 0; i < COLS; i++)
    m.weight[i] = 1;
  spec = (rms_spec){.cols = COLS, .eps = 1e-6, .scale_block = COLS};
  args = (rms_forward_args){.outer = ROWS, .x = {m.x, RMS_F32}, .y = {m.y, RMS_F32}, .weight = m.weight};
  args.q = (rms_view){.data = m.q, .dtype = RMS_I8};
  args.scale = m.scale;
}

static void expect(rms_status status) {
  before = m;
  T_EQ_STATUS(status, rms_forward(&spec, &args, NULL));
  if (status != RMS_OK) T_EQ_BYTES(&before, &m, sizeof m);
}

static void types(void) {
  static const rms_dtype good[] = {RMS_I8, RMS_F8E4M3, RMS_F8E5M2}, bad[] = {RMS_AS_X, RMS_F32, RMS_BF16, 9, -1};
  for (size_t i = 0; i < T_COUNT(good); i++) {
    fresh();
    args.q.dtype = (int32_t)good[i];
    expect(RMS_OK);
  }
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    fresh();
    args.q.dtype = (int32_t)bad[i];
    expect(RMS_E_DTYPE);
  }
  fresh(); /* an 8-bit type is one of q alone */
  args.y.dtype = RMS_I8;
  expect(RMS_E_DTYPE);
  fresh();
  args.x.dtype = RMS_F8E4M3;
  expect(RMS_E_DTYPE);
  fresh();
  static double wide[ROWS * COLS];
  args.x = (rms_const_view){wide, RMS_F64};
  args.y.data = NULL;
  args.weight = NULL;
  expect(RMS_E_DTYPE);
}

static void scales(void) {
  static const double bad[] = {-1, -0x1p-1074, (double)INFINITY, (double)NAN, 0x1p128};
  fresh();
  args.scale = NULL;
  expect(RMS_E_ARGUMENT);
  fresh();
  args.q.data = NULL;
  expect(RMS_E_ARGUMENT); /* a scale without q */
  fresh();
  args.scale = (char *)m.scale + 1;
  expect(RMS_E_ALIGNMENT);
  for (int64_t block = -1; block <= COLS + 1; block++) {
    fresh();
    spec.scale_block = block;
    if (block == 0) m.scale[0] = 1;
    expect(block >= 0 && (block == 0 || COLS % block == 0) ? RMS_OK : RMS_E_SCALE);
  }
  fresh();
  spec.groups = 2; /* a block ends with its group */
  expect(RMS_E_SCALE);
  spec.scale_block = COLS / 2;
  expect(RMS_OK);
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    fresh();
    spec.scale_least = bad[i];
    expect(RMS_E_SCALE);
  }
  fresh();
  spec.scale_least = 0x1.fffffep127;
  expect(RMS_OK);
  T_EQ_F64(0x1.fffffep127, (double)m.scale[ROWS - 1]);
}

static void q8_0(void) {
  fresh();
  args.q.dtype = RMS_Q8_0;
  spec.scale_block = 0;
  args.scale = NULL;
  expect(RMS_OK);
  args.scale = m.scale;
  expect(RMS_E_ARGUMENT);
  args.scale = NULL;
  spec.scale_block = 32;
  expect(RMS_E_SCALE);
  spec.scale_block = 0;
  spec.cols = 48;
  expect(RMS_E_SCALE);
  spec.cols = COLS;
  spec.groups = 4; /* 16 columns each */
  expect(RMS_E_SCALE);
  spec.groups = 0;
  args.q.outer_stride = COLS + 16;
  expect(RMS_E_STRIDE);
  args.q.outer_stride = COLS + 32;
  expect(RMS_OK);
  args.q.outer_stride = COLS - 32;
  expect(RMS_E_STRIDE); /* rows overlap */
  args.q.outer_stride = 0;
  args.q.inner_stride = COLS + 1;
  expect(RMS_E_STRIDE);
}

static void views(void) {
  fresh();
  args.q.outer_stride = COLS - 1;
  expect(RMS_E_STRIDE);
  fresh();
  args.q.inner_stride = -1;
  expect(RMS_E_STRIDE);
  fresh();
  args.q.col_stride = 2;
  expect(RMS_E_UNSUPPORTED);
  fresh();
  args.q.reserved = 1;
  expect(RMS_E_VERSION);
  fresh();
  args.outer = INT64_C(1) << 55; /* 2^61 elements: more scales than bytes can be counted */
  args.x.dtype = RMS_BF16;
  args.weight = NULL;
  args.y.data = NULL;
  spec.scale_block = 1;
  expect(RMS_E_SIZE);
}

static void aliases(void) {
  void *const tensors[] = {m.x, m.y, m.residual, m.sum, m.weight, m.rstd};
  for (size_t i = 0; i < T_COUNT(tensors); i++)
    for (int shift = 0; shift < 2; shift++) {
      fresh();
      args.residual = (rms_const_view){m.residual, RMS_F32};
      args.residual_out = (rms_view){m.sum, RMS_F32};
      args.rstd = m.rstd;
      args.q.data = (char *)tensors[i] + shift;
      expect(RMS_E_ALIAS);
      args.q.data = m.q;
      args.scale = (char *)tensors[i] + 4 * shift;
      expect(RMS_E_ALIAS);
    }
  fresh();
  args.scale = m.q;
  expect(RMS_E_ALIAS);
  fresh(); /* a given scale is an input: it may lie in x, but not in q or y */
  spec.scale_block = 0;
  args.scale = m.x;
  expect(RMS_OK);
  args.scale = m.q;
  expect(RMS_E_ALIAS);
  args.scale = m.y;
  expect(RMS_E_ALIAS);
  fresh(); /* y may still be x */
  args.y.data = m.x;
  expect(RMS_OK);
}

/* Nothing is read or written, and nothing but q must be there. */
static void without_rows_or_y(void) {
  fresh();
  args.outer = 0;
  args.x.data = args.y.data = NULL;
  args.scale = NULL;
  before = m;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
  T_EQ_BYTES(&before, &m, sizeof m);
  fresh();
  args.y.data = NULL;
  expect(RMS_OK);
  T_CHECK(memcmp(before.q, m.q, ROWS * COLS) != 0);
  T_EQ_BYTES(before.y, m.y, sizeof m.y);
  args.q.data = NULL;
  args.scale = NULL;
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_forward(&spec, &args, NULL));
}

/* The split form has no q, and callers that do not know of it get none. */
static void split_and_shorter(void) {
  rms_stat stats[ROWS];
  fresh();
  T_EQ_STATUS(RMS_E_UNSUPPORTED, rms_stats(&spec, &args, stats, NULL));
  memset(stats, 0, sizeof stats);
  T_EQ_STATUS(RMS_E_UNSUPPORTED, rms_apply(&spec, &args, stats, NULL));
  fresh();
  const size_t old_spec = offsetof(rms_spec, scale_block), old_args = offsetof(rms_forward_args, q);
  before = m;
  T_EQ_STATUS(RMS_OK, rms_forward_sized(&spec, old_spec, &args, old_args, NULL));
  T_EQ_BYTES(before.q, m.q, sizeof m.q);
  T_EQ_BYTES(before.scale, m.scale, sizeof m.scale);
  T_CHECK(memcmp(before.y, m.y, sizeof m.y) != 0);
}

/* Rows whose y does not fit the room of 32 KB are written in parts, with what they share: the steps of forms that round
 * between x and y too. Their y and r are those of a call without q, and q is what y says. */
static void wide_steps(void) {
  enum { WIDEST = 16384 };
  static uint16_t x[WIDEST + 1], y[WIDEST + 1], want[WIDEST + 1];
  static signed char q[WIDEST + 1];
  for (int j = 0; j <= WIDEST; j++)
    x[j] = (uint16_t)((j % 3 ? 0x3f00 : 0xbf80) + j % 251);
  for (int64_t cols = WIDEST; cols <= WIDEST + 1; cols++)
    for (int k = 0; k < 6; k++) {
      static const int32_t steps[] = {RMS_STEPS_WIDE, RMS_STEPS_RSTD, RMS_STEPS_ALL,
                                      RMS_STEPS_ALL,  RMS_STEPS_ALL,  RMS_STEPS_ALL},
                           places[] = {0, 0, 0, RMS_EPS_OUTSIDE, RMS_EPS_CLAMP, 0};
      rms_spec wide = {.cols = cols, .eps = 1e-6, .steps = steps[k], .eps_place = places[k]};
      if (k == 5) wide.kind = RMS_KIND_LAYER;
      float scale = 0, r[2], mean[2], most = 0;
      rms_forward_args call = {.outer = 1, .x = {x, RMS_BF16}, .y = {want, RMS_BF16}, .rstd = &r[0]};
      if (k == 5) call.mean = &mean[0];
      T_EQ_STATUS(RMS_OK, rms_forward(&wide, &call, NULL));
      wide.scale_block = cols;
      call.y.data = y;
      call.rstd = &r[1];
      if (k == 5) call.mean = &mean[1];
      call.q.data = q;
      call.q.dtype = RMS_I8;
      call.scale = &scale;
      t_context("%d columns, form %d", (int)cols, k);
      T_EQ_STATUS(RMS_OK, rms_forward(&wide, &call, NULL));
      T_EQ_BYTES(want, y, (size_t)cols * 2);
      T_EQ_F64((double)r[0], (double)r[1]);
      if (k == 5) T_EQ_F64((double)mean[0], (double)mean[1]);
      for (int64_t j = 0; j < cols; j++)
        most = fmaxf(most, fabsf((float)verify_load(RMS_BF16, y, j)));
      T_EQ_F64((double)(most / 127), (double)scale);
      for (int64_t j = 0; j < cols; j++)
        T_EQ_INT((int)nearbyintf((float)verify_load(RMS_BF16, y, j) * (1 / scale)), q[j]);
      memset(q, 0x5a, sizeof q);
    }
}

/* What the header says of zeros, of NaN and of infinities. */
static void special_rows(void) {
  static const rms_dtype types[] = {RMS_I8, RMS_F8E4M3, RMS_F8E5M2};
  static const unsigned char nan[] = {0, 0x7f, 0x7e}, largest[] = {127, 0x7e, 0x7b};
  for (int t = 0; t < 3; t++) {
    fresh();
    args.q.dtype = (int32_t)types[t];
    spec.eps = 0;
    for (int j = 0; j < COLS; j++)
      m.x[j] = 0;
    m.x[COLS + 3] = NAN;
    m.x[2 * COLS + 5] = -INFINITY;
    expect(RMS_OK);
    T_EQ_F64(0, (double)m.scale[0]);
    T_CHECK(isnan(m.scale[1]) && isnan(m.scale[2]) && m.scale[3] > 0);
    int seen = 0;
    for (int j = 0; j < COLS; j++) {
      T_EQ_INT(0, m.q[j]);
      T_EQ_INT(nan[t], m.q[COLS + j]);
      T_EQ_INT(nan[t], m.q[2 * COLS + j]);
      seen |= m.q[3 * COLS + j] == largest[t] || (types[t] != RMS_I8 && m.q[3 * COLS + j] == (largest[t] | 0x80)) ||
              (types[t] == RMS_I8 && (signed char)m.q[3 * COLS + j] == -127);
    }
    T_CHECK(seen); /* the largest magnitude of a row becomes the largest number */
  }
}

/* Rows of y = w, by a weight of w and x of ones. */
static void constant_rows(rms_dtype type, float w) {
  fresh();
  for (int i = 0; i < ROWS * COLS; i++)
    m.x[i] = 1;
  for (int i = 0; i < COLS; i++)
    m.weight[i] = w;
  spec.eps = 0;
  args.q.dtype = (int32_t)type;
  if (type != RMS_Q8_0) return;
  args.scale = NULL;
  spec.scale_block = 0;
}

static void expect_q8_0(unsigned scale, int q) {
  expect(RMS_OK);
  T_EQ_INT(scale, m.q[0] | m.q[1] << 8);
  T_EQ_INT(q, (signed char)m.q[2]);
  T_EQ_INT(q, (signed char)m.q[33]);
}

/* Scales at the ends of their range: so small that they lose digits, that their inverse is infinite, that f16 has no
 * such number; and ones that are raised. */
static void ends_of_the_range(void) {
  constant_rows(RMS_F8E4M3, 627 * 0x1p-149f); /* a scale of 1.4 steps is one step: y/s = 627 is cut */
  expect(RMS_OK);
  T_EQ_F64(0x1p-149, (double)m.scale[0]);
  T_EQ_INT(0x7e, m.q[5]);
  constant_rows(RMS_F8E5M2, -0x1p-149f); /* the scale is zero: y is not divided */
  expect(RMS_OK);
  T_EQ_F64(0, (double)m.scale[0]);
  T_EQ_INT(0x80, m.q[5]);
  constant_rows(RMS_I8, 127 * 0x1p-130f); /* 1/s is cut to the largest number: 127*2^-130*2^128 */
  expect(RMS_OK);
  T_EQ_F64(0x1p-130, (double)m.scale[0]);
  T_EQ_INT(32, m.q[5]);
  constant_rows(RMS_Q8_0, 1e8f);
  expect_q8_0(0x7bff, 127); /* 65504 */
  constant_rows(RMS_Q8_0, -1);
  expect_q8_0(0x2008, -127);
  constant_rows(RMS_Q8_0, -1);
  spec.scale_least = 0.5;
  expect_q8_0(0x3800, -2);
  constant_rows(RMS_Q8_0, 0x1p-140f); /* the scale is zero in f16 */
  expect_q8_0(0, 0);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"types", types},
                                 {"scales", scales},
                                 {"q8_0", q8_0},
                                 {"views", views},
                                 {"aliases", aliases},
                                 {"without_rows_or_y", without_rows_or_y},
                                 {"split_and_shorter", split_and_shorter},
                                 {"wide_steps", wide_steps},
                                 {"special_rows", special_rows},
                                 {"ends_of_the_range", ends_of_the_range}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
