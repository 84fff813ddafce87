/* SPDX-License-Identifier: MIT
 *
 * A case: a problem with its memory. Every tensor lies in a buffer of its own that is filled with a canary, in front,
 * behind and in the gaps between rows; a copy of each buffer as it was before the call tells what the call
 * has changed. */
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
  VERIFY_INDICES,
  VERIFY_Y,
  VERIFY_SUM,
  VERIFY_RSTD, /* forward: output; backward: input */
  VERIFY_MEAN,
  VERIFY_DX,
  VERIFY_DS,
  VERIFY_DWEIGHT,
  VERIFY_DBIAS,
  VERIFY_STATS,     /* rms_stat array of the split form     */
  VERIFY_GRAD_SUMS, /* rms_grad_sum array of the split form */
  VERIFY_WORKSPACE,
  VERIFY_ROLES
} verify_role;

typedef struct verify_tensor {
  char *buffer, *before; /* the whole buffer and its copy; NULL: absent */
  size_t buffer_bytes;
  char *data; /* the first element, in buffer */
  rms_dtype dtype;
  int64_t outer, inner, cols; /* bytes for the three that are not elements */
  int64_t outer_stride, inner_stride;
  verify_role shared_with; /* itself, or the input whose memory it shares (in place) */
} verify_tensor;

typedef struct verify_case {
  verify_problem problem;
  verify_tensor tensor[VERIFY_ROLES];
} verify_case;

/* Allocates and fills everything but the workspace. Returns 0, or -1 with a message when there is no memory. */
int verify_case_create(verify_case *c, const verify_problem *problem, char *message, size_t message_size);
int verify_case_add_workspace(verify_case *c, size_t bytes);
void verify_case_destroy(verify_case *c);

/* Fills the buffer copies of tensors whose contents were set after creation. */
void verify_case_keep(verify_case *c, verify_role role);

static inline int verify_case_has(const verify_case *c, verify_role role) {
  return c->tensor[role].buffer != NULL;
}

/* One row as doubles: as it was before the call, and as it is now. */
void verify_row_before(const verify_case *c, verify_role role, int64_t outer, int64_t inner, double *row);
void verify_row_now(const verify_case *c, verify_role role, int64_t outer, int64_t inner, double *row);

/* The role whose memory was written where it may not be (a canary or an input), or VERIFY_ROLES when all is well. */
verify_role verify_case_spoiled(const verify_case *c);

const char *verify_role_name(verify_role role);

/* What the library is called with; pointers into the buffers. */
verify_spec verify_case_spec(const verify_case *c); /* with the index list */
rms_forward_args verify_case_forward_args(const verify_case *c);
rms_backward_args verify_case_backward_args(const verify_case *c);

#endif
