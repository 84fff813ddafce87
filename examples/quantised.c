/* SPDX-License-Identifier: MIT
 *
 * A norm in front of a product of 8-bit integers: int8 with a scale for each row, straight from bf16, in one pass. y
 * itself is not stored. Other types are RMS_F8E4M3, RMS_F8E5M2 and RMS_Q8_0; scale_block = 128 has a scale for each 128
 * elements, 0 one for the tensor, which is then given. */
#include <rmsnorm.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 4, COLS = 256 };

static uint16_t x[ROWS][COLS], weight[COLS], y[ROWS][COLS];
static int8_t q[ROWS][COLS];
static float scale[ROWS];

static float from_bf16(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void fill(void) {
  unsigned state = 1;
  for (int i = 0; i < ROWS * COLS; i++) {
    state = state * 1664525u + 1013904223u;
    (&x[0][0])[i] = (uint16_t)(0x3e00u + (state >> 31) * 0x8000u + (state >> 22 & 0x1ff)); /* 0.125 to 2, either sign */
  }
  for (int j = 0; j < COLS; j++)
    weight[j] = (uint16_t)(0x3f80 + j % 64); /* 1 to 1.5 */
}

static float largest(const uint16_t *row) {
  float most = 0;
  for (int j = 0; j < COLS; j++)
    if (fabsf(from_bf16(row[j])) > most) most = fabsf(from_bf16(row[j]));
  return most;
}

/* Whether q and the scales are those of y, which the same call without q gives: max|y|/127, and y times 1/scale to
 * nearest. */
static int misses(void) {
  int count = 0;
  for (int i = 0; i < ROWS; i++) {
    if (scale[i] != largest(y[i]) / 127) count++;
    for (int j = 0; j < COLS; j++)
      if (lrintf(from_bf16(y[i][j]) * (1 / scale[i])) != q[i][j]) count++;
  }
  return count;
}

int main(void) {
  fill();
  rms_spec spec = {.cols = COLS, .eps = 1e-6, .scale_block = COLS};
  rms_forward_args args = {.outer = ROWS, .x = {x, RMS_BF16}, .weight = weight};
  args.q = (rms_view){.data = q, .dtype = RMS_I8};
  args.scale = scale;
  rms_status status = rms_forward(&spec, &args, NULL);

  rms_forward_args plain = {.outer = ROWS, .x = {x, RMS_BF16}, .weight = weight, .y = {.data = y}};
  if (status == RMS_OK) status = rms_forward(&spec, &plain, NULL);
  if (status != RMS_OK) return fprintf(stderr, "quantised: %s\n", rms_status_string(status)), 1;

  const int wrong = misses();
  printf("%d rows as int8, the first with scale %g; %d numbers are not those of y\n", ROWS, (double)scale[0], wrong);
  return wrong > 0;
}
