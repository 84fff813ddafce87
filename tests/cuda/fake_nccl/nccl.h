/* SPDX-License-Identifier: MIT
 *
 * As much of NCCL as rmsnorm_nccl.h calls, with the signatures of NCCL, for ranks that are threads of one process and
 * share a device: fake_nccl.c. */
#ifndef RMSNORM_TESTS_FAKE_NCCL_H
#define RMSNORM_TESTS_FAKE_NCCL_H

#include <cuda_runtime_api.h>
#include <stddef.h>

typedef struct ncclComm *ncclComm_t;
typedef enum { ncclSuccess = 0, ncclInvalidArgument = 4 } ncclResult_t;
typedef enum { ncclFloat64 = 8, ncclDouble = 8 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);

/* Of the fake alone: a communicator for `ranks` threads; all of one array belong together. */
enum { FAKE_MOST_RANKS = 8 };
void fake_nccl_create(ncclComm_t comms[FAKE_MOST_RANKS], int ranks);
void fake_nccl_destroy(ncclComm_t comms[FAKE_MOST_RANKS]);
/* The next collective of this communicator fails, on this rank and on all others. */
void fake_nccl_fail(ncclComm_t comm);

#endif
