/* SPDX-License-Identifier: MIT */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "naive.h"

static const double SCALAR_ELEMENTS = 1 << 19;
enum { SAMPLED_ROWS = 16 };

int64_t compare_outer(const bench_case *c) {
  double each = c->elements / (double)c->base.problem.outer;
  if (c->elements <= SCALAR_ELEMENTS) return c->base.problem.outer;
  return each >= SCALAR_ELEMENTS ? 1 : (int64_t)(SCALAR_ELEMENTS / each);
}

static rms_status run_on(const char *isa, const bench_engine *e, const bench_case *c, const rms_executor *executor) {
  rms_status status = rms_isa_force(isa);
  return status == RMS_OK ? engine_run(e, c, executor, 1) : status;
}

static int refused(const bench_engine *e, rms_status status, char *reason, size_t size) {
  snprintf(reason, size, "%s: %s", e->name, rms_status_string(status));
  return -1;
}

static int differs(const bench_engine *e, char *reason, size_t size) {
  snprintf(reason, size, "%s: the result differs from the scalar kernel's", e->name);
  return 1;
}

/* ---- The first rows, all outputs ---- */

static int compare_first_rows(const bench_engine *engine, bench_case *c, const rms_executor *executor, char *reason,
                              size_t size) {
  bench_engine part = *engine;
  uint64_t digests[2];
  part.forward.outer = part.backward.outer = compare_outer(c);
  for (int i = 0; i < 2; i++) {
    case_reset(c);
    rms_status status = run_on(i ? engine->isa : "scalar", &part, c, i ? executor : NULL);
    if (status != RMS_OK) return refused(engine, status, reason, size);
    digests[i] = case_digest(c);
  }
  return digests[0] == digests[1] ? 0 : differs(engine, reason, size);
}

/* ---- Rows of the whole problem ---- */

static void advance(rms_const_view *view, int64_t row) {
  size_t size = rms_dtype_size((rms_dtype)view->dtype);
  if (view->data) view->data = (const char *)view->data + (size_t)(row * view->outer_stride) * size;
}

static void advance_output(rms_view *view, int64_t row) {
  size_t size = rms_dtype_size((rms_dtype)view->dtype);
  if (view->data) view->data = (char *)view->data + (size_t)(row * view->outer_stride) * size;
}

/* The statistics of a row: outer, inner, group. */
static void *advance_statistic(const void *data, const bench_engine *e, int64_t row) {
  size_t size =
      (e->forward.x.data ? e->forward.x.dtype : e->backward.dy.dtype) == RMS_F64 ? sizeof(double) : sizeof(float);
  int64_t count = e->forward.inner * (e->spec.groups > 1 ? e->spec.groups : 1);
  return data ? (char *)(uintptr_t)data + (size_t)(row * count) * size : NULL;
}

static void advance_quantised(bench_engine *e, int64_t row) {
  rms_view *q = &e->forward.q;
  const int64_t elements = row * q->outer_stride, block = e->spec.scale_block;
  if (!q->data) return;
  q->data = (char *)q->data + (q->dtype == RMS_Q8_0 ? elements / 32 * 34 : elements);
  if (block) e->forward.scale = (float *)e->forward.scale + row * e->forward.inner * (e->spec.cols / block);
}

/* The engine's arguments cut down to one row: what a row gets depends on nothing but the row. */
static bench_engine engine_of_row(const bench_engine *engine, int64_t row) {
  bench_engine e = *engine;
  rms_forward_args *f = &e.forward;
  rms_backward_args *b = &e.backward;
  f->rstd = advance_statistic(f->rstd, &e, row);
  f->mean = advance_statistic(f->mean, &e, row);
  b->rstd = advance_statistic(b->rstd, &e, row);
  b->mean = advance_statistic(b->mean, &e, row);
  b->drstd = advance_statistic(b->drstd, &e, row);
  b->dmean = advance_statistic(b->dmean, &e, row);
  f->outer = b->outer = 1;
  advance(&f->x, row);
  advance(&f->residual, row);
  advance(&f->gate, row);
  advance_output(&f->y, row);
  advance_output(&f->residual_out, row);
  advance_quantised(&e, row);
  advance(&b->dy, row);
  advance(&b->x, row);
  advance(&b->dresidual, row);
  advance(&b->gate, row);
  advance_output(&b->dx, row);
  advance_output(&b->dresidual_out, row);
  advance_output(&b->dgate, row);
  b->dweight = b->dbias = b->workspace = NULL;
  b->workspace_bytes = 0;
  return e;
}

/* Runs one row again on the scalar kernel, over the engine's result, which is kept aside. */
static int compare_row(const bench_engine *engine, const bench_case *c, int64_t row, char *kept, char *reason,
                       size_t size) {
  bench_engine e = engine_of_row(engine, row);
  char *to = kept;
  for (verify_role role = 0; role < VERIFY_ROLES; role++) {
    size_t bytes = case_output_row_bytes(c, role);
    if (bytes) memcpy(to, c->base.tensor[role].data + (size_t)row * bytes, bytes);
    to += bytes;
  }
  rms_status status = run_on("scalar", &e, c, NULL);
  if (status != RMS_OK) return refused(engine, status, reason, size);
  to = kept;
  for (verify_role role = 0; role < VERIFY_ROLES; role++) {
    size_t bytes = case_output_row_bytes(c, role);
    if (bytes && memcmp(to, c->base.tensor[role].data + (size_t)row * bytes, bytes) != 0)
      return differs(engine, reason, size);
    to += bytes;
  }
  return 0;
}

static int compare_spread_rows(const bench_engine *engine, bench_case *c, const rms_executor *executor, char *reason,
                               size_t size) {
  int64_t outer = c->base.problem.outer, count = outer < SAMPLED_ROWS ? outer : SAMPLED_ROWS;
  size_t bytes = 0;
  for (verify_role role = 0; role < VERIFY_ROLES; role++)
    bytes += case_output_row_bytes(c, role);
  if (bytes == 0) return 0;
  case_reset(c);
  rms_status status = run_on(engine->isa, engine, c, executor);
  if (status != RMS_OK) return refused(engine, status, reason, size);
  char *kept = malloc(bytes);
  int code = kept ? 0 : -1;
  if (!kept) snprintf(reason, size, "not enough memory");
  for (int64_t i = 0; i < count && code == 0; i++)
    code = compare_row(engine, c, count > 1 ? (outer - 1) * i / (count - 1) : 0, kept, reason, size);
  free(kept);
  return code;
}

int compare_with_scalar(const bench_engine *engine, bench_case *c, const rms_executor *executor, char *reason,
                        size_t reason_size) {
  int code = compare_first_rows(engine, c, executor, reason, reason_size);
  /* In place and accumulating, the inputs of a row are gone after the run. */
  int repeatable = !c->base.problem.in_place && !c->base.problem.accumulate && engine->scale == 1;
  if (code == 0 && repeatable && compare_outer(c) < c->base.problem.outer)
    code = compare_spread_rows(engine, c, executor, reason, reason_size);
  case_reset(c);
  return code;
}

/* ---- The naive loops ---- */

static float element(const void *data, rms_dtype dtype, int64_t i) {
  if (dtype == RMS_F32) return ((const float *)data)[i];
  uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

int compare_naive(const bench_engine *engine, bench_case *c, char *reason, size_t reason_size) {
  rms_dtype type = c->base.problem.spec.dtype;
  int64_t cols = c->spec.cols;
  const void *row = c->base.problem.backward ? c->backward.dx.data : c->forward.y.data;
  double largest = 0, apart = 0;
  float *expected = malloc((size_t)cols * sizeof *expected);
  rms_status status = expected ? run_on(engine->isa, engine, c, NULL) : RMS_E_MEMORY;
  if (status != RMS_OK) {
    free(expected);
    return refused(engine, status, reason, reason_size);
  }
  for (int64_t i = 0; i < cols; i++)
    expected[i] = element(row, type, i);
  case_reset(c);
  naive_run(c);
  for (int64_t i = 0; i < cols; i++) {
    double difference = fabs((double)element(row, type, i) - (double)expected[i]);
    largest = fmax(largest, fabs((double)expected[i]));
    if (!(difference <= apart)) apart = difference; /* a NaN stays */
  }
  free(expected);
  case_reset(c);
  if (apart <= largest * (ldexp((double)cols, -22) + (type == RMS_BF16 ? ldexp(1, -7) : 0))) return 0;
  snprintf(reason, reason_size, "naive C: its first row is off by %g of %g", apart, largest);
  return 1;
}
