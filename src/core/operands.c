/* SPDX-License-Identifier: MIT */
#include "operands.h"
#include <stddef.h>

/* ---- rows and strides ---- */

/* Adds `count` steps to what the smaller strides span. False: the sizes overflow, or a step does not get past it. */
static rms_status add_steps(int64_t stride, int64_t count, int64_t *span) {
  int64_t all;
  if (count <= 1) return RMS_OK;
  if (rms_mul_overflows(stride, count - 1, &all)) return RMS_E_SIZE;
  if (stride < *span) return RMS_E_STRIDE;
  return __builtin_add_overflow(*span, all, span) ? RMS_E_SIZE : RMS_OK;
}

/* A view whose elements lie apart: every stride steps over what the smaller ones span. */
static rms_status resolve_apart(const rms_shape *n, const rms_const_view *v, int64_t size, rms_tensor *t) {
  int64_t inner = v->inner_stride ? v->inner_stride : 1, outer = v->outer_stride;
  if (outer == 0 && rms_mul_overflows(n->cols, v->col_stride, &outer)) return RMS_E_SIZE;
  if (rms_mul_overflows(v->col_stride, size, &t->rows.col) || rms_mul_overflows(inner, size, &t->rows.inner) ||
      rms_mul_overflows(outer, size, &t->rows.outer))
    return RMS_E_SIZE;
  int64_t stride[3] = {t->rows.inner, t->rows.col, t->rows.outer}, count[3] = {n->inner, n->cols, n->outer};
  t->row_bytes = size;
  rms_status status = add_steps(t->rows.col, n->cols, &t->row_bytes);
  if (status || n->outer == 0) return status;
  for (int i = 1; i < 3; i++)
    for (int j = i; j > 0 && stride[j] < stride[j - 1]; j--) {
      int64_t s = stride[j], c = count[j];
      stride[j] = stride[j - 1], count[j] = count[j - 1];
      stride[j - 1] = s, count[j - 1] = c;
    }
  t->span = size;
  for (int i = 0; i < 3 && !status; i++)
    status = add_steps(stride[i], count[i], &t->span);
  return !status && t->span > (int64_t)PTRDIFF_MAX ? RMS_E_SIZE : status;
}

rms_status rms_resolve_given(const rms_shape *n, const rms_const_view *v, int64_t size, rms_tensor *t) {
  int64_t inner_span, outer_span, outer_stride = v->outer_stride, inner_stride = v->inner_stride;
  t->rows.data = (char *)(uintptr_t)v->data;
  t->span = 0;
  if (v->reserved != 0) return RMS_E_VERSION;
  if (outer_stride < 0 || inner_stride < 0 || v->col_stride < 0) return RMS_E_STRIDE;
  t->rows.col = 0;
  if (v->col_stride > 1) return resolve_apart(n, v, size, t);
  if (inner_stride == 0) inner_stride = n->cols;
  if (outer_stride == 0 && rms_mul_overflows(n->inner, inner_stride, &outer_stride)) return RMS_E_SIZE;
  if (rms_mul_overflows(n->cols, size, &t->row_bytes)) return RMS_E_SIZE;
  if (rms_mul_overflows(inner_stride, size, &t->rows.inner)) return RMS_E_SIZE;
  if (rms_mul_overflows(outer_stride, size, &t->rows.outer)) return RMS_E_SIZE;
  if (n->outer == 0) return RMS_OK;
  if (rms_mul_overflows(n->inner - 1, t->rows.inner, &inner_span)) return RMS_E_SIZE;
  if (rms_mul_overflows(n->outer - 1, t->rows.outer, &outer_span)) return RMS_E_SIZE;
  if (__builtin_add_overflow(inner_span, outer_span, &t->span)) return RMS_E_SIZE;
  if (__builtin_add_overflow(t->span, t->row_bytes, &t->span)) return RMS_E_SIZE;
  if (t->span > (int64_t)PTRDIFF_MAX) return RMS_E_SIZE;
  /* Rows must not overlap: the smaller of the two strides steps over a row, the larger over all its steps. */
  int outer_first = n->outer > 1 && (n->inner == 1 || t->rows.outer < t->rows.inner);
  int64_t small = outer_first ? t->rows.outer : t->rows.inner, steps = outer_first ? outer_span : inner_span;
  int64_t large = outer_first ? t->rows.inner : t->rows.outer;
  if ((outer_first ? n->outer : n->inner) > 1 && small < t->row_bytes) return RMS_E_STRIDE;
  if ((outer_first ? n->inner : n->outer) > 1 && large - t->row_bytes < steps) return RMS_E_STRIDE;
  return RMS_OK;
}

/* ---- aliasing ---- */

/* Whether two tensors of rows with the same strides have rows that touch: rows of one start d bytes after rows of the
 * other, plus any i*large + h*small; only the steps next to the one that cancels d matter. */
static bool rows_touch(const rms_shape *n, const rms_tensor *a, const rms_tensor *b) {
  int outer_large = n->inner == 1 || (n->outer > 1 && a->rows.outer >= a->rows.inner);
  int64_t large = outer_large ? a->rows.outer : a->rows.inner, small = outer_large ? a->rows.inner : a->rows.outer;
  int64_t i_most = (outer_large ? n->outer : n->inner) - 1, h_most = (outer_large ? n->inner : n->outer) - 1;
  int64_t d = (int64_t)((uintptr_t)b->rows.data - (uintptr_t)a->rows.data);
  int64_t i_near = i_most ? -d / large : 0;
  for (int64_t i = i_near - 1; i <= i_near + 1; i++) {
    if (i < -i_most || i > i_most) continue;
    int64_t rest = d + i * large, h_near = h_most ? -rest / small : 0;
    for (int64_t h = h_near - 1; h <= h_near + 1; h++) {
      if (h < -h_most || h > h_most) continue;
      int64_t gap = rest + h * small;
      if (gap > -b->row_bytes && gap < a->row_bytes) return true;
    }
  }
  return false;
}

static bool same_rows(const rms_tensor *a, const rms_tensor *b) {
  return a->rows.data == b->rows.data && a->rows.outer == b->rows.outer && a->rows.inner == b->rows.inner &&
         a->rows.col == b->rows.col && a->row_bytes == b->row_bytes;
}

/* All rows of one outer index as if they were one row. */
static rms_tensor rows_together(const rms_shape *n, const rms_tensor *t) {
  rms_tensor all = *t;
  all.row_bytes += (n->inner - 1) * t->rows.inner;
  return all;
}

/* The same where elements lie apart: rows with the same outer index count as a whole. */
static bool images_touch(const rms_shape *n, const rms_tensor *a, const rms_tensor *b) {
  const rms_shape images = {n->outer, 1, n->cols};
  const rms_tensor p = rows_together(n, a), q = rows_together(n, b);
  if (n->outer > 1 && (p.row_bytes > a->rows.outer || q.row_bytes > a->rows.outer)) return true;
  return rows_touch(&images, &p, &q);
}

/* An output against another tensor of rows. in_place: it may be exactly that tensor. */
static bool rows_clash(const rms_shape *n, const rms_tensor *out, const rms_tensor *other, int in_place) {
  if (!out->rows.data || !other->rows.data) return false;
  if (!rms_spans_touch(out->rows.data, out->span, other->rows.data, other->span)) return false;
  if (same_rows(out, other)) return !in_place;
  if (out->rows.col || other->rows.col) return out->rows.outer != other->rows.outer || images_touch(n, out, other);
  if (out->rows.outer == other->rows.outer && out->rows.inner == other->rows.inner) return rows_touch(n, out, other);
  return true;
}

static bool array_clash(const void *out, int64_t bytes, const rms_array *others, int count) {
  for (int i = 0; i < count; i++)
    if (rms_spans_touch(out, bytes, others[i].data, others[i].bytes)) return true;
  return false;
}

rms_status rms_check_made(const rms_operands *o) {
  for (int i = 0; i < o->mades; i++)
    if (array_clash(o->made[i].data, o->made[i].bytes, o->made + i + 1, o->mades - i - 1)) return RMS_E_ALIAS;
  return RMS_OK;
}

static rms_status check_output_rows(const rms_operands *o, int which) {
  const rms_tensor *out = &o->out[which];
  if (!out->rows.data) return RMS_OK;
  for (int i = 0; i < o->ins; i++)
    if (rows_clash(&o->shape, out, &o->in[i], 1)) return RMS_E_ALIAS;
  for (int i = which + 1; i < o->outs; i++)
    if (rows_clash(&o->shape, out, &o->out[i], 0)) return RMS_E_ALIAS;
  if (array_clash(out->rows.data, out->span, o->given, o->givens)) return RMS_E_ALIAS;
  return array_clash(out->rows.data, out->span, o->made, o->mades) ? RMS_E_ALIAS : RMS_OK;
}

static rms_status check_output_array(const rms_operands *o, const rms_array *out) {
  for (int i = 0; i < o->ins; i++)
    if (o->in[i].rows.data && rms_spans_touch(out->data, out->bytes, o->in[i].rows.data, o->in[i].span))
      return RMS_E_ALIAS;
  return array_clash(out->data, out->bytes, o->given, o->givens) ? RMS_E_ALIAS : RMS_OK;
}

rms_status rms_check_alias(const rms_operands *o) {
  for (int i = 0; i < o->outs; i++)
    if (check_output_rows(o, i)) return RMS_E_ALIAS;
  for (int i = 0; i < o->mades; i++)
    if (check_output_array(o, &o->made[i])) return RMS_E_ALIAS;
  return rms_check_made(o);
}
