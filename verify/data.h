/* SPDX-License-Identifier: MIT
 * Values of a problem's inputs: a function of the problem's seed, data name and types alone. */
#ifndef RMSNORM_VERIFY_DATA_H
#define RMSNORM_VERIFY_DATA_H

#include "case.h"
#include "random.h"

/* The next value for a tensor of this role; the caller rounds it to the tensor's type. */
double verify_draw(const verify_problem *problem, verify_role role, verify_random *random);

/* problem->spec.partial strictly ascending indices below cols / groups. */
void verify_draw_indices(const verify_problem *problem, int64_t *indices);

#endif
