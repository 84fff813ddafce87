/* SPDX-License-Identifier: MIT
 *
 * rmsnorm for rows whose columns are spread over the processes of an MPI communicator. Header only, on the split
 * functions of rmsnorm.h (section 5): it is compiled into the caller's program with the caller's MPI, so that the
 * library itself depends on none. Compile with mpicc, or link MPI::MPI_C in CMake.
 *
 *   rms_spec spec = {0};                        the shard of this rank: cols of the row's columns, which may be 0
 *   rms_mpi mpi = {MPI_COMM_WORLD};
 *   mpi.scratch_bytes = rms_mpi_scratch(&mpi, &spec, rows, 1);
 *   mpi.scratch = malloc(mpi.scratch_bytes);
 *   rms_mpi_forward(&mpi, &spec, &args, stats, NULL);
 *   rms_mpi_backward(&mpi, &spec, &gradient_args, stats, NULL);
 *
 * The ranks agree on everything but their shards: rows, kind, eps, groups and the fields of rms_mpi. `cols` and
 * `partial` are the shard's own: 0 columns is an empty shard, whose tensors are ignored, and RMS_PARTIAL_NONE a shard
 * without an element of pRMSNorm's statistic. With groups, group g of the row is the union of every rank's group g;
 * groups that lie in one shard each need no communication: RMS_MPI_LOCAL.
 *
 * Errors reach every rank. Each checks its own arguments before anything is written; a small reduction of the findings
 * runs while the first statistics are measured, and every rank returns its own status or, if it had none to complain
 * of, the greatest status of the others. Arguments that the ranks do not agree on are RMS_E_ARGUMENT. So no rank waits
 * for one that has given up. An error of MPI itself is RMS_E_COMMUNICATION where the communicator returns errors; by
 * default MPI ends the job. After it, neither the communicator nor the scratch memory may be used. After any other
 * error the outputs are untouched; `stats` and the scratch memory may have been written. The exception is RMS_E_MEMORY,
 * which rows of channels first may get at any time (rmsnorm.h, section 3): then this rank's outputs may be written in
 * part, and the results of other ranks, which may return RMS_OK, lack its statistics.
 *
 * Statistics travel in chunks of rows: while those of one chunk are reduced, the next is measured and the one before is
 * written. How much of the transfer this hides depends on whether the MPI makes progress outside of its calls.
 *
 * docs/distributed.md says which mode to use when, with figures. */
#ifndef RMSNORM_MPI_H
#define RMSNORM_MPI_H

#include <mpi.h>
#include <limits.h>
#include <string.h>
#include "rmsnorm.h"
#include "rmsnorm_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The interface ---- */

typedef enum rms_mpi_mode {
  /* MPI reduces the statistics (MPI_Iallreduce). Least traffic. The last bits depend on the order in which the MPI
   * adds, which can follow the number of ranks, the size of the message and the network. */
  RMS_MPI_REDUCE = 0,
  /* The statistics are gathered (MPI_Iallgather) and every rank folds them in the order of the ranks. The bits are a
   * function of the rows and their split, whatever the MPI does. Traffic and scratch memory grow with the number of
   * ranks.
   *
   * With block_cols > 0 every shard is measured in blocks of that many columns, which are folded in the order of the
   * columns. The bits are then a function of the rows and the lengths of the blocks: they do not depend on the number
   * of ranks as long as every shard but the last holds whole blocks (with pRMSNorm: and the statistic ends in the last
   * shard that has a part of it). This takes a statistic per row and block instead of one per row and rank. It is
   * offered without index lists and groups; a shard that is not made of whole blocks cannot have weights per inner
   * index. */
  RMS_MPI_FOLD = 1,
  /* Every rank normalises its shard by the shard's own statistic: no communication at all, so that errors stay local
   * too. This is another norm than that of the whole row. With `partial` it is pRMSNorm that needs no communication;
   * with groups it is the grouped norm whose groups lie in one shard each. `stats` is not used. */
  RMS_MPI_LOCAL = 2
} rms_mpi_mode;

typedef struct rms_mpi {
  MPI_Comm comm;
  int32_t mode;       /* rms_mpi_mode                                                                           */
  int32_t reserved;   /* 0                                                                                      */
  int64_t block_cols; /* RMS_MPI_FOLD: columns of a block; 0: a shard is one block                              */
  int64_t chunk_rows; /* outer rows whose statistics travel together; 0: a quarter of the rows, at least 64     */
  void *scratch;      /* rms_mpi_scratch() bytes, aligned to 8; the forward needs none with RMS_MPI_REDUCE      */
  size_t scratch_bytes;
} rms_mpi;

/* Bytes of scratch memory that are enough for rms_mpi_forward and rms_mpi_backward of that many rows. A collective
 * call: every rank makes it, and gets the same answer. 0 where none is needed, where the size would overflow, and where
 * the calls would refuse the arguments. */
static inline size_t rms_mpi_scratch(const rms_mpi *mpi, const rms_spec *spec, int64_t outer, int64_t inner);

/* rms_forward of the whole rows; args are those of the shard. stats: one rms_stat per outer, inner, group, which
 * receives the statistics of the whole rows for the backward. */
static inline rms_status rms_mpi_forward(const rms_mpi *mpi, const rms_spec *spec, const rms_forward_args *args,
                                         rms_stat *stats, const rms_executor *executor);

/* rms_backward of the whole rows; stats are those that rms_mpi_forward wrote. args->rstd and mean are ignored. dweight
 * and dbias belong to the shard's columns and need no reduction over the ranks. */
static inline rms_status rms_mpi_backward(const rms_mpi *mpi, const rms_spec *spec, const rms_backward_args *args,
                                          const rms_stat *stats, const rms_executor *executor);

/* ---- A call: what both directions share ---- */

typedef struct rms_mpi_call {
  const rms_mpi *mpi;
  const rms_spec *spec;
  const rms_executor *executor;
  int64_t outer, segments; /* outer rows; statistics per outer row: inner x groups                    */
  int64_t chunk, chunks;   /* outer rows of a chunk; how many chunks there are                        */
  int64_t blocks, most;    /* statistics per segment: this rank's, and the most that any rank has     */
  int64_t ranks, numbers;  /* doubles in one statistic: 3 forward, 2 backward                         */
  double *totals;          /* the reduced numbers of all rows                                         */
  double *copies;          /* with blocks, backward: the row's statistic once for every block         */
  double *slot[2];         /* FOLD: gathered numbers of two chunks, each followed by this rank's own  */
  MPI_Request request[2];
  MPI_Datatype type; /* LayerNorm's statistics with REDUCE                                      */
  MPI_Op op;
  rms_status failed; /* RMS_OK, or the first error after the agreement                          */
} rms_mpi_call;

static inline int rms_mpi_folds(const rms_mpi_call *c) {
  return c->mpi->mode == RMS_MPI_FOLD;
}

static inline int64_t rms_mpi_or_1(int64_t n) {
  return n ? n : 1;
}

/* Rows of chunk i. */
static inline int64_t rms_mpi_rows(const rms_mpi_call *c, int64_t i) {
  return c->outer - i * c->chunk < c->chunk ? c->outer - i * c->chunk : c->chunk;
}

static inline void rms_mpi_note(rms_mpi_call *c, rms_status status) {
  if (c->failed == RMS_OK) c->failed = status;
}

static inline void rms_mpi_note_mpi(rms_mpi_call *c, int code) {
  if (code != MPI_SUCCESS) rms_mpi_note(c, RMS_E_COMMUNICATION);
}

/* Bytes of scratch memory with `most` blocks on every rank; -1: they overflow, or a message does. */
static inline int64_t rms_mpi_need(const rms_mpi_call *c, int64_t most) {
  const int64_t limit = (int64_t)1 << 60;
  const int backward = c->numbers == 2;
  int64_t chunk, all = 0;
  if (c->segments > limit / rms_mpi_or_1(c->chunk)) return -1;
  chunk = c->segments * c->chunk;
  if (most > INT_MAX / 3 || chunk > INT_MAX / 3 / rms_mpi_or_1(most)) return -1;
  if (backward) {
    if (c->segments > limit / 32 / rms_mpi_or_1(c->outer)) return -1;
    all = c->outer * c->segments * (int64_t)sizeof(rms_grad_sum);
    if (c->mpi->block_cols > 0) all += chunk * most * (int64_t)sizeof(rms_stat);
  }
  if (rms_mpi_folds(c)) {
    if (chunk * most > limit / 64 / (c->ranks + 1)) return -1;
    all += 2 * (c->ranks + 1) * chunk * most * c->numbers * (int64_t)sizeof(double);
  }
  return all;
}

/* What does not need the tensors. */
static inline rms_status rms_mpi_start(rms_mpi_call *c, const rms_mpi *mpi, const rms_spec *spec, int64_t outer,
                                       int64_t inner, int numbers) {
  int ranks = 1;
  memset(c, 0, sizeof *c);
  c->mpi = mpi;
  c->spec = spec;
  c->numbers = numbers;
  c->outer = outer > 0 ? outer : 0;
  c->segments = 1;
  c->request[0] = c->request[1] = MPI_REQUEST_NULL;
  if (MPI_Comm_size(mpi->comm, &ranks) != MPI_SUCCESS) return RMS_E_COMMUNICATION;
  c->ranks = ranks;
  c->chunk = mpi->chunk_rows > 0 ? mpi->chunk_rows : c->outer / 4 < 64 ? 64 : (c->outer + 3) / 4;
  if (c->chunk > c->outer) c->chunk = c->outer;
  c->chunks = c->chunk ? (c->outer + c->chunk - 1) / c->chunk : 0;
  c->blocks = spec->cols > 0;
  if (c->blocks && mpi->block_cols > 0) c->blocks = (spec->cols - 1) / mpi->block_cols + 1;
  if (mpi->mode != RMS_MPI_REDUCE && mpi->mode != RMS_MPI_FOLD) return RMS_E_MODE;
  if (mpi->reserved != 0) return RMS_E_VERSION;
  if (outer < 0 || inner < 0 || mpi->block_cols < 0 || mpi->chunk_rows < 0) return RMS_E_ARGUMENT;
  if (spec->cols < 0) return RMS_E_COLS;
  if (spec->groups < 0) return RMS_E_GROUPS;
  if (mpi->block_cols > 0 && mpi->mode != RMS_MPI_FOLD) return RMS_E_MODE;
  if (mpi->block_cols > 0 && (spec->groups > 1 || spec->indices)) return RMS_E_UNSUPPORTED;
  if (mpi->block_cols > 0 && spec->weight_per_inner && inner > 1 && spec->cols % mpi->block_cols)
    return RMS_E_UNSUPPORTED;
  if (rms_mpi_or_1(inner) > INT_MAX / rms_mpi_or_1(spec->groups)) return RMS_E_SIZE;
  c->segments = rms_mpi_or_1(inner) * rms_mpi_or_1(spec->groups);
  return rms_mpi_need(c, c->blocks) < 0 ? RMS_E_SIZE : RMS_OK;
}

static inline size_t rms_mpi_scratch(const rms_mpi *mpi, const rms_spec *spec, int64_t outer, int64_t inner) {
  rms_mpi_call c;
  int64_t mine[2], all[2], forward, backward;
  if (!mpi || !spec || mpi->mode == RMS_MPI_LOCAL) return 0;
  mine[0] = rms_mpi_start(&c, mpi, spec, outer, inner, 2);
  mine[1] = c.blocks;
  if (MPI_Allreduce(mine, all, 2, MPI_INT64_T, MPI_MAX, mpi->comm) != MPI_SUCCESS || all[0] != RMS_OK) return 0;
  backward = rms_mpi_need(&c, all[1]);
  c.numbers = 3;
  forward = rms_mpi_need(&c, all[1]);
  if (forward < 0 || backward < 0) return 0;
  return (size_t)(forward > backward ? forward : backward);
}

/* ---- Agreement ---- */

enum { RMS_MPI_FINDINGS = 6 };

static inline void rms_mpi_mix(int64_t *key, int64_t value) {
  uint64_t k = ((uint64_t)*key ^ (uint64_t)value) * 0x9e3779b97f4a7c15u;
  *key = (int64_t)((k ^ k >> 29) >> 2);
}

/* A number that differs, in all likelihood, where the ranks' calls do not belong together. */
static inline int64_t rms_mpi_key(const rms_mpi_call *c) {
  int64_t key = c->numbers, eps;
  memcpy(&eps, &c->spec->eps, sizeof eps);
  rms_mpi_mix(&key, c->outer);
  rms_mpi_mix(&key, c->segments);
  rms_mpi_mix(&key, rms_mpi_or_1(c->spec->groups));
  rms_mpi_mix(&key, c->spec->kind);
  rms_mpi_mix(&key, c->spec->eps_place);
  rms_mpi_mix(&key, eps);
  rms_mpi_mix(&key, c->mpi->mode);
  rms_mpi_mix(&key, c->mpi->block_cols);
  rms_mpi_mix(&key, c->chunk);
  return key;
}

/* What the ranks tell each other: the greatest of each number counts. */
static inline void rms_mpi_findings(const rms_mpi_call *c, rms_status status, int64_t found[RMS_MPI_FINDINGS]) {
  const int64_t key = status == RMS_OK ? rms_mpi_key(c) : 0;
  found[0] = status;
  found[1] = key;
  found[2] = -key;
  found[3] = c->blocks;
  found[4] = c->mpi->scratch ? -(int64_t)(c->mpi->scratch_bytes & INT64_MAX) : 0;
  found[5] = c->spec->cols > 0 && c->spec->partial != RMS_PARTIAL_NONE;
}

/* The same on every rank, but that a rank keeps its own complaint. */
static inline rms_status rms_mpi_conclude(rms_mpi_call *c, rms_status own, const int64_t all[RMS_MPI_FINDINGS]) {
  int64_t need;
  if (own != RMS_OK || all[0] != RMS_OK) return own != RMS_OK ? own : (rms_status)all[0];
  if (all[1] != -all[2]) return RMS_E_ARGUMENT;
  if (c->outer > 0 && !all[5]) return RMS_E_PARTIAL; /* no rank has an element of the statistic */
  c->most = all[3];
  need = rms_mpi_need(c, c->most);
  if (need < 0) return RMS_E_SIZE;
  return -all[4] < need ? RMS_E_WORKSPACE : RMS_OK;
}

/* Where things are in the scratch memory. */
static inline void rms_mpi_place(rms_mpi_call *c, rms_stat *stats) {
  const int64_t chunk = c->segments * c->chunk;
  double *at = (double *)c->mpi->scratch;
  if (!at) { /* the forward with RMS_MPI_REDUCE works in the caller's array */
    c->totals = (double *)stats;
    return;
  }
  c->totals = (double *)stats;
  if (c->numbers == 2) {
    c->totals = at;
    at += c->outer * c->segments * 2;
  }
  c->slot[0] = at; /* here whatever `most` is: the first chunk is measured before the agreement */
  c->slot[1] = at + (c->ranks + 1) * chunk * c->most * c->numbers;
  c->copies = c->slot[1] + (c->ranks + 1) * chunk * c->most * c->numbers;
}

/* The library finds fault with the executor last, so one that it refuses makes a call that only checks. */
static const rms_executor rms_mpi_no_executor = {NULL, 0, NULL};

static inline rms_status rms_mpi_settle_check(const rms_mpi_call *c, rms_status status) {
  const rms_executor *e = c->executor;
  if (status != RMS_E_EXECUTOR) return status;
  if (e && (!e->run || e->concurrency < 1)) return RMS_E_EXECUTOR;
  if (!rms_isa_active()) return RMS_E_ISA;
  return rms_stream_threshold() < 0 ? RMS_E_ENVIRONMENT : RMS_OK;
}

static inline rms_status rms_mpi_check_scratch(const rms_mpi_call *c) {
  const int64_t need = rms_mpi_need(c, c->blocks);
  if (need < 0) return RMS_E_SIZE;
  if (need > 0 && (!c->mpi->scratch || c->mpi->scratch_bytes < (size_t)need)) return RMS_E_WORKSPACE;
  return (uintptr_t)c->mpi->scratch % sizeof(double) ? RMS_E_ALIGNMENT : RMS_OK;
}

/* ---- Arguments of some of the rows and columns ---- */

/* The forward's rows from `row` on, columns from `col` on. */
static inline rms_forward_args rms_mpi_forward_part(const rms_mpi_call *c, const rms_forward_args *args, int64_t row,
                                                    int64_t rows, int64_t col) {
  const rms_rows_range r = rms_rows_at(c->spec->cols, c->segments, row, rows, col);
  return rms_rows_forward(&r, args);
}

static inline rms_backward_args rms_mpi_backward_part(const rms_mpi_call *c, const rms_backward_args *args, int64_t row,
                                                      int64_t rows, int64_t col) {
  const rms_rows_range r = rms_rows_at(c->spec->cols, c->segments, row, rows, col);
  return rms_rows_backward(&r, args);
}

/* ---- Measuring: numbers of this rank's blocks, one after the other ---- */

/* The spec of `cols` columns as blocks; the last columns, fewer than a block, are measured apart. */
static inline rms_spec rms_mpi_block_spec(const rms_spec *spec, int64_t cols, int64_t blocks) {
  rms_spec s = *spec;
  s.cols = cols;
  s.groups = blocks;
  s.partial = 0;
  return s;
}

/* Columns of the statistic. */
static inline int64_t rms_mpi_measured(const rms_spec *spec) {
  if (spec->partial == RMS_PARTIAL_NONE) return 0;
  return spec->partial > 0 ? spec->partial : spec->cols;
}

/* Statistics of the whole blocks to `out`, those of the rest behind them. */
static inline void rms_mpi_measure_blocks(rms_mpi_call *c, const rms_forward_args *args, int64_t row, int64_t rows,
                                          double *out) {
  const int64_t block = c->mpi->block_cols, cols = rms_mpi_measured(c->spec), whole = cols / block, rest = cols % block;
  if (whole > 0) {
    const rms_spec spec = rms_mpi_block_spec(c->spec, whole * block, whole);
    const rms_forward_args part = rms_mpi_forward_part(c, args, row, rows, 0);
    rms_mpi_note(c, rms_stats(&spec, &part, (rms_stat *)out, c->executor));
  }
  if (rest > 0) {
    const rms_spec spec = rms_mpi_block_spec(c->spec, rest, 1);
    const rms_forward_args part = rms_mpi_forward_part(c, args, row, rows, whole * block);
    rms_mpi_note(c, rms_stats(&spec, &part, (rms_stat *)out + rows * c->segments * whole, c->executor));
  }
}

static inline void rms_mpi_measure(rms_mpi_call *c, const rms_forward_args *args, int64_t row, int64_t rows,
                                   double *out) {
  if (c->blocks == 0) {
    if (!rms_mpi_folds(c)) memset(out, 0, (size_t)(rows * c->segments) * sizeof(rms_stat));
  } else if (c->mpi->block_cols > 0) {
    rms_mpi_measure_blocks(c, args, row, rows, out);
  } else {
    const rms_forward_args part = rms_mpi_forward_part(c, args, row, rows, 0);
    rms_mpi_note(c, rms_stats(c->spec, &part, (rms_stat *)out, c->executor));
  }
}

/* -0 is what leaves every number as it is when it is added. */
static inline void rms_mpi_nothing(double *out, int64_t count) {
  int64_t i;
  for (i = 0; i < count; i++)
    out[i] = -0.0;
}

static inline void rms_mpi_sum_blocks(rms_mpi_call *c, const rms_backward_args *args, const rms_stat *stats,
                                      int64_t row, int64_t rows, double *out) {
  const int64_t block = c->mpi->block_cols, whole = c->spec->cols / block, rest = c->spec->cols % block;
  const rms_stat *own = stats + row * c->segments;
  int64_t i, b;
  if (whole > 0) {
    const rms_spec spec = rms_mpi_block_spec(c->spec, whole * block, whole);
    const rms_backward_args part = rms_mpi_backward_part(c, args, row, rows, 0);
    rms_stat *copies = (rms_stat *)c->copies;
    for (i = 0; i < rows * c->segments; i++)
      for (b = 0; b < whole; b++)
        copies[i * whole + b] = own[i];
    rms_mpi_note(c, rms_backward_stats(&spec, &part, copies, (rms_grad_sum *)out, c->executor));
  }
  if (rest > 0) {
    const rms_spec spec = rms_mpi_block_spec(c->spec, rest, 1);
    const rms_backward_args part = rms_mpi_backward_part(c, args, row, rows, whole * block);
    rms_mpi_note(c,
                 rms_backward_stats(&spec, &part, own, (rms_grad_sum *)out + rows * c->segments * whole, c->executor));
  }
}

static inline void rms_mpi_sum(rms_mpi_call *c, const rms_backward_args *args, const rms_stat *stats, int64_t row,
                               int64_t rows, double *out) {
  if (c->blocks == 0) {
    if (!rms_mpi_folds(c)) rms_mpi_nothing(out, rows * c->segments * 2);
  } else if (c->mpi->block_cols > 0) {
    rms_mpi_sum_blocks(c, args, stats, row, rows, out);
  } else {
    const rms_backward_args part = rms_mpi_backward_part(c, args, row, rows, 0);
    rms_mpi_note(c, rms_backward_stats(c->spec, &part, stats + row * c->segments, (rms_grad_sum *)out, c->executor));
  }
}

/* ---- Reducing ---- */

/* Where chunk i is measured: in place, or where the gathered numbers come later. */
static inline double *rms_mpi_measured_at(const rms_mpi_call *c, int64_t i) {
  return rms_mpi_folds(c) ? c->slot[i % 2] : c->totals + i * c->chunk * c->segments * c->numbers;
}

/* Puts what was measured of `columns` columns in the order in which it travels: block by block, `most` of them, each
 * with a statistic per segment. */
static inline void rms_mpi_pack(const rms_mpi_call *c, int64_t segments, int64_t columns, const double *from,
                                double *to) {
  const int64_t n = c->numbers, block = c->mpi->block_cols;
  const int64_t whole = block > 0 ? columns / block : columns > 0, rest = block > 0 && columns % block > 0;
  const int64_t missing = (c->most - whole - rest) * segments * n;
  int64_t i, b;
  for (b = 0; b < whole; b++)
    for (i = 0; i < segments; i++)
      memcpy(to + (b * segments + i) * n, from + (i * whole + b) * n, (size_t)n * sizeof(double));
  to += whole * segments * n;
  memcpy(to, from + whole * segments * n, (size_t)(rest * segments * n) * sizeof(double));
  to += rest * segments * n;
  if (n == 3)
    memset(to, 0, (size_t)missing * sizeof(double));
  else
    rms_mpi_nothing(to, missing);
}

/* LayerNorm's statistics are merged, lower ranks first. */
static inline void rms_mpi_merge(void *in, void *inout, int *length, MPI_Datatype *type) {
  const rms_stat *lower = (const rms_stat *)in;
  rms_stat *upper = (rms_stat *)inout, both;
  rms_spec spec;
  int i;
  (void)type;
  memset(&spec, 0, sizeof spec);
  spec.cols = 1;
  spec.kind = RMS_KIND_LAYER;
  for (i = 0; i < *length; i++) {
    both = lower[i];
    rms_stats_merge(&spec, 1, &both, &upper[i]);
    upper[i] = both;
  }
}

static inline void rms_mpi_send(rms_mpi_call *c, int64_t i) {
  const int64_t segments = rms_mpi_rows(c, i) * c->segments;
  double *at = rms_mpi_measured_at(c, i);
  MPI_Request *request = &c->request[i % 2];
  if (rms_mpi_folds(c)) {
    const int64_t columns = c->blocks == 0 ? 0 : c->numbers == 3 ? rms_mpi_measured(c->spec) : c->spec->cols;
    const int count = (int)(segments * c->most * c->numbers);
    double *own = at + c->ranks * c->chunk * c->segments * c->most * c->numbers;
    rms_mpi_pack(c, segments, columns, at, own);
    rms_mpi_note_mpi(c, MPI_Iallgather(own, count, MPI_DOUBLE, at, count, MPI_DOUBLE, c->mpi->comm, request));
  } else if (c->op != MPI_OP_NULL) {
    rms_mpi_note_mpi(c, MPI_Iallreduce(MPI_IN_PLACE, at, (int)segments, c->type, c->op, c->mpi->comm, request));
  } else {
    const int count = (int)(segments * c->numbers);
    rms_mpi_note_mpi(c, MPI_Iallreduce(MPI_IN_PLACE, at, count, MPI_DOUBLE, MPI_SUM, c->mpi->comm, request));
  }
}

/* Adds up gathered numbers in the order of the ranks and their blocks. */
static inline void rms_mpi_fold(rms_mpi_call *c, int64_t segments, const double *gathered, double *total) {
  const int64_t n = c->numbers, blocks = c->ranks * c->most;
  rms_spec spec = rms_mpi_block_spec(c->spec, 1, 1);
  int64_t b, i;
  spec.indices = NULL;
  memcpy(total, gathered, (size_t)(segments * n) * sizeof(double));
  for (b = 1; b < blocks; b++) {
    const double *from = gathered + b * segments * n;
    if (n == 3)
      rms_mpi_note(c,
                   rms_stats_merge(&spec, segments, (rms_stat *)(void *)total, (const rms_stat *)(const void *)from));
    else
      for (i = 0; i < segments * n; i++)
        total[i] += from[i];
  }
}

static inline void rms_mpi_receive(rms_mpi_call *c, int64_t i) {
  rms_mpi_note_mpi(c, MPI_Wait(&c->request[i % 2], MPI_STATUS_IGNORE));
  if (rms_mpi_folds(c) && c->failed != RMS_E_COMMUNICATION)
    rms_mpi_fold(c, rms_mpi_rows(c, i) * c->segments, c->slot[i % 2],
                 c->totals + i * c->chunk * c->segments * c->numbers);
}

/* LayerNorm's statistics need an operation of their own where MPI reduces them. */
static inline void rms_mpi_make_op(rms_mpi_call *c) {
  c->op = MPI_OP_NULL;
  if (rms_mpi_folds(c) || c->numbers != 3 || c->spec->kind != RMS_KIND_LAYER) return;
  rms_mpi_note_mpi(c, MPI_Type_contiguous(3, MPI_DOUBLE, &c->type));
  rms_mpi_note_mpi(c, MPI_Type_commit(&c->type));
  rms_mpi_note_mpi(c, MPI_Op_create(rms_mpi_merge, 1, &c->op));
}

static inline void rms_mpi_free_op(rms_mpi_call *c) {
  if (c->op == MPI_OP_NULL) return;
  rms_mpi_note_mpi(c, MPI_Op_free(&c->op));
  rms_mpi_note_mpi(c, MPI_Type_free(&c->type));
}

/* ---- The two directions ---- */

/* The arguments of a call's direction; the other's are NULL. */
typedef struct rms_mpi_work {
  const rms_forward_args *forward;
  const rms_backward_args *backward;
  const rms_stat *stats; /* backward */
} rms_mpi_work;

static inline void rms_mpi_work_measure(rms_mpi_call *c, const rms_mpi_work *w, int64_t i) {
  const int64_t row = i * c->chunk, rows = rms_mpi_rows(c, i);
  if (w->forward)
    rms_mpi_measure(c, w->forward, row, rows, rms_mpi_measured_at(c, i));
  else
    rms_mpi_sum(c, w->backward, w->stats, row, rows, rms_mpi_measured_at(c, i));
}

/* dweight and dbias are sums over all rows whose bits depend on how the rows are divided: they are made by one call. */
static inline int rms_mpi_at_once(const rms_mpi_work *w) {
  return w->backward && (w->backward->dweight || w->backward->dbias);
}

static inline void rms_mpi_work_apply(rms_mpi_call *c, const rms_mpi_work *w, int64_t row, int64_t rows) {
  static const rms_grad_sum no_rows = {0, 0};
  const int64_t at = row * c->segments;
  const rms_grad_sum *sums = c->totals ? (const rms_grad_sum *)(void *)c->totals + at : &no_rows;
  if (c->blocks == 0 || c->failed != RMS_OK) return;
  if (w->forward) {
    const rms_forward_args part = rms_mpi_forward_part(c, w->forward, row, rows, 0);
    rms_mpi_note(c, rms_apply(c->spec, &part, (const rms_stat *)c->totals + at, c->executor));
  } else {
    const rms_backward_args part = rms_mpi_backward_part(c, w->backward, row, rows, 0);
    rms_mpi_note(c, rms_backward_apply(c->spec, &part, w->stats + at, sums, c->executor));
  }
}

static inline void rms_mpi_finish_chunk(rms_mpi_call *c, const rms_mpi_work *w, int64_t i) {
  if (c->failed == RMS_E_COMMUNICATION) return;
  rms_mpi_receive(c, i);
  if (!rms_mpi_at_once(w)) rms_mpi_work_apply(c, w, i * c->chunk, rms_mpi_rows(c, i));
}

static inline rms_status rms_mpi_run_chunks(rms_mpi_call *c, const rms_mpi_work *w) {
  int64_t i;
  rms_mpi_make_op(c);
  for (i = 0; i < c->chunks && c->failed != RMS_E_COMMUNICATION; i++) {
    if (i > 0 || c->blocks == 0) rms_mpi_work_measure(c, w, i);
    rms_mpi_send(c, i);
    if (i > 0) rms_mpi_finish_chunk(c, w, i - 1);
  }
  if (c->chunks > 0) rms_mpi_finish_chunk(c, w, c->chunks - 1);
  if (rms_mpi_at_once(w)) rms_mpi_work_apply(c, w, 0, c->outer);
  rms_mpi_free_op(c);
  return c->failed;
}

/* own: the status of this rank's check. */
static inline rms_status rms_mpi_run(rms_mpi_call *c, const rms_mpi_work *w, rms_stat *stats, rms_status own) {
  int64_t found[RMS_MPI_FINDINGS], all[RMS_MPI_FINDINGS] = {0};
  MPI_Request request = MPI_REQUEST_NULL;
  rms_mpi_findings(c, own, found);
  rms_mpi_note_mpi(c, MPI_Iallreduce(found, all, RMS_MPI_FINDINGS, MPI_INT64_T, MPI_MAX, c->mpi->comm, &request));
  c->most = c->blocks;
  rms_mpi_place(c, stats);
  if (own == RMS_OK && c->chunks > 0 && c->blocks > 0) rms_mpi_work_measure(c, w, 0);
  rms_mpi_note_mpi(c, MPI_Wait(&request, MPI_STATUS_IGNORE));
  if (c->failed == RMS_E_COMMUNICATION) return c->failed;
  own = rms_mpi_conclude(c, own, all);
  if (own != RMS_OK) return own;
  rms_mpi_place(c, stats);
  return rms_mpi_run_chunks(c, w);
}

/* What stands in for a struct that the caller does not give, so that the rank can still tell the others. */
static inline rms_spec rms_mpi_no_spec(void) {
  rms_spec spec;
  memset(&spec, 0, sizeof spec);
  return spec;
}

static inline rms_status rms_mpi_forward(const rms_mpi *mpi, const rms_spec *spec, const rms_forward_args *args,
                                         rms_stat *stats, const rms_executor *executor) {
  const rms_spec none = rms_mpi_no_spec();
  const int given = spec && args;
  rms_mpi_call c;
  rms_mpi_work work;
  rms_status own;
  if (!mpi) return RMS_E_ARGUMENT;
  if (mpi->mode == RMS_MPI_LOCAL) return rms_forward(spec, args, executor);
  own = rms_mpi_start(&c, mpi, given ? spec : &none, given ? args->outer : 0, given ? args->inner : 0, 3);
  if (own == RMS_E_COMMUNICATION) return own;
  c.executor = executor;
  if (own == RMS_OK && (!given || !stats)) own = RMS_E_ARGUMENT;
  if (own == RMS_OK && (uintptr_t)stats % sizeof(double)) own = RMS_E_ALIGNMENT;
  if (own == RMS_OK && c.blocks > 0) own = rms_mpi_settle_check(&c, rms_apply(spec, args, stats, &rms_mpi_no_executor));
  if (own == RMS_OK) own = rms_mpi_check_scratch(&c);
  work.forward = args;
  work.backward = NULL;
  work.stats = NULL;
  return rms_mpi_run(&c, &work, stats, own);
}

static inline rms_status rms_mpi_check_workspace(const rms_spec *spec, const rms_backward_args *args) {
  const size_t need = rms_backward_workspace(spec, args);
  const int fits = args->workspace && (uintptr_t)args->workspace % 64 == 0 && args->workspace_bytes >= need;
  return need == 0 || fits ? RMS_OK : RMS_E_WORKSPACE;
}

static inline rms_status rms_mpi_backward(const rms_mpi *mpi, const rms_spec *spec, const rms_backward_args *args,
                                          const rms_stat *stats, const rms_executor *executor) {
  const rms_spec none = rms_mpi_no_spec();
  const int given = spec && args;
  rms_mpi_call c;
  rms_mpi_work work;
  rms_status own;
  if (!mpi) return RMS_E_ARGUMENT;
  if (mpi->mode == RMS_MPI_LOCAL) return rms_backward(spec, args, executor);
  own = rms_mpi_start(&c, mpi, given ? spec : &none, given ? args->outer : 0, given ? args->inner : 0, 2);
  if (own == RMS_E_COMMUNICATION) return own;
  c.executor = executor;
  if (own == RMS_OK && (!given || !stats)) own = RMS_E_ARGUMENT;
  if (own == RMS_OK) own = rms_mpi_check_scratch(&c);
  if (own == RMS_OK && c.blocks > 0) {
    static const rms_grad_sum no_rows = {0, 0};
    const rms_grad_sum *sums = mpi->scratch ? (const rms_grad_sum *)mpi->scratch : &no_rows;
    own = rms_mpi_settle_check(&c, rms_backward_apply(spec, args, stats, sums, &rms_mpi_no_executor));
  }
  if (own == RMS_OK && c.blocks > 0) own = rms_mpi_check_workspace(spec, args);
  work.forward = NULL;
  work.backward = args;
  work.stats = stats;
  return rms_mpi_run(&c, &work, NULL, own);
}

#ifdef __cplusplus
}
#endif

#endif
