/* SPDX-License-Identifier: MIT
 *
 * The short check of common calls. */
#include "check.h"
#include "check_types.h"
#include "operands.h"

/* Strides of rows that follow each other, spelled out or not; inner is 1. */
static bool dense(int64_t outer_stride, int64_t inner_stride, int64_t cols) {
  return (outer_stride == 0 || outer_stride == cols) && (inner_stride == 0 || inner_stride == cols);
}

int64_t rms_check_common_forward(const rms_spec *spec, const rms_forward_args *args) {
  const int64_t limit = 1 << 24; /* no product of sizes below it overflows */
  const uint64_t one = 0x3ff0000000000000u;
  int32_t t = args->x.dtype, w = args->weight_dtype;
  uint32_t modes =
      (uint32_t)(spec->kind | spec->eps_place | (spec->rounding & ~1) | spec->weight_per_inner | spec->gate_place |
                 spec->activation | spec->gain_rounding | spec->steps | args->x.reserved | args->y.reserved);
  uint64_t unusual =
      modes | (uintptr_t)spec->indices | rms_bits_of(spec->weight_offset) |
      (((uint64_t)spec->groups | (uint64_t)args->inner | (uint64_t)args->x.col_stride | (uint64_t)args->y.col_stride) &
       ~1ull) |
      (uintptr_t)args->residual.data | (uintptr_t)args->residual_out.data | (uintptr_t)args->bias |
      (uintptr_t)args->rstd | (uintptr_t)args->mean | (uintptr_t)args->gate.data | (uintptr_t)args->q.data |
      (uintptr_t)args->scale | (uint64_t)args->weight_stride | (uint64_t)spec->scale_block |
      rms_bits_of(spec->scale_least);
  if (unusual || !rms_is_dtype(t)) return 0;
  if ((args->y.dtype != t && args->y.dtype != RMS_AS_X) || (w != t && w != RMS_F32 && w != RMS_AS_X)) return 0;
  if (!dense(args->x.outer_stride, args->x.inner_stride, spec->cols) ||
      !dense(args->y.outer_stride, args->y.inner_stride, spec->cols))
    return 0;
  if ((uint64_t)spec->partial > (uint64_t)spec->cols) return 0;
  if ((uint64_t)spec->cols - 1 >= (uint64_t)limit || (uint64_t)args->outer - 1 >= (uint64_t)limit) return 0;
  /* the bits of -0, of numbers below zero and of NaN are above those of 1 */
  if (rms_bits_of(spec->eps) > one || !args->x.data || !args->y.data) return 0;
  int64_t bytes = args->outer * spec->cols * rms_size_of((rms_dtype)t);
  if (args->y.data != args->x.data && rms_spans_touch(args->y.data, bytes, args->x.data, bytes)) return 0;
  /* 8 bytes an element: no weight takes more */
  if (args->weight && rms_spans_touch(args->y.data, bytes, args->weight, spec->cols * 8)) return 0;
  return bytes;
}

/* Member by member: compilers clear a struct of this size by a string instruction that costs more than all the rest. */
void rms_fill_common_forward(const rms_spec *spec, const rms_forward_args *args, rms_forward_job *job) {
  rms_dtype dtype = (rms_dtype)args->x.dtype;
  job->lay.indices = NULL;
  job->lay.offset = 0;
  job->lay.dtype = dtype;
  job->lay.kind = RMS_KIND_RMS;
  job->lay.eps_place = RMS_EPS_INSIDE;
  job->lay.rounding = (rms_rounding)spec->rounding;
  job->lay.steps = RMS_STEPS_WIDE;
  job->lay.gate_place = RMS_GATE_NONE;
  job->lay.activation = RMS_ACT_SILU;
  job->lay.gain_as_weight = job->lay.residual_is_f32 = job->lay.per_inner = false;
  job->lay.weight_inner = 0;
  job->residual.data = job->residual_out.data = job->gate.data = job->q.rows.data = NULL;
  job->y_type = dtype;
  job->bias = NULL;
  job->rstd = job->mean = NULL;
  job->stats_in = NULL;
  job->stats_out = NULL;
  job->fetch_ahead = job->stream_y = job->stream_residual = false;
  job->way = RMS_WAY_FETCH;
  job->lay.inner = job->lay.groups = 1;
  job->lay.width = spec->cols;
  job->lay.k = spec->partial ? spec->partial : spec->cols;
  job->lay.eps = spec->eps;
  job->lay.weight_is_f32 = args->weight_dtype != RMS_AS_X && args->weight_dtype != args->x.dtype;
  job->lay.weight = args->weight;
  job->x.data = (char *)(uintptr_t)args->x.data;
  job->y.data = args->y.data;
  job->x.col = job->y.col = job->lay.apart = 0;
  job->x.outer = job->x.inner = job->y.outer = job->y.inner = spec->cols * rms_size_of(dtype);
}
