/* SPDX-License-Identifier: MIT
 * The quantised norms of engines whose code is public, written out in plain C from x, the residual, the weight and r.
 * Where docs/numerics.md promises their bits, every instruction set has them; where it promises that q is at most one
 * step away, it is, and at least the documented share of q is equal. */
#include "call.h"

#include <float.h>
#include <math.h>
#include <string.h>
#include "../verify/number.h"

enum { ROWS = 256, COLS = 256, GROUP = 128, N = ROWS * COLS, Q8_0 = 32 };

typedef enum addition { ALONE, SUM_ROUNDED, SUM_UNROUNDED } addition; /* what is normalised: x, T(x + r) or x + r */

/* y of one block, n elements, in; the numbers of q and the scale out. `given`: the scale of the tensor. */
typedef void quantise(const float *y, int n, rms_dtype type, float given, float *q, float *scale);

typedef struct engine {
  const char *name;
  quantise *run;
  rms_dtype q;
  int64_t block; /* elements with one scale, 0: the tensor's is given */
  int32_t rounding;
  addition added;
  float least;   /* scale_least, or */
  float least_a; /* the least a, rounded to T, of which scale_least is the 127th part */
  double share;  /* of the elements of q that are equal, at least; 1: all */
} engine;

/* ---- Numbers ---- */

static float round_to(rms_dtype type, float value) {
  return (float)verify_round(type, (double)value);
}

/* To the nearest 8-bit float, ties to even: 3 digits after the first, numbers below 2^-6 are multiples of 2^-9. */
static float e4m3(float t) {
  const float step = fabsf(t) < 0x1p-6f ? 0x1p-9f : ldexpf(1, ilogbf(t) - 3);
  return copysignf(fminf(448, rintf(fabsf(t) / step) * step), t);
}

static float int8(float t) { /* cvt.rni.sat.s8.f32 */
  return fminf(fmaxf(rintf(t), -128), 127);
}

static float largest(const float *y, int n, float least) {
  for (int j = 0; j < n; j++)
    least = fmaxf(least, fabsf(y[j]));
  return least;
}

/* ---- vLLM ---- */

/* rms_norm_dynamic_per_token_quant, and the same in blocks; min_scaling_factor<int8_t> is the epsilon of float. */
static void vllm_dynamic_int8(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)type, (void)given;
  *scale = fmaxf(largest(y, n, 0) / 127, FLT_EPSILON);
  const float inverse = 1 / *scale;
  for (int j = 0; j < n; j++)
    q[j] = int8(y[j] * inverse);
}

static void vllm_dynamic_e4m3(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)type, (void)given;
  *scale = fmaxf(largest(y, n, 0) / 448, 1.0f / (448 * 512.0f));
  for (int j = 0; j < n; j++)
    q[j] = e4m3(y[j] / *scale);
}

/* rms_norm_static_fp8_quant */
static void vllm_static_e4m3(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)type;
  const float inverse = 1 / given;
  *scale = given;
  for (int j = 0; j < n; j++)
    q[j] = e4m3(y[j] * inverse);
}

/* static_scaled_int8_quant, dynamic_scaled_int8_quant, per_token_group_quant_fp8: of what a norm wrote */
static void vllm_static_int8(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)type;
  *scale = given;
  for (int j = 0; j < n; j++)
    q[j] = int8(y[j] / given);
}

static void vllm_int8(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)type, (void)given;
  const float a = largest(y, n, 0), inverse = a > 0 ? 127 / a : 0;
  *scale = a / 127;
  for (int j = 0; j < n; j++)
    q[j] = int8(y[j] * inverse);
}

static void vllm_groups(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)type, (void)given;
  *scale = largest(y, n, 1e-10f) / 448;
  for (int j = 0; j < n; j++)
    q[j] = e4m3(y[j] / *scale);
}

/* ---- TensorRT-LLM: generalRmsNorm ---- */

static void trt_token_int8(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)given;
  const float a = largest(y, n, round_to(type, 1e-6f)), factor = 127 / a;
  *scale = a / 127;
  for (int j = 0; j < n; j++)
    q[j] = int8(y[j] * factor);
}

static void trt_token_e4m3(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)given;
  const float a = largest(y, n, round_to(type, 1e-6f)), factor = fminf(448 / a, 448 * 512.0f);
  *scale = fmaxf(a / 448, 1.0f / (448 * 512.0f));
  for (int j = 0; j < n; j++)
    q[j] = e4m3(y[j] * factor);
}

static void trt_tensor_int8(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)type;
  const float factor = 1 / given;
  *scale = given;
  for (int j = 0; j < n; j++)
    q[j] = int8(y[j] * factor);
}

/* ---- ggml: quantize_row_q8_0 ---- */

static void ggml_x86(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)type, (void)given;
  const float a = largest(y, n, 0), inverse = a > 0 ? 127 / a : 0;
  *scale = round_to(RMS_F16, a / 127);
  for (int j = 0; j < n; j++)
    q[j] = rintf(y[j] * inverse);
}

static void ggml_arm(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)type, (void)given;
  const float d = largest(y, n, 0) / 127, inverse = d > 0 ? 1 / d : 0;
  *scale = round_to(RMS_F16, d);
  for (int j = 0; j < n; j++)
    q[j] = rintf(y[j] * inverse);
}

static void ggml_reference(const float *y, int n, rms_dtype type, float given, float *q, float *scale) {
  (void)type, (void)given;
  const float d = largest(y, n, 0) / 127, inverse = d > 0 ? 1 / d : 0;
  *scale = round_to(RMS_F16, d);
  for (int j = 0; j < n; j++)
    q[j] = roundf(y[j] * inverse);
}

#define BEFORE     RMS_ROUND_BEFORE_WEIGHT
#define AFTER      RMS_ROUND_AFTER_WEIGHT
#define E4M3_LEAST (1.0f / (448 * 512.0f))
static const engine engines[] = {
    {"vLLM, dynamic int8", vllm_dynamic_int8, RMS_I8, COLS, BEFORE, ALONE, FLT_EPSILON, 0, 1},
    {"vLLM, dynamic int8, residual", vllm_dynamic_int8, RMS_I8, COLS, BEFORE, SUM_UNROUNDED, FLT_EPSILON, 0, 1},
    {"vLLM, dynamic int8, blocks", vllm_dynamic_int8, RMS_I8, GROUP, BEFORE, ALONE, FLT_EPSILON, 0, 1},
    {"vLLM, dynamic e4m3", vllm_dynamic_e4m3, RMS_F8E4M3, COLS, BEFORE, ALONE, E4M3_LEAST, 0, 1},
    {"vLLM, dynamic e4m3, residual", vllm_dynamic_e4m3, RMS_F8E4M3, COLS, BEFORE, SUM_UNROUNDED, E4M3_LEAST, 0, 1},
    {"vLLM, dynamic e4m3, blocks", vllm_dynamic_e4m3, RMS_F8E4M3, GROUP, BEFORE, ALONE, E4M3_LEAST, 0, 1},
    {"vLLM, static e4m3", vllm_static_e4m3, RMS_F8E4M3, 0, AFTER, ALONE, 0, 0, 1},
    {"vLLM, static e4m3, residual", vllm_static_e4m3, RMS_F8E4M3, 0, AFTER, SUM_ROUNDED, 0, 0, 1},
    {"vLLM, static int8", vllm_static_int8, RMS_I8, 0, AFTER, ALONE, 0, 0, 1},
    {"vLLM, int8 of a norm's y", vllm_int8, RMS_I8, COLS, AFTER, ALONE, 0, 0, 0.999},
    {"vLLM, groups of a norm's y", vllm_groups, RMS_F8E4M3, GROUP, AFTER, ALONE, 1e-10f / 448, 0, 1},
    {"TensorRT-LLM, int8 per token", trt_token_int8, RMS_I8, COLS, AFTER, ALONE, 0, 1e-6f, 0.999},
    {"TensorRT-LLM, e4m3 per token", trt_token_e4m3, RMS_F8E4M3, COLS, AFTER, ALONE, E4M3_LEAST, 0, 0.995},
    {"TensorRT-LLM, int8 per tensor", trt_tensor_int8, RMS_I8, 0, AFTER, ALONE, 0, 0, 0.999},
    {"TensorRT-LLM, e4m3 per tensor", vllm_static_e4m3, RMS_F8E4M3, 0, AFTER, ALONE, 0, 0, 1},
    {"ggml, x86", ggml_x86, RMS_Q8_0, Q8_0, AFTER, ALONE, 0, 0, 1},
    {"ggml, ARM", ggml_arm, RMS_Q8_0, Q8_0, AFTER, ALONE, 0, 0, 0.999},
    {"ggml, reference", ggml_reference, RMS_Q8_0, Q8_0, AFTER, ALONE, 0, 0, 0.999},
};

/* ---- The library's side ---- */

static float x[N], residual[N], weight[COLS]; /* numbers of T */
static unsigned char x_bits[4 * N], residual_bits[4 * N], weight_bits[4 * COLS], q_bits[34 * N / 32];
static float rstd[ROWS], scales[N];

static void fill(rms_dtype type, float weight_scale, uint64_t seed) {
  t_fill(x_bits, type, N, T_NORMAL, seed, 0, 0);
  t_fill(residual_bits, type, N, T_NORMAL, seed, 1, 0);
  t_fill(weight_bits, type, COLS, T_NORMAL, seed, 2, 0);
  for (int64_t i = 0; i < N; i++) {
    if (i % COLS == i / COLS) verify_store(type, x_bits, i, 4 + (double)(i / COLS) / 32); /* the largest of its row */
    if (i / COLS == 7) verify_store(type, x_bits, i, 0), verify_store(type, residual_bits, i, 0);
    x[i] = (float)verify_load(type, x_bits, i);
    residual[i] = (float)verify_load(type, residual_bits, i);
  }
  for (int64_t j = 0; j < COLS; j++) {
    verify_store(type, weight_bits, j, verify_load(type, weight_bits, j) * (double)weight_scale);
    weight[j] = (float)verify_load(type, weight_bits, j);
  }
}

static void run(const engine *e, rms_dtype type, float given) {
  rms_spec spec = {.cols = COLS, .eps = 1e-6, .rounding = e->rounding};
  rms_forward_args args = {.outer = ROWS, .x = {x_bits, type}, .weight = weight_bits, .rstd = rstd};
  args.q = (rms_view){.data = q_bits, .dtype = (int32_t)e->q};
  spec.scale_least = (double)(e->least_a > 0 ? round_to(type, e->least_a) / 127 : e->least);
  if (e->q != RMS_Q8_0) {
    spec.scale_block = e->block;
    args.scale = scales;
    scales[0] = given;
  }
  if (e->added == SUM_ROUNDED) args.residual = (rms_const_view){residual_bits, type};
  if (e->added == SUM_UNROUNDED) args.residual = (rms_const_view){residual, RMS_F32};
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
}

/* y of a row by r, as the engine forms it. */
static void form_y(const engine *e, rms_dtype type, int64_t row, float *y) {
  for (int64_t j = 0; j < COLS; j++) {
    float v = x[row * COLS + j];
    if (e->added != ALONE) v += residual[row * COLS + j];
    if (e->added == SUM_ROUNDED) v = round_to(type, v);
    float h = v * rstd[row];
    if (e->rounding == BEFORE) h = round_to(type, h);
    y[j] = round_to(type, h * weight[j]);
  }
}

static float number_of_q(const engine *e, int64_t i) {
  if (e->q == RMS_Q8_0) return (signed char)q_bits[i / 32 * 34 + 2 + i % 32];
  if (e->q == RMS_I8) return (signed char)q_bits[i];
  const int byte = q_bits[i] & 0x7f;
  const float number = byte < 8 ? ldexpf((float)byte, -9) : ldexpf((float)(8 + byte % 8), byte / 8 - 10);
  return byte == 0x7f ? NAN : q_bits[i] & 0x80 ? -number : number;
}

static float scale_of(const engine *e, int64_t i) {
  if (e->q == RMS_Q8_0) return (float)verify_load(RMS_F16, q_bits + i / 32 * 34, 0);
  return scales[e->block ? i / e->block : 0];
}

/* 0: equal; 1: neighbours in the type of q, as e4m3 of numbers up to one another; 2: further apart. */
static int distance(const engine *e, float a, float b) {
  if (a == b && signbit(a) == signbit(b)) return 0;
  if (e->q != RMS_F8E4M3) return a == b ? 0 : fabsf(a - b) <= 1 ? 1 : 2;
  const float low = fminf(fabsf(a), fabsf(b)), high = fmaxf(fabsf(a), fabsf(b));
  const float step = low < 0x1p-6f ? 0x1p-9f : ldexpf(1, ilogbf(low) - 3);
  return signbit(a) == signbit(b) && high - low <= step ? 1 : 2;
}

static void compare(const engine *e, rms_dtype type, float given) {
  static float y[COLS], q[COLS];
  int64_t equal = 0, apart = 0, scales_apart = 0;
  const int64_t block = e->block ? e->block : COLS;
  for (int64_t row = 0; row < ROWS; row++) {
    form_y(e, type, row, y);
    for (int64_t j = 0; j < COLS; j += block) {
      float scale;
      e->run(y + j, (int)block, type, given, q + j, &scale);
      scales_apart += scale != scale_of(e, row * COLS + j);
    }
    for (int64_t j = 0; j < COLS; j++) {
      const int far = distance(e, fmaxf(q[j], e->q == RMS_I8 ? -127 : -448), number_of_q(e, row * COLS + j));
      equal += far == 0;
      apart += far > 1;
    }
  }
  T_EQ_INT(0, scales_apart);
  T_EQ_INT(0, apart);
  if (e->share < 1)
    T_CHECK((double)equal / N >= e->share);
  else
    T_EQ_INT(N, equal);
}

static void same_bits_as_engines(void) {
  static const rms_dtype types[] = {RMS_BF16, RMS_F16, RMS_F32};
  static const float weights[] = {1, 0x1p-20f, 0x1p-24f}; /* with the last ones, scales are the least */
  const t_isas isas = t_usable_isas();
  for (int t = 0; t < 3; t++)
    for (size_t w = 0; w < T_COUNT(weights); w++) {
      fill(types[t], weights[w], t_seed() + w);
      for (size_t k = 0; k < T_COUNT(engines); k++)
        for (int i = 0; i < isas.count; i++) {
          const float given = 3 / 128.0f * weights[w]; /* some quotients are ties, some elements saturate */
          t_context("%s, %s, type %d, weights of %g", isas.name[i], engines[k].name, types[t], (double)weights[w]);
          T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
          run(&engines[k], types[t], given);
          compare(&engines[k], types[t], given);
        }
    }
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"same_bits_as_engines", same_bits_as_engines}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
