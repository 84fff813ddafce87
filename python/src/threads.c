/* SPDX-License-Identifier: MIT */
#include "threads.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include "rmsnorm_openmp_loaded.h"

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

static rms_openmp_loaded runtime;
static _Atomic int runtime_is_known;

int pn_openmp_use(const char *path) {
  rms_openmp_loaded found;
  if (!rms_openmp_loaded_find(&found, path)) return 0;
  pthread_mutex_lock(&lock);
  if (!runtime_is_known) runtime = found; /* and never changes again: calls read it */
  runtime_is_known = 1;
  pthread_mutex_unlock(&lock);
  return 1;
}

int pn_openmp_known(void) {
  return runtime_is_known;
}

static void run_here(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  (void)ctx;
  for (int64_t i = 0; i < tasks; i++)
    task(arg, i);
}

/* The team is as large as torch has told the runtime: a team of another size would make it start or end threads. */
rms_executor pn_openmp_executor(int threads) {
  if (!runtime_is_known) return (rms_executor){NULL, 1, run_here};
  rms_executor executor = rms_openmp_loaded_executor(&runtime);
  executor.concurrency = threads;
  return executor;
}
