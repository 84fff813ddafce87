/* SPDX-License-Identifier: MIT
 *
 * Collectives between threads, through the host's memory. With one rank they only queue work on the stream, as NCCL
 * does, so that they can be captured. */
#include "fake_nccl/nccl.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef RMSNORM_NCCL_DOUBLE
#include "nccl_double.h"
#endif

typedef struct meeting {
  pthread_barrier_t barrier;
  int ranks, fails;
  double *numbers[FAKE_MOST_RANKS]; /* what each rank sends, on the host */
} meeting;

struct ncclComm {
  meeting *all;
  int rank;
};

void fake_nccl_create(ncclComm_t comms[FAKE_MOST_RANKS], int ranks) {
  meeting *all = calloc(1, sizeof *all);
  all->ranks = ranks;
  pthread_barrier_init(&all->barrier, NULL, (unsigned)ranks);
  for (int i = 0; i < ranks; i++) {
    comms[i] = calloc(1, sizeof *comms[i]);
    comms[i]->all = all;
    comms[i]->rank = i;
  }
}

void fake_nccl_destroy(ncclComm_t comms[FAKE_MOST_RANKS]) {
  meeting *all = comms[0]->all;
  for (int i = 0; i < all->ranks; i++)
    free(comms[i]);
  pthread_barrier_destroy(&all->barrier);
  free(all);
}

void fake_nccl_fail(ncclComm_t comm) {
  comm->all->fails = 1;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  if (comm == NULL) return ncclInvalidArgument;
  *count = comm->all->ranks;
  return ncclSuccess;
}

static int is_good(cudaError_t error) {
  return error == cudaSuccess;
}

/* A collective of one rank. */
typedef struct part {
  ncclComm_t comm;
  const void *send;
  void *receive;
  size_t count, results;
  void (*use)(const meeting *all, size_t count, double *result);
  int good;
} part;

/* Every rank's numbers come to the host, `use` makes `result` of them, and it goes back to the device. */
static void meet(part *p) {
  meeting *all = p->comm->all;
  const int rank = p->comm->rank;
  double *result = malloc(p->results * sizeof *result);
  all->numbers[rank] = malloc(p->count * sizeof *result);
  p->good = is_good(cudaMemcpy(all->numbers[rank], p->send, p->count * sizeof *result, cudaMemcpyDeviceToHost));
  pthread_barrier_wait(&all->barrier);
  p->good = p->good && !all->fails;
  if (p->good) p->use(all, p->count, result);
  pthread_barrier_wait(&all->barrier);
  free(all->numbers[rank]);
  p->good = p->good && is_good(cudaMemcpy(p->receive, result, p->results * sizeof *result, cudaMemcpyHostToDevice));
  free(result);
  if (rank == 0) all->fails = 0;
  pthread_barrier_wait(&all->barrier);
}

#ifdef RMSNORM_NCCL_DOUBLE
/* In the stream's turn, as NCCL does; whether it was good is not known before. */
static void meet_later(void *argument) {
  part *p = argument;
  meet(p);
  if (!p->good) abort();
  free(p);
}

static ncclResult_t start(part p, cudaStream_t stream) {
  part *kept = malloc(sizeof p);
  *kept = p;
  double_queue(stream, meet_later, kept);
  return ncclSuccess;
}
#else
static ncclResult_t start(part p, cudaStream_t stream) {
  const int good = is_good(cudaStreamSynchronize(stream));
  meet(&p);
  return good && p.good && is_good(cudaStreamSynchronize(NULL)) ? ncclSuccess : ncclInvalidArgument;
}
#endif

static ncclResult_t queue(ncclComm_t comm, const void *send, void *receive, size_t count, cudaStream_t stream) {
  int good = !comm->all->fails;
  comm->all->fails = 0;
  if (good && send != receive)
    good = is_good(cudaMemcpyAsync(receive, send, count * sizeof(double), cudaMemcpyDeviceToDevice, stream));
  return good ? ncclSuccess : ncclInvalidArgument;
}

/* Last rank first: an order that is not that of the fold. */
static void add(const meeting *all, size_t count, double *result) {
  for (size_t i = 0; i < count; i++) {
    result[i] = all->numbers[all->ranks - 1][i];
    for (int rank = all->ranks - 2; rank >= 0; rank--)
      result[i] += all->numbers[rank][i];
  }
}

static void join(const meeting *all, size_t count, double *result) {
  for (int rank = 0; rank < all->ranks; rank++)
    memcpy(result + (size_t)rank * count, all->numbers[rank], count * sizeof *result);
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclDouble || op != ncclSum) return ncclInvalidArgument;
  if (comm->all->ranks == 1) return queue(comm, send, receive, count, stream);
  return start((part){comm, send, receive, count, count, add, 0}, stream);
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  if (type != ncclDouble) return ncclInvalidArgument;
  if (comm->all->ranks == 1) return queue(comm, send, receive, count, stream);
  return start((part){comm, send, receive, count, count * (size_t)comm->all->ranks, join, 0}, stream);
}
