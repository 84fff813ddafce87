/* SPDX-License-Identifier: MIT
 *
 * What the entry points (src/core) hand to the kernels (src/cpu/kernels): jobs that are already checked, with strides
 * in bytes, and one table of functions per instruction set.
 *
 * Kernels walk segments: one group of one row. Segment s belongs to row s / groups, row r to outer index r / inner. */
#ifndef RMS_CPU_KERNELS_H
#define RMS_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>
#include "../../include/rmsnorm.h"
#include "arithmetic.h"

/* A tensor of rows: data = NULL when absent; strides in bytes. */
typedef struct {
  char *data;
  int64_t outer, inner;
} rms_rows;

/* What forward and backward have in common. */
typedef struct {
  int64_t inner, groups;
  int64_t width;          /* elements of a segment                                        */
  int64_t k;              /* of them in the statistic; 0 in a shard without any           */
  const int64_t *indices; /* the k elements, or NULL: the first k                         */
  double eps, offset;
  rms_kind kind;
  rms_eps_place eps_place;
  rms_rounding rounding;
  bool weight_is_f32;   /* weight and bias are f32 and the data is not                  */
  bool residual_is_f32; /* the residual tensors are f32 and the data is not             */
  const char *weight;
  int64_t weight_inner; /* bytes from one inner index's weights to the next; 0: shared  */
  bool per_inner;       /* weight, bias and their gradients differ by inner index       */
} rms_layout;

typedef struct {
  rms_layout lay;
  rms_rows x, residual, y, residual_out;
  const char *bias;
  void *rstd, *mean;
  const rms_stat *stats_in; /* forward: given statistics; NULL: they are computed */
  rms_stat *stats_out;      /* stats: where they go                               */
  bool fetch_ahead;         /* fetch the next row early: the data is past the caches (backward: the second level) */
  bool in_groups;           /* ... or, where it can, read and write in long turns: kernels/forward_fast.h */
  bool stream_y, stream_residual; /* write past the caches                        */
} rms_forward_job;

/* Column sums of one chunk of rows. The current block of at most 64 rows is summed in the arithmetic type, in lane
 * order, and then added to the f64 totals in element order. Each (inner, group) piece takes `pitch` elements. */
typedef struct {
  void *dweight_block, *dbias_block; /* NULL: not wanted */
  double *dweight_total, *dbias_total;
} rms_column_sums;

typedef struct {
  rms_layout lay;
  rms_rows dy, x, dresidual, dx, dresidual_out;
  bool x_is_f32; /* x is a residual sum kept in f32 while the data is not */
  bool add_to_dx;
  const void *rstd, *mean;
  const rms_stat *stats_in;                                /* given statistics, else NULL                  */
  const rms_grad_sum *sums_in;                             /* backward: given sums; NULL: they are computed */
  rms_grad_sum *sums_out;                                  /* backward_stats: where they go                */
  int64_t pitch;                                           /* of rms_column_sums */
  bool fetch_ahead, in_groups, stream_dx, stream_residual; /* as in the forward */
} rms_backward_job;

/* All work on segments first..last-1. */
typedef void rms_forward_fn(const rms_forward_job *job, int64_t first, int64_t last);
typedef void rms_backward_fn(const rms_backward_job *job, const rms_column_sums *sums, int64_t first, int64_t last);
typedef void rms_backward_stats_fn(const rms_backward_job *job, int64_t first, int64_t last);

/* One row of RMSNorm with the whole of it in the statistic, eps inside the root, one rounding after the weight, no
 * offset; weight = NULL: none. False, and nothing written: the row needs scaling, which is left to the forward. */
typedef bool rms_row_fn(char *y, const char *x, const char *weight, int64_t width, double eps, bool weight_is_f32);

typedef struct {
  const char *name;
  /* indexed by rms_dtype */
  rms_row_fn *row[4];
  rms_forward_fn *forward[4], *stats[4];
  rms_backward_fn *backward[4];
  rms_backward_stats_fn *backward_stats[4];
} rms_kernels;

extern const rms_kernels rms_kernels_scalar, rms_kernels_avx2, rms_kernels_avx512, rms_kernels_neon;

/* Rows summed into a block before it is added to the totals: bounds the error of dweight whatever the row count. */
enum { RMS_BLOCK_ROWS = 64 };

#endif
