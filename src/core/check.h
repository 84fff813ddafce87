/* SPDX-License-Identifier: MIT
 *
 * Argument checking, first and complete: turns a public call into a job that kernels can trust. Used by the CPU and the
 * CUDA entry points. Nothing is written, no data is read (but the index list, where it is on this side). */
#ifndef RMS_CORE_CHECK_H
#define RMS_CORE_CHECK_H

#include <stdint.h>
#include "job.h"

/* Which function the arguments are for. */
enum {
  RMS_CHECK_SPLIT = 1,  /* partial may be RMS_PARTIAL_NONE                       */
  RMS_CHECK_STATS = 2,  /* outputs of the arguments are ignored                  */
  RMS_CHECK_DEVICE = 4, /* pointers are on a device: the index list is not read  */
  RMS_CHECK_QUERY = 8,  /* a question about the call: its tensors may overlap    */
};

/* The spec alone, for data of a checked type; fills what the layout takes from it. */
rms_status rms_check_spec(const rms_spec *spec, rms_dtype dtype, int flags, rms_layout *lay);

/* A whole call, with the arrays of the split form where it has any; *segments = outer * inner * groups. */
rms_status rms_check_forward(const rms_spec *spec, const rms_forward_args *args, int flags, const rms_stat *stats_in,
                             rms_stat *stats_out, rms_forward_job *job, int64_t *segments);
rms_status rms_check_backward(const rms_spec *spec, const rms_backward_args *args, int flags, const rms_stat *stats_in,
                              const rms_grad_sum *sums_in, rms_grad_sum *sums_out, rms_backward_job *job,
                              int64_t *segments);

/* The workspace of a backward that needs `bytes` of it. */
rms_status rms_check_workspace(const rms_backward_args *args, int64_t bytes);

/* The call that decoders make thousands of times a second: dense rows of RMSNorm, a tensor in and one out, perhaps a
 * weight; eps inside the root, no offset. The checks of rms_check_forward without what it
 * needs for everything else. The bytes of x if it is such a call and right, 0 if not: see rms_check_forward. What it
 * takes rms_check_forward takes too, and makes the same job of it. */
int64_t rms_check_common_forward(const rms_spec *spec, const rms_forward_args *args);

/* The job of a call that rms_check_common_forward has taken. */
void rms_fill_common_forward(const rms_spec *spec, const rms_forward_args *args, rms_forward_job *job);

static inline rms_status rms_check_executor(const rms_executor *executor) {
  return !executor || (executor->run && executor->concurrency >= 1) ? RMS_OK : RMS_E_EXECUTOR;
}

#endif
