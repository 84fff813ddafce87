/* SPDX-License-Identifier: MIT
 *
 * A pool of threads. Every thread has a seat; seat 0 is the caller's. A call is divided among as many seats as it has
 * tasks: each seat gets a range of task numbers, the same in every call of the same size, so that a thread finds in its
 * own cache what it wrote there in the call before. A thread that has finished its range takes tasks from the others.
 * When no task is left the caller closes the call and waits for the seats that are still busy. A worker that slept
 * through a call is not waited for.
 *
 * Waiting threads spin for a short while first, which makes calls that follow each other cheap, and then sleep, so that
 * an idle pool takes no CPU time. With more threads than cores they sleep at once: a spinning thread could occupy the
 * core of the thread that it waits for.
 *
 * Sleeping and waking cannot miss each other: one side announces that it sleeps and then looks at the state, the other
 * changes the state and then looks for sleepers; all four accesses are sequentially consistent. In the same way a
 * worker marks its seat as busy before it looks whether the call is open, and the caller closes the call before it
 * looks at the seats. */
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

/* APART: bytes between data of different threads: two cache lines, since some CPUs fetch lines in pairs.
 * LOOKS: how often a spinning thread looks at what it waits for between two readings of the clock. */
enum { APART = 128, LOOKS = 64 };
static const int64_t spin_ns = 50000;

/* Values of `open` that are not the number of a call. */
static const uint64_t closed = 0, quit = UINT64_MAX;

/* A thread's place in the pool, in cache lines of its own. */
typedef struct {
  _Atomic int64_t next; /* the first of its tasks that is not taken yet                    */
  int64_t last;         /* one past the last of its tasks                                  */
  _Atomic int busy;     /* 1: the thread may be in a call                                  */
  _Atomic int asleep;   /* 1: a worker waits for a call; seat 0: the caller waits for all  */
  pthread_cond_t wake;
  pthread_t thread;
  rms_pool *pool;
  char apart[APART];
} seat;

struct rms_pool {
  pthread_mutex_t turn; /* one call at a time; guards `calls` */
  pthread_mutex_t lock; /* for all who sleep                  */
  uint64_t calls;
  bool spins;
  unsigned forks; /* how many there had been when the pool was made */
  int threads;    /* the caller's included                          */
  seat *seats;
  char apart[APART];
  /* The call: read by those who found it open. */
  _Atomic uint64_t open; /* its number                            */
  _Atomic int seated;    /* seats that have tasks: the first ones */
  void (*task)(void *arg, int64_t i);
  void *arg;
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

static bool has_news(const seat *s, uint64_t seen) {
  uint64_t open = atomic_load(&s->pool->open);
  return open != closed && open != seen;
}

static bool is_left(const seat *caller, uint64_t seen) {
  rms_pool *pool = caller->pool;
  (void)seen;
  for (int i = 1; i < pool->threads; i++)
    if (atomic_load(&pool->seats[i].busy)) return false;
  return true;
}

/* Between looks at the clock the core is offered to others: on a busy machine the caller may be waiting
 * for this one. */
static bool spin(seat *s, bool (*ready)(const seat *s, uint64_t seen), uint64_t seen) {
  for (int64_t begin = 0;;) {
    for (int i = 0; i < LOOKS; i++, relax())
      if (ready(s, seen)) return true;
    int64_t now = now_ns();
    if (!begin) begin = now;
    if (now - begin > spin_ns) return false;
    sched_yield();
  }
}

static void await(seat *s, bool (*ready)(const seat *s, uint64_t seen), uint64_t seen) {
  rms_pool *pool = s->pool;
  if (ready(s, seen) || (pool->spins && spin(s, ready, seen))) return;
  pthread_mutex_lock(&pool->lock);
  atomic_store(&s->asleep, 1);
  while (!ready(s, seen))
    pthread_cond_wait(&s->wake, &pool->lock);
  atomic_store(&s->asleep, 0);
  pthread_mutex_unlock(&pool->lock);
}

/* After a change of what the seats from `first` to before `last` wait for. */
static void rouse(rms_pool *pool, int first, int last) {
  bool locked = false;
  for (int i = first; i < last; i++) {
    if (!atomic_load(&pool->seats[i].asleep)) continue;
    if (!locked) pthread_mutex_lock(&pool->lock);
    locked = true;
    pthread_cond_signal(&pool->seats[i].wake);
  }
  if (locked) pthread_mutex_unlock(&pool->lock);
}

/* ---- a call ---- */

/* The tasks of one seat that nobody has taken yet. */
static void take_tasks(const rms_pool *pool, seat *of) {
  while (atomic_load_explicit(&of->next, memory_order_relaxed) < of->last) {
    int64_t i = atomic_fetch_add_explicit(&of->next, 1, memory_order_relaxed);
    if (i < of->last) pool->task(pool->arg, i);
  }
}

/* Its own tasks, then those of the seats after it. */
static void take_part(rms_pool *pool, int own) {
  const int seated = atomic_load_explicit(&pool->seated, memory_order_relaxed);
  bool outer = in_task;
  in_task = true;
  for (int i = 0, at = own; i < seated; i++, at = at + 1 < seated ? at + 1 : 0)
    take_tasks(pool, &pool->seats[at]);
  in_task = outer;
}

static void *work(void *arg) {
  seat *s = arg;
  rms_pool *pool = s->pool;
  const int own = (int)(s - pool->seats);
  for (uint64_t seen = closed;;) {
    await(s, has_news, seen);
    uint64_t open = atomic_load(&pool->open);
    if (open == quit) return NULL;
    if (open == closed) continue;
    if (own >= atomic_load_explicit(&pool->seated, memory_order_relaxed)) {
      seen = open; /* or the call after it has begun, which will be news */
      continue;
    }
    atomic_store(&s->busy, 1);
    open = atomic_load(&pool->open);
    if (open != closed && open != quit && open != seen) {
      seen = open;
      if (own < atomic_load_explicit(&pool->seated, memory_order_relaxed)) take_part(pool, own);
    }
    atomic_store(&s->busy, 0);
    rouse(pool, 0, 1);
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

/* Divides the tasks among the seats; returns how many have any. */
static int hand_out(rms_pool *pool, int64_t tasks) {
  const int seated = tasks < pool->threads ? (int)tasks : pool->threads;
  const int64_t each = tasks / seated, more = tasks % seated; /* the first `more` seats have one more */
  for (int i = 0; i < seated; i++) {
    const int64_t first = each * i + (i < more ? i : more);
    atomic_store_explicit(&pool->seats[i].next, first, memory_order_relaxed);
    pool->seats[i].last = first + each + (i < more);
  }
  return seated;
}

static void pool_run(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  rms_pool *pool = ctx;
  if (tasks < 1) return;
  if (!take_turn(pool)) {
    for (int64_t i = 0; i < tasks; i++)
      task(arg, i);
    return;
  }
  const int seated = hand_out(pool, tasks);
  pool->task = task;
  pool->arg = arg;
  atomic_store_explicit(&pool->seated, seated, memory_order_relaxed);
  atomic_store(&pool->open, ++pool->calls);
  rouse(pool, 1, seated);
  take_part(pool, 0);
  atomic_store(&pool->open, closed);
  await(&pool->seats[0], is_left, 0);
  pthread_mutex_unlock(&pool->turn);
}

/* ---- making and ending it ---- */

/* Ends the workers of the first `threads` seats. */
static void end_threads(rms_pool *pool, int threads) {
  atomic_store(&pool->open, quit);
  rouse(pool, 1, threads);
  for (int i = 1; i < threads; i++)
    pthread_join(pool->seats[i].thread, NULL);
  for (int i = 0; i < pool->threads; i++)
    pthread_cond_destroy(&pool->seats[i].wake);
  pthread_mutex_destroy(&pool->lock);
  pthread_mutex_destroy(&pool->turn);
}

static void free_pool(rms_pool *pool) {
  free(pool->seats);
  free(pool);
}

void rms_pool_destroy(rms_pool *pool) {
  if (!pool) return;
  /* in the child of a fork there is nobody to join, and the locks are as somebody left them */
  if (pool->forks == fork_count()) end_threads(pool, pool->threads);
  free_pool(pool);
}

static rms_pool *make_pool(int threads) {
  rms_pool *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  p->seats = calloc((size_t)threads, sizeof *p->seats);
  if (!p->seats) {
    free(p);
    return NULL;
  }
  p->threads = threads;
  p->spins = threads <= usable_cores();
  p->forks = fork_count();
  pthread_mutex_init(&p->turn, NULL);
  pthread_mutex_init(&p->lock, NULL);
  for (int i = 0; i < threads; i++) {
    p->seats[i].pool = p;
    pthread_cond_init(&p->seats[i].wake, NULL);
  }
  return p;
}

rms_status rms_pool_create(rms_pool **pool, int threads) {
  if (!pool || threads < 1) return RMS_E_ARGUMENT;
  rms_pool *p = count_forks() ? make_pool(threads) : NULL;
  if (!p) return RMS_E_MEMORY;
  for (int i = 1; i < threads; i++)
    if (pthread_create(&p->seats[i].thread, NULL, work, &p->seats[i])) {
      end_threads(p, i);
      free_pool(p);
      return RMS_E_MEMORY;
    }
  *pool = p;
  return RMS_OK;
}

rms_executor rms_pool_executor(rms_pool *pool) {
  rms_executor e = {pool, pool ? pool->threads : 0, pool ? pool_run : NULL};
  return e;
}
