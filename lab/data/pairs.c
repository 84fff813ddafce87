/* SPDX-License-Identifier: MIT
 *
 * The set of pairs, parallel text files, and the split. Catalogues: data/catalogue.c; cleaning:
 * data/clean.c. */
#define _POSIX_C_SOURCE 200809L
#include "data/pairs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lab_pairs_add(lab_pairs *pairs, const char *source, const char *target) {
  pairs->items = lab_grow(pairs->items, &pairs->capacity, pairs->count + 1, sizeof *pairs->items);
  pairs->items[pairs->count++] = (lab_pair){lab_copy(source, strlen(source)), lab_copy(target, strlen(target))};
}

void lab_pairs_free(lab_pairs *pairs) {
  for (int64_t i = 0; i < pairs->count; i++) {
    free(pairs->items[i].source);
    free(pairs->items[i].target);
  }
  free(pairs->items);
  *pairs = (lab_pairs){0};
}

static int read_lines(char **bytes, int64_t *size, int64_t *lines, const char *path, lab_error *error) {
  if (lab_read_file(bytes, size, path, error) < 0) return -1;
  const char *reason = *size == 0 ? "empty file" : lab_is_text(*bytes, *size) ? NULL : "not UTF-8 text";
  if (reason) {
    free(*bytes);
    return lab_fail(error, "%s: %s", path, reason);
  }
  *lines = (*bytes)[*size - 1] != '\n';
  for (int64_t i = 0; i < *size; i++)
    *lines += (*bytes)[i] == '\n';
  return 0;
}

/* Ends the line at *cursor with a NUL (also in place of a carriage return) and moves on to the next. */
static char *take_line(char **cursor) {
  char *line = *cursor, *end = strchr(line, '\n');
  *cursor = end ? end + 1 : line + strlen(line);
  if (end) *end = 0;
  size_t length = strlen(line);
  if (length > 0 && line[length - 1] == '\r') line[length - 1] = 0;
  return line;
}

static const char *file_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

int lab_pairs_read_text(lab_pairs *pairs, const char *source_path, const char *target_path, lab_error *error) {
  char *source, *target;
  int64_t source_size, target_size, source_lines, target_lines;
  if (read_lines(&source, &source_size, &source_lines, source_path, error) < 0) return -1;
  if (read_lines(&target, &target_size, &target_lines, target_path, error) < 0) {
    free(source);
    return -1;
  }
  int status = 0;
  if (source_lines != target_lines) {
    status = lab_fail(error, "%s has %" PRId64 " lines but %s has %" PRId64, source_path, source_lines, target_path,
                      target_lines);
  } else {
    char *s = source, *t = target;
    for (int64_t i = 0; i < source_lines; i++) {
      const char *source_line = take_line(&s), *target_line = take_line(&t);
      if (*source_line && *target_line) lab_pairs_add(pairs, source_line, target_line);
    }
    pairs->files += 2;
    snprintf(pairs->origin, sizeof pairs->origin, "%.70s + %.70s", file_name(source_path), file_name(target_path));
  }
  free(source);
  free(target);
  return status;
}

static int by_text(const void *a, const void *b) {
  const lab_pair *x = a, *y = b;
  int order = strcmp(x->source, y->source);
  return order ? order : strcmp(x->target, y->target);
}

static void shuffle(lab_pair *items, int64_t count, uint64_t seed) {
  lab_rng rng = lab_rng_make(seed, lab_hash(LAB_HASH_START, "pairs", 5));
  for (int64_t i = count - 1; i > 0; i--) {
    int64_t j = lab_rng_below(&rng, i + 1);
    lab_pair swap = items[i];
    items[i] = items[j];
    items[j] = swap;
  }
}

lab_pairs_split lab_pairs_cut(lab_pairs *pairs, uint64_t seed, int64_t dev, int64_t test) {
  if (pairs->count > 0) qsort(pairs->items, (size_t)pairs->count, sizeof *pairs->items, by_text);
  shuffle(pairs->items, pairs->count, seed);
  if (dev > pairs->count / 10) dev = pairs->count / 10;
  if (test > pairs->count / 10) test = pairs->count / 10;
  int64_t train = pairs->count - dev - test;
  const lab_pair *items = pairs->items;
  if (!items) return (lab_pairs_split){0};
  return (lab_pairs_split){{items, train}, {items + train + test, dev}, {items + train, test}};
}
