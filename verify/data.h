/* SPDX-License-Identifier: MIT
 * Values of a problem's inputs: a function of the problem's seed, data name and types alone. */
#ifndef RMSNORM_VERIFY_DATA_H
#define RMSNORM_VERIFY_DATA_H

#include "case.h"
#include "random.h"

/* Fills the inputs of a case in host memory, the index list and the outputs that are added to, but for rstd and mean.
 */
void verify_case_fill(verify_case *c);

/* One of its inputs. */
void verify_fill(verify_case *c, verify_role role);

/* Makes rows of zeros, with a NaN, or of huge and small numbers of some rows, where the data's name says so. */
void verify_set_rows(const verify_tensor *t, verify_data data);
/* By what the elements of a row are multiplied there; NaN: the first becomes a NaN. */
double verify_row_factor(verify_data data, int64_t row, rms_dtype dtype);

/* problem->spec.partial strictly ascending indices below cols / groups. */
void verify_draw_indices(const verify_problem *problem, int64_t *indices);

#endif
