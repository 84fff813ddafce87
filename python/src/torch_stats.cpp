/* SPDX-License-Identifier: MIT */
#include "torch_stats.h"

namespace pn {

/* The leading dimensions of x, dense in x's order, with `width` elements in each place; returns how many places. */
static int64_t lay_out(const pn_tensor &x, int64_t width, int64_t *sizes, int64_t *strides) {
  const int leading = x.ndim - 1;
  const int64_t size = (int64_t)rms_dtype_size((rms_dtype)x.dtype);
  int64_t rows = 1;
  for (int d = 0; d < leading; d++) {
    sizes[d] = x.shape[d];
    strides[d] = x.stride[d] / size;
    rows *= x.shape[d];
  }
  pn_dense_strides(leading, sizes, strides, strides);
  for (int d = 0; d < leading; d++)
    strides[d] *= width;
  sizes[leading] = width;
  strides[leading] = 1;
  return rows;
}

void make_rows(tensor &t, const tensor &x, int64_t width, int32_t dtype, const place &at) {
  int64_t sizes[PN_MAX_DIMS], strides[PN_MAX_DIMS];
  lay_out(x.view, width, sizes, strides);
  t.make(dtype, x.view.ndim, sizes, strides, at);
}

void make_stats(tensor &stats, const tensor &x, const rms_spec &spec, const place &at) {
  const pn_tensor &v = x.view;
  const int64_t groups = spec.groups > 1 ? spec.groups : 1;
  int64_t sizes[PN_MAX_DIMS + 1], strides[PN_MAX_DIMS + 1];
  require(v.ndim < PN_MAX_DIMS, "x has too many dimensions");
  strides[0] = lay_out(v, groups, sizes + 1, strides + 1) * groups;
  sizes[0] = spec.kind == RMS_KIND_LAYER ? 2 : 1;
  stats.make(v.dtype == RMS_F64 ? RMS_F64 : RMS_F32, v.ndim + 1, sizes, strides, at);
}

pn_tensor statistic(const pn_tensor &stats, int i) {
  pn_tensor s;
  s.dtype = stats.dtype;
  s.ndim = stats.ndim - 1;
  s.data = stats.data + i * stats.stride[0];
  for (int d = 0; d < s.ndim; d++) {
    s.shape[d] = stats.shape[d + 1];
    s.stride[d] = stats.stride[d + 1];
  }
  return s;
}

void check_stats(const pn_tensor &stats, const pn_tensor &x, const rms_spec &spec) {
  const int64_t groups = spec.groups > 1 ? spec.groups : 1;
  require(stats.ndim == x.ndim + 1 && stats.shape[0] == (spec.kind == RMS_KIND_LAYER ? 2 : 1) &&
              stats.shape[x.ndim] == groups && stats.dtype == (x.dtype == RMS_F64 ? RMS_F64 : RMS_F32),
          "stats do not belong to x");
  for (int d = 0; d < x.ndim - 1; d++)
    require(stats.shape[d + 1] == x.shape[d], "stats do not belong to x");
}

} // namespace pn
