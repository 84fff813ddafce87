/* SPDX-License-Identifier: MIT
 *
 * Training steps on a pool of threads: residual add + RMSNorm forward, a squared loss, the backward pass, and a step
 * down the gradient of the weight. The gradients of the first step are compared with plain loops in double. */
#include <rmsnorm.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 512, COLS = 384, STEPS = 5 };
static const double EPS = 1e-5;

static float x[ROWS][COLS], residual[ROWS][COLS], target[ROWS][COLS]; /* given                            */
static float sum[ROWS][COLS], y[ROWS][COLS], rstd[ROWS];              /* forward: x + residual, its norm  */
static float dy[ROWS][COLS], dx[ROWS][COLS];                          /* backward                         */
static float weight[COLS], dweight[COLS];

static float noise(void) {
  static unsigned state = 7;
  state = state * 1664525u + 1013904223u;
  return ((float)(state >> 8) - 8388608.0f) / 4194304.0f;
}

static void fill(void) {
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLS; j++) {
      x[i][j] = noise();
      residual[i][j] = noise();
      target[i][j] = noise();
    }
  for (int j = 0; j < COLS; j++)
    weight[j] = 1.0f;
}

static double loss_and_dy(void) {
  double loss = 0;
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLS; j++) {
      dy[i][j] = y[i][j] - target[i][j];
      loss += 0.5 * (double)dy[i][j] * (double)dy[i][j] / ROWS;
    }
  return loss;
}

/* dx = dy*g*r - s * sum(dy*g*s) * r^3 / n and dweight = sum over rows of dy*s*r, with s = x + residual, as plain loops:
 * how many elements differ by more than rounding explains. A sum of n terms is off by at most n roundings of 2^-24 of
 * their sizes; r holds a sum of COLS squares and enters by its third power; 16 more for the rest. */
static int misses(void) {
  static double want_dweight[COLS], size_dweight[COLS];
  const double bound = (3 * COLS + ROWS + 16) * ldexp(1, -24);
  int count = 0;
  for (int i = 0; i < ROWS; i++) {
    double squares = 0, dot = 0, dot_size = 0;
    for (int j = 0; j < COLS; j++) {
      const double s = (double)sum[i][j], u = (double)dy[i][j] * (double)weight[j];
      squares += s * s;
      dot += u * s;
      dot_size += fabs(u * s);
    }
    const double r = 1 / sqrt(squares / COLS + EPS);
    for (int j = 0; j < COLS; j++) {
      const double s = (double)sum[i][j], u = (double)dy[i][j] * (double)weight[j];
      const double want = u * r - s * dot * r * r * r / COLS;
      const double size = fabs(u * r) + fabs(s) * dot_size * r * r * r / COLS;
      count += !(fabs((double)dx[i][j] - want) <= bound * size);
      want_dweight[j] += (double)dy[i][j] * s * r;
      size_dweight[j] += fabs((double)dy[i][j] * s * r);
    }
  }
  for (int j = 0; j < COLS; j++)
    count += !(fabs((double)dweight[j] - want_dweight[j]) <= bound * size_dweight[j]);
  return count;
}

int main(void) {
  fill();
  rms_spec spec = {.cols = COLS, .eps = EPS};
  rms_forward_args forward = {.outer = ROWS,
                              .x = {x, RMS_F32},
                              .residual = {.data = residual},
                              .weight = weight,
                              .y = {.data = y},
                              .residual_out = {.data = sum},
                              .rstd = rstd};
  rms_backward_args backward = {.outer = ROWS,
                                .dy = {.data = dy},
                                .x = {sum, RMS_F32},
                                .weight = weight,
                                .rstd = rstd,
                                .dx = {.data = dx},
                                .dweight = dweight};

  /* Allocated once and used in every step: the library itself allocates nothing. */
  backward.workspace_bytes = rms_backward_workspace(&spec, &backward);
  char *room = malloc(backward.workspace_bytes + 63);
  backward.workspace = room + (64 - (uintptr_t)room % 64) % 64; /* on a multiple of 64 bytes */
  rms_pool *pool = NULL;
  rms_status status = room ? rms_pool_create(&pool, 2) : RMS_E_MEMORY;
  if (status != RMS_OK) return fprintf(stderr, "training: %s\n", rms_status_string(status)), 1;
  const rms_executor threads = rms_pool_executor(pool);

  double first_loss = 0, loss = 0;
  int wrong = 0;
  for (int step = 0; step < STEPS && status == RMS_OK; step++) {
    status = rms_forward(&spec, &forward, &threads);
    loss = loss_and_dy();
    if (status == RMS_OK) status = rms_backward(&spec, &backward, &threads);
    if (step == 0) {
      first_loss = loss;
      wrong = misses();
    }
    for (int j = 0; j < COLS; j++)
      weight[j] -= 0.5f / ROWS * dweight[j];
  }
  rms_pool_destroy(pool);
  free(room);
  if (status != RMS_OK) return fprintf(stderr, "training: %s\n", rms_status_string(status)), 1;

  printf("loss %.4f -> %.4f in %d steps; %d gradients differ from a plain loop\n", first_loss, loss, STEPS, wrong);
  return !(loss < first_loss) || wrong > 0;
}
