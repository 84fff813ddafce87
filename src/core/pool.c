/* SPDX-License-Identifier: MIT
 *
 * A pool of threads. A call is open while its tasks are handed out: each thread that joins it, the caller's too, takes
 * the next task number from a shared counter until none is left. Then the caller closes the call and waits for those
 * who joined. A worker that slept through a call is not waited for.
 *
 * Whoever waits spins for a short while first, which makes calls that follow each other cheap, and then sleeps, so that
 * an idle pool costs nothing. With more threads than cores nobody spins: it would take the core from who is waited for.
 *
 * Sleeping and waking cannot miss each other: one side announces that it sleeps and then looks at the state, the other
 * changes the state and then looks for sleepers; all four accesses are sequentially consistent. In the same way a
 * worker joins before it looks whether the call is open, and the caller closes it before it looks who has joined. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "../../include/rmsnorm.h"

enum { CACHE_LINE = 64, LOOKS = 32 }; /* LOOKS: between two looks at the clock */
static const int64_t spin_ns = 50000;

/* Values of `open` that are not the number of a call. */
static const uint64_t closed = 0, quit = UINT64_MAX;

typedef struct {
  pthread_cond_t wake;
  _Atomic int asleep;
} sleepers;

struct rms_pool {
  pthread_mutex_t turn; /* one call at a time; guards `calls` */
  uint64_t calls;
  void (*task)(void *arg, int64_t i); /* the call: read by those who found it open */
  void *arg;
  int64_t tasks;
  _Atomic uint64_t open; /* its number */
  char apart1[CACHE_LINE];
  _Atomic int64_t next;
  char apart2[CACHE_LINE];
  _Atomic int joined;
  char apart3[CACHE_LINE];
  pthread_mutex_t lock; /* for the two kinds of sleepers */
  sleepers idle, callers;
  bool spins;
  unsigned forks; /* how many there had been when the pool was made */
  int workers;
  pthread_t *thread;
};

/* Whether this thread is in a task of any pool. */
static _Thread_local bool in_task;

/* ---- what the system says ---- */

static int usable_cores(void) {
#if defined(CPU_COUNT)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
#if defined(_WIN32)
  return pthread_num_processors_np();
#else
  return (int)sysconf(_SC_NPROCESSORS_ONLN);
#endif
}

/* The child of a fork has a copy of the pool but none of its threads. */
#if defined(_WIN32)
static unsigned fork_count(void) {
  return 0;
}

static bool count_forks(void) {
  return true;
}
#else
static _Atomic unsigned forks;
static bool forks_are_counted;

static unsigned fork_count(void) {
  return atomic_load_explicit(&forks, memory_order_relaxed);
}

static void in_child(void) {
  atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void register_in_child(void) {
  forks_are_counted = pthread_atfork(NULL, NULL, in_child) == 0;
}

static bool count_forks(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  return pthread_once(&once, register_in_child) == 0 && forks_are_counted;
}
#endif

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- waiting ---- */

static bool has_news(rms_pool *pool, uint64_t seen) {
  uint64_t open = atomic_load(&pool->open);
  return open != closed && open != seen;
}

static bool is_left(rms_pool *pool, uint64_t seen) {
  (void)seen;
  return atomic_load(&pool->joined) == 0;
}

/* Between looks at the clock the core is offered to others: on a busy machine the caller may be waiting
 * for this one. */
static bool spin(rms_pool *pool, bool (*ready)(rms_pool *pool, uint64_t seen), uint64_t seen) {
  for (int64_t begin = 0;;) {
    for (int i = 0; i < LOOKS; i++, relax())
      if (ready(pool, seen)) return true;
    int64_t now = now_ns();
    if (!begin) begin = now;
    if (now - begin > spin_ns) return false;
    sched_yield();
  }
}

static void await(rms_pool *pool, sleepers *s, bool (*ready)(rms_pool *pool, uint64_t seen), uint64_t seen) {
  if (ready(pool, seen) || (pool->spins && spin(pool, ready, seen))) return;
  pthread_mutex_lock(&pool->lock);
  atomic_fetch_add(&s->asleep, 1);
  while (!ready(pool, seen))
    pthread_cond_wait(&s->wake, &pool->lock);
  atomic_fetch_sub(&s->asleep, 1);
  pthread_mutex_unlock(&pool->lock);
}

/* After a change of what is waited for. */
static void rouse(rms_pool *pool, sleepers *s) {
  if (atomic_load(&s->asleep) == 0) return;
  pthread_mutex_lock(&pool->lock);
  pthread_cond_broadcast(&s->wake);
  pthread_mutex_unlock(&pool->lock);
}

/* ---- a call ---- */

static void take_tasks(rms_pool *pool) {
  bool outer = in_task;
  int64_t i;
  in_task = true;
  while ((i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < pool->tasks)
    pool->task(pool->arg, i);
  in_task = outer;
}

static void *work(void *arg) {
  rms_pool *pool = arg;
  for (uint64_t seen = closed;;) {
    await(pool, &pool->idle, has_news, seen);
    atomic_fetch_add(&pool->joined, 1);
    uint64_t open = atomic_load(&pool->open);
    if (open == quit) return NULL;
    if (open != closed && open != seen) {
      seen = open;
      take_tasks(pool);
    }
    if (atomic_fetch_sub(&pool->joined, 1) == 1) rouse(pool, &pool->callers);
  }
}

/* False where the pool cannot be had: in the child of a fork, and in a task while the pool is busy, perhaps with the
 * very call that the task belongs to, so that waiting could last for ever. */
static bool take_turn(rms_pool *pool) {
  if (pool->forks != fork_count()) return false;
  if (in_task) return pthread_mutex_trylock(&pool->turn) == 0;
  pthread_mutex_lock(&pool->turn);
  return true;
}

static void pool_run(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  rms_pool *pool = ctx;
  if (!take_turn(pool)) {
    for (int64_t i = 0; i < tasks; i++)
      task(arg, i);
    return;
  }
  pool->task = task;
  pool->arg = arg;
  pool->tasks = tasks;
  atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
  atomic_store(&pool->open, ++pool->calls);
  rouse(pool, &pool->idle);
  take_tasks(pool);
  atomic_store(&pool->open, closed);
  await(pool, &pool->callers, is_left, 0);
  pthread_mutex_unlock(&pool->turn);
}

/* ---- making and ending it ---- */

static void end_threads(rms_pool *pool) {
  atomic_store(&pool->open, quit);
  rouse(pool, &pool->idle);
  for (int i = 0; i < pool->workers; i++)
    pthread_join(pool->thread[i], NULL);
  pthread_cond_destroy(&pool->callers.wake);
  pthread_cond_destroy(&pool->idle.wake);
  pthread_mutex_destroy(&pool->lock);
  pthread_mutex_destroy(&pool->turn);
}

void rms_pool_destroy(rms_pool *pool) {
  if (!pool) return;
  /* in the child of a fork there is nobody to join, and the locks are as somebody left them */
  if (pool->forks == fork_count()) end_threads(pool);
  free(pool->thread);
  free(pool);
}

rms_status rms_pool_create(rms_pool **pool, int threads) {
  if (!pool || threads < 1) return RMS_E_ARGUMENT;
  rms_pool *p = count_forks() ? calloc(1, sizeof *p) : NULL;
  if (!p) return RMS_E_MEMORY;
  pthread_mutex_init(&p->turn, NULL);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->idle.wake, NULL);
  pthread_cond_init(&p->callers.wake, NULL);
  p->spins = threads <= usable_cores();
  p->forks = fork_count();
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
