/* SPDX-License-Identifier: MIT
 *
 * rmsnorm for rows whose columns are spread over GPUs, with NCCL. Header only, on the split functions of
 * rmsnorm_cuda.h: it is compiled into the caller's program with the caller's NCCL, so that librmsnorm_cuda itself
 * depends on none. Read rmsnorm_mpi.h for what a shard is: cols and partial are those of the shard, 0 columns is an
 * empty one, RMS_PARTIAL_NONE one without an element of the statistic. The ranks agree on rows, kind, eps and groups.
 *
 *   rms_nccl nccl = {comm};
 *   nccl.scratch_bytes = rms_nccl_scratch(&nccl, &spec, rows, 1);
 *   cudaMalloc(&nccl.scratch, nccl.scratch_bytes);
 *   rms_nccl_forward(&nccl, &spec, &args, stats, stream);
 *   rms_nccl_backward(&nccl, &spec, &gradient_args, stats, stream);
 *
 * Everything is queued on the stream: the statistics, one collective of NCCL, and the rest. Nothing waits for the
 * device, so that both calls can be captured in a CUDA graph.
 *
 * Errors: a rank whose arguments are refused returns their status and still takes part in the collective, with NaN. So
 * no rank waits for one that has given up, and the others' results are NaN instead of wrong. What every rank must get
 * right are outer, inner, groups, stats and the scratch memory: without them there is nothing to take part with, and
 * the others wait until their NCCL gives up. An error of NCCL is RMS_E_COMMUNICATION, one of CUDA RMS_E_DEVICE. */
#ifndef RMSNORM_NCCL_H
#define RMSNORM_NCCL_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <string.h>
#include "rmsnorm_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rms_nccl_mode {
  /* NCCL adds (ncclAllReduce). The last bits depend on the order in which it does. LayerNorm's statistics are not sums:
   * they are gathered and folded as below, the backward's sums are added. */
  RMS_NCCL_REDUCE = 0,
  /* Gathered (ncclAllGather) and folded in the order of the ranks: the bits are a function of the rows and their split.
   * Traffic, scratch memory and launches grow with the number of ranks. */
  RMS_NCCL_FOLD = 1,
  /* Every rank normalises its shard by the shard's own statistic, without communication: see RMS_MPI_LOCAL. With
   * `partial` it is pRMSNorm that needs no communication. `stats` is not used. */
  RMS_NCCL_LOCAL = 2
} rms_nccl_mode;

typedef struct rms_nccl {
  ncclComm_t comm;
  int32_t mode;     /* rms_nccl_mode                                                     */
  int32_t reserved; /* 0                                                                 */
  void *scratch;    /* device memory: rms_nccl_scratch() bytes, aligned to 8             */
  size_t scratch_bytes;
} rms_nccl;

/* Bytes of device memory that are enough for rms_nccl_forward and rms_nccl_backward of that many rows; the same on
 * every rank. 0 where none is needed and where the calls would refuse these arguments. */
static inline size_t rms_nccl_scratch(const rms_nccl *nccl, const rms_spec *spec, int64_t outer, int64_t inner);

/* rms_cuda_forward of the whole rows; args are those of the shard. stats: device memory, one rms_stat per outer, inner,
 * group, which receives the statistics of the whole rows for the backward. */
static inline rms_status rms_nccl_forward(const rms_nccl *nccl, const rms_spec *spec, const rms_forward_args *args,
                                          rms_stat *stats, rms_cuda_stream stream);

/* rms_cuda_backward of the whole rows; stats are those that rms_nccl_forward wrote. args->rstd and mean are ignored.
 * dweight and dbias belong to the shard's columns and need no reduction over the ranks. */
static inline rms_status rms_nccl_backward(const rms_nccl *nccl, const rms_spec *spec, const rms_backward_args *args,
                                           const rms_stat *stats, rms_cuda_stream stream);

/* ---- What follows is how ---- */

typedef struct rms_nccl_call {
  const rms_nccl *nccl;
  cudaStream_t stream;
  int ranks;
  int gathers;      /* 1: gathered and folded, 0: added by NCCL */
  int64_t segments; /* statistics in all */
} rms_nccl_call;

/* The number of statistics, or -1 if the arguments do not give one that fits. */
static inline int64_t rms_nccl_segments(const rms_spec *spec, int64_t outer, int64_t inner) {
  const int64_t most = (int64_t)1 << 40;
  const int64_t groups = spec->groups ? spec->groups : 1, each = inner ? inner : 1;
  if (outer < 0 || each < 0 || groups < 0 || each > most || groups > most / each) return -1;
  return outer > most / (each * groups) ? -1 : outer * each * groups;
}

/* Folded numbers are rms_stats: a sum of the backward is packed as {ux, 0, u}, which merges as RMSNorm's statistics do.
 * The scratch memory holds the sums, then those of this rank as statistics, then those of all ranks. */
static inline size_t rms_nccl_need(const rms_nccl_call *c, int backward) {
  const size_t n = (size_t)c->segments;
  size_t bytes = 0;
  if (backward) bytes += n * sizeof(rms_grad_sum);
  if (c->gathers) bytes += n * sizeof(rms_stat) * ((size_t)c->ranks + 1);
  return bytes;
}

static inline rms_status rms_nccl_start(rms_nccl_call *c, const rms_nccl *nccl, const rms_spec *spec, int64_t outer,
                                        int64_t inner, rms_cuda_stream stream, int backward) {
  c->nccl = nccl;
  c->stream = (cudaStream_t)stream;
  if (nccl->reserved != 0) return RMS_E_VERSION;
  if (nccl->mode != RMS_NCCL_REDUCE && nccl->mode != RMS_NCCL_FOLD) return RMS_E_MODE;
  if (ncclCommCount(nccl->comm, &c->ranks) != ncclSuccess) return RMS_E_COMMUNICATION;
  c->gathers = nccl->mode == RMS_NCCL_FOLD || (!backward && spec->kind == RMS_KIND_LAYER);
  c->segments = rms_nccl_segments(spec, outer, inner);
  return c->segments < 0 ? RMS_E_SIZE : RMS_OK;
}

static inline size_t rms_nccl_scratch(const rms_nccl *nccl, const rms_spec *spec, int64_t outer, int64_t inner) {
  rms_nccl_call c;
  size_t forward, backward;
  if (!nccl || !spec || nccl->mode == RMS_NCCL_LOCAL) return 0;
  if (rms_nccl_start(&c, nccl, spec, outer, inner, NULL, 0) != RMS_OK) return 0;
  forward = rms_nccl_need(&c, 0);
  if (rms_nccl_start(&c, nccl, spec, outer, inner, NULL, 1) != RMS_OK) return 0;
  backward = rms_nccl_need(&c, 1);
  return forward > backward ? forward : backward;
}

/* What cannot be wrong if the rank is to take part at all. */
static inline rms_status rms_nccl_check(const rms_nccl_call *c, const void *stats, int backward) {
  const size_t need = rms_nccl_need(c, backward);
  if (!stats) return RMS_E_ARGUMENT;
  if ((uintptr_t)stats % sizeof(double) || (uintptr_t)c->nccl->scratch % sizeof(double)) return RMS_E_ALIGNMENT;
  return need > 0 && (!c->nccl->scratch || c->nccl->scratch_bytes < need) ? RMS_E_WORKSPACE : RMS_OK;
}

static inline rms_status rms_nccl_of_cuda(cudaError_t error) {
  return error == cudaSuccess ? RMS_OK : RMS_E_DEVICE;
}

/* All bits set are a NaN: what a rank contributes whose arguments are refused. An empty shard contributes zeros. */
static inline rms_status rms_nccl_fill(const rms_nccl_call *c, void *numbers, size_t bytes, rms_status status) {
  return rms_nccl_of_cuda(cudaMemsetAsync(numbers, status == RMS_OK ? 0 : 0xff, bytes, c->stream));
}

/* gathered: those of all ranks; they are folded into `total`. */
static inline rms_status rms_nccl_fold(const rms_nccl_call *c, int32_t kind, const rms_stat *gathered,
                                       rms_stat *total) {
  const size_t bytes = (size_t)c->segments * sizeof(rms_stat);
  rms_status status = rms_nccl_of_cuda(cudaMemcpyAsync(total, gathered, bytes, cudaMemcpyDeviceToDevice, c->stream));
  rms_spec spec;
  int rank;
  memset(&spec, 0, sizeof spec);
  spec.cols = 1;
  spec.kind = kind;
  for (rank = 1; rank < c->ranks && status == RMS_OK; rank++)
    status = rms_cuda_stats_merge(&spec, c->segments, total, gathered + rank * c->segments, (rms_cuda_stream)c->stream);
  return status;
}

/* own is replaced by what the ranks have together; gathered is scratch memory. */
static inline rms_status rms_nccl_exchange(const rms_nccl_call *c, int32_t kind, rms_stat *own, rms_stat *gathered) {
  const size_t doubles = (size_t)c->segments * 3;
  if (ncclAllGather(own, gathered, doubles, ncclDouble, c->nccl->comm, c->stream) != ncclSuccess)
    return RMS_E_COMMUNICATION;
  return rms_nccl_fold(c, kind, gathered, own);
}

static inline rms_status rms_nccl_add(const rms_nccl_call *c, void *numbers, size_t doubles) {
  const ncclResult_t result = ncclAllReduce(numbers, numbers, doubles, ncclDouble, ncclSum, c->nccl->comm, c->stream);
  return result == ncclSuccess ? RMS_OK : RMS_E_COMMUNICATION;
}

static inline rms_status rms_nccl_forward(const rms_nccl *nccl, const rms_spec *spec, const rms_forward_args *args,
                                          rms_stat *stats, rms_cuda_stream stream) {
  rms_nccl_call c;
  rms_status status, own = RMS_OK;
  if (!nccl || !spec || !args) return RMS_E_ARGUMENT;
  if (nccl->mode == RMS_NCCL_LOCAL) return rms_cuda_forward(spec, args, stream);
  status = rms_nccl_start(&c, nccl, spec, args->outer, args->inner, stream, 0);
  if (status == RMS_OK) status = rms_nccl_check(&c, stats, 0);
  if (status != RMS_OK || c.segments == 0) return status;
  if (spec->cols != 0) own = rms_cuda_stats(spec, args, stats, stream);
  if (spec->cols == 0 || own != RMS_OK) status = rms_nccl_fill(&c, stats, (size_t)c.segments * sizeof *stats, own);
  if (status != RMS_OK) return status;
  status = c.gathers ? rms_nccl_exchange(&c, spec->kind, stats, (rms_stat *)nccl->scratch)
                     : rms_nccl_add(&c, stats, (size_t)c.segments * 3);
  if (own != RMS_OK || status != RMS_OK) return own != RMS_OK ? own : status;
  return spec->cols == 0 ? RMS_OK : rms_cuda_apply(spec, args, stats, stream);
}

/* Copies one double of each sum to or from the statistic that stands for it. */
static inline rms_status rms_nccl_column(const rms_nccl_call *c, double *to, size_t to_pitch, const double *from,
                                         size_t from_pitch) {
  return rms_nccl_of_cuda(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, sizeof(double), (size_t)c->segments,
                                            cudaMemcpyDeviceToDevice, c->stream));
}

/* The sums as statistics, folded, and back. */
static inline rms_status rms_nccl_fold_sums(const rms_nccl_call *c, rms_grad_sum *sums) {
  const size_t wide = sizeof(rms_stat), narrow = sizeof(rms_grad_sum);
  rms_stat *packed = (rms_stat *)(void *)(sums + c->segments);
  double *as_stat = (double *)(void *)packed, *as_sum = (double *)(void *)sums;
  rms_status status = rms_nccl_of_cuda(cudaMemsetAsync(packed, 0, (size_t)c->segments * wide, c->stream));
  if (status == RMS_OK) status = rms_nccl_column(c, as_stat, wide, as_sum, narrow);
  if (status == RMS_OK) status = rms_nccl_column(c, as_stat + 2, wide, as_sum + 1, narrow);
  if (status == RMS_OK) status = rms_nccl_exchange(c, RMS_KIND_RMS, packed, packed + c->segments);
  if (status == RMS_OK) status = rms_nccl_column(c, as_sum, narrow, as_stat, wide);
  if (status == RMS_OK) status = rms_nccl_column(c, as_sum + 1, narrow, as_stat + 2, wide);
  return status;
}

static inline rms_status rms_nccl_backward(const rms_nccl *nccl, const rms_spec *spec, const rms_backward_args *args,
                                           const rms_stat *stats, rms_cuda_stream stream) {
  static const rms_grad_sum no_rows = {0, 0};
  rms_nccl_call c;
  rms_status status, own = RMS_OK;
  rms_grad_sum *sums;
  if (!nccl || !spec || !args) return RMS_E_ARGUMENT;
  if (nccl->mode == RMS_NCCL_LOCAL) return rms_cuda_backward(spec, args, stream);
  status = rms_nccl_start(&c, nccl, spec, args->outer, args->inner, stream, 1);
  if (status == RMS_OK) status = rms_nccl_check(&c, stats, 1);
  if (status != RMS_OK) return status;
  if (c.segments == 0) return spec->cols == 0 ? RMS_OK : rms_cuda_backward_apply(spec, args, stats, &no_rows, stream);
  sums = (rms_grad_sum *)nccl->scratch;
  if (spec->cols != 0) own = rms_cuda_backward_stats(spec, args, stats, sums, stream);
  if (spec->cols == 0 || own != RMS_OK) status = rms_nccl_fill(&c, sums, (size_t)c.segments * sizeof *sums, own);
  if (status != RMS_OK) return status;
  status = c.gathers ? rms_nccl_fold_sums(&c, sums) : rms_nccl_add(&c, sums, (size_t)c.segments * 2);
  if (own != RMS_OK || status != RMS_OK) return own != RMS_OK ? own : status;
  return spec->cols == 0 ? RMS_OK : rms_cuda_backward_apply(spec, args, stats, sums, stream);
}

#ifdef __cplusplus
}
#endif

#endif
