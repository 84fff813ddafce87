/* SPDX-License-Identifier: MIT */
#include "tape/tape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALIGNMENT = 64, FIRST_CHUNK = 1 << 22 };

/* A block of memory; `twins` chunks hold the gradients in a second block of the same layout. */
typedef struct tape_chunk {
  struct tape_chunk *next;
  unsigned char *v, *g;
  size_t size, used;
} tape_chunk;

typedef struct tape_entry {
  backward_fn backward;
  void *op;
} tape_entry;

static size_t round_up(size_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

tape *tape_create(void) {
  return lab_alloc(1, sizeof(tape));
}

static void free_chunks(tape_chunk *chunk) {
  while (chunk != NULL) {
    tape_chunk *next = chunk->next;
    free(chunk->v);
    free(chunk->g);
    free(chunk);
    chunk = next;
  }
}

void tape_free(tape *t) {
  if (t == NULL) return;
  free_chunks(t->chunks);
  free_chunks(t->kept);
  free(t->entries);
  free(t->scratch);
  free(t);
}

static void rewind_chunks(tape_chunk *chunk) {
  for (; chunk != NULL; chunk = chunk->next)
    chunk->used = 0;
}

void tape_reset(tape *t, int training, uint64_t noise_key) {
  rewind_chunks(t->chunks);
  rewind_chunks(t->kept);
  t->entry_count = 0;
  t->training = training;
  t->noise_key = noise_key;
  t->noise_operations = 0;
}

/* The first chunk with room, from the list's start: the lists are short, since chunks double. */
static tape_chunk *chunk_with_room(tape_chunk **list, size_t bytes, int twins) {
  size_t size = FIRST_CHUNK;
  tape_chunk **end = list;
  for (; *end != NULL; end = &(*end)->next) {
    if ((*end)->size - (*end)->used >= bytes) return *end;
    size = (*end)->size * 2;
  }
  while (size < bytes)
    size *= 2;
  tape_chunk *chunk = lab_alloc(1, sizeof *chunk);
  chunk->v = lab_aligned(size);
  chunk->g = twins ? lab_aligned(size) : NULL;
  chunk->size = size;
  *end = chunk;
  return chunk;
}

static size_t used_bytes(const tape_chunk *chunk) {
  size_t sum = 0;
  for (; chunk != NULL; chunk = chunk->next)
    sum += chunk->used;
  return sum;
}

int64_t tape_activation_bytes(const tape *t) {
  return (int64_t)(used_bytes(t->chunks) + used_bytes(t->kept));
}

void *tape_keep(tape *t, size_t bytes) {
  bytes = round_up(bytes);
  tape_chunk *chunk = chunk_with_room(&t->kept, bytes, 0);
  void *p = chunk->v + chunk->used;
  chunk->used += bytes;
  return p;
}

void *tape_scratch(tape *t, size_t bytes) {
  if (bytes > t->scratch_bytes) {
    free(t->scratch);
    t->scratch_bytes = round_up(bytes + bytes / 2);
    t->scratch = lab_aligned(t->scratch_bytes);
  }
  return t->scratch;
}

tensor *tape_tensor(tape *t, int64_t rows, int64_t cols) {
  size_t bytes = round_up((size_t)rows * (size_t)cols * sizeof(real));
  tape_chunk *chunk = chunk_with_room(&t->chunks, bytes, 1);
  tensor *x = tape_keep(t, sizeof *x);
  *x = (tensor){(real *)(void *)(chunk->v + chunk->used), (real *)(void *)(chunk->g + chunk->used), rows, cols, cols};
  chunk->used += bytes;
  return x;
}

tensor *tape_zeros(tape *t, int64_t rows, int64_t cols) {
  tensor *x = tape_tensor(t, rows, cols);
  memset(x->v, 0, (size_t)(rows * cols) * sizeof(real));
  return x;
}

tensor *tape_input(tape *t, const real *v, int64_t rows, int64_t cols) {
  tensor *x = tape_tensor(t, rows, cols);
  memcpy(x->v, v, (size_t)(rows * cols) * sizeof(real));
  return x;
}

tensor *tape_constant(tape *t, int64_t rows, int64_t cols) {
  tensor *x = tape_keep(t, sizeof *x);
  *x = (tensor){tape_keep(t, (size_t)(rows * cols) * sizeof(real)), NULL, rows, cols, cols};
  return x;
}

tensor *tape_view(tape *t, tensor *of, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  tensor *x = tape_keep(t, sizeof *x);
  int64_t offset = row * of->ld + col;
  *x = (tensor){of->v + offset, of->g + offset, rows, cols, of->ld};
  return x;
}

void tape_push(tape *t, backward_fn backward, void *op) {
  if (!t->training) return;
  t->entries = lab_grow(t->entries, &t->entry_capacity, t->entry_count + 1, sizeof *t->entries);
  t->entries[t->entry_count++] = (tape_entry){backward, op};
}

void tape_backward(tape *t, tensor *loss) {
  for (tape_chunk *chunk = t->chunks; chunk != NULL; chunk = chunk->next)
    memset(chunk->g, 0, chunk->used);
  loss->g[0] = 1;
  for (int64_t i = t->entry_count - 1; i >= 0; i--)
    t->entries[i].backward(t, t->entries[i].op);
}

static double clock_seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double lab_seconds(void) {
  return clock_seconds(CLOCK_MONOTONIC);
}

double lab_thread_seconds(void) {
  return clock_seconds(CLOCK_THREAD_CPUTIME_ID);
}

double lab_process_seconds(void) {
  return clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
}
