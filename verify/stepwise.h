/* SPDX-License-Identifier: MIT
 *
 * The forms that round between x and y (RMS_STEPS_RSTD and RMS_STEPS_ALL of 16-bit data), step by step: each step is a
 * plain operation rounded to f32 and to the data type. Only the sums over a row, and what is rooted of them, are known
 * but for an error, whose bound is derived. Every value that a step may then have is followed, and a group of a row is
 * right if all of its outputs are those of one choice, bit for bit. */
#ifndef RMSNORM_VERIFY_STEPWISE_H
#define RMSNORM_VERIFY_STEPWISE_H

#include "case.h"
#include "oracle.h"

/* The outputs of a row as they are in memory, and the r that a backward was given; NULL where absent. rstd and mean
 * have an element for each group. */
typedef struct verify_steps_got {
  const double *y, *dx, *ds, *rstd, *mean, *given;
} verify_steps_got;

/* Where the choice that explains most of a group goes wrong. */
typedef struct verify_steps_miss {
  verify_role role;
  int64_t column; /* of rstd and mean: the group */
  double got, expected;
} verify_steps_miss;

/* After verify_oracle_statistic. Both return how many groups no choice explains, the first of which *miss is about, or
 * -1 if there is no memory. Forward: sets y and y_error. Backward: sets dm and dw, their errors, and h_size. */
int64_t verify_steps_forward(verify_row *row, const verify_steps_got *got, verify_steps_miss *miss);
int64_t verify_steps_backward(verify_row *row, const verify_steps_got *got, verify_steps_miss *miss);

#endif
