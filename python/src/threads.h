/* SPDX-License-Identifier: MIT
 *
 * The threads that calls run on. */
#ifndef PN_THREADS_H
#define PN_THREADS_H

#include "rmsnorm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An executor on a pool of the package: `threads` counts the calling thread. Pools are made once for each number, kept,
 * and made anew in a forked child, where the threads of the parent do not exist. RMS_E_MEMORY: no thread could be
 * started. */
rms_status pn_pool_executor(int threads, rms_executor *executor);

/* The OpenMP runtime that torch has loaded: the package links to none of its own. Returns whether the library at this
 * path is one. */
int pn_openmp_use(const char *path);
int pn_openmp_known(void);

/* An executor on that runtime's threads, of which torch uses so many; one thread if none is known. */
rms_executor pn_openmp_executor(int threads);

#ifdef __cplusplus
}
#endif

#endif
