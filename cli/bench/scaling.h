/* SPDX-License-Identifier: MIT
 *
 * rmsnorm bench --threads all: speed over numbers of threads. */
#ifndef RMSNORM_BENCH_SCALING_H
#define RMSNORM_BENCH_SCALING_H

#include "measure.h"

/* 1, 2, 4, ... and the number of cores itself; returns how many, at most THREAD_COUNTS_MAX. */
int scaling_counts(int cores, int *counts);

/* The longest time with counts[at] threads as a multiple of that with fewer, each compared in the same rounds; 0 for
 * the first. */
double scaling_of_fewer(const bench_result *result, const int *counts, int at);

/* Times the problems, or a list of its own where there are none. Returns the exit code. */
int bench_scaling(char **problems, int count, const measure_options *how, int shorter, int json);

#endif
