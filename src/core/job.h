/* SPDX-License-Identifier: MIT
 *
 * Jobs: calls that are checked (check.c), with strides in bytes. The kernels of both back ends take them as they are.
 *
 * Kernels walk segments: one group of one row. Segment s belongs to row s / groups, row r to outer index r / inner. */
#ifndef RMS_CORE_JOB_H
#define RMS_CORE_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include "../../include/rmsnorm.h"
#include "arithmetic.h"

/* A tensor of rows: data = NULL when absent; strides in bytes. */
typedef struct {
  char *data;
  int64_t outer, inner;
  int64_t col; /* from one element of a row to the next; 0: they are contiguous */
} rms_rows;

/* What forward and backward have in common. */
typedef struct {
  int64_t inner, groups;
  int64_t width;          /* elements of a segment                                        */
  int64_t k;              /* of them in the statistic; 0 in a shard without any           */
  const int64_t *indices; /* the k elements, or NULL: the first k                         */
  double eps, offset;
  rms_dtype dtype; /* T: of x, y; in a backward of dy, dx */
  rms_kind kind;
  rms_eps_place eps_place;
  rms_rounding rounding;
  rms_steps steps;
  rms_gate_place gate_place;
  rms_activation activation;
  bool gain_as_weight;  /* weight + offset is rounded to the weight's type              */
  bool weight_is_f32;   /* weight and bias are f32 and the data is not                  */
  bool residual_is_f32; /* the residual tensors are f32 and the data is not             */
  const char *weight;
  int64_t weight_inner; /* bytes from one inner index's weights to the next; 0: shared  */
  bool per_inner;       /* weight, bias and their gradients differ by inner index       */
  int64_t apart;        /* bytes of a row in all tensors whose elements lie apart; 0: all rows are contiguous */
} rms_layout;

/* A block of RMS_Q8_0: an f16 scale, then the elements. */
enum { RMS_Q8_0_ELEMENTS = 32, RMS_Q8_0_BYTES = 34 };

/* Bytes of n elements of a quantised type; n is a multiple of 32 for RMS_Q8_0. */
static inline int64_t rms_quantised_bytes(rms_dtype type, int64_t n) {
  return type == RMS_Q8_0 ? n / RMS_Q8_0_ELEMENTS * RMS_Q8_0_BYTES : n;
}

/* A quantised output. The blocks of RMS_Q8_0 hold their scales. */
typedef struct {
  rms_rows rows;
  rms_dtype type;
  float *scale;  /* read where block is 0, written otherwise                           */
  int64_t block; /* elements with one scale; 0: one for the tensor                     */
  float least;   /* of a computed scale                                                */
  bool stream;   /* use non-temporal stores                                            */
  int64_t ahead; /* bytes from y in the room to what should be fetched early; 0: none  */
} rms_quantised;

/* How rows are written past the caches. Which of these there are for which rows: core/strategy.c. */
typedef enum {
  RMS_WAY_FETCH,   /* the next row, or batch of short rows, is fetched while one is written             */
  RMS_WAY_SPACED,  /* so it is, with plain stores between the non-temporal ones: kernels/batch.h        */
  RMS_WAY_BATCHES, /* a large batch of rows is measured, then written                                   */
  RMS_WAY_BURST,   /* small batches of short rows: the next one is fetched at once, before one is written */
  RMS_WAY_LEFT,    /* nothing is fetched: that is left to the processor                                 */
  RMS_WAYS
} rms_way;

typedef struct {
  rms_layout lay;
  rms_rows x, residual, gate, y, residual_out;
  rms_quantised q;
  rms_dtype y_type; /* to which y is rounded, stored or not */
  const char *bias;
  void *rstd, *mean;
  const rms_stat *stats_in; /* forward: given statistics; NULL: they are computed */
  rms_stat *stats_out;      /* stats: where they go                               */
  bool fetch_ahead; /* prefetch the next row: the data is larger than the caches (backward: than the L2 cache) */
  rms_way way;      /* in which of the ways, where there are several: core/strategy.h */
  bool stream_y, stream_residual; /* use non-temporal stores                      */
} rms_forward_job;

typedef struct {
  rms_layout lay;
  rms_rows dy, x, dresidual, gate, dx, dresidual_out, dgate;
  const char *bias;  /* for dgate alone */
  bool x_is_f32;     /* x is a residual sum kept in f32 while the data is not */
  rms_dtype dy_type; /* of a y that had another type than x */
  bool add_to_dx;
  rms_dtype dweight_type, dbias_type;
  const void *rstd, *mean;
  const void *drstd, *dmean;   /* gradients that reach these; NULL: none        */
  const rms_stat *stats_in;    /* given statistics, else NULL                   */
  const rms_grad_sum *sums_in; /* backward: given sums; NULL: they are computed */
  rms_grad_sum *sums_out;      /* backward_stats: where they go                 */
  int64_t row_step;            /* statistics from one row of the job to the next, in rows */
  int64_t pitch;               /* of rms_column_sums                            */
  bool go_on;                  /* the first block is added to the totals too, and the last is emptied */
  bool fetch_ahead;            /* as in the forward                             */
  rms_way way;
  bool stream_dx, stream_residual, stream_dgate;
} rms_backward_job;

#endif
