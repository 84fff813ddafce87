/* SPDX-License-Identifier: MIT
 *
 * safetensors files: a list of named matrices and of notes (string metadata).
 */
#ifndef LAB_SAFETENSORS_H
#define LAB_SAFETENSORS_H

#include "base/base.h"

typedef struct safetensor {
  char name[96], dtype[8];
  int64_t rows, cols;
  const void *data;
  int64_t bytes;
} safetensor;

typedef struct safetensors {
  safetensor *items;
  int64_t count, capacity;
  char **notes; /* key, value, key, value, ... */
  int64_t note_count, note_capacity;
  char *file; /* what was read; the data lies in it */
} safetensors;

void safetensors_note(safetensors *s, const char *key, const char *value); /* copies */
const char *safetensors_noted(const safetensors *s, const char *key);      /* NULL: no such note */
/* The data stays the caller's. */
void safetensors_add(safetensors *s, const char *name, const char *dtype, int64_t rows, int64_t cols, const void *data,
                     int64_t element_bytes);
const safetensor *safetensors_find(const safetensors *s, const char *name); /* NULL: no such tensor */

/* Written beside its name first, then renamed. */
int safetensors_write(const safetensors *s, const char *path, lab_error *error);
/* Reads files of one- and two-dimensional tensors; every offset is checked. */
int safetensors_read(safetensors *s, const char *path, lab_error *error);
void safetensors_free(safetensors *s);

#endif
