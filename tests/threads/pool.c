/* SPDX-License-Identifier: MIT
 * The pool where it could hang or lose a task: calls from inside tasks, after a fork, from many threads, with workers
 * that spin, are about to sleep or sleep, and pools that end in any of these states. Each task runs exactly once,
 * always. A hang ends by an alarm. ThreadSanitizer runs this too (see variant.sh). */
#define _DEFAULT_SOURCE 1
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TASKS = 40, HANG_SECONDS = 100 };

static rms_executor make_pool(rms_pool **pool, int threads) {
  T_EQ_STATUS(RMS_OK, rms_pool_create(pool, threads));
  return rms_pool_executor(*pool);
}

/* A call whose tasks count their runs. */
typedef struct counted {
  _Atomic int runs[TASKS];
  pthread_t caller;
  _Atomic int elsewhere; /* tasks that ran on another thread than the caller's */
} counted;

/* Some tasks take longer, so that the caller is done before its workers. */
static void count_run(void *arg, int64_t i) {
  counted *c = arg;
  for (volatile int delay = i % 8 == 7 ? 3000 : 0; delay > 0; delay--) {
  }
  atomic_fetch_add(&c->runs[i], 1);
  if (!pthread_equal(pthread_self(), c->caller)) atomic_fetch_add(&c->elsewhere, 1);
}

/* Whether each of the first `tasks` tasks ran `times` times and the others never. */
static int counts_are(const counted *c, int64_t tasks, int times) {
  for (int64_t i = 0; i < TASKS; i++)
    if (atomic_load(&c->runs[i]) != (i < tasks ? times : 0)) return 0;
  return 1;
}

static int run_counted(const rms_executor *executor, int64_t tasks, int *elsewhere) {
  counted c = {.caller = pthread_self()};
  executor->run(executor->ctx, tasks, count_run, &c);
  if (elsewhere) *elsewhere = atomic_load(&c.elsewhere);
  return counts_are(&c, tasks, 1);
}

/* ---- Calls from inside a task ---- */

typedef struct nest {
  const rms_executor *executor[2]; /* each level takes the next one in turn */
  int depth;
  _Atomic int wrong, elsewhere, runs;
} nest;

typedef struct level {
  nest *nest;
  int depth;
} level;

static void run_nested(void *arg, int64_t i) {
  const level *l = arg;
  level inner = {l->nest, l->depth + 1};
  const rms_executor *executor = l->nest->executor[inner.depth % 2];
  int elsewhere;
  (void)i;
  atomic_fetch_add(&l->nest->runs, 1);
  if (!run_counted(executor, TASKS, &elsewhere)) atomic_fetch_add(&l->nest->wrong, 1);
  atomic_fetch_add(&l->nest->elsewhere, elsewhere);
  if (l->depth < l->nest->depth) executor->run(executor->ctx, 3, run_nested, &inner);
}

static void in_own_tasks(void) {
  for (int threads = 1; threads <= 4; threads++) {
    rms_pool *pool = NULL;
    rms_executor executor = make_pool(&pool, threads);
    nest n = {.executor = {&executor, &executor}, .depth = 2};
    level top = {&n, 0};
    executor.run(executor.ctx, 20, run_nested, &top);
    T_EQ_INT(20 + 20 * 3 + 20 * 9, atomic_load(&n.runs));
    T_EQ_INT(0, atomic_load(&n.wrong));
    T_EQ_INT(0, atomic_load(&n.elsewhere));       /* on the thread that called */
    T_CHECK(run_counted(&executor, TASKS, NULL)); /* the pool is still good */
    rms_pool_destroy(pool);
  }
}

static void across_pools(void) {
  rms_pool *a = NULL, *b = NULL;
  rms_executor on_a = make_pool(&a, 3), on_b = make_pool(&b, 2);
  nest n = {.executor = {&on_a, &on_b}, .depth = 3};
  level top = {&n, 0};
  for (int64_t i = 0; i < t_effort(20); i++)
    on_a.run(on_a.ctx, 8, run_nested, &top);
  T_EQ_INT(0, atomic_load(&n.wrong));
  rms_pool_destroy(a);
  rms_pool_destroy(b);
}

/* Two threads that take the same two pools in opposite order. */
static void *take_in_turn(void *arg) {
  nest *n = arg;
  level top = {n, 0};
  for (int64_t i = 0; i < t_effort(100); i++)
    n->executor[0]->run(n->executor[0]->ctx, 4, run_nested, &top);
  return NULL;
}

static void in_opposite_order(void) {
  rms_pool *a = NULL, *b = NULL;
  rms_executor on_a = make_pool(&a, 2), on_b = make_pool(&b, 2);
  nest forth = {.executor = {&on_a, &on_b}, .depth = 1}, back = {.executor = {&on_b, &on_a}, .depth = 1};
  pthread_t other;
  T_EQ_INT(0, pthread_create(&other, NULL, take_in_turn, &back));
  take_in_turn(&forth);
  pthread_join(other, NULL);
  T_EQ_INT(0, atomic_load(&forth.wrong));
  T_EQ_INT(0, atomic_load(&back.wrong));
  rms_pool_destroy(a);
  rms_pool_destroy(b);
}

/* An operation inside a task, on the same executor: big enough to be cut into tasks itself. */
enum { ROWS = 600, COLS = 257 };
static float x[ROWS * COLS], expected[ROWS * COLS], results[4][ROWS * COLS];
static _Atomic int refused;

static rms_status forward(float *y, const rms_executor *executor) {
  rms_spec spec = {.cols = COLS, .eps = 1e-5};
  rms_forward_args args = {.outer = ROWS, .x = {.data = x, .dtype = RMS_F32}, .y = {.data = y}};
  return rms_forward(&spec, &args, executor);
}

static void forward_in_task(void *arg, int64_t i) {
  if (forward(results[i], arg) != RMS_OK) atomic_fetch_add(&refused, 1);
}

static void operation_in_tasks(void) {
  rms_pool *pool = NULL;
  rms_executor executor = make_pool(&pool, 3);
  for (int i = 0; i < ROWS * COLS; i++)
    x[i] = (float)(i % 23) - 11;
  T_EQ_STATUS(RMS_OK, forward(expected, NULL));
  executor.run(executor.ctx, 4, forward_in_task, &executor);
  T_EQ_INT(0, atomic_load(&refused));
  for (int i = 0; i < 4; i++)
    T_EQ_BYTES(expected, results[i], sizeof expected);
  rms_pool_destroy(pool);
}

/* ---- After a fork ---- */

enum { CHILD_OK = 0, CHILD_COUNT, CHILD_THREAD, CHILD_CREATE, CHILD_PARENT };

/* What the child does with the pool of its parent; a status for exit. */
static int use_parents_pool(rms_pool *pool) {
  int elsewhere = 0;
  rms_executor executor = rms_pool_executor(pool);
  if (!run_counted(&executor, TASKS, &elsewhere)) return CHILD_COUNT;
  if (elsewhere != 0) return CHILD_THREAD;
  rms_pool_destroy(pool);
  return CHILD_OK;
}

/* The status that `use` returns in a child; negative: the signal that ended it. */
static int in_child(int (*use)(rms_pool *pool), rms_pool *pool) {
  int status = 0;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(HANG_SECONDS);
    _exit(use(pool));
  }
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* The child makes a pool for itself, which it loses to a child of its own. */
static int use_own_pool(rms_pool *pool) {
  rms_pool *own = NULL;
  if (use_parents_pool(pool) != CHILD_OK) return CHILD_PARENT;
  if (rms_pool_create(&own, 3) != RMS_OK) return CHILD_CREATE;
  rms_executor executor = rms_pool_executor(own);
  for (int i = 0; i < 20; i++)
    if (!run_counted(&executor, TASKS, NULL)) return CHILD_COUNT;
  int grandchild = in_child(use_parents_pool, own);
  rms_pool_destroy(own);
  return grandchild;
}

/* Workers spin, then sleep: the child finds the pool in both states. The parent goes on with it. */
static void after_fork(void) {
  rms_pool *pool = NULL;
  rms_executor executor = make_pool(&pool, 3);
  T_EQ_INT(CHILD_OK, in_child(use_parents_pool, pool));
  for (int i = 0; i < 3; i++) {
    T_CHECK(run_counted(&executor, TASKS, NULL));
    if (i) usleep(3000);
    T_EQ_INT(CHILD_OK, in_child(use_parents_pool, pool));
  }
  T_CHECK(run_counted(&executor, TASKS, NULL));
  rms_pool_destroy(pool);
}

/* Why the child of a process with threads cannot start any here; NULL: it can. */
static const char *no_threads_after_fork(void) {
#if defined(__SANITIZE_THREAD__)
  return "ThreadSanitizer cannot follow threads that the child of a process with threads starts";
#else
  return getenv("RMSNORM_NO_THREADS_AFTER_FORK") ? "RMSNORM_NO_THREADS_AFTER_FORK is set" : NULL;
#endif
}

static void new_pool_after_fork(void) {
  if (no_threads_after_fork()) {
    t_skip(no_threads_after_fork());
    return;
  }
  rms_pool *pool = NULL;
  rms_executor executor = make_pool(&pool, 3);
  for (int64_t i = 0; i < t_effort(10); i++) {
    T_CHECK(run_counted(&executor, TASKS, NULL));
    T_EQ_INT(CHILD_OK, in_child(use_own_pool, pool));
  }
  rms_pool_destroy(pool);
}

typedef struct busy {
  const rms_executor *executor;
  _Atomic int stop, wrong;
} busy;

static void *keep_busy(void *arg) {
  busy *b = arg;
  while (!atomic_load(&b->stop))
    if (!run_counted(b->executor, TASKS, NULL)) atomic_fetch_add(&b->wrong, 1);
  return NULL;
}

/* In the middle of another thread's calls, whose locks the child finds as they were. */
static void fork_while_busy(void) {
  rms_pool *pool = NULL;
  rms_executor executor = make_pool(&pool, 2);
  busy b = {.executor = &executor};
  pthread_t other;
  T_EQ_INT(0, pthread_create(&other, NULL, keep_busy, &b));
  for (int64_t i = 0; i < t_effort(20); i++)
    T_EQ_INT(CHILD_OK, in_child(use_parents_pool, pool));
  atomic_store(&b.stop, 1);
  pthread_join(other, NULL);
  T_EQ_INT(0, atomic_load(&b.wrong));
  rms_pool_destroy(pool);
}

/* ---- Many callers, any pause between calls ---- */

typedef struct caller {
  pthread_t thread;
  const rms_executor *executor;
  uint64_t number;
  int wrong;
} caller;

/* Pauses from none to well past the time that workers spin. */
static void *call_and_pause(void *arg) {
  caller *c = arg;
  t_rng rng = t_rng_make(c->number);
  for (int64_t i = 0; i < t_effort(300); i++) {
    if (!run_counted(c->executor, t_random_below(&rng, TASKS + 1), NULL)) c->wrong++;
    int64_t pause = t_random_below(&rng, 4) ? 0 : t_random_below(&rng, 300);
    if (pause) usleep((useconds_t)pause);
  }
  return NULL;
}

static void callers_on(int threads, int callers) {
  rms_pool *pool = NULL;
  rms_executor executor = make_pool(&pool, threads);
  caller c[16];
  for (int i = 0; i < callers; i++) {
    c[i] = (caller){.executor = &executor, .number = (uint64_t)(threads * 100 + i)};
    T_EQ_INT(0, pthread_create(&c[i].thread, NULL, call_and_pause, &c[i]));
  }
  for (int i = 0; i < callers; i++) {
    pthread_join(c[i].thread, NULL);
    T_EQ_INT(0, c[i].wrong);
  }
  rms_pool_destroy(pool);
}

/* With as many threads as cores workers spin, with more they do not. */
static void many_callers(void) {
  static const int threads[] = {1, 2, 3, 9};
  for (size_t i = 0; i < T_COUNT(threads); i++) {
    callers_on(threads[i], 1);
    callers_on(threads[i], 5);
  }
}

/* ---- Ends ---- */

/* Never used, right after a call, while workers go to sleep, and asleep. */
static void destroyed_idle(void) {
  for (int64_t i = 0; i < t_effort(200); i++) {
    rms_pool *pool = NULL;
    rms_executor executor = make_pool(&pool, 2 + (int)(i % 3));
    if (i % 4) T_CHECK(run_counted(&executor, TASKS, NULL));
    if (i % 4 > 1) usleep((useconds_t)(i % 7) * 20);
    rms_pool_destroy(pool);
  }
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"in_own_tasks", in_own_tasks},
                                 {"across_pools", across_pools},
                                 {"in_opposite_order", in_opposite_order},
                                 {"operation_in_tasks", operation_in_tasks},
                                 {"after_fork", after_fork},
                                 {"new_pool_after_fork", new_pool_after_fork},
                                 {"fork_while_busy", fork_while_busy},
                                 {"many_callers", many_callers},
                                 {"destroyed_idle", destroyed_idle}};
  alarm(HANG_SECONDS);
  return t_main(argc, argv, cases, T_COUNT(cases));
}
