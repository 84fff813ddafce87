/* SPDX-License-Identifier: MIT
 *
 * A plain pool of threads. Workers sleep between calls; within one call all threads, the caller's too, take the next
 * task number from a shared counter until none is left. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include "../../include/rmsnorm.h"

struct rms_pool {
  pthread_mutex_t turn; /* one call at a time */
  pthread_mutex_t lock; /* guards what follows up to `next` */
  pthread_cond_t start, done;
  int64_t call; /* number of the current call: a worker waits for it to change */
  int busy;     /* workers that have not finished the current call */
  bool quit;
  void (*task)(void *arg, int64_t i);
  void *arg;
  int64_t tasks;
  _Atomic int64_t next;
  int workers;
  pthread_t *thread;
};

static void take_tasks(rms_pool *pool) {
  int64_t i;
  while ((i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < pool->tasks)
    pool->task(pool->arg, i);
}

static void *work(void *arg) {
  rms_pool *pool = arg;
  int64_t seen = 0;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (pool->call == seen && !pool->quit)
      pthread_cond_wait(&pool->start, &pool->lock);
    if (pool->quit) break;
    seen = pool->call;
    pthread_mutex_unlock(&pool->lock);
    take_tasks(pool);
    pthread_mutex_lock(&pool->lock);
    if (--pool->busy == 0) pthread_cond_signal(&pool->done);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

static void pool_run(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  rms_pool *pool = ctx;
  pthread_mutex_lock(&pool->turn);
  pthread_mutex_lock(&pool->lock);
  pool->task = task;
  pool->arg = arg;
  pool->tasks = tasks;
  atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
  pool->busy = pool->workers;
  pool->call++;
  pthread_cond_broadcast(&pool->start);
  pthread_mutex_unlock(&pool->lock);
  take_tasks(pool);
  pthread_mutex_lock(&pool->lock);
  while (pool->busy > 0)
    pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
  pthread_mutex_unlock(&pool->turn);
}

void rms_pool_destroy(rms_pool *pool) {
  if (!pool) return;
  pthread_mutex_lock(&pool->lock);
  pool->quit = true;
  pthread_cond_broadcast(&pool->start);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->workers; i++)
    pthread_join(pool->thread[i], NULL);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->start);
  pthread_mutex_destroy(&pool->lock);
  pthread_mutex_destroy(&pool->turn);
  free(pool->thread);
  free(pool);
}

rms_status rms_pool_create(rms_pool **pool, int threads) {
  if (!pool || threads < 1) return RMS_E_ARGUMENT;
  rms_pool *p = calloc(1, sizeof *p);
  if (!p) return RMS_E_MEMORY;
  pthread_mutex_init(&p->turn, NULL);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->start, NULL);
  pthread_cond_init(&p->done, NULL);
  p->thread = calloc((size_t)threads, sizeof *p->thread);
  for (; p->thread && p->workers < threads - 1; p->workers++)
    if (pthread_create(&p->thread[p->workers], NULL, work, p)) break;
  if (p->workers < threads - 1 || !p->thread) {
    rms_pool_destroy(p);
    return RMS_E_MEMORY;
  }
  *pool = p;
  return RMS_OK;
}

rms_executor rms_pool_executor(rms_pool *pool) {
  rms_executor e = {pool, pool ? pool->workers + 1 : 0, pool ? pool_run : NULL};
  return e;
}
