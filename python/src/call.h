/* SPDX-License-Identifier: MIT
 *
 * The two operations on tensors of any shape and strides. Every way into the package (NumPy, torch) ends here.
 *
 * A tensor that is absent is NULL. Tensors of rows have the shape of x. weight, bias, dweight and dbias have the shape
 * (cols) or, per head, (x.shape[-2], cols). rstd and mean have x's leading dimensions and then the groups, in float, or
 * double for f64 data. The front ends check shapes and types, so that they can name what is wrong. */
#ifndef PN_CALL_H
#define PN_CALL_H

#include "rows.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pn_forward {
  rms_spec spec; /* all but cols and weight_per_inner; indices are where the tensors are */
  const pn_tensor *x, *residual, *weight, *bias, *y, *sum, *rstd, *mean;
  bool torch_sums; /* the squares are added in torch's order: torch_sums.h */
} pn_forward;

typedef struct pn_backward {
  rms_spec spec;
  const pn_tensor *dy, *x, *dresidual, *weight, *rstd, *mean, *dx, *dresidual_out, *dweight, *dbias;
} pn_backward;

/* Where calls run: memory for temporaries and the functions of the library there, which get the context. */
typedef struct pn_backend {
  pn_memory memory;
  rms_status (*forward)(const void *context, const rms_spec *spec, const rms_forward_args *args);
  rms_status (*backward)(const void *context, const rms_spec *spec, const rms_backward_args *args);
  size_t (*workspace)(const rms_spec *spec, const rms_backward_args *args);
  /* forward with torch's sums, which are kept in stats; NULL where they are not offered. */
  rms_status (*forward_torch_sums)(const void *context, const rms_spec *spec, const rms_forward_args *args,
                                   rms_stat *stats);
  const void *context;
} pn_backend;

/* The CPU, on an executor or (NULL) on the calling thread. */
pn_backend pn_cpu(const rms_executor *executor);

rms_status pn_run_forward(const pn_forward *call, const pn_backend *backend);
rms_status pn_run_backward(const pn_backward *call, const pn_backend *backend);

#ifdef __cplusplus
}
#endif

#endif
