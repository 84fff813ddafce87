/* SPDX-License-Identifier: MIT */
#include "threads.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- pools ---- */

typedef struct kept_pool {
  struct kept_pool *next;
  rms_pool *pool;
  int threads;
} kept_pool;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept_pool *pools;

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void in_parent(void) {
  pthread_mutex_unlock(&lock);
}

static void in_child(void) {
  pools = NULL; /* their threads stayed behind, so they cannot even be destroyed */
  pthread_mutex_unlock(&lock);
}

static void watch_forks(void) {
  pthread_atfork(before_fork, in_parent, in_child);
}

static rms_status find_pool(int threads, rms_executor *executor) {
  kept_pool *kept = pools;
  while (kept && kept->threads != threads)
    kept = kept->next;
  if (!kept) {
    kept = malloc(sizeof *kept);
    if (!kept) return RMS_E_MEMORY;
    rms_status status = rms_pool_create(&kept->pool, threads);
    if (status != RMS_OK) {
      free(kept);
      return status;
    }
    kept->threads = threads;
    kept->next = pools;
    pools = kept;
  }
  *executor = rms_pool_executor(kept->pool);
  return RMS_OK;
}

rms_status pn_pool_executor(int threads, rms_executor *executor) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  pthread_mutex_lock(&lock);
  rms_status status = find_pool(threads, executor);
  pthread_mutex_unlock(&lock);
  return status;
}

/* ---- OpenMP ---- */

static _Atomic(pn_gomp_parallel) gomp_parallel;

void pn_openmp_set(pn_gomp_parallel parallel) {
  atomic_store(&gomp_parallel, parallel);
}

int pn_openmp_known(void) {
  return atomic_load(&gomp_parallel) != NULL;
}

/* One parallel region. Every thread of the team takes tasks until none is left, so that any size of team is right. */
typedef struct {
  _Atomic int64_t next;
  int64_t tasks;
  void (*task)(void *arg, int64_t i);
  void *arg;
} region;

static void take_tasks(void *data) {
  region *r = data;
  for (int64_t i; (i = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed)) < r->tasks;)
    r->task(r->arg, i);
}

static void run_openmp(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  region r = {0, tasks, task, arg};
  pn_gomp_parallel parallel = atomic_load(&gomp_parallel);
  if (parallel)
    parallel(take_tasks, &r, (unsigned)(intptr_t)ctx, 0);
  else
    take_tasks(&r);
}

rms_executor pn_openmp_executor(int threads) {
  rms_executor executor = {(void *)(intptr_t)threads, threads, run_openmp};
  return executor;
}
