/* SPDX-License-Identifier: MIT
 * Memory of a problem: layout, contents, canaries. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"
#include "number.h"

enum { CANARY = 0xa5, MARGIN_BYTES = 256, ALIGNMENT = 64 };

const char *vf_role_name(vf_role role) {
  static const char *const names[] = {"x",       "residual", "weight", "bias",  "dy",   "dresidual",
                                      "indices", "y",        "sum",    "rstd",  "mean", "dx",
                                      "ds",      "dweight",  "dbias",  "stats", "sums", "workspace"};
  return names[role];
}

/* ---- Blocks ---------------------------------------------------------------------------------------------------------
 */

/* 0 when the product does not fit. */
static int multiply_size(int64_t a, int64_t b, int64_t *product) {
  return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, product);
}

/* A block for `bytes` bytes of data with canaries around. */
static int make_block(vf_tensor *t, int64_t bytes) {
  if (bytes > INT64_MAX / 2 - 4 * MARGIN_BYTES) return -1;
  t->block_bytes = ((size_t)bytes + 2 * MARGIN_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  t->block = aligned_alloc(ALIGNMENT, t->block_bytes);
  t->before = malloc(t->block_bytes);
  if (!t->block || !t->before) return -1;
  t->data = t->block + MARGIN_BYTES;
  memset(t->block, CANARY, t->block_bytes);
  memcpy(t->before, t->block, t->block_bytes);
  return 0;
}

static int make_tensor(vf_case *c, vf_role role, rms_dtype dtype, int64_t outer, int64_t inner, int64_t cols,
                       int64_t pad) {
  vf_tensor *t = &c->tensor[role];
  int64_t elements, bytes;
  t->dtype = dtype;
  t->outer = outer;
  t->inner = inner;
  t->cols = cols;
  t->shared_with = role;
  if (__builtin_add_overflow(cols, pad, &t->inner_stride)) return -1;
  if (!multiply_size(inner, t->inner_stride, &t->outer_stride)) return -1;
  if (__builtin_add_overflow(t->outer_stride, pad, &t->outer_stride)) return -1;
  if (!multiply_size(outer, t->outer_stride, &elements)) return -1;
  if (!multiply_size(elements, (int64_t)rms_dtype_size(dtype), &bytes)) return -1;
  return make_block(t, bytes);
}

static int make_bytes(vf_case *c, vf_role role, int64_t count, int64_t size) {
  vf_tensor *t = &c->tensor[role];
  t->outer = t->inner = 1;
  t->shared_with = role;
  if (!multiply_size(count, size, &t->cols)) return -1;
  return make_block(t, t->cols);
}

static int rows_tensor(vf_case *c, vf_role role, rms_dtype dtype) {
  const vf_problem *p = &c->problem;
  return make_tensor(c, role, dtype, p->outer, p->inner, p->spec.cols, p->pad);
}

static int weight_tensor(vf_case *c, vf_role role, rms_dtype dtype) {
  const vf_problem *p = &c->problem;
  return make_tensor(c, role, dtype, 1, p->spec.weight_per_inner ? p->inner : 1, p->spec.cols, 0);
}

void vf_case_keep(vf_case *c, vf_role role) {
  memcpy(c->tensor[role].before, c->tensor[role].block, c->tensor[role].block_bytes);
}

static void fill(vf_case *c, vf_role role) {
  const vf_tensor *t = &c->tensor[role];
  vf_random random = vf_random_start(c->problem.seed, role);
  for (int64_t i = 0; i < t->outer; i++)
    for (int64_t h = 0; h < t->inner; h++)
      for (int64_t j = 0; j < t->cols; j++)
        vf_store(t->dtype, t->data, i * t->outer_stride + h * t->inner_stride + j, vf_draw(&c->problem, role, &random));
  vf_case_keep(c, role);
}

/* ---- A whole case ---------------------------------------------------------------------------------------------------
 */

static void share(vf_case *c, vf_role output, vf_role input) {
  c->tensor[output] = c->tensor[input];
  c->tensor[output].shared_with = input;
}

static int64_t statistic_count(const vf_problem *p) {
  return p->outer * p->inner * (p->spec.groups ? p->spec.groups : 1);
}

static int make_statistics(vf_case *c) {
  const vf_problem *p = &c->problem;
  rms_dtype type = vf_arithmetic(p->spec.dtype);
  int64_t count = statistic_count(p);
  int saved = p->backward ? !p->recompute : (p->outputs & VF_OUT_STATS) != 0;
  if (saved && make_tensor(c, VF_RSTD, type, 1, 1, count, 0)) return -1;
  if (saved && p->spec.kind == RMS_KIND_LAYER && make_tensor(c, VF_MEAN, type, 1, 1, count, 0)) return -1;
  if (p->split && make_bytes(c, VF_STATS, count, sizeof(rms_stat))) return -1;
  if (p->split && p->backward && make_bytes(c, VF_GRAD_SUMS, count, sizeof(rms_grad_sum))) return -1;
  return 0;
}

static int make_common(vf_case *c) {
  const vf_problem *p = &c->problem;
  if (p->has_weight) {
    if (weight_tensor(c, VF_WEIGHT, p->spec.weight_dtype)) return -1;
    fill(c, VF_WEIGHT);
  }
  if (p->has_indices) {
    if (make_bytes(c, VF_INDICES, p->spec.partial, sizeof(int64_t))) return -1;
    vf_draw_indices(p, (int64_t *)(void *)c->tensor[VF_INDICES].data);
    vf_case_keep(c, VF_INDICES);
  }
  return make_statistics(c);
}

static int make_forward(vf_case *c) {
  const vf_problem *p = &c->problem;
  if (rows_tensor(c, VF_X, p->spec.dtype)) return -1;
  fill(c, VF_X);
  if (p->has_residual) {
    if (rows_tensor(c, VF_RESIDUAL, p->spec.residual_dtype)) return -1;
    fill(c, VF_RESIDUAL);
  }
  if (p->has_bias) {
    if (weight_tensor(c, VF_BIAS, p->spec.weight_dtype)) return -1;
    fill(c, VF_BIAS);
  }
  if (p->in_place) {
    share(c, VF_Y, VF_X);
    if (p->outputs & VF_OUT_SUM) share(c, VF_SUM, VF_RESIDUAL);
    return 0;
  }
  if (rows_tensor(c, VF_Y, p->spec.dtype)) return -1;
  return p->outputs & VF_OUT_SUM ? rows_tensor(c, VF_SUM, p->spec.residual_dtype) : 0;
}

static int make_row_gradients(vf_case *c) {
  const vf_problem *p = &c->problem;
  if (p->outputs & VF_OUT_DX) {
    if (p->in_place)
      share(c, VF_DX, VF_DY);
    else if (rows_tensor(c, VF_DX, p->spec.dtype))
      return -1;
    if (p->accumulate & RMS_ACCUMULATE_DX) fill(c, VF_DX);
  }
  if (p->outputs & VF_OUT_DS) {
    if (p->in_place && p->has_dresidual)
      share(c, VF_DS, VF_DRESIDUAL);
    else if (rows_tensor(c, VF_DS, p->spec.residual_dtype))
      return -1;
  }
  return 0;
}

static int make_backward(vf_case *c) {
  const vf_problem *p = &c->problem;
  const vf_spec *s = &p->spec;
  if (rows_tensor(c, VF_X, p->has_residual ? s->residual_dtype : s->dtype)) return -1;
  fill(c, VF_X);
  if (rows_tensor(c, VF_DY, s->dtype)) return -1;
  fill(c, VF_DY);
  if (p->has_dresidual) {
    if (rows_tensor(c, VF_DRESIDUAL, s->residual_dtype)) return -1;
    fill(c, VF_DRESIDUAL);
  }
  if (make_row_gradients(c)) return -1;
  if (p->outputs & VF_OUT_DW && weight_tensor(c, VF_DWEIGHT, s->grad_dtype)) return -1;
  if (p->outputs & VF_OUT_DB && weight_tensor(c, VF_DBIAS, s->grad_dtype)) return -1;
  if (p->accumulate & RMS_ACCUMULATE_DWEIGHT) fill(c, VF_DWEIGHT);
  if (p->accumulate & RMS_ACCUMULATE_DBIAS) fill(c, VF_DBIAS);
  return 0;
}

int vf_case_create(vf_case *c, const vf_problem *problem, char *message, size_t message_size) {
  *c = (vf_case){.problem = *problem};
  if (make_common(c) == 0 && (problem->backward ? make_backward(c) : make_forward(c)) == 0) return 0;
  vf_case_destroy(c);
  snprintf(message, message_size, "not enough memory for this problem");
  return -1;
}

int vf_case_add_workspace(vf_case *c, size_t bytes) {
  return make_bytes(c, VF_WORKSPACE, 1, (int64_t)bytes);
}

void vf_case_destroy(vf_case *c) {
  for (vf_role role = 0; role < VF_ROLES; role++)
    if (c->tensor[role].shared_with == role) {
      free(c->tensor[role].block);
      free(c->tensor[role].before);
    }
}

/* ---- Reading --------------------------------------------------------------------------------------------------------
 */

static void read_row(const vf_tensor *t, const char *data, int64_t outer, int64_t inner, double *row) {
  int64_t start = outer * t->outer_stride + inner * t->inner_stride;
  for (int64_t j = 0; j < t->cols; j++)
    row[j] = vf_load(t->dtype, data, start + j);
}

void vf_row_before(const vf_case *c, vf_role role, int64_t outer, int64_t inner, double *row) {
  const vf_tensor *t = &c->tensor[role];
  read_row(t, t->before + (t->data - t->block), outer, inner, row);
}

void vf_row_now(const vf_case *c, vf_role role, int64_t outer, int64_t inner, double *row) {
  read_row(&c->tensor[role], c->tensor[role].data, outer, inner, row);
}

static int is_output(const vf_case *c, vf_role role) {
  if (role == VF_RSTD || role == VF_MEAN) return !c->problem.backward;
  return role >= VF_Y;
}

/* Whether the block is as it was but for the elements of its rows. */
static int gaps_intact(const vf_tensor *t) {
  size_t element = t->outer_stride ? rms_dtype_size(t->dtype) : 1, row = (size_t)t->cols * element;
  const char *from = t->block;
  for (int64_t i = 0; i < t->outer; i++)
    for (int64_t h = 0; h < t->inner; h++) {
      const char *start = t->data + (i * t->outer_stride + h * t->inner_stride) * (int64_t)element;
      if (memcmp(from, t->before + (from - t->block), (size_t)(start - from)) != 0) return 0;
      from = start + row;
    }
  return memcmp(from, t->before + (from - t->block), t->block_bytes - (size_t)(from - t->block)) == 0;
}

vf_role vf_case_spoiled(const vf_case *c) {
  int written[VF_ROLES] = {0};
  for (vf_role role = 0; role < VF_ROLES; role++)
    if (vf_has(c, role) && is_output(c, role)) written[c->tensor[role].shared_with] = 1;
  for (vf_role role = 0; role < VF_ROLES; role++) {
    const vf_tensor *t = &c->tensor[role];
    if (!vf_has(c, role) || t->shared_with != role) continue;
    if (written[role] ? !gaps_intact(t) : memcmp(t->block, t->before, t->block_bytes) != 0) return role;
  }
  return VF_ROLES;
}

/* ---- Arguments ------------------------------------------------------------------------------------------------------
 */

static rms_view view(const vf_case *c, vf_role role) {
  const vf_tensor *t = &c->tensor[role];
  return (rms_view){t->data, (int32_t)t->dtype, 0, t->outer_stride, t->inner_stride, 0};
}

static rms_const_view const_view(const vf_case *c, vf_role role) {
  const vf_tensor *t = &c->tensor[role];
  return (rms_const_view){t->data, (int32_t)t->dtype, 0, t->outer_stride, t->inner_stride, 0};
}

vf_spec vf_case_spec(const vf_case *c) {
  vf_spec spec = c->problem.spec;
  spec.indices = (const int64_t *)(const void *)c->tensor[VF_INDICES].data;
  return spec;
}

rms_forward_args vf_case_forward_args(const vf_case *c) {
  const vf_problem *p = &c->problem;
  return (rms_forward_args){.outer = p->outer,
                            .inner = p->inner,
                            .x = const_view(c, VF_X),
                            .residual = const_view(c, VF_RESIDUAL),
                            .weight = c->tensor[VF_WEIGHT].data,
                            .bias = c->tensor[VF_BIAS].data,
                            .y = view(c, VF_Y),
                            .residual_out = view(c, VF_SUM),
                            .rstd = c->tensor[VF_RSTD].data,
                            .mean = c->tensor[VF_MEAN].data,
                            .weight_dtype = (int32_t)p->spec.weight_dtype,
                            .bias_dtype = (int32_t)p->spec.weight_dtype};
}

rms_backward_args vf_case_backward_args(const vf_case *c) {
  const vf_problem *p = &c->problem;
  return (rms_backward_args){.outer = p->outer,
                             .inner = p->inner,
                             .dy = const_view(c, VF_DY),
                             .x = const_view(c, VF_X),
                             .dresidual = const_view(c, VF_DRESIDUAL),
                             .weight = c->tensor[VF_WEIGHT].data,
                             .rstd = c->tensor[VF_RSTD].data,
                             .mean = c->tensor[VF_MEAN].data,
                             .dx = view(c, VF_DX),
                             .dresidual_out = view(c, VF_DS),
                             .dweight = c->tensor[VF_DWEIGHT].data,
                             .dbias = c->tensor[VF_DBIAS].data,
                             .workspace = c->tensor[VF_WORKSPACE].data,
                             .workspace_bytes = (size_t)c->tensor[VF_WORKSPACE].cols,
                             .weight_dtype = (int32_t)p->spec.weight_dtype,
                             .dweight_dtype = (int32_t)p->spec.grad_dtype,
                             .dbias_dtype = (int32_t)p->spec.grad_dtype,
                             .accumulate = p->accumulate};
}
