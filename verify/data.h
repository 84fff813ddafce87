/* SPDX-License-Identifier: MIT
 * Values of a problem's inputs: a function of the problem's seed, data name and types alone. */
#ifndef RMSNORM_VERIFY_DATA_H
#define RMSNORM_VERIFY_DATA_H

#include "case.h"
#include "random.h"

/* The next value for a tensor of this role; the caller rounds it to the tensor's type. */
double vf_draw(const vf_problem *problem, vf_role role, vf_random *random);

/* problem->spec.partial strictly ascending indices below cols / groups. */
void vf_draw_indices(const vf_problem *problem, int64_t *indices);

#endif
