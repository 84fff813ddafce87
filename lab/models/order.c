/* SPDX-License-Identifier: MIT
 *
 * Order embeddings: a GRU reads a sentence; its last state, and what it is paired with, are mapped to non-negative unit
 * vectors such that a pair's two vectors are in order. The pair is a feature vector and its caption, or the two sides
 * of a sentence pair with a GRU each. Wrong pairings come from the same shard of the batch.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "models/padding.h"

static const double MARGIN = 0.05;

typedef struct side {
  id_sequence *lines;    /* NULL: features instead   */
  const float *features; /* count x dims             */
  int64_t dims;
  int64_t vocabulary;
  int64_t embedding;
  gru_layer gru;
  linear_layer image; /* features -> embedding */
} side;

typedef struct order {
  side sides[2];              /* 0: the specific one (image, source), 1: the general one (caption, target) */
  int64_t train, test, count; /* items [0, train) and [test, count) */
  lab_bpe *bpe;               /* of captions; NULL with a corpus */
  int32_t *ids;
} order;

static tensor *embed_lines(model *m, net *n, const side *sd, const int64_t *items, int64_t count) {
  id_sequence *lines = tape_keep(n->t, (size_t)count * sizeof *lines);
  for (int64_t b = 0; b < count; b++)
    lines[b] = sd->lines[items[b]];
  padded_ids read = pad_ids(n->t, lines, count, (id_frame){NO_MARK, NO_MARK, LAB_BPE_PAD}, TIME_MAJOR);
  int64_t steps = read.steps, width = m->config.sizes.width;
  sequence sq = make_sequence(n->t, read.lengths, count, steps);
  tensor *x = op_embed(n->t, net_param(n, sd->embedding), read.ids, count * steps, 1);
  tensor *states = tape_tensor(n->t, steps * count, width);
  gru_run(n, &sd->gru, x, &sq, FORWARD, states);
  return final_state(n, states, &sq, FORWARD);
}

static tensor *embed_side(model *m, net *n, const side *sd, const int64_t *items, int64_t count) {
  if (sd->lines != NULL) return op_unit_abs(n->t, embed_lines(m, n, sd, items, count));
  tensor *x = tape_tensor(n->t, count, sd->dims);
  for (int64_t b = 0; b < count; b++)
    for (int64_t j = 0; j < sd->dims; j++)
      x->v[b * sd->dims + j] = (real)sd->features[items[b] * sd->dims + j];
  return op_unit_abs(n->t, linear(n, &sd->image, x, ACT_NONE));
}

static tensor *loss(model *m, tape *t, int shard) {
  order *s = m->state;
  net n = model_net(m, t, shard);
  int64_t *items = tape_keep(t, (size_t)m->batches.batch * sizeof *items), count = 0;
  for (int64_t i = shard; i < m->batches.batch; i += m->config.shards)
    items[count++] = m->examples[i];
  tensor *a = embed_side(m, &n, &s->sides[0], items, count), *b = embed_side(m, &n, &s->sides[1], items, count);
  return op_order_loss(t, a, b, MARGIN, 1 / (double)m->batches.batch);
}

/* ---- retrieval ---- */

enum { CHUNK = 50 };

typedef struct testing {
  model *m;
  tape **tapes;
  int64_t count;
  real *vectors[2]; /* count x width */
} testing;

static void embed_task(void *arg, int64_t shard) {
  testing *job = arg;
  order *s = job->m->state;
  int64_t width = job->m->config.sizes.width, items[CHUNK];
  for (int64_t at = shard * CHUNK; at < job->count; at += job->m->config.shards * CHUNK) {
    int64_t count = job->count - at < CHUNK ? job->count - at : CHUNK;
    for (int64_t i = 0; i < count; i++)
      items[i] = s->test + at + i;
    for (int which = 0; which < 2; which++) {
      tape_reset(job->tapes[shard], 0, 0);
      net n = model_net(job->m, job->tapes[shard], (int)shard);
      tensor *y = embed_side(job->m, &n, &s->sides[which], items, count);
      memcpy(job->vectors[which] + at * width, y->v, (size_t)(count * width) * sizeof(real));
    }
  }
}

typedef struct recall {
  double at1, at5, at10, mean_rank;
} recall;

/* errors[i*row_stride + j*column_stride]: query i, candidate j; candidate i is right. */
static recall rank_all(const real *errors, int64_t count, int64_t row_stride, int64_t column_stride) {
  recall r = {0};
  for (int64_t i = 0; i < count; i++) {
    real right = errors[i * row_stride + i * column_stride];
    int64_t rank = 1;
    /* Ties count against the model: a constant embedding must not look good. */
    for (int64_t j = 0; j < count; j++)
      rank += j != i && !(errors[i * row_stride + j * column_stride] > right);
    r.at1 += rank <= 1;
    r.at5 += rank <= 5;
    r.at10 += rank <= 10;
    r.mean_rank += (double)rank;
  }
  double percent = 100.0 / (double)count;
  return (recall){r.at1 * percent, r.at5 * percent, r.at10 * percent, r.mean_rank / (double)count};
}

static model_score evaluate(model *m, tape **tapes, const rms_executor *executor) {
  order *s = m->state;
  testing job = {m, tapes, s->count - s->test, {NULL, NULL}};
  if (job.count > m->config.sizes.tested) job.count = m->config.sizes.tested;
  size_t cells = (size_t)(job.count * m->config.sizes.width);
  job.vectors[0] = lab_alloc(cells, sizeof(real));
  job.vectors[1] = lab_alloc(cells, sizeof(real));
  run_tasks(executor, m->config.shards, embed_task, &job);
  real *errors = lab_alloc((size_t)(job.count * job.count), sizeof *errors);
  order_errors(job.vectors[0], job.count, job.vectors[1], job.count, m->config.sizes.width, errors);
  recall caption = rank_all(errors, job.count, job.count, 1), image = rank_all(errors, job.count, 1, job.count);
  free(errors);
  free(job.vectors[0]);
  free(job.vectors[1]);
  model_score score = {.quality = caption.at1, .chance = 100.0 / (double)job.count};
  snprintf(score.details, sizeof score.details,
           "of %lld: R@5 %.1f, R@10 %.1f, mean rank %.1f; other way R@1 %.1f, R@5 %.1f, R@10 %.1f, mean rank %.1f",
           (long long)job.count, caption.at5, caption.at10, caption.mean_rank, image.at1, image.at5, image.at10,
           image.mean_rank);
  return score;
}

static void free_state(void *state) {
  order *s = state;
  free(s->sides[0].lines);
  free(s->sides[1].lines);
  free(s->ids);
  lab_bpe_free(s->bpe);
}

/* ---- building ---- */

enum { CAPTION_MERGES = 500, LONGEST_CAPTION = 64 };

static void take_corpus(order *s, const corpus *c) {
  int64_t test = c->test.count;
  s->train = s->test = c->train.count;
  s->count = s->train + test;
  for (int which = 0; which < 2; which++) {
    side *sd = &s->sides[which];
    sd->vocabulary = c->vocabulary;
    sd->lines = lab_alloc((size_t)s->count, sizeof *sd->lines);
    for (int64_t i = 0; i < s->count; i++) {
      const coded_pair *pair = i < s->train ? &c->train.items[i] : &c->test.items[i - s->train];
      sd->lines[i] = which == 0 ? (id_sequence){pair->source, pair->source_length}
                                : (id_sequence){pair->target, pair->target_length};
    }
  }
}

static void take_scenes(order *s, const lab_scenes *scenes) {
  side *caption = &s->sides[1];
  s->count = scenes->count;
  s->train = s->test = scenes->count - scenes->count / 10;
  s->sides[0].features = scenes->features;
  s->sides[0].dims = scenes->dims;
  s->bpe = lab_bpe_create();
  for (int64_t i = 0; i < s->train; i++)
    lab_bpe_count_line(s->bpe, scenes->captions[i]);
  lab_bpe_learn(s->bpe, CAPTION_MERGES);
  caption->vocabulary = lab_bpe_size(s->bpe);
  caption->lines = lab_alloc((size_t)s->count, sizeof *caption->lines);
  s->ids = lab_alloc((size_t)(s->count * LONGEST_CAPTION), sizeof *s->ids);
  for (int64_t i = 0; i < s->count; i++) {
    int32_t *ids = s->ids + i * LONGEST_CAPTION;
    int64_t length = lab_bpe_encode(s->bpe, scenes->captions[i], ids, LONGEST_CAPTION);
    caption->lines[i] = (id_sequence){ids, (int32_t)(length < LONGEST_CAPTION ? length : LONGEST_CAPTION)};
  }
}

static void declare_side(params *p, side *sd, const char *name, const model_config *config) {
  char full[48];
  int64_t width = config->sizes.width, embed = config->sizes.embed;
  if (sd->lines == NULL) {
    sd->image = declare_linear(p, name, sd->dims, width);
    return;
  }
  snprintf(full, sizeof full, "%s.embedding", name);
  sd->embedding = params_uniform(p, full, sd->vocabulary, embed, sqrt(3.0 / (double)embed));
  snprintf(full, sizeof full, "%s.gru", name);
  sd->gru = declare_gru(p, full, &config->norm, embed, width);
}

static const model_kind order_kind = {.family = "order",
                                      .metric = "R@1 %",
                                      .higher_is_better = 1,
                                      .state_bytes = sizeof(order),
                                      .loss = loss,
                                      .evaluate = evaluate,
                                      .free = free_state};

model *order_create(const model_config *config, const corpus *c, const lab_scenes *scenes) {
  model *m = model_start(&order_kind, config);
  order *s = m->state;
  if (scenes != NULL)
    take_scenes(s, scenes);
  else
    take_corpus(s, c);
  int32_t *lengths = lab_alloc((size_t)s->train, sizeof *lengths);
  for (int64_t i = 0; i < s->train; i++)
    lengths[i] = s->sides[1].lines[i].length;
  model_batches(m, s->train, lengths);
  declare_side(&m->params, &s->sides[0], scenes != NULL ? "image" : "source", config);
  declare_side(&m->params, &s->sides[1], scenes != NULL ? "caption" : "target", config);
  return model_finish(m);
}
