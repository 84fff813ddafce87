/* SPDX-License-Identifier: MIT
 * Values of a problem's inputs: a function of the problem's seed, data name and types alone. */
#ifndef RMSNORM_VERIFY_DATA_H
#define RMSNORM_VERIFY_DATA_H

#include "case.h"
#include "random.h"

/* Fills the inputs of a case in host memory, the index list and the outputs that are added to, but for rstd and mean.
 */
void verify_case_fill(verify_case *c);

/* problem->spec.partial strictly ascending indices below cols / groups. */
void verify_draw_indices(const verify_problem *problem, int64_t *indices);

#endif
