/* SPDX-License-Identifier: MIT
 *
 * LayerNorm on OpenMP's threads: the executor gives the library the threads that the program has already. The result
 * has the same bits whatever their number.   cc -fopenmp openmp.c $(pkg-config --cflags --libs rmsnorm) */
#include <rmsnorm_openmp.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 600, COLS = 1000 };
static const double EPS = 1e-5;

static float x[ROWS][COLS], one[ROWS][COLS], many[ROWS][COLS];
static float weight[COLS], bias[COLS];

static void fill(void) {
  unsigned state = 3;
  for (int i = 0; i < ROWS * COLS; i++) {
    state = state * 1664525u + 1013904223u;
    (&x[0][0])[i] = 2.0f + ((float)(state >> 8) - 8388608.0f) / 4194304.0f;
  }
  for (int j = 0; j < COLS; j++) {
    weight[j] = 1.0f + (float)(j % 10) / 10;
    bias[j] = (float)(j % 7) - 3;
  }
}

/* How many elements differ from a plain loop by more than rounding explains: mean and variance are sums of COLS terms,
 * each off by at most COLS roundings of 2^-24, and 16 more for the rest, of the sizes of x*r*g, mean*r*g
 * and the bias. */
static int misses(void) {
  const double bound = (3 * COLS + 16) * ldexp(1, -24);
  int count = 0;
  for (int i = 0; i < ROWS; i++) {
    double mean = 0, squares = 0;
    for (int j = 0; j < COLS; j++)
      mean += (double)x[i][j] / COLS;
    for (int j = 0; j < COLS; j++)
      squares += ((double)x[i][j] - mean) * ((double)x[i][j] - mean);
    const double r = 1 / sqrt(squares / COLS + EPS);
    for (int j = 0; j < COLS; j++) {
      const double g = (double)weight[j], b = (double)bias[j], h = ((double)x[i][j] - mean) * r;
      const double size = (fabs((double)x[i][j]) + fabs(mean)) * r * g + fabs(b);
      count += !(fabs((double)many[i][j] - (h * g + b)) <= bound * size);
    }
  }
  return count;
}

int main(void) {
  fill();
  rms_spec spec = {.kind = RMS_KIND_LAYER, .cols = COLS, .eps = EPS};
  rms_forward_args args = {.outer = ROWS, .x = {x, RMS_F32}, .weight = weight, .bias = bias, .y = {.data = one}};
  rms_status status = rms_forward(&spec, &args, NULL);

  const rms_executor threads = rms_openmp_executor(0);
  args.y.data = many;
  if (status == RMS_OK) status = rms_forward(&spec, &args, &threads);
  if (status != RMS_OK) return fprintf(stderr, "openmp: %s\n", rms_status_string(status)), 1;

  const int same = memcmp(one, many, sizeof one) == 0, wrong = misses();
  printf("%d threads: %s as on one thread; %d elements differ from a plain loop\n", threads.concurrency,
         same ? "same bits" : "OTHER BITS", wrong);
  return !same || wrong > 0;
}
