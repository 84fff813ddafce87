/* SPDX-License-Identifier: MIT
 *
 * As much of the CUDA runtime as the library calls, with a device that is only described and kernels that do nothing:
 * what the library launches, and what it makes of errors, can be tested without a GPU. */
#ifndef RMSNORM_TESTS_FAKE_RUNTIME_H
#define RMSNORM_TESTS_FAKE_RUNTIME_H

#include <cuda_runtime_api.h>

enum { FAKE_LAUNCHES = 64 };

typedef struct fake_launch {
  const char *kernel; /* its mangled name */
  unsigned blocks, threads;
  size_t shared;
  int cluster, early; /* attributes */
} fake_launch;

typedef struct fake_runtime {
  int id;           /* of the device                                          */
  int capability;   /* 90, ...; 0: there is no device                         */
  int code, binary; /* architectures of the code that the device runs         */
  int multiprocessors, shared_per_block;
  int clusters;             /* that fit at once                                       */
  cudaError_t last;         /* the last error                                         */
  cudaError_t launch_error; /* what launches return from the launch `bad_launch` on   */
  int bad_launch;
  int launches, probes; /* so far; the first launches are listed */
  int questions;        /* about devices and kernels, and settings of these */
  fake_launch launch[FAKE_LAUNCHES];
} fake_runtime;

extern fake_runtime fake;

/* A device, its code, and no launches yet. */
void fake_device(int capability, int code, int binary);

#endif
