/* SPDX-License-Identifier: MIT */
#include "call.h"
#include <stdlib.h>
#include <string.h>

/* One tensor of rows in a call, and the view of the library that it becomes. rms_view and rms_const_view are laid out
 * alike but for the const. */
typedef struct {
  const pn_tensor *tensor;
  rms_view *view;
  bool output, staged;
} place;

static void set_mode(rms_spec *spec, int64_t mode) {
  spec->kind = mode & PN_MODE_LAYER ? RMS_KIND_LAYER : RMS_KIND_RMS;
  spec->eps_place = mode & PN_MODE_EPS_OUTSIDE ? RMS_EPS_OUTSIDE
                    : mode & PN_MODE_EPS_CLAMP ? RMS_EPS_CLAMP
                                               : RMS_EPS_INSIDE;
  spec->rounding = mode & PN_MODE_BEFORE_WEIGHT ? RMS_ROUND_BEFORE_WEIGHT : RMS_ROUND_AFTER_WEIGHT;
  spec->gate_place = mode & PN_MODE_GATE_AFTER    ? RMS_GATE_AFTER
                     : mode & PN_MODE_GATE_BEFORE ? RMS_GATE_BEFORE
                                                  : RMS_GATE_NONE;
  spec->activation = mode & PN_MODE_SIGMOID ? RMS_ACT_SIGMOID : RMS_ACT_SILU;
  spec->gain_rounding = mode & PN_MODE_GAIN_AS_WEIGHT ? RMS_GAIN_AS_WEIGHT : RMS_GAIN_WIDE;
  spec->steps = (int32_t)(mode % PN_MODE_OUT / PN_MODE_STEPS);
}

rms_spec pn_make_spec(double eps, double weight_offset, int64_t partial, int64_t groups, int64_t mode) {
  rms_spec spec = {.eps = eps, .weight_offset = weight_offset, .partial = partial, .groups = groups};
  set_mode(&spec, mode);
  return spec;
}

void pn_set_indices(rms_spec *spec, const int64_t *indices, int64_t count) {
  spec->indices = indices;
  spec->partial = count;
}

int64_t pn_quantised_bytes(int32_t q_dtype, int64_t cols) {
  return q_dtype == RMS_Q8_0 ? cols / 32 * 34 : cols;
}

int32_t pn_result_dtype(int64_t mode, int32_t x) {
  return mode >= PN_MODE_OUT ? (int32_t)(mode / PN_MODE_OUT) : x;
}

int32_t pn_data_dtype(int64_t mode, int32_t x, int32_t dy) {
  return mode >= PN_MODE_OUT ? x : dy;
}

static bool same_place(const pn_tensor *a, const pn_tensor *b) {
  if (a->data != b->data || a->dtype != b->dtype || a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->shape[d] != b->shape[d] || (a->shape[d] > 1 && a->stride[d] != b->stride[d])) return false;
  return true;
}

/* The library checks what it is given. It does not see the memory behind a temporary: an output there that meets
 * another argument is refused by its bounds. */
static rms_status check_staged(const place *places, int count) {
  for (int o = 0; o < count; o++) {
    if (!places[o].tensor || !places[o].output) continue;
    for (int i = 0; i < count; i++) {
      if (i == o || !places[i].tensor || !(places[i].staged || places[o].staged)) continue;
      if (!pn_bounds_meet(places[o].tensor, places[i].tensor)) continue;
      if (places[i].output || !same_place(places[o].tensor, places[i].tensor)) return RMS_E_ALIAS;
    }
  }
  return RMS_OK;
}

static rms_status stage(pn_rows *rows, place *p) {
  if (p->output && pn_overlaps_itself(p->tensor)) return RMS_E_ALIAS;
  p->view->data = pn_rows_stage(rows, p->tensor, p->output);
  return p->view->data ? RMS_OK : RMS_E_MEMORY;
}

/* Arrays without elements may have no address, which would say that they are absent; they get this one. */
static double nothing;

/* x is the first place and decides the order of the rows. */
static rms_status place_rows(pn_rows *rows, const pn_memory *memory, place *places, int count, bool per_head,
                             bool contiguous) {
  rms_status status;
  pn_rows_begin(rows, memory, places[0].tensor, per_head, contiguous);
  for (int i = 0; i < count; i++)
    places[i].staged = places[i].tensor && !pn_rows_fit(rows, places[i].tensor);
  pn_rows_end(rows, places[0].tensor);
  for (int i = 0; i < count; i++) {
    place *p = &places[i];
    if (!p->tensor) continue;
    p->view->dtype = p->tensor->dtype;
    p->view->data = rows->outer * rows->inner > 0 ? p->tensor->data : (void *)&nothing;
    if (rows->outer * rows->inner == 0) continue;
    if (!p->staged)
      pn_rows_strides(rows, p->tensor, p->view);
    else if ((status = stage(rows, p)) != RMS_OK)
      return status;
  }
  return rows->outer * rows->inner > 0 ? check_staged(places, count) : RMS_OK;
}

/* Statistics are dense in the order of the rows. */
static rms_status place_statistic(pn_rows *rows, const pn_tensor *t, bool output, void **pointer) {
  if (!t) return RMS_OK;
  *pointer = rows->outer * rows->inner > 0 ? t->data : (void *)&nothing;
  if (rows->outer * rows->inner == 0 || pn_rows_dense(rows, t)) return RMS_OK;
  *pointer = pn_rows_stage(rows, t, output);
  return *pointer ? RMS_OK : RMS_E_MEMORY;
}

/* Elements from one head's weight to the next where they lie apart, as in a part of a wider tensor; otherwise 0. */
static int64_t weight_stride(const pn_tensor *t) {
  if (!t || t->ndim != 2 || pn_rows_apart(t)) return 0;
  const int64_t size = (int64_t)rms_dtype_size((rms_dtype)t->dtype);
  return t->stride[0] > t->shape[1] * size && t->stride[0] % size == 0 ? t->stride[0] / size : 0;
}

/* Weight and bias have one stride in the library. Where theirs differ, those that are not dense are staged. */
static int64_t common_weight_stride(const pn_rows *rows, const pn_tensor *weight, const pn_tensor *bias,
                                    bool contiguous) {
  const int64_t stride = weight_stride(weight ? weight : bias);
  if (contiguous || !rows->outer || !rows->inner || (weight && bias && weight_stride(bias) != stride)) return 0;
  return stride;
}

/* Dense in its own order, or with heads at this stride: it has no rows of x. */
static rms_status place_weight(pn_rows *rows, const pn_tensor *t, int64_t stride, bool output, void **pointer,
                               int32_t *dtype) {
  pn_rows own;
  if (!t) return RMS_OK;
  own.memory = rows->memory;
  own.count = own.staged_count = 0;
  if (t->ndim == 2) own.order[own.count++] = 0;
  *pointer = t->data;
  *dtype = t->dtype;
  if (stride || t->shape[0] == 0 || pn_rows_dense(&own, t)) return RMS_OK;
  /* Outputs are allocated dense by the front ends. */
  if (output) return RMS_E_STRIDE;
  *pointer = pn_rows_stage(&own, t, false);
  if (own.staged_count) rows->staged[rows->staged_count++] = own.staged[0];
  return *pointer ? RMS_OK : RMS_E_MEMORY;
}

/* The parameters that both operations read. */
static rms_status place_parameters(pn_rows *rows, const pn_tensor *weight, const pn_tensor *bias, bool contiguous,
                                   const void **weight_data, int32_t *weight_dtype, const void **bias_data,
                                   int32_t *bias_dtype, int64_t *stride) {
  *stride = common_weight_stride(rows, weight, bias, contiguous);
  rms_status status = place_weight(rows, weight, *stride, false, (void **)weight_data, weight_dtype);
  return status == RMS_OK ? place_weight(rows, bias, *stride, false, (void **)bias_data, bias_dtype) : status;
}

static bool per_head(const pn_tensor *weight, const pn_tensor *bias) {
  return (weight && weight->ndim == 2) || (bias && bias->ndim == 2);
}

/* One weight per head and no head: there is nothing to write, and an inner of 0 would mean 1. */
static bool no_heads(const rms_spec *spec, const pn_rows *rows) {
  return spec->weight_per_inner && rows->inner == 0;
}

/* q is dense in the order of the rows, and so are its scales where they are computed. */
static rms_status place_quantised(pn_rows *rows, const pn_forward *call, rms_forward_args *args) {
  rms_status status;
  if (!call->q) return RMS_OK;
  args->q.dtype = call->q_dtype;
  if (!call->y) args->y.dtype = call->y_dtype;
  if ((status = place_statistic(rows, call->q, true, &args->q.data)) != RMS_OK) return status;
  if (call->spec.scale_block) return place_statistic(rows, call->scale, true, &args->scale);
  if (call->scale) args->scale = call->scale->data;
  return RMS_OK;
}

static rms_status prepare_forward(const pn_forward *call, const pn_memory *memory, bool contiguous, pn_rows *rows,
                                  rms_spec *spec, rms_forward_args *args, rms_stat **stats) {
  place places[] = {{call->x, (rms_view *)&args->x, false, false},
                    {call->residual, (rms_view *)&args->residual, false, false},
                    {call->gate, (rms_view *)&args->gate, false, false},
                    {call->y, &args->y, true, false},
                    {call->sum, &args->residual_out, true, false}};
  rms_status status;
  spec->weight_per_inner = per_head(call->weight, call->bias);
  if ((status = place_rows(rows, memory, places, 5, spec->weight_per_inner, contiguous)) != RMS_OK) return status;
  spec->cols = rows->cols;
  args->outer = rows->inner ? rows->outer : 0;
  args->inner = rows->inner ? rows->inner : 1;
  if ((status = place_parameters(rows, call->weight, call->bias, contiguous, &args->weight, &args->weight_dtype,
                                 &args->bias, &args->bias_dtype, &args->weight_stride)) != RMS_OK)
    return status;
  if ((status = place_quantised(rows, call, args)) != RMS_OK) return status;
  if ((status = place_statistic(rows, call->rstd, true, &args->rstd)) != RMS_OK) return status;
  if ((status = place_statistic(rows, call->mean, true, &args->mean)) != RMS_OK) return status;
  return place_statistic(rows, call->stats, call->part == PN_STATS, (void **)stats);
}

/* After the call, or instead of it. */
static rms_status finish(pn_rows *rows, rms_status status) {
  const bool copied = pn_rows_release(rows, status == RMS_OK);
  return status == RMS_OK && !copied ? RMS_E_MEMORY : status;
}

static rms_status run_torch_sums(const pn_backend *backend, const rms_spec *spec, const rms_forward_args *args) {
  const pn_memory *memory = &backend->memory;
  const int64_t rows = args->outer * args->inner;
  pn_block block;
  if (!backend->forward_torch_sums) return RMS_E_MODE;
  if (rows == 0) return backend->forward(backend->context, spec, args);
  if (!memory->allocate(memory->context, rows * (int64_t)sizeof(rms_stat), &block)) return RMS_E_MEMORY;
  rms_status status = backend->forward_torch_sums(backend->context, spec, args, block.data);
  memory->release(memory->context, &block);
  return status;
}

static rms_status run_forward(const pn_forward *call, const pn_backend *backend, const rms_spec *spec,
                              const rms_forward_args *args, rms_stat *stats) {
  if (call->part == PN_STATS) return backend->stats(backend->context, spec, args, stats);
  if (call->part == PN_APPLY) return backend->apply(backend->context, spec, args, stats);
  return call->torch_sums ? run_torch_sums(backend, spec, args) : backend->forward(backend->context, spec, args);
}

/* Whether a call that was refused may succeed with contiguous rows: there are calls on rows whose elements lie apart
 * which the library, or that of a device, does not have. */
static bool wants_contiguous(rms_status status, const pn_rows *rows) {
  return status == RMS_E_UNSUPPORTED && rows->apart;
}

static rms_status try_forward(const pn_forward *call, const pn_backend *backend, bool contiguous, pn_rows *rows) {
  rms_spec spec = call->spec;
  rms_forward_args args = {0};
  rms_stat *stats = NULL;
  rms_status status = prepare_forward(call, &backend->memory, contiguous, rows, &spec, &args, &stats);
  if (status == RMS_OK && !no_heads(&spec, rows)) status = run_forward(call, backend, &spec, &args, stats);
  return finish(rows, status);
}

rms_status pn_run_forward(const pn_forward *call, const pn_backend *backend) {
  pn_rows rows;
  rms_status status = try_forward(call, backend, call->torch_sums, &rows);
  return wants_contiguous(status, &rows) ? try_forward(call, backend, true, &rows) : status;
}

/* The arrays of a backward in two halves. */
typedef struct {
  rms_stat *stats;
  rms_grad_sum *sums;
} halves;

static rms_status prepare_backward(const pn_backward *call, const pn_memory *memory, bool contiguous, pn_rows *rows,
                                   rms_spec *spec, rms_backward_args *args, halves *between) {
  place places[] = {{call->x, (rms_view *)&args->x, false, false},
                    {call->dy, (rms_view *)&args->dy, false, false},
                    {call->dresidual, (rms_view *)&args->dresidual, false, false},
                    {call->gate, (rms_view *)&args->gate, false, false},
                    {call->dx, &args->dx, true, false},
                    {call->dresidual_out, &args->dresidual_out, true, false},
                    {call->dgate, &args->dgate, true, false}};
  rms_status status;
  spec->weight_per_inner = per_head(call->weight, call->bias) || per_head(call->dweight, call->dbias);
  if ((status = place_rows(rows, memory, places, 7, spec->weight_per_inner, contiguous)) != RMS_OK) return status;
  spec->cols = rows->cols;
  args->outer = rows->inner ? rows->outer : 0;
  args->inner = rows->inner ? rows->inner : 1;
  args->weight_dtype = call->bias ? call->bias->dtype : call->data_dtype ? call->data_dtype : call->dy->dtype;
  if ((status = place_parameters(rows, call->weight, call->bias, contiguous, &args->weight, &args->weight_dtype,
                                 &args->bias, &args->bias_dtype, &args->weight_stride)) != RMS_OK)
    return status;
  if ((status = place_weight(rows, call->dweight, 0, true, &args->dweight, &args->dweight_dtype)) != RMS_OK)
    return status;
  if ((status = place_weight(rows, call->dbias, 0, true, &args->dbias, &args->dbias_dtype)) != RMS_OK) return status;
  if ((status = place_statistic(rows, call->rstd, false, (void **)&args->rstd)) != RMS_OK) return status;
  if ((status = place_statistic(rows, call->mean, false, (void **)&args->mean)) != RMS_OK) return status;
  if ((status = place_statistic(rows, call->stats, false, (void **)&between->stats)) != RMS_OK) return status;
  return place_statistic(rows, call->sums, call->part == PN_STATS, (void **)&between->sums);
}

static rms_status run_part(pn_part part, const pn_backend *backend, const rms_spec *spec, const rms_backward_args *args,
                           const halves *between) {
  const void *context = backend->context;
  if (part == PN_STATS) return backend->backward_stats(context, spec, args, between->stats, between->sums);
  if (part == PN_APPLY) return backend->backward_apply(context, spec, args, between->stats, between->sums);
  return backend->backward(context, spec, args);
}

static rms_status run_backward(pn_part part, const pn_backend *backend, const rms_spec *spec, rms_backward_args *args,
                               const halves *between) {
  const size_t bytes = part == PN_STATS ? 0 : backend->workspace(spec, args);
  const pn_memory *memory = &backend->memory;
  pn_block block;
  if (bytes == 0) return run_part(part, backend, spec, args, between);
  if (bytes > INT64_MAX || !memory->allocate(memory->context, (int64_t)bytes, &block)) return RMS_E_MEMORY;
  args->workspace = block.data;
  args->workspace_bytes = bytes;
  rms_status status = run_part(part, backend, spec, args, between);
  memory->release(memory->context, &block);
  return status;
}

static rms_status try_backward(const pn_backward *call, const pn_backend *backend, bool contiguous, pn_rows *rows) {
  rms_spec spec = call->spec;
  rms_backward_args args = {0};
  halves between = {0};
  rms_status status = prepare_backward(call, &backend->memory, contiguous, rows, &spec, &args, &between);
  if (status == RMS_OK && !no_heads(&spec, rows)) status = run_backward(call->part, backend, &spec, &args, &between);
  return finish(rows, status);
}

rms_status pn_run_backward(const pn_backward *call, const pn_backend *backend) {
  pn_rows rows;
  rms_status status = try_backward(call, backend, false, &rows);
  return wants_contiguous(status, &rows) ? try_backward(call, backend, true, &rows) : status;
}

rms_status pn_run_merge(const pn_tensor *into, const pn_tensor *from, const pn_backend *backend) {
  const rms_spec spec = {.cols = 1, .kind = RMS_KIND_LAYER};
  int64_t count = 1;
  for (int d = 0; d < into->ndim - 1; d++)
    count *= into->shape[d];
  if (count == 0) return RMS_OK;
  return backend->merge(backend->context, &spec, count, (rms_stat *)into->data, (const rms_stat *)from->data);
}
