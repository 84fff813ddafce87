/* SPDX-License-Identifier: MIT
 *
 * The attentive reader: bidirectional LSTMs over passage and question, attention from the question's end states over
 * the passage, and a choice among the entity marks. Norms on the input's and the state's projections (one statistic
 * over all gates) and on the cell. Sequences are time-major.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "models/model.h"
#include "models/padding.h"

typedef struct reader {
  const lab_cloze *cloze;
  int64_t train, test; /* questions [0, train) and [test, count) */
  int64_t embedding, score;
  lstm_layer passage[2], question[2]; /* forward, backward */
  projection key, query, from_passage, from_question;
  linear_layer answer;
} reader;

typedef enum part { PASSAGE, QUESTION } part;

static id_sequence words_of(const reader *s, const lab_question *q, part which) {
  return which == PASSAGE ? (id_sequence){s->cloze->ids + q->passage, q->passage_length}
                          : (id_sequence){s->cloze->ids + q->query, q->query_length};
}

/* Both directions side by side, steps*batch rows. */
static tensor *read_part(model *m, net *n, const lab_question **questions, int64_t count, part which, sequence *sq) {
  reader *s = m->state;
  id_sequence *words = tape_keep(n->t, (size_t)count * sizeof *words);
  for (int64_t b = 0; b < count; b++)
    words[b] = words_of(s, questions[b], which);
  padded_ids read = pad_ids(n->t, words, count, (id_frame){NO_MARK, NO_MARK, LAB_CLOZE_PAD}, TIME_MAJOR);
  int64_t steps = read.steps, width = m->config.sizes.width;
  *sq = make_sequence(n->t, read.lengths, count, steps);
  tensor *x = op_embed(n->t, net_param(n, s->embedding), read.ids, count * steps, 1);
  x = op_dropout(n->t, x, m->config.sizes.dropout);
  tensor *states = tape_tensor(n->t, steps * count, 2 * width);
  const lstm_layer *layers = which == PASSAGE ? s->passage : s->question;
  lstm_run(n, &layers[0], x, sq, FORWARD, tape_view(n->t, states, 0, steps * count, 0, width));
  lstm_run(n, &layers[1], x, sq, BACKWARD, tape_view(n->t, states, 0, steps * count, width, width));
  return states;
}

static tensor *logits(model *m, net *n, const lab_question **questions, int64_t count) {
  reader *s = m->state;
  int64_t width = m->config.sizes.width;
  sequence passage, question;
  tensor *states = read_part(m, n, questions, count, PASSAGE, &passage);
  tensor *asked = read_part(m, n, questions, count, QUESTION, &question);
  tensor *last = tape_view(n->t, asked, (question.steps - 1) * count, count, 0, width);
  tensor *first = tape_view(n->t, asked, 0, count, width, width);
  tensor *u = op_concat(n->t, last, first);
  tensor *found = op_additive_attention(n->t, project(n, &s->query, u), project(n, &s->key, states), states,
                                        net_param(n, s->score), passage.lengths);
  tensor *joint = op_add(n->t, project(n, &s->from_passage, found), project(n, &s->from_question, u));
  joint = op_dropout(n->t, op_tanh(n->t, joint), m->config.sizes.dropout);
  return linear(n, &s->answer, joint, ACT_NONE);
}

static tensor *loss(model *m, tape *t, int shard) {
  reader *s = m->state;
  net n = model_net(m, t, shard);
  const lab_question **questions = tape_keep(t, (size_t)m->batches.batch * sizeof *questions);
  int32_t *answers = tape_keep(t, (size_t)m->batches.batch * sizeof *answers);
  int64_t count = 0;
  for (int64_t i = shard; i < m->batches.batch; i += m->config.shards) {
    questions[count] = &s->cloze->items[m->examples[i]];
    answers[count] = questions[count]->answer;
    count++;
  }
  return op_cross_entropy(t, logits(m, &n, questions, count), answers, 0, 1 / (double)m->batches.batch);
}

/* ---- accuracy ---- */

static int64_t count_right(model *m, tape *t, int shard, int64_t first, int64_t count) {
  reader *s = m->state;
  net n = model_net(m, t, shard);
  const lab_question **questions = tape_keep(t, (size_t)count * sizeof *questions);
  for (int64_t i = 0; i < count; i++)
    questions[i] = &s->cloze->items[s->test + first + i];
  tensor *y = logits(m, &n, questions, count);
  int64_t right = 0;
  for (int64_t i = 0; i < count; i++)
    right += best_column(y, i) == questions[i]->answer;
  return right;
}

static model_score evaluate(model *m, tape **tapes, const rms_executor *executor) {
  reader *s = m->state;
  int64_t count = s->cloze->count - s->test;
  if (count > m->config.sizes.tested) count = m->config.sizes.tested;
  int64_t right = count_in_chunks(m, tapes, executor, count, count_right);
  model_score score = {.quality = 100.0 * (double)right / (double)count, .chance = 100.0 / s->cloze->entities};
  snprintf(score.details, sizeof score.details, "%lld of %lld questions right, chance %.1f %%", (long long)right,
           (long long)count, 100.0 / s->cloze->entities);
  return score;
}

static void cut_questions(model *m) {
  reader *s = m->state;
  int64_t held_out = s->cloze->count / 10;
  s->test = s->cloze->count - (held_out > 0 ? held_out : 1);
  s->train = s->test; /* no sentence of a training question is in a test question */
  while (s->train > 1 && s->cloze->items[s->train - 1].last_sentence >= s->cloze->items[s->test].first_sentence)
    s->train--;
  int32_t *lengths = lab_alloc((size_t)s->train, sizeof *lengths);
  for (int64_t i = 0; i < s->train; i++)
    lengths[i] = s->cloze->items[i].passage_length;
  model_batches(m, s->train, lengths);
}

static const model_kind reader_kind = {.family = "reader",
                                       .metric = "accuracy %",
                                       .higher_is_better = 1,
                                       .state_bytes = sizeof(reader),
                                       .loss = loss,
                                       .evaluate = evaluate};

model *reader_create(const model_config *config, const lab_cloze *cloze) {
  model *m = model_start(&reader_kind, config);
  reader *s = m->state;
  params *p = &m->params;
  const norm_config *norm = &config->norm;
  int64_t width = config->sizes.width, embed = config->sizes.embed;
  s->cloze = cloze;
  cut_questions(m);
  s->embedding = params_uniform(p, "embedding", cloze->vocabulary, embed, sqrt(3.0 / (double)embed));
  s->passage[0] = declare_lstm(p, "passage.forward", norm, embed, width);
  s->passage[1] = declare_lstm(p, "passage.backward", norm, embed, width);
  s->question[0] = declare_lstm(p, "question.forward", norm, embed, width);
  s->question[1] = declare_lstm(p, "question.backward", norm, embed, width);
  s->key = declare_projection(p, "attention.key", norm, 2 * width, width, 0, 1);
  s->query = declare_projection(p, "attention.query", norm, 2 * width, width, 0, 0);
  s->score = params_uniform(p, "attention.score", 1, width, sqrt(3.0 / (double)width));
  s->from_passage = declare_projection(p, "answer.passage", norm, 2 * width, width, 0, 1);
  s->from_question = declare_projection(p, "answer.question", norm, 2 * width, width, 0, 0);
  s->answer = declare_linear(p, "answer", width, cloze->entities);
  return model_finish(m);
}
