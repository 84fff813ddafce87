/* SPDX-License-Identifier: MIT
 *
 * What the translating models share: their batches, their sentences as blocks of ids, and BLEU of a test
 * set. */
#ifndef LAB_TRANSLATION_H
#define LAB_TRANSLATION_H

#include "models/model.h"
#include "models/padding.h"

/* Source sentences, each with its end. */
padded_ids pad_sources(tape *t, const coded_pair **pairs, int64_t count, id_layout layout);
/* What a decoder reads (the beginning, then the words) and what it must predict (the words, then the end;
 * -1 beyond). */
typedef struct decoder_ids {
  padded_ids read;
  const int32_t *targets;
} decoder_ids;
decoder_ids pad_targets(tape *t, const coded_pair **pairs, int64_t count, id_layout layout);

/* The shard's training pairs; the examples are sorted by length: dealing them out keeps the shards alike. */
const coded_pair **shard_pairs(model *m, tape *t, const corpus *c, int shard, int64_t *count);
/* Target tokens of the whole batch, ends of sentences included. */
double batch_tokens(const model *m, const corpus *c);
/* Translates the first `count` test sentences in chunks and scores them with BLEU. */
typedef void (*translate_fn)(model *m, tape *t, int shard, const coded_pair *pairs, int64_t count, int64_t limit,
                             int32_t *outputs, int32_t *lengths);
model_score translation_score(model *m, const corpus *c, tape **tapes, const rms_executor *executor,
                              translate_fn translate);

#endif
