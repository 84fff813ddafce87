/* SPDX-License-Identifier: MIT
 *
 * The arguments of some of a call's rows and columns: what rmsnorm_mpi.h and rmsnorm_nccl.h share. Not for programs. */
#ifndef RMSNORM_ROWS_H
#define RMSNORM_ROWS_H

#include <string.h>
#include "rmsnorm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows `row` to row + rows - 1 of a call whose rows have `cols` columns and `segments` statistics each; columns from
 * `col` on of what is read. */
typedef struct rms_rows_range {
  int64_t cols, segments;
  int64_t row, rows, col;
} rms_rows_range;

static inline rms_rows_range rms_rows_at(int64_t cols, int64_t segments, int64_t row, int64_t rows, int64_t col) {
  rms_rows_range r;
  r.cols = cols;
  r.segments = segments;
  r.row = row;
  r.rows = rows;
  r.col = col;
  return r;
}

static inline int64_t rms_rows_size(int32_t dtype) {
  return dtype == RMS_F64 ? 8 : dtype == RMS_F32 ? 4 : 2;
}

static inline rms_const_view rms_rows_read(const rms_rows_range *r, rms_const_view v, int32_t as_x, int64_t inner) {
  const int64_t size = rms_rows_size(v.dtype ? v.dtype : as_x), apart = v.col_stride > 1 ? v.col_stride : 1;
  if (!v.inner_stride) v.inner_stride = apart > 1 ? 1 : r->cols;
  if (!v.outer_stride) v.outer_stride = apart > 1 ? r->cols * apart : (inner ? inner : 1) * v.inner_stride;
  if (v.data) v.data = (const char *)v.data + (r->row * v.outer_stride + r->col * apart) * size;
  return v;
}

static inline rms_view rms_rows_written(const rms_rows_range *r, rms_view v, int32_t as_x, int64_t inner) {
  rms_rows_range whole = *r;
  rms_const_view w;
  whole.col = 0;
  memcpy(&w, &v, sizeof w);
  w = rms_rows_read(&whole, w, as_x, inner);
  memcpy(&v, &w, sizeof v);
  return v;
}

static inline const void *rms_rows_weight(const rms_rows_range *r, const void *weight, int32_t dtype, int32_t as_x) {
  return weight ? (const char *)weight + r->col * rms_rows_size(dtype ? dtype : as_x) : NULL;
}

static inline void *rms_rows_numbers(const rms_rows_range *r, void *numbers, int32_t as_x) {
  return numbers ? (char *)numbers + r->row * r->segments * (as_x == RMS_F64 ? 8 : 4) : NULL;
}

static inline rms_forward_args rms_rows_forward(const rms_rows_range *r, const rms_forward_args *args) {
  rms_forward_args part = *args;
  const int64_t inner = args->inner;
  const int32_t type = args->x.dtype;
  part.outer = r->rows;
  part.x = rms_rows_read(r, args->x, type, inner);
  part.residual = rms_rows_read(r, args->residual, type, inner);
  part.gate = rms_rows_read(r, args->gate, type, inner);
  part.y = rms_rows_written(r, args->y, type, inner);
  part.residual_out = rms_rows_written(r, args->residual_out, type, inner);
  part.rstd = rms_rows_numbers(r, args->rstd, type);
  part.mean = rms_rows_numbers(r, args->mean, type);
  return part;
}

static inline rms_backward_args rms_rows_backward(const rms_rows_range *r, const rms_backward_args *args) {
  rms_backward_args part = *args;
  const int64_t inner = args->inner;
  const int32_t type = args->x.dtype;
  part.outer = r->rows;
  part.dy = rms_rows_read(r, args->dy, type, inner);
  part.x = rms_rows_read(r, args->x, type, inner);
  part.dresidual = rms_rows_read(r, args->dresidual, type, inner);
  part.gate = rms_rows_read(r, args->gate, type, inner);
  part.dgate = rms_rows_written(r, args->dgate, type, inner);
  part.dx = rms_rows_written(r, args->dx, type, inner);
  part.dresidual_out = rms_rows_written(r, args->dresidual_out, type, inner);
  part.weight = rms_rows_weight(r, args->weight, args->weight_dtype, type);
  part.bias = rms_rows_weight(r, args->bias, args->bias_dtype, type);
  return part;
}

#ifdef __cplusplus
}
#endif

#endif
