/* SPDX-License-Identifier: MIT */
#include "host.h"
#include <cmath>

namespace rms_cuda {

Rows rows_of(const rms_rows &rows) {
  return {rows.data, rows.outer, rows.inner};
}

Layout layout_of(const rms_layout &in, int64_t outer) {
  Layout lay = {};
  lay.outer = outer;
  lay.inner = in.inner;
  lay.groups = in.groups;
  lay.width = in.width;
  lay.k = in.k;
  lay.indices = in.indices;
  lay.eps = in.eps;
  lay.offset = in.offset;
  lay.layer = in.kind == RMS_KIND_LAYER;
  lay.eps_outside = in.eps_place == RMS_EPS_OUTSIDE;
  lay.before = in.rounding == RMS_ROUND_BEFORE_WEIGHT;
  lay.weight_wide = in.weight_is_f32;
  lay.residual_wide = in.residual_is_f32;
  lay.weight = in.weight;
  lay.weight_inner = in.weight_inner;
  lay.dtype = in.dtype;
  int e = 0;
  (void)std::frexp(lay.eps, &e);
  lay.eps_limit = lay.eps == 0 ? 4096 : lay.eps_outside ? -e : -(e / 2);
  return lay;
}

bool aligned_rows(const Layout &lay, const Rows &rows, size_t size) {
  if (!rows.data) return true;
  int64_t low = (int64_t)((uintptr_t)rows.data | (uintptr_t)(lay.width * (int64_t)size));
  if (lay.outer > 1) low |= rows.outer;
  if (lay.inner > 1) low |= rows.inner;
  return low % 16 == 0;
}

bool aligned_parameter(const Layout &lay, const char *p, size_t size) {
  return ((uintptr_t)p | (uintptr_t)lay.weight_inner | (uintptr_t)(lay.width * (int64_t)size)) % 16 == 0;
}

bool one_pitch(const Layout &lay, const Rows &rows, int64_t *pitch) {
  *pitch = lay.inner > 1 ? rows.inner : rows.outer;
  return !rows.data || lay.inner <= 1 || lay.outer <= 1 || rows.outer == rows.inner * lay.inner;
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

Grid grid_of(const Plan &plan, int64_t segments) {
  const int teams = plan.team <= 32 ? plan.threads / plan.team : 1;
  Grid grid = {(segments + teams - 1) / teams * plan.cluster, plan.threads, 0};
  return grid;
}

} // namespace rms_cuda
