/* SPDX-License-Identifier: MIT
 *
 * The calls behind the public functions: check (src/core/check.h) -> job (jobs.h) -> plan (plan.h) -> launch
 * (launch.h). forward_call.cu and backward_call.cu have them; call.cu what they share. */
#ifndef RMS_CUDA_CALL_H
#define RMS_CUDA_CALL_H

#include "plan.h"
extern "C" {
#include "../core/check.h"
}

namespace rms_cuda {

/* flags as in check.h. */
rms_status run_forward(const rms_spec *spec, const rms_forward_args *args, int flags, const rms_stat *stats_in,
                       rms_stat *stats_out, cudaStream_t stream);
rms_status run_backward(const rms_spec *spec, const rms_backward_args *args, int flags, const rms_stat *stats_in,
                        const rms_grad_sum *sums_in, rms_grad_sum *sums_out, cudaStream_t stream);
/* Bytes that a backward or the second half of a split one needs; 0 where they refuse the call, or need none. */
size_t backward_workspace(const Device &device, const rms_spec *spec, const rms_backward_args *args);

/* ---- what jobs are made of ---- */

inline int64_t vectors_of(const rms_layout &lay) {
  const int64_t v = 16 / element_size(lay.dtype);
  return (lay.width + v - 1) / v;
}

/* Whether a call takes the kernels that round at every step: stepwise.cuh. */
inline bool is_stepwise(const rms_layout &lay) {
  return lay.steps >= RMS_STEPS_RSTD;
}

/* Whether gains are rounded where they would not be otherwise: f32 has 16-bit ones as they are, and without an offset
 * they are the weights. */
inline bool rounds_gain(const rms_layout &lay) {
  return lay.gain_as_weight && lay.offset != 0 && lay.weight && !lay.weight_is_f32 && element_size(lay.dtype) == 2;
}

/* Largest exponent by which a segment may be scaled, so that eps is not lost. */
int eps_limit_of(const rms_layout &lay);

/* A tensor of rows and the bytes of its elements. */
struct Tensor {
  Rows *rows;
  int64_t size;
};

/* Whether every vector of every row, or of the weights, is 16-byte aligned and whole. size: of an element. */
bool aligned_rows(const rms_layout &lay, int64_t outer, const Rows &rows, int64_t size);
bool aligned_parameter(const rms_layout &lay, const char *p, int64_t size);

/* Whether the kernels of rows that are not aligned (shifted.cuh) can have a tensor of the data type, and where it ends.
 */
bool can_shift(const rms_layout &lay, int64_t outer, const Rows &rows, const char **end);

/* The segments of a call as rows with at most two distances, which the tensors get; separate: inner indices have
 * weights of their own. Returns the rows of an outer index, and bytes from one of them's weights to the next's, or 0
 * where that cannot be. */
int64_t lay_out(const rms_layout &lay, int64_t outer, const Tensor *tensors, int count, bool separate,
                int64_t *weight_inner);

/* For rows of which there are fewer than 2^31. */
Inner inner_of(int64_t rows);

} // namespace rms_cuda

#endif
