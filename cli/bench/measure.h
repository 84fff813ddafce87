/* SPDX-License-Identifier: MIT
 *
 * Times the engines of a problem, interleaved: in each round every engine is timed once, so that disturbances by other
 * work affect all of them. */
#ifndef RMSNORM_BENCH_MEASURE_H
#define RMSNORM_BENCH_MEASURE_H

#include "case.h"

enum { ENGINES_MAX = 16, ROUNDS_MAX = 1000 };

typedef enum engine_type { ENGINE_COPY, ENGINE_NAIVE, ENGINE_LIBRARY } engine_type;

typedef enum engine_role {
  ROLE_OTHER,
  ROLE_MEMCPY,
  ROLE_SELF, /* the problem itself on the active instruction set */
  ROLE_RMS,  /* the same shape as RMSNorm, pRMSNorm with p = 1/16, LayerNorm: on the active instruction set */
  ROLE_PARTIAL,
  ROLE_LAYER
} engine_role;

typedef struct bench_engine {
  char name[32];
  engine_type type;
  engine_role role;
  copy_function *copy;
  const char *isa;
  rms_spec spec;
  rms_forward_args forward;
  rms_backward_args backward;
  double scale;    /* 1, or all rows / rows run, for an engine too slow for all of them */
  int64_t calls;   /* per sample */
  double *samples; /* ns per call, one per round */
  int sample_count;
  double median, low, high; /* ns per call: 50 %, 20 %, 80 %                    */
  double of_ceiling;        /* median over the rounds of ceiling time / own time */
} bench_engine;

typedef struct bench_result {
  verify_problem problem;
  double elements, bytes;
  int reads, writes; /* the mix of the ceiling */
  bench_engine engines[ENGINES_MAX];
  int engine_count;
  int ceiling; /* index of the fastest copy */
} bench_result;

typedef struct measure_options {
  double seconds;     /* per problem, roughly                 */
  int64_t rounds;     /* 0: as many as the seconds allow      */
  int only_essential; /* copies and the problem itself only   */
} measure_options;

/* Returns 0, or -1 with the reason why this problem cannot be timed here. */
int measure_check(const verify_problem *problem, char *reason, size_t reason_size);

/* Returns 0; -1 with a reason: the problem cannot be timed; 1 with a reason: a result is wrong. */
int measure(const verify_problem *problem, const measure_options *options, bench_result *result, char *reason,
            size_t reason_size);
void measure_free(bench_result *result);

/* Calls the engine's operation; a copy or the naive loop always succeeds. */
rms_status engine_run(const bench_engine *engine, const bench_case *c, const rms_executor *executor, int64_t calls);

/* The first engine with this role; NULL: none. */
const bench_engine *result_engine(const bench_result *result, engine_role role);

/* Median over the rounds of (time of `of` / time of `engine`). */
double engine_ratio(const bench_engine *engine, const bench_engine *of);

double seconds_now(void);

#endif
