/* SPDX-License-Identifier: MIT
 *
 * A case: a problem with its memory. Every tensor lies in a block of its own that is filled with a canary, in front,
 * behind and in the gaps between rows; a copy of each block as it was before the call tells what the call has changed.
 */
#ifndef RMSNORM_VERIFY_CASE_H
#define RMSNORM_VERIFY_CASE_H

#include <stddef.h>
#include "problem.h"

typedef enum vf_role {
  VF_X, /* forward: x; backward: what was normalised, the residual sum where the problem has a residual */
  VF_RESIDUAL,
  VF_WEIGHT,
  VF_BIAS,
  VF_DY,
  VF_DRESIDUAL,
  VF_INDICES,
  VF_Y,
  VF_SUM,
  VF_RSTD, /* forward: output; backward: input */
  VF_MEAN,
  VF_DX,
  VF_DS,
  VF_DWEIGHT,
  VF_DBIAS,
  VF_STATS,     /* rms_stat array of the split form     */
  VF_GRAD_SUMS, /* rms_grad_sum array of the split form */
  VF_WORKSPACE,
  VF_ROLES
} vf_role;

typedef struct vf_tensor {
  char *block, *before; /* the whole block and its copy; NULL: absent */
  size_t block_bytes;
  char *data; /* the first element, in block */
  rms_dtype dtype;
  int64_t outer, inner, cols; /* bytes for the three that are not elements */
  int64_t outer_stride, inner_stride;
  vf_role shared_with; /* itself, or the input whose memory it shares (in place) */
} vf_tensor;

typedef struct vf_case {
  vf_problem problem;
  vf_tensor tensor[VF_ROLES];
} vf_case;

/* Allocates and fills everything but the workspace. Returns 0, or -1 with a message when there is no memory. */
int vf_case_create(vf_case *c, const vf_problem *problem, char *message, size_t message_size);
int vf_case_add_workspace(vf_case *c, size_t bytes);
void vf_case_destroy(vf_case *c);

/* Fills the block copies of tensors whose contents were set after creation. */
void vf_case_keep(vf_case *c, vf_role role);

static inline int vf_has(const vf_case *c, vf_role role) {
  return c->tensor[role].block != NULL;
}

/* One row as doubles: as it was before the call, and as it is now. */
void vf_row_before(const vf_case *c, vf_role role, int64_t outer, int64_t inner, double *row);
void vf_row_now(const vf_case *c, vf_role role, int64_t outer, int64_t inner, double *row);

/* The role whose memory was written where it may not be (a canary or an input), or VF_ROLES when all is well. */
vf_role vf_case_spoiled(const vf_case *c);

const char *vf_role_name(vf_role role);

/* What the library is called with; pointers into the blocks. */
vf_spec vf_case_spec(const vf_case *c); /* with the index list */
rms_forward_args vf_case_forward_args(const vf_case *c);
rms_backward_args vf_case_backward_args(const vf_case *c);

#endif
