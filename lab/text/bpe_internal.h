/* SPDX-License-Identifier: MIT
 *
 * Shared by text/bpe.c and text/bpe_learn.c alone.
 */
#ifndef LAB_BPE_INTERNAL_H
#define LAB_BPE_INTERNAL_H

#include "text/bpe.h"
#include "base/strings.h"

typedef struct bpe_word {
  int64_t count; /* in the corpus */
  int32_t *ids;  /* NULL until it is encoded for the first time */
  int32_t ids_count;
} bpe_word;

/* Pair of symbols -> number above 0; open addressing. */
typedef struct bpe_map {
  uint64_t *keys; /* 0 is free: no pair has two zeros, as id 0 is the padding */
  int64_t *values;
  int64_t size, count;
} bpe_map;

struct lab_bpe {
  lab_strings strings; /* the words, each with the space before it ... */
  bpe_word *words;     /* ... and what is known of them */
  int64_t words_capacity;
  char **symbols; /* the bytes of each id */
  int64_t symbols_capacity;
  int32_t size;
  int32_t of_byte[256]; /* 0: not in the corpus */
  bpe_map merges;       /* pair -> id of the merged symbol; smaller ids were learned first */
};

static inline uint64_t bpe_pair_key(int32_t a, int32_t b) {
  return (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
}

int64_t bpe_map_get(const bpe_map *map, uint64_t key); /* 0: not in it */
void bpe_map_set(bpe_map *map, uint64_t key, int64_t value);

#endif
