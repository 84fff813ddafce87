/* SPDX-License-Identifier: MIT */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rmsnorm.h"

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

typedef struct shard_job {
  trainer *t;
  double *losses;
  int64_t *bytes;
} shard_job;

static uint64_t noise_key(const trainer *t, int64_t shard) {
  lab_rng rng = lab_rng_make(t->m->config.seed, (uint64_t)(t->step * 4096 + shard));
  return lab_rng_next(&rng);
}

static void shard_task(void *arg, int64_t shard) {
  shard_job *job = arg;
  tape *tp = job->t->tapes[shard];
  double start = lab_seconds(), cpu_start = lab_thread_seconds();
  tape_reset(tp, 1, noise_key(job->t, shard));
  tp->times = (tape_times){0};
  tensor *loss = job->t->m->kind->loss(job->t->m, tp, (int)shard);
  job->losses[shard] = (double)loss->v[0];
  job->bytes[shard] = tape_activation_bytes(tp);
  if (isfinite(job->losses[shard])) tape_backward(tp, loss);
  tp->times.total += lab_seconds() - start;
  tp->times.cpu += lab_thread_seconds() - cpu_start;
}

static tape_times times_of_shards(const trainer *t) {
  tape_times sum = {0};
  for (int i = 0; i < t->m->config.shards; i++) {
    sum.blas += t->tapes[i]->times.blas;
    sum.norm += t->tapes[i]->times.norm;
    sum.total += t->tapes[i]->times.total;
    sum.cpu += t->tapes[i]->times.cpu;
  }
  return sum;
}

static void record(trainer *t, double loss, double seconds, double before) {
  t->times = lab_grow(t->times, &t->times_capacity, t->step, sizeof *t->times);
  t->curve = lab_grow(t->curve, &t->curve_capacity, t->step, sizeof *t->curve);
  t->seconds = lab_grow(t->seconds, &t->seconds_capacity, t->step, sizeof *t->seconds);
  t->curve[t->step - 1] = (lab_point){(double)t->step, before + seconds, loss};
  t->seconds[t->step - 1] = seconds;
}

double trainer_step(trainer *t) {
  int shards = t->m->config.shards;
  double start = lab_seconds(), before = trainer_seconds(t);
  t->step++;
  model_prepare(t->m, t->step);
  shard_job job = {t, lab_alloc((size_t)shards, sizeof(double)), lab_alloc((size_t)shards, sizeof(int64_t))};
  run_tasks(t->executor, shards, shard_task, &job);
  double loss = 0;
  int64_t bytes = 0;
  for (int i = 0; i < shards; i++) {
    loss += job.losses[i];
    bytes += job.bytes[i];
  }
  free(job.losses);
  free(job.bytes);
  if (bytes > t->activation_bytes) t->activation_bytes = bytes;
  double optimiser_start = lab_seconds(), optimiser_cpu = lab_process_seconds();
  double gradient = (double)NAN;
  if (isfinite(loss)) {
    adam_config adam = {rate_at(&t->config, t->step), t->config.beta1, t->config.beta2, 1e-8, t->config.clip};
    gradient = adam_step(&t->m->params, &adam, t->step, t->executor);
  }
  double end = lab_seconds();
  optimiser_cpu = lab_process_seconds() - optimiser_cpu;
  if (!isfinite(loss) || !isfinite(gradient)) t->diverged = t->step;
  record(t, loss, end - start, before);
  t->times[t->step - 1] = times_of_shards(t);
  t->times[t->step - 1].total += end - optimiser_start;
  t->times[t->step - 1].cpu += optimiser_cpu;
  return loss;
}

model_score trainer_evaluate(trainer *t) {
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
