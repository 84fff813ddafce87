/* SPDX-License-Identifier: MIT */
#include "rows.h"
#include <stdlib.h>
#include <string.h>

static int64_t size_of(const pn_tensor *t) {
  return (int64_t)rms_dtype_size((rms_dtype)t->dtype);
}

/* ---- the strides of a new tensor ---- */

/* -1: a lies inside b, 1: b inside a, 0: undecided. This and the sort below are torch's rule for empty_like. */
static int compare_dims(const int64_t *shape, const int64_t *stride, int a, int b) {
  if (stride[a] == 0 || stride[b] == 0) return 0;
  if (stride[a] != stride[b]) return stride[a] < stride[b] ? -1 : 1;
  return shape[a] > shape[b] ? 1 : 0;
}

/* perm: dimensions, the innermost first. */
static void sort_dims(int ndim, const int64_t *shape, const int64_t *stride, int *perm) {
  for (int i = 0; i < ndim; i++)
    perm[i] = ndim - 1 - i;
  for (int i = 1; i < ndim; i++) {
    int at = i;
    for (int j = i - 1; j >= 0; j--) {
      int c = compare_dims(shape, stride, perm[j], perm[at]);
      if (c < 0) break;
      if (c == 0) continue;
      int swap = perm[j];
      perm[j] = perm[at];
      perm[at] = swap;
      at = j;
    }
  }
}

/* Whether the elements fill a stretch of memory without gaps and overlaps. */
static bool is_dense(int ndim, const int64_t *shape, const int64_t *stride) {
  int64_t expected = 1, left = 0;
  for (int d = 0; d < ndim; d++) {
    if (shape[d] == 0) return true;
    left += shape[d] > 1;
  }
  for (; left; left--) {
    int d = 0;
    while (d < ndim && !(shape[d] > 1 && stride[d] == expected))
      d++;
    if (d == ndim) return false;
    expected *= shape[d];
  }
  return true;
}

void pn_dense_strides(int ndim, const int64_t *shape, const int64_t *stride, int64_t *out) {
  int perm[PN_MAX_DIMS];
  int64_t next = 1;
  if (is_dense(ndim, shape, stride)) {
    if (out != stride) memcpy(out, stride, (size_t)ndim * sizeof *out);
    return;
  }
  sort_dims(ndim, shape, stride, perm);
  for (int i = 0; i < ndim; i++) {
    out[perm[i]] = next;
    if (shape[perm[i]] > 1) next *= shape[perm[i]];
  }
}

/* ---- the walk ---- */

bool pn_rows_apart(const pn_tensor *t) {
  return t->shape[t->ndim - 1] > 1 && t->stride[t->ndim - 1] != size_of(t);
}

void pn_rows_begin(pn_rows *rows, const pn_memory *memory, const pn_tensor *x, bool per_head, bool contiguous) {
  const int leading = x->ndim - 1;
  int perm[PN_MAX_DIMS];
  rows->memory = memory;
  rows->count = rows->staged_count = 0;
  rows->cut = -1;
  rows->heads_alone = false;
  rows->contiguous = contiguous || per_head;
  rows->apart = false;
  rows->cols = x->shape[leading];
  if (per_head) {
    for (int d = 0; d < leading; d++)
      if (x->shape[d] != 1 || d == leading - 1) rows->order[rows->count++] = d;
    rows->cut = rows->count - 2;
    rows->heads_alone = rows->count == 1;
    return;
  }
  sort_dims(leading, x->shape, x->stride, perm);
  for (int i = leading - 1; i >= 0; i--)
    if (x->shape[perm[i]] != 1) rows->order[rows->count++] = perm[i];
}

bool pn_overlaps_itself(const pn_tensor *t) {
  int order[PN_MAX_DIMS], count = 0;
  int64_t extent = size_of(t);
  for (int d = 0; d < t->ndim; d++) {
    if (t->shape[d] == 0) return false;
    if (t->shape[d] == 1) continue;
    int at = count++;
    for (; at > 0 && llabs(t->stride[order[at - 1]]) > llabs(t->stride[d]); at--)
      order[at] = order[at - 1];
    order[at] = d;
  }
  for (int i = 0; i < count; i++) {
    int64_t stride = llabs(t->stride[order[i]]);
    if (stride < extent) return true;
    extent += stride * (t->shape[order[i]] - 1);
  }
  return false;
}

/* Elements that lie apart are quick to read where the rows lie next to each other, and not elsewhere. */
static bool rows_adjoin(const pn_rows *rows, const pn_tensor *t) {
  const int64_t size = size_of(t), stride = t->stride[t->ndim - 1];
  return rows->count > 0 && t->stride[rows->order[rows->count - 1]] == size && stride > 0 && stride % size == 0;
}

static bool describable(const pn_rows *rows, const pn_tensor *t) {
  const int64_t size = size_of(t);
  if (pn_rows_apart(t) && (rows->contiguous || !rows_adjoin(rows, t))) return false;
  for (int i = 0; i < rows->count; i++) {
    int64_t stride = t->stride[rows->order[i]];
    if (stride <= 0 || stride % size != 0) return false;
  }
  return !pn_overlaps_itself(t);
}

bool pn_rows_fit(pn_rows *rows, const pn_tensor *t) {
  int cut = rows->cut;
  if (!describable(rows, t)) return false;
  for (int i = 0; i + 1 < rows->count; i++) {
    int a = rows->order[i], b = rows->order[i + 1];
    if (i == cut || t->stride[a] == t->stride[b] * t->shape[b]) continue;
    if (cut >= 0) return false;
    cut = i;
  }
  rows->cut = cut;
  rows->apart |= pn_rows_apart(t);
  return true;
}

void pn_rows_end(pn_rows *rows, const pn_tensor *x) {
  /* The library takes rows that lie next to each other for the inner ones. */
  if (rows->cut < 0 && rows->count > 0 && rows->apart) rows->heads_alone = true;
  rows->outer = rows->inner = 1;
  for (int i = 0; i < rows->count; i++) {
    bool inner = rows->heads_alone || (rows->cut >= 0 && i > rows->cut);
    *(inner ? &rows->inner : &rows->outer) *= x->shape[rows->order[i]];
  }
}

void pn_rows_strides(const pn_rows *rows, const pn_tensor *t, rms_view *view) {
  const int64_t size = size_of(t);
  const int last = rows->count - 1;
  view->col_stride = pn_rows_apart(t) ? t->stride[t->ndim - 1] / size : 0;
  if (rows->count == 0) return;
  if (rows->cut < 0) {
    *(rows->heads_alone ? &view->inner_stride : &view->outer_stride) = t->stride[rows->order[last]] / size;
    return;
  }
  view->outer_stride = t->stride[rows->order[rows->cut]] / size;
  view->inner_stride = t->stride[rows->order[last]] / size;
}

bool pn_rows_dense(const pn_rows *rows, const pn_tensor *t) {
  const int last = t->ndim - 1;
  int64_t expected = size_of(t);
  if (t->shape[last] > 1 && t->stride[last] != expected) return false;
  expected *= t->shape[last];
  for (int i = rows->count - 1; i >= 0; i--) {
    if (t->stride[rows->order[i]] != expected) return false;
    expected *= t->shape[rows->order[i]];
  }
  return true;
}

/* ---- staging ---- */

static void copy_row(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t cols, int64_t size) {
  if (to_stride == size && from_stride == size) {
    memcpy(to, from, (size_t)(cols * size));
    return;
  }
  for (int64_t j = 0; j < cols; j++)
    memcpy(to + j * to_stride, from + j * from_stride, (size_t)size);
}

static bool copy_host_rows(void *context, const pn_rows *rows, const pn_tensor *t, void *temporary, bool back) {
  const int64_t size = size_of(t), cols = t->shape[t->ndim - 1], stride = t->stride[t->ndim - 1];
  int64_t index[PN_MAX_DIMS] = {0}, left = 1;
  char *at = t->data, *dense = temporary;
  (void)context;
  for (int i = 0; i < rows->count; i++)
    left *= t->shape[rows->order[i]];
  for (; left; left--, dense += cols * size) {
    if (back)
      copy_row(at, stride, dense, size, cols, size);
    else
      copy_row(dense, size, at, stride, cols, size);
    for (int i = rows->count - 1; i >= 0; i--) {
      int d = rows->order[i];
      at += t->stride[d];
      if (++index[i] < t->shape[d]) break;
      at -= t->stride[d] * t->shape[d];
      index[i] = 0;
    }
  }
  return true;
}

static bool allocate_on_host(void *context, int64_t bytes, pn_block *block) {
  (void)context;
  block->owner = NULL;
  return posix_memalign(&block->data, 64, (size_t)bytes) == 0;
}

static void release_on_host(void *context, const pn_block *block) {
  (void)context;
  free(block->data);
}

const pn_memory pn_host_memory = {allocate_on_host, copy_host_rows, release_on_host, NULL};

static _Atomic int64_t staged_ever;

int64_t pn_rows_staged_ever(void) {
  return staged_ever;
}

void *pn_rows_stage(pn_rows *rows, const pn_tensor *t, bool output) {
  const pn_memory *memory = rows->memory;
  pn_staged *s = &rows->staged[rows->staged_count];
  int64_t bytes = size_of(t);
  for (int d = 0; d < t->ndim; d++)
    if (__builtin_mul_overflow(bytes, t->shape[d], &bytes)) return NULL;
  if (!memory->allocate(memory->context, bytes ? bytes : 1, &s->block)) return NULL;
  s->tensor = t;
  s->written = output;
  rows->staged_count++;
  staged_ever++;
  if (!output && !memory->copy(memory->context, rows, t, s->block.data, false)) return NULL;
  return s->block.data;
}

bool pn_rows_release(pn_rows *rows, bool done) {
  const pn_memory *memory = rows->memory;
  bool good = true;
  for (int i = 0; i < rows->staged_count; i++) {
    pn_staged *s = &rows->staged[i];
    if (done && s->written) good &= memory->copy(memory->context, rows, s->tensor, s->block.data, true);
    memory->release(memory->context, &s->block);
  }
  rows->staged_count = 0;
  return good;
}

/* ---- bounds ---- */

static void bounds(const pn_tensor *t, uintptr_t *low, uintptr_t *high) {
  *low = (uintptr_t)t->data;
  *high = *low + (uintptr_t)size_of(t);
  for (int d = 0; d < t->ndim; d++) {
    int64_t reach = t->stride[d] * (t->shape[d] - 1);
    if (reach < 0)
      *low += (uintptr_t)reach;
    else
      *high += (uintptr_t)reach;
  }
}

bool pn_bounds_meet(const pn_tensor *a, const pn_tensor *b) {
  uintptr_t a_low, a_high, b_low, b_high;
  for (int d = 0; d < a->ndim; d++)
    if (a->shape[d] == 0) return false;
  for (int d = 0; d < b->ndim; d++)
    if (b->shape[d] == 0) return false;
  bounds(a, &a_low, &a_high);
  bounds(b, &b_low, &b_high);
  return a_low < b_high && b_low < a_high;
}
