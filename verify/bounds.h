/* SPDX-License-Identifier: MIT
 *
 * Error bounds, derived in docs/error-bounds.md: for each exact result of the oracle, how far the contract's arithmetic
 * (f32, or f64 for f64 data) can be from it before the last rounding to the output's type. */
#ifndef RMSNORM_VERIFY_BOUNDS_H
#define RMSNORM_VERIFY_BOUNDS_H

#include "oracle.h"

/* After verify_oracle_forward: h_error, q_error, y_error, r_error, mean_error. */
void verify_bound_forward(verify_row *row);

/* After verify_oracle_backward: h_error, q_error, u_error, dx_error, dw_error. */
void verify_bound_backward(verify_row *row);

/* The error of a column sum over `rows` terms: blocks of at most 64 rows in the arithmetic type, the blocks in f64.
 * error: sum of the terms' own bounds; magnitude: sum of |term|. */
double verify_bound_column(const verify_spec *spec, int64_t rows, double error, double magnitude);

#endif
