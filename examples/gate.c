/* SPDX-License-Identifier: MIT
 *
 * Norms with a gate z, as hybrid models have them: y = norm(x) * weight * silu(z) (Qwen3-Next, Kimi-Linear), and
 * y = norm(x * silu(z)) * weight (Mamba2), with the gradients of x and z. The gradients are checked against differences
 * of the forward in f64. */
#include <rmsnorm.h>
#include <math.h>
#include <stdio.h>

enum { ROWS = 3, COLS = 32 };

static double x[ROWS][COLS], z[ROWS][COLS], weight[COLS], dy[ROWS][COLS], y[ROWS][COLS];
static double dx[ROWS][COLS], dz[ROWS][COLS];

static double uniform(void) { /* -1 to 1 */
  static unsigned state = 1;
  state = state * 1664525u + 1013904223u;
  return (double)(state >> 8) / 8388608 - 1;
}

static void fill(void) {
  for (int j = 0; j < COLS; j++)
    weight[j] = 1 + uniform() / 2;
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLS; j++)
      x[i][j] = 2 * uniform(), z[i][j] = 3 * uniform(), dy[i][j] = uniform();
}

static rms_status forward(const rms_spec *spec) {
  rms_forward_args args = {.outer = ROWS, .x = {x, RMS_F64}, .weight = weight, .y = {.data = y}};
  args.gate.data = z;
  return rms_forward(spec, &args, NULL);
}

static rms_status backward(const rms_spec *spec) {
  rms_backward_args args = {.outer = ROWS, .dy = {dy, RMS_F64}, .x = {x, RMS_F64}, .weight = weight};
  args.gate.data = z;
  args.dx.data = dx;
  args.dgate.data = dz;
  return rms_backward(spec, &args, NULL);
}

/* y of an element, by the formula. */
static double expected(const rms_spec *spec, int i, int j) {
  double sum = 0, v[COLS];
  for (int k = 0; k < COLS; k++) {
    const double silu = z[i][k] / (1 + exp(-z[i][k]));
    v[k] = spec->gate_place == RMS_GATE_BEFORE ? x[i][k] * silu : x[i][k];
    sum += v[k] * v[k];
  }
  const double h = v[j] / sqrt(sum / COLS + spec->eps) * weight[j];
  return spec->gate_place == RMS_GATE_BEFORE ? h : h * z[i][j] / (1 + exp(-z[i][j]));
}

/* The sum of dy*y, whose gradients dx and dz are. */
static double loss(const rms_spec *spec) {
  double sum = 0;
  if (forward(spec) != RMS_OK) return NAN;
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLS; j++)
      sum += dy[i][j] * y[i][j];
  return sum;
}

/* By how much a gradient is off a central difference, whose own error is about step^2 = 1e-10 and 1e-16/step. */
static double off(const rms_spec *spec, double *at, double gradient) {
  const double step = 1e-5, old = *at;
  *at = old + step;
  const double above = loss(spec);
  *at = old - step;
  const double below = loss(spec);
  *at = old;
  return fabs((above - below) / (2 * step) - gradient);
}

int main(void) {
  fill();
  for (int place = RMS_GATE_AFTER; place <= RMS_GATE_BEFORE; place++) {
    const rms_spec spec = {.cols = COLS, .eps = 1e-6, .gate_place = place, .activation = RMS_ACT_SILU};
    rms_status status = forward(&spec);
    double y_off = 0, dx_off = 0, dz_off = 0;
    for (int i = 0; i < ROWS && status == RMS_OK; i++)
      for (int j = 0; j < COLS; j++)
        y_off = fmax(y_off, fabs(y[i][j] - expected(&spec, i, j)));
    if (status == RMS_OK) status = backward(&spec);
    if (status != RMS_OK) return fprintf(stderr, "gate: %s\n", rms_status_string(status)), 1;
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < COLS; j++) {
        dx_off = fmax(dx_off, off(&spec, &x[i][j], dx[i][j]));
        dz_off = fmax(dz_off, off(&spec, &z[i][j], dz[i][j]));
      }
    printf("gate %s the norm: y is off by %.1e, dx by %.1e, dz by %.1e\n", place == RMS_GATE_AFTER ? "after" : "before",
           y_off, dx_off, dz_off);
    if (!(y_off < 1e-13 && dx_off < 1e-7 && dz_off < 1e-7)) return fputs("gate: too much\n", stderr), 1;
  }
  return 0;
}
