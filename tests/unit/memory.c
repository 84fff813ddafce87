/* SPDX-License-Identifier: MIT
 * Out of memory: what allocates, pools and calls on wide rows whose elements lie apart, says so and leaves nothing
 * behind. */
#define _DEFAULT_SOURCE 1
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_LIMITS = 100, WRITTEN, THREADS = 2000 };

static size_t address_space(void) {
  size_t pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file) return 0;
  if (fscanf(file, "%zu", &pages) != 1) pages = 0;
  fclose(file);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Whether the process can have `more` bytes and no others from now on. */
static int limit_memory(size_t more) {
  size_t used = address_space();
  struct rlimit limit = {used + more, used + more}, now;
  if (used == 0 || setrlimit(RLIMIT_AS, &limit) != 0) return 0;
  return getrlimit(RLIMIT_AS, &now) == 0 && now.rlim_cur == limit.rlim_cur; /* emulators ignore it */
}

/* The exit status of a child, because a limit stays. */
static void expect_memory_error(int (*body)(void)) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)body;
  t_skip("sanitizers need address space without a limit");
#else
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) _exit(body());
  int result = 0;
  T_CHECK(child > 0 && waitpid(child, &result, 0) == child && WIFEXITED(result));
  if (WEXITSTATUS(result) == NO_LIMITS)
    t_skip("the address space cannot be limited here");
  else
    T_EQ_STATUS(RMS_E_MEMORY, (rms_status)WEXITSTATUS(result));
#endif
}

/* The stacks of 2000 threads do not fit into 64 MiB. */
static int create_with_little_memory(void) {
  rms_pool *pool = NULL;
  if (!limit_memory(64u << 20)) return NO_LIMITS;
  rms_status status = rms_pool_create(&pool, THREADS);
  if (pool != NULL) return WRITTEN;
  return (int)status;
}

static void pool_without_memory(void) {
  expect_memory_error(create_with_little_memory);
}

enum { PIXELS = 16, CHANNELS = 30000, ALL = PIXELS * CHANNELS };

static float x[ALL], y[ALL], rstd[PIXELS], dweight[CHANNELS];
static const rms_spec wide = {.cols = CHANNELS, .eps = 1e-5};

static int is_all(const void *data, size_t bytes, unsigned char value) {
  const unsigned char *p = data;
  for (size_t i = 0; i < bytes; i++)
    if (p[i] != value) return 0;
  return 1;
}

/* A room of 1.9 MB, or more, does not fit into one of 1 MB. */
static int forward_with_little_memory(void) {
  rms_forward_args args = {.outer = 1, .inner = PIXELS, .x = {.data = x, .dtype = RMS_F32, .col_stride = PIXELS}};
  args.y = (rms_view){.data = y, .col_stride = PIXELS};
  args.rstd = rstd;
  memset(y, 1, sizeof y);
  memset(rstd, 1, sizeof rstd);
  if (!limit_memory(1u << 20)) return NO_LIMITS;
  rms_status status = rms_forward(&wide, &args, NULL);
  if (!is_all(y, sizeof y, 1) || !is_all(rstd, sizeof rstd, 1)) return WRITTEN;
  return (int)status;
}

static int backward_with_little_memory(void) {
  rms_backward_args args = {.outer = 1, .inner = PIXELS, .x = {.data = x, .dtype = RMS_F32, .col_stride = PIXELS}};
  args.dy = args.x;
  args.dx = (rms_view){.data = y, .col_stride = PIXELS};
  args.dweight = dweight;
  args.workspace_bytes = rms_backward_workspace(&wide, &args);
  args.workspace = aligned_alloc(64, (args.workspace_bytes + 63) / 64 * 64);
  if (!args.workspace) return NO_LIMITS;
  memset(y, 1, sizeof y);
  memset(dweight, 1, sizeof dweight);
  memset(args.workspace, 1, args.workspace_bytes);
  if (!limit_memory(1u << 20)) return NO_LIMITS;
  rms_status status = rms_backward(&wide, &args, NULL);
  if (!is_all(y, sizeof y, 1) || !is_all(dweight, sizeof dweight, 1)) return WRITTEN;
  return is_all(args.workspace, args.workspace_bytes, 1) ? (int)status : WRITTEN;
}

/* Rows that fit the stack need none: their bits are those that they have with it. */
static int narrow_rows_with_little_memory(void) {
  static float expected[ALL];
  const rms_spec spec = {.cols = 12000, .eps = 1e-5};
  rms_forward_args args = {.outer = 1, .inner = PIXELS, .x = {.data = x, .dtype = RMS_F32, .col_stride = PIXELS}};
  for (int i = 0; i < ALL; i++)
    x[i] = (float)(i % 31) - 15;
  args.y = (rms_view){.data = expected, .col_stride = PIXELS};
  if (rms_forward(&spec, &args, NULL) != RMS_OK) return NO_LIMITS;
  args.y.data = y;
  if (!limit_memory(1u << 18)) return NO_LIMITS;
  if (rms_forward(&spec, &args, NULL) != RMS_OK || memcmp(expected, y, sizeof y) != 0) return WRITTEN;
  return (int)RMS_E_MEMORY;
}

static void wide_rows_without_memory(void) {
  expect_memory_error(narrow_rows_with_little_memory);
  expect_memory_error(forward_with_little_memory);
  expect_memory_error(backward_with_little_memory);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"pool_without_memory", pool_without_memory},
                                 {"wide_rows_without_memory", wide_rows_without_memory}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
