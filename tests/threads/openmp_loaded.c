/* SPDX-License-Identifier: MIT
 * The executor on an OpenMP runtime that is already loaded: found and not found, every task once, calls from inside
 * tasks, the same bits. Arguments: the stand-ins for runtimes, openmp_double.c with either kind of entry. The real ones
 * are tried as well where they are installed. */
#include "harness.h"
#include "rmsnorm_openmp_loaded.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASKS = 40 };

static const char *gomp_double, *kmpc_double;

static int is_zero(const rms_openmp_loaded *runtime) {
  static const rms_openmp_loaded zeros;
  return memcmp(runtime, &zeros, sizeof zeros) == 0;
}

/* ---- What an executor does ---- */

typedef struct counted {
  const rms_executor *executor;
  _Atomic int runs[TASKS];
  pthread_t caller;
  _Atomic int elsewhere, wrong; /* tasks on other threads than the caller's; nested calls that went wrong */
} counted;

static void count_run(void *arg, int64_t i) {
  counted *c = arg;
  atomic_fetch_add(&c->runs[i], 1);
  if (!pthread_equal(pthread_self(), c->caller)) atomic_fetch_add(&c->elsewhere, 1);
}

static int ran_once(const counted *c, int64_t tasks) {
  for (int64_t i = 0; i < TASKS; i++)
    if (atomic_load(&c->runs[i]) != (i < tasks)) return 0;
  return 1;
}

static void each_task_once(const rms_executor *executor) {
  int elsewhere = 0;
  for (int64_t tasks = 0; tasks <= TASKS; tasks++) {
    counted c = {.caller = pthread_self()};
    executor->run(executor->ctx, tasks, count_run, &c);
    T_CHECK(ran_once(&c, tasks));
    elsewhere += atomic_load(&c.elsewhere);
  }
  T_CHECK(executor->concurrency == 1 ? elsewhere == 0 : elsewhere > 0);
}

static void run_nested(void *arg, int64_t i) {
  counted *outer = arg;
  counted c = {.caller = pthread_self()};
  (void)i;
  outer->executor->run(outer->executor->ctx, TASKS, count_run, &c);
  if (!ran_once(&c, TASKS) || atomic_load(&c.elsewhere)) atomic_fetch_add(&outer->wrong, 1);
}

static void nested_on_the_calling_thread(const rms_executor *executor) {
  counted c = {.executor = executor, .caller = pthread_self()};
  executor->run(executor->ctx, 8, run_nested, &c);
  T_EQ_INT(0, atomic_load(&c.wrong));
}

enum { ROWS = 700, COLS = 257, ELEMENTS = ROWS * COLS };
static float x[ELEMENTS], dy[ELEMENTS], weight[COLS];
static _Alignas(64) char workspace[1 << 20];

typedef struct results {
  float y[ELEMENTS], dx[ELEMENTS], dweight[COLS];
} results;

static void compute(results *out, const rms_executor *executor) {
  const rms_spec spec = {.cols = COLS, .eps = 1e-5};
  const rms_forward_args forward = {.outer = ROWS, .x = {x, RMS_F32}, .weight = weight, .y = {.data = out->y}};
  const rms_backward_args backward = {.outer = ROWS,
                                      .x = {x, RMS_F32},
                                      .dy = {.data = dy},
                                      .weight = weight,
                                      .dx = {.data = out->dx},
                                      .dweight = out->dweight,
                                      .workspace = workspace,
                                      .workspace_bytes = sizeof workspace};
  memset(out, 0, sizeof *out);
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &forward, executor));
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &backward, executor));
}

static void same_bits(const rms_executor *executor) {
  static results expected, got;
  compute(&expected, NULL);
  compute(&got, executor);
  T_EQ_BYTES(&expected, &got, sizeof got);
}

static void use_runtime(rms_openmp_loaded *runtime) {
  static const int threads[] = {0, 1, 2, 5};
  for (size_t i = 0; i < T_COUNT(threads); i++) {
    runtime->threads = threads[i];
    const rms_executor executor = rms_openmp_loaded_executor(runtime);
    T_EQ_INT(threads[i] ? threads[i] : runtime->max_threads(), executor.concurrency);
    each_task_once(&executor);
    if (executor.concurrency > 1) nested_on_the_calling_thread(&executor);
    same_bits(&executor);
  }
}

/* ---- Cases ---- */

/* Runs first: nothing is loaded yet. */
static void not_found(void) {
  rms_openmp_loaded runtime;
  const rms_spec spec = {.cols = COLS, .eps = 1e-5};
  static float y[ELEMENTS];
  const rms_forward_args args = {.outer = ROWS, .x = {x, RMS_F32}, .y = {.data = y}};
  static const char *const names[] = {NULL, "libgomp.so.1", "no such library", "libc.so.6"};
  for (size_t i = 0; i < T_COUNT(names); i++) {
    memset(&runtime, 0x5a, sizeof runtime);
    T_EQ_INT(0, rms_openmp_loaded_find(&runtime, names[i]));
    T_CHECK(is_zero(&runtime));
  }
  T_EQ_INT(0, rms_openmp_loaded_find(&runtime, gomp_double)); /* a library that exists is not loaded for it */
  const rms_executor executor = rms_openmp_loaded_executor(&runtime);
  T_EQ_STATUS(RMS_E_EXECUTOR, rms_forward(&spec, &args, &executor));
}

static void use_double(const char *path, int has_gomp) {
  rms_openmp_loaded runtime;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!T_CHECK(library != NULL)) return;
  if (!T_CHECK(rms_openmp_loaded_find(&runtime, path))) return;
  T_EQ_INT(has_gomp, runtime.gomp_parallel != NULL);
  T_EQ_INT(!has_gomp, runtime.kmpc_fork != NULL);
  T_EQ_INT(3, runtime.max_threads());
  dlclose(library); /* the entries stay good */
  use_runtime(&runtime);
}

static void gnu_entries(void) {
  use_double(gomp_double, 1);
}

static void llvm_entries(void) {
  use_double(kmpc_double, 0);
}

static const char *no_real_runtimes(void) {
#if defined(__SANITIZE_THREAD__)
  return "ThreadSanitizer does not see how a real runtime synchronises";
#else
  return NULL;
#endif
}

/* A runtime that others of the process use, found under its usual name. */
static void use_real(const char *name) {
  rms_openmp_loaded runtime;
  if (no_real_runtimes()) {
    t_skip(no_real_runtimes());
    return;
  }
  if (!dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    t_skip(dlerror());
    return;
  }
  T_EQ_INT(1, rms_openmp_loaded_find(&runtime, NULL));
  if (!T_CHECK(rms_openmp_loaded_find(&runtime, name))) return;
  T_CHECK(runtime.gomp_parallel != NULL);
  use_runtime(&runtime);
  if (!runtime.kmpc_fork) return;
  runtime.gomp_parallel = NULL; /* LLVM's has both kinds of entries */
  use_runtime(&runtime);
}

static void real_gnu(void) {
  use_real("libgomp.so.1");
}

static void real_llvm(void) {
  use_real("libomp.so.5");
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"not_found", not_found},
                                 {"gnu_entries", gnu_entries},
                                 {"llvm_entries", llvm_entries},
                                 {"real_gnu", real_gnu},
                                 {"real_llvm", real_llvm}};
  if (argc < 3) {
    fprintf(stderr, "usage: %s GNU_DOUBLE LLVM_DOUBLE [CASE...]\n", argv[0]);
    return 2;
  }
  gomp_double = argv[1];
  kmpc_double = argv[2];
  for (int i = 0; i < ELEMENTS; i++) {
    x[i] = (float)(i % 23) - 11;
    dy[i] = (float)(i % 17) / 8 - 1;
  }
  for (int i = 0; i < COLS; i++)
    weight[i] = 1.0f + (float)i / COLS;
  argv[2] = argv[0];
  return t_main(argc - 2, argv + 2, cases, T_COUNT(cases));
}
