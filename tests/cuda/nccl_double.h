/* SPDX-License-Identifier: MIT
 *
 * What the double of nccl_double.c has beside CUDA's functions. */
#ifndef RMSNORM_TESTS_NCCL_DOUBLE_H
#define RMSNORM_TESTS_NCCL_DOUBLE_H

#include <cuda_runtime_api.h>
#include <stddef.h>

/* The stream keeps what it is given until somebody waits for it. */
void double_make_lazy(cudaStream_t stream);
/* Operations that the stream has not run. */
size_t double_pending(cudaStream_t stream);
/* Runs call(argument) in the stream's turn. */
void double_queue(cudaStream_t stream, void (*call)(void *), void *argument);

#endif
