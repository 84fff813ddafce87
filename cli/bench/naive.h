/* SPDX-License-Identifier: MIT
 *
 * Straightforward loops in C, as a baseline for the other engines. */
#ifndef RMSNORM_BENCH_NAIVE_H
#define RMSNORM_BENCH_NAIVE_H

#include "case.h"

/* 1 if the loops below compute this case: dense f32 or bf16 rows, plain RMSNorm or LayerNorm. */
int naive_supports(const bench_case *c);

void naive_run(const bench_case *c);

#endif
