/* SPDX-License-Identifier: MIT
 *
 * The loss of every whole model against finite differences in double, for each norm.
 */
#include "gradient.h"
#include "harness.h"
#include "models/model.h"

static model_config tiny(norm_kind kind) {
  return (model_config){.sizes = {.width = 8,
                                  .embed = 6,
                                  .hidden = 12,
                                  .layers = 1,
                                  .heads = 2,
                                  .length = 5,
                                  .batch = 4,
                                  .beam = 2,
                                  .tested = 10,
                                  .dropout = 0.1,
                                  .noise = 0.1,
                                  .smoothing = 0.1},
                        .norm = {.kind = kind, .p = 0.3, .eps = 1e-3},
                        .seed = t_seed(),
                        .shards = 1};
}

static tensor *build_loss(net *n, void *arg) {
  model *m = arg;
  model_prepare(m, 3);
  return m->kind->loss(m, n->t, 0);
}

/* Whole models have thousands of elements: a part of them, spread over all layers, is enough. */
static void check_model(model *m, int64_t wanted) {
  t_context("%s with %s", m->kind->family, norm_name(m->config.norm.kind));
  int64_t stride = m->params.size / wanted + 1;
  check_gradients(&m->params, &m->config.norm, build_loss, m, stride);
  model_free(m);
}

static corpus make_corpus(void) {
  lab_pairs pairs = {0};
  lab_error error = {""};
  corpus c;
  lab_synth_pairs(&pairs, 60, 7);
  T_EQ_INT(0, corpus_make(&c, &pairs, 1, 30, 12, 6, &error));
  return c;
}

static void translation(void) {
  corpus c = make_corpus();
  for (norm_kind kind = NORM_NONE; kind <= NORM_L2; kind++) {
    model_config config = tiny(kind);
    check_model(rnnsearch_create(&config, &c), 300);
    for (config.sizes.pre_norm = 0; config.sizes.pre_norm < 2; config.sizes.pre_norm++)
      check_model(transformer_create(&config, &c), 300);
  }
  corpus_free(&c);
}

static void images(void) {
  lab_images train = {0}, test = {0};
  lab_synth_images(&train, 20, 1, 16, 16, 5);
  lab_synth_images(&test, 5, 1, 16, 16, 6);
  for (norm_kind kind = NORM_NONE; kind <= NORM_BATCH; kind++) {
    model_config config = tiny(kind);
    config.sizes.embed = 3;
    check_model(convpool_create(&config, &train, &test), 200);
  }
  lab_images_free(&train);
  lab_images_free(&test);
}

static void reading(void) {
  lab_cloze cloze = {0};
  lab_cloze_options options = {.passage_words = 30, .questions = 40, .seed = 3};
  lab_error error = {""};
  int made = lab_synth_cloze(&cloze, &options, &error);
  t_context("%s", error.text);
  if (!T_EQ_INT(0, made)) return;
  for (norm_kind kind = NORM_NONE; kind <= NORM_L2; kind++) {
    model_config config = tiny(kind);
    check_model(reader_create(&config, &cloze), 150);
  }
  lab_cloze_free(&cloze);
}

static void retrieval(void) {
  corpus c = make_corpus();
  lab_scenes scenes = {0};
  lab_synth_scenes(&scenes, 40, 10, 4);
  for (norm_kind kind = NORM_NONE; kind <= NORM_L2; kind++) {
    model_config config = tiny(kind);
    check_model(order_create(&config, &c, NULL), 200);
    check_model(order_create(&config, NULL, &scenes), 200);
  }
  lab_scenes_free(&scenes);
  corpus_free(&c);
}

static void language_model(void) {
  lab_text text = {0};
  lab_synth_text(&text, 3000, 2);
  for (norm_kind kind = NORM_NONE; kind <= NORM_L2; kind++) {
    model_config config = tiny(kind);
    model *m = lm_create(&config, &text);
    if (T_CHECK(m != NULL)) check_model(m, 300);
  }
  lab_text_free(&text);
}

static const t_case cases[] = {
    {"translation", translation},       {"images", images}, {"reading", reading}, {"retrieval", retrieval},
    {"language_model", language_model},
};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
