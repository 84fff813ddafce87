/* SPDX-License-Identifier: MIT
 *
 * rmsnorm on NVIDIA GPUs: the operations of rmsnorm.h on device memory and a stream.
 *
 * Same rms_spec, same argument structs, same statuses, same meaning; read rmsnorm.h first. What differs:
 *   - Every pointer in the argument structs, spec.indices, stats and sums is memory that the current device can reach.
 *     The structs themselves are ordinary host memory and may be reused when the call returns.
 *   - The index list is on the device and is not checked: it must ascend strictly and stay inside the group.
 *   - Calls return when the work is queued on the stream. They wait for nothing, allocate nothing and copy nothing to
 * or from the host. All of them can be captured in a CUDA graph.
 *   - Arguments are checked before the first launch. A valid call on a machine without a usable device is RMS_E_DEVICE;
 *     so is an error that the CUDA runtime reports at a launch, which the call then removes from the runtime again. An
 *     error that the caller's own work left there (cudaPeekAtLastError) is neither reported nor removed.
 *   - From sm_90 on, a kernel of the caller that is launched after a call with programmatic stream serialization may
 *     start before the call's work has ended; like every such kernel it waits (cudaGridDependencySynchronize) before it
 *     touches memory. Other kernels, copies and events are not affected. The call itself may start before such a kernel
 *     ahead of it has ended, and waits for it likewise.
 *
 * Not offered, besides what rmsnorm.h says of both: rows whose elements lie apart (col_stride above 1) with f64 data,
 * with RMS_GAIN_AS_WEIGHT, with drstd or dmean, or in the split form. These are RMS_E_UNSUPPORTED.
 *
 * Same row, same bits: the result of a row does not depend on the number of rows, its position, alignment or strides,
 * and is the same on every run. The exception are rows whose elements lie apart: but for RMS_STEPS_RSTD and
 * RMS_STEPS_ALL they are summed in an order of their own, and their bits are those of such rows. dweight and dbias have
 * the same bits on every run on the same kind of GPU; with one shard the two halves of a call, given the same
 * arguments, have the bits of the whole call. The bits are not those of the CPU library, because the order of the sums
 * differs. docs/cuda.md has the order, the kernels, their speed and their limits. */
#ifndef RMSNORM_CUDA_H
#define RMSNORM_CUDA_H

#include "rmsnorm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This is cudaStream_t, named so that the CUDA headers are not needed here. NULL: the default stream. */
typedef struct CUstream_st *rms_cuda_stream;

/* RMS_OK if the current device can run this library, RMS_E_DEVICE otherwise. */
RMS_API rms_status rms_cuda_available(void);

static inline rms_status rms_cuda_forward(const rms_spec *spec, const rms_forward_args *args, rms_cuda_stream stream);
static inline rms_status rms_cuda_backward(const rms_spec *spec, const rms_backward_args *args, rms_cuda_stream stream);

/* Bytes of device memory, 64-byte aligned, that are enough for rms_cuda_backward and for rms_cuda_backward_apply with
 * these arguments on the current device; 0 if the call asks for neither dweight nor dbias, if it would be refused, or
 * if there is no device. Nothing is read or written through the pointers of args: they only say which tensors there are
 * and how they are aligned. */
static inline size_t rms_cuda_backward_workspace(const rms_spec *spec, const rms_backward_args *args);

/* The same in two halves, for rows that are sharded over GPUs: reduce `stats` and `sums` with ncclSum on doubles
 * (LayerNorm's statistics need rms_cuda_stats_merge instead). rmsnorm_nccl.h does so. pRMSNorm of each shard by its own
 * first elements needs no exchange at all: it is rms_cuda_forward of the shard (RMS_NCCL_LOCAL there). */
static inline rms_status rms_cuda_stats(const rms_spec *spec, const rms_forward_args *args, rms_stat *stats,
                                        rms_cuda_stream stream);
static inline rms_status rms_cuda_stats_merge(const rms_spec *spec, int64_t count, rms_stat *into, const rms_stat *from,
                                              rms_cuda_stream stream);
static inline rms_status rms_cuda_apply(const rms_spec *spec, const rms_forward_args *args, const rms_stat *stats,
                                        rms_cuda_stream stream);
static inline rms_status rms_cuda_backward_stats(const rms_spec *spec, const rms_backward_args *args,
                                                 const rms_stat *stats, rms_grad_sum *sums, rms_cuda_stream stream);
static inline rms_status rms_cuda_backward_apply(const rms_spec *spec, const rms_backward_args *args,
                                                 const rms_stat *stats, const rms_grad_sum *sums,
                                                 rms_cuda_stream stream);

/* RMS_OK, or why one of the two halves would refuse these arguments. Nothing is queued, and no device is asked for:
 * what depends on it, the size of the workspace, is not looked at. */
static inline rms_status rms_cuda_forward_check(const rms_spec *spec, const rms_forward_args *args,
                                                const rms_stat *stats);
static inline rms_status rms_cuda_backward_check(const rms_spec *spec, const rms_backward_args *args,
                                                 const rms_stat *stats, const rms_grad_sum *sums);

/* What the library exports, with the sizes of the structs: rmsnorm.h, section 8. */
RMS_API rms_status rms_cuda_forward_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args,
                                          size_t args_size, rms_cuda_stream stream);
RMS_API rms_status rms_cuda_backward_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                           size_t args_size, rms_cuda_stream stream);
RMS_API size_t rms_cuda_backward_workspace_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                                 size_t args_size);
RMS_API rms_status rms_cuda_stats_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args,
                                        size_t args_size, rms_stat *stats, rms_cuda_stream stream);
RMS_API rms_status rms_cuda_stats_merge_sized(const rms_spec *spec, size_t spec_size, int64_t count, rms_stat *into,
                                              const rms_stat *from, rms_cuda_stream stream);
RMS_API rms_status rms_cuda_apply_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args,
                                        size_t args_size, const rms_stat *stats, rms_cuda_stream stream);
RMS_API rms_status rms_cuda_backward_stats_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                                 size_t args_size, const rms_stat *stats, rms_grad_sum *sums,
                                                 rms_cuda_stream stream);
RMS_API rms_status rms_cuda_backward_apply_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                                 size_t args_size, const rms_stat *stats, const rms_grad_sum *sums,
                                                 rms_cuda_stream stream);
RMS_API rms_status rms_cuda_forward_check_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args,
                                                size_t args_size, const rms_stat *stats);
RMS_API rms_status rms_cuda_backward_check_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                                 size_t args_size, const rms_stat *stats, const rms_grad_sum *sums);

static inline rms_status rms_cuda_forward(const rms_spec *spec, const rms_forward_args *args, rms_cuda_stream stream) {
  return rms_cuda_forward_sized(spec, sizeof *spec, args, sizeof *args, stream);
}

static inline rms_status rms_cuda_backward(const rms_spec *spec, const rms_backward_args *args,
                                           rms_cuda_stream stream) {
  return rms_cuda_backward_sized(spec, sizeof *spec, args, sizeof *args, stream);
}

static inline size_t rms_cuda_backward_workspace(const rms_spec *spec, const rms_backward_args *args) {
  return rms_cuda_backward_workspace_sized(spec, sizeof *spec, args, sizeof *args);
}

static inline rms_status rms_cuda_stats(const rms_spec *spec, const rms_forward_args *args, rms_stat *stats,
                                        rms_cuda_stream stream) {
  return rms_cuda_stats_sized(spec, sizeof *spec, args, sizeof *args, stats, stream);
}

static inline rms_status rms_cuda_stats_merge(const rms_spec *spec, int64_t count, rms_stat *into, const rms_stat *from,
                                              rms_cuda_stream stream) {
  return rms_cuda_stats_merge_sized(spec, sizeof *spec, count, into, from, stream);
}

static inline rms_status rms_cuda_apply(const rms_spec *spec, const rms_forward_args *args, const rms_stat *stats,
                                        rms_cuda_stream stream) {
  return rms_cuda_apply_sized(spec, sizeof *spec, args, sizeof *args, stats, stream);
}

static inline rms_status rms_cuda_backward_stats(const rms_spec *spec, const rms_backward_args *args,
                                                 const rms_stat *stats, rms_grad_sum *sums, rms_cuda_stream stream) {
  return rms_cuda_backward_stats_sized(spec, sizeof *spec, args, sizeof *args, stats, sums, stream);
}

static inline rms_status rms_cuda_backward_apply(const rms_spec *spec, const rms_backward_args *args,
                                                 const rms_stat *stats, const rms_grad_sum *sums,
                                                 rms_cuda_stream stream) {
  return rms_cuda_backward_apply_sized(spec, sizeof *spec, args, sizeof *args, stats, sums, stream);
}

static inline rms_status rms_cuda_forward_check(const rms_spec *spec, const rms_forward_args *args,
                                                const rms_stat *stats) {
  return rms_cuda_forward_check_sized(spec, sizeof *spec, args, sizeof *args, stats);
}

static inline rms_status rms_cuda_backward_check(const rms_spec *spec, const rms_backward_args *args,
                                                 const rms_stat *stats, const rms_grad_sum *sums) {
  return rms_cuda_backward_check_sized(spec, sizeof *spec, args, sizeof *args, stats, sums);
}

#ifdef __cplusplus
}
#endif

#endif
