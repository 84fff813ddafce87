/* SPDX-License-Identifier: MIT
 *
 * The encoder-decoder Transformer of Vaswani et al.: sinusoidal positions, one embedding for both sides and the output,
 * ReLU feed-forward layers; the norm after each residual sum, or before each sub-layer. Sequences are batch-major here:
 * row b*length + t.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/beam.h"
#include "models/stack.h"
#include "models/translation.h"

typedef struct transformer {
  const corpus *c;
  int64_t embedding;
  stack encoder, decoder;
  real *positions;
} transformer;

enum { MOST_POSITIONS = 256 };

/* ---- encoding ---- */

static tensor *embed(model *m, net *n, const int32_t *ids, int64_t rows, int64_t length) {
  transformer *s = m->state;
  double scale = sqrt((double)m->config.sizes.width);
  tensor *x = op_embed(n->t, net_param(n, s->embedding), ids, rows * length, (real)scale);
  return op_dropout(n->t, op_add_positions(n->t, x, s->positions, length), m->config.sizes.dropout);
}

typedef struct memory {
  tensor *x;
  int64_t batch, length;
  const int32_t *lengths;
} memory;

static memory encode(model *m, net *n, const coded_pair **pairs, int64_t count) {
  transformer *s = m->state;
  padded_ids source = pad_sources(n->t, pairs, count, BATCH_MAJOR);
  memory mem = {.batch = count, .length = source.steps, .lengths = source.lengths};
  attention_shape shape = {count, mem.length, mem.length, m->config.sizes.heads, mem.lengths, 0};
  mem.x = stack_run(n, &s->encoder, embed(m, n, source.ids, count, mem.length), &shape, NULL, NULL);
  return mem;
}

/* ---- training ---- */

static tensor *decode_training(model *m, net *n, const coded_pair **pairs, int64_t count, const memory *mem) {
  transformer *s = m->state;
  decoder_ids target = pad_targets(n->t, pairs, count, BATCH_MAJOR);
  int64_t length = target.read.steps, heads = m->config.sizes.heads;
  attention_shape self = {count, length, length, heads, NULL, 1};
  attention_shape cross = {count, length, mem->length, heads, mem->lengths, 0};
  cross_memory *cm = stack_memory(n, &s->decoder, mem->x);
  tensor *y = stack_run(n, &s->decoder, embed(m, n, target.read.ids, count, length), &self, &cross, cm);
  tensor *logits = op_logits(n->t, y, net_param(n, s->embedding));
  return op_cross_entropy(n->t, logits, target.targets, m->config.sizes.smoothing, 1 / batch_tokens(m, s->c));
}

static tensor *loss(model *m, tape *t, int shard) {
  net n = model_net(m, t, shard);
  int64_t count;
  const coded_pair **pairs = shard_pairs(m, t, ((transformer *)m->state)->c, shard, &count);
  memory mem = encode(m, &n, pairs, count);
  return decode_training(m, &n, pairs, count, &mem);
}

/* ---- translation: each step runs the decoder over the whole prefixes ---- */

typedef struct decoding {
  model *m;
  tape *t;
  int shard;
  memory mem;
  cross_memory *cross; /* of the sentences; hypotheses of one sentence share it */
} decoding;

static void decode_step(void *ctx, const int64_t *parents, const int32_t *prefixes, int64_t stride, int64_t length,
                        int64_t rows, real *log_probabilities) {
  (void)parents;
  decoding *d = ctx;
  transformer *s = d->m->state;
  tape_reset(d->t, 0, 0);
  net n = model_net(d->m, d->t, d->shard);
  int32_t *ids = tape_keep(d->t, (size_t)(rows * length) * sizeof *ids);
  for (int64_t row = 0; row < rows; row++)
    memcpy(ids + row * length, prefixes + row * stride, (size_t)length * sizeof *ids);
  int64_t heads = d->m->config.sizes.heads, beam = rows / d->mem.batch;
  attention_shape self = {rows, length, length, heads, NULL, 1};
  /* All hypotheses of a sentence are queries to the same memory. */
  attention_shape cross = {d->mem.batch, beam * length, d->mem.length, heads, d->mem.lengths, 0};
  tensor *y = stack_run(&n, &s->decoder, embed(d->m, &n, ids, rows, length), &self, &cross, d->cross);
  int64_t width = y->cols;
  tensor last = {y->v + (length - 1) * width, y->g, rows, width, length * width};
  tensor *logits = op_logits(d->t, &last, net_param(&n, s->embedding));
  memcpy(log_probabilities, logits->v, (size_t)(rows * logits->cols) * sizeof(real));
  log_softmax_rows(log_probabilities, rows, logits->cols);
}

static void translate(model *m, tape *t, int shard, const coded_pair *pairs, int64_t count, int64_t limit,
                      int32_t *outputs, int32_t *lengths) {
  transformer *s = m->state;
  tape *fixed = tape_create(); /* holds what the steps share */
  net n = model_net(m, fixed, shard);
  const coded_pair **list = tape_keep(fixed, (size_t)count * sizeof *list);
  for (int64_t i = 0; i < count; i++)
    list[i] = &pairs[i];
  decoding d = {m, t, shard, encode(m, &n, list, count), NULL};
  d.cross = stack_memory(&n, &s->decoder, d.mem.x);
  beam_decoder decoder = {&d, s->c->vocabulary, decode_step};
  beam_search(&decoder, count, m->config.sizes.beam, limit, outputs, lengths);
  tape_free(fixed);
}

static model_score evaluate(model *m, tape **tapes, const rms_executor *executor) {
  transformer *s = m->state;
  return translation_score(m, s->c, tapes, executor, translate);
}

static void free_state(void *state) {
  transformer *s = state;
  stack_free(&s->encoder);
  stack_free(&s->decoder);
  free(s->positions);
}

static const model_kind transformer_kind = {.family = "transformer",
                                            .metric = "BLEU",
                                            .higher_is_better = 1,
                                            .state_bytes = sizeof(transformer),
                                            .loss = loss,
                                            .evaluate = evaluate,
                                            .free = free_state};

model *transformer_create(const model_config *config, const corpus *c) {
  model *m = model_start(&transformer_kind, config);
  transformer *s = m->state;
  int64_t width = config->sizes.width;
  s->c = c;
  model_batches(m, c->train.count, pair_lengths(&c->train));
  s->positions = position_table(MOST_POSITIONS, width);
  s->embedding = params_uniform(&m->params, "embedding", c->vocabulary, width, sqrt(3.0 / (double)width));
  s->encoder = declare_stack(&m->params, "encoder", &config->norm, &config->sizes, 0);
  s->decoder = declare_stack(&m->params, "decoder", &config->norm, &config->sizes, 1);
  return model_finish(m);
}
