/* SPDX-License-Identifier: MIT
 *
 * One family: the same data, seeds and batches for every norm.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command/experiment.h"
#include "train/checkpoint.h"

void add_run(lab_report *report, lab_family family, const dataset *data, const trainer *t, double seconds_per_step,
             const model_score *score) {
  const model_config *c = &t->m->config;
  lab_run run = lab_run_start(family_name(family), norm_name(c->norm.kind),
                              c->norm.engine == ENGINE_TEXTBOOK ? "textbook" : "library");
  step_shares shares = trainer_shares(t);
  if (c->norm.kind == NORM_PRMS) run.p = c->norm.p;
  run.seed = c->seed;
  snprintf(run.metric, sizeof run.metric, "%s", t->m->kind->metric);
  run.higher_is_better = t->m->kind->higher_is_better;
  if (score != NULL) {
    run.quality = score->quality;
    snprintf(run.details, sizeof run.details, "%s", score->details);
  }
  run.steps = t->step;
  run.seconds_per_1000 = 1000 * seconds_per_step;
  run.norm_share = shares.norm;
  run.blas_share = shares.blas;
  run.parameters = params_trained(&t->m->params);
  run.activation_bytes = t->activation_bytes;
  run.diverged_step = t->diverged;
  snprintf(run.data, sizeof run.data, "%s", data->origin);
  run.synthetic = data->synthetic;
  lab_report_add_run(report, &run, t->curve, t->step);
}

/* ---- one seed: a contest between the norms ---- */

typedef struct seed_run {
  lab_context *x;
  lab_family family;
  const dataset *data;
  contest contest;
  trainer *trainers[NORM_KINDS];
  const char *labels[NORM_KINDS];
  lab_error *error;
} seed_run;

static int checkpoint_path(const seed_run *s, int index, char *path, size_t size) {
  const model_config *c = &s->trainers[index]->m->config;
  int length = snprintf(path, size, "%s/%s-%s-%s-seed%llu.safetensors", s->x->options->checkpoints,
                        family_name(s->family), norm_name(c->norm.kind),
                        c->norm.engine == ENGINE_TEXTBOOK ? "textbook" : "library", (unsigned long long)c->seed);
  return length > 0 && length < (int)size ? 0 : lab_fail(s->error, "--checkpoints: path too long");
}

static int write_checkpoint(void *arg, int index) {
  seed_run *s = arg;
  char path[1024];
  if (checkpoint_path(s, index, path, sizeof path) < 0) return -1;
  return checkpoint_write(s->trainers[index], path, s->error);
}

static int resume(seed_run *s, int index) {
  char path[1024];
  if (checkpoint_path(s, index, path, sizeof path) < 0) return -1;
  return access(path, F_OK) == 0 ? checkpoint_read(s->trainers[index], path, s->error) : 0;
}

static int make_trainers(seed_run *s, uint64_t seed) {
  const lab_options *o = s->x->options;
  norm_kind norms[NORM_KINDS];
  int count = options_norms(o, norms, s->error);
  for (int i = 0; i < count; i++) {
    model_config config;
    train_config train;
    options_settings(o, s->family, &config, &train);
    config.norm.kind = norms[i];
    config.seed = seed;
    model *m = dataset_model(s->data, s->family, &config, s->error);
    if (m == NULL) return -1;
    s->trainers[i] = trainer_create(m, &train, s->x->executor);
    snprintf(s->trainers[i]->data, sizeof s->trainers[i]->data, "%s", s->data->origin);
    s->labels[i] = norm_name(norms[i]);
    s->contest.count = i + 1;
    if (o->resume && resume(s, i) < 0) return -1;
  }
  return 0;
}

static void free_trainers(seed_run *s) {
  for (int i = 0; i < s->contest.count; i++)
    trainer_free(s->trainers[i]);
}

/* A run that was stopped early has a curve and times but no score; one that diverged has none either. */
static void report_runs(seed_run *s) {
  double seconds[NORM_KINDS];
  trainers_seconds_per_step(s->trainers, s->contest.count, seconds);
  for (int i = 0; i < s->contest.count; i++) {
    trainer *t = s->trainers[i];
    int whole = t->step >= t->config.steps && t->diverged < 0;
    model_score score;
    if (whole) score = trainer_evaluate(t);
    if (t->step > 0) add_run(s->x->report, s->family, s->data, t, seconds[i], whole ? &score : NULL);
  }
}

static int save_all(seed_run *s) {
  for (int i = 0; i < s->contest.count; i++)
    if (s->trainers[i]->diverged < 0 && write_checkpoint(s, i) < 0) return -1;
  return 0;
}

static int run_seed(lab_context *x, lab_family family, const dataset *data, int64_t run, lab_error *error) {
  const lab_options *o = x->options;
  seed_run s = {.x = x, .family = family, .data = data, .error = error};
  s.contest = (contest){.trainers = s.trainers, .labels = s.labels};
  char title[64];
  int64_t runs = o->runs > 0 ? o->runs : 1;
  if (runs > 1)
    snprintf(title, sizeof title, "%s, run %lld of %lld", family_name(family), (long long)run + 1, (long long)runs);
  else
    snprintf(title, sizeof title, "%s", family_name(family));
  int result = make_trainers(&s, (uint64_t)((o->seed > 0 ? o->seed : 1) + run));
  error->text[0] = '\0';
  if (result == 0) {
    checkpoint_fn checkpoint = o->checkpoints != NULL ? write_checkpoint : NULL;
    if (contest_run(&s.contest, title, o->quiet, o->every, checkpoint, &s) < 0) result = 130;
    if (error->text[0] != '\0') result = -1;
    if (result >= 0 && checkpoint != NULL && save_all(&s) < 0) result = -1;
    if (result >= 0) report_runs(&s);
  }
  free_trainers(&s);
  return result;
}

int experiment_run(lab_context *x, lab_family family, lab_error *error) {
  const lab_options *o = x->options;
  dataset data;
  if (o->checkpoints != NULL && mkdir(o->checkpoints, 0777) != 0 && errno != EEXIST)
    return lab_fail(error, "%s: cannot be created", o->checkpoints);
  if (dataset_load(&data, family, o, error) < 0) return -1;
  if (!o->quiet)
    fprintf(stderr, "%s: data: %s%s\n", family_name(family), data.origin,
            data.synthetic ? " (figures say nothing about language or vision)" : "");
  int result = 0;
  for (int64_t run = 0; result == 0 && run < (o->runs > 0 ? o->runs : 1); run++)
    result = run_seed(x, family, &data, run, error);
  dataset_free(&data);
  return result;
}
