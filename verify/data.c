/* SPDX-License-Identifier: MIT
 * Input values. */
#include "data.h"

#include <float.h>
#include <math.h>
#include "number.h"
#include "quantise.h"

/* Powers of two that take normal numbers to where squares lose digits and to the ends of the range. Six standard
 * deviations still fit at the top. */
static double scale_of(verify_data data, rms_dtype dtype) {
  int top = dtype == RMS_F64 ? 1021 : dtype == RMS_F16 ? 13 : 125;
  int low = dtype == RMS_F64 ? -450 : dtype == RMS_F16 ? -10 : -52;
  int bottom = dtype == RMS_F64 ? -1060 : dtype == RMS_F16 ? -20 : -133;
  return data == VERIFY_HUGE    ? ldexp(1, top)
         : data == VERIFY_SMALL ? ldexp(1, low)
         : data == VERIFY_TINY  ? ldexp(1, bottom)
                                : 1;
}

static double faint_of(rms_dtype dtype) {
  return ldexp(1, dtype == RMS_F64 ? -520 : dtype == RMS_F16 ? -10 : -68);
}

static double largest_of(rms_dtype dtype) {
  return dtype == RMS_F64 ? DBL_MAX : dtype == RMS_F32 ? (double)FLT_MAX : dtype == RMS_BF16 ? 0x1.fep127 : 65504;
}

static double least_normal_of(rms_dtype dtype) {
  return dtype == RMS_F64 ? DBL_MIN : dtype == RMS_F16 ? 0x1p-14 : (double)FLT_MIN;
}

static double mean_of(rms_dtype dtype) {
  return dtype == RMS_F64 ? 1e6 : dtype == RMS_F32 ? 1000 : 100;
}

static double with_sign(double magnitude, verify_random *random) {
  return verify_random_bits(random) & 1 ? -magnitude : magnitude;
}

/* A power of two spread over about six decades, times a number in [1, 2), with a random sign. */
static double draw_wide(verify_random *random) {
  double exponent = floor(2.9 * verify_random_normal(random));
  double magnitude = ldexp(1 + verify_random_uniform(random), (int)exponent);
  return with_sign(magnitude, random);
}

static double draw_cauchy(verify_random *random) {
  double above = verify_random_normal(random),
         below = verify_random_normal(random); /* in this order with every compiler */
  double ratio = above / below;
  return fabs(ratio) <= 1e4 ? ratio : copysign(1e4, ratio); /* also cuts 1/0 */
}

static double draw_steps(rms_dtype dtype, verify_random *random) {
  double steps = 1 + (double)verify_random_below(random, 7);
  return with_sign(steps * verify_ulp(dtype, 0), random);
}

static double draw_exact(verify_random *random) {
  return ((double)verify_random_below(random, 33) - 16) / 8;
}

static double draw_input(verify_data data, rms_dtype dtype, verify_random *random) {
  switch (data) {
  case VERIFY_LOGNORMAL:
    return draw_wide(random);
  case VERIFY_CAUCHY:
    return draw_cauchy(random);
  case VERIFY_HUGEMEAN:
    return mean_of(dtype) + verify_random_normal(random);
  case VERIFY_MAX:
    return with_sign(largest_of(dtype), random);
  case VERIFY_LEAST:
    return with_sign(least_normal_of(dtype), random);
  case VERIFY_STEPS:
    return draw_steps(dtype, random);
  case VERIFY_EXACT:
    return draw_exact(random);
  default:
    return scale_of(data, dtype) * verify_random_normal(random);
  }
}

/* The next value for a tensor of this role; the caller rounds it to the tensor's type. */
static double draw(const verify_problem *p, verify_role role, verify_random *random) {
  if (role == VERIFY_DY) return draw_input(p->dy_data, verify_y_type(&p->spec), random);
  if (p->data == VERIFY_EXACT) return draw_exact(random);
  switch (role) {
  case VERIFY_X:
    return draw_input(p->data, p->spec.dtype, random);
  case VERIFY_RESIDUAL: /* an eighth: the sum of two huge numbers still fits */
    return draw_input(p->data, p->spec.dtype, random) / 8;
  case VERIFY_WEIGHT: /* around g = 1 */
    return 1 - p->spec.weight_offset + 0.25 * verify_random_normal(random);
  case VERIFY_BIAS:
    return 0.5 * verify_random_normal(random);
  case VERIFY_SCALE: /* given: some elements saturate */
    return 2.5 / verify_quantised_largest(p->spec.q_dtype);
  case VERIFY_GATE: /* now and then far out, where the activation is nearly 0 or z */
    return 4 * verify_random_normal(random);
  case VERIFY_DRSTD: /* as large as what y sends to the statistics */
    return sqrt((double)p->spec.cols) * verify_random_normal(random);
  case VERIFY_DMEAN:
    return (double)p->spec.cols * verify_random_normal(random);
  default:
    return verify_random_normal(random);
  }
}

/* Takes each position with the chance that fills the list exactly: every subset is equally likely. */
void verify_draw_indices(const verify_problem *p, int64_t *indices) {
  int64_t width = p->spec.cols / (p->spec.groups ? p->spec.groups : 1), taken = 0;
  verify_random random = verify_random_start(p->seed, VERIFY_INDICES);
  for (int64_t i = 0; i < width && taken < p->spec.partial; i++)
    if ((int64_t)verify_random_below(&random, (uint64_t)(width - i)) < p->spec.partial - taken) indices[taken++] = i;
}

/* What becomes of row `row`: VERIFY_NORMAL if it stays as it is. */
static verify_data row_data(verify_data data, int64_t row) {
  static const verify_data turns[] = {VERIFY_NORMAL, VERIFY_ZEROROWS, VERIFY_HUGE, VERIFY_SMALL};
  if (data == VERIFY_MIXED) return turns[row % 4];
  const int second = data == VERIFY_ZEROROWS || data == VERIFY_NANROWS || data == VERIFY_FAINTROWS;
  return second && row % 2 == 1 ? data : VERIFY_NORMAL;
}

double verify_row_factor(verify_data data, int64_t row, rms_dtype dtype) {
  const verify_data what = row_data(data, row);
  return what == VERIFY_NORMAL      ? 1
         : what == VERIFY_NANROWS   ? (double)NAN
         : what == VERIFY_ZEROROWS  ? 0
         : what == VERIFY_FAINTROWS ? faint_of(dtype)
                                    : scale_of(what, dtype);
}

void verify_set_rows(const verify_tensor *t, verify_data data) {
  for (int64_t row = 0; row < t->outer * t->inner; row++) {
    const double factor = verify_row_factor(data, row, t->dtype);
    const int64_t at = verify_element_at(t, row / t->inner, row % t->inner, 0);
    if (factor == 1 || t->cols == 0) continue;
    if (isnan(factor)) {
      verify_store(t->dtype, t->data, at, factor);
      continue;
    }
    for (int64_t j = 0; j < t->cols; j++)
      verify_store(t->dtype, t->data, at + j * t->col_stride,
                   factor * verify_load(t->dtype, t->data, at + j * t->col_stride));
  }
}

void verify_fill(verify_case *c, verify_role role) {
  const verify_tensor *t = &c->tensor[role];
  verify_random random = verify_random_start(c->problem.seed, role);
  for (int64_t i = 0; i < t->outer; i++)
    for (int64_t h = 0; h < t->inner; h++)
      for (int64_t j = 0; j < t->cols; j++)
        verify_store(t->dtype, t->data, verify_element_at(t, i, h, j), draw(&c->problem, role, &random));
  if (role == VERIFY_X || role == VERIFY_RESIDUAL || role == VERIFY_DY)
    verify_set_rows(t, role == VERIFY_DY ? c->problem.dy_data : c->problem.data);
}

void verify_case_fill(verify_case *c) {
  static const verify_role inputs[] = {VERIFY_X,         VERIFY_RESIDUAL, VERIFY_WEIGHT, VERIFY_BIAS, VERIFY_DY,
                                       VERIFY_DRESIDUAL, VERIFY_DRSTD,    VERIFY_DMEAN,  VERIFY_GATE};
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
    if (verify_case_has(c, inputs[i])) verify_fill(c, inputs[i]);
  if (verify_case_has(c, VERIFY_SCALE) && !verify_case_is_output(c, VERIFY_SCALE)) verify_fill(c, VERIFY_SCALE);
  if (c->problem.accumulate & RMS_ACCUMULATE_DX) verify_fill(c, VERIFY_DX);
  if (c->problem.accumulate & RMS_ACCUMULATE_DWEIGHT) verify_fill(c, VERIFY_DWEIGHT);
  if (c->problem.accumulate & RMS_ACCUMULATE_DBIAS) verify_fill(c, VERIFY_DBIAS);
  if (verify_case_has(c, VERIFY_INDICES))
    verify_draw_indices(&c->problem, (int64_t *)(void *)c->tensor[VERIFY_INDICES].data);
}
