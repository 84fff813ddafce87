/* SPDX-License-Identifier: MIT
 *
 * Learning the merges. All pairs of neighbours are counted once; each merge then touches only the words that hold the
 * pair. A heap gives the most frequent pair; its entries may be out of date (counts fall as neighbours are merged away)
 * and are put right when they come up.
 */
#include "text/bpe_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- Map from pairs ---- */

static int64_t place_of(const bpe_map *map, uint64_t key) {
  uint64_t mask = (uint64_t)map->size - 1, place = (key * 0x9e3779b97f4a7c15u >> 20) & mask;
  while (map->keys[place] && map->keys[place] != key)
    place = (place + 1) & mask;
  return (int64_t)place;
}

int64_t bpe_map_get(const bpe_map *map, uint64_t key) {
  if (map->size == 0) return 0;
  int64_t place = place_of(map, key);
  return map->keys[place] ? map->values[place] : 0;
}

void bpe_map_set(bpe_map *map, uint64_t key, int64_t value) {
  if (2 * map->count >= map->size) {
    bpe_map wider = {.size = map->size ? 2 * map->size : 1024};
    wider.keys = lab_alloc((size_t)wider.size, sizeof *wider.keys);
    wider.values = lab_alloc((size_t)wider.size, sizeof *wider.values);
    for (int64_t i = 0; i < map->size; i++)
      if (map->keys[i]) bpe_map_set(&wider, map->keys[i], map->values[i]);
    free(map->keys);
    free(map->values);
    *map = wider;
  }
  int64_t place = place_of(map, key);
  if (!map->keys[place]) map->count++;
  map->keys[place] = key;
  map->values[place] = value;
}

/* ---- Counts of pairs ---- */

typedef struct pair {
  int32_t left, right;
  int64_t count;
  int64_t *words; /* that hold it or held it once; a word may be listed twice */
  int64_t words_count, words_capacity;
} pair;

typedef struct spelling { /* of a word, in the symbols of the moment */
  int32_t *ids;
  int32_t length;
} spelling;

typedef struct heap_entry {
  int64_t count, pair;
} heap_entry;

typedef struct learner {
  lab_bpe *bpe;
  spelling *spellings;
  pair *pairs; /* in order of first appearance, which breaks ties */
  int64_t pairs_count, pairs_capacity;
  bpe_map pair_of; /* key -> index in pairs + 1 */
  heap_entry *heap;
  int64_t heap_count, heap_capacity;
} learner;

static int comes_first(heap_entry a, heap_entry b) {
  return a.count != b.count ? a.count > b.count : a.pair < b.pair;
}

static void heap_push(learner *l, heap_entry entry) {
  l->heap = lab_grow(l->heap, &l->heap_capacity, l->heap_count + 1, sizeof *l->heap);
  int64_t i = l->heap_count++;
  for (; i > 0 && comes_first(entry, l->heap[(i - 1) / 2]); i = (i - 1) / 2)
    l->heap[i] = l->heap[(i - 1) / 2];
  l->heap[i] = entry;
}

static heap_entry heap_pop(learner *l) {
  heap_entry top = l->heap[0], last = l->heap[--l->heap_count];
  int64_t i = 0;
  for (int64_t child = 1; child < l->heap_count; child = 2 * i + 1) {
    if (child + 1 < l->heap_count && comes_first(l->heap[child + 1], l->heap[child])) child++;
    if (!comes_first(l->heap[child], last)) break;
    l->heap[i] = l->heap[child];
    i = child;
  }
  if (l->heap_count > 0) l->heap[i] = last;
  return top;
}

static void count_pair(learner *l, int32_t left, int32_t right, int64_t word, int64_t change) {
  uint64_t key = bpe_pair_key(left, right);
  int64_t index = bpe_map_get(&l->pair_of, key) - 1;
  if (index < 0) {
    l->pairs = lab_grow(l->pairs, &l->pairs_capacity, l->pairs_count + 1, sizeof *l->pairs);
    index = l->pairs_count++;
    l->pairs[index] = (pair){.left = left, .right = right};
    bpe_map_set(&l->pair_of, key, index + 1);
  }
  pair *p = &l->pairs[index];
  p->count += change;
  if (change > 0 && (p->words_count == 0 || p->words[p->words_count - 1] != word)) {
    p->words = lab_grow(p->words, &p->words_capacity, p->words_count + 1, sizeof *p->words);
    p->words[p->words_count++] = word;
  }
}

static void count_word(learner *l, int64_t word, int sign) {
  const spelling *s = &l->spellings[word];
  for (int32_t i = 0; i + 1 < s->length; i++)
    count_pair(l, s->ids[i], s->ids[i + 1], word, sign * l->bpe->words[word].count);
}

static int holds(const spelling *s, int32_t left, int32_t right) {
  for (int32_t i = 0; i + 1 < s->length; i++)
    if (s->ids[i] == left && s->ids[i + 1] == right) return 1;
  return 0;
}

static void respell(spelling *s, int32_t left, int32_t right, int32_t merged) {
  int32_t out = 0;
  for (int32_t i = 0; i < s->length; out++) {
    int fits = i + 1 < s->length && s->ids[i] == left && s->ids[i + 1] == right;
    s->ids[out] = fits ? merged : s->ids[i];
    i += fits ? 2 : 1;
  }
  s->length = out;
}

/* ---- Symbols ---- */

static int32_t add_symbol(lab_bpe *bpe, const char *first, const char *second) {
  size_t a = strlen(first), b = strlen(second);
  bpe->symbols = lab_grow(bpe->symbols, &bpe->symbols_capacity, bpe->size + 1, sizeof *bpe->symbols);
  char *text = lab_alloc(a + b + 1, 1);
  memcpy(text, first, a);
  memcpy(text + a, second, b);
  bpe->symbols[bpe->size] = text;
  return bpe->size++;
}

static void add_first_symbols(lab_bpe *bpe) {
  static const char *const marks[LAB_BPE_FIRST] = {"<pad>", "<s>", "</s>", "<unk>"};
  for (int i = 0; i < LAB_BPE_FIRST; i++)
    add_symbol(bpe, marks[i], "");
  char seen[256] = {0};
  for (int64_t w = 0; w < bpe->strings.count; w++)
    for (size_t i = 0; i < bpe->strings.items[w].length; i++)
      seen[(unsigned char)bpe->strings.items[w].text[i]] = 1;
  for (int byte = 1; byte < 256; byte++)
    if (seen[byte]) bpe->of_byte[byte] = add_symbol(bpe, (char[]){(char)byte, 0}, "");
}

/* ---- Learning ---- */

static void start(learner *l, lab_bpe *bpe) {
  *l = (learner){.bpe = bpe, .spellings = lab_alloc((size_t)bpe->strings.count, sizeof *l->spellings)};
  for (int64_t w = 0; w < bpe->strings.count; w++) {
    const lab_string *word = &bpe->strings.items[w];
    spelling *s = &l->spellings[w];
    s->ids = lab_alloc(word->length, sizeof *s->ids);
    s->length = (int32_t)word->length;
    for (size_t i = 0; i < word->length; i++)
      s->ids[i] = bpe->of_byte[(unsigned char)word->text[i]];
    count_word(l, w, 1);
  }
  for (int64_t i = 0; i < l->pairs_count; i++)
    heap_push(l, (heap_entry){l->pairs[i].count, i});
}

static void merge(learner *l, int64_t index) {
  pair p = l->pairs[index];
  lab_bpe *bpe = l->bpe;
  int32_t merged = add_symbol(bpe, bpe->symbols[p.left], bpe->symbols[p.right]);
  bpe_map_set(&bpe->merges, bpe_pair_key(p.left, p.right), merged);
  /* Only pairs with the new symbol can gain, and they are all new. The list of words is this pair's own copy: counting
   * may move the table of pairs, but never adds to this pair, which no respelled word holds. */
  int64_t known = l->pairs_count;
  for (int64_t i = 0; i < p.words_count; i++) {
    spelling *s = &l->spellings[p.words[i]];
    if (!holds(s, p.left, p.right)) continue;
    count_word(l, p.words[i], -1);
    respell(s, p.left, p.right, merged);
    count_word(l, p.words[i], 1);
  }
  for (int64_t i = known; i < l->pairs_count; i++)
    heap_push(l, (heap_entry){l->pairs[i].count, i});
}

void lab_bpe_learn(lab_bpe *bpe, int32_t merges) {
  learner l;
  add_first_symbols(bpe);
  start(&l, bpe);
  for (int32_t done = 0; done < merges && l.heap_count > 0;) {
    heap_entry top = heap_pop(&l);
    int64_t now = l.pairs[top.pair].count;
    if (now < 2) continue;
    if (now != top.count) {
      heap_push(&l, (heap_entry){now, top.pair});
      continue;
    }
    merge(&l, top.pair);
    done++;
  }
  for (int64_t w = 0; w < bpe->strings.count; w++)
    free(l.spellings[w].ids);
  free(l.spellings);
  for (int64_t i = 0; i < l.pairs_count; i++)
    free(l.pairs[i].words);
  free(l.pairs);
  free(l.pair_of.keys);
  free(l.pair_of.values);
  free(l.heap);
}
