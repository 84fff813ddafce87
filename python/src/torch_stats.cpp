/* SPDX-License-Identifier: MIT */
#include "torch_stats.h"

namespace pn {

void make_stats(tensor &stats, const tensor &x, const rms_spec &spec, const place &at) {
  const pn_tensor &v = x.view;
  const int leading = v.ndim - 1;
  const int64_t groups = spec.groups > 1 ? spec.groups : 1, size = (int64_t)rms_dtype_size((rms_dtype)v.dtype);
  int64_t sizes[PN_MAX_DIMS + 1], strides[PN_MAX_DIMS + 1], rows = 1;
  require(v.ndim < PN_MAX_DIMS, "x has too many dimensions");
  for (int d = 0; d < leading; d++) {
    sizes[d + 1] = v.shape[d];
    strides[d + 1] = v.stride[d] / size;
    rows *= v.shape[d];
  }
  pn_dense_strides(leading, sizes + 1, strides + 1, strides + 1);
  for (int d = 0; d < leading; d++)
    strides[d + 1] *= groups;
  sizes[0] = spec.kind == RMS_KIND_LAYER ? 2 : 1;
  strides[0] = rows * groups;
  sizes[leading + 1] = groups;
  strides[leading + 1] = 1;
  stats.make(v.dtype == RMS_F64 ? RMS_F64 : RMS_F32, leading + 2, sizes, strides, at);
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
