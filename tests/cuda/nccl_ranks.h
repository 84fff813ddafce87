/* SPDX-License-Identifier: MIT
 *
 * Whole rows, shards of them on the device, and ranks that are threads: what the tests of rmsnorm_nccl.h are made of.
 */
#ifndef RMSNORM_TESTS_NCCL_RANKS_H
#define RMSNORM_TESTS_NCCL_RANKS_H

#include "rmsnorm_nccl.h"
#ifdef RMSNORM_NCCL_DOUBLE
#include "nccl_double.h"
#endif

enum { ROWS = 37, COLS = 480, ELEMENTS = ROWS * COLS, WORKSPACE = 4 << 20, MOST_SEGMENTS = 4 };

int expect(int held, const char *what, const char *where);
/* The status of the process; prints how many checks there were. */
int conclude(void);
/* Ends the process with an error of CUDA. */
void must(cudaError_t error);
void *device(const void *host, size_t bytes);

/* Whole rows on the host. */
typedef struct rows {
  float x[ELEMENTS], dy[ELEMENTS], weight[COLS], y[ELEMENTS], dx[ELEMENTS], dweight[COLS];
} rows;

/* integers: small ones. The results are zero. */
void fill(rows *r, unsigned seed, int integers);

/* Columns of the whole rows, dense, on the device. */
typedef struct shard {
  int64_t first, cols;
  float *x, *dy, *weight, *y, *dx, *dweight;
  void *workspace;
  rms_stat *stats;
} shard;

shard make_shard(const rows *r, int64_t first, int64_t cols);
void free_shard(shard *s);
/* Brings the shard's results to where they are in whole rows. */
void fetch_shard(rows *r, const shard *s);
rms_forward_args forward_of(const shard *s);
rms_backward_args backward_of(const shard *s);

/* The unsplit calls. */
void run_whole(const rms_spec *spec, rows *r, const char *where);

/* What is wrong with the call of one rank. */
typedef enum fault { NO_FAULT, BAD_TYPE, Y_OVER_X, NO_STATS, LITTLE_SCRATCH, NO_EVENT, TOO_WIDE, FAULTS } fault;

/* Which stream of a rank keeps what it is given until it is waited for; with the double alone. */
typedef enum lateness { NONE_LATE, CALL_LATE, EXCHANGE_LATE, LATENESSES } lateness;

typedef struct job {
  const rms_spec *spec; /* of the whole rows */
  rms_nccl_mode mode;
  const int64_t *starts; /* of the shards, ranks + 1 */
  int ranks;
  int64_t chunk_rows, block_cols;
  int64_t inner;  /* 0: 1; otherwise a shard's columns are that many rows */
  int overlaps;   /* there is a second stream */
  int rows_alone; /* dweight is not wanted, so that dx is written in chunks */
  lateness late;
  fault fault;
  int bad;         /* the rank that has the fault */
  rows *r;         /* input, and where the results go */
  rms_stat *stats; /* NULL, or receives the statistics that the first rank has of the rows */
  ncclComm_t comms[FAKE_MOST_RANKS];
  rms_status forward[FAKE_MOST_RANKS], backward[FAKE_MOST_RANKS];
} job;

void run_ranks(job *j);
void expect_good(const job *j, const char *where);

/* Tests of chunks and blocks: nccl_chunks.c. */
void test_chunks(void);
void test_blocks(void);
void test_faults(void);
/* Graphs, on a GPU alone: nccl_graph.c. */
void test_graphs(void);

#endif
