/* SPDX-License-Identifier: MIT
 *
 * rmsnorm_nccl.h with one rank of the machine's own NCCL on its GPU. The functions of fake_nccl/nccl.h are here those
 * of the library that RMSNORM_NCCL names, or libnccl.so.2. Exit status 77: there is no GPU, or no NCCL. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nccl_ranks.h"

static void *library;

/* `function` is a pointer to a function of that name. */
static void look_up(const char *name, void *function) {
  void *const found = dlsym(library, name);
  if (found == NULL) {
    printf("FAIL: no %s in the library\n", name);
    exit(1);
  }
  memcpy(function, &found, sizeof found);
}

static void require(ncclResult_t result, const char *what) {
  if (result == ncclSuccess) return;
  printf("FAIL: %s: NCCL's error %d\n", what, (int)result);
  exit(1);
}

void fake_nccl_create(ncclComm_t comms[FAKE_MOST_RANKS], int ranks) {
  ncclResult_t (*init)(ncclComm_t *, int, const int *);
  look_up("ncclCommInitAll", &init);
  require(init(comms, ranks, NULL), "ncclCommInitAll");
}

void fake_nccl_destroy(ncclComm_t comms[FAKE_MOST_RANKS]) {
  ncclResult_t (*destroy)(ncclComm_t);
  look_up("ncclCommDestroy", &destroy);
  require(destroy(comms[0]), "ncclCommDestroy");
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  ncclResult_t (*function)(ncclComm_t, int *);
  look_up("ncclCommCount", &function);
  return function(comm, count);
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t (*function)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
  look_up("ncclAllReduce", &function);
  return function(send, receive, count, type, op, comm, stream);
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  ncclResult_t (*function)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
  look_up("ncclAllGather", &function);
  return function(send, receive, count, type, comm, stream);
}

int main(void) {
  const char *named = getenv("RMSNORM_NCCL");
  if (rms_cuda_available() != RMS_OK) {
    puts("skipped: no usable GPU");
    return 77;
  }
  library = dlopen(named && *named ? named : "libnccl.so.2", RTLD_NOW);
  if (library == NULL) {
    printf("skipped: no NCCL (%s)\n", dlerror());
    return 77;
  }
  test_graphs();
  return conclude();
}
