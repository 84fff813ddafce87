/* SPDX-License-Identifier: MIT
 *
 * rmsnorm for rows whose columns are spread over GPUs, with NCCL. Header only, on the split functions of
 * rmsnorm_cuda.h: it is compiled into the caller's program with the caller's NCCL, so that librmsnorm_cuda itself
 * depends on none. Read rmsnorm_mpi.h for what a shard is: cols and partial are those of the shard, 0 columns is an
 * empty one, RMS_PARTIAL_NONE one without an element of the statistic. The ranks agree on rows, kind, eps, groups and
 * the fields of rms_nccl up to most_cols.
 *
 *   rms_nccl nccl = {comm};
 *   nccl.scratch_bytes = rms_nccl_scratch(&nccl, &spec, rows, 1);
 *   cudaMalloc(&nccl.scratch, nccl.scratch_bytes);
 *   rms_nccl_forward(&nccl, &spec, &args, stats, stream);
 *   rms_nccl_backward(&nccl, &spec, &gradient_args, stats, stream);
 *
 * Everything is queued on the stream: the statistics, one collective of NCCL, and the rest. Nothing waits for the
 * device, so that both calls can be captured in a CUDA graph.
 *
 * With chunk_rows and a second stream the statistics travel in chunks of rows: while those of one chunk are exchanged
 * there, the next is measured and the one before is written. The second stream begins with what is queued on the first
 * and the first goes on with its end, by an event, so that the calls can still be captured. A chunk costs another
 * collective, which pays only where the work on a chunk takes longer than that: docs/distributed.md has the figures.
 *
 * Errors: a rank whose arguments are refused returns their status, writes nothing, and still takes part in the
 * collectives, with NaN in memory of its own (cudaMallocAsync; without that memory it cannot). So no rank waits for one
 * that has given up, and the others' results are NaN instead of wrong; the host cannot know the others' status without
 * waiting for the device. What every rank must get right is what says how much is exchanged: the pointers to spec and
 * args, the communicator, outer, inner, kind, groups, mode, block_cols, most_cols and chunk_rows. Without it there is
 * nothing to take part with, and the others wait until their NCCL gives up. Rows of whose statistic no rank has an
 * element are NaN. An error of NCCL is RMS_E_COMMUNICATION, after which neither the communicator nor the scratch memory
 * may be used; one of CUDA is RMS_E_DEVICE. */
#ifndef RMSNORM_NCCL_H
#define RMSNORM_NCCL_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <string.h>
#include "rmsnorm_cuda.h"
#include "rmsnorm_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The interface ---- */

typedef enum rms_nccl_mode {
  /* NCCL adds (ncclAllReduce). The last bits depend on the order in which it does. LayerNorm's statistics are not sums:
   * they are gathered and folded as below, the backward's sums are added. */
  RMS_NCCL_REDUCE = 0,
  /* Gathered (ncclAllGather) and folded in the order of the ranks: the bits are a function of the rows and their split.
   * Traffic, scratch memory and launches grow with the number of ranks.
   *
   * With block_cols > 0 every shard is measured in blocks of that many columns, which are folded in the order of the
   * columns. The bits of y, dx and stats are then a function of the rows and the lengths of the blocks (dweight and
   * dbias are sums over rows, whose order on a GPU depends on the width of the shard): they do not depend on the number
   * of ranks as long as every shard but the last holds whole blocks (with pRMSNorm: and the statistic ends in the last
   * shard that has a part of it). This takes a statistic per row and block instead of one per row and rank, and a
   * launch for each block of a shard and of the fold. It is offered without index lists and groups; a shard of several
   * blocks cannot have weights per inner index. */
  RMS_NCCL_FOLD = 1,
  /* Every rank normalises its shard by the shard's own statistic, without communication: see RMS_MPI_LOCAL. With
   * `partial` it is pRMSNorm that needs no communication. `stats` is not used. */
  RMS_NCCL_LOCAL = 2
} rms_nccl_mode;

typedef struct rms_nccl {
  ncclComm_t comm;
  int32_t mode;       /* rms_nccl_mode                                                                       */
  int32_t reserved;   /* 0                                                                                   */
  int64_t block_cols; /* RMS_NCCL_FOLD: columns of a block; 0: a shard is one block                          */
  int64_t chunk_rows; /* outer rows whose statistics travel together; 0: all                                 */
  int64_t most_cols;  /* with block_cols: columns of the widest shard, which fixes the length of a message   */
  void *scratch;      /* device memory: rms_nccl_scratch() bytes, aligned to 8                               */
  size_t scratch_bytes;
  cudaStream_t exchange; /* NULL: chunks are exchanged on the stream of the call; or a second stream for it, and */
  cudaEvent_t event;     /* an event without timing, which no other call may use at the same time                */
} rms_nccl;

/* Bytes of device memory that are enough for rms_nccl_forward and rms_nccl_backward of that many rows; the same on
 * every rank, without communication. 0 where none is needed, where the size would overflow, and where the ranks could
 * not take part with these arguments. */
static inline size_t rms_nccl_scratch(const rms_nccl *nccl, const rms_spec *spec, int64_t outer, int64_t inner);

/* rms_cuda_forward of the whole rows; args are those of the shard. stats: device memory, one rms_stat per outer, inner,
 * group, which receives the statistics of the whole rows for the backward. */
static inline rms_status rms_nccl_forward(const rms_nccl *nccl, const rms_spec *spec, const rms_forward_args *args,
                                          rms_stat *stats, rms_cuda_stream stream);

/* rms_cuda_backward of the whole rows; stats are those that rms_nccl_forward wrote. args->rstd and mean are ignored.
 * dweight and dbias belong to the shard's columns and need no reduction over the ranks. */
static inline rms_status rms_nccl_backward(const rms_nccl *nccl, const rms_spec *spec, const rms_backward_args *args,
                                           const rms_stat *stats, rms_cuda_stream stream);

/* ---- A call: what both directions share ---- */

typedef struct rms_nccl_call {
  const rms_nccl *nccl;
  const rms_spec *spec;
  cudaStream_t stream, exchange;
  int64_t outer, segments; /* outer rows; statistics per outer row: inner x groups                             */
  int64_t chunk, chunks;   /* outer rows of a chunk; how many chunks there are                                 */
  int64_t blocks, most;    /* statistics per segment: this rank's, and the most that any rank has              */
  int64_t ranks, numbers;  /* doubles in one statistic: 3 forward, 2 backward                                  */
  int gathers;             /* 1: gathered and folded, 0: added by NCCL                                         */
  void *totals;            /* the numbers of all ranks for all rows: `stats`, or the backward's sums           */
  rms_stat *own, *all;     /* gathers: this rank's numbers of two chunks in turn, and all ranks' of one        */
  rms_status failed;       /* RMS_OK, or the first error after the check                                       */
} rms_nccl_call;

static inline int64_t rms_nccl_or_1(int64_t n) {
  return n ? n : 1;
}

static inline int64_t rms_nccl_blocks(int64_t cols, int64_t block) {
  return cols <= 0 ? 0 : block > 0 ? (cols - 1) / block + 1 : 1;
}

static inline int64_t rms_nccl_rows(const rms_nccl_call *c, int64_t i) {
  return c->outer - i * c->chunk < c->chunk ? c->outer - i * c->chunk : c->chunk;
}

static inline void rms_nccl_note(rms_nccl_call *c, rms_status status) {
  if (c->failed == RMS_OK) c->failed = status;
}

static inline void rms_nccl_note_cuda(rms_nccl_call *c, cudaError_t error) {
  if (error != cudaSuccess) rms_nccl_note(c, RMS_E_DEVICE);
}

/* What says how much is exchanged; a rank that gets it wrong cannot take part. */
static inline rms_status rms_nccl_start(rms_nccl_call *c, const rms_nccl *nccl, const rms_spec *spec, int64_t outer,
                                        int64_t inner, int numbers) {
  const int64_t most = (int64_t)1 << 40;
  int ranks = 1;
  memset(c, 0, sizeof *c);
  c->nccl = nccl;
  c->spec = spec;
  c->numbers = numbers;
  if (nccl->mode != RMS_NCCL_REDUCE && nccl->mode != RMS_NCCL_FOLD) return RMS_E_MODE;
  if (nccl->block_cols > 0 && nccl->mode != RMS_NCCL_FOLD) return RMS_E_MODE;
  if (outer < 0 || inner < 0 || nccl->block_cols < 0 || nccl->chunk_rows < 0) return RMS_E_ARGUMENT;
  if (nccl->block_cols > 0 && nccl->most_cols <= 0) return RMS_E_ARGUMENT;
  if (spec->groups < 0) return RMS_E_GROUPS;
  if (ncclCommCount(nccl->comm, &ranks) != ncclSuccess) return RMS_E_COMMUNICATION;
  c->ranks = ranks;
  c->outer = outer;
  c->chunk = nccl->chunk_rows > 0 && nccl->chunk_rows < outer ? nccl->chunk_rows : outer;
  c->chunks = outer > 0 ? (outer - 1) / c->chunk + 1 : 0;
  c->blocks = rms_nccl_blocks(spec->cols, nccl->block_cols);
  c->most = nccl->block_cols > 0 ? rms_nccl_blocks(nccl->most_cols, nccl->block_cols) : 1;
  c->gathers = nccl->mode == RMS_NCCL_FOLD || (numbers == 3 && spec->kind == RMS_KIND_LAYER);
  if (rms_nccl_or_1(inner) > most / rms_nccl_or_1(spec->groups)) return RMS_E_SIZE;
  c->segments = rms_nccl_or_1(inner) * rms_nccl_or_1(spec->groups);
  if (outer > most / c->segments) return RMS_E_SIZE;
  return c->most > ((int64_t)1 << 55) / (c->ranks + 2) / rms_nccl_or_1(c->chunk * c->segments) ? RMS_E_SIZE : RMS_OK;
}

/* Gathered numbers of one rank and chunk. */
static inline int64_t rms_nccl_message(const rms_nccl_call *c) {
  return c->most * c->chunk * c->segments;
}

static inline size_t rms_nccl_need(const rms_nccl_call *c) {
  const int64_t slots = c->chunks > 1 ? 2 : 1;
  int64_t bytes = 0;
  if (c->numbers == 2) bytes += c->outer * c->segments * (int64_t)sizeof(rms_grad_sum);
  if (c->gathers) bytes += (slots + c->ranks) * rms_nccl_message(c) * (int64_t)sizeof(rms_stat);
  return (size_t)bytes;
}

static inline size_t rms_nccl_scratch(const rms_nccl *nccl, const rms_spec *spec, int64_t outer, int64_t inner) {
  rms_nccl_call c;
  size_t forward, backward;
  if (!nccl || !spec || nccl->mode == RMS_NCCL_LOCAL) return 0;
  if (rms_nccl_start(&c, nccl, spec, outer, inner, 3) != RMS_OK) return 0;
  forward = rms_nccl_need(&c);
  if (rms_nccl_start(&c, nccl, spec, outer, inner, 2) != RMS_OK) return 0;
  backward = rms_nccl_need(&c);
  return forward > backward ? forward : backward;
}

/* What a rank can get wrong and still take part. */
static inline rms_status rms_nccl_check(const rms_nccl_call *c, const void *stats, int64_t inner) {
  const rms_nccl *n = c->nccl;
  const rms_spec *spec = c->spec;
  const size_t need = rms_nccl_need(c);
  if (n->reserved != 0) return RMS_E_VERSION;
  if (spec->cols < 0) return RMS_E_COLS;
  if (n->block_cols > 0 && (spec->groups > 1 || spec->indices)) return RMS_E_UNSUPPORTED;
  if (n->block_cols > 0 && spec->weight_per_inner && inner > 1 && c->blocks > 1) return RMS_E_UNSUPPORTED;
  if (!stats || c->blocks > c->most || (n->exchange && !n->event)) return RMS_E_ARGUMENT;
  if ((uintptr_t)stats % sizeof(double) || (uintptr_t)n->scratch % sizeof(double)) return RMS_E_ALIGNMENT;
  return need > 0 && (!n->scratch || n->scratch_bytes < need) ? RMS_E_WORKSPACE : RMS_OK;
}

/* Where things are. */
static inline void rms_nccl_place(rms_nccl_call *c, rms_stat *stats, rms_cuda_stream stream) {
  char *at = (char *)c->nccl->scratch;
  c->stream = (cudaStream_t)stream;
  c->exchange = c->nccl->exchange && c->chunks > 1 ? c->nccl->exchange : c->stream;
  c->totals = stats;
  if (c->numbers == 2) {
    c->totals = at;
    at += c->outer * c->segments * (int64_t)sizeof(rms_grad_sum);
  }
  if (!c->gathers) return;
  c->own = (rms_stat *)(void *)at;
  c->all = c->own + (c->chunks > 1 ? 2 : 1) * rms_nccl_message(c);
}

/* ---- The collectives ---- */

/* `own` are `segments` x `most` statistics; `all` receives those of all ranks. */
static inline void rms_nccl_gather(rms_nccl_call *c, const void *own, void *all, int64_t segments,
                                   cudaStream_t stream) {
  const size_t doubles = (size_t)(segments * c->most * 3);
  if (ncclAllGather(own, all, doubles, ncclDouble, c->nccl->comm, stream) != ncclSuccess)
    c->failed = RMS_E_COMMUNICATION;
}

static inline void rms_nccl_add(rms_nccl_call *c, void *numbers, int64_t segments, cudaStream_t stream) {
  const size_t doubles = (size_t)(segments * c->numbers);
  if (ncclAllReduce(numbers, numbers, doubles, ncclDouble, ncclSum, c->nccl->comm, stream) != ncclSuccess)
    c->failed = RMS_E_COMMUNICATION;
}

/* The part of a rank whose arguments are refused with `status`: NaN, which all bits set are, in every message. */
static inline rms_status rms_nccl_refuse(rms_nccl_call *c, rms_status status, rms_cuda_stream stream) {
  const cudaStream_t on = (cudaStream_t)stream;
  const int64_t message = rms_nccl_message(c);
  const size_t bytes = (size_t)(c->gathers ? (c->ranks + 1) * message : message) * sizeof(rms_stat);
  void *memory = NULL;
  int64_t i;
  if (c->chunks == 0 || cudaMallocAsync(&memory, bytes, on) != cudaSuccess) return status;
  rms_nccl_note_cuda(c, cudaMemsetAsync(memory, 0xff, bytes, on));
  for (i = 0; i < c->chunks && c->failed != RMS_E_COMMUNICATION; i++) {
    const int64_t segments = rms_nccl_rows(c, i) * c->segments;
    if (c->gathers)
      rms_nccl_gather(c, memory, (rms_stat *)memory + message, segments, on);
    else
      rms_nccl_add(c, memory, segments, on);
  }
  rms_nccl_note_cuda(c, cudaFreeAsync(memory, on));
  return status;
}

/* ---- Measuring ---- */

/* The arguments of a call's direction; the other's are NULL. */
typedef struct rms_nccl_work {
  const rms_forward_args *forward;
  const rms_backward_args *backward;
  const rms_stat *stats; /* backward */
} rms_nccl_work;

/* -0 is what leaves every number as it is when it is added: the greatest byte of a double is 0x80, the others are 0. */
static inline void rms_nccl_nothing(rms_nccl_call *c, void *numbers, int64_t doubles) {
  const size_t size = sizeof(double), count = (size_t)doubles;
  if (count == 0) return;
  rms_nccl_note_cuda(c, cudaMemsetAsync(numbers, 0, count * size, c->stream));
  if (c->numbers == 2) rms_nccl_note_cuda(c, cudaMemset2DAsync((char *)numbers + 7, size, 0x80, 1, count, c->stream));
}

/* Copies one double of each sum to or from the statistic that stands for it. */
static inline void rms_nccl_column(rms_nccl_call *c, double *to, size_t to_pitch, const double *from, size_t from_pitch,
                                   int64_t count, cudaStream_t stream) {
  rms_nccl_note_cuda(c, cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, sizeof(double), (size_t)count,
                                          cudaMemcpyDeviceToDevice, stream));
}

/* What is gathered are rms_stats: a sum of the backward travels as {ux, 0, u}, which merges as RMSNorm's statistics do.
 */
static inline void rms_nccl_pack(rms_nccl_call *c, const rms_grad_sum *sums, rms_stat *packed, int64_t count) {
  const size_t wide = sizeof(rms_stat), narrow = sizeof(rms_grad_sum);
  rms_nccl_note_cuda(c, cudaMemsetAsync(packed, 0, (size_t)count * wide, c->stream));
  rms_nccl_column(c, &packed->count, wide, &sums->ux, narrow, count, c->stream);
  rms_nccl_column(c, &packed->m2, wide, &sums->u, narrow, count, c->stream);
}

static inline void rms_nccl_unpack(rms_nccl_call *c, const rms_stat *packed, rms_grad_sum *sums, int64_t count) {
  const size_t wide = sizeof(rms_stat), narrow = sizeof(rms_grad_sum);
  rms_nccl_column(c, &sums->ux, narrow, &packed->count, wide, count, c->exchange);
  rms_nccl_column(c, &sums->u, narrow, &packed->m2, wide, count, c->exchange);
}

/* Columns that a shard measures: all, but for the statistic of pRMSNorm. */
static inline int64_t rms_nccl_measured(const rms_nccl_call *c) {
  const rms_spec *s = c->spec;
  if (c->numbers == 2 || s->partial == 0) return s->cols;
  return s->partial == RMS_PARTIAL_NONE ? 0 : s->partial;
}

/* Measures `rows` rows of the columns that `spec` has, from `col` on: to `to`, or as statistics to `packed`. */
static inline void rms_nccl_measure_part(rms_nccl_call *c, const rms_nccl_work *w, const rms_spec *spec, int64_t row,
                                         int64_t rows, int64_t col, void *to, rms_stat *packed) {
  const rms_rows_range r = rms_rows_at(c->spec->cols, c->segments, row, rows, col);
  const rms_cuda_stream stream = (rms_cuda_stream)c->stream;
  if (w->forward) {
    const rms_forward_args part = rms_rows_forward(&r, w->forward);
    rms_nccl_note(c, rms_cuda_stats(spec, &part, packed ? packed : (rms_stat *)to, stream));
  } else {
    const rms_backward_args part = rms_rows_backward(&r, w->backward);
    rms_grad_sum *sums = (rms_grad_sum *)to;
    rms_nccl_note(c, rms_cuda_backward_stats(spec, &part, w->stats + row * c->segments, sums, stream));
    if (packed) rms_nccl_pack(c, sums, packed, rows * c->segments);
  }
}

/* Block by block, each with a statistic per segment; then nothing where other ranks have more blocks. */
static inline void rms_nccl_measure_blocks(rms_nccl_call *c, const rms_nccl_work *w, int64_t row, int64_t rows,
                                           void *to, rms_stat *packed) {
  const int64_t block = c->nccl->block_cols, segments = rows * c->segments;
  const int64_t cols = c->blocks > 0 ? rms_nccl_measured(c) : 0, blocks = rms_nccl_blocks(cols, block);
  rms_spec spec = *c->spec;
  int64_t b;
  spec.partial = 0;
  for (b = 0; b < blocks; b++) {
    spec.cols = cols - b * block < block ? cols - b * block : block;
    rms_nccl_measure_part(c, w, &spec, row, rows, b * block, to, packed + b * segments);
  }
  rms_nccl_nothing(c, packed + blocks * segments, (c->most - blocks) * segments * 3);
}

static inline char *rms_nccl_totals_at(const rms_nccl_call *c, int64_t i) {
  return (char *)c->totals + i * c->chunk * c->segments * c->numbers * (int64_t)sizeof(double);
}

static inline rms_stat *rms_nccl_own_at(const rms_nccl_call *c, int64_t i) {
  return c->gathers ? c->own + i % 2 * rms_nccl_message(c) : NULL;
}

/* Measures chunk i on the call's stream. */
static inline void rms_nccl_measure(rms_nccl_call *c, const rms_nccl_work *w, int64_t i) {
  const int64_t row = i * c->chunk, rows = rms_nccl_rows(c, i), segments = rows * c->segments;
  void *to = rms_nccl_totals_at(c, i);
  rms_stat *packed = rms_nccl_own_at(c, i);
  void *sent = packed ? (void *)packed : to;
  const int64_t doubles = packed ? segments * c->most * 3 : segments * c->numbers;
  if (c->failed == RMS_OK) {
    if (c->nccl->block_cols > 0)
      rms_nccl_measure_blocks(c, w, row, rows, to, packed);
    else if (c->blocks > 0)
      rms_nccl_measure_part(c, w, c->spec, row, rows, 0, to, packed);
    else
      rms_nccl_nothing(c, sent, doubles);
  }
  if (c->failed != RMS_OK) /* NaN, so that nobody takes what may be there for right */
    rms_nccl_note_cuda(c, cudaMemsetAsync(sent, 0xff, (size_t)doubles * sizeof(double), c->stream));
}

/* ---- Exchanging ---- */

/* Folds what was gathered in the order of the ranks and their blocks. */
static inline void rms_nccl_fold(rms_nccl_call *c, int64_t segments, rms_stat *total) {
  const int64_t blocks = c->ranks * c->most;
  rms_spec spec;
  int64_t b;
  memset(&spec, 0, sizeof spec);
  spec.cols = 1;
  spec.kind = c->numbers == 3 ? c->spec->kind : RMS_KIND_RMS;
  rms_nccl_note_cuda(
      c, cudaMemcpyAsync(total, c->all, (size_t)segments * sizeof(rms_stat), cudaMemcpyDeviceToDevice, c->exchange));
  for (b = 1; b < blocks && c->failed == RMS_OK; b++)
    rms_nccl_note(c, rms_cuda_stats_merge(&spec, segments, total, c->all + b * segments, (rms_cuda_stream)c->exchange));
}

static inline void rms_nccl_exchange(rms_nccl_call *c, int64_t i) {
  const int64_t segments = rms_nccl_rows(c, i) * c->segments;
  void *totals = rms_nccl_totals_at(c, i);
  rms_stat *own = rms_nccl_own_at(c, i);
  if (!own) {
    rms_nccl_add(c, totals, segments, c->exchange);
    return;
  }
  rms_nccl_gather(c, own, c->all, segments, c->exchange);
  if (c->failed != RMS_OK) return;
  rms_nccl_fold(c, segments, c->numbers == 3 ? (rms_stat *)totals : own);
  if (c->numbers == 2) rms_nccl_unpack(c, own, (rms_grad_sum *)totals, segments);
}

/* What is queued on `later` from now on comes after what is queued on `sooner`. The second stream works on one chunk
 * after the other, so one event serves for both directions. */
static inline void rms_nccl_order(rms_nccl_call *c, cudaStream_t sooner, cudaStream_t later) {
  if (c->exchange == c->stream) return;
  rms_nccl_note_cuda(c, cudaEventRecord(c->nccl->event, sooner));
  rms_nccl_note_cuda(c, cudaStreamWaitEvent(later, c->nccl->event, 0));
}

/* ---- The two directions ---- */

/* dweight and dbias are sums over all rows whose bits depend on how the rows are divided: they are made by one call. */
static inline int rms_nccl_at_once(const rms_nccl_work *w) {
  return w->backward && (w->backward->dweight || w->backward->dbias);
}

static inline void rms_nccl_apply(rms_nccl_call *c, const rms_nccl_work *w, int64_t row, int64_t rows) {
  static const rms_grad_sum no_rows = {0, 0};
  const rms_rows_range r = rms_rows_at(c->spec->cols, c->segments, row, rows, 0);
  const rms_cuda_stream stream = (rms_cuda_stream)c->stream;
  const int64_t at = row * c->segments;
  if (c->blocks == 0 || c->failed != RMS_OK) return;
  if (w->forward) {
    const rms_forward_args part = rms_rows_forward(&r, w->forward);
    rms_nccl_note(c, rms_cuda_apply(c->spec, &part, (const rms_stat *)c->totals + at, stream));
  } else {
    const rms_backward_args part = rms_rows_backward(&r, w->backward);
    const rms_grad_sum *sums = c->totals ? (const rms_grad_sum *)c->totals + at : &no_rows;
    rms_nccl_note(c, rms_cuda_backward_apply(c->spec, &part, w->stats + at, sums, stream));
  }
}

static inline void rms_nccl_apply_chunk(rms_nccl_call *c, const rms_nccl_work *w, int64_t i) {
  if (!rms_nccl_at_once(w)) rms_nccl_apply(c, w, i * c->chunk, rms_nccl_rows(c, i));
}

static inline rms_status rms_nccl_run(rms_nccl_call *c, const rms_nccl_work *w) {
  int64_t i;
  for (i = 0; i < c->chunks && c->failed != RMS_E_COMMUNICATION; i++) {
    rms_nccl_measure(c, w, i);
    if (i > 0) rms_nccl_order(c, c->exchange, c->stream); /* the chunk before has been exchanged */
    rms_nccl_order(c, c->stream, c->exchange);            /* this one has been measured */
    rms_nccl_exchange(c, i);
    if (i > 0) rms_nccl_apply_chunk(c, w, i - 1);
  }
  if (c->chunks > 0) {
    rms_nccl_order(c, c->exchange, c->stream);
    rms_nccl_apply_chunk(c, w, c->chunks - 1);
  }
  if (rms_nccl_at_once(w)) rms_nccl_apply(c, w, 0, c->outer);
  return c->failed;
}

static inline rms_status rms_nccl_forward(const rms_nccl *nccl, const rms_spec *spec, const rms_forward_args *args,
                                          rms_stat *stats, rms_cuda_stream stream) {
  rms_nccl_call c;
  rms_nccl_work work;
  rms_status status;
  if (!nccl) return RMS_E_ARGUMENT;
  if (nccl->mode == RMS_NCCL_LOCAL) return rms_cuda_forward(spec, args, stream);
  if (!spec || !args) return RMS_E_ARGUMENT;
  status = rms_nccl_start(&c, nccl, spec, args->outer, args->inner, 3);
  if (status != RMS_OK) return status;
  status = rms_nccl_check(&c, stats, args->inner);
  if (status == RMS_OK && c.blocks > 0) status = rms_cuda_forward_check(spec, args, stats);
  if (status != RMS_OK) return rms_nccl_refuse(&c, status, stream);
  rms_nccl_place(&c, stats, stream);
  work.forward = args;
  work.backward = NULL;
  work.stats = NULL;
  return rms_nccl_run(&c, &work);
}

static inline rms_status rms_nccl_check_backward(const rms_nccl *nccl, const rms_spec *spec,
                                                 const rms_backward_args *args, const rms_stat *stats) {
  static const rms_grad_sum no_rows = {0, 0};
  const rms_grad_sum *sums = nccl->scratch ? (const rms_grad_sum *)nccl->scratch : &no_rows;
  const rms_status status = rms_cuda_backward_check(spec, args, stats, sums);
  const size_t need = status == RMS_OK ? rms_cuda_backward_workspace(spec, args) : 0;
  const int fits = args->workspace && (uintptr_t)args->workspace % 64 == 0 && args->workspace_bytes >= need;
  return status != RMS_OK ? status : need == 0 || fits ? RMS_OK : RMS_E_WORKSPACE;
}

static inline rms_status rms_nccl_backward(const rms_nccl *nccl, const rms_spec *spec, const rms_backward_args *args,
                                           const rms_stat *stats, rms_cuda_stream stream) {
  rms_nccl_call c;
  rms_nccl_work work;
  rms_status status;
  if (!nccl) return RMS_E_ARGUMENT;
  if (nccl->mode == RMS_NCCL_LOCAL) return rms_cuda_backward(spec, args, stream);
  if (!spec || !args) return RMS_E_ARGUMENT;
  status = rms_nccl_start(&c, nccl, spec, args->outer, args->inner, 2);
  if (status != RMS_OK) return status;
  status = rms_nccl_check(&c, stats, args->inner);
  if (status == RMS_OK && c.blocks > 0) status = rms_nccl_check_backward(nccl, spec, args, stats);
  if (status != RMS_OK) return rms_nccl_refuse(&c, status, stream);
  rms_nccl_place(&c, NULL, stream);
  work.forward = NULL;
  work.backward = args;
  work.stats = stats;
  return rms_nccl_run(&c, &work);
}

#ifdef __cplusplus
}
#endif

#endif
