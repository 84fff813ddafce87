/* SPDX-License-Identifier: MIT */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cluster.h"
#include "rmsnorm.h"
#include "train/gradients.h"

trainer *trainer_create(model *m, const train_config *config, const rms_executor *executor) {
  blas_single_threaded();
  trainer *t = lab_alloc(1, sizeof *t);
  *t = (trainer){.m = m, .config = *config, .executor = executor, .diverged = -1};
  t->tapes = lab_alloc((size_t)m->config.shards, sizeof *t->tapes);
  for (int i = 0; i < m->config.shards; i++)
    t->tapes[i] = tape_create();
  return t;
}

void trainer_free(trainer *t) {
  if (t == NULL) return;
  for (int i = 0; i < t->m->config.shards; i++)
    tape_free(t->tapes[i]);
  free(t->tapes);
  free(t->curve);
  free(t->seconds);
  free(t->times);
  model_free(t->m);
  free(t);
}

int trainer_done(const trainer *t) {
  return t->diverged >= 0 || t->step >= t->config.steps;
}

static double rate_at(const train_config *c, int64_t step) {
  if (step <= c->warmup) return c->rate * (double)step / (double)c->warmup;
  if (!c->decay || c->steps <= c->warmup) return c->rate;
  double way = (double)(step - c->warmup) / (double)(c->steps - c->warmup);
  return c->rate * (1 - 0.9 * way);
}

/* What a shard's step tells; numbers only, since it travels between processes. */
typedef struct shard_result {
  double loss, bytes;
  tape_times times;
} shard_result;

typedef struct shard_job {
  trainer *t;
  shard_result *results; /* of all shards */
} shard_job;

static uint64_t noise_key(const trainer *t, int64_t shard) {
  lab_rng rng = lab_rng_make(t->m->config.seed, (uint64_t)(t->step * 4096 + shard));
  return lab_rng_next(&rng);
}

static void shard_task(void *arg, int64_t index) {
  shard_job *job = arg;
  int64_t shard = job->t->m->params.first + index;
  tape *tp = job->t->tapes[shard];
  shard_result *result = &job->results[shard];
  double start = lab_seconds(), cpu_start = lab_thread_seconds();
  tape_reset(tp, 1, noise_key(job->t, shard));
  tp->times = (tape_times){0};
  tensor *loss = job->t->m->kind->loss(job->t->m, tp, (int)shard);
  result->loss = (double)loss->v[0];
  result->bytes = (double)tape_activation_bytes(tp);
  if (isfinite(result->loss)) tape_backward(tp, loss);
  tp->times.total += lab_seconds() - start;
  tp->times.cpu += lab_thread_seconds() - cpu_start;
  result->times = tp->times;
}

/* The sum over the shards, in their order; those of other processes are fetched. */
static shard_result run_shards(trainer *t) {
  int shards = t->m->config.shards;
  shard_job job = {t, lab_alloc((size_t)shards, sizeof(shard_result))};
  run_tasks(t->executor, t->m->params.own, shard_task, &job);
  cluster_collect(job.results, shards, sizeof(shard_result));
  shard_result sum = {0};
  for (int i = 0; i < shards; i++) {
    const shard_result *r = &job.results[i];
    sum.loss += r->loss;
    sum.bytes += r->bytes;
    sum.times.blas += r->times.blas;
    sum.times.norm += r->times.norm;
    sum.times.total += r->times.total;
    sum.times.cpu += r->times.cpu;
  }
  free(job.results);
  return sum;
}

static void record(trainer *t, double loss, double seconds, double before) {
  t->times = lab_grow(t->times, &t->times_capacity, t->step, sizeof *t->times);
  t->curve = lab_grow(t->curve, &t->curve_capacity, t->step, sizeof *t->curve);
  t->seconds = lab_grow(t->seconds, &t->seconds_capacity, t->step, sizeof *t->seconds);
  t->curve[t->step - 1] = (lab_point){(double)t->step, before + seconds, loss};
  t->seconds[t->step - 1] = seconds;
}

/* Adds up the gradients and updates the parameters; returns the gradient's norm. */
static double update(trainer *t) {
  adam_config adam = {rate_at(&t->config, t->step), t->config.beta1, t->config.beta2, 1e-8, t->config.clip};
  double start = lab_seconds(), exchanged = cluster_seconds();
  gradients_add_up(&t->m->params);
  double norm = adam_step(&t->m->params, &adam, t->step, t->executor);
  exchanged = cluster_seconds() - exchanged;
  t->exchange_seconds += exchanged;
  t->optimiser_seconds += lab_seconds() - start - exchanged;
  return norm;
}

double trainer_step(trainer *t) {
  double start = lab_seconds(), before = trainer_seconds(t);
  t->step++;
  model_prepare(t->m, t->step);
  shard_result sum = run_shards(t);
  if ((int64_t)sum.bytes > t->activation_bytes) t->activation_bytes = (int64_t)sum.bytes;
  double update_start = lab_seconds(), update_cpu = lab_process_seconds();
  double gradient = isfinite(sum.loss) ? update(t) : (double)NAN;
  double end = lab_seconds();
  if (!isfinite(sum.loss) || !isfinite(gradient)) t->diverged = t->step;
  record(t, sum.loss, end - start, before);
  sum.times.total += end - update_start;
  sum.times.cpu += lab_process_seconds() - update_cpu;
  t->times[t->step - 1] = sum.times;
  return sum.loss;
}

model_score trainer_evaluate(trainer *t) {
  if (cluster_rank() > 0) return (model_score){0}; /* process 0 scores and reports */
  return t->m->kind->evaluate(t->m, t->tapes, t->executor);
}

double trainer_seconds(const trainer *t) {
  return t->step == 0 ? 0 : t->curve[t->step - 1].seconds;
}

void trainer_restore(trainer *t, int64_t step, const lab_point *curve) {
  t->curve = lab_grow(t->curve, &t->curve_capacity, step, sizeof *t->curve);
  t->seconds = lab_grow(t->seconds, &t->seconds_capacity, step, sizeof *t->seconds);
  if (step > 0) memcpy(t->curve, curve, (size_t)step * sizeof *curve);
  t->times = lab_grow(t->times, &t->times_capacity, step, sizeof *t->times);
  for (int64_t i = 0; i < step; i++) {
    t->seconds[i] = (double)NAN; /* measured elsewhere */
    t->times[i] = (tape_times){0};
  }
  t->step = step;
}
