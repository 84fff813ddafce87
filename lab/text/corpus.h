/* SPDX-License-Identifier: MIT
 *
 * Encoded sentence pairs and the order in which training sees them.
 */
#ifndef LAB_CORPUS_H
#define LAB_CORPUS_H

#include "text/bpe.h"
#include "data/pairs.h"

/* Ids without marks; the target is framed by BOS and EOS where a model needs it. */
typedef struct coded_pair {
  const int32_t *source, *target;
  int32_t source_length, target_length;
} coded_pair;

typedef struct coded_set {
  coded_pair *items;
  int64_t count;
  const lab_pair *texts; /* as before encoding: the references of BLEU */
} coded_set;

typedef struct corpus {
  lab_pairs pairs;
  lab_bpe *bpe; /* one vocabulary for both sides */
  int64_t vocabulary;
  coded_set train, test;
  int32_t *ids;
} corpus;

/* Takes over the pairs: cuts them by seed, learns the subwords from the training part and encodes all three. Sides
 * longer than max_ids ids are cut off there (in training only: the texts stay whole). */
int corpus_make(corpus *c, lab_pairs *pairs, uint64_t seed, int32_t merges, int32_t max_ids, int64_t held_out,
                lab_error *error);
void corpus_free(corpus *c);

/* A sort key per pair: by target, then by source length. Free it. */
int32_t *pair_lengths(const coded_set *set);

/* Batches of examples of like length. Which examples step n sees is a function of the seed and n alone. */
typedef struct batcher {
  int64_t count, batch;
  uint64_t seed;
  const int32_t *lengths; /* sort key per example; NULL: any order */
  int64_t epoch;          /* of `order`; -1: none yet              */
  int64_t *order;
} batcher;

batcher batcher_make(int64_t count, int64_t batch, const int32_t *lengths, uint64_t seed);
/* The examples of a step (1, 2, ...): `batch` indices. */
const int64_t *batcher_step(batcher *b, int64_t step);
void batcher_free(batcher *b);

#endif
