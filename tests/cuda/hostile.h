/* SPDX-License-Identifier: MIT
 *
 * Calls of the CUDA library that are right, and ways to spoil them. No pointer here is ever followed. */
#ifndef RMSNORM_TESTS_HOSTILE_H
#define RMSNORM_TESTS_HOSTILE_H

#include <string.h>
#include "rmsnorm_cuda.h"

/* Addresses that are far apart, aligned, and not to be touched. */
static void *at(int i) {
  return (void *)((uintptr_t)1 << 40 | (uintptr_t)i << 32);
}

static rms_spec good_spec(void) {
  rms_spec spec = {0};
  spec.cols = 64;
  spec.eps = 1e-6;
  return spec;
}

static rms_forward_args good_forward(void) {
  rms_forward_args args = {0};
  args.outer = 4;
  args.x.data = at(1);
  args.x.dtype = RMS_F32;
  args.y.data = at(2);
  return args;
}

static rms_backward_args good_backward(void) {
  rms_backward_args args = {0};
  args.outer = 4;
  args.x.data = at(1);
  args.x.dtype = RMS_F32;
  args.dy.data = at(2);
  args.dx.data = at(3);
  return args;
}

/* ---- every field, at random ---- */

static uint64_t state = 1; /* of the random numbers */

static uint64_t draw(uint64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % below;
}

static int64_t hostile(void) {
  static const int64_t values[] = {0,         1,         2,         3,         8,         63,        64,
                                   65,        4096,      -1,        -64,       INT32_MAX, INT32_MIN, (int64_t)1 << 31,
                                   1LL << 32, 1LL << 48, 1LL << 61, 1LL << 62, INT64_MAX, INT64_MIN, INT64_MAX / 64};
  int64_t value = values[draw(sizeof values / sizeof *values)];
  return draw(4) ? value : value + (int64_t)draw(5) - 2;
}

static void *somewhere(void) {
  return draw(5) == 0 ? NULL : (char *)at((int)draw(12)) + (draw(3) ? 0 : draw(130));
}

static void spoil_view(rms_const_view *v) {
  switch (draw(6)) {
  case 0:
    v->data = somewhere();
    break;
  case 1:
    v->dtype = (int32_t)draw(11) - 1;
    break;
  case 2:
    v->outer_stride = hostile();
    break;
  case 3:
    v->inner_stride = hostile();
    break;
  case 4:
    v->col_stride = hostile();
    break;
  default:
    v->reserved = (int32_t)draw(2);
  }
}

/* Views for input and output have the same layout. */
static void spoil_output(rms_view *v) {
  rms_const_view same;
  memcpy(&same, v, sizeof same);
  spoil_view(&same);
  memcpy(v, &same, sizeof same);
}

static void spoil_spec(rms_spec *spec) {
  static const double numbers[] = {0, 1, -1, 1e-6, 1e300, 1e-320};
  switch (draw(16)) {
  case 0:
    spec->cols = hostile();
    break;
  case 1:
    spec->eps = numbers[draw(6)];
    break;
  case 2:
    spec->partial = hostile();
    break;
  case 3:
    spec->indices = somewhere();
    break;
  case 4:
    spec->groups = hostile();
    break;
  case 5:
    spec->weight_offset = numbers[draw(6)];
    break;
  case 6:
    spec->kind = (int32_t)draw(3);
    break;
  case 7:
    spec->eps_place = (int32_t)draw(4);
    break;
  case 8:
    spec->rounding = (int32_t)draw(3);
    break;
  case 9:
    spec->gate_place = (int32_t)draw(4);
    break;
  case 10:
    spec->activation = (int32_t)draw(3);
    break;
  case 11:
    spec->scale_block = hostile();
    break;
  case 12:
    spec->scale_least = numbers[draw(6)];
    break;
  case 13:
    spec->gain_rounding = (int32_t)draw(3);
    break;
  case 14:
    spec->steps = (int32_t)draw(6) - 1;
    break;
  default:
    spec->weight_per_inner = (int32_t)draw(3);
  }
}

static void spoil_forward(rms_forward_args *a) {
  rms_const_view *in[] = {&a->x, &a->residual, &a->gate};
  rms_view *out[] = {&a->y, &a->residual_out, &a->q};
  const void **given[] = {&a->weight, &a->bias};
  void **made[] = {&a->rstd, &a->mean, &a->scale};
  switch (draw(10)) {
  case 0:
    a->outer = hostile();
    break;
  case 1:
    a->inner = hostile();
    break;
  case 2:
    *given[draw(2)] = somewhere();
    break;
  case 3:
    *made[draw(3)] = somewhere();
    break;
  case 4:
    a->weight_dtype = (int32_t)draw(7) - 1;
    break;
  case 5:
    a->bias_dtype = (int32_t)draw(7) - 1;
    break;
  case 6:
    a->weight_stride = hostile();
    break;
  case 7:
    spoil_view(in[draw(3)]);
    break;
  default:
    spoil_output(out[draw(3)]);
  }
}

static void spoil_backward(rms_backward_args *a) {
  rms_const_view *in[] = {&a->dy, &a->x, &a->dresidual, &a->gate};
  rms_view *out[] = {&a->dx, &a->dresidual_out, &a->dgate};
  const void **given[] = {&a->weight, &a->rstd, &a->mean, &a->bias};
  void **made[] = {&a->dweight, &a->dbias, &a->workspace};
  int32_t *types[] = {&a->weight_dtype, &a->dweight_dtype, &a->dbias_dtype, &a->accumulate, &a->bias_dtype};
  switch (draw(9)) {
  case 0:
    a->outer = hostile();
    break;
  case 1:
    a->inner = hostile();
    break;
  case 2:
    *given[draw(4)] = somewhere();
    break;
  case 3:
    *made[draw(3)] = somewhere();
    break;
  case 4:
    *types[draw(5)] = (int32_t)draw(9) - 1;
    break;
  case 5:
    a->workspace_bytes = (size_t)hostile();
    break;
  case 6:
    a->weight_stride = hostile();
    break;
  case 7:
    spoil_view(in[draw(4)]);
    break;
  default:
    spoil_output(out[draw(3)]);
  }
}

/* A call with nearly everything in it, a gate in two of three and a quantised output in every other, spoiled in up to
 * three places. */
static void hostile_call(rms_spec *spec, rms_forward_args *f, rms_backward_args *b) {
  *spec = good_spec();
  *f = good_forward();
  *b = good_backward();
  f->residual.data = at(6), f->residual_out.data = at(7), f->weight = at(8), f->bias = at(9), f->rstd = at(10);
  b->dresidual.data = at(6), b->dresidual_out.data = at(7), b->weight = at(8), b->rstd = at(10), b->dweight = at(11);
  b->workspace = at(12), b->workspace_bytes = 1 << 20;
  spec->gate_place = (int32_t)draw(3);
  if (spec->gate_place) f->gate.data = b->gate.data = at(13), b->dgate.data = at(14);
  if (spec->gate_place == RMS_GATE_AFTER) b->bias = at(9);
  if (draw(2)) {
    f->q.data = at(15), f->q.dtype = RMS_I8 + (int32_t)draw(4);
    spec->scale_block = f->q.dtype == RMS_Q8_0 ? 0 : (int64_t)draw(3) * 32;
    if (f->q.dtype != RMS_Q8_0) f->scale = at(16);
  }
  if (draw(4) == 0) f->y.dtype = RMS_BF16;
  for (uint64_t spoiled = draw(4); spoiled > 0; spoiled--) {
    spoil_spec(spec);
    spoil_forward(f);
    spoil_backward(b);
  }
}

#endif
