/* SPDX-License-Identifier: MIT
 *
 * The oracle itself: against values worked out by hand, and its gradients against differences of its forward. The
 * gradients are thus tied to the definition of the forward alone, and the forward to paper and pencil. */
#include "oracle.h"

#include <math.h>
#include <string.h>
#include "harness.h"
#include "number.h"
#include "random.h"

static double distance(dd a, dd b) {
  return fabs(dd_subtract(a, b).hi);
}

/* ---- By hand ---- */

/* x = (3, 4): mean square 25/2, so h^2 = 9/12.5 and 16/12.5. */
static void rms_by_hand(void) {
  const double x[] = {3, 4}, dy[] = {1, 0};
  verify_spec spec = {.cols = 2, .dtype = RMS_F64, .weight_dtype = RMS_F64};
  verify_row row;
  if (!T_EQ_INT(0, verify_row_create(&row, &spec))) return;
  row.x = x;
  row.dy = dy;
  verify_oracle_statistic(&row);
  verify_oracle_forward(&row);
  T_NEAR(0, distance(dd_multiply(row.y[0], row.y[0]), dd_divide(dd_from(18), dd_from(25))), 1e-30);
  T_NEAR(0, distance(dd_multiply(row.y[1], row.y[1]), dd_divide(dd_from(32), dd_from(25))), 1e-30);
  T_CHECK(row.y[0].hi > 0);
  /* dx = r*u - x*r^3*S/2 with S = 3, r^2 = 2/25: r*(1 - 9/25), r*(-12/25) */
  verify_oracle_backward(&row);
  dd r = dd_sqrt(dd_divide(dd_from(2), dd_from(25)));
  T_NEAR(0, distance(row.dx[0], dd_divide(dd_multiply(r, dd_from(16)), dd_from(25))), 1e-30);
  T_NEAR(0, distance(row.dx[1], dd_divide(dd_multiply(r, dd_from(-12)), dd_from(25))), 1e-30);
  verify_row_destroy(&row);
}

/* x = (1, 2, 3, 4): mean 5/2, variance 5/4; with eps = 1/4 outside the root nothing is rational, inside r^2 = 2/3. */
static void layer_by_hand(void) {
  const double x[] = {1, 2, 3, 4}, dy[] = {1, 0, 0, 0};
  verify_spec spec = {.cols = 4, .eps = 0.25, .kind = RMS_KIND_LAYER, .dtype = RMS_F64, .weight_dtype = RMS_F64};
  verify_row row;
  if (!T_EQ_INT(0, verify_row_create(&row, &spec))) return;
  row.x = x;
  row.dy = dy;
  verify_oracle_statistic(&row);
  verify_oracle_forward(&row);
  dd r = dd_sqrt(dd_divide(dd_from(2), dd_from(3)));
  for (int j = 0; j < 4; j++)
    T_NEAR(0, distance(row.y[j], dd_multiply(r, dd_from(x[j] - 2.5))), 1e-30);
  /* dx_0 = r*(1 - 1/4 - h_0^2/4) = r*(3/4 - (9/4)(2/3)/4) = r*3/8 */
  verify_oracle_backward(&row);
  T_NEAR(0, distance(row.dx[0], dd_multiply(r, dd_from(0.375))), 1e-30);
  verify_row_destroy(&row);
}

static void outside_by_hand(void) {
  const double x[] = {3, -3, 100}; /* the statistic sees the first two: rms = 3, r = 1/(3 + 1) */
  verify_spec spec = {
      .cols = 3, .eps = 1, .partial = 2, .eps_place = RMS_EPS_OUTSIDE, .dtype = RMS_F64, .weight_dtype = RMS_F64};
  verify_row row;
  if (!T_EQ_INT(0, verify_row_create(&row, &spec))) return;
  row.x = x;
  verify_oracle_statistic(&row);
  verify_oracle_forward(&row);
  T_EQ_F64(0.75, row.y[0].hi);
  T_EQ_F64(-0.75, row.y[1].hi);
  T_EQ_F64(25.0, row.y[2].hi);
  verify_row_destroy(&row);
}

/* rms = 3: an eps of 2 bounds nothing, one of 4 makes r = 1/4, whatever x is, and dx = dy/4. */
static void clamped_by_hand(void) {
  const double x[] = {3, -3}, dy[] = {1, 2};
  for (int layer = 0; layer < 2; layer++)
    for (int bounded = 0; bounded < 2; bounded++) {
      verify_spec spec = {.cols = 2, .eps = bounded ? 4 : 2, .eps_place = RMS_EPS_CLAMP, .dtype = RMS_F64};
      spec.kind = layer ? RMS_KIND_LAYER : RMS_KIND_RMS;
      verify_row row;
      if (!T_EQ_INT(0, verify_row_create(&row, &spec))) return;
      row.x = x;
      row.dy = dy;
      verify_oracle_statistic(&row);
      verify_oracle_forward(&row);
      verify_oracle_backward(&row);
      T_EQ_F64(bounded ? 0.75 : 1.0, row.y[0].hi);
      if (!layer && bounded) T_EQ_F64(0.25, row.dx[0].hi);
      if (!layer && !bounded) T_EQ_F64(0.5, row.dx[0].hi); /* (1 + 1/2)/3: that along x is taken away */
      if (layer) T_EQ_F64(bounded ? -0.125 : 0.0, row.dx[0].hi);
      verify_row_destroy(&row);
    }
}

/* bf16, x = (3, 4): h = 0.848528..., in bf16 217/256. Times 1.5: 325.5/256, in bf16 163/128; plus 1/128: 164/128. */
static void before_by_hand(void) {
  const double x[] = {3, 4}, g[] = {1.5, 1}, b[] = {1.0 / 128, 0}, dy[] = {1.25, 1};
  verify_spec spec = {.cols = 2, .dtype = RMS_BF16, .weight_dtype = RMS_BF16, .rounding = RMS_ROUND_BEFORE_WEIGHT};
  verify_row row;
  if (!T_EQ_INT(0, verify_row_create(&row, &spec))) return;
  row.x = x;
  row.g = g;
  row.b = b;
  row.dy = dy;
  verify_oracle_statistic(&row);
  verify_oracle_forward(&row);
  T_EQ_F64(217.0 / 256, row.q[0].hi);
  T_EQ_F64(164.0 / 128, row.y[0].hi);
  verify_oracle_backward(&row);
  T_EQ_F64(1.875, ldexp(row.u[0].hi, row.group[0].u_scale));
  T_EQ_F64(136.0 / 128, row.dw[0].hi); /* 1.25 * 217/256 = 1.0595..., rounded to bf16 */
  row.spec.weight_dtype = RMS_F32;     /* the product is then not rounded */
  verify_oracle_backward(&row);
  T_EQ_F64(1.25 * 217 / 256, row.dw[0].hi);
  verify_oracle_forward(&row);
  T_EQ_F64(325.5 / 256 + 1.0 / 128, row.y[0].hi);
  verify_row_destroy(&row);
}

static void zero_statistic(void) {
  const double zeros[] = {0, 0, 0}, sevens[] = {7, 7, 7}, dy[] = {1, 2, 3};
  for (int layer = 0; layer < 2; layer++) {
    verify_spec spec = {.cols = 3, .kind = layer ? RMS_KIND_LAYER : RMS_KIND_RMS, .dtype = RMS_F64};
    verify_row row;
    if (!T_EQ_INT(0, verify_row_create(&row, &spec))) return;
    row.x = layer ? sevens : zeros;
    row.dy = dy;
    verify_oracle_statistic(&row);
    verify_oracle_forward(&row);
    verify_oracle_backward(&row);
    for (int j = 0; j < 3; j++) {
      T_EQ_F64(0.0, row.y[j].hi);
      T_EQ_F64(0.0, row.dx[j].hi);
    }
    verify_row_destroy(&row);
  }
}

static void definitions(void) {
  verify_spec spec = {.cols = 1, .dtype = RMS_BF16, .residual_dtype = RMS_BF16, .weight_offset = 1};
  T_EQ_F64(256.0, verify_residual_sum(&spec, 256, 1)); /* 257 is not in bf16; ties to even */
  T_EQ_F64(260.0, verify_residual_sum(&spec, 256, 3));
  spec.residual_dtype = RMS_F32;
  T_EQ_F64(257.0, verify_residual_sum(&spec, 256, 1));
  T_EQ_F64(1.0 + 0x1p-20, verify_gain(&spec, 0x1p-20)); /* in f32, not in bf16 */
  T_EQ_F64(1.0, verify_gain(&spec, 0x1p-25));
}

/* ---- Gradients against differences ---- */

enum { N = 12 };

typedef struct point {
  double x[N], g[N], b[N], dy[N], z[N];
} point;

static dd loss(verify_row *row) {
  dd sum = dd_from(0);
  verify_oracle_statistic(row);
  verify_oracle_forward(row);
  for (int j = 0; j < N; j++)
    sum = dd_add(sum, dd_multiply(dd_from(row->dy[j]), row->y[j]));
  return sum;
}

static dd central_difference(verify_row *row, double *value, double step) {
  double centre = *value;
  *value = centre + step;
  dd above = loss(row);
  *value = centre - step;
  dd below = loss(row);
  *value = centre;
  return dd_divide(dd_subtract(above, below), dd_from(2 * step));
}

/* The error of a central difference is c*step^2 + O(step^4): halving the step shrinks it by four, so the change from
 * one step to the other is three times what is left. Rounding adds 2^-100/step. */
static void check_derivative(verify_row *row, double *value, dd expected) {
  dd coarse = central_difference(row, value, 0x1p-19), fine = central_difference(row, value, 0x1p-20);
  T_NEAR(0, distance(fine, expected), distance(coarse, fine) + 1e-22);
}

static point draw_point(uint64_t stream) {
  point p;
  verify_random random = verify_random_start(t_seed(), stream);
  for (int j = 0; j < N; j++) { /* multiples of 2^-20, so that a step is exact */
    p.x[j] = rint(verify_random_normal(&random) * 0x1p20) * 0x1p-20;
    p.g[j] = rint(verify_random_normal(&random) * 0x1p20) * 0x1p-20;
    p.b[j] = verify_random_normal(&random);
    p.dy[j] = verify_random_normal(&random);
    p.z[j] = rint(3 * verify_random_normal(&random) * 0x1p20) * 0x1p-20;
  }
  return p;
}

static void check_gradients(verify_spec spec, uint64_t stream) {
  point p = draw_point(stream);
  verify_row row;
  dd dx[N], dw[N], dz[N];
  spec.cols = N;
  spec.dtype = spec.weight_dtype = RMS_F64;
  if (!T_EQ_INT(0, verify_row_create(&row, &spec))) return;
  row.x = p.x;
  row.g = p.g;
  row.b = p.b;
  row.dy = p.dy;
  row.z = spec.gate_place ? p.z : NULL;
  verify_oracle_statistic(&row);
  verify_oracle_backward(&row);
  memcpy(dx, row.dx, sizeof dx);
  memcpy(dw, row.dw, sizeof dw);
  memcpy(dz, row.dz, sizeof dz);
  for (int j = 0; j < N; j++) {
    t_context("kind %d, groups %d, partial %d, eps place %d, gate %d, activation %d, column %d", (int)spec.kind,
              (int)spec.groups, (int)spec.partial, (int)spec.eps_place, (int)spec.gate_place, (int)spec.activation, j);
    check_derivative(&row, &p.x[j], dx[j]);
    check_derivative(&row, &p.g[j], dw[j]);
    if (row.z) check_derivative(&row, &p.z[j], dz[j]);
  }
  verify_row_destroy(&row);
}

static void gradients(void) {
  static const int64_t listed[] = {1, 2, 5};
  const double eps[] = {0, 1e-6, 0.1, 3};
  for (uint64_t i = 0; i < 3 * 2 * T_COUNT(eps) * 3; i++) {
    verify_spec spec = {
        .eps = eps[i / 6 % T_COUNT(eps)], .eps_place = (rms_eps_place)(i % 3), .kind = (rms_kind)(i / 3 % 2)};
    int64_t groups[] = {0, 2, 3};
    spec.groups = groups[i / 24];
    check_gradients(spec, i);
    spec.gate_place = (rms_gate_place)(RMS_GATE_AFTER + i / 4 % 2);
    spec.activation = (rms_activation)(i / 8 % 2);
    check_gradients(spec, 3000 + i);
    spec.gate_place = (rms_gate_place)(RMS_GATE_BEFORE - i / 4 % 2);
    check_gradients(spec, 4000 + i);
    if (i % 3) spec.gate_place = RMS_GATE_NONE;
    if (spec.kind == RMS_KIND_LAYER || spec.groups == 3) continue;
    spec.partial = 4;
    check_gradients(spec, 1000 + i);
    spec.partial = 3;
    spec.indices = listed;
    check_gradients(spec, 2000 + i);
  }
}

/* ---- Scale ---- */

/* The backward of one point; g: the gains, or NULL. */
static int gradients_at(verify_row *row, rms_kind kind, const point *p, const double *g) {
  verify_spec spec = {.cols = N, .eps = 0, .dtype = RMS_F64, .kind = kind};
  if (!T_EQ_INT(0, verify_row_create(row, &spec))) return 0;
  row->x = p->x;
  row->dy = p->dy;
  row->g = g;
  verify_oracle_statistic(row);
  verify_oracle_backward(row);
  return 1;
}

/* A row times a power of two with eps to match is the same row: y equal, dx divided by it; at both ends of
 * the range. */
static void scale_invariance(void) {
  point p = draw_point(77), scaled = p;
  const int shifts[] = {-1020, -500, 13, 900};
  for (size_t i = 0; i < T_COUNT(shifts); i++)
    for (int kind = 0; kind < 2; kind++) {
      verify_row plain, other;
      for (int j = 0; j < N; j++)
        scaled.x[j] = ldexp(p.x[j], shifts[i]);
      if (!gradients_at(&plain, (rms_kind)kind, &p, NULL) || !gradients_at(&other, (rms_kind)kind, &scaled, NULL))
        return;
      for (int j = 0; j < N; j++) {
        T_EQ_F64(plain.h[j].hi, other.h[j].hi);
        T_EQ_F64(ldexp(plain.dx[j].hi, -shifts[i]), other.dx[j].hi);
      }
      verify_row_destroy(&plain);
      verify_row_destroy(&other);
    }
}

/* x and dy times the same power of two: dx is what it was, digit for digit, though no product of dy and the weight fits
 * the range of a double-double any more. */
static void gradient_invariance(void) {
  point p = draw_point(78), scaled = p;
  const int shifts[] = {-1000, 1000};
  for (size_t i = 0; i < T_COUNT(shifts); i++)
    for (int kind = 0; kind < 2; kind++) {
      verify_row plain, other;
      for (int j = 0; j < N; j++) {
        scaled.x[j] = ldexp(p.x[j], shifts[i]);
        scaled.dy[j] = ldexp(p.dy[j], shifts[i]);
        p.g[j] = ldexp(fabs(p.g[j]) + 1, shifts[i] > 0 ? 20 : 0);
      }
      if (!gradients_at(&plain, (rms_kind)kind, &p, p.g) || !gradients_at(&other, (rms_kind)kind, &scaled, p.g)) return;
      for (int j = 0; j < N; j++) {
        T_EQ_F64(plain.dx[j].hi, other.dx[j].hi);
        T_EQ_F64(plain.dx[j].lo, other.dx[j].lo);
      }
      verify_row_destroy(&plain);
      verify_row_destroy(&other);
    }
}

static const t_case cases[] = {
    {"rms_by_hand", rms_by_hand},           {"layer_by_hand", layer_by_hand},
    {"outside_by_hand", outside_by_hand},   {"clamped_by_hand", clamped_by_hand},
    {"before_by_hand", before_by_hand},     {"zero_statistic", zero_statistic},
    {"definitions", definitions},           {"gradients", gradients},
    {"scale_invariance", scale_invariance}, {"gradient_invariance", gradient_invariance},
};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
