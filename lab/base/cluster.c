/* SPDX-License-Identifier: MIT */
#include "base/cluster.h"

#include <stdlib.h>

int64_t cluster_start_of(int64_t count, int rank) {
  return count * rank / cluster_size();
}

int cluster_agree(int result, lab_error *error) {
  if (!cluster_most(result < 0)) return 0;
  if (result >= 0) error->text[0] = 0;
  return -1;
}

/* What the starters of Open MPI, of MPICH and its relatives, and of PMIx leave in the environment. */
static int from_starter(const char *const names[], int otherwise) {
  for (int i = 0; names[i] != NULL; i++)
    if (getenv(names[i]) != NULL) return atoi(getenv(names[i]));
  return otherwise;
}

static int expected_size(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", NULL};
  return from_starter(names, 1);
}

int cluster_expected_rank(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", NULL};
  return expected_size() > 1 ? from_starter(names, 0) : 0;
}

#ifndef RMSNORM_WITH_MPI

int cluster_start(void) {
  return expected_size() > 1 ? -1 : 0;
}
void cluster_end(void) {}
int cluster_rank(void) {
  return 0;
}
int cluster_size(void) {
  return 1;
}
double cluster_seconds(void) {
  return 0;
}
void cluster_use(int count) {
  (void)count;
}
int cluster_most(int value) {
  return value;
}
int cluster_same(uint64_t value) {
  (void)value;
  return 1;
}
void cluster_share(void *data, size_t bytes) {
  (void)data, (void)bytes;
}
void cluster_collect(void *data, int64_t count, size_t unit) {
  (void)data, (void)count, (void)unit;
}
void cluster_swap(const cluster_block *sent, int64_t sends, const cluster_block *received, int64_t receives,
                  size_t unit) {
  (void)sent, (void)sends, (void)received, (void)receives, (void)unit;
}

#else

#include <mpi.h>

/* MPI ends the job, with a message, when one of its functions fails: that is what its error handler does. */
static struct {
  int joined, rank, size;
  MPI_Comm comm;
  double seconds;
} cluster = {0, 0, 1, MPI_COMM_NULL, 0};

static void take(MPI_Comm comm) {
  cluster.comm = comm;
  MPI_Comm_rank(comm, &cluster.rank);
  MPI_Comm_size(comm, &cluster.size);
}

int cluster_start(void) {
  int provided;
  if (expected_size() <= 1) return 0;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided); /* this thread alone uses it */
  cluster.joined = 1;
  take(MPI_COMM_WORLD);
  return 0;
}

void cluster_end(void) {
  if (cluster.joined) MPI_Finalize();
  cluster.joined = cluster.rank = 0;
  cluster.size = 1;
}

int cluster_rank(void) {
  return cluster.rank;
}

int cluster_size(void) {
  return cluster.size;
}

double cluster_seconds(void) {
  return cluster.seconds;
}

void cluster_use(int count) {
  if (!cluster.joined) return;
  if (cluster.comm != MPI_COMM_WORLD) MPI_Comm_free(&cluster.comm);
  take(MPI_COMM_WORLD);
  if (count == 0 || count >= cluster.size) return;
  MPI_Comm part;
  MPI_Comm_split(MPI_COMM_WORLD, cluster.rank >= count, cluster.rank, &part);
  take(part);
}

int cluster_most(int value) {
  int most = value;
  if (cluster.size > 1) MPI_Allreduce(&value, &most, 1, MPI_INT, MPI_MAX, cluster.comm);
  return most;
}

int cluster_same(uint64_t value) {
  uint64_t ends[2] = {value, ~value}, most[2] = {value, ~value};
  if (cluster.size > 1) MPI_Allreduce(ends, most, 2, MPI_UINT64_T, MPI_MAX, cluster.comm);
  return most[0] == ~most[1];
}

/* Messages are counted in units, so that an int is enough for every count. */
static MPI_Datatype unit_type(size_t unit) {
  MPI_Datatype type;
  MPI_Type_contiguous((int)unit, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  return type;
}

void cluster_share(void *data, size_t bytes) {
  const size_t most = (size_t)1 << 30;
  for (char *at = data; cluster.size > 1 && bytes > 0;) {
    const size_t part = bytes < most ? bytes : most;
    MPI_Bcast(at, (int)part, MPI_BYTE, 0, cluster.comm);
    at += part;
    bytes -= part;
  }
}

void cluster_collect(void *data, int64_t count, size_t unit) {
  if (cluster.size == 1) return;
  const double start = MPI_Wtime();
  int *counts = lab_alloc((size_t)cluster.size, sizeof *counts),
      *starts = lab_alloc((size_t)cluster.size, sizeof *starts);
  for (int i = 0; i < cluster.size; i++) {
    starts[i] = (int)cluster_start_of(count, i);
    counts[i] = (int)cluster_start_of(count, i + 1) - starts[i];
  }
  MPI_Datatype type = unit_type(unit);
  MPI_Allgatherv(MPI_IN_PLACE, 0, type, data, counts, starts, type, cluster.comm);
  MPI_Type_free(&type);
  free(counts);
  free(starts);
  cluster.seconds += MPI_Wtime() - start;
}

void cluster_swap(const cluster_block *sent, int64_t sends, const cluster_block *received, int64_t receives,
                  size_t unit) {
  const double start = MPI_Wtime();
  MPI_Request *requests = lab_alloc((size_t)(sends + receives), sizeof *requests);
  MPI_Datatype type = unit_type(unit);
  int used = 0;
  for (int64_t i = 0; i < receives; i++)
    MPI_Irecv(received[i].data, (int)received[i].units, type, received[i].rank, 0, cluster.comm, &requests[used++]);
  for (int64_t i = 0; i < sends; i++)
    MPI_Isend(sent[i].data, (int)sent[i].units, type, sent[i].rank, 0, cluster.comm, &requests[used++]);
  MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
  MPI_Type_free(&type);
  free(requests);
  cluster.seconds += MPI_Wtime() - start;
}

#endif
