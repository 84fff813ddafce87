/* SPDX-License-Identifier: MIT */
#include "models/translation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/bleu.h"

const coded_pair **shard_pairs(model *m, tape *t, const corpus *c, int shard, int64_t *count) {
  const coded_pair **pairs = tape_keep(t, (size_t)m->batches.batch * sizeof *pairs);
  *count = 0;
  for (int64_t i = shard; i < m->batches.batch; i += m->config.shards)
    pairs[(*count)++] = &c->train.items[m->examples[i]];
  return pairs;
}

static id_sequence *sides(tape *t, const coded_pair **pairs, int64_t count, int target) {
  id_sequence *list = tape_keep(t, (size_t)count * sizeof *list);
  for (int64_t b = 0; b < count; b++)
    list[b] = target ? (id_sequence){pairs[b]->target, pairs[b]->target_length}
                     : (id_sequence){pairs[b]->source, pairs[b]->source_length};
  return list;
}

padded_ids pad_sources(tape *t, const coded_pair **pairs, int64_t count, id_layout layout) {
  return pad_ids(t, sides(t, pairs, count, 0), count, (id_frame){NO_MARK, LAB_BPE_EOS, LAB_BPE_PAD}, layout);
}

decoder_ids pad_targets(tape *t, const coded_pair **pairs, int64_t count, id_layout layout) {
  const id_sequence *list = sides(t, pairs, count, 1);
  return (decoder_ids){pad_ids(t, list, count, (id_frame){LAB_BPE_BOS, NO_MARK, LAB_BPE_PAD}, layout),
                       pad_ids(t, list, count, (id_frame){NO_MARK, LAB_BPE_EOS, -1}, layout).ids};
}

double batch_tokens(const model *m, const corpus *c) {
  double tokens = 0;
  for (int64_t i = 0; i < m->batches.batch; i++)
    tokens += c->train.items[m->examples[i]].target_length + 1;
  return tokens;
}

/* ---- BLEU of a test set ---- */

enum { CHUNK = 16 }; /* sentences that are decoded together */

typedef struct translation {
  model *m;
  const corpus *c;
  tape **tapes;
  translate_fn translate;
  int64_t first, count, limit; /* the pairs from `first` on are scored */
  int32_t *outputs, *lengths;
} translation;

static void translate_task(void *arg, int64_t shard) {
  translation *job = arg;
  const coded_pair *items = job->c->test.items + job->first;
  for (int64_t at = shard * CHUNK; at < job->count; at += job->m->config.shards * CHUNK) {
    int64_t count = job->count - at < CHUNK ? job->count - at : CHUNK, longest = 0;
    for (int64_t i = at; i < at + count; i++)
      if (items[i].source_length > longest) longest = items[i].source_length;
    int64_t limit = longest * 3 / 2 + 5 < job->limit ? longest * 3 / 2 + 5 : job->limit;
    int32_t *outputs = lab_alloc((size_t)(count * limit), sizeof *outputs);
    job->translate(job->m, job->tapes[shard], (int)shard, items + at, count, limit, outputs, job->lengths + at);
    for (int64_t i = 0; i < count; i++)
      memcpy(job->outputs + (at + i) * job->limit, outputs + i * limit, (size_t)job->lengths[at + i] * sizeof *outputs);
    free(outputs);
  }
}

model_score translation_score(model *m, const corpus *c, tape **tapes, const rms_executor *executor,
                              translate_fn translate) {
  translation job = {.m = m, .c = c, .tapes = tapes, .translate = translate, .limit = 80};
  job.first = model_first_tested(m, c->test.count);
  job.count = c->test.count - job.first;
  job.outputs = lab_alloc((size_t)(job.count * job.limit), sizeof *job.outputs);
  job.lengths = lab_alloc((size_t)job.count, sizeof *job.lengths);
  run_tasks(executor, m->config.shards, translate_task, &job);
  lab_bleu_counts counts = {0};
  for (int64_t i = 0; i < job.count; i++) {
    char *text = lab_bpe_decode(c->bpe, job.outputs + i * job.limit, job.lengths[i]);
    lab_bleu_add(&counts, text, c->test.texts[job.first + i].target);
    free(text);
  }
  lab_bleu bleu = lab_bleu_score(&counts);
  model_score score = {.quality = bleu.score, .chance = 0};
  snprintf(score.details, sizeof score.details, "%lld sentences, beam %lld, 1-grams %.1f %%, brevity %.2f",
           (long long)job.count, (long long)m->config.sizes.beam, bleu.precision[0], bleu.brevity);
  free(job.outputs);
  free(job.lengths);
  return score;
}
