/* SPDX-License-Identifier: MIT
 *
 * A tensor of any framework: what a call reads of NumPy's, DLPack's and torch's descriptions of memory. */
#ifndef PN_TENSOR_H
#define PN_TENSOR_H

#include "rmsnorm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PN_MAX_DIMS = 64 };

typedef struct pn_tensor {
  char *data;
  int32_t dtype; /* rms_dtype */
  int32_t ndim;
  int64_t shape[PN_MAX_DIMS];
  int64_t stride[PN_MAX_DIMS]; /* in bytes; may be zero, negative or no multiple of the element */
} pn_tensor;

/* The strides that torch.empty_like gives: those of a tensor without gaps and overlaps, otherwise dense in the order of
 * the given strides. In elements; stride and out may be the same array. */
void pn_dense_strides(int ndim, const int64_t *shape, const int64_t *stride, int64_t *out);

#ifdef __cplusplus
}
#endif

#endif
