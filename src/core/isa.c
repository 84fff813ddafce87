/* SPDX-License-Identifier: MIT
 *
 * Which instruction set is in use: one atomic pointer to a table of kernels. The first call publishes its own choice
 * only if no other thread has forced one in the meantime. This file is compiled for the oldest CPU that the build
 * supports. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "../cpu/detect.h"
#include "quicker.h"
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
    {&rms_kernels_avx512_bf16, rms_cpu_has_avx512_bf16},
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
static atomic_bool is_named; /* by the program or by the environment */

static const rms_kernels *find(const char *name) {
  for (int i = 0; i < (int)TABLES; i++)
    if (!strcmp(tables[i].kernels->name, name)) return tables[i].usable() ? tables[i].kernels : NULL;
  return NULL;
}

static const rms_kernels *choose(bool *named_there) {
  const char *name = getenv("RMSNORM_ISA");
  *named_there = name && *name;
  if (*named_there) {
    const rms_kernels *named = find(name);
    return named ? named : &unusable;
  }
  for (int i = TABLES - 1; i > 0; i--)
    if (tables[i].usable()) return tables[i].kernels;
  return tables[0].kernels;
}

const rms_kernels *rms_active_kernels(void) {
  const rms_kernels *now = atomic_load_explicit(&active, memory_order_acquire);
  if (!now) {
    bool named;
    const rms_kernels *first = choose(&named);
    if (atomic_compare_exchange_strong(&active, &now, first)) {
      now = first;
      if (named) atomic_store_explicit(&is_named, true, memory_order_relaxed);
    }
  }
  return now == &unusable ? NULL : now;
}

/* Timed by whoever asks first, and by whoever else asks before that is known: the results are the same. */
const rms_kernels *rms_kernels_of_type(const rms_kernels *now, rms_dtype type) {
#if defined(RMS_WITH_AVX512) && defined(RMS_WITH_AVX2)
  static const rms_kernels *const others[] = {[RMS_BF16] = &rms_kernels_avx512_bf16, [RMS_F16] = &rms_kernels_avx2};
  static _Atomic(const rms_kernels *) quicker[sizeof others / sizeof others[0]];
  if (now != &rms_kernels_avx512 || !others[type] || atomic_load_explicit(&is_named, memory_order_relaxed)) return now;
  const rms_kernels *known = atomic_load_explicit(&quicker[type], memory_order_relaxed);
  if (known) return known;
  const bool usable = type != RMS_BF16 || rms_cpu_has_avx512_bf16();
  known = usable && rms_is_quicker(others[type], now, type) ? others[type] : now;
  atomic_store_explicit(&quicker[type], known, memory_order_relaxed);
  return known;
#else
  (void)type;
  return now;
#endif
}

int rms_isa_number(const rms_kernels *kernels) {
  int i = TABLES - 1;
  while (i > 0 && tables[i].kernels != kernels)
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
  bool named = true;
  const rms_kernels *to = name ? find(name) : choose(&named);
  if (!to || to == &unusable) return RMS_E_ISA;
  atomic_store_explicit(&is_named, named, memory_order_relaxed);
  atomic_store_explicit(&active, to, memory_order_release);
  return RMS_OK;
}
