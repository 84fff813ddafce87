/* SPDX-License-Identifier: MIT
 *
 * The executor of rmsnorm_openmp_loaded.h for cpu.py, so that the library's calls run on torch's own threads. */
#include "rmsnorm_openmp_loaded.h"

int peers_executor(rms_executor *executor, const char *library, int threads);

/* Sets *executor to one on `threads` threads of the OpenMP runtime in `library`, and returns whether there is one. */
int peers_executor(rms_executor *executor, const char *library, int threads) {
  static rms_openmp_loaded runtime;
  if (!rms_openmp_loaded_find(&runtime, library)) return 0;
  runtime.threads = threads;
  *executor = rms_openmp_loaded_executor(&runtime);
  return 1;
}
