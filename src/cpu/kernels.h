/* SPDX-License-Identifier: MIT
 *
 * What the entry points (src/core) ask of the kernels (src/cpu/kernels): one table of functions per instruction set. */
#ifndef RMS_CPU_KERNELS_H
#define RMS_CPU_KERNELS_H

#include "../core/job.h"

/* Column sums of one chunk of rows. The current block of at most 64 rows is summed in the arithmetic type, in lane
 * order, and then added to the f64 totals in element order. Each (inner, group) piece takes `pitch` elements. */
typedef struct {
  void *dweight_block, *dbias_block;   /* NULL: not wanted                                    */
  double *dweight_total, *dbias_total; /* NULL: the sums stay in the block                    */
} rms_column_sums;

/* All work on segments first..last-1. */
typedef void rms_forward_fn(const rms_forward_job *job, int64_t first, int64_t last);
typedef void rms_backward_fn(const rms_backward_job *job, const rms_column_sums *sums, int64_t first, int64_t last);
/* The column sums of a block, in lane order, as `count` elements of a gradient of the data's or the arithmetic type. */
typedef void rms_columns_fn(void *to, const void *block, int64_t count, rms_dtype type);
typedef void rms_backward_stats_fn(const rms_backward_job *job, int64_t first, int64_t last);

/* Rows whose elements lie apart and that lie next to each other, in x and in y: a lane takes a row. Of RMSNorm and
 * LayerNorm with or without a weight and a bias, without groups and lists, y in T. Returns the first row of a tile that
 * is left to the other kernels, or `last`. */
typedef int64_t rms_forward_tiles_fn(const rms_forward_job *job, int64_t first, int64_t last);
/* Rows of more elements, in bytes of f32 (f64: of f64), are left to the other kernels. */
enum { RMS_LANES_BYTES = 16 * 1024 };

/* One row of RMSNorm with its first k elements in the statistic, eps inside the root, no offset; weight = NULL: none.
 * before: h is rounded before the weight. False, and nothing written: the row needs scaling, or may need it, which is
 * left to the forward. */
typedef bool rms_row_fn(char *y, const char *x, const char *weight, int64_t width, int64_t k, double eps,
                        bool weight_is_f32, bool before);

/* The largest magnitude of n elements; NaN if there is a NaN or an infinity among them. */
typedef float rms_largest_fn(const char *y, int64_t n);
/* Quantises n elements of y and writes their scales, where those are computed: whole blocks, or a part of one block
 * whose largest magnitude is *largest. */
typedef void rms_quantise_fn(const rms_quantised *q, char *to, float *scale, const char *y, int64_t n,
                             const float *largest);
/* The blocks that rms_quantise_rows_fn takes are whole segments or multiples of 32, and at most this wide. */
enum { RMS_LARGEST_BLOCK = 8192 };
/* Segments of a job with q and no y, residual, gate or given statistics straight from x, from `first` on. Returns the
 * first one that is left to the ordinary way, or `last`. stats: the kernel for the job's type. */
typedef int64_t rms_quantise_rows_fn(const rms_forward_job *job, rms_forward_fn *stats, int64_t first, int64_t last);
/* Between rows whose elements lie apart, whose first element is at `from` or `to` and which lie as those of `t`, and
 * contiguous ones, `pitch` bytes from one to the next; elements of `size` bytes. past: the scattered elements bypass
 * the caches where they fill whole lines. */
typedef void rms_gather_fn(char *to, int64_t pitch, const char *from, const rms_rows *t, int64_t size, int64_t rows,
                           int64_t cols);
typedef void rms_scatter_fn(char *to, const rms_rows *t, int64_t size, const char *from, int64_t pitch, int64_t rows,
                            int64_t cols, bool past);
/* A copy that bypasses the caches. */
typedef void rms_copy_fn(char *to, const char *from, int64_t bytes);

typedef struct {
  const char *name;
  /* indexed by rms_dtype; the first entry, RMS_AS_X, is empty */
  rms_row_fn *row[5];
  rms_forward_fn *forward[5], *stats[5];
  rms_backward_fn *backward[5];
  rms_backward_stats_fn *backward_stats[5];
  rms_columns_fn *columns[5];
  /* of jobs with more arithmetic, such as gates; the order of the lanes in a block of column sums may be another */
  rms_forward_fn *wide_forward[5];
  rms_backward_fn *wide_backward[5];
  rms_columns_fn *wide_columns[5];
  rms_forward_tiles_fn *forward_tiles[5];
  rms_largest_fn *largest[5]; /* of y; there is none of f64 */
  rms_quantise_fn *quantise[5];
  rms_quantise_rows_fn *quantise_rows[5]; /* of x */
  rms_gather_fn *gather;
  rms_scatter_fn *scatter;
  rms_copy_fn *copy;
  void (*fence)(void); /* after the last store past the caches of a task */
} rms_kernels;

extern const rms_kernels rms_kernels_scalar, rms_kernels_avx2, rms_kernels_avx512, rms_kernels_neon;
extern const rms_kernels rms_kernels_avx512_bf16; /* avx512 with the processor's own rounding to bf16 */

/* Kernels that stand in other units than their tables: src/cpu/isa/avx512_narrow.c and avx512_native.c. */
extern rms_row_fn rms_row_bf16_avx512, rms_row_bf16_native_avx512;
extern rms_forward_fn rms_forward_bf16_avx512, rms_forward_bf16_native_avx512;
extern rms_forward_fn rms_stats_bf16_avx512, rms_stats_bf16_native_avx512;
extern rms_backward_fn rms_backward_bf16_avx512, rms_backward_bf16_native_avx512;
extern rms_backward_stats_fn rms_backward_stats_bf16_avx512, rms_backward_stats_bf16_native_avx512;
extern rms_columns_fn rms_columns_bf16_avx512, rms_columns_bf16_native_avx512;
extern rms_forward_tiles_fn rms_forward_tiles_bf16_native_avx512;
extern rms_largest_fn rms_largest_bf16_native_avx512;
extern rms_quantise_fn rms_quantise_bf16_native_avx512;
extern rms_quantise_rows_fn rms_quantise_rows_bf16_native_avx512;

/* Rows summed into a block before it is added to the totals: bounds the error of dweight whatever the row count. */
enum { RMS_BLOCK_ROWS = 64 };

/* Segments of which more is read are wide: several of them do not stay in the first-level cache. */
enum { RMS_WIDE_BYTES = 8 * 1024 };

#endif
