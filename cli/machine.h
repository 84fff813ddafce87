/* SPDX-License-Identifier: MIT
 *
 * Properties of this machine that can be read without privileges: CPU, caches, copy bandwidth. */
#ifndef RMSNORM_CLI_MACHINE_H
#define RMSNORM_CLI_MACHINE_H

#include <stdint.h>

enum { MACHINE_CACHES_MAX = 8 };

typedef struct machine_cache {
  int level;
  char type[16]; /* "Data", "Unified" */
  int64_t bytes;
} machine_cache;

typedef struct machine {
  char cpu[128];
  int cores; /* that this process may run on */
  machine_cache caches[MACHINE_CACHES_MAX];
  int cache_count;
  int64_t last_level_bytes; /* 0: unknown */
} machine;

void machine_read(machine *m);

/* Speed of a one-thread copy past the caches, read and written bytes counted, in GB/s; 0 if memory is short. */
double machine_copy_bandwidth(const machine *m);

#endif
