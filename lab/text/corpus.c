/* SPDX-License-Identifier: MIT */
#include "text/corpus.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int32_t encode(corpus *c, const char *line, int32_t max_ids, int64_t *used) {
  int64_t count = lab_bpe_encode(c->bpe, line, c->ids + *used, max_ids);
  if (count > max_ids) count = max_ids;
  *used += count;
  return (int32_t)count;
}

static coded_set encode_slice(corpus *c, const lab_pairs_slice *slice, int32_t max_ids, int64_t *used) {
  coded_set set = {lab_alloc((size_t)slice->count + 1, sizeof(coded_pair)), slice->count, slice->items};
  for (int64_t i = 0; i < slice->count; i++) {
    coded_pair *pair = &set.items[i];
    pair->source = c->ids + *used;
    pair->source_length = encode(c, slice->items[i].source, max_ids, used);
    pair->target = c->ids + *used;
    pair->target_length = encode(c, slice->items[i].target, max_ids, used);
  }
  return set;
}

int corpus_make(corpus *c, lab_pairs *pairs, uint64_t seed, int32_t merges, int32_t max_ids, int64_t held_out,
                lab_error *error) {
  *c = (corpus){.pairs = *pairs};
  *pairs = (lab_pairs){0};
  lab_pairs_split split = lab_pairs_cut(&c->pairs, seed, held_out, held_out);
  if (split.train.count < 1 || split.test.count < 1) {
    lab_fail(error, "%s: %" PRId64 " usable sentence pairs are too few to train and test on", c->pairs.origin,
             c->pairs.count);
    lab_pairs_free(&c->pairs);
    return -1;
  }
  c->bpe = lab_bpe_create();
  for (int64_t i = 0; i < split.train.count; i++) {
    lab_bpe_count_line(c->bpe, split.train.items[i].source);
    lab_bpe_count_line(c->bpe, split.train.items[i].target);
  }
  lab_bpe_learn(c->bpe, merges);
  c->vocabulary = lab_bpe_size(c->bpe);
  c->ids = lab_alloc((size_t)(c->pairs.count * 2 * max_ids), sizeof *c->ids);
  int64_t used = 0;
  c->train = encode_slice(c, &split.train, max_ids, &used);
  c->test = encode_slice(c, &split.test, max_ids, &used);
  return 0;
}

void corpus_free(corpus *c) {
  free(c->train.items);
  free(c->test.items);
  free(c->ids);
  lab_bpe_free(c->bpe);
  lab_pairs_free(&c->pairs);
  *c = (corpus){0};
}

int32_t *pair_lengths(const coded_set *set) {
  int32_t *lengths = lab_alloc((size_t)set->count, sizeof *lengths);
  for (int64_t i = 0; i < set->count; i++)
    lengths[i] = set->items[i].target_length * 4096 + set->items[i].source_length;
  return lengths;
}

/* ---- batches ---- */

enum { POOL = 16 }; /* batches that are sorted by length together */

batcher batcher_make(int64_t count, int64_t batch, const int32_t *lengths, uint64_t seed) {
  return (batcher){.count = count, .batch = batch, .lengths = lengths, .seed = seed, .epoch = -1};
}

void batcher_free(batcher *b) {
  free(b->order);
  b->order = NULL;
}

typedef struct keyed {
  int32_t key;
  int64_t index;
} keyed;

static int by_key(const void *a, const void *b) {
  const keyed *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static void swap_blocks(int64_t *order, int64_t i, int64_t j, int64_t length) {
  for (int64_t k = 0; k < length; k++) {
    int64_t hold = order[i * length + k];
    order[i * length + k] = order[j * length + k];
    order[j * length + k] = hold;
  }
}

static void shuffle_blocks(int64_t *order, int64_t blocks, int64_t length, lab_rng *rng) {
  for (int64_t i = blocks - 1; i > 0; i--)
    swap_blocks(order, i, lab_rng_below(rng, i + 1), length);
}

static void sort_by_length(const batcher *b, int64_t *order, int64_t count) {
  keyed *items = lab_alloc((size_t)count, sizeof *items);
  for (int64_t i = 0; i < count; i++)
    items[i] = (keyed){b->lengths[order[i]], order[i]};
  qsort(items, (size_t)count, sizeof *items, by_key);
  for (int64_t i = 0; i < count; i++)
    order[i] = items[i].index;
  free(items);
}

static void make_epoch(batcher *b, int64_t epoch) {
  lab_rng rng = lab_rng_make(b->seed, (uint64_t)epoch);
  if (b->order == NULL) b->order = lab_alloc((size_t)b->count, sizeof *b->order);
  for (int64_t i = 0; i < b->count; i++)
    b->order[i] = i;
  shuffle_blocks(b->order, b->count, 1, &rng);
  for (int64_t i = 0; b->lengths != NULL && i < b->count; i += POOL * b->batch) {
    int64_t left = b->count - i;
    sort_by_length(b, b->order + i, left < POOL * b->batch ? left : POOL * b->batch);
  }
  if (b->lengths != NULL) shuffle_blocks(b->order, b->count / b->batch, b->batch, &rng);
  b->epoch = epoch;
}

const int64_t *batcher_step(batcher *b, int64_t step) {
  int64_t batches = b->count / b->batch, epoch = (step - 1) / batches;
  if (epoch != b->epoch) make_epoch(b, epoch);
  return b->order + (step - 1) % batches * b->batch;
}
