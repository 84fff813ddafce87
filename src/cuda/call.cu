/* SPDX-License-Identifier: MIT */
#include "call.h"
#include <cmath>

namespace rms_cuda {

int eps_limit_of(const rms_layout &lay) {
  const double eps = lay.dtype == RMS_F64 ? lay.eps : (double)(float)lay.eps;
  int e = 0;
  if (eps == 0) return 4096;
  (void)std::frexp(eps, &e);
  e = lay.eps_place != RMS_EPS_INSIDE ? -e : -(e / 2);
  return e > 0 ? e : 0;
}

bool aligned_rows(const rms_layout &lay, int64_t outer, const Rows &rows, int64_t size) {
  if (!rows.data) return true;
  int64_t low = (int64_t)((uintptr_t)rows.data | (uintptr_t)(lay.width * size));
  if (outer > 1) low |= rows.outer;
  if (lay.inner > 1) low |= rows.inner;
  return low % 16 == 0;
}

bool aligned_parameter(const rms_layout &lay, const char *p, int64_t size) {
  const uintptr_t stride = lay.inner > 1 ? (uintptr_t)lay.weight_inner : 0;
  return ((uintptr_t)p | stride | (uintptr_t)(lay.width * size)) % 16 == 0;
}

bool can_shift(const rms_layout &lay, int64_t outer, const Rows &rows, const char **end) {
  const int64_t size = element_size(lay.dtype);
  if (end) *end = nullptr;
  if (!rows.data) return true;
  if ((uintptr_t)rows.data % (uintptr_t)size != 0 || (outer > 1 && rows.outer < 0) || (lay.inner > 1 && rows.inner < 0))
    return false;
  if (end)
    *end = rows.data + (outer > 1 ? (outer - 1) * rows.outer : 0) + (lay.inner > 1 ? (lay.inner - 1) * rows.inner : 0) +
           lay.groups * lay.width * size;
  return true;
}

/* Rows as one sequence at one distance. */
static bool one_pitch(const rms_layout &lay, int64_t outer, const Rows &rows) {
  return !rows.data || lay.inner <= 1 || outer <= 1 || rows.outer == rows.inner * lay.inner;
}

int64_t lay_out(const rms_layout &lay, int64_t outer, const Tensor *tensors, int count, bool separate,
                int64_t *weight_inner) {
  bool even = true;
  for (int i = 0; i < count; i++)
    even = one_pitch(lay, outer, *tensors[i].rows) && even;
  *weight_inner = separate && lay.inner > 1 ? lay.weight_inner : 0;
  if (!even || (separate && lay.inner > 1)) return lay.groups == 1 ? lay.inner : 0;
  for (int i = 0; i < count; i++) { /* one distance for all rows, or one for rows and one for groups */
    Rows &rows = *tensors[i].rows;
    if (lay.inner > 1) rows.outer = rows.inner;
    rows.inner = lay.width * tensors[i].size;
  }
  if (lay.groups > 1) *weight_inner = lay.width * (lay.weight_is_f32 ? 4 : element_size(lay.dtype));
  return lay.groups;
}

Inner inner_of(int64_t rows) {
  Inner inner = {0, 0, 0};
  if (rows <= 1) return inner;
  inner.rows = (unsigned)rows;
  while ((int64_t)2 << inner.shift < rows)
    inner.shift++;
  inner.factor = (unsigned)(((uint64_t)1 << (32 + inner.shift)) / (uint64_t)rows + 1);
  return inner;
}

} // namespace rms_cuda
