/* SPDX-License-Identifier: MIT
 *
 * A table of distinct strings, numbered in order of first appearance.
 */
#ifndef LAB_DATA_STRINGS_H
#define LAB_DATA_STRINGS_H

#include "base/base.h"

typedef struct lab_string {
  char *text; /* length bytes and a NUL */
  size_t length;
  uint64_t hash;
} lab_string;

typedef struct lab_strings {
  lab_string *items;
  int64_t count, capacity;
  int64_t *index; /* open addressing: place in items + 1, 0 is free; the size is a power of two */
  int64_t index_size;
} lab_strings;

/* The number of a string, added if it is new. */
int64_t lab_strings_add(lab_strings *strings, const char *text, size_t length);
void lab_strings_free(lab_strings *strings);

#endif
