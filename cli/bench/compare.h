/* SPDX-License-Identifier: MIT
 *
 * The check before the timing: an engine's bits are those of the scalar kernel. */
#ifndef RMSNORM_BENCH_COMPARE_H
#define RMSNORM_BENCH_COMPARE_H

#include "measure.h"

/* Small problems are compared whole. The scalar kernel is slow, so of large ones
 *   - the first rows are run on their own on both and compared whole, dweight and dbias included;
 *   - the whole problem is run on the engine, and rows spread over it are compared.
 * Leaves the case reset. Returns 0; -1: the library refused, with a reason; 1: the bits differ, with a reason. */
int compare_with_scalar(const bench_engine *engine, bench_case *c, const rms_executor *executor, char *reason,
                        size_t reason_size);

/* The naive loops sum n terms one after the other: their first row may be off by n * 2^-22 of its largest element (two
 * such sums at n * 2^-24 each, and as much again for what is computed from them), and by a rounding to bf16. `engine`
 * is one that has been compared. Returns as above. */
int compare_naive(const bench_engine *engine, bench_case *c, char *reason, size_t reason_size);

/* Rows (outer) of the case that the scalar kernel does in a fraction of a second. */
int64_t compare_outer(const bench_case *c);

#endif
