/* SPDX-License-Identifier: MIT */
#include "base/strings.h"

#include <stdlib.h>
#include <string.h>

static int64_t first_place(const lab_strings *strings, uint64_t hash) {
  return (int64_t)(hash & (uint64_t)(strings->index_size - 1));
}

static int64_t next_place(const lab_strings *strings, int64_t place) {
  return (place + 1) & (strings->index_size - 1);
}

static void widen_index(lab_strings *strings) {
  free(strings->index);
  strings->index_size = strings->index_size ? strings->index_size * 2 : 1024;
  strings->index = lab_alloc((size_t)strings->index_size, sizeof *strings->index);
  for (int64_t i = 0; i < strings->count; i++) {
    int64_t place = first_place(strings, strings->items[i].hash);
    while (strings->index[place])
      place = next_place(strings, place);
    strings->index[place] = i + 1;
  }
}

int64_t lab_strings_add(lab_strings *strings, const char *text, size_t length) {
  if (2 * strings->count >= strings->index_size) widen_index(strings);
  uint64_t hash = lab_hash(LAB_HASH_START, text, length);
  int64_t place = first_place(strings, hash);
  for (; strings->index[place]; place = next_place(strings, place)) {
    const lab_string *known = &strings->items[strings->index[place] - 1];
    if (known->hash == hash && known->length == length && memcmp(known->text, text, length) == 0)
      return strings->index[place] - 1;
  }
  strings->items = lab_grow(strings->items, &strings->capacity, strings->count + 1, sizeof *strings->items);
  strings->items[strings->count] = (lab_string){lab_copy(text, length), length, hash};
  strings->index[place] = strings->count + 1;
  return strings->count++;
}

void lab_strings_free(lab_strings *strings) {
  for (int64_t i = 0; i < strings->count; i++)
    free(strings->items[i].text);
  free(strings->items);
  free(strings->index);
  *strings = (lab_strings){0};
}
