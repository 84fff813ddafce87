/* SPDX-License-Identifier: MIT
 *
 * Properties that hold whatever the data, on every usable instruction set. They need no reference values; the two that
 * are not exact take their tolerance from the derived bounds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bounds.h"
#include "harness.h"
#include "number.h"
#include "random.h"

enum { MOST = 1031 };

static const int64_t sizes[] = {1, 2, 7, 16, 33, 64, 100, 129, 1000, MOST};
static const rms_dtype types[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};

/* Runs `body` for every instruction set, type and size. */
static void everywhere(void (*body)(rms_dtype dtype, int64_t cols)) {
  t_isas isas = t_usable_isas();
  for (int i = 0; i < isas.count; i++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
    for (size_t t = 0; t < T_COUNT(types); t++)
      for (size_t s = 0; s < T_COUNT(sizes); s++) {
        t_context("%s, data type %d, %d columns", isas.name[i], (int)types[t], (int)sizes[s]);
        body(types[t], sizes[s]);
      }
  }
  rms_isa_force(NULL);
}

typedef struct buffer {
  double raw[MOST]; /* aligned room for any type */
} buffer;

static void fill(buffer *r, rms_dtype dtype, int64_t cols, uint64_t stream, double scale) {
  verify_random random = verify_random_start(t_seed(), stream);
  for (int64_t j = 0; j < cols; j++)
    verify_store(dtype, r->raw, j, verify_random_normal(&random) * scale);
}

static verify_spec plain_spec(rms_dtype dtype, int64_t cols, rms_kind kind, double eps) {
  verify_spec spec = {.cols = cols, .eps = eps, .kind = kind};
  verify_spec_set_types(&spec, dtype);
  return spec;
}

static void forward(const verify_spec *spec, const buffer *x, const buffer *weight, buffer *y) {
  rms_spec called = verify_library_spec(spec);
  rms_forward_args args = {.outer = 1, .x = {x->raw, (int32_t)spec->dtype}, .y.data = y->raw};
  args.weight = weight ? weight->raw : NULL;
  T_EQ_STATUS(RMS_OK, rms_forward(&called, &args, NULL));
}

static void backward(const verify_spec *spec, const buffer *x, const buffer *dy, const buffer *weight, buffer *dx) {
  rms_spec called = verify_library_spec(spec);
  rms_backward_args args = {.outer = 1, .x = {x->raw, (int32_t)spec->dtype}, .dy.data = dy->raw, .dx.data = dx->raw};
  args.weight = weight ? weight->raw : NULL;
  T_EQ_STATUS(RMS_OK, rms_backward(&called, &args, NULL));
}

/* ---- Bit for bit ---- */

static buffer x, y, other_x, other_y, weight, dy, dx, other_dx;

/* x times 2^s and eps times 4^s: the same y; dx divided by 2^s. */
static void power_of_two(rms_dtype dtype, int64_t cols) {
  static const int shifts[] = {-3, 4};
  for (int kind = 0; kind < 2; kind++)
    for (size_t i = 0; i < T_COUNT(shifts); i++) {
      verify_spec spec = plain_spec(dtype, cols, (rms_kind)kind, 0x1p-12), scaled = spec;
      fill(&x, dtype, cols, 1, 1);
      fill(&weight, dtype, cols, 2, 1);
      fill(&dy, dtype, cols, 3, 1);
      for (int64_t j = 0; j < cols; j++) /* multiples of 2^-8, so that neither scaling rounds */
        verify_store(dtype, x.raw, j, rint(verify_load(dtype, x.raw, j) * 16) / 16);
      for (int64_t j = 0; j < cols; j++)
        verify_store(dtype, other_x.raw, j, ldexp(verify_load(dtype, x.raw, j), shifts[i]));
      scaled.eps = ldexp(spec.eps, 2 * shifts[i]);
      forward(&spec, &x, &weight, &y);
      forward(&scaled, &other_x, &weight, &other_y);
      T_EQ_ELEMENTS(y.raw, other_y.raw, dtype, cols);
      if (dtype == RMS_F16) continue; /* dx may be subnormal there */
      backward(&spec, &x, &dy, &weight, &dx);
      backward(&scaled, &other_x, &dy, &weight, &other_dx);
      for (int64_t j = 0; j < cols; j++)
        if (!T_EQ_F64(verify_load(dtype, dx.raw, j), ldexp(verify_load(dtype, other_dx.raw, j), shifts[i]))) return;
    }
}

static void negation(rms_dtype dtype, int64_t cols) {
  for (int kind = 0; kind < 2; kind++) {
    verify_spec spec = plain_spec(dtype, cols, (rms_kind)kind, 1e-6);
    fill(&x, dtype, cols, 4, 1);
    fill(&weight, dtype, cols, 5, 1);
    for (int64_t j = 0; j < cols; j++)
      verify_store(dtype, other_x.raw, j, -verify_load(dtype, x.raw, j));
    forward(&spec, &x, &weight, &y);
    forward(&spec, &other_x, &weight, &other_y);
    for (int64_t j = 0; j < cols; j++)
      if (!T_EQ_F64(verify_load(dtype, y.raw, j), -verify_load(dtype, other_y.raw, j))) return;
  }
}

static void partial_of_all(rms_dtype dtype, int64_t cols) {
  static int64_t all[MOST];
  verify_spec full = plain_spec(dtype, cols, RMS_KIND_RMS, 1e-6), partial = full, listed;
  for (int64_t j = 0; j < cols; j++)
    all[j] = j;
  partial.partial = cols;
  listed = partial;
  listed.indices = all;
  const verify_spec *others[] = {&partial, &listed};
  fill(&x, dtype, cols, 6, 1);
  fill(&weight, dtype, cols, 7, 1);
  fill(&dy, dtype, cols, 8, 1);
  forward(&full, &x, &weight, &y);
  backward(&full, &x, &dy, &weight, &dx);
  for (size_t i = 0; i < T_COUNT(others); i++) {
    forward(others[i], &x, &weight, &other_y);
    T_EQ_ELEMENTS(y.raw, other_y.raw, dtype, cols);
    backward(others[i], &x, &dy, &weight, &other_dx);
    T_EQ_ELEMENTS(dx.raw, other_dx.raw, dtype, cols);
  }
}

/* ---- Identities of the gradients ---- */

/* Sets up the oracle's row for the tolerance: each dx is off by at most its bound and half a unit of its last place. */
static double dx_tolerance(const verify_row *row, rms_dtype dtype, int64_t j) {
  return row->dx_error[j] + verify_ulp(dtype, fabs(row->dx[j].hi) + row->dx_error[j]) / 2;
}

static void gradient_identity(rms_dtype dtype, int64_t cols) {
  static double wide_x[MOST], wide_dy[MOST], wide_g[MOST];
  for (int kind = 0; kind < 2; kind++) {
    verify_spec spec = plain_spec(dtype, cols, (rms_kind)kind, 0.03125);
    verify_row row;
    fill(&x, dtype, cols, 9, 1);
    fill(&weight, dtype, cols, 10, 1);
    fill(&dy, dtype, cols, 11, 1);
    backward(&spec, &x, &dy, &weight, &dx);
    for (int64_t j = 0; j < cols; j++) {
      wide_x[j] = verify_load(dtype, x.raw, j);
      wide_dy[j] = verify_load(dtype, dy.raw, j);
      wide_g[j] = verify_load(dtype, weight.raw, j);
    }
    if (!T_EQ_INT(0, verify_row_create(&row, &spec))) return;
    row.x = wide_x;
    row.dy = wide_dy;
    row.g = wide_g;
    verify_oracle_statistic(&row);
    verify_oracle_backward(&row);
    verify_bound_backward(&row);
    /* RMSNorm: sum x*dx = eps*r^3*sum(u*x). LayerNorm: sum dx = 0. */
    dd sum = dd_from(0), r = dd_scale(row.group[0].r, -row.group[0].scale), expected = dd_from(0);
    double tolerance = 0;
    if (spec.kind == RMS_KIND_RMS)
      expected = dd_multiply(
          dd_multiply(dd_multiply(r, r), r),
          dd_multiply(dd_from(spec.eps), dd_scale(row.group[0].sum_ux, row.group[0].scale + row.group[0].u_scale)));
    for (int64_t j = 0; j < cols; j++) {
      double factor = spec.kind == RMS_KIND_RMS ? wide_x[j] : 1;
      sum = dd_add(sum, dd_exact_product(verify_load(dtype, dx.raw, j), factor));
      tolerance += fabs(factor) * dx_tolerance(&row, dtype, j);
    }
    T_NEAR(expected.hi, sum.hi, tolerance);
    verify_row_destroy(&row);
  }
}

/* ---- Special rows ---- */

static void one_column(void) {
  float one = 3, gradient = 2, out = 7;
  rms_spec spec = {.cols = 1, .eps = 1e-5, .kind = RMS_KIND_LAYER};
  rms_forward_args fwd = {.outer = 1, .x = {&one, RMS_F32}, .y.data = &out};
  rms_backward_args bwd = {.outer = 1, .x = {&one, RMS_F32}, .dy.data = &gradient, .dx.data = &out};
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &fwd, NULL));
  T_EQ_F64(0.0, (double)out);
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &bwd, NULL));
  T_EQ_F64(0.0, (double)out);
  spec.kind = RMS_KIND_RMS;
  spec.eps = 0;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &fwd, NULL));
  T_EQ_F64(1.0, (double)out);
}

/* Rows of zeros (LayerNorm: of a constant) with eps = 0: y and dx are zeros. */
static void zero_statistic(rms_dtype dtype, int64_t cols) {
  for (int kind = 0; kind < 2; kind++)
    for (int place = 0; place < 2; place++) {
      verify_spec spec = plain_spec(dtype, cols, (rms_kind)kind, 0);
      spec.eps_place = (rms_eps_place)place;
      fill(&dy, dtype, cols, 12, 1);
      for (int64_t j = 0; j < cols; j++)
        verify_store(dtype, x.raw, j, kind ? 7.0 : 0.0);
      forward(&spec, &x, NULL, &y);
      backward(&spec, &x, &dy, NULL, &dx);
      for (int64_t j = 0; j < cols; j++)
        if (!T_EQ_F64(0.0, verify_load(dtype, y.raw, j)) || !T_EQ_F64(0.0, verify_load(dtype, dx.raw, j))) return;
    }
}

enum { ROWS = 3, COLS = 37 };

/* NaN or infinity in the middle row: the others keep the bits they have with a harmless middle row. */
static void spoilt_row(rms_dtype dtype, int64_t cols) {
  static const double poisons[] = {(double)NAN, HUGE_VAL, -HUGE_VAL};
  if (cols != 1) return; /* the shape is fixed */
  size_t bytes = rms_dtype_size(dtype) * COLS;
  for (int kind = 0; kind < 2; kind++)
    for (size_t i = 0; i < T_COUNT(poisons); i++) {
      rms_spec spec = {.cols = COLS, .eps = 1e-6, .kind = kind};
      rms_forward_args args = {.outer = ROWS, .x = {x.raw, (int32_t)dtype}, .y.data = y.raw};
      fill(&x, dtype, ROWS * COLS, 13, 1);
      T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
      other_y = y;
      verify_store(dtype, x.raw, COLS + 5, poisons[i]);
      T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
      T_EQ_BYTES(other_y.raw, y.raw, bytes);
      T_EQ_BYTES((char *)other_y.raw + 2 * bytes, (char *)y.raw + 2 * bytes, bytes);
      T_CHECK(isnan(verify_load(dtype, y.raw, COLS + 5)));
    }
}

static void every_power_of_two(void) {
  everywhere(power_of_two);
}
static void every_negation(void) {
  everywhere(negation);
}
static void every_partial_of_all(void) {
  everywhere(partial_of_all);
}
static void every_gradient_identity(void) {
  everywhere(gradient_identity);
}
static void every_zero_statistic(void) {
  everywhere(zero_statistic);
}
static void every_spoilt_row(void) {
  everywhere(spoilt_row);
}

static const t_case cases[] = {
    {"power_of_two", every_power_of_two},
    {"negation", every_negation},
    {"partial_of_all", every_partial_of_all},
    {"gradient_identity", every_gradient_identity},
    {"one_column", one_column},
    {"zero_statistic", every_zero_statistic},
    {"spoilt_row", every_spoilt_row},
};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
