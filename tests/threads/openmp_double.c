/* SPDX-License-Identifier: MIT
 * A stand-in for an OpenMP runtime, as a library that tests load: parallel regions on threads that it starts for each.
 * Real runtimes synchronise by means that ThreadSanitizer does not see; this one does by pthreads. DOUBLE_KMPC: it has
 * the entries that LLVM's compilers call instead of those of GNU. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { MAX_THREADS = 3, MOST = 64 };

static _Thread_local int number, team = 1;

int omp_get_max_threads(void);
int omp_in_parallel(void);
int omp_get_num_threads(void);
int omp_get_thread_num(void);

int omp_get_max_threads(void) {
  return MAX_THREADS;
}

int omp_in_parallel(void) {
  return team > 1;
}

int omp_get_num_threads(void) {
  return team;
}

int omp_get_thread_num(void) {
  return number;
}

typedef struct {
  void (*body)(void *data);
  void *data;
  int number, team;
} member;

static void *run_member(void *arg) {
  const member *m = arg;
  const int outer_number = number, outer_team = team;
  number = m->number;
  team = m->team;
  m->body(m->data);
  number = outer_number;
  team = outer_team;
  return NULL;
}

static void parallel(void (*body)(void *data), void *data, int threads) {
  pthread_t thread[MOST];
  member m[MOST];
  if (threads < 1) threads = MAX_THREADS;
  if (threads > MOST) threads = MOST;
  for (int i = 0; i < threads; i++)
    m[i] = (member){body, data, i, threads};
  for (int i = 1; i < threads; i++)
    if (pthread_create(&thread[i], NULL, run_member, &m[i])) abort();
  run_member(&m[0]);
  for (int i = 1; i < threads; i++)
    pthread_join(thread[i], NULL);
}

#ifndef DOUBLE_KMPC
void GOMP_parallel(void (*body)(void *data), void *data, unsigned threads, unsigned flags);

void GOMP_parallel(void (*body)(void *data), void *data, unsigned threads, unsigned flags) {
  if (flags != 0) abort();
  parallel(body, data, (int)threads);
}
#else
#include <stdarg.h>

typedef void microtask(int32_t *thread, int32_t *bound, void *data);
typedef struct {
  microtask *body;
  void *data;
} call;

static _Thread_local int pushed;

int32_t __kmpc_global_thread_num(void *location);
void __kmpc_push_num_threads(void *location, int32_t thread, int32_t threads);
void __kmpc_fork_call(void *location, int32_t count, microtask *body, ...);

int32_t __kmpc_global_thread_num(void *location) {
  (void)location;
  return 7;
}

void __kmpc_push_num_threads(void *location, int32_t thread, int32_t threads) {
  (void)location;
  if (thread != 7) abort();
  pushed = threads;
}

static void run_call(void *data) {
  const call *c = data;
  int32_t thread = number, bound = number;
  c->body(&thread, &bound, c->data);
}

void __kmpc_fork_call(void *location, int32_t count, microtask *body, ...) {
  va_list arguments;
  va_start(arguments, body);
  call c = {body, va_arg(arguments, void *)};
  va_end(arguments);
  if (!location || count != 1) abort();
  const int threads = pushed;
  pushed = 0;
  parallel(run_call, &c, threads);
}
#endif
