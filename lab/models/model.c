/* SPDX-License-Identifier: MIT
 *
 * What all models share: building, batches, shards.
 */
#include "models/model.h"

#include <stdlib.h>

model *model_start(const model_kind *kind, const model_config *config) {
  model *m = lab_alloc(1, sizeof *m);
  *m = (model){.kind = kind, .config = *config, .state = lab_alloc(1, kind->state_bytes)};
  return m;
}

void model_batches(model *m, int64_t count, int32_t *lengths) {
  int64_t batch = m->config.sizes.batch < count ? m->config.sizes.batch : count;
  m->lengths = lengths;
  m->batches = batcher_make(count, batch, lengths, m->config.seed);
}

model *model_finish(model *m) {
  params_allocate(&m->params, m->config.shards, m->config.seed, m->config.centre);
  return m;
}

void model_free(model *m) {
  if (m == NULL) return;
  if (m->kind->free != NULL) m->kind->free(m->state);
  free(m->state);
  batcher_free(&m->batches);
  free(m->lengths);
  params_free(&m->params);
  free(m);
}

void model_prepare(model *m, int64_t step) {
  m->step = step;
  if (m->batches.count > 0) m->examples = batcher_step(&m->batches, step);
}

net model_net(model *m, tape *t, int shard) {
  return (net){t, &m->params, shard, &m->config.norm};
}

/* ---- counting what a model gets right ---- */

enum { CHUNK = 50 }; /* examples that run together */

typedef struct counting {
  model *m;
  tape **tapes;
  int64_t count;
  count_right_fn count_right;
  int64_t *right; /* per shard */
} counting;

static void count_task(void *arg, int64_t shard) {
  counting *job = arg;
  for (int64_t first = shard * CHUNK; first < job->count; first += job->m->config.shards * CHUNK) {
    int64_t left = job->count - first;
    tape_reset(job->tapes[shard], 0, 0);
    job->right[shard] += job->count_right(job->m, job->tapes[shard], (int)shard, first, left < CHUNK ? left : CHUNK);
  }
}

int64_t model_first_tested(const model *m, int64_t held_out) {
  return held_out > m->config.sizes.tested ? held_out - m->config.sizes.tested : 0;
}

int64_t count_in_chunks(model *m, tape **tapes, const rms_executor *executor, int64_t count,
                        count_right_fn count_right) {
  counting job = {m, tapes, count, count_right, lab_alloc((size_t)m->config.shards, sizeof(int64_t))};
  run_tasks(executor, m->config.shards, count_task, &job);
  int64_t right = 0;
  for (int i = 0; i < m->config.shards; i++)
    right += job.right[i];
  free(job.right);
  return right;
}

int64_t best_column(const tensor *x, int64_t row) {
  const real *v = x->v + row * x->ld;
  int64_t best = 0;
  for (int64_t j = 1; j < x->cols; j++)
    if (v[j] > v[best]) best = j;
  return best;
}
