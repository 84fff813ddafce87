/* SPDX-License-Identifier: MIT
 *
 * Walks over many problems that `rmsnorm bench` judges: --order and --sweep. Both return the exit code. */
#ifndef RMSNORM_BENCH_WALK_H
#define RMSNORM_BENCH_WALK_H

#include "judge.h"

typedef struct walk_options {
  int shorter, json;
  int64_t rounds; /* 0: as many as the time allows */
} walk_options;

/* pRMSNorm takes no longer than RMSNorm, and RMSNorm no longer than LayerNorm: prints where they do. */
int bench_order(const walk_options *options);

/* Sizes across the threshold of non-temporal stores: plain, non-temporal, and what the library chooses. */
int bench_sweep(const walk_options *options);

/* Where the data of a problem lies: the bytes of all its tensors. */
typedef struct walk_level {
  const char *name; /* "L1", "L2", "L3", "memory" */
  int64_t bytes;
} walk_level;

/* Half of the first and of the second level; four times the second level, or half of the third if that is less; twice
 * the third, within reason. Unknown caches (0) are taken as 32 KB, 1 MB and 32 MB. */
enum { WALK_LEVELS = 4 };
void walk_levels(int64_t first, int64_t second, int64_t third, int shorter, walk_level *levels);

/* The bytes of this machine's caches; 0: unknown. */
void walk_caches(int64_t *first, int64_t *second, int64_t *third);

/* The problem with as many rows as fit; returns 0, or -1 where not even one does. */
typedef struct walk_shape {
  const char *direction, *type;
  int64_t cols;
  int threads;
} walk_shape;
int walk_problem(const walk_shape *shape, int64_t bytes, verify_problem *problem);

/* Judges one problem by the clock, with a word on stderr meanwhile; returns an exit code, errors reported. */
int walk_judge(const verify_problem *problem, const judge_rule *rules, int count, judge_timing *timing,
               judge_finding *findings);

#endif
