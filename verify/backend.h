/* SPDX-License-Identifier: MIT
 *
 * Where a case runs. A back end is handed host pointers into the case's buffers; one that computes elsewhere copies the
 * buffers there, translates each pointer (verify_buffer_of), runs, and copies the buffers back. */
#ifndef RMSNORM_VERIFY_BACKEND_H
#define RMSNORM_VERIFY_BACKEND_H

#include "memory.h"

typedef struct verify_backend verify_backend;
struct verify_backend {
  const char *name;
  void *ctx;
  /* 0, or -1 with a reason in *why if this backend cannot take the problem. finish() follows in both cases. */
  int (*prepare)(const verify_backend *self, const verify_problem *problem, const char **why);
  void (*finish)(const verify_backend *self);
  size_t (*backward_workspace)(const verify_backend *self, const rms_spec *spec, const rms_backward_args *args);
  rms_status (*forward)(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                        const rms_forward_args *args);
  rms_status (*stats)(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                      const rms_forward_args *args, rms_stat *stats);
  rms_status (*apply)(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                      const rms_forward_args *args, const rms_stat *stats);
  rms_status (*backward)(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                         const rms_backward_args *args);
  rms_status (*backward_stats)(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                               const rms_backward_args *args, const rms_stat *stats, rms_grad_sum *sums);
  rms_status (*backward_apply)(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                               const rms_backward_args *args, const rms_stat *stats, const rms_grad_sum *sums);
};

/* The library on this CPU: the problem's instruction set and threads. One problem at a time. */
const verify_backend *verify_backend_cpu(void);

/* The CUDA library on the current device, or NULL with a reason in *why. In librmsnorm_verify_cuda, which only builds
 * with CUDA have. */
const verify_backend *verify_backend_cuda(const char **why);

#endif
