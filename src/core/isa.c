/* SPDX-License-Identifier: MIT
 *
 * Which instruction set is in use: one atomic pointer to a table of kernels. The first call publishes its own choice
 * only if no other thread has forced one in the meantime. This file is compiled for the oldest CPU that the build
 * supports. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "../cpu/detect.h"
#include "halves.h"
#include "run.h"

static const struct {
  const rms_kernels *kernels;
  int (*usable)(void);
} tables[] = {
    /* best last */
    {&rms_kernels_scalar, rms_cpu_any},
#ifdef RMS_WITH_AVX2
    {&rms_kernels_avx2, rms_cpu_has_avx2},
#endif
#ifdef RMS_WITH_AVX512
    {&rms_kernels_avx512, rms_cpu_has_avx512},
#endif
#ifdef RMS_WITH_NEON
    {&rms_kernels_neon, rms_cpu_any},
#endif
};
enum { TABLES = sizeof tables / sizeof tables[0] };
_Static_assert((int)TABLES <= RMS_MOST_ISAS, "there is room for what is known of each instruction set");

/* Stands for a name in the environment that cannot be used. */
static const rms_kernels unusable;

static _Atomic(const rms_kernels *) active;

static const rms_kernels *find(const char *name) {
  for (int i = 0; i < (int)TABLES; i++)
    if (!strcmp(tables[i].kernels->name, name)) return tables[i].usable() ? tables[i].kernels : NULL;
  return NULL;
}

#if defined(RMS_WITH_AVX512) && defined(RMS_WITH_AVX2)
/* The automatic choice where there is AVX-512: its table, with the forward of f16 on registers of 256 bits where that
 * is quicker. Naming avx512 gives its table as it is. */
static rms_kernels with_best_halves;

static void find_best_halves(void) {
  const rms_kernels *narrow = &rms_kernels_avx2;
  rms_kernels best = rms_kernels_avx512;
  if (rms_halves_are_quicker(narrow, &rms_kernels_avx512)) {
    best.row[RMS_F16] = narrow->row[RMS_F16];
    best.forward[RMS_F16] = narrow->forward[RMS_F16];
    best.stats[RMS_F16] = narrow->stats[RMS_F16];
  }
  with_best_halves = best;
}

static const rms_kernels *refine(const rms_kernels *kernels) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (kernels != &rms_kernels_avx512) return kernels;
  pthread_once(&once, find_best_halves);
  return &with_best_halves;
}
#else
static const rms_kernels *refine(const rms_kernels *kernels) {
  return kernels;
}
#endif

static const rms_kernels *choose(void) {
  const char *name = getenv("RMSNORM_ISA");
  if (name && *name) {
    const rms_kernels *named = find(name);
    return named ? named : &unusable;
  }
  for (int i = TABLES - 1; i > 0; i--)
    if (tables[i].usable()) return refine(tables[i].kernels);
  return tables[0].kernels;
}

const rms_kernels *rms_active_kernels(void) {
  const rms_kernels *now = atomic_load_explicit(&active, memory_order_acquire);
  if (!now) {
    const rms_kernels *first = choose();
    if (atomic_compare_exchange_strong(&active, &now, first)) now = first;
  }
  return now == &unusable ? NULL : now;
}

int rms_isa_number(const rms_kernels *kernels) {
  int i = TABLES - 1;
  while (i > 0 && tables[i].kernels->name != kernels->name)
    i--;
  return i;
}

int rms_isa_count(void) {
  return (int)TABLES;
}

const char *rms_isa_name(int index) {
  return index >= 0 && index < (int)TABLES ? tables[index].kernels->name : NULL;
}

int rms_isa_usable(const char *name) {
  return name && find(name) != NULL;
}

const char *rms_isa_active(void) {
  const rms_kernels *now = rms_active_kernels();
  return now ? now->name : NULL;
}

rms_status rms_isa_force(const char *name) {
  const rms_kernels *to = name ? find(name) : choose();
  if (!to || to == &unusable) return RMS_E_ISA;
  atomic_store_explicit(&active, to, memory_order_release);
  return RMS_OK;
}
