/* SPDX-License-Identifier: MIT
 *
 * Rows so small that eps decides: f32 results against the formulas in double, whose range holds every square. */
#include <math.h>
#include "harness.h"
#include "rmsnorm.h"

enum { COLS = 4 };

/* Roundings on the way of an element, of which there are fewer, and half the last place of the smallest results. */
static int is_close(double exact, float computed) {
  return fabs((double)computed - exact) <= 24 * 0x1p-24 * fabs(exact) + 0x1p-149;
}

/* Row (1, -2, 3, 1) times `size`, as f32 has it. */
static void make_row(float *x, double size) {
  static const double row[COLS] = {1, -2, 3, 1};
  for (int j = 0; j < COLS; j++)
    x[j] = (float)(row[j] * size);
}

static double mean_square(const float *x, double mean) {
  double sum = 0;
  for (int j = 0; j < COLS; j++)
    sum += ((double)x[j] - mean) * ((double)x[j] - mean);
  return sum / COLS;
}

static void each_isa(void (*body)(void)) {
  t_isas isas = t_usable_isas();
  for (int i = 0; i < isas.count; i++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
    body();
  }
  rms_isa_force(NULL);
}

/* eps is rounded to f32 before anything else, also where the row is scaled afterwards. */
static void subnormal_eps_here(void) {
  static const double eps[] = {1e-45, 1e-44, 3e-45, 1e-40, 0.5e-45};
  for (size_t i = 0; i < T_COUNT(eps); i++)
    for (int e = -90; e <= -60; e++) {
      float x[COLS], y[COLS];
      make_row(x, ldexp(1, e));
      rms_spec spec = {.cols = COLS, .eps = eps[i]};
      rms_forward_args args = {.outer = 1, .x = {x, RMS_F32}, .y = {.data = y}};
      T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
      double r = 1 / sqrt(mean_square(x, 0) + (double)(float)eps[i]);
      for (int j = 0; j < COLS; j++) {
        t_context("%s: eps %g, 2^%d, element %d: %.9g, exact %.9g", rms_isa_active(), eps[i], e, j, (double)y[j],
                  (double)x[j] * r);
        T_CHECK(is_close((double)x[j] * r, y[j]));
      }
    }
}

static void exact_gradient(const float *x, const float *dy, rms_kind kind, double eps, double *dx) {
  double mean = 0, ux = 0, u = 0;
  for (int j = 0; j < COLS && kind == RMS_KIND_LAYER; j++)
    mean += (double)x[j] / COLS;
  double rms = sqrt(mean_square(x, mean)), r = 1 / (rms + eps);
  for (int j = 0; j < COLS; j++) {
    ux += (double)dy[j] * ((double)x[j] - mean);
    u += (double)dy[j] / COLS;
  }
  for (int j = 0; j < COLS; j++) {
    double along = ux / rms * r * r / COLS * ((double)x[j] - mean);
    dx[j] = ((double)dy[j] - (kind == RMS_KIND_LAYER ? u : 0)) * r - along;
  }
}

/* With eps outside the root the second term of dx is small beside eps, but not zero. Elements with dy = 0 have no
 * other. */
static void eps_outside_here(void) {
  static const double eps[] = {1e-5, 1e-8, 1};
  static const float dy[COLS] = {1, 0, 0, 0};
  for (size_t i = 0; i < T_COUNT(eps); i++)
    for (int e = -124; e <= -40; e++) {
      float x[COLS], dx[COLS];
      double exact[COLS];
      make_row(x, ldexp(1.25, e));
      rms_spec spec = {.cols = COLS, .eps = eps[i], .eps_place = RMS_EPS_OUTSIDE};
      rms_backward_args args = {.outer = 1, .x = {x, RMS_F32}, .dy = {.data = dy}, .dx = {.data = dx}};
      T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
      exact_gradient(x, dy, RMS_KIND_RMS, (double)(float)eps[i], exact);
      for (int j = 0; j < COLS; j++) {
        t_context("%s: eps %g, 2^%d, element %d: %.9g, exact %.9g", rms_isa_active(), eps[i], e, j, (double)dx[j],
                  exact[j]);
        T_CHECK(is_close(exact[j], dx[j]));
      }
    }
}

/* The same for LayerNorm: where dy equals its mean. */
static void eps_outside_layer_here(void) {
  static const float dy[COLS] = {1, -1, 0, 0};
  for (int e = -124; e <= -40; e++) {
    float x[COLS], dx[COLS];
    double exact[COLS];
    make_row(x, ldexp(1.25, e));
    rms_spec spec = {.cols = COLS, .eps = 1e-5, .eps_place = RMS_EPS_OUTSIDE, .kind = RMS_KIND_LAYER};
    rms_backward_args args = {.outer = 1, .x = {x, RMS_F32}, .dy = {.data = dy}, .dx = {.data = dx}};
    T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
    exact_gradient(x, dy, RMS_KIND_LAYER, (double)1e-5f, exact);
    for (int j = 0; j < COLS; j++) {
      t_context("%s: 2^%d, element %d: %.9g, exact %.9g", rms_isa_active(), e, j, (double)dx[j], exact[j]);
      T_CHECK(is_close(exact[j], dx[j]));
    }
  }
}

/* A row of each kind in numbers: with eps rounded to f32, which makes 1.4e-45 of 1e-45, and with eps outside. */
static void examples_here(void) {
  static const float dy[COLS] = {1, 0, 0, 0};
  float x[COLS], out[COLS];
  make_row(x, 1e-23);
  rms_spec spec = {.cols = COLS, .eps = 1e-45};
  rms_forward_args f = {.outer = 1, .x = {x, RMS_F32}, .y = {.data = out}};
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &f, NULL));
  T_CHECK(fabs((double)out[0] - 0.23727) < 5e-6); /* with eps as it is: 0.26968 */
  make_row(x, 1e-28);
  spec = (rms_spec){.cols = COLS, .eps = 1e-5, .eps_place = RMS_EPS_OUTSIDE};
  rms_backward_args b = {.outer = 1, .x = {x, RMS_F32}, .dy = {.data = dy}, .dx = {.data = out}};
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &b, NULL));
  T_CHECK(fabs((double)out[1] - 2.58199e-19) < 5e-25);
}

/* Large elements outside the statistic of a tiny row, with dy = 0 there, change nothing of the other gradients. */
static void outside_the_statistic_here(void) {
  const rms_spec spec = {.cols = 2 * COLS, .partial = COLS};
  float dx[2][2 * COLS];
  for (int large = 0; large < 2; large++) {
    float x[2 * COLS], y[2 * COLS], dy[2 * COLS] = {1, -1, 0.5f, 2}, rstd = 0;
    make_row(x, 0x1p-60);
    make_row(x + COLS, large ? 0x1p40 : 1);
    rms_forward_args f = {.outer = 1, .x = {.data = x, .dtype = RMS_F32}, .y = {.data = y}, .rstd = &rstd};
    T_EQ_STATUS(RMS_OK, rms_forward(&spec, &f, NULL));
    rms_backward_args args = {.outer = 1, .dy = {.data = dy}, .x = {.data = x, .dtype = RMS_F32}, .rstd = &rstd};
    args.dx.data = dx[large];
    T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
  }
  T_CHECK(dx[0][0] != 0);
  T_EQ_BYTES(dx[0], dx[1], COLS * sizeof **dx);
}

static void outside_the_statistic(void) {
  each_isa(outside_the_statistic_here);
}

static void examples(void) {
  each_isa(examples_here);
}
static void subnormal_eps(void) {
  each_isa(subnormal_eps_here);
}
static void eps_outside(void) {
  each_isa(eps_outside_here);
}
static void eps_outside_layer(void) {
  each_isa(eps_outside_layer_here);
}

static const t_case cases[] = {{"examples", examples},
                               {"subnormal_eps", subnormal_eps},
                               {"outside_the_statistic", outside_the_statistic},
                               {"eps_outside", eps_outside},
                               {"eps_outside_layer", eps_outside_layer}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
