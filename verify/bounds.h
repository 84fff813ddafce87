/* SPDX-License-Identifier: MIT
 *
 * Error bounds, derived in docs/error-bounds.md: for each exact result of the oracle, how far the contract's arithmetic
 * (f32, or f64 for f64 data) can be from it before the last rounding to the output's type. */
#ifndef RMSNORM_VERIFY_BOUNDS_H
#define RMSNORM_VERIFY_BOUNDS_H

#include "oracle.h"

/* After verify_oracle_forward: h_error, q_error, y_error, r_error, mean_error. */
void verify_bound_forward(verify_row *row);

/* After verify_oracle_backward: h_error, q_error, u_error, dx_error, dw_error. A dx_error below 0: nothing is known. */
void verify_bound_backward(verify_row *row);

/* After verify_oracle_statistic, without a gate: the L2 norm of a group, and how far the computed one may be from it.
 */
dd verify_bound_norm(const verify_row *row, int64_t index, double *error);
/* The same of r, in *r_error. */
dd verify_bound_r(const verify_row *row, int64_t index, double *error);
/* How far a row sum of so many f32 numbers may be from the exact one, beside the sum of their magnitudes. */
double verify_bound_row_sum(const verify_spec *spec, int64_t terms);

/* The error of a column sum over `rows` terms: blocks of at most 64 rows in the arithmetic type, the blocks in f64.
 * error: sum of the terms' own bounds; magnitude: sum of |term|. */
double verify_bound_column(const verify_spec *spec, int64_t rows, double error, double magnitude);

#endif
