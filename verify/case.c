/* SPDX-License-Identifier: MIT
 * From a problem to tensors, from tensors to the arguments of a call. */
#include "case.h"

#include "number.h"

const char *verify_role_name(verify_role role) {
  static const char *const names[] = {
      "x",  "residual", "weight",  "bias",  "dy",    "dresidual", "gate", "indices",   "y", "sum",   "rstd",  "mean",
      "dx", "ds",       "dweight", "dbias", "dgate", "stats",     "sums", "workspace", "q", "scale", "drstd", "dmean"};
  return names[role];
}

int verify_role_has_rows(verify_role role) {
  return role == VERIFY_X || role == VERIFY_RESIDUAL || role == VERIFY_DY || role == VERIFY_DRESIDUAL ||
         role == VERIFY_GATE || role == VERIFY_Y || role == VERIFY_SUM || role == VERIFY_DX || role == VERIFY_DS ||
         role == VERIFY_DGATE || role == VERIFY_Q;
}

int verify_case_is_output(const verify_case *c, verify_role role) {
  if (role == VERIFY_RSTD || role == VERIFY_MEAN) return !c->problem.backward;
  if (role == VERIFY_SCALE) return c->problem.spec.scale_block > 0;
  return role >= VERIFY_Y && role != VERIFY_DRSTD && role != VERIFY_DMEAN;
}

int64_t verify_statistic_count(const verify_problem *p) {
  return p->outer * p->inner * (p->spec.groups ? p->spec.groups : 1);
}

/* ---- Tensors ---- */

/* 0 when the product does not fit. */
static int multiply_size(int64_t a, int64_t b, int64_t *product) {
  return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, product);
}

/* pad: elements between rows, and again between outer indices where these have several rows. */
static int add_tensor(verify_case *c, verify_role role, rms_dtype dtype, verify_tensor shape, int64_t pad) {
  verify_tensor *t = &c->tensor[role];
  int64_t elements, bytes;
  *t = shape;
  t->present = 1;
  t->dtype = dtype;
  t->shared_with = role;
  t->col_stride = 1;
  if (__builtin_add_overflow(t->cols, pad, &t->inner_stride)) return -1;
  if (!multiply_size(t->inner, t->inner_stride, &t->outer_stride)) return -1;
  if (t->inner > 1 && __builtin_add_overflow(t->outer_stride, pad, &t->outer_stride)) return -1;
  if (!multiply_size(t->outer, t->outer_stride, &elements)) return -1;
  if (!multiply_size(elements, (int64_t)rms_dtype_size(dtype), &bytes)) return -1;
  t->bytes = (size_t)bytes;
  return bytes > INT64_MAX / 4 ? -1 : 0;
}

static int add_rows(verify_case *c, verify_role role, rms_dtype dtype) {
  const verify_problem *p = &c->problem;
  verify_tensor shape = {.outer = p->outer, .inner = p->inner, .cols = p->spec.cols};
  if (add_tensor(c, role, dtype, shape, p->pad)) return -1;
  if (p->channels_first) verify_tensor_turn(&c->tensor[role], p->pad);
  return 0;
}

/* weight, bias and their gradients: a row for each inner index, or one; the gradients are dense */
static int add_weights(verify_case *c, verify_role role, rms_dtype dtype) {
  const verify_problem *p = &c->problem;
  verify_tensor shape = {.outer = 1, .inner = p->spec.weight_per_inner ? p->inner : 1, .cols = p->spec.cols};
  int64_t gap = p->weight_stride && !verify_case_is_output(c, role) ? p->weight_stride - p->spec.cols : 0;
  return add_tensor(c, role, dtype, shape, gap);
}

static int add_array(verify_case *c, verify_role role, rms_dtype dtype, int64_t count) {
  return add_tensor(c, role, dtype, (verify_tensor){.outer = 1, .inner = 1, .cols = count}, 0);
}

static int add_bytes(verify_case *c, verify_role role, int64_t count, int64_t size) {
  verify_tensor *t = &c->tensor[role];
  *t = (verify_tensor){.present = 1, .outer = 1, .inner = 1, .shared_with = role};
  if (!multiply_size(count, size, &t->cols) || t->cols > INT64_MAX / 4) return -1;
  t->bytes = (size_t)t->cols;
  return 0;
}

/* Types of one size: a problem in place has no others. */
static void share(verify_case *c, verify_role output, verify_role input, rms_dtype dtype) {
  c->tensor[output] = c->tensor[input];
  c->tensor[output].shared_with = input;
  c->tensor[output].dtype = dtype;
}

/* ---- A whole case ---- */

static int add_statistics(verify_case *c) {
  const verify_problem *p = &c->problem;
  rms_dtype type = verify_arithmetic(p->spec.dtype);
  int64_t count = verify_statistic_count(p);
  int saved = p->backward ? !p->recompute : (p->outputs & VERIFY_OUT_STATS) != 0;
  if (saved && add_array(c, VERIFY_RSTD, type, count)) return -1;
  if (saved && p->spec.kind == RMS_KIND_LAYER && add_array(c, VERIFY_MEAN, type, count)) return -1;
  if (p->of && add_array(c, VERIFY_DRSTD, type, count)) return -1;
  if (p->of && p->spec.kind == RMS_KIND_LAYER && add_array(c, VERIFY_DMEAN, type, count)) return -1;
  if (p->split && add_bytes(c, VERIFY_STATS, count, sizeof(rms_stat))) return -1;
  if (p->split && p->backward && add_bytes(c, VERIFY_GRAD_SUMS, count, sizeof(rms_grad_sum))) return -1;
  return 0;
}

static int add_quantised(verify_case *c) {
  const verify_problem *p = &c->problem;
  const verify_spec *s = &p->spec;
  if (!s->q_dtype) return 0;
  if (s->q_dtype == RMS_Q8_0) {
    verify_tensor shape = {.outer = p->outer, .inner = p->inner};
    if (!multiply_size(s->cols / 32, 34, &shape.cols)) return -1;
    return add_tensor(c, VERIFY_Q, RMS_I8, shape, p->pad * 34);
  }
  if (add_rows(c, VERIFY_Q, s->q_dtype)) return -1;
  return add_array(c, VERIFY_SCALE, RMS_F32, s->scale_block ? p->outer * p->inner * (s->cols / s->scale_block) : 1);
}

static int add_forward(verify_case *c) {
  const verify_problem *p = &c->problem;
  if (add_rows(c, VERIFY_X, p->spec.dtype)) return -1;
  if (p->has_residual && add_rows(c, VERIFY_RESIDUAL, p->spec.residual_dtype)) return -1;
  if (p->has_bias && add_weights(c, VERIFY_BIAS, p->spec.weight_dtype)) return -1;
  if (p->in_place) {
    if (p->outputs & VERIFY_OUT_Y) share(c, VERIFY_Y, VERIFY_X, verify_y_type(&p->spec));
    if (p->outputs & VERIFY_OUT_SUM) share(c, VERIFY_SUM, VERIFY_RESIDUAL, p->spec.residual_dtype);
    return add_quantised(c);
  }
  if (add_quantised(c)) return -1;
  if (p->outputs & VERIFY_OUT_Y && add_rows(c, VERIFY_Y, verify_y_type(&p->spec))) return -1;
  return p->outputs & VERIFY_OUT_SUM ? add_rows(c, VERIFY_SUM, p->spec.residual_dtype) : 0;
}

static int add_backward(verify_case *c) {
  const verify_problem *p = &c->problem;
  const verify_spec *s = &p->spec;
  if (add_rows(c, VERIFY_X, p->has_residual ? s->residual_dtype : s->dtype)) return -1;
  if (p->of != VERIFY_OUT_STATS && add_rows(c, VERIFY_DY, verify_y_type(s))) return -1;
  if (p->has_dresidual && add_rows(c, VERIFY_DRESIDUAL, s->residual_dtype)) return -1;
  if (p->outputs & VERIFY_OUT_DX) {
    if (p->in_place)
      share(c, VERIFY_DX, VERIFY_DY, s->dtype);
    else if (add_rows(c, VERIFY_DX, s->dtype))
      return -1;
  }
  if (p->outputs & VERIFY_OUT_DS) {
    if (p->in_place && p->has_dresidual)
      share(c, VERIFY_DS, VERIFY_DRESIDUAL, s->residual_dtype);
    else if (add_rows(c, VERIFY_DS, s->residual_dtype))
      return -1;
  }
  if (s->gate_place == RMS_GATE_AFTER && p->has_bias && add_weights(c, VERIFY_BIAS, s->weight_dtype)) return -1;
  if (p->outputs & VERIFY_OUT_DZ) {
    if (p->in_place)
      share(c, VERIFY_DGATE, VERIFY_GATE, s->dtype);
    else if (add_rows(c, VERIFY_DGATE, s->dtype))
      return -1;
  }
  if (p->outputs & VERIFY_OUT_DW && add_weights(c, VERIFY_DWEIGHT, s->grad_dtype)) return -1;
  return p->outputs & VERIFY_OUT_DB ? add_weights(c, VERIFY_DBIAS, s->grad_dtype) : 0;
}

int verify_case_describe(verify_case *c, const verify_problem *problem) {
  *c = (verify_case){.problem = *problem};
  if (problem->has_weight && add_weights(c, VERIFY_WEIGHT, problem->spec.weight_dtype)) return -1;
  if (problem->has_indices && add_bytes(c, VERIFY_INDICES, problem->spec.partial, sizeof(int64_t))) return -1;
  if (problem->spec.gate_place && add_rows(c, VERIFY_GATE, problem->spec.dtype)) return -1;
  if (problem->backward ? add_backward(c) : add_forward(c)) return -1;
  return add_statistics(c); /* last: no more of them than elements, whose number is known to fit */
}

void verify_tensor_turn(verify_tensor *t, int64_t gap) {
  t->inner_stride = 1;
  t->col_stride = t->inner + gap;
  t->outer_stride = t->cols * t->col_stride;
  int64_t span = (t->outer - 1) * t->outer_stride + (t->cols - 1) * t->col_stride + t->inner;
  t->bytes = t->outer > 0 ? (size_t)span * rms_dtype_size(t->dtype) : 0;
}

void verify_tensor_stride(verify_tensor *t, int64_t outer_stride, int64_t inner_stride) {
  int64_t span = (t->outer - 1) * outer_stride + (t->inner - 1) * inner_stride + t->cols;
  t->outer_stride = outer_stride;
  t->inner_stride = inner_stride;
  t->bytes = t->outer > 0 ? (size_t)span * rms_dtype_size(t->dtype) : 0;
}

/* ---- Memory ---- */

static int place(verify_case *c, verify_role role, const verify_allocator *allocator) {
  c->tensor[role].data = allocator->place(allocator->ctx, c, role);
  return c->tensor[role].data ? 0 : -1;
}

int verify_case_place(verify_case *c, const verify_allocator *allocator) {
  for (verify_role role = 0; role < VERIFY_ROLES; role++) {
    const verify_tensor *t = &c->tensor[role];
    if (t->present && !t->data && t->shared_with == role && place(c, role, allocator)) return -1;
  }
  for (verify_role role = 0; role < VERIFY_ROLES; role++) {
    verify_tensor *t = &c->tensor[role];
    if (t->present && t->shared_with != role) t->data = c->tensor[t->shared_with].data;
  }
  return 0;
}

int verify_case_place_workspace(verify_case *c, size_t bytes, const verify_allocator *allocator) {
  if (bytes > INT64_MAX || add_bytes(c, VERIFY_WORKSPACE, 1, (int64_t)bytes)) return -1;
  return place(c, VERIFY_WORKSPACE, allocator);
}

/* ---- Arguments ---- */

static rms_view view(const verify_case *c, verify_role role) {
  const verify_tensor *t = &c->tensor[role];
  return (rms_view){t->data, (int32_t)t->dtype, 0, t->outer_stride, t->inner_stride, t->col_stride};
}

static rms_const_view const_view(const verify_case *c, verify_role role) {
  const verify_tensor *t = &c->tensor[role];
  return (rms_const_view){t->data, (int32_t)t->dtype, 0, t->outer_stride, t->inner_stride, t->col_stride};
}

static rms_view quantised_view(const verify_case *c) {
  rms_view v = view(c, VERIFY_Q);
  v.dtype = (int32_t)c->problem.spec.q_dtype;
  if (v.dtype == RMS_Q8_0) {
    v.outer_stride = v.outer_stride / 34 * 32;
    v.inner_stride = v.inner_stride / 34 * 32;
  }
  return v;
}

verify_spec verify_case_spec(const verify_case *c) {
  verify_spec spec = c->problem.spec;
  spec.indices = (const int64_t *)(const void *)c->tensor[VERIFY_INDICES].data;
  return spec;
}

/* A y that is not stored has a type too: that of what is quantised. */
static rms_view y_view(const verify_case *c) {
  rms_view v = view(c, VERIFY_Y);
  v.dtype = (int32_t)verify_y_type(&c->problem.spec);
  return v;
}

rms_forward_args verify_case_forward_args(const verify_case *c) {
  const verify_problem *p = &c->problem;
  return (rms_forward_args){.outer = p->outer,
                            .inner = p->inner,
                            .x = const_view(c, VERIFY_X),
                            .residual = const_view(c, VERIFY_RESIDUAL),
                            .weight = c->tensor[VERIFY_WEIGHT].data,
                            .bias = c->tensor[VERIFY_BIAS].data,
                            .y = y_view(c),
                            .residual_out = view(c, VERIFY_SUM),
                            .rstd = c->tensor[VERIFY_RSTD].data,
                            .mean = c->tensor[VERIFY_MEAN].data,
                            .weight_dtype = (int32_t)p->spec.weight_dtype,
                            .bias_dtype = (int32_t)p->spec.weight_dtype,
                            .gate = const_view(c, VERIFY_GATE),
                            .q = quantised_view(c),
                            .scale = c->tensor[VERIFY_SCALE].data,
                            .weight_stride = p->weight_stride};
}

/* A dy that is absent has a type too. */
static rms_const_view dy_view(const verify_case *c) {
  rms_const_view v = const_view(c, VERIFY_DY);
  v.dtype = (int32_t)verify_y_type(&c->problem.spec);
  return v;
}

rms_backward_args verify_case_backward_args(const verify_case *c) {
  const verify_problem *p = &c->problem;
  return (rms_backward_args){.outer = p->outer,
                             .inner = p->inner,
                             .dy = dy_view(c),
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
                             .workspace_bytes = c->tensor[VERIFY_WORKSPACE].bytes,
                             .weight_dtype = (int32_t)p->spec.weight_dtype,
                             .dweight_dtype = (int32_t)p->spec.grad_dtype,
                             .dbias_dtype = (int32_t)p->spec.grad_dtype,
                             .accumulate = p->accumulate,
                             .gate = const_view(c, VERIFY_GATE),
                             .dgate = view(c, VERIFY_DGATE),
                             .bias = c->tensor[VERIFY_BIAS].data,
                             .bias_dtype = (int32_t)p->spec.weight_dtype,
                             .weight_stride = p->weight_stride,
                             .drstd = c->tensor[VERIFY_DRSTD].data,
                             .dmean = c->tensor[VERIFY_DMEAN].data};
}
