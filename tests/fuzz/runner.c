/* SPDX-License-Identifier: MIT
 * Runs a fuzz target without libFuzzer: replays saved inputs, then mutations of them for some seconds.
 *   runner [--seconds N] [FILE or FOLDER...]
 * Seed: RMSNORM_SEED. Before each mutated input runs it is saved as PROGRAM-last-input, so a crash leaves it behind. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz.h"
#include "../harness.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 4096, MOST = 512 };

typedef struct input {
  uint8_t *data;
  size_t size;
} input;

static input inputs[MOST];
static size_t input_count;
static t_rng rng;

static uint64_t next_random(void) {
  return t_random(&rng);
}

static void keep(const uint8_t *data, size_t size) {
  if (input_count == MOST) return;
  input *in = &inputs[input_count++];
  in->data = malloc(size + 1);
  in->size = size;
  if (size) memcpy(in->data, data, size);
}

static int load_file(const char *path) {
  static uint8_t buffer[LONGEST];
  FILE *file = fopen(path, "rb");
  if (!file) {
    perror(path);
    return -1;
  }
  size_t size = fread(buffer, 1, sizeof buffer, file);
  fclose(file);
  keep(buffer, size);
  return 0;
}

static int load(const char *path) {
  DIR *folder = opendir(path);
  if (!folder) return load_file(path);
  int status = 0;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char name[1024];
    if (entry->d_name[0] == '.') continue;
    snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
    if (load_file(name) != 0) status = -1;
  }
  closedir(folder);
  return status;
}

/* One to four small changes: a bit, a byte, an edge value, a removal, a repetition, a piece of another input. */
static size_t mutate(uint8_t *to) {
  const input *from = &inputs[next_random() % input_count];
  size_t size = from->size;
  memcpy(to, from->data, size);
  for (uint64_t changes = 1 + next_random() % 4; changes > 0; changes--) {
    size_t at = size ? next_random() % size : 0, length = 1 + next_random() % 16;
    switch (next_random() % 6) {
    case 0:
      if (size) to[at] = (uint8_t)(to[at] ^ 1u << next_random() % 8);
      break;
    case 1:
      if (size) to[at] = (uint8_t)next_random();
      break;
    case 2:
      if (size) to[at] = (uint8_t)((const uint8_t[]){0, 1, 127, 128, 255, '0', '9', ':'}[next_random() % 8]);
      break;
    case 3:
      if (length > size - at) length = size - at;
      memmove(to + at, to + at + length, size - at - length);
      size -= length;
      break;
    case 4:
      if (size + length > LONGEST) break;
      memmove(to + at + length, to + at, size - at);
      for (size_t i = 0; i < length; i++)
        to[at + i] = (uint8_t)next_random();
      size += length;
      break;
    default: {
      const input *other = &inputs[next_random() % input_count];
      size_t begin = other->size ? next_random() % other->size : 0;
      if (length > other->size - begin) length = other->size - begin;
      if (length > size - at) length = size - at;
      memcpy(to + at, other->data + begin, length);
    }
    }
  }
  return size;
}

/* The input about to run, in a file that outlives a crash; mapped, because writing it each time would be
 * the slow part. */
static char last_input_name[256]; /* one for each program: two in one folder must not cut each other's file short */

static uint8_t *last_input_file(const char *program) {
  const char *slash = strrchr(program, '/');
  snprintf(last_input_name, sizeof last_input_name, "%s-last-input", slash ? slash + 1 : program);
  int file = open(last_input_name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (file < 0 || ftruncate(file, LONGEST) != 0) return NULL;
  uint8_t *map = mmap(NULL, LONGEST, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return map == MAP_FAILED ? NULL : map;
}

int main(int argc, char **argv) {
  double seconds = 0;
  int first = 1;
  if (argc > 2 && strcmp(argv[1], "--seconds") == 0) {
    seconds = atof(argv[2]);
    first = 3;
  }
  for (int i = first; i < argc; i++)
    if (load(argv[i]) != 0) return 2;
  if (input_count == 0) keep((const uint8_t *)"", 0);
  size_t saved = input_count;
  for (size_t i = 0; i < saved; i++)
    LLVMFuzzerTestOneInput(inputs[i].data, inputs[i].size);

  uint64_t seed = t_seed(), runs = 0;
  rng = t_rng_make(0);
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  uint8_t *last = seconds > 0 ? last_input_file(argv[0]) : NULL;
  for (double spent = 0; spent < seconds; runs++) {
    uint8_t data[LONGEST];
    size_t size = mutate(data);
    if (last) memcpy(last, data, size);
    LLVMFuzzerTestOneInput(data, size);
    clock_gettime(CLOCK_MONOTONIC, &now);
    spent = (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec);
  }
  if (last) unlink(last_input_name);
  for (size_t i = 0; i < input_count; i++)
    free(inputs[i].data);
  printf("%zu saved inputs, %" PRIu64 " mutations with RMSNORM_SEED=%" PRIu64 "\n", saved, runs, seed);
  return 0;
}
