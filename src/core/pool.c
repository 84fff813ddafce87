/* SPDX-License-Identifier: MIT
 *
 * A pool of threads. Every thread has a seat; seat 0 is the caller's. A call is divided among as many seats as it has
 * tasks: each seat gets a range of task numbers, the same in every call of the same size, so that a thread finds in its
 * own cache what it wrote there in the call before. A thread that has finished its range takes tasks from the others.
 *
 * What a worker needs of a call is in the cache line of its seat, and nobody else looks there while the worker waits,
 * so that handing out a call and collecting it move each line there and back once. The word `state` of a seat says
 * which call it has and how far it got: the caller opens it, the worker takes it, and leaves it when no task is left.
 * The caller then closes the seats that are still open. A worker that slept through a call is not waited for.
 *
 * Waiting threads spin for a short while first, which makes calls that follow each other cheap, and then sleep, so that
 * an idle pool takes no CPU time. With more threads than cores they sleep at once: a spinning thread could occupy the
 * core of the thread that it waits for.
 *
 * Sleeping and waking cannot miss each other: one side announces that it sleeps and then looks at the state, the other
 * changes the state and then looks for sleepers; a sequentially consistent fence stands between the two steps of each.
 */
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

/* LINE: bytes between data of different threads: two cache lines, since some CPUs fetch lines in pairs.
 * LOOKS: how often a spinning thread looks at what it waits for between two readings of the clock. */
enum { LINE = 128, LOOKS = 64 };
static const int64_t spin_ns = 50000;

/* The two low bits of a seat's state; the others are the number of the call. */
enum { FREE, OPEN, TAKEN, QUIT };

/* A thread's place in the pool. The first part is what a call needs, in a line of its own. */
typedef struct {
  _Alignas(LINE) _Atomic uint64_t state;
  _Atomic int64_t next; /* the first of its tasks that is not taken yet */
  int64_t last;         /* one past the last of its tasks               */
  int seats;            /* that have tasks in this call                 */
  bool shares;          /* whether its thread takes tasks of others     */
  void (*task)(void *arg, int64_t i);
  void *arg;

  _Alignas(LINE) _Atomic int asleep; /* 1: a worker waits for a call; seat 0: the caller waits for all */
  pthread_cond_t wake;
  pthread_t thread;
  rms_pool *pool;
} seat;

struct rms_pool {
  pthread_mutex_t turn; /* one call at a time; guards `calls` */
  pthread_mutex_t lock; /* for all who sleep                  */
  uint64_t calls;
  bool spins;
  unsigned forks; /* how many there had been when the pool was made */
  int threads;    /* the caller's included                          */
  seat *seats;
  void *memory; /* that the seats lie in */
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

#if defined(__SANITIZE_THREAD__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan" /* no data is handed over by these fences, so that it need not know them */
#endif

static bool has_call(const seat *s) {
  const uint64_t kind = atomic_load_explicit(&s->state, memory_order_acquire) & 3;
  return kind == OPEN || kind == QUIT;
}

static bool all_are_done(const seat *caller) {
  for (int i = 1; i < caller->seats; i++)
    if ((atomic_load_explicit(&caller[i].state, memory_order_acquire) & 3) == TAKEN) return false;
  return true;
}

/* After a while the core is offered to others. Beside threads that spin, such as OpenMP's between two parallel regions,
 * a worker that kept it would be interrupted in the middle of a task, and the caller would wait for it for
 * milliseconds; one that has given way comes late, and the caller takes its tasks. */
static bool spin(const seat *s, bool (*ready)(const seat *s)) {
  for (int64_t begin = 0;;) {
    for (int i = 0; i < LOOKS; i++, relax())
      if (ready(s)) return true;
    int64_t now = now_ns();
    if (begin && now - begin > spin_ns) return false;
    if (begin) sched_yield();
    if (!begin) begin = now;
  }
}

static void await(seat *s, bool (*ready)(const seat *s)) {
  rms_pool *pool = s->pool;
  if (ready(s) || (pool->spins && spin(s, ready))) return;
  pthread_mutex_lock(&pool->lock);
  atomic_store_explicit(&s->asleep, 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_seq_cst);
  while (!ready(s))
    pthread_cond_wait(&s->wake, &pool->lock);
  atomic_store_explicit(&s->asleep, 0, memory_order_relaxed);
  pthread_mutex_unlock(&pool->lock);
}

static bool sleeps(const seat *s) {
  return atomic_load_explicit(&s->asleep, memory_order_relaxed);
}

/* After a change of what the seats from `first` to before `last` wait for. One who announced that it sleeps has looked
 * again, and waits for the signal, when it has let go of the lock. */
static void rouse(rms_pool *pool, int first, int last) {
  bool locked = false;
  atomic_thread_fence(memory_order_seq_cst);
  for (int i = first; i < last; i++) {
    if (!sleeps(&pool->seats[i])) continue;
    if (!locked) {
      pthread_mutex_lock(&pool->lock);
      pthread_mutex_unlock(&pool->lock);
      locked = true;
    }
    pthread_cond_signal(&pool->seats[i].wake);
  }
}

/* ---- a call ---- */

/* The tasks of one seat that nobody has taken yet. */
static void take_tasks(const seat *own, seat *of) {
  while (atomic_load_explicit(&of->next, memory_order_relaxed) < of->last) {
    int64_t i = atomic_fetch_add_explicit(&of->next, 1, memory_order_relaxed);
    if (i < of->last) own->task(own->arg, i);
  }
}

/* Its own tasks, then those of the seats after it. */
static void take_part(seat *own) {
  seat *first = own->pool->seats, *end = first + own->seats;
  bool outer = in_task;
  in_task = true;
  take_tasks(own, own);
  if (own->shares)
    for (seat *at = own + 1 < end ? own + 1 : first; at != own; at = at + 1 < end ? at + 1 : first)
      take_tasks(own, at);
  in_task = outer;
}

static void *work(void *arg) {
  seat *s = arg;
  for (;;) {
    await(s, has_call);
    uint64_t state = atomic_load_explicit(&s->state, memory_order_relaxed);
    if ((state & 3) == QUIT) return NULL;
    const uint64_t call = state & ~(uint64_t)3;
    if ((state & 3) != OPEN || !atomic_compare_exchange_strong_explicit(&s->state, &state, call | TAKEN,
                                                                        memory_order_acquire, memory_order_relaxed))
      continue; /* closed in the meantime */
    take_part(s);
    atomic_store_explicit(&s->state, call | FREE, memory_order_release);
    rouse(s->pool, 0, 1);
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

static bool any_sleeps(const rms_pool *pool, int seats) {
  for (int i = 1; i < seats; i++)
    if (sleeps(&pool->seats[i])) return true;
  return false;
}

/* Divides the tasks among the seats; returns how many have any. A seat is opened when all have their tasks, since its
 * thread may take those of others. Where each has one task and nobody sleeps only the caller does, for threads that are
 * late. */
static int hand_out(rms_pool *pool, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  const int seats = tasks < pool->threads ? (int)tasks : pool->threads;
  const int64_t each = tasks / seats, more = tasks % seats; /* the first `more` seats have one more */
  const bool all_share = tasks > seats || any_sleeps(pool, seats);
  for (int i = 0; i < seats; i++) {
    seat *s = &pool->seats[i];
    const int64_t first = each * i + (i < more ? i : more);
    atomic_store_explicit(&s->next, first, memory_order_relaxed);
    s->last = first + each + (i < more);
    s->seats = seats;
    s->shares = i == 0 || all_share;
    s->task = task;
    s->arg = arg;
  }
  const uint64_t call = ++pool->calls << 2;
  for (int i = 1; i < seats; i++)
    atomic_store_explicit(&pool->seats[i].state, call | OPEN, memory_order_release);
  return seats;
}

/* No task is left: threads that have not come need not come any more. */
static void close_call(rms_pool *pool, int seats) {
  for (int i = 1; i < seats; i++) {
    uint64_t open = pool->calls << 2 | OPEN;
    if (atomic_load_explicit(&pool->seats[i].state, memory_order_relaxed) == open)
      atomic_compare_exchange_strong_explicit(&pool->seats[i].state, &open, pool->calls << 2 | FREE,
                                              memory_order_relaxed, memory_order_relaxed);
  }
}

static void pool_run(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  rms_pool *pool = ctx;
  if (tasks < 1) return;
  if (!take_turn(pool)) {
    for (int64_t i = 0; i < tasks; i++)
      task(arg, i);
    return;
  }
  const int seats = hand_out(pool, tasks, task, arg);
  rouse(pool, 1, seats);
  take_part(&pool->seats[0]);
  close_call(pool, seats);
  await(&pool->seats[0], all_are_done);
  pthread_mutex_unlock(&pool->turn);
}

/* ---- making and ending it ---- */

/* Ends the workers of the first `threads` seats. */
static void end_threads(rms_pool *pool, int threads) {
  for (int i = 1; i < threads; i++)
    atomic_store_explicit(&pool->seats[i].state, QUIT, memory_order_release);
  rouse(pool, 1, threads);
  for (int i = 1; i < threads; i++)
    pthread_join(pool->seats[i].thread, NULL);
  for (int i = 0; i < pool->threads; i++)
    pthread_cond_destroy(&pool->seats[i].wake);
  pthread_mutex_destroy(&pool->lock);
  pthread_mutex_destroy(&pool->turn);
}

static void free_pool(rms_pool *pool) {
  free(pool->memory);
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
  p->memory = calloc((size_t)threads + 1, sizeof *p->seats);
  if (!p->memory) {
    free(p);
    return NULL;
  }
  p->seats = (seat *)(((uintptr_t)p->memory + LINE - 1) / LINE * LINE);
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
