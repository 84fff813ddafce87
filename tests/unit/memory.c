/* SPDX-License-Identifier: MIT
 * Out of memory: the pool, the only thing that allocates, says so and leaves nothing behind. */
#define _DEFAULT_SOURCE 1
#include "harness.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_LIMITS = 100, THREADS = 2000 };

static size_t address_space(void) {
  size_t pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file) return 0;
  if (fscanf(file, "%zu", &pages) != 1) pages = 0;
  fclose(file);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* In a child, because the limit stays: the stacks of 2000 threads do not fit into 64 MiB. */
static int create_with_little_memory(void) {
  size_t used = address_space();
  struct rlimit limit = {used + (64u << 20), used + (64u << 20)}, now;
  if (used == 0 || setrlimit(RLIMIT_AS, &limit) != 0) return NO_LIMITS;
  if (getrlimit(RLIMIT_AS, &now) != 0 || now.rlim_cur != limit.rlim_cur) return NO_LIMITS; /* emulators ignore it */
  rms_pool *pool = NULL;
  rms_status status = rms_pool_create(&pool, THREADS);
  if (pool != NULL) return NO_LIMITS + 1;
  return (int)status;
}

static void pool_without_memory(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  t_skip("sanitizers need address space without a limit");
#else
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) _exit(create_with_little_memory());
  int result = 0;
  T_CHECK(child > 0 && waitpid(child, &result, 0) == child && WIFEXITED(result));
  if (WEXITSTATUS(result) == NO_LIMITS)
    t_skip("the address space cannot be limited here");
  else
    T_EQ_STATUS(RMS_E_MEMORY, (rms_status)WEXITSTATUS(result));
#endif
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"pool_without_memory", pool_without_memory}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
