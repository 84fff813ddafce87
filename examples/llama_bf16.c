/* SPDX-License-Identifier: MIT
 *
 * bf16 in the rounding order of the Llama models: normalise in f32, round to bf16, then multiply by the bf16 weight and
 * round again. PyTorch's rms_norm and Gemma round once, after the weight. The two orders give different results in many
 * elements, so run a model with the order that it was trained with. */
#include <rmsnorm.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 3, COLS = 256 };
static const float EPS = 1e-5f;

static uint16_t to_bf16(float value) { /* to nearest, ties to even; there is no NaN here */
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Small whole numbers: their squares add up exactly in every order, so a plain loop must give the library's bits. */
static void fill(uint16_t x[ROWS][COLS], uint16_t weight[COLS]) {
  for (int j = 0; j < COLS; j++) {
    weight[j] = to_bf16(1.0f + (float)(j % 37) / 64);
    for (int i = 0; i < ROWS; i++)
      x[i][j] = to_bf16((float)((j * 29 + i * 11) % 61 - 30));
  }
}

static void plain_llama(uint16_t y[ROWS][COLS], uint16_t x[ROWS][COLS], const uint16_t weight[COLS]) {
  for (int i = 0; i < ROWS; i++) {
    float sum = 0;
    for (int j = 0; j < COLS; j++)
      sum += from_bf16(x[i][j]) * from_bf16(x[i][j]);
    const float r = 1.0f / sqrtf(sum / COLS + EPS);
    for (int j = 0; j < COLS; j++) {
      const uint16_t q = to_bf16(from_bf16(x[i][j]) * r);
      y[i][j] = to_bf16(from_bf16(q) * from_bf16(weight[j]));
    }
  }
}

static int differing(uint16_t a[ROWS][COLS], uint16_t b[ROWS][COLS]) {
  int count = 0;
  for (int i = 0; i < ROWS * COLS; i++)
    count += (&a[0][0])[i] != (&b[0][0])[i];
  return count;
}

int main(void) {
  static uint16_t x[ROWS][COLS], weight[COLS], llama[ROWS][COLS], torch[ROWS][COLS], plain[ROWS][COLS];
  fill(x, weight);
  plain_llama(plain, x, weight);

  rms_spec spec = {.cols = COLS, .eps = (double)EPS, .rounding = RMS_ROUND_BEFORE_WEIGHT};
  rms_forward_args args = {.outer = ROWS, .x = {x, RMS_BF16}, .weight = weight, .y = {.data = llama}};
  rms_status status = rms_forward(&spec, &args, NULL);
  spec.rounding = RMS_ROUND_AFTER_WEIGHT;
  args.y.data = torch;
  if (status == RMS_OK) status = rms_forward(&spec, &args, NULL);
  if (status != RMS_OK) return fprintf(stderr, "llama_bf16: %s\n", rms_status_string(status)), 1;

  printf("%d of %d elements differ between the two rounding orders\n", differing(llama, torch), ROWS * COLS);
  if (differing(llama, plain) > 0) return fprintf(stderr, "llama_bf16: the plain loop gives other bits\n"), 1;
  return differing(llama, torch) > 0 ? 0 : 1;
}
