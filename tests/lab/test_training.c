/* SPDX-License-Identifier: MIT
 *
 * Training: same bits whatever the thread count, resumed runs equal unbroken ones, learning happens, divergence is an
 * outcome, checkpoints refuse what is not theirs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "temp.h"
#include "train/checkpoint.h"

enum { KINDS = 6 };

typedef struct data {
  corpus corpus;
  lab_images train, test;
  lab_cloze cloze;
  lab_text text;
} data;

static data make_data(void) {
  data d;
  memset(&d, 0, sizeof d);
  lab_error error = {""};
  lab_pairs pairs = {0};
  lab_cloze_options options = {.passage_words = 30, .questions = 60, .seed = 3};
  lab_synth_pairs(&pairs, 200, 7);
  T_EQ_INT(0, corpus_make(&d.corpus, &pairs, 1, 60, 20, 10, &error));
  lab_synth_images(&d.train, 60, 1, 16, 16, 5);
  lab_synth_images(&d.test, 20, 1, 16, 16, 6);
  T_EQ_INT(0, lab_synth_cloze(&d.cloze, &options, &error));
  lab_synth_text(&d.text, 6000, 2);
  return d;
}

static void free_data(data *d) {
  corpus_free(&d->corpus);
  lab_images_free(&d->train);
  lab_images_free(&d->test);
  lab_cloze_free(&d->cloze);
  lab_text_free(&d->text);
}

static model *make_model(const data *d, int which, norm_kind kind, norm_engine engine) {
  model_config c = {.sizes = {.width = 16,
                              .embed = 8,
                              .hidden = 24,
                              .layers = 2,
                              .heads = 2,
                              .length = 10,
                              .batch = 12,
                              .beam = 3,
                              .tested = 10,
                              .dropout = 0.1,
                              .noise = 0.1,
                              .smoothing = 0.1},
                    .norm = {.kind = kind, .engine = engine, .p = 0.25, .eps = 1e-5},
                    .seed = t_seed(),
                    .shards = 3};
  switch (which) {
  case 0:
    return rnnsearch_create(&c, &d->corpus);
  case 1:
    return transformer_create(&c, &d->corpus);
  case 2:
    c.sizes.embed = 4;
    return convpool_create(&c, &d->train, &d->test);
  case 3:
    return reader_create(&c, &d->cloze);
  case 4:
    return order_create(&c, &d->corpus, NULL);
  default:
    return lm_create(&c, &d->text);
  }
}

static const train_config plan = {
    .steps = 12, .rate = 3e-3, .warmup = 3, .decay = 1, .beta1 = 0.9, .beta2 = 0.99, .clip = 1};

static void run_steps(trainer *t, int64_t until) {
  while (t->step < until && !trainer_done(t))
    trainer_step(t);
}

/* The parameters, Adam's moments and the losses must match bit for bit. */
static void check_same(const trainer *a, const trainer *b) {
  size_t bytes = (size_t)a->m->params.size * sizeof(real);
  T_EQ_INT(a->step, b->step);
  T_EQ_BYTES(a->m->params.value, b->m->params.value, bytes);
  T_EQ_BYTES(a->m->params.m, b->m->params.m, bytes);
  T_EQ_BYTES(a->m->params.v, b->m->params.v, bytes);
  for (int64_t i = 0; i < a->step && i < b->step; i++)
    T_EQ_F64(a->curve[i].loss, b->curve[i].loss);
}

static void same_bits_for_any_thread_count(void) {
  data d = make_data();
  static const int threads[] = {2, 3, 7};
  for (int which = 0; which < KINDS; which++) {
    trainer *alone = trainer_create(make_model(&d, which, NORM_RMS, ENGINE_LIBRARY), &plan, NULL);
    run_steps(alone, plan.steps);
    model_score alone_score = trainer_evaluate(alone);
    for (size_t i = 0; i < T_COUNT(threads); i++) {
      rms_pool *pool = NULL;
      T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, threads[i]));
      rms_executor executor = rms_pool_executor(pool);
      trainer *many = trainer_create(make_model(&d, which, NORM_RMS, ENGINE_LIBRARY), &plan, &executor);
      run_steps(many, plan.steps);
      t_context("%s, %d threads", many->m->kind->family, threads[i]);
      check_same(alone, many);
      T_EQ_F64(alone_score.quality, trainer_evaluate(many).quality);
      trainer_free(many);
      rms_pool_destroy(pool);
    }
    trainer_free(alone);
  }
  free_data(&d);
}

static void resumed_runs_equal_unbroken_ones(void) {
  data d = make_data();
  for (int which = 0; which < KINDS; which++) {
    norm_kind kind = which == 2 ? NORM_BATCH : NORM_PRMS; /* batch: the running averages are state too */
    lab_error error = {""};
    const char *path = temp_path("run.safetensors");
    trainer *whole = trainer_create(make_model(&d, which, kind, ENGINE_LIBRARY), &plan, NULL);
    run_steps(whole, plan.steps);
    trainer *first = trainer_create(make_model(&d, which, kind, ENGINE_LIBRARY), &plan, NULL);
    run_steps(first, 7);
    T_EQ_INT(0, checkpoint_write(first, path, &error));
    trainer *second = trainer_create(make_model(&d, which, kind, ENGINE_LIBRARY), &plan, NULL);
    T_EQ_INT(0, checkpoint_read(second, path, &error));
    T_EQ_INT(7, second->step);
    run_steps(second, plan.steps);
    t_context("%s", whole->m->kind->family);
    check_same(whole, second);
    trainer_free(whole);
    trainer_free(first);
    trainer_free(second);
  }
  free_data(&d);
}

static double mean_loss(const trainer *t, int64_t first, int64_t count) {
  double sum = 0;
  for (int64_t i = first; i < first + count; i++)
    sum += t->curve[i].loss;
  return sum / (double)count;
}

static void every_model_learns_with_every_norm_and_engine(void) {
  data d = make_data();
  train_config longer = plan;
  longer.steps = 40;
  longer.rate = 1e-2;
  for (int which = 0; which < KINDS; which++)
    for (norm_kind kind = NORM_LAYER; kind <= NORM_L2; kind++)
      for (norm_engine engine = ENGINE_LIBRARY; engine <= ENGINE_TEXTBOOK; engine++) {
        trainer *t = trainer_create(make_model(&d, which, kind, engine), &longer, NULL);
        run_steps(t, longer.steps);
        t_context("%s %s engine %d: loss %g, then %g", t->m->kind->family, norm_name(kind), (int)engine,
                  mean_loss(t, 0, 5), mean_loss(t, 35, 5));
        T_CHECK(mean_loss(t, 35, 5) < mean_loss(t, 0, 5));
        step_shares shares = trainer_shares(t);
        T_CHECK(shares.norm > 0 && shares.blas > 0 && shares.norm + shares.blas < 1);
        trainer_free(t);
      }
  free_data(&d);
}

/* The textbook's many passes compute the same function: the losses agree to rounding for a while. */
static void engines_agree(void) {
  data d = make_data();
  for (norm_kind kind = NORM_LAYER; kind <= NORM_L2; kind++) {
    trainer *a = trainer_create(make_model(&d, 1, kind, ENGINE_LIBRARY), &plan, NULL);
    trainer *b = trainer_create(make_model(&d, 1, kind, ENGINE_TEXTBOOK), &plan, NULL);
    t_context("%s", norm_name(kind));
    /* The first loss sees the same parameters: its difference is the rounding of f32, 6e-8 per operation, through a
     * few hundred operations in a row. */
    T_NEAR(trainer_step(a), trainer_step(b), 1e-4);
    trainer_free(a);
    trainer_free(b);
  }
  free_data(&d);
}

static void divergence_is_an_outcome(void) {
  data d = make_data();
  train_config wild = plan;
  wild.rate = 1e30;
  wild.clip = 0;
  wild.warmup = 1;
  trainer *t = trainer_create(make_model(&d, 1, NORM_NONE, ENGINE_LIBRARY), &wild, NULL);
  run_steps(t, wild.steps);
  T_CHECK(trainer_done(t));
  T_CHECK(t->diverged >= 1 && t->diverged < wild.steps);
  T_EQ_INT(t->diverged, t->step);
  trainer_free(t);
  free_data(&d);
}

static void foreign_checkpoints_are_refused(void) {
  data d = make_data();
  lab_error error = {""};
  trainer *rms = trainer_create(make_model(&d, 1, NORM_RMS, ENGINE_LIBRARY), &plan, NULL);
  trainer *layer = trainer_create(make_model(&d, 1, NORM_LAYER, ENGINE_LIBRARY), &plan, NULL);
  run_steps(rms, 2);
  const char *path = temp_path("rms.safetensors");
  T_EQ_INT(0, checkpoint_write(rms, path, &error));
  T_EQ_INT(-1, checkpoint_read(layer, path, &error));
  T_CHECK(temp_names(error.text, path));
  T_EQ_INT(0, layer->step);
  /* every cut and every damaged header is an error, never a crash */
  char *bytes;
  int64_t size;
  T_EQ_INT(0, lab_read_file(&bytes, &size, path, &error));
  char *copy = malloc((size_t)size);
  for (int64_t cut = 0; cut < size; cut += 1 + size / 97) {
    const char *damaged = temp_write("cut.safetensors", bytes, (size_t)cut);
    T_EQ_INT(-1, checkpoint_read(rms, damaged, &error));
  }
  t_rng rng = t_rng_make(1);
  int64_t refused = 0;
  for (int i = 0; i < 200; i++) {
    memcpy(copy, bytes, (size_t)size);
    copy[t_random_below(&rng, 2000)] = (char)t_random(&rng);
    const char *damaged = temp_write("damaged.safetensors", copy, (size_t)size);
    refused += checkpoint_read(layer, damaged, &error) == -1;
  }
  T_EQ_INT(200, refused); /* layer would refuse the whole file too; what matters is that nothing breaks */
  free(copy);
  free(bytes);
  trainer_free(rms);
  trainer_free(layer);
  free_data(&d);
}

static const t_case cases[] = {
    {"same_bits_for_any_thread_count", same_bits_for_any_thread_count},
    {"resumed_runs_equal_unbroken_ones", resumed_runs_equal_unbroken_ones},
    {"every_model_learns_with_every_norm_and_engine", every_model_learns_with_every_norm_and_engine},
    {"engines_agree", engines_agree},
    {"divergence_is_an_outcome", divergence_is_an_outcome},
    {"foreign_checkpoints_are_refused", foreign_checkpoints_are_refused},
};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
