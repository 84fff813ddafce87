/* SPDX-License-Identifier: MIT
 *
 * From a checked call (src/core/check.h) to jobs for the kernels: what forward and backward have in common. */
#ifndef RMS_CUDA_HOST_H
#define RMS_CUDA_HOST_H

#include "plan.h"
extern "C" {
#include "../core/check.h"
}

namespace rms_cuda {

/* Blocks of one launch; more rows take more launches. */
constexpr int64_t most_blocks = (int64_t)1 << 30;

Rows rows_of(const rms_rows &rows);
Layout layout_of(const rms_layout &checked, int64_t outer);

/* Whether every vector of every row, or of the weights, is 16-byte aligned and whole. size: of an element. */
bool aligned_rows(const Layout &lay, const Rows &rows, size_t size);
bool aligned_parameter(const Layout &lay, const char *p, size_t size);

/* Rows as one sequence at one distance: sets it, in bytes. */
bool one_pitch(const Layout &lay, const Rows &rows, int64_t *pitch);

/* For rows of which there are fewer than 2^31. */
Inner inner_of(int64_t rows);

/* Teams, or blocks of a cluster, of one segment each. */
Grid grid_of(const Plan &plan, int64_t segments);

/* The calls behind the public functions; flags as in check.h. */
rms_status run_forward(const rms_spec *spec, const rms_forward_args *args, int flags, const rms_stat *stats_in,
                       rms_stat *stats_out, cudaStream_t stream);
rms_status run_backward(const rms_spec *spec, const rms_backward_args *args, int flags, const rms_stat *stats_in,
                        const rms_grad_sum *sums_in, rms_grad_sum *sums_out, cudaStream_t stream);
/* Bytes that a backward or the second half of a split one needs; 0 where they refuse the call, or need none. */
size_t backward_workspace(const Device &device, const rms_spec *spec, const rms_backward_args *args);

} // namespace rms_cuda

#endif
