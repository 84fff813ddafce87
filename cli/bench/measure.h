/* SPDX-License-Identifier: MIT
 *
 * Times the engines of a problem, interleaved: in each round every engine is timed once, so that disturbances by other
 * work affect all of them. */
#ifndef RMSNORM_BENCH_MEASURE_H
#define RMSNORM_BENCH_MEASURE_H

#include "case.h"

enum { ENGINES_MAX = 64, THREAD_COUNTS_MAX = 12, ROUNDS_MAX = 1000 };

typedef enum engine_type { ENGINE_COPY, ENGINE_NAIVE, ENGINE_LIBRARY } engine_type;

typedef enum engine_role {
  ROLE_OTHER,
  ROLE_MEMCPY,
  ROLE_SELF, /* the problem itself on the active instruction set */
  ROLE_RMS,  /* the same shape as RMSNorm, pRMSNorm with p = 1/16, LayerNorm: on the active instruction set */
  ROLE_PARTIAL,
  ROLE_LAYER,
  ROLE_QUARTER, /* pRMSNorm with p = 1/4                                 */
  ROLE_SAVED,   /* the problem with its statistics saved                 */
  ROLE_PLAIN,   /* the problem with plain and with non-temporal stores   */
  ROLE_STREAM
} engine_role;

typedef struct bench_engine {
  char name[32];
  engine_type type;
  engine_role role;
  copy_function *copy;
  const char *isa;              /* NULL: as the library chooses */
  int64_t stream_bytes;         /* the library's threshold for this engine; negative: its default */
  int threads;                  /* 1, or those of the executor                                    */
  const rms_executor *executor; /* NULL: the calling thread                                       */
  rms_spec spec;
  rms_forward_args forward;
  rms_backward_args backward;
  double scale;    /* 1, or all rows / rows run, for an engine too slow for all of them */
  int64_t calls;   /* per sample */
  double *samples; /* ns per call, one per round */
  int sample_count;
  double median, low, high; /* ns per call: 50 %, 20 %, 80 %                    */
  double of_ceiling;        /* median over the rounds of ceiling time / own time; 0: no copy was timed */
} bench_engine;

typedef struct bench_result {
  verify_problem problem;
  double elements, bytes;
  int reads, writes; /* the mix of the ceiling */
  bench_engine engines[ENGINES_MAX];
  int engine_count;
  int ceiling; /* index of the fastest copy; of several numbers of threads: on the first; -1: no copy was timed */
} bench_result;

typedef enum measure_set {
  MEASURE_ALL,       /* copies, all instruction sets, other norms, naive loops                  */
  MEASURE_ESSENTIAL, /* copies and the problem itself                                           */
  MEASURE_NORMS,     /* pRMSNorm 1/16 and 1/4, RMSNorm, LayerNorm; not compared with the scalar */
  MEASURE_STORES     /* the problem by default, with plain and with non-temporal stores         */
} measure_set;

typedef struct measure_options {
  double seconds;       /* per problem, roughly                                            */
  int64_t rounds;       /* 0: as many as the seconds allow                                 */
  int64_t least_rounds; /* of those; 0: a few                                              */
  measure_set set;      /* which engines                                                   */
  const int *threads;   /* numbers of threads, each with all engines, in the same rounds   */
  int thread_count;     /* 0: as many threads as the problem says                          */
} measure_options;

/* Returns 0, or -1 with the reason why this problem cannot be timed here. */
int measure_check(const verify_problem *problem, char *reason, size_t reason_size);

/* Returns 0; -1 with a reason: the problem cannot be timed; 1 with a reason: a result is wrong. */
int measure(const verify_problem *problem, const measure_options *options, bench_result *result, char *reason,
            size_t reason_size);
void measure_free(bench_result *result);

/* The engines of one number of threads, added to those of the result. */
void engines_add(bench_result *result, const bench_case *c, measure_set set, int threads, const rms_executor *executor);

/* Calls the engine's operation; a copy or the naive loop always succeeds. */
rms_status engine_run(const bench_engine *engine, const bench_case *c, const rms_executor *executor, int64_t calls);

/* The first engine with this role; NULL: none. */
const bench_engine *result_engine(const bench_result *result, engine_role role);
const bench_engine *result_engine_on(const bench_result *result, engine_role role, int threads);

/* Median over the rounds of (time of `of` / time of `engine`). */
double engine_ratio(const bench_engine *engine, const bench_engine *of);

/* The same, with the bounds between which the true median lies in 19 of 20 measurements, whatever the distribution. */
typedef struct ratio_spread {
  double median, low, high;
  int rounds;
} ratio_spread;
ratio_spread engine_ratio_spread(const bench_engine *engine, const bench_engine *of);

/* Median and quantiles of an engine's samples. */
void engine_summarise(bench_engine *engine);

double seconds_now(void);

#endif
