/* SPDX-License-Identifier: MIT
 *
 * An rms_executor on the threads of an OpenMP runtime that the process has already loaded: for plugins, language
 * bindings and other code that is not compiled with OpenMP itself but runs beside code that is. With a pool of its own
 * such code would compete with OpenMP's threads, which spin for a while after each parallel region.
 *
 *   rms_openmp_loaded runtime;
 *   if (rms_openmp_loaded_find(&runtime, NULL)) {
 *     rms_executor omp = rms_openmp_loaded_executor(&runtime);
 *     rms_forward(&spec, &args, &omp);
 *   }
 *
 * Header only, in C and C++: the library itself needs neither OpenMP nor a dynamic linker. Programs that are compiled
 * with -fopenmp use rmsnorm_openmp.h. Link with -ldl where dlopen is in a library of its own (glibc before 2.34). On
 * Windows, and in programs that are linked statically, no runtime is found.
 *
 * libgomp, libomp (LLVM) and libiomp5 (Intel) are known, by GOMP_parallel or __kmpc_fork_call. */
#ifndef RMSNORM_OPENMP_LOADED_H
#define RMSNORM_OPENMP_LOADED_H

#include <string.h>
#include "rmsnorm.h"
#include "rmsnorm_openmp_team.h"
#if !defined(_WIN32)
#include <dlfcn.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef void rms_openmp_body_(void *data);
typedef void rms_openmp_micro_(int32_t *thread, int32_t *bound, void *data);

/* What was found: entries of the runtime. Zeros: nothing. */
typedef struct rms_openmp_loaded {
  int threads; /* of a call, the calling one included; below 1: as many as OpenMP would take */
  int (*max_threads)(void);
  int (*in_parallel)(void);
  int (*team_threads)(void);
  int (*thread_number)(void);
  void (*gomp_parallel)(rms_openmp_body_ *body, void *data, unsigned threads, unsigned flags);
  void (*kmpc_fork)(void *location, int32_t count, rms_openmp_micro_ *body, ...);
  void (*kmpc_push_threads)(void *location, int32_t thread, int32_t threads);
  int32_t (*kmpc_thread)(void *location);
} rms_openmp_loaded;

#if !defined(_WIN32)
/* Copies the address of a function; whether there is one. */
static inline int rms_openmp_entry_(void *library, const char *name, void *function) {
  void *found = dlsym(library, name);
  memcpy(function, &found, sizeof found);
  return found != NULL;
}

static inline int rms_openmp_entries_(void *library, rms_openmp_loaded *r) {
  if (!rms_openmp_entry_(library, "omp_get_max_threads", &r->max_threads) ||
      !rms_openmp_entry_(library, "omp_in_parallel", &r->in_parallel) ||
      !rms_openmp_entry_(library, "omp_get_num_threads", &r->team_threads) ||
      !rms_openmp_entry_(library, "omp_get_thread_num", &r->thread_number))
    return 0;
  if (!rms_openmp_entry_(library, "__kmpc_push_num_threads", &r->kmpc_push_threads) ||
      !rms_openmp_entry_(library, "__kmpc_global_thread_num", &r->kmpc_thread) ||
      !rms_openmp_entry_(library, "__kmpc_fork_call", &r->kmpc_fork))
    r->kmpc_fork = NULL;
  return rms_openmp_entry_(library, "GOMP_parallel", &r->gomp_parallel) || r->kmpc_fork;
}

static inline int rms_openmp_open_(const char *name, rms_openmp_loaded *runtime) {
  rms_openmp_loaded found;
  void *library = dlopen(name, name ? RTLD_LAZY | RTLD_NOLOAD : RTLD_LAZY);
  if (!library) return 0;
  memset(&found, 0, sizeof found);
  if (rms_openmp_entries_(library, &found)) {
    *runtime = found; /* the library stays open, so that its entries stay good */
    return 1;
  }
  (void)dlclose(library);
  return 0;
}
#endif

/* Looks for a runtime and returns 1, or 0 and zeros in *runtime. library: the name or path of a loaded library, such as
 * "libgomp.so.1"; NULL: the one that the program itself uses, or else any under its usual name. Nothing is loaded. */
static inline int rms_openmp_loaded_find(rms_openmp_loaded *runtime, const char *library) {
  memset(runtime, 0, sizeof *runtime);
#if !defined(_WIN32)
  {
    static const char *const usual[] = {"libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"};
    size_t i;
    if (library) return rms_openmp_open_(library, runtime);
    if (rms_openmp_open_(NULL, runtime)) return 1;
    for (i = 0; i < sizeof usual / sizeof usual[0]; i++)
      if (rms_openmp_open_(usual[i], runtime)) return 1;
  }
#else
  (void)library;
#endif
  return 0;
}

/* ---- running ---- */

typedef struct rms_openmp_region_ {
  const rms_openmp_loaded *runtime;
  rms_team_ team;
} rms_openmp_region_;

static inline void rms_openmp_share_(void *data) {
  rms_openmp_region_ *r = (rms_openmp_region_ *)data;
  rms_team_run_(&r->team, r->runtime->thread_number(), r->runtime->team_threads());
}

static inline void rms_openmp_micro_share_(int32_t *thread, int32_t *bound, void *data) {
  (void)thread, (void)bound;
  rms_openmp_share_(data);
}

/* Inside a parallel region the calling thread does all: its team is busy with the region. */
static inline void rms_openmp_loaded_run_(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  const rms_openmp_loaded *r = (const rms_openmp_loaded *)ctx;
  rms_openmp_region_ region;
  int64_t i;
  if (r->in_parallel()) {
    for (i = 0; i < tasks; i++)
      task(arg, i);
    return;
  }
  region.runtime = r;
  rms_team_begin_(&region.team, r->threads > 0 ? r->threads : r->max_threads(), tasks, task, arg);
  if (r->gomp_parallel) {
    r->gomp_parallel(rms_openmp_share_, &region, r->threads > 0 ? (unsigned)r->threads : 0, 0);
  } else {
    /* Where in the source the region begins, as compilers tell the runtime. */
    static char source[] = ";rmsnorm;rms_openmp_loaded;0;0;;";
    struct {
      int32_t reserved, flags, more[2];
      const char *source;
    } location = {0, 2, {0, 0}, source};
    if (r->threads > 0) r->kmpc_push_threads(&location, r->kmpc_thread(&location), r->threads);
    r->kmpc_fork(&location, 1, rms_openmp_micro_share_, &region);
  }
}

/* The runtime must outlive the executor; both may be used from any thread. Where nothing was found, calls on the
 * executor return RMS_E_EXECUTOR. The results do not depend on how many threads there are. */
static inline rms_executor rms_openmp_loaded_executor(rms_openmp_loaded *runtime) {
  rms_executor executor;
  executor.ctx = runtime;
  executor.concurrency = 0;
  executor.run = NULL;
  if (!runtime->max_threads) return executor;
  executor.concurrency = runtime->threads > 0 ? runtime->threads : runtime->max_threads();
  executor.run = rms_openmp_loaded_run_;
  return executor;
}

#ifdef __cplusplus
}
#endif

#endif
