/* SPDX-License-Identifier: MIT
 *
 * A decoder-only language model on a text file: subwords learned from the file, windows of fixed length, the last tenth
 * of the text held out; the score is perplexity per subword.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "models/stack.h"

typedef struct lm {
  lab_bpe *bpe;
  int32_t *ids;
  int64_t train, count; /* ids [0, train) are learned, [train, count) held out */
  int64_t embedding;
  stack decoder;
  real *positions;
} lm;

enum { MERGES = 1000 };

/* Windows start at the given ids; each predicts `length` ids. */
static tensor *window_loss(model *m, tape *t, int shard, const int64_t *starts, int64_t count, double scale) {
  lm *s = m->state;
  net n = model_net(m, t, shard);
  int64_t length = m->config.sizes.length, width = m->config.sizes.width;
  int32_t *ids = tape_keep(t, (size_t)(2 * count * length) * sizeof *ids), *targets = ids + count * length;
  for (int64_t b = 0; b < count; b++) {
    memcpy(ids + b * length, s->ids + starts[b], (size_t)length * sizeof *ids);
    memcpy(targets + b * length, s->ids + starts[b] + 1, (size_t)length * sizeof *ids);
  }
  tensor *x = op_embed(t, net_param(&n, s->embedding), ids, count * length, (real)sqrt((double)width));
  x = op_dropout(t, op_add_positions(t, x, s->positions, length), m->config.sizes.dropout);
  attention_shape shape = {count, length, length, m->config.sizes.heads, NULL, 1};
  tensor *y = stack_run(&n, &s->decoder, x, &shape, NULL, NULL);
  return op_cross_entropy(t, op_logits(t, y, net_param(&n, s->embedding)), targets, 0, scale);
}

static tensor *loss(model *m, tape *t, int shard) {
  lm *s = m->state;
  int64_t batch = m->config.sizes.batch, length = m->config.sizes.length, count = 0;
  int64_t *starts = tape_keep(t, (size_t)batch * sizeof *starts);
  lab_rng rng = lab_rng_make(m->config.seed, (uint64_t)m->step);
  for (int64_t i = 0; i < batch; i++) {
    int64_t start = lab_rng_below(&rng, s->train - length);
    if (i % m->config.shards == shard) starts[count++] = start;
  }
  return window_loss(m, t, shard, starts, count, 1 / (double)(batch * length));
}

typedef struct testing {
  model *m;
  tape **tapes;
  int64_t windows;
  double *losses; /* per window */
} testing;

static void test_task(void *arg, int64_t shard) {
  testing *job = arg;
  lm *s = job->m->state;
  int64_t length = job->m->config.sizes.length;
  for (int64_t i = shard; i < job->windows; i += job->m->config.shards) {
    int64_t start = s->train + i * length;
    tape_reset(job->tapes[shard], 0, 0);
    tensor *loss_sum = window_loss(job->m, job->tapes[shard], (int)shard, &start, 1, 1 / (double)length);
    job->losses[i] = (double)loss_sum->v[0];
  }
}

static model_score evaluate(model *m, tape **tapes, const rms_executor *executor) {
  lm *s = m->state;
  testing job = {m, tapes, (s->count - s->train - 1) / m->config.sizes.length, NULL};
  if (job.windows > m->config.sizes.tested) job.windows = m->config.sizes.tested;
  job.losses = lab_alloc((size_t)job.windows, sizeof *job.losses);
  run_tasks(executor, m->config.shards, test_task, &job);
  double sum = 0;
  for (int64_t i = 0; i < job.windows; i++)
    sum += job.losses[i];
  free(job.losses);
  model_score score = {.quality = exp(sum / (double)job.windows), .chance = (double)NAN};
  snprintf(score.details, sizeof score.details, "%lld held-out subwords, vocabulary %d",
           (long long)(job.windows * m->config.sizes.length), lab_bpe_size(s->bpe));
  return score;
}

static void free_state(void *state) {
  lm *s = state;
  lab_bpe_free(s->bpe);
  stack_free(&s->decoder);
  free(s->ids);
  free(s->positions);
}

/* Calls `use` for each line of the text, newline not included. */
static void each_line(const lab_text *text, void (*use)(lm *s, const char *line), lm *s) {
  const char *at = text->bytes, *end = text->bytes + text->size;
  while (at < end) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    size_t length = (size_t)((newline == NULL ? end : newline) - at);
    char *line = lab_copy(at, length);
    use(s, line);
    free(line);
    at += length + 1;
  }
}

static void count_line(lm *s, const char *line) {
  lab_bpe_count_line(s->bpe, line);
}

static void encode_line(lm *s, const char *line) {
  s->count += lab_bpe_encode(s->bpe, line, s->ids + s->count, (int64_t)strlen(line));
  s->ids[s->count++] = LAB_BPE_EOS;
}

static const model_kind lm_kind = {.family = "lm",
                                   .metric = "perplexity",
                                   .higher_is_better = 0,
                                   .state_bytes = sizeof(lm),
                                   .loss = loss,
                                   .evaluate = evaluate,
                                   .free = free_state};

/* Subwords and ids of the text. */
static void read_text(lm *s, const lab_text *text) {
  s->bpe = lab_bpe_create();
  each_line(text, count_line, s);
  lab_bpe_learn(s->bpe, MERGES);
  s->ids = lab_alloc((size_t)text->size + 2, sizeof *s->ids);
  each_line(text, encode_line, s);
  s->train = s->count - s->count / 10;
}

int lm_check(const model_config *config, const lab_text *text, lab_error *error) {
  lm s = {0};
  read_text(&s, text);
  int64_t held_out = s.count - s.train;
  lab_bpe_free(s.bpe);
  free(s.ids);
  if (held_out >= config->sizes.length + 1) return 0;
  return lab_fail(error, "%s: too short for windows of %lld subwords", text->origin, (long long)config->sizes.length);
}

model *lm_create(const model_config *config, const lab_text *text) {
  model *m = model_start(&lm_kind, config);
  lm *s = m->state;
  int64_t width = config->sizes.width;
  read_text(s, text);
  s->positions = position_table(config->sizes.length, width);
  s->embedding = params_uniform(&m->params, "embedding", lab_bpe_size(s->bpe), width, sqrt(3.0 / (double)width));
  s->decoder = declare_stack(&m->params, "decoder", &config->norm, &config->sizes, 0);
  return model_finish(m);
}
