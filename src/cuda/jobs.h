/* SPDX-License-Identifier: MIT
 *
 * What is handed to the kernels: jobs that are checked (src/core/job.h) and planned (plan.h).
 *
 * Two families take them. The kernels of aligned rows (a row within a warp, within a block, across a cluster) take a
 * ForwardJob or a BackwardJob, in which everything is worked out that they need. The general kernels, which can do
 * everything, take the checked job as it is. */
#ifndef RMS_CUDA_JOBS_H
#define RMS_CUDA_JOBS_H

#include <cuda_runtime.h>
extern "C" {
#include "../core/job.h"
}

namespace rms_cuda {

using Rows = rms_rows;

/* Bytes of an element of a checked type. */
__host__ __device__ inline int64_t element_size(rms_dtype dtype) {
  return dtype == RMS_F64 ? 8 : dtype == RMS_F32 ? 4 : 2;
}

/* Rows of an outer index, and how to divide a row's number below 2^31 by them. rows = 0: all are at one distance. */
struct Inner {
  unsigned rows, factor;
  int shift;
};

/* ---- aligned rows ---- */

/* Segments are rows here: groups are a kind of inner index. Row i belongs to inner index i % inner and outer index
 * i / inner. */
struct ForwardJob {
  Rows x, residual, y, sum;
  const char *weight, *bias;
  float *rstd, *mean;
  int64_t rows;
  Inner inner;
  double wide_eps; /* eps as f32 has it */
  float eps, k, inverse_k, offset;
  int eps_limit; /* largest exponent by which a row may be scaled */
  bool round_before, eps_outside, weight_is_f32;
  bool eps_clamp;                   /* of eps_outside: eps bounds the root, and is not added to it */
  int statistic;                    /* elements in it: the first of the row                 */
  int width, bytes;                 /* of a row of the data type                            */
  const char *x_end, *residual_end; /* of the tensors, where rows are not aligned */
  int64_t weight_inner;             /* bytes from one inner index's weights to the next     */
  int vectors;                      /* of a row                                             */
  int team, cluster;                /* lanes that share a row, blocks that share a row      */
  int shares;                       /* blocks or clusters that walk the rows                */
  int stages;                       /* of the ring                                          */
  int panels, kept;                 /* of a WIDE row: of a block; parameters that it keeps  */
  unsigned ahead;                   /* blocks that ask for their rows before their turn     */
  Rows gate;
  const char *gate_end; /* where rows are not aligned */
  bool sigmoid;         /* its activation; else silu             */
  bool round_gain;      /* weight + offset to the data type      */
};

/* The same for the forms that round at every step. */
struct StepwiseForward {
  ForwardJob p;
  rms_layout lay;
};

/* Rows of one weight are a slice: a slice for each inner index where these have weights of their own, otherwise one.
 * Row i of slice s is row i * slices + s of all. */
struct BackwardJob {
  Rows dy, x, dx;
  Rows added, copy; /* added to dx; a second place for it                          */
  const char *weight;
  int64_t weight_inner; /* bytes from one slice's weights to the next                  */
  const float *rstd, *mean;
  float *partial;        /* [dweight, dbias][slice][share][width]                       */
  const rms_stat *stats; /* split form: the statistics that rstd and mean were made from */
  int64_t rows;          /* of a slice                                                  */
  int slices;
  Inner inner; /* where there is one slice */
  double wide_eps;
  float eps, k, inverse_k, offset;
  int eps_limit;
  int vectors; /* of a row                                                    */
  int stored;  /* of them in dx: all, or none where dx is not asked for       */
  int team, cluster, stages;
  int shares;                /* of a slice: blocks or clusters that walk its rows           */
  int rounds;                /* rows of the first team                                      */
  int ahead;                 /* rows of a team that are brought to L2 before the kernel before this one has ended */
  int panels, kept;          /* of a WIDE row: of a block; whether it keeps the weights     */
  int flats, flat, partials; /* sums of columns of a cluster, rows of each, and all of them */
  bool late;                 /* a stage is asked for at the end of a row, not as soon as it is free */
  bool weight_is_f32, want_dweight, want_dbias;
  int leading;                            /* elements of a row in the statistic                          */
  bool whole;                             /* all of them                                                 */
  int bytes;                              /* of a row of the data type                                   */
  const char *x_end, *dy_end, *added_end; /* of the tensors, where rows are not aligned */
  bool layer;                             /* LayerNorm: its kernels make dbias of RMSNorm too            */
  bool eps_outside;                       /* of the root                                                 */
  bool terms;                             /* the two terms of dx are rounded on their own                */
  bool eps_clamp;                         /* and bounds it, in place of being added to it                */
  bool x_is_f32;                          /* x, what is added and the copy: f32 beside 16-bit data       */
  bool added_is_f32, copy_is_f32;
  bool round_before;  /* h and u are rounded to the data type before the weight      */
  bool round_product; /* and dy*h                                                    */
  bool saved;         /* rstd and mean are there, and are all that is needed         */
  bool gate_before;   /* of a gate, which is `added`, and dgate is the copy: before the norm, else after it */
  bool sigmoid;       /* its activation; else silu                                   */
  bool round_gain;    /* weight + offset to the data type                            */
};

/* The same for the forms that round at every step. */
struct StepwiseBackward {
  BackwardJob p;
  rms_layout lay;
};

/* ---- any rows ---- */

/* What the general kernels need beside the checked job. A segment is one group of one row. */
struct GeneralForward {
  rms_forward_job job;
  int64_t segments;
  int eps_limit;
  bool aligned;  /* every vector of every tensor is 16-byte aligned and whole         */
  bool whole;    /* all elements are in the statistic                                 */
  bool kept;     /* there is room for a segment in shared memory                      */
  int64_t first; /* segment of block 0                                                */
  int team;      /* threads that share a segment: a power of two                      */
};

/* What the second half of a general backward needs to know of a segment: RowFactors in guard.cuh. */
struct RowScalars {
  double scale, mean, r, c1, c2;
  int up, down;
};

struct GeneralBackward {
  rms_backward_job job;
  int eps_limit;
  bool aligned, whole, kept;
  bool columns_kept; /* and for the column sums of a team */
  bool ahead;        /* rows come ahead: backward_double.cuh */
  bool round_product;
  bool want_dweight, want_dbias;
  RowScalars *scalars;
  double *partial;      /* [dweight, dbias][slice][share][width] */
  int64_t slices;       /* sets of segments that share a weight  */
  int64_t shares;       /* of each: blocks that walk its rows    */
  int64_t first, count; /* rows of a slice to work on            */
  int team;
};

/* ---- column sums ---- */

struct FinishJob {
  const void *partial;
  bool partial_is_f64;
  int64_t slices, shares, width;
  int64_t pitch; /* from one partial sum of all columns to the next, in elements */
  int planes;    /* sums in the partial buffer: 1 or 2 */
  void *out[2];  /* of each plane                      */
  bool add[2];
  rms_dtype type[2];
  int columns; /* of a block, in vectors, and blocks that a row of columns takes: set by launch_finish */
  int64_t tiles;
};

} // namespace rms_cuda

#endif
