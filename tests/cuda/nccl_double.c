/* SPDX-License-Identifier: MIT
 *
 * A double of librmsnorm_cuda and of the CUDA runtime for tests/cuda/nccl.c: device memory is the host's, and the
 * operations are those of the CPU library. It shows what rmsnorm_nccl.h does with them.
 *
 * A stream runs what it is given at once. A lazy one (nccl_double.h) keeps it until another stream waits for it or the
 * host does: what is missing an event comes too late, or too early. A stream belongs to one thread. */
#include "nccl_double.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rmsnorm_cuda.h"

/* ---- Streams ---- */

typedef struct operation {
  void (*run)(const struct operation *);
  rms_spec spec;
  rms_forward_args forward;
  rms_backward_args backward;
  void *to;
  const void *from, *sums;
  size_t to_pitch, from_pitch, width, height;
  int64_t count;
  int value;
  void (*call)(void *);
  cudaStream_t other;
} operation;

struct CUstream_st {
  operation *queue;
  size_t queued, done;
  int lazy;
};

struct CUevent_st {
  cudaStream_t stream;
  size_t queued;
};

static void run_to(cudaStream_t stream, size_t end) {
  while (stream->done < end) {
    const operation o = stream->queue[stream->done++];
    o.run(&o);
  }
}

static void queue(cudaStream_t stream, operation o) {
  if (stream == NULL) {
    o.run(&o);
    return;
  }
  stream->queue = realloc(stream->queue, (stream->queued + 1) * sizeof o);
  stream->queue[stream->queued++] = o;
  if (!stream->lazy) run_to(stream, stream->queued);
}

void double_make_lazy(cudaStream_t stream) {
  stream->lazy = 1;
}

size_t double_pending(cudaStream_t stream) {
  return stream->queued - stream->done;
}

static void run_call(const operation *o) {
  o->call(o->to);
}

void double_queue(cudaStream_t stream, void (*call)(void *), void *argument) {
  queue(stream, (operation){.run = run_call, .call = call, .to = argument});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  (void)flags;
  *stream = calloc(1, sizeof **stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != NULL) run_to(stream, stream->queued);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  free(stream->queue);
  free(stream);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  (void)flags;
  *event = calloc(1, sizeof **event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  free(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  event->queued = stream ? stream->queued : 0;
  return cudaSuccess;
}

static void run_wait(const operation *o) {
  run_to(o->other, o->height);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  (void)flags;
  if (event->stream != NULL)
    queue(stream, (operation){.run = run_wait, .other = event->stream, .height = event->queued});
  return cudaSuccess;
}

/* ---- Memory ---- */

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory) {
  free(memory);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream) {
  (void)stream;
  return cudaMalloc(memory, bytes);
}

static void run_free(const operation *o) {
  free(o->to);
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream) {
  queue(stream, (operation){.run = run_free, .to = memory});
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  (void)kind;
  memcpy(to, from, bytes);
  return cudaSuccess;
}

static void run_copy(const operation *o) {
  for (size_t i = 0; i < o->height; i++)
    memcpy((char *)o->to + i * o->to_pitch, (const char *)o->from + i * o->from_pitch, o->width);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)kind;
  queue(stream, (operation){run_copy, .to = to, .from = from, .to_pitch = to_pitch, .from_pitch = from_pitch,
                            .width = width, .height = height});
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}

static void run_set(const operation *o) {
  for (size_t i = 0; i < o->height; i++)
    memset((char *)o->to + i * o->to_pitch, o->value, o->width);
}

cudaError_t cudaMemset2DAsync(void *memory, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  queue(stream,
        (operation){run_set, .to = memory, .to_pitch = pitch, .value = value, .width = width, .height = height});
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
  return cudaMemset2DAsync(memory, bytes, value, bytes, 1, stream);
}

/* ---- The library ---- */

/* The CPU library finds fault with the executor last, so one that it refuses makes a call that only checks. */
static const rms_executor no_executor;

static rms_status checked(rms_status status) {
  return status == RMS_E_EXECUTOR ? RMS_OK : status;
}

/* What was checked when it was queued is not refused later. */
static void must(rms_status status) {
  if (status == RMS_OK) return;
  printf("FAIL: a queued operation returns %s\n", rms_status_string(status));
  abort();
}

rms_status rms_cuda_available(void) {
  return RMS_OK;
}

rms_status rms_cuda_forward_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args,
                                  size_t args_size, rms_cuda_stream stream) {
  cudaStreamSynchronize(stream);
  return rms_forward_sized(spec, spec_size, args, args_size, NULL);
}

rms_status rms_cuda_backward_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                   size_t args_size, rms_cuda_stream stream) {
  cudaStreamSynchronize(stream);
  return rms_backward_sized(spec, spec_size, args, args_size, NULL);
}

size_t rms_cuda_backward_workspace_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size) {
  return rms_backward_workspace_sized(spec, spec_size, args, args_size);
}

rms_status rms_cuda_forward_check_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args,
                                        size_t args_size, const rms_stat *stats) {
  const rms_status status =
      checked(rms_stats_sized(spec, spec_size, args, args_size, (rms_stat *)(uintptr_t)stats, &no_executor));
  return status ? status : checked(rms_apply_sized(spec, spec_size, args, args_size, stats, &no_executor));
}

rms_status rms_cuda_backward_check_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size, const rms_stat *stats, const rms_grad_sum *sums) {
  const rms_status status = checked(
      rms_backward_stats_sized(spec, spec_size, args, args_size, stats, (rms_grad_sum *)(uintptr_t)sums, &no_executor));
  return status ? status
                : checked(rms_backward_apply_sized(spec, spec_size, args, args_size, stats, sums, &no_executor));
}

static void run_stats(const operation *o) {
  must(rms_stats(&o->spec, &o->forward, o->to, NULL));
}

rms_status rms_cuda_stats_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                                rms_stat *stats, rms_cuda_stream stream) {
  const rms_status status = checked(rms_stats_sized(spec, spec_size, args, args_size, stats, &no_executor));
  if (status == RMS_OK) queue(stream, (operation){.run = run_stats, .spec = *spec, .forward = *args, .to = stats});
  return status;
}

static void run_merge(const operation *o) {
  must(rms_stats_merge(&o->spec, o->count, o->to, o->from));
}

rms_status rms_cuda_stats_merge_sized(const rms_spec *spec, size_t spec_size, int64_t count, rms_stat *into,
                                      const rms_stat *from, rms_cuda_stream stream) {
  const rms_status status = rms_stats_merge_sized(spec, spec_size, 0, into, from);
  if (status == RMS_OK)
    queue(stream, (operation){.run = run_merge, .spec = *spec, .count = count, .to = into, .from = from});
  return status;
}

static void run_apply(const operation *o) {
  must(rms_apply(&o->spec, &o->forward, o->from, NULL));
}

rms_status rms_cuda_apply_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                                const rms_stat *stats, rms_cuda_stream stream) {
  const rms_status status = checked(rms_apply_sized(spec, spec_size, args, args_size, stats, &no_executor));
  if (status == RMS_OK) queue(stream, (operation){.run = run_apply, .spec = *spec, .forward = *args, .from = stats});
  return status;
}

static void run_backward_stats(const operation *o) {
  must(rms_backward_stats(&o->spec, &o->backward, o->from, o->to, NULL));
}

rms_status rms_cuda_backward_stats_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size, const rms_stat *stats, rms_grad_sum *sums,
                                         rms_cuda_stream stream) {
  const rms_status status =
      checked(rms_backward_stats_sized(spec, spec_size, args, args_size, stats, sums, &no_executor));
  if (status == RMS_OK)
    queue(stream, (operation){run_backward_stats, .spec = *spec, .backward = *args, .from = stats, .to = sums});
  return status;
}

static void run_backward_apply(const operation *o) {
  must(rms_backward_apply(&o->spec, &o->backward, o->from, o->sums, NULL));
}

rms_status rms_cuda_backward_apply_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size, const rms_stat *stats, const rms_grad_sum *sums,
                                         rms_cuda_stream stream) {
  const rms_status status =
      checked(rms_backward_apply_sized(spec, spec_size, args, args_size, stats, sums, &no_executor));
  if (status == RMS_OK)
    queue(stream, (operation){run_backward_apply, .spec = *spec, .backward = *args, .from = stats, .sums = sums});
  return status;
}
