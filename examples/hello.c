/* SPDX-License-Identifier: MIT
 *
 * The one-line call: two rows of four elements.   cc hello.c $(pkg-config --cflags --libs rmsnorm) */
#include <rmsnorm.h>
#include <math.h>
#include <stdio.h>

int main(void) {
  const float x[2][4] = {{1, 2, 3, 4}, {-8, 0, 8, 0.5f}}, weight[4] = {1, 1, 0.5f, 2};
  float y[2][4];
  rms_status status = rms_norm_f32(&y[0][0], &x[0][0], weight, 2, 4, 1e-5);
  if (status != RMS_OK) return fprintf(stderr, "rmsnorm: %s\n", rms_status_string(status)), 1;
  for (int i = 0; i < 2; i++)
    printf("% f % f % f % f\n", (double)y[i][0], (double)y[i][1], (double)y[i][2], (double)y[i][3]);

  /* The same as a plain loop. The results differ by a few roundings of 2^-24 each. */
  for (int i = 0; i < 2; i++) {
    double sum = 0;
    for (int j = 0; j < 4; j++)
      sum += (double)x[i][j] * (double)x[i][j];
    for (int j = 0; j < 4; j++) {
      const double want = (double)x[i][j] / sqrt(sum / 4 + 1e-5) * (double)weight[j];
      if (!(fabs((double)y[i][j] - want) <= 8 * ldexp(fabs(want), -24))) return fputs("hello: mismatch\n", stderr), 1;
    }
  }
  return 0;
}
