/* SPDX-License-Identifier: MIT
 *
 * Training: for each family the same data, seeds and batches for every norm; then what a step takes with each norm on
 * both engines.
 */
#include "command/experiment.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cluster.h"
#include "base/file.h"
#include "train/checkpoint.h"
#include "train/stop.h"

static const char *default_norms(lab_task task) {
  return task == TASK_INIT ? "layer,rms,prms" : "none,layer,rms,prms";
}

/* ---- before anything is trained ---- */

static int check_family(const lab_context *x, lab_family family, lab_error *error) {
  const lab_options *o = x->options;
  norm_kind norms[NORM_KINDS];
  model_config config;
  train_config train;
  int count = options_norms(o, default_norms(o->task), norms, error);
  settings_of_family(o, family, &config, &train);
  for (int i = 0; i < count; i++) {
    config.norm.kind = norms[i];
    if (dataset_check(&x->data[family], family, &config, error) < 0) return -1;
  }
  return count < 0 ? -1 : 0;
}

static int prepare_own(lab_context *x, lab_error *error) {
  const lab_options *o = x->options;
  for (int i = 0; i < o->family_count; i++) {
    lab_family family = o->families[i];
    dataset *data = &x->data[family];
    if (dataset_load(data, family, o, error) < 0 || check_family(x, family, error) < 0) return -1;
  }
  return o->checkpoints != NULL && cluster_rank() == 0 ? lab_make_folder(o->checkpoints, error) : 0;
}

int experiment_prepare(lab_context *x, lab_error *error) {
  const lab_options *o = x->options;
  if (cluster_agree(prepare_own(x, error), error) < 0) return -1;
  for (int i = 0; i < o->family_count; i++)
    if (!cluster_same(dataset_hash(&x->data[o->families[i]]))) {
      lab_fail(error, "%s: the processes do not have the same data", family_name(o->families[i]));
      return cluster_agree(cluster_rank() == 0 ? -1 : 0, error); /* one message is enough */
    }
  return 0;
}

void experiment_announce(const lab_context *x) {
  for (int i = 0; i < x->options->family_count; i++) {
    lab_family family = x->options->families[i];
    fprintf(stderr, "%s: data: %s%s\n", family_name(family), x->data[family].origin,
            x->data[family].synthetic ? "; its figures say nothing about language or vision" : "");
  }
}

void experiment_free(lab_context *x) {
  for (int i = 0; i < FAMILIES; i++)
    dataset_free(&x->data[i]);
}

trainer *make_trainer(const lab_context *x, lab_family family, const model_config *config, const train_config *train) {
  const dataset *data = &x->data[family];
  trainer *t = trainer_create(dataset_model(data, family, config), train, x->executor);
  snprintf(t->data, sizeof t->data, "%s", data->origin);
  return t;
}

/* ---- one family ---- */

enum { MOST = 2 * NORM_KINDS }; /* trainers of a contest */

typedef struct family_run {
  lab_context *x;
  lab_family family;
  contest contest;
  trainer *trainers[MOST];
  const char *labels[MOST];
  lab_error *error;
} family_run;

static family_run start_run(lab_context *x, lab_family family, lab_error *error) {
  return (family_run){.x = x, .family = family, .error = error};
}

static void free_run(family_run *s) {
  for (int i = 0; i < s->contest.count; i++)
    trainer_free(s->trainers[i]);
}

static void add_trainer(family_run *s, const model_config *config, const train_config *train) {
  int at = s->contest.count++;
  s->trainers[at] = make_trainer(s->x, s->family, config, train);
  s->labels[at] = norm_name(config->norm.kind);
}

static int hold_contest(family_run *s, const char *title, checkpoint_fn checkpoint) {
  const lab_options *o = s->x->options;
  s->contest.trainers = s->trainers;
  s->contest.labels = s->labels;
  return contest_run(&s->contest, title, o->quiet, o->every, checkpoint, s);
}

/* The settings that the steps depend on, except norm and seed, as text for people. */
static void describe(const trainer *t, char *text, size_t size) {
  const model_sizes *z = &t->m->config.sizes;
  const train_config *g = &t->config;
  size_t used = (size_t)snprintf(text, size, "batch %lld in %d shards, Adam at %g, warm-up %lld%s, clip %g",
                                 (long long)t->m->batches.batch, t->m->config.shards, g->rate, (long long)g->warmup,
                                 g->decay ? ", then falling to a tenth" : "", g->clip);
  const struct {
    const char *name;
    int64_t value;
  } sizes[] = {{"width", z->width},        {"embeddings or channels", z->embed},
               {"inner width", z->hidden}, {"layers", z->layers},
               {"heads", z->heads},        {"window", z->length},
               {"beam", z->beam},          {"tested", z->tested}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes && used < size; i++)
    if (sizes[i].value > 0)
      used += (size_t)snprintf(text + used, size - used, ", %s %lld", sizes[i].name, (long long)sizes[i].value);
  if (used < size)
    snprintf(text + used, size - used, ", dropout %g, noise %g, eps %g, %s, pRMSNorm of the %s elements", z->dropout,
             z->noise, t->m->config.norm.eps, z->pre_norm ? "norm first" : "norm last",
             t->m->config.norm.spread ? "spread" : "first");
  used = strlen(text);
  if (t->m->config.norm.kind == NORM_PRMS_LOCAL)
    snprintf(text + used, size - used, " on each of %d ranks", t->m->config.norm.ranks);
}

static void add_run(const family_run *s, int index, double seconds_per_step, const model_score *score, int timing) {
  const trainer *t = s->trainers[index];
  const dataset *data = &s->x->data[s->family];
  const model_config *c = &t->m->config;
  lab_run run = lab_run_start(family_name(s->family), norm_name(c->norm.kind),
                              c->norm.engine == ENGINE_TEXTBOOK ? "textbook" : "library");
  step_shares shares = trainer_shares(t);
  if (c->norm.kind == NORM_PRMS || c->norm.kind == NORM_PRMS_LOCAL) run.p = c->norm.p;
  run.seed = c->seed;
  run.timing = timing;
  snprintf(run.metric, sizeof run.metric, "%s", t->m->kind->metric);
  run.higher_is_better = t->m->kind->higher_is_better;
  if (score != NULL) {
    run.quality = score->quality;
    run.chance = score->chance;
    snprintf(run.details, sizeof run.details, "%s", score->details);
  }
  run.steps = t->step;
  run.seconds_per_1000 = 1000 * seconds_per_step;
  run.norm_share = shares.norm;
  run.blas_share = shares.blas;
  run.parameters = params_trained(&t->m->params);
  run.activation_bytes = t->activation_bytes;
  run.diverged_step = t->diverged;
  describe(t, run.settings, sizeof run.settings);
  snprintf(run.data, sizeof run.data, "%s", data->origin);
  run.synthetic = data->synthetic;
  lab_report_add_run(s->x->report, &run, t->curve, timing ? 0 : t->step);
}

/* ---- one seed: a contest between the norms ---- */

static int checkpoint_path(const family_run *s, int index, char *path, size_t size) {
  const model_config *c = &s->trainers[index]->m->config;
  int length = snprintf(path, size, "%s/%s-%s-%s-seed%llu.safetensors", s->x->options->checkpoints,
                        family_name(s->family), norm_name(c->norm.kind),
                        c->norm.engine == ENGINE_TEXTBOOK ? "textbook" : "library", (unsigned long long)c->seed);
  return length > 0 && length < (int)size ? 0 : lab_fail(s->error, "--checkpoints: path too long");
}

/* Process 0 has the files. */
static int write_own_checkpoint(family_run *s, int index) {
  char path[1024];
  if (cluster_rank() > 0) return 0;
  if (checkpoint_path(s, index, path, sizeof path) < 0) return -1;
  return checkpoint_write(s->trainers[index], path, s->error);
}

static int write_checkpoint(void *arg, int index) {
  family_run *s = arg;
  params_collect_moments(&s->trainers[index]->m->params);
  return cluster_agree(write_own_checkpoint(s, index), s->error);
}

static int read_own_checkpoint(family_run *s, int index) {
  char path[1024];
  if (cluster_rank() > 0) return 0;
  if (checkpoint_path(s, index, path, sizeof path) < 0) return -1;
  return access(path, F_OK) == 0 ? checkpoint_read(s->trainers[index], path, s->error) : 0;
}

static int resume(family_run *s, int index) {
  if (cluster_agree(read_own_checkpoint(s, index), s->error) < 0) return -1;
  checkpoint_share(s->trainers[index]);
  return 0;
}

static int make_trainers(family_run *s, uint64_t seed) {
  const lab_options *o = s->x->options;
  norm_kind norms[NORM_KINDS];
  int count = options_norms(o, default_norms(o->task), norms, s->error);
  for (int i = 0; i < count; i++) {
    model_config config;
    train_config train;
    settings_of_family(o, s->family, &config, &train);
    config.norm.kind = norms[i];
    config.seed = seed;
    add_trainer(s, &config, &train);
    if (o->resume && resume(s, i) < 0) return -1;
  }
  return count < 0 ? -1 : 0;
}

/* A run that was stopped early has a curve and times but no score; one that diverged has none either. */
static void report_runs(family_run *s) {
  double seconds[MOST];
  trainers_seconds_per_step(s->trainers, s->contest.count, seconds);
  for (int i = 0; i < s->contest.count; i++) {
    trainer *t = s->trainers[i];
    int whole = t->step >= t->config.steps && t->diverged < 0;
    model_score score;
    if (whole) score = trainer_evaluate(t);
    if (t->step > 0) add_run(s, i, seconds[i], whole ? &score : NULL, 0);
  }
}

static int save_all(family_run *s) {
  for (int i = 0; i < s->contest.count; i++)
    if (s->trainers[i]->diverged < 0 && write_checkpoint(s, i) < 0) return -1;
  return 0;
}

static int train_seed(lab_context *x, lab_family family, int64_t run, lab_error *error) {
  const lab_options *o = x->options;
  family_run s = start_run(x, family, error);
  char title[64];
  int64_t runs = settings_runs(o);
  if (runs > 1)
    snprintf(title, sizeof title, "%s, seed %lld of %lld", family_name(family), (long long)run + 1, (long long)runs);
  else
    snprintf(title, sizeof title, "%s", family_name(family));
  int result = make_trainers(&s, settings_seed(o) + (uint64_t)run);
  if (result == 0) {
    checkpoint_fn checkpoint = o->checkpoints != NULL ? write_checkpoint : NULL;
    result = hold_contest(&s, title, checkpoint);
    if (result >= 0 && checkpoint != NULL && save_all(&s) < 0) result = -1;
    report_runs(&s); /* finished runs are reported even after an error */
  }
  free_run(&s);
  return result;
}

/* ---- times: the norms alternate, each with both engines ---- */

static int time_steps(lab_context *x, lab_family family, lab_error *error) {
  const lab_options *o = x->options;
  norm_kind norms[NORM_KINDS];
  int count = options_norms(o, default_norms(o->task), norms, error);
  family_run s = start_run(x, family, error);
  for (int i = 0; i < count; i++)
    for (int engine = ENGINE_LIBRARY; engine <= ENGINE_TEXTBOOK; engine++) {
      model_config config;
      train_config train;
      /* the same on both engines, or on one alone */
      int one_way = norms[i] == NORM_NONE || norms[i] == NORM_BATCH || norms[i] == NORM_PRMS_LOCAL;
      if (one_way && engine == ENGINE_TEXTBOOK) continue;
      settings_of_family(o, family, &config, &train);
      config.norm.kind = norms[i];
      config.norm.engine = (norm_engine)engine;
      config.seed = settings_seed(o);
      train.steps = settings_timing(o);
      add_trainer(&s, &config, &train);
    }
  char title[64];
  snprintf(title, sizeof title, "%s, times", family_name(family));
  int result = s.contest.count > 2 ? hold_contest(&s, title, NULL) : 0;
  if (result == 0 && s.contest.count > 2) {
    double seconds[MOST];
    trainers_seconds_per_step(s.trainers, s.contest.count, seconds);
    for (int i = 0; i < s.contest.count; i++)
      add_run(&s, i, seconds[i], NULL, 1);
  }
  free_run(&s);
  return result;
}

/* Reads the checkpoints of all seeds once, so that a damaged one is found before the first step of any. */
static int check_checkpoints(lab_context *x, lab_error *error) {
  const lab_options *o = x->options;
  int result = 0;
  for (int i = 0; result == 0 && i < o->family_count; i++)
    for (int64_t run = 0; result == 0 && run < settings_runs(o); run++) {
      family_run s = start_run(x, o->families[i], error);
      result = make_trainers(&s, settings_seed(o) + (uint64_t)run);
      free_run(&s);
    }
  return result;
}

int experiment_run(lab_context *x, lab_error *error) {
  const lab_options *o = x->options;
  if (o->resume && check_checkpoints(x, error) < 0) return -1;
  for (int i = 0; i < o->family_count; i++) {
    lab_family family = o->families[i];
    int result = 0;
    for (int64_t run = 0; result == 0 && run < settings_runs(o); run++)
      result = train_seed(x, family, run, error);
    if (result == 0 && settings_timing(o) > 0) result = time_steps(x, family, error);
    if (result == STOPPED)
      snprintf(x->report->note, sizeof x->report->note, "stopped by %s in %s, model %d of %d", stop_reason(),
               family_name(family), i + 1, o->family_count);
    if (result < 0)
      snprintf(x->report->note, sizeof x->report->note, "ended early in %s: %.180s", family_name(family), error->text);
    if (result != 0) return result;
  }
  return 0;
}
