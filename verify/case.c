/* SPDX-License-Identifier: MIT
 * Memory of a problem: layout, contents, canaries. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"
#include "number.h"

enum { CANARY = 0xa5, MARGIN_BYTES = 256, ALIGNMENT = 64 };

const char *verify_role_name(verify_role role) {
  static const char *const names[] = {"x",       "residual", "weight", "bias",  "dy",   "dresidual",
                                      "indices", "y",        "sum",    "rstd",  "mean", "dx",
                                      "ds",      "dweight",  "dbias",  "stats", "sums", "workspace"};
  return names[role];
}

/* ---- Blocks ---- */

/* 0 when the product does not fit. */
static int multiply_size(int64_t a, int64_t b, int64_t *product) {
  return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, product);
}

/* A buffer for `bytes` bytes of data with canaries around. */
static int make_buffer(verify_tensor *t, int64_t bytes) {
  if (bytes > INT64_MAX / 2 - 4 * MARGIN_BYTES) return -1;
  t->buffer_bytes = ((size_t)bytes + 2 * MARGIN_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  t->buffer = aligned_alloc(ALIGNMENT, t->buffer_bytes);
  t->before = malloc(t->buffer_bytes);
  if (!t->buffer || !t->before) return -1;
  t->data = t->buffer + MARGIN_BYTES;
  memset(t->buffer, CANARY, t->buffer_bytes);
  memcpy(t->before, t->buffer, t->buffer_bytes);
  return 0;
}

static int make_tensor(verify_case *c, verify_role role, rms_dtype dtype, int64_t outer, int64_t inner, int64_t cols,
                       int64_t pad) {
  verify_tensor *t = &c->tensor[role];
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
  return make_buffer(t, bytes);
}

static int make_bytes(verify_case *c, verify_role role, int64_t count, int64_t size) {
  verify_tensor *t = &c->tensor[role];
  t->outer = t->inner = 1;
  t->shared_with = role;
  if (!multiply_size(count, size, &t->cols)) return -1;
  return make_buffer(t, t->cols);
}

static int rows_tensor(verify_case *c, verify_role role, rms_dtype dtype) {
  const verify_problem *p = &c->problem;
  return make_tensor(c, role, dtype, p->outer, p->inner, p->spec.cols, p->pad);
}

static int weight_tensor(verify_case *c, verify_role role, rms_dtype dtype) {
  const verify_problem *p = &c->problem;
  return make_tensor(c, role, dtype, 1, p->spec.weight_per_inner ? p->inner : 1, p->spec.cols, 0);
}

void verify_case_keep(verify_case *c, verify_role role) {
  memcpy(c->tensor[role].before, c->tensor[role].buffer, c->tensor[role].buffer_bytes);
}

static void fill(verify_case *c, verify_role role) {
  const verify_tensor *t = &c->tensor[role];
  verify_random random = verify_random_start(c->problem.seed, role);
  for (int64_t i = 0; i < t->outer; i++)
    for (int64_t h = 0; h < t->inner; h++)
      for (int64_t j = 0; j < t->cols; j++)
        verify_store(t->dtype, t->data, i * t->outer_stride + h * t->inner_stride + j,
                     verify_draw(&c->problem, role, &random));
  verify_case_keep(c, role);
}

/* ---- A whole case ---- */

static void share(verify_case *c, verify_role output, verify_role input) {
  c->tensor[output] = c->tensor[input];
  c->tensor[output].shared_with = input;
}

static int64_t statistic_count(const verify_problem *p) {
  return p->outer * p->inner * (p->spec.groups ? p->spec.groups : 1);
}

static int make_statistics(verify_case *c) {
  const verify_problem *p = &c->problem;
  rms_dtype type = verify_arithmetic(p->spec.dtype);
  int64_t count = statistic_count(p);
  int saved = p->backward ? !p->recompute : (p->outputs & VERIFY_OUT_STATS) != 0;
  if (saved && make_tensor(c, VERIFY_RSTD, type, 1, 1, count, 0)) return -1;
  if (saved && p->spec.kind == RMS_KIND_LAYER && make_tensor(c, VERIFY_MEAN, type, 1, 1, count, 0)) return -1;
  if (p->split && make_bytes(c, VERIFY_STATS, count, sizeof(rms_stat))) return -1;
  if (p->split && p->backward && make_bytes(c, VERIFY_GRAD_SUMS, count, sizeof(rms_grad_sum))) return -1;
  return 0;
}

static int make_common(verify_case *c) {
  const verify_problem *p = &c->problem;
  if (p->has_weight) {
    if (weight_tensor(c, VERIFY_WEIGHT, p->spec.weight_dtype)) return -1;
    fill(c, VERIFY_WEIGHT);
  }
  if (p->has_indices) {
    if (make_bytes(c, VERIFY_INDICES, p->spec.partial, sizeof(int64_t))) return -1;
    verify_draw_indices(p, (int64_t *)(void *)c->tensor[VERIFY_INDICES].data);
    verify_case_keep(c, VERIFY_INDICES);
  }
  return make_statistics(c);
}

static int make_forward(verify_case *c) {
  const verify_problem *p = &c->problem;
  if (rows_tensor(c, VERIFY_X, p->spec.dtype)) return -1;
  fill(c, VERIFY_X);
  if (p->has_residual) {
    if (rows_tensor(c, VERIFY_RESIDUAL, p->spec.residual_dtype)) return -1;
    fill(c, VERIFY_RESIDUAL);
  }
  if (p->has_bias) {
    if (weight_tensor(c, VERIFY_BIAS, p->spec.weight_dtype)) return -1;
    fill(c, VERIFY_BIAS);
  }
  if (p->in_place) {
    share(c, VERIFY_Y, VERIFY_X);
    if (p->outputs & VERIFY_OUT_SUM) share(c, VERIFY_SUM, VERIFY_RESIDUAL);
    return 0;
  }
  if (rows_tensor(c, VERIFY_Y, p->spec.dtype)) return -1;
  return p->outputs & VERIFY_OUT_SUM ? rows_tensor(c, VERIFY_SUM, p->spec.residual_dtype) : 0;
}

static int make_row_gradients(verify_case *c) {
  const verify_problem *p = &c->problem;
  if (p->outputs & VERIFY_OUT_DX) {
    if (p->in_place)
      share(c, VERIFY_DX, VERIFY_DY);
    else if (rows_tensor(c, VERIFY_DX, p->spec.dtype))
      return -1;
    if (p->accumulate & RMS_ACCUMULATE_DX) fill(c, VERIFY_DX);
  }
  if (p->outputs & VERIFY_OUT_DS) {
    if (p->in_place && p->has_dresidual)
      share(c, VERIFY_DS, VERIFY_DRESIDUAL);
    else if (rows_tensor(c, VERIFY_DS, p->spec.residual_dtype))
      return -1;
  }
  return 0;
}

static int make_backward(verify_case *c) {
  const verify_problem *p = &c->problem;
  const verify_spec *s = &p->spec;
  if (rows_tensor(c, VERIFY_X, p->has_residual ? s->residual_dtype : s->dtype)) return -1;
  fill(c, VERIFY_X);
  if (rows_tensor(c, VERIFY_DY, s->dtype)) return -1;
  fill(c, VERIFY_DY);
  if (p->has_dresidual) {
    if (rows_tensor(c, VERIFY_DRESIDUAL, s->residual_dtype)) return -1;
    fill(c, VERIFY_DRESIDUAL);
  }
  if (make_row_gradients(c)) return -1;
  if (p->outputs & VERIFY_OUT_DW && weight_tensor(c, VERIFY_DWEIGHT, s->grad_dtype)) return -1;
  if (p->outputs & VERIFY_OUT_DB && weight_tensor(c, VERIFY_DBIAS, s->grad_dtype)) return -1;
  if (p->accumulate & RMS_ACCUMULATE_DWEIGHT) fill(c, VERIFY_DWEIGHT);
  if (p->accumulate & RMS_ACCUMULATE_DBIAS) fill(c, VERIFY_DBIAS);
  return 0;
}

int verify_case_create(verify_case *c, const verify_problem *problem, char *message, size_t message_size) {
  *c = (verify_case){.problem = *problem};
  if (make_common(c) == 0 && (problem->backward ? make_backward(c) : make_forward(c)) == 0) return 0;
  verify_case_destroy(c);
  snprintf(message, message_size, "not enough memory for this problem");
  return -1;
}

int verify_case_add_workspace(verify_case *c, size_t bytes) {
  return make_bytes(c, VERIFY_WORKSPACE, 1, (int64_t)bytes);
}

void verify_case_destroy(verify_case *c) {
  for (verify_role role = 0; role < VERIFY_ROLES; role++)
    if (c->tensor[role].shared_with == role) {
      free(c->tensor[role].buffer);
      free(c->tensor[role].before);
    }
}

/* ---- Reading ---- */

static void read_row(const verify_tensor *t, const char *data, int64_t outer, int64_t inner, double *row) {
  int64_t start = outer * t->outer_stride + inner * t->inner_stride;
  for (int64_t j = 0; j < t->cols; j++)
    row[j] = verify_load(t->dtype, data, start + j);
}

void verify_row_before(const verify_case *c, verify_role role, int64_t outer, int64_t inner, double *row) {
  const verify_tensor *t = &c->tensor[role];
  read_row(t, t->before + (t->data - t->buffer), outer, inner, row);
}

void verify_row_now(const verify_case *c, verify_role role, int64_t outer, int64_t inner, double *row) {
  read_row(&c->tensor[role], c->tensor[role].data, outer, inner, row);
}

static int is_output(const verify_case *c, verify_role role) {
  if (role == VERIFY_RSTD || role == VERIFY_MEAN) return !c->problem.backward;
  return role >= VERIFY_Y;
}

/* Whether the buffer is as it was but for the elements of its rows. */
static int gaps_intact(const verify_tensor *t) {
  size_t element = t->outer_stride ? rms_dtype_size(t->dtype) : 1, row = (size_t)t->cols * element;
  const char *from = t->buffer;
  for (int64_t i = 0; i < t->outer; i++)
    for (int64_t h = 0; h < t->inner; h++) {
      const char *start = t->data + (i * t->outer_stride + h * t->inner_stride) * (int64_t)element;
      if (memcmp(from, t->before + (from - t->buffer), (size_t)(start - from)) != 0) return 0;
      from = start + row;
    }
  return memcmp(from, t->before + (from - t->buffer), t->buffer_bytes - (size_t)(from - t->buffer)) == 0;
}

verify_role verify_case_spoiled(const verify_case *c) {
  int written[VERIFY_ROLES] = {0};
  for (verify_role role = 0; role < VERIFY_ROLES; role++)
    if (verify_case_has(c, role) && is_output(c, role)) written[c->tensor[role].shared_with] = 1;
  for (verify_role role = 0; role < VERIFY_ROLES; role++) {
    const verify_tensor *t = &c->tensor[role];
    if (!verify_case_has(c, role) || t->shared_with != role) continue;
    if (written[role] ? !gaps_intact(t) : memcmp(t->buffer, t->before, t->buffer_bytes) != 0) return role;
  }
  return VERIFY_ROLES;
}

/* ---- Arguments ---- */

static rms_view view(const verify_case *c, verify_role role) {
  const verify_tensor *t = &c->tensor[role];
  return (rms_view){t->data, (int32_t)t->dtype, 0, t->outer_stride, t->inner_stride, 0};
}

static rms_const_view const_view(const verify_case *c, verify_role role) {
  const verify_tensor *t = &c->tensor[role];
  return (rms_const_view){t->data, (int32_t)t->dtype, 0, t->outer_stride, t->inner_stride, 0};
}

verify_spec verify_case_spec(const verify_case *c) {
  verify_spec spec = c->problem.spec;
  spec.indices = (const int64_t *)(const void *)c->tensor[VERIFY_INDICES].data;
  return spec;
}

rms_forward_args verify_case_forward_args(const verify_case *c) {
  const verify_problem *p = &c->problem;
  return (rms_forward_args){.outer = p->outer,
                            .inner = p->inner,
                            .x = const_view(c, VERIFY_X),
                            .residual = const_view(c, VERIFY_RESIDUAL),
                            .weight = c->tensor[VERIFY_WEIGHT].data,
                            .bias = c->tensor[VERIFY_BIAS].data,
                            .y = view(c, VERIFY_Y),
                            .residual_out = view(c, VERIFY_SUM),
                            .rstd = c->tensor[VERIFY_RSTD].data,
                            .mean = c->tensor[VERIFY_MEAN].data,
                            .weight_dtype = (int32_t)p->spec.weight_dtype,
                            .bias_dtype = (int32_t)p->spec.weight_dtype};
}

rms_backward_args verify_case_backward_args(const verify_case *c) {
  const verify_problem *p = &c->problem;
  return (rms_backward_args){.outer = p->outer,
                             .inner = p->inner,
                             .dy = const_view(c, VERIFY_DY),
                             .x = const_view(c, VERIFY_X),
                             .dresidual = const_view(c, VERIFY_DRESIDUAL),
                             .weight = c->tensor[VERIFY_WEIGHT].data,
                             .rstd = c->tensor[VERIFY_RSTD].data,
                             .mean = c->tensor[VERIFY_MEAN].data,
                             .dx = view(c, VERIFY_DX),
                             .dresidual_out = view(c, VERIFY_DS),
                             .dweight = c->tensor[VERIFY_DWEIGHT].data,
                             .dbias = c->tensor[VERIFY_DBIAS].data,
                             .workspace = c->tensor[VERIFY_WORKSPACE].data,
                             .workspace_bytes = (size_t)c->tensor[VERIFY_WORKSPACE].cols,
                             .weight_dtype = (int32_t)p->spec.weight_dtype,
                             .dweight_dtype = (int32_t)p->spec.grad_dtype,
                             .dbias_dtype = (int32_t)p->spec.grad_dtype,
                             .accumulate = p->accumulate};
}
