/* SPDX-License-Identifier: MIT */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

static int same_axes(const int64_t *a, const int64_t *b, int count) {
  return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

static int has_last_axes(const npy_array *x, const npy_array *params) {
  return params->dims >= 1 && params->dims <= x->dims &&
         same_axes(params->shape, x->shape + x->dims - params->dims, params->dims);
}

/* With x (B, ..., n), the number of axes B where params are (B, n) or (B, 1, ..., n); otherwise -1. */
static int count_first_axes(const npy_array *x, const npy_array *params) {
  int first = params->dims - 1;
  if (first < 0 || params->dims > x->dims || params->shape[first] != x->shape[x->dims - 1]) return -1;
  while (params->dims == x->dims && first > 0 && params->shape[first - 1] == 1)
    first--;
  return same_axes(params->shape, x->shape, first) ? first : -1;
}

static int64_t product(const int64_t *shape, int dims) {
  int64_t result = 1;
  for (int i = 0; i < dims; i++)
    result *= shape[i];
  return result;
}

int layout_make(const npy_array *x, int axis, const npy_array *params, layout *l) {
  const int last = x->dims - 1;
  const int64_t cols = x->shape[axis], rows = x->count / cols;
  int first = 0, before = axis + 1, count = last - axis; /* the axes from `before` on are inner indices */
  if (axis < last) {
    if (params && (params->dims != 1 || params->shape[0] != cols)) return -1;
  } else if (params && has_last_axes(x, params)) {
    count = params->dims - 1;
    before = last - count;
  } else if (params) {
    first = count = count_first_axes(x, params);
    before = 0;
    if (first < 0) return -1;
  }
  *l = (layout){.outer = 0, .inner = 1};
  if (rows == 0) return 0;
  l->inner = product(x->shape + before, count);
  l->outer = rows / l->inner;
  l->weight_per_inner = axis == last && l->inner > 1;
  if (axis < last) l->col_stride = l->inner;
  if (first > 0) { /* the rows of one inner index follow each other */
    l->outer_stride = cols;
    l->inner_stride = l->outer * cols;
  }
  return 0;
}

int layout_order(const layout *l, npy_array *array, int to_axes) {
  if (l->inner_stride == 0 || !array->data || array->bytes == 0) return 0;
  const size_t row_bytes = array->bytes / (size_t)(l->outer * l->inner);
  unsigned char *copy = malloc(array->bytes), *to = array->data, *from = copy;
  if (!copy) return -1;
  memcpy(copy, to, array->bytes);
  for (int64_t inner = 0; inner < l->inner; inner++)
    for (int64_t outer = 0; outer < l->outer; outer++) {
      const size_t at = (size_t)(outer * l->inner + inner) * row_bytes;
      if (to_axes)
        memcpy(to, copy + at, row_bytes);
      else
        memcpy((unsigned char *)array->data + at, from, row_bytes);
      to += row_bytes, from += row_bytes;
    }
  free(copy);
  return 0;
}
