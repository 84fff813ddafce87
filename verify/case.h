/* SPDX-License-Identifier: MIT
 *
 * A case: a problem with its memory. This is the one place that knows which tensors a problem has, of which types and
 * shapes, and how a call of the library is made of them; where they lie is up to an allocator:
 *
 *   verify_case_describe    the tensors, without memory
 *   ...                     the caller may change strides, or let an output share an input's memory
 *   verify_case_place       memory for each of them, on the host or on a device
 *   verify_case_..._args    the arguments of the call */
#ifndef RMSNORM_VERIFY_CASE_H
#define RMSNORM_VERIFY_CASE_H

#include <stddef.h>
#include "problem.h"

typedef enum verify_role {
  VERIFY_X, /* forward: x; backward: what was normalised, the residual sum where the problem has a residual */
  VERIFY_RESIDUAL,
  VERIFY_WEIGHT,
  VERIFY_BIAS,
  VERIFY_DY,
  VERIFY_DRESIDUAL,
  VERIFY_GATE,
  VERIFY_INDICES,
  VERIFY_Y,
  VERIFY_SUM,
  VERIFY_RSTD, /* forward: output; backward: input */
  VERIFY_MEAN,
  VERIFY_DX,
  VERIFY_DS,
  VERIFY_DWEIGHT,
  VERIFY_DBIAS,
  VERIFY_DGATE,
  VERIFY_STATS,     /* rms_stat array of the split form     */
  VERIFY_GRAD_SUMS, /* rms_grad_sum array of the split form */
  VERIFY_WORKSPACE,
  VERIFY_Q,     /* of q8_0: as bytes, 34 for 32 elements     */
  VERIFY_SCALE, /* of q: output, or input if it is given     */
  VERIFY_DRSTD, /* inputs: gradients that reach rstd and mean */
  VERIFY_DMEAN,
  VERIFY_ROLES
} verify_role;

typedef struct verify_tensor {
  int present;
  char *data;                         /* the first element; NULL: no memory yet                                 */
  rms_dtype dtype;                    /* RMS_AS_X: not elements but `cols` bytes (indices, split form, workspace) */
  int64_t outer, inner, cols;         /* what does not follow the rows has one outer index                      */
  int64_t outer_stride, inner_stride; /* in elements                                                    */
  int64_t col_stride;                 /* from one element of a row to the next                          */
  size_t bytes;                       /* from the first element to behind the last, gaps included       */
  verify_role shared_with;            /* itself, or the input whose memory it takes (in place)          */
} verify_tensor;

typedef struct verify_case {
  verify_problem problem;
  verify_tensor tensor[VERIFY_ROLES];
} verify_case;

/* Every tensor of the problem but the workspace. 0, or -1 if a size overflows. */
int verify_case_describe(verify_case *c, const verify_problem *problem);

/* Sets the strides of a tensor of rows, in elements, and its bytes, which then end with the last row. */
void verify_tensor_stride(verify_tensor *t, int64_t outer_stride, int64_t inner_stride);
/* Channels first: element j of row (i, h) follows that of row (i, h - 1). gap: unused elements after each channel. */
void verify_tensor_turn(verify_tensor *t, int64_t gap);

/* Where element j of row (outer, inner) is, in elements from the first. */
static inline int64_t verify_element_at(const verify_tensor *t, int64_t outer, int64_t inner, int64_t j) {
  return outer * t->outer_stride + inner * t->inner_stride + j * t->col_stride;
}

/* Memory for c->tensor[role], whose type and bytes are known: aligned for its type; NULL: there is none. It belongs to
 * the allocator. */
typedef struct verify_allocator {
  char *(*place)(void *ctx, const verify_case *c, verify_role role);
  void *ctx;
} verify_allocator;

/* Memory for every tensor that has none. 0, or -1 if the allocator has none. */
int verify_case_place(verify_case *c, const verify_allocator *allocator);
/* The workspace of a backward, once its size is known. */
int verify_case_place_workspace(verify_case *c, size_t bytes, const verify_allocator *allocator);

static inline int verify_case_has(const verify_case *c, verify_role role) {
  return c->tensor[role].present;
}

/* Whether the call writes this tensor. */
int verify_case_is_output(const verify_case *c, verify_role role);
/* Whether this tensor has rows of `cols` elements; rstd, mean and the rest are arrays. */
int verify_role_has_rows(verify_role role);

/* Statistics of a problem: outer x inner x groups. */
int64_t verify_statistic_count(const verify_problem *problem);

const char *verify_role_name(verify_role role);

/* What the library is called with; pointers into the case's memory. */
verify_spec verify_case_spec(const verify_case *c); /* with the index list */
rms_forward_args verify_case_forward_args(const verify_case *c);
rms_backward_args verify_case_backward_args(const verify_case *c);

#endif
