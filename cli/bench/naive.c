/* SPDX-License-Identifier: MIT */
#include "naive.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* The type is a constant wherever these are used. */
INLINE float get(const void *data, rms_dtype dtype, int64_t i) {
  if (dtype == RMS_F32) return ((const float *)data)[i];
  uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

INLINE void set(void *data, rms_dtype dtype, int64_t i, float value) {
  if (dtype == RMS_F32) {
    ((float *)data)[i] = value;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  ((uint16_t *)data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

INLINE void forward(const bench_case *c, rms_dtype t, int layer) {
  const rms_forward_args *a = &c->forward;
  int64_t n = c->spec.cols, rows = a->outer * a->inner;
  for (int64_t i = 0; i < rows; i++) {
    float mean = 0, square = 0;
    if (layer) {
      for (int64_t j = 0; j < n; j++)
        mean += get(a->x.data, t, i * n + j);
      mean /= (float)n;
    }
    for (int64_t j = 0; j < n; j++) {
      float d = get(a->x.data, t, i * n + j) - mean;
      square += d * d;
    }
    float r = 1 / sqrtf(square / (float)n + (float)c->spec.eps);
    for (int64_t j = 0; j < n; j++)
      set(a->y.data, t, i * n + j, (get(a->x.data, t, i * n + j) - mean) * r * get(a->weight, t, j));
  }
}

INLINE void backward(const bench_case *c, rms_dtype t, int layer) {
  const rms_backward_args *a = &c->backward;
  int64_t n = c->spec.cols, rows = a->outer * a->inner;
  float *dweight = a->workspace; /* f32 sums, whatever the type of dweight */
  memset(dweight, 0, (size_t)n * sizeof *dweight);
  for (int64_t i = 0; i < rows; i++) {
    float r = ((const float *)a->rstd)[i], mean = layer ? ((const float *)a->mean)[i] : 0, sum_u = 0, sum_uh = 0;
    for (int64_t j = 0; j < n; j++) {
      float u = get(a->dy.data, t, i * n + j) * get(a->weight, t, j);
      sum_u += u;
      sum_uh += u * (get(a->x.data, t, i * n + j) - mean) * r;
    }
    float mean_u = layer ? sum_u / (float)n : 0, mean_uh = sum_uh / (float)n;
    for (int64_t j = 0; j < n; j++) {
      float dy = get(a->dy.data, t, i * n + j), h = (get(a->x.data, t, i * n + j) - mean) * r;
      set(a->dx.data, t, i * n + j, r * (dy * get(a->weight, t, j) - mean_u - h * mean_uh));
      dweight[j] += dy * h;
    }
  }
  for (int64_t j = 0; j < n; j++)
    set(a->dweight, t, j, dweight[j]);
}

int naive_supports(const bench_case *c) {
  const verify_problem *p = &c->base.problem;
  const verify_spec *s = &p->spec;
  rms_dtype t = s->dtype;
  if (t != RMS_F32 && t != RMS_BF16) return 0;
  if (!p->has_weight || s->weight_dtype != t || s->weight_offset != 0 || s->weight_per_inner) return 0;
  if (p->has_bias || p->has_residual || p->has_dresidual || p->accumulate || p->pad || p->threads > 1) return 0;
  if (s->y_dtype != RMS_AS_X || p->channels_first) return 0;
  /* their squares, or products with them, overflow */
  if (p->data == VERIFY_HUGE || p->data == VERIFY_MAX) return 0;
  if (p->backward && (p->dy_data == VERIFY_HUGE || p->dy_data == VERIFY_MAX)) return 0;
  if (s->partial || s->groups > 1 || s->eps_place || s->rounding || s->gate_place || s->steps) return 0;
  if (!p->backward) return p->outputs == VERIFY_OUT_Y;
  return p->outputs == (VERIFY_OUT_DX | VERIFY_OUT_DW) && !p->recompute && s->grad_dtype == t &&
         c->backward.workspace_bytes >= (size_t)s->cols * sizeof(float);
}

void naive_run(const bench_case *c) {
  int layer = c->spec.kind == RMS_KIND_LAYER, wide = c->base.problem.spec.dtype == RMS_F32;
  switch (c->base.problem.backward * 4 + layer * 2 + wide) {
  case 0:
    forward(c, RMS_BF16, 0);
    break;
  case 1:
    forward(c, RMS_F32, 0);
    break;
  case 2:
    forward(c, RMS_BF16, 1);
    break;
  case 3:
    forward(c, RMS_F32, 1);
    break;
  case 4:
    backward(c, RMS_BF16, 0);
    break;
  case 5:
    backward(c, RMS_F32, 0);
    break;
  case 6:
    backward(c, RMS_BF16, 1);
    break;
  default:
    backward(c, RMS_F32, 1);
  }
}
