/* SPDX-License-Identifier: MIT
 *
 * An rms_executor that runs on OpenMP's threads. Header only: the loop is compiled into the caller's program with the
 * caller's OpenMP runtime, so that the library itself depends on none.
 *
 *   rms_executor omp = rms_openmp_executor(0);
 *   rms_forward(&spec, &args, &omp);
 *
 * Compile with -fopenmp, or link OpenMP::OpenMP_C in CMake. Programs without OpenMP use rms_pool of rmsnorm.h instead.
 */
#ifndef RMSNORM_OPENMP_H
#define RMSNORM_OPENMP_H

#include "rmsnorm.h"

#ifndef _OPENMP
#error "rmsnorm_openmp.h: compile with -fopenmp, or use rms_pool_create() of rmsnorm.h, which needs no OpenMP"
#endif
#include <omp.h>
#include "rmsnorm_openmp_team.h"

static inline void rms_openmp_run(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  const int threads = (int)(intptr_t)ctx;
  rms_team_ team;
  rms_team_begin_(&team, threads, tasks, task, arg);
#pragma omp parallel num_threads(threads)
  rms_team_run_(&team, omp_get_thread_num(), omp_get_num_threads());
}

/* threads: how many to use, the calling one included; below 1: as many as OpenMP would (OMP_NUM_THREADS). The executor
 * is a plain value that may be used from any thread and needs no clean-up. Inside a parallel region of the caller,
 * OpenMP's rules on nesting decide how many threads there are; the results do not depend on it. */
static inline rms_executor rms_openmp_executor(int threads) {
  rms_executor executor;
  if (threads < 1) threads = omp_get_max_threads();
  executor.ctx = (void *)(intptr_t)threads;
  executor.concurrency = threads;
  executor.run = rms_openmp_run;
  return executor;
}

#endif
