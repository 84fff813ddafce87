/* SPDX-License-Identifier: MIT
 *
 * RNNSearch as in Nematus: bidirectional GRU encoder; a decoder step is a GRU over the previous word, attention with
 * its state, a second GRU over the context; the output layer sees state, previous word and context. Every projection of
 * a recurrent or feed-forward layer is normalised, the gates of a GRU with one statistic. Sequences are
 * time-major. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/beam.h"
#include "models/translation.h"

typedef struct rnnsearch {
  const corpus *c;
  int64_t source_embedding, target_embedding;
  gru_layer forward, backward; /* encoder */
  projection start;            /* annotations' mean -> first state */
  gru_layer word, context;     /* the two halves of a decoder step */
  projection key, query;
  int64_t score;
  projection out_state, out_word, out_context;
  linear_layer output;
} rnnsearch;

/* What the decoder reads. */
typedef struct annotations {
  sequence s;
  tensor *states, *keys, *start;
} annotations;

static annotations encode(model *m, net *n, const coded_pair **pairs, int64_t count) {
  rnnsearch *s = m->state;
  padded_ids source = pad_sources(n->t, pairs, count, TIME_MAJOR);
  int64_t steps = source.steps, width = m->config.sizes.width;
  annotations a = {.s = make_sequence(n->t, source.lengths, count, steps)};
  tensor *x = op_embed(n->t, net_param(n, s->source_embedding), source.ids, count * steps, 1);
  x = op_dropout(n->t, x, m->config.sizes.dropout);
  a.states = tape_tensor(n->t, steps * count, 2 * width);
  gru_run(n, &s->forward, x, &a.s, FORWARD, tape_view(n->t, a.states, 0, steps * count, 0, width));
  gru_run(n, &s->backward, x, &a.s, BACKWARD, tape_view(n->t, a.states, 0, steps * count, width, width));
  a.keys = project(n, &s->key, a.states);
  a.start = op_tanh(n->t, project(n, &s->start, op_mean_steps(n->t, a.states, count, a.s.lengths)));
  return a;
}

/* One decoder step: writes the new state and context into the given windows. */
typedef struct decoder_step {
  tensor *word; /* projection of the previous word, batch x 3*width */
  tensor *state, *next, *context;
  const unsigned char *active;
} decoder_step;

static void run_decoder_step(model *m, net *n, const annotations *a, decoder_step *d) {
  rnnsearch *s = m->state;
  tensor *middle = tape_tensor(n->t, d->state->rows, d->state->cols);
  gru_step(n, &s->word, d->word, d->state, d->active, middle);
  tensor *query = project(n, &s->query, middle);
  d->context = op_additive_attention(n->t, query, a->keys, a->states, net_param(n, s->score), a->s.lengths);
  gru_step(n, &s->context, project(n, &s->context.input, d->context), middle, d->active, d->next);
}

static tensor *readout(model *m, net *n, tensor *states, tensor *words, tensor *contexts) {
  rnnsearch *s = m->state;
  tensor *sum = op_add(n->t, project(n, &s->out_state, states), project(n, &s->out_word, words));
  sum = op_tanh(n->t, op_add(n->t, sum, project(n, &s->out_context, contexts)));
  return linear(n, &s->output, op_dropout(n->t, sum, m->config.sizes.dropout), ACT_NONE);
}

static tensor *decode_training(model *m, net *n, const coded_pair **pairs, int64_t count, const annotations *a) {
  rnnsearch *s = m->state;
  decoder_ids target = pad_targets(n->t, pairs, count, TIME_MAJOR);
  int64_t steps = target.read.steps, width = m->config.sizes.width;
  sequence sq = make_sequence(n->t, target.read.lengths, count, steps);
  tensor *words = op_embed(n->t, net_param(n, s->target_embedding), target.read.ids, count * steps, 1);
  words = op_dropout(n->t, words, m->config.sizes.dropout);
  tensor *projected = project(n, &s->word.input, words);
  tensor *states = tape_tensor(n->t, count * steps, width);
  tensor *state = a->start;
  tensor **context = tape_keep(n->t, (size_t)steps * sizeof *context);
  for (int64_t i = 0; i < steps; i++) {
    decoder_step d = {tape_view(n->t, projected, i * count, count, 0, 3 * width), state,
                      tape_view(n->t, states, i * count, count, 0, width), NULL, sq.active + i * count};
    run_decoder_step(m, n, a, &d);
    state = d.next;
    context[i] = d.context;
  }
  tensor *contexts = op_stack_rows(n->t, context, steps);
  tensor *logits = readout(m, n, states, words, contexts);
  return op_cross_entropy(n->t, logits, target.targets, m->config.sizes.smoothing, 1 / batch_tokens(m, s->c));
}

static tensor *loss(model *m, tape *t, int shard) {
  net n = model_net(m, t, shard);
  int64_t count;
  const coded_pair **pairs = shard_pairs(m, t, ((rnnsearch *)m->state)->c, shard, &count);
  annotations a = encode(m, &n, pairs, count);
  return decode_training(m, &n, pairs, count, &a);
}

/* ---- translation ---- */

typedef struct decoding {
  model *m;
  tape *t;
  int shard;
  annotations a; /* one row per hypothesis */
  real *state;   /* rows x width           */
} decoding;

static void decode_step(void *ctx, const int64_t *parents, const int32_t *prefixes, int64_t stride, int64_t length,
                        int64_t rows, real *log_probabilities) {
  decoding *d = ctx;
  rnnsearch *s = d->m->state;
  int64_t width = d->m->config.sizes.width;
  tape_reset(d->t, 0, 0);
  net n = model_net(d->m, d->t, d->shard);
  int32_t *ids = tape_keep(d->t, (size_t)rows * sizeof *ids);
  unsigned char *active = tape_keep(d->t, (size_t)rows);
  tensor *state = tape_tensor(d->t, rows, width);
  for (int64_t row = 0; row < rows; row++) {
    ids[row] = prefixes[row * stride + length - 1];
    active[row] = 1;
    memcpy(state->v + row * width, d->state + parents[row] * width, (size_t)width * sizeof(real));
  }
  tensor *words = op_embed(d->t, net_param(&n, s->target_embedding), ids, rows, 1);
  decoder_step step = {project(&n, &s->word.input, words), state, tape_tensor(d->t, rows, width), NULL, active};
  run_decoder_step(d->m, &n, &d->a, &step);
  tensor *logits = readout(d->m, &n, step.next, words, step.context);
  memcpy(d->state, step.next->v, (size_t)(rows * width) * sizeof(real));
  memcpy(log_probabilities, logits->v, (size_t)(rows * logits->cols) * sizeof(real));
  log_softmax_rows(log_probabilities, rows, logits->cols);
}

static void translate(model *m, tape *t, int shard, const coded_pair *pairs, int64_t count, int64_t limit,
                      int32_t *outputs, int32_t *lengths) {
  rnnsearch *s = m->state;
  int64_t beam = m->config.sizes.beam, rows = count * beam, width = m->config.sizes.width;
  tape *fixed = tape_create(); /* holds what the steps share */
  net n = model_net(m, fixed, shard);
  const coded_pair **list = tape_keep(fixed, (size_t)rows * sizeof *list);
  for (int64_t i = 0; i < rows; i++)
    list[i] = &pairs[i / beam];
  decoding d = {.m = m, .t = t, .shard = shard, .a = encode(m, &n, list, rows)};
  d.state = lab_alloc((size_t)(rows * width), sizeof(real));
  memcpy(d.state, d.a.start->v, (size_t)(rows * width) * sizeof(real));
  beam_decoder decoder = {&d, s->c->vocabulary, decode_step};
  beam_search(&decoder, count, beam, limit, outputs, lengths);
  free(d.state);
  tape_free(fixed);
}

static model_score evaluate(model *m, tape **tapes, const rms_executor *executor) {
  rnnsearch *s = m->state;
  return translation_score(m, s->c, tapes, executor, translate);
}

static const model_kind rnnsearch_kind = {.family = "rnnsearch",
                                          .metric = "BLEU",
                                          .higher_is_better = 1,
                                          .state_bytes = sizeof(rnnsearch),
                                          .loss = loss,
                                          .evaluate = evaluate};

model *rnnsearch_create(const model_config *config, const corpus *c) {
  model *m = model_start(&rnnsearch_kind, config);
  rnnsearch *s = m->state;
  params *p = &m->params;
  const norm_config *norm = &config->norm;
  int64_t width = config->sizes.width, embed = config->sizes.embed;
  double embed_limit = sqrt(3.0 / (double)embed);
  s->c = c;
  model_batches(m, c->train.count, pair_lengths(&c->train));
  s->source_embedding = params_uniform(p, "source_embedding", c->vocabulary, embed, embed_limit);
  s->target_embedding = params_uniform(p, "target_embedding", c->vocabulary, embed, embed_limit);
  s->forward = declare_gru(p, "encoder.forward", norm, embed, width);
  s->backward = declare_gru(p, "encoder.backward", norm, embed, width);
  s->start = declare_projection(p, "start", norm, 2 * width, width, 0, 1);
  s->word = declare_gru(p, "decoder.word", norm, embed, width);
  s->context = declare_gru(p, "decoder.context", norm, 2 * width, width);
  s->key = declare_projection(p, "attention.key", norm, 2 * width, width, 0, 1);
  s->query = declare_projection(p, "attention.query", norm, width, width, 0, 0);
  s->score = params_uniform(p, "attention.score", 1, width, sqrt(3.0 / (double)width));
  s->out_state = declare_projection(p, "out.state", norm, width, embed, 0, 1);
  s->out_word = declare_projection(p, "out.word", norm, embed, embed, 0, 0);
  s->out_context = declare_projection(p, "out.context", norm, 2 * width, embed, 0, 0);
  s->output = declare_linear(p, "out", embed, c->vocabulary);
  return model_finish(m);
}
