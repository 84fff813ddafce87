/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* madvise, sysconf names, sched_getaffinity */
#include "machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/copy.h"
#include "bench/measure.h"

static void trim_line(char *text) {
  text[strcspn(text, "\n")] = 0;
}

/* x86 calls it "model name"; aarch64 gives numbers only. */
static void read_cpu_name(machine *m) {
  char line[512];
  FILE *file = fopen("/proc/cpuinfo", "r");
  snprintf(m->cpu, sizeof m->cpu, "unknown CPU");
  while (file && fgets(line, sizeof line, file)) {
    char *value = strchr(line, ':');
    if (!value || strncmp(line, "model name", 10) != 0) continue;
    trim_line(value);
    snprintf(m->cpu, sizeof m->cpu, "%.127s", value + 1 + (value[1] == ' '));
    break;
  }
  if (file) fclose(file);
}

static int read_cache_field(int index, const char *field, char *text, int size) {
  char path[128];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, field);
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  int found = fgets(text, size, file) != NULL;
  fclose(file);
  trim_line(text);
  return found;
}

static void read_caches(machine *m) {
  for (int i = 0; i < MACHINE_CACHES_MAX; i++) {
    char level[16], type[16], size[32], *unit;
    if (!read_cache_field(i, "level", level, sizeof level) || !read_cache_field(i, "type", type, sizeof type) ||
        !read_cache_field(i, "size", size, sizeof size))
      break;
    if (strcmp(type, "Instruction") == 0) continue;
    machine_cache *cache = &m->caches[m->cache_count++];
    cache->level = atoi(level);
    memcpy(cache->type, type, sizeof type);
    cache->bytes = strtoll(size, &unit, 10) * (*unit == 'K' ? 1024 : *unit == 'M' ? 1048576 : 1);
    if (cache->bytes > m->last_level_bytes) m->last_level_bytes = cache->bytes;
  }
}

static int usable_cores(void) {
#ifdef CPU_COUNT
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

void machine_read(machine *m) {
  *m = (machine){0};
  read_cpu_name(m);
  read_caches(m);
  m->cores = usable_cores();
}

static double best_copy_seconds(const copy_buffers *buffers) {
  copy_method methods[COPY_METHODS_MAX];
  int count = copy_methods(buffers, methods);
  double best = 0;
  for (int round = 0; round < 5; round++)
    for (int i = 0; i < count; i++) {
      double start = seconds_now();
      copy_run(methods[i].run, buffers, NULL);
      double seconds = seconds_now() - start;
      if (best == 0 || seconds < best) best = seconds;
    }
  return best;
}

double machine_copy_bandwidth(const machine *m) {
  size_t bytes = 64u << 20, most = 256u << 20, wanted = (size_t)m->last_level_bytes * 2;
  if (wanted > bytes) bytes = wanted < most ? wanted : most;
  char *memory = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
#ifdef MADV_HUGEPAGE
  (void)madvise(memory, 2 * bytes, MADV_HUGEPAGE);
#endif
  memset(memory, 1, 2 * bytes);
  copy_buffers buffers = {{memory}, {memory + bytes}, 1, 1, bytes};
  double seconds = best_copy_seconds(&buffers);
  munmap(memory, 2 * bytes);
  return 2 * (double)bytes / seconds / 1e9;
}
