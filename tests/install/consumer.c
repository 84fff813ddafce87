/* SPDX-License-Identifier: MIT
 *
 * A program of a user of the installed library; C and C++. Exits with the number of what is wrong. */
#include <rmsnorm.h>
#ifdef CONSUMER_OPENMP
#include <rmsnorm_openmp.h>
#include <rmsnorm_openmp_loaded.h>
#endif
#include <stdio.h>
#include <string.h>

enum { ROWS = 1000, COLS = 300 };
static float x[ROWS][COLS], y[ROWS][COLS];

/* Each row holds one power of two with both signs, so that every step is exact and the normalised elements are +-1. */
static void fill(void) {
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLS; j++)
      x[i][j] = (float)((1 << i % 8) * (j % 3 == 0 ? -1 : 1));
}

static int wrong_elements(void) {
  int wrong = 0;
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLS; j++)
      wrong += !(y[i][j] == (j % 3 == 0 ? -1.0f : 1.0f));
  memset(y, 0, sizeof y);
  return wrong;
}

static rms_status forward(const rms_executor *executor) {
  rms_spec spec;
  rms_forward_args args;
  memset(&spec, 0, sizeof spec);
  memset(&args, 0, sizeof args);
  spec.cols = COLS;
  args.outer = ROWS;
  args.x.data = x;
  args.x.dtype = RMS_F32;
  args.y.data = y;
  return rms_forward(&spec, &args, executor);
}

int main(void) {
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", RMSNORM_VERSION_MAJOR, RMSNORM_VERSION_MINOR, RMSNORM_VERSION_PATCH);
  if (strcmp(version, rms_version()) != 0) return fprintf(stderr, "library %s, header %s\n", rms_version(), version), 1;

  fill();
  if (rms_norm_f32(&y[0][0], &x[0][0], NULL, ROWS, COLS, 0) != RMS_OK || wrong_elements() > 0) return 2;

  rms_pool *pool = NULL;
  if (rms_pool_create(&pool, 2) != RMS_OK) return 3;
  rms_executor executor = rms_pool_executor(pool);
  if (forward(&executor) != RMS_OK || wrong_elements() > 0) return 4;
  rms_pool_destroy(pool);

#ifdef CONSUMER_OPENMP
  executor = rms_openmp_executor(2);
  if (forward(&executor) != RMS_OK || wrong_elements() > 0) return 5;
  rms_openmp_loaded runtime;
  if (!rms_openmp_loaded_find(&runtime, NULL)) return 6;
  executor = rms_openmp_loaded_executor(&runtime);
  if (forward(&executor) != RMS_OK || wrong_elements() > 0) return 7;
#endif
  printf("consumer: rmsnorm %s works\n", rms_version());
  return 0;
}
