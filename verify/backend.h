/* SPDX-License-Identifier: MIT
 *
 * Where a case runs. A backend is handed host pointers into the listed blocks; one that computes elsewhere copies the
 * blocks there, translates each pointer (vf_block_of), runs, and copies the blocks back. */
#ifndef RMSNORM_VERIFY_BACKEND_H
#define RMSNORM_VERIFY_BACKEND_H

#include "case.h"

typedef struct vf_block {
  char *base;
  size_t bytes;
} vf_block;

typedef struct vf_memory {
  vf_block block[VF_ROLES];
  int count;
} vf_memory;

/* The index of the block that holds this address, or -1. */
int vf_block_of(const vf_memory *memory, const void *address);

typedef struct vf_backend vf_backend;
struct vf_backend {
  const char *name;
  void *ctx;
  /* 0, or -1 with a reason in *why if this backend cannot take the problem. finish() follows in both cases. */
  int (*prepare)(const vf_backend *self, const vf_problem *problem, const char **why);
  void (*finish)(const vf_backend *self);
  size_t (*backward_workspace)(const vf_backend *self, const rms_spec *spec, const rms_backward_args *args);
  rms_status (*forward)(const vf_backend *self, const vf_memory *memory, const rms_spec *spec,
                        const rms_forward_args *args);
  rms_status (*stats)(const vf_backend *self, const vf_memory *memory, const rms_spec *spec,
                      const rms_forward_args *args, rms_stat *stats);
  rms_status (*apply)(const vf_backend *self, const vf_memory *memory, const rms_spec *spec,
                      const rms_forward_args *args, const rms_stat *stats);
  rms_status (*backward)(const vf_backend *self, const vf_memory *memory, const rms_spec *spec,
                         const rms_backward_args *args);
  rms_status (*backward_stats)(const vf_backend *self, const vf_memory *memory, const rms_spec *spec,
                               const rms_backward_args *args, const rms_stat *stats, rms_grad_sum *sums);
  rms_status (*backward_apply)(const vf_backend *self, const vf_memory *memory, const rms_spec *spec,
                               const rms_backward_args *args, const rms_stat *stats, const rms_grad_sum *sums);
};

/* The library on this CPU: the problem's instruction set and threads. One problem at a time. */
const vf_backend *vf_backend_cpu(void);

/* The CUDA library on the current device, or NULL with a reason in *why. Defined beside that library, in builds that
 * have it. */
const vf_backend *vf_backend_cuda(const char **why);

#endif
