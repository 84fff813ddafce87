/* SPDX-License-Identifier: MIT
 *
 * The rows of a NumPy array along one axis, as the outer and inner indices and strides of the library: for rows whose
 * elements lie apart, and for weights that belong to a part of the rows. */
#ifndef RMSNORM_CLI_LAYOUT_H
#define RMSNORM_CLI_LAYOUT_H

#include "npy.h"

typedef struct layout {
  int64_t outer, inner;                           /* rows; 0 and 1 where there are none  */
  int64_t outer_stride, inner_stride, col_stride; /* as in rms_view; 0: dense            */
  int weight_per_inner;
} layout;

/* `params`, a weight or bias or NULL, has the shape of x's last axes, or of its first ones and the last, with or
 * without ones for the others; where `axis` is not the last, of that axis alone. Returns -1 if it has another shape. */
int layout_make(const npy_array *x, int axis, const npy_array *params, layout *l);

/* Puts what the library has for each row, in the order outer, inner, into the order of the array's axes (to_axes), or
 * the other way round. Returns -1 if memory is short. */
int layout_order(const layout *l, npy_array *array, int to_axes);

#endif
