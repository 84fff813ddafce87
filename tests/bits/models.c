/* SPDX-License-Identifier: MIT
 * Two models' own arithmetic, step by step: a norm without a weight, and what the model writes around it in plain C,
 * give the bits of one call. adaLN    y = T(T(h*T(1 + scale)) + shift), a scale and shift of each sample, cut out of
 * one tensor Llama    with f32 weights beside bf16 data: y = w*T(h) in f32 */
#include "call.h"

#include <stdlib.h>
#include <string.h>
#include "../verify/number.h"

enum { TOKENS = 5, SAMPLES = 3, COLS = 96, ROWS = TOKENS * SAMPLES, CHUNKS = 6 };

typedef struct scene {
  uint16_t x[ROWS * COLS], y[ROWS * COLS], dx[ROWS * COLS]; /* [sample][token][column] */
  uint16_t dy[ROWS * COLS], h[ROWS * COLS], u[ROWS * COLS], expected[ROWS * COLS];
  uint16_t modulation[SAMPLES * CHUNKS * COLS], dscale[SAMPLES * COLS], dshift[SAMPLES * COLS];
  float weight[COLS], wide_y[ROWS * COLS], wide_dy[ROWS * COLS], dweight[COLS];
  _Alignas(64) unsigned char workspace[1 << 20];
} scene;

static const rms_dtype T16 = RMS_BF16;

static double get(const uint16_t *p, int64_t i) {
  return verify_load(T16, p, i);
}

/* T(value), in f32 first, as torch has it. */
static double t16(double value) {
  return verify_round(T16, verify_round(RMS_F32, value));
}

static rms_const_view rows16(const uint16_t *data, int transposed) {
  rms_const_view v = {data, T16, 0, 0, 0, 0};
  if (transposed) v.outer_stride = COLS, v.inner_stride = (int64_t)TOKENS * COLS;
  return v;
}

static rms_view out16(uint16_t *data, int transposed) {
  rms_const_view v = rows16(data, transposed);
  return (rms_view){data, T16, 0, v.outer_stride, v.inner_stride, 0};
}

static scene *fresh(uint64_t seed) {
  static scene s;
  memset(&s, 0, sizeof s);
  t_fill(s.x, T16, ROWS * COLS, T_NORMAL, seed, 0, 0);
  t_fill(s.dy, T16, ROWS * COLS, T_NORMAL, seed, 1, 0);
  t_fill(s.modulation, T16, SAMPLES * CHUNKS * COLS, T_NORMAL, seed, 2, 0);
  t_fill(s.weight, RMS_F32, COLS, T_NORMAL, seed, 3, 0);
  t_fill(s.wide_dy, RMS_F32, ROWS * COLS, T_NORMAL, seed, 4, 0);
  return &s;
}

/* h in T of every row, and dx of what u is, by a norm without a weight. */
static void plain_forward(scene *s, rms_kind kind) {
  rms_spec spec = {.cols = COLS, .eps = 1e-6, .kind = kind};
  rms_forward_args args = {.outer = ROWS, .x = rows16(s->x, 0), .y = out16(s->h, 0)};
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
}

static void plain_backward(scene *s, rms_kind kind) {
  rms_spec spec = {.cols = COLS, .eps = 1e-6, .kind = kind};
  rms_backward_args args = {.outer = ROWS, .dy = rows16(s->u, 0), .x = rows16(s->x, 0), .dx = out16(s->expected, 0)};
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
}

static void adaln_reference(scene *s, uint16_t *dscale, uint16_t *dshift) {
  plain_forward(s, RMS_KIND_LAYER);
  for (int64_t sample = 0; sample < SAMPLES; sample++)
    for (int64_t j = 0; j < COLS; j++) {
      const uint16_t *scale = s->modulation + (sample * CHUNKS + 1) * COLS,
                     *shift = s->modulation + sample * CHUNKS * COLS;
      double gain = t16(1 + get(scale, j)), scales = 0, shifts = 0;
      for (int64_t token = 0; token < TOKENS; token++) {
        int64_t at = (sample * TOKENS + token) * COLS + j;
        verify_store(T16, s->expected, at, t16(t16(get(s->h, at) * gain) + get(shift, j)));
        verify_store(T16, s->u, at, t16(get(s->dy, at) * gain));
        scales = verify_round(RMS_F32, scales + t16(get(s->dy, at) * get(s->h, at)));
        shifts = verify_round(RMS_F32, shifts + get(s->dy, at));
      }
      verify_store(T16, dscale, sample * COLS + j, scales);
      verify_store(T16, dshift, sample * COLS + j, shifts);
    }
}

static void adaln(void) {
  static uint16_t dscale[SAMPLES * COLS], dshift[SAMPLES * COLS];
  scene *s = fresh(t_seed());
  rms_spec spec = {.cols = COLS, .eps = 1e-6, .kind = RMS_KIND_LAYER, .weight_offset = 1, .weight_per_inner = 1};
  spec.rounding = RMS_ROUND_BEFORE_WEIGHT;
  spec.gain_rounding = RMS_GAIN_AS_WEIGHT;
  rms_forward_args f = {.outer = TOKENS, .inner = SAMPLES, .x = rows16(s->x, 1), .y = out16(s->y, 1)};
  f.weight = s->modulation + COLS;
  f.bias = s->modulation;
  f.weight_stride = CHUNKS * COLS;
  rms_backward_args b = {.outer = TOKENS, .inner = SAMPLES, .dy = rows16(s->dy, 1), .x = rows16(s->x, 1)};
  b.dx = out16(s->dx, 1);
  b.weight = f.weight;
  b.weight_stride = f.weight_stride;
  b.dweight = s->dscale;
  b.dbias = s->dshift;
  b.workspace = s->workspace;
  b.workspace_bytes = sizeof s->workspace;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &f, NULL));
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &b, NULL));
  adaln_reference(s, dscale, dshift);
  T_EQ_ELEMENTS(s->expected, s->y, T16, ROWS * COLS);
  T_EQ_ELEMENTS(dscale, s->dscale, T16, SAMPLES * COLS);
  T_EQ_ELEMENTS(dshift, s->dshift, T16, SAMPLES * COLS);
  plain_backward(s, RMS_KIND_LAYER);
  T_EQ_ELEMENTS(s->expected, s->dx, T16, ROWS * COLS);
}

static void llama_f32_weights(void) {
  static float y[ROWS * COLS], dweight[COLS];
  scene *s = fresh(t_seed());
  rms_spec spec = {.cols = COLS, .eps = 1e-6, .rounding = RMS_ROUND_BEFORE_WEIGHT};
  rms_forward_args f = {.outer = ROWS, .x = rows16(s->x, 0), .weight = s->weight, .weight_dtype = RMS_F32};
  f.y = (rms_view){.data = s->wide_y, .dtype = RMS_F32};
  rms_backward_args b = {.outer = ROWS, .x = rows16(s->x, 0), .dx = out16(s->dx, 0), .weight = s->weight};
  b.dy = (rms_const_view){.data = s->wide_dy, .dtype = RMS_F32};
  b.weight_dtype = b.dweight_dtype = RMS_F32;
  b.dweight = s->dweight;
  b.workspace = s->workspace;
  b.workspace_bytes = sizeof s->workspace;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &f, NULL));
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &b, NULL));
  plain_forward(s, RMS_KIND_RMS);
  memset(dweight, 0, sizeof dweight);
  for (int64_t i = 0; i < ROWS * COLS; i++) {
    float q = (float)get(s->h, i), product = s->wide_dy[i] * q, u = s->wide_dy[i] * s->weight[i % COLS];
    y[i] = q * s->weight[i % COLS];
    dweight[i % COLS] = (float)((double)dweight[i % COLS] + (double)product); /* one rounding: never an fma */
    verify_store(T16, s->u, i, (double)u);
  }
  T_EQ_ELEMENTS(y, s->wide_y, RMS_F32, ROWS * COLS);
  T_EQ_ELEMENTS(dweight, s->dweight, RMS_F32, COLS);
  plain_backward(s, RMS_KIND_RMS);
  T_EQ_ELEMENTS(s->expected, s->dx, T16, ROWS * COLS);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"adaln", adaln}, {"llama_f32_weights", llama_f32_weights}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
