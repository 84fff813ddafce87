/* SPDX-License-Identifier: MIT
 *
 * The two operations on tensors of any shape and strides. Every way into the package (NumPy, torch) ends here.
 *
 * A tensor that is absent is NULL. Tensors of rows have the shape of x. weight, bias, dweight and dbias have the shape
 * (cols) or, per head, (x.shape[-2], cols). rstd and mean have x's leading dimensions and then the groups, in float, or
 * double for f64 data. The front ends check shapes and types, so that they can name what is wrong.
 *
 * The two halves of an operation, for rows that are spread over processes, keep their numbers in tensors of doubles:
 * stats and sums have x's leading dimensions and then the groups times the doubles of an rms_stat or an rms_grad_sum.
 */
#ifndef PN_CALL_H
#define PN_CALL_H

#include "rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The whole operation, the half that writes stats (backward: sums), or the half that reads them. */
typedef enum pn_part { PN_WHOLE, PN_STATS, PN_APPLY } pn_part;

/* How many doubles an rms_stat and an rms_grad_sum are. */
enum { PN_STAT_DOUBLES = 3, PN_SUM_DOUBLES = 2 };

/* What the front ends call a mode: the options of a call that are not numbers. */
enum {
  PN_MODE_LAYER = 1,
  PN_MODE_EPS_OUTSIDE = 2,
  PN_MODE_BEFORE_WEIGHT = 4,
  PN_MODE_TORCH_SUMS = 8,
  PN_MODE_GATE_AFTER = 16,
  PN_MODE_GATE_BEFORE = 32,
  PN_MODE_SIGMOID = 64,
  PN_MODE_GAIN_AS_WEIGHT = 128,
  PN_MODE_EPS_CLAMP = 256,
  PN_MODE_STEPS = 512, /* times rms_steps */
  PN_MODE_OUT = 2048   /* times the rms_dtype of a result that has a type of its own */
};

/* The spec of the numbers and the mode that every front end takes; partial counts elements. */
rms_spec pn_make_spec(double eps, double weight_offset, int64_t partial, int64_t groups, int64_t mode);

/* These elements enter the statistic. They are not copied. */
void pn_set_indices(rms_spec *spec, const int64_t *indices, int64_t count);

/* Bytes of a row of so many elements as q. */
int64_t pn_quantised_bytes(int32_t q_dtype, int64_t cols);

/* The type of the result of a forward in this mode on x of that type. */
int32_t pn_result_dtype(int64_t mode, int32_t x);

/* The data type T of a backward in this mode: that of x where the result has a type of its own, and otherwise that of
 * dy, since x may be a wider sum. */
int32_t pn_data_dtype(int64_t mode, int32_t x, int32_t dy);

typedef struct pn_forward {
  rms_spec spec; /* all but cols and weight_per_inner; indices are where the tensors are */
  const pn_tensor *x, *residual, *gate, *weight, *bias, *y, *sum, *rstd, *mean, *stats;
  const pn_tensor *q;     /* y quantised, as bytes: x's leading dimensions, then those of a row */
  const pn_tensor *scale; /* its scales: x's leading dimensions, then the blocks of a row; or one float that is given */
  int32_t q_dtype;        /* rms_dtype of q */
  int32_t y_dtype;        /* what y is rounded to where it is absent */
  pn_part part;
  bool torch_sums; /* the squares are added in torch's order: torch_sums.h */
} pn_forward;

typedef struct pn_backward {
  rms_spec spec;
  const pn_tensor *dy, *x, *dresidual, *gate, *weight, *bias, *rstd, *mean, *stats, *sums;
  const pn_tensor *dx, *dresidual_out, *dgate, *dweight, *dbias;
  int32_t data_dtype; /* T: pn_data_dtype; 0: that of dy */
  pn_part part;
} pn_backward;

/* Where calls run: memory for temporaries and the functions of the library there, which get the context. */
typedef struct pn_backend {
  pn_memory memory;
  rms_status (*forward)(const void *context, const rms_spec *spec, const rms_forward_args *args);
  rms_status (*backward)(const void *context, const rms_spec *spec, const rms_backward_args *args);
  size_t (*workspace)(const rms_spec *spec, const rms_backward_args *args);
  rms_status (*stats)(const void *context, const rms_spec *spec, const rms_forward_args *args, rms_stat *stats);
  rms_status (*merge)(const void *context, const rms_spec *spec, int64_t count, rms_stat *into, const rms_stat *from);
  rms_status (*apply)(const void *context, const rms_spec *spec, const rms_forward_args *args, const rms_stat *stats);
  rms_status (*backward_stats)(const void *context, const rms_spec *spec, const rms_backward_args *args,
                               const rms_stat *stats, rms_grad_sum *sums);
  rms_status (*backward_apply)(const void *context, const rms_spec *spec, const rms_backward_args *args,
                               const rms_stat *stats, const rms_grad_sum *sums);
  /* forward with torch's sums, which are kept in stats; NULL where they are not offered. */
  rms_status (*forward_torch_sums)(const void *context, const rms_spec *spec, const rms_forward_args *args,
                                   rms_stat *stats);
  const void *context;
} pn_backend;

/* The CPU, on an executor or (NULL) on the calling thread. */
pn_backend pn_cpu(const rms_executor *executor);

rms_status pn_run_forward(const pn_forward *call, const pn_backend *backend);
rms_status pn_run_backward(const pn_backward *call, const pn_backend *backend);

/* LayerNorm's statistics of two shards as those of both, dense tensors of the same shape: into those of into. */
rms_status pn_run_merge(const pn_tensor *into, const pn_tensor *from, const pn_backend *backend);

#ifdef __cplusplus
}
#endif

#endif
