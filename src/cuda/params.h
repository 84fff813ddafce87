/* SPDX-License-Identifier: MIT
 *
 * What the entry points (entry.cu) hand to the kernels: jobs that are already checked, with strides in bytes. A
 * segment is one group of one row; segment s belongs to row s / groups, row r to outer index r / inner. */
#ifndef RMS_CUDA_PARAMS_H
#define RMS_CUDA_PARAMS_H

#include <cuda_runtime_api.h>
#include <stdint.h>
#include "../../include/rmsnorm.h"

namespace rms_cuda {

/* Threads that share a segment within a block, and blocks that share it. */
enum { FORWARD_TEAM = 256, BACKWARD_TEAM = 512, BACKWARD_TEAM_WIDE = 256, MAX_CLUSTER = 8 };

/* The most threads of a block of the lean backward kernel; the biggest kernels have BACKWARD_TEAM. */
enum { BACKWARD_THREADS = 640 };

/* Bytes of shared memory that a block of the lean kernels may ask for. */
enum { LEAN_SHARED = 220 * 1024 };

/* Vectors of a thread of the backward kernel. */
enum { BACKWARD_VECTORS = 2 };

/* Short rows: rows of a thread at a time in the forward, threads of a backward block, how many such blocks an SM holds,
 * and rows of a thread that are on their way. */
enum { SHORT_ROWS = 4, SHORT_THREADS = 384, SHORT_BLOCKS = 2, SHORT_STAGES = 4 };

/* Rows that one sum of the lean backward takes in registers, and how many such blocks of rows one team: each block adds
 * at most two sums to shared memory, the lanes of a warp that share columns are five additions, and one rounding comes
 * when the teams of a block are added up. No term passes more than 64 roundings. */
enum { FLAT = 32, DEEP = 13 };

/* Rows that one f32 accumulator of dweight or dbias takes before it is added to f64 sums. */
enum { BLOCK_ROWS = 48 };

/* Bytes of an element of a checked type. */
inline int64_t element_size(rms_dtype dtype) {
  return dtype == RMS_F64 ? 8 : dtype == RMS_F32 ? 4 : 2;
}

/* A tensor of rows: data = NULL when absent. */
struct Rows {
  char *data;
  int64_t outer, inner;
};

/* What forward and backward have in common. */
struct Layout {
  int64_t outer, inner, groups;
  int64_t width;          /* elements of a segment                                     */
  int64_t k;              /* of them in the statistic; 0 in a shard without any        */
  const int64_t *indices; /* the k elements, or NULL: the first k                      */
  double eps, offset;
  int eps_limit; /* largest exponent by which a segment may be scaled         */
  bool layer, eps_outside, before;
  bool weight_wide;   /* weight and bias are f32 and the data is not               */
  bool residual_wide; /* the residual tensors are f32 and the data is not          */
  const char *weight;
  int64_t weight_inner; /* bytes from one inner index's weights to the next          */
  rms_dtype dtype;
};

struct ForwardJob {
  Layout lay;
  Rows x, residual, y, residual_out;
  const char *bias;
  void *rstd, *mean;
  const rms_stat *stats_in; /* apply: the statistics */
  rms_stat *stats_out;      /* stats: where they go  */
  bool aligned;             /* every vector of every tensor is 16-byte aligned and whole */
  int64_t first;            /* segment of block 0    */
  int team;                 /* threads that share a segment: a power of two up to 32, or a block's */
  int cluster;              /* blocks that share a segment */
};

/* Rows of an outer index, and how to divide a row's number below 2^31 by them. rows = 0: all are at one distance. */
struct Inner {
  unsigned rows, factor;
  int shift;
};

/* A forward of aligned rows, all tensors of the data type. Segments are rows here: groups are a kind of inner index.
 * Row i belongs to inner index i % inner and outer index i / inner. */
struct LeanForward {
  Rows x, residual, y, sum;
  const char *weight, *bias;
  float *rstd, *mean;
  int64_t rows;
  Inner inner;
  double exact_eps;
  float eps, k, inverse_k, offset;
  int eps_limit;
  bool options; /* any of the following is in use, or inner is above 1 */
  bool before, eps_outside, weight_wide;
  int statistic;        /* elements in it: the first of the row                 */
  int64_t weight_inner; /* bytes from one inner index's weights to the next     */
  int vectors;          /* of a row                                             */
  int team, cluster;    /* lanes that share a row, blocks that share a row      */
  int shares;           /* blocks or clusters that walk the rows                */
  int stages;           /* of the ring                                          */
  unsigned ahead;       /* blocks that ask for their rows before their turn */
};

/* What the second half of a backward needs to know of a segment: RowFactors in guard.cuh. */
struct RowScalars {
  double scale, mean, r, c1, c2;
  int up, down;
};

struct BackwardJob {
  Layout lay;
  Rows dy, x, dresidual, dx, dresidual_out;
  bool x_wide; /* x is a residual sum kept in f32 while the data is not */
  bool add_to_dx, aligned;
  bool round_product; /* dy*h is rounded to the data type before it is summed */
  bool want_dweight, want_dbias;
  const void *rstd, *mean;
  const rms_stat *stats_in;
  const rms_grad_sum *sums_in;
  rms_grad_sum *sums_out;
  RowScalars *scalars;
  void *partial; /* [dweight, dbias][slice][share][width], f32 or f64 */
  bool partial_is_f64;
  int64_t slices;       /* sets of rows that share a weight                  */
  int64_t slice_rows;   /* rows of each                                      */
  int64_t shares;       /* partial sums of each                              */
  int64_t first, count; /* rows of a slice to work on                        */
  int team, cluster, stages;
};

/* A backward of the common case: one weight for all rows. `outer` of a tensor is the distance of its rows, unless there
 * are two. */
struct LeanBackward {
  Rows dy, x, dx;
  const char *weight;
  const float *rstd, *mean;
  float *partial;        /* [dweight, dbias][share][width] */
  const rms_stat *stats; /* split form: the statistics that rstd and mean were made from */
  int64_t rows;
  double exact_eps;
  float eps, k, inverse_k, offset;
  int eps_limit;
  int vectors; /* of a row               */
  int stored;  /* of them in dx: all, or none where dx is not asked for */
  int team, cluster, shares, stages;
  int rounds; /* rows of the first team */
  int ahead;  /* rows of a team that are brought to L2 before the kernel before this one has ended */
  bool late;  /* a stage is asked for at the end of a row, not as soon as it is free */
  bool weight_wide, want_dweight, want_dbias;
  int form;         /* of the kernel: MORE in lean_backward.cuh                  */
  Rows added, copy; /* added to dx; a second place for it              */
  Inner inner;
  int leading;        /* elements of a row in the statistic              */
  bool whole;         /* all of them                                     */
  bool before;        /* h and u are rounded to the data type            */
  bool round_product; /* and dy*h                                        */
};

struct FinishJob {
  const void *partial;
  bool partial_is_f64;
  int64_t slices, shares, width;
  int planes;   /* sums in the partial buffer: 1 or 2 */
  void *out[2]; /* of each plane                      */
  bool add[2];
  rms_dtype type[2];
  int columns; /* of a block, in vectors, and blocks that a row of columns takes: set by launch_finish */
  int64_t tiles;
};

struct Grid {
  int64_t blocks;
  int threads;
  size_t shared;
};

/* One launch each; the return value is the runtime's. */
template <class T> cudaError_t launch_forward_of(const ForwardJob &job, const Grid &grid, cudaStream_t stream);
/* With `clusters`: no launch, but the number of clusters that the device holds at once. */
template <class T>
cudaError_t launch_backward_of(const BackwardJob &job, const Grid &grid, cudaStream_t stream, int *clusters);
/* rstd and mean (LayerNorm) of `segments` rows as a forward saves them, from their statistics. */
cudaError_t launch_saved(const Layout &lay, const rms_stat *stats, int64_t segments, float *rstd, float *mean,
                         cudaStream_t stream);
cudaError_t launch_merge(bool layer, int64_t count, rms_stat *into, const rms_stat *from, cudaStream_t stream);
cudaError_t launch_finish(const FinishJob &job, bool overlap, cudaStream_t stream);
cudaError_t launch_plain_forward(const ForwardJob &job, const Grid &grid, cudaStream_t stream);
cudaError_t launch_plain_rows(const BackwardJob &job, const Grid &grid, cudaStream_t stream);
cudaError_t launch_plain_columns(const BackwardJob &job, const Grid &grid, cudaStream_t stream);

} // namespace rms_cuda

#endif
