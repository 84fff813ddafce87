/* SPDX-License-Identifier: MIT
 *
 * A double of librmsnorm_cuda and of the CUDA runtime for tests/cuda/nccl.c: device memory is the host's, a stream runs
 * what it is given at once, and the operations are those of the CPU library. It shows what rmsnorm_nccl.h does with
 * them. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include "rmsnorm_cuda.h"

rms_status rms_cuda_available(void) {
  return RMS_OK;
}

rms_status rms_cuda_forward_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args,
                                  size_t args_size, rms_cuda_stream stream) {
  (void)stream;
  return rms_forward_sized(spec, spec_size, args, args_size, NULL);
}

rms_status rms_cuda_backward_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                   size_t args_size, rms_cuda_stream stream) {
  (void)stream;
  return rms_backward_sized(spec, spec_size, args, args_size, NULL);
}

size_t rms_cuda_backward_workspace_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size) {
  return rms_backward_workspace_sized(spec, spec_size, args, args_size);
}

rms_status rms_cuda_stats_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                                rms_stat *stats, rms_cuda_stream stream) {
  (void)stream;
  return rms_stats_sized(spec, spec_size, args, args_size, stats, NULL);
}

rms_status rms_cuda_stats_merge_sized(const rms_spec *spec, size_t spec_size, int64_t count, rms_stat *into,
                                      const rms_stat *from, rms_cuda_stream stream) {
  (void)stream;
  return rms_stats_merge_sized(spec, spec_size, count, into, from);
}

rms_status rms_cuda_apply_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                                const rms_stat *stats, rms_cuda_stream stream) {
  (void)stream;
  return rms_apply_sized(spec, spec_size, args, args_size, stats, NULL);
}

rms_status rms_cuda_backward_stats_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size, const rms_stat *stats, rms_grad_sum *sums,
                                         rms_cuda_stream stream) {
  (void)stream;
  return rms_backward_stats_sized(spec, spec_size, args, args_size, stats, sums, NULL);
}

rms_status rms_cuda_backward_apply_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size, const rms_stat *stats, const rms_grad_sum *sums,
                                         rms_cuda_stream stream) {
  (void)stream;
  return rms_backward_apply_sized(spec, spec_size, args, args_size, stats, sums, NULL);
}

/* ---- The runtime ---- */

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory) {
  free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  (void)kind;
  memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)stream;
  return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)kind;
  (void)stream;
  for (size_t i = 0; i < height; i++)
    memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
  (void)stream;
  memset(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  (void)flags;
  *stream = NULL;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  (void)stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  (void)stream;
  return cudaSuccess;
}
