/* SPDX-License-Identifier: MIT
 *
 * What training needs to know of a model, and the settings all models share.
 */
#ifndef LAB_MODEL_H
#define LAB_MODEL_H

#include "text/corpus.h"
#include "data/images.h"
#include "data/synth.h"
#include "data/text.h"
#include "base/tasks.h"
#include "models/layers.h"

/* Sizes; each model reads what it has. */
typedef struct model_sizes {
  int64_t width;  /* transformer: model width; others: state of the recurrent layers            */
  int64_t embed;  /* width of the embeddings; convpool: channels of the first three layers      */
  int64_t hidden; /* transformer: inner width of the feed-forward layers                        */
  int64_t layers, heads;
  int64_t length; /* language model: window of text                                             */
  int64_t batch;
  int64_t beam;
  int64_t tested; /* examples of the test set that are scored                                   */
  double dropout, noise, smoothing;
  int pre_norm; /* transformer: 1: norm before each sub-layer, 0: after each residual sum     */
} model_sizes;

typedef struct model_config {
  model_sizes sizes;
  norm_config norm;
  uint64_t seed;
  int shards;    /* parts of a batch that can run at once; belongs to the experiment: the sums follow it */
  double centre; /* of the initial weights; 0 but for `lab init`                                         */
} model_config;

typedef struct model_score {
  double quality;
  double chance; /* what guessing would score; NAN: nothing sensible */
  char details[160];
} model_score;

typedef struct model model;

/* What one kind of model has of its own. */
typedef struct model_kind {
  const char *family, *metric;
  int higher_is_better;
  size_t state_bytes;
  /* The shard's part of the batch's mean loss. */
  tensor *(*loss)(model *m, tape *t, int shard);
  /* The test set's score, with one tape per shard. */
  model_score (*evaluate)(model *m, tape **tapes, const rms_executor *executor);
  void (*free)(void *state); /* what the state owns, or NULL: nothing */
} model_kind;

struct model {
  const model_kind *kind;
  model_config config;
  params params;
  batcher batches;
  int32_t *lengths; /* the batcher's sort key; owned */
  int64_t step;     /* since model_prepare           */
  const int64_t *examples;
  void *state;
};

model *transformer_create(const model_config *config, const corpus *c);
model *rnnsearch_create(const model_config *config, const corpus *c);
/* -1 with an error if the text is too short. */
int lm_check(const model_config *config, const lab_text *text, lab_error *error);
model *lm_create(const model_config *config, const lab_text *text);
model *convpool_create(const model_config *config, const lab_images *train, const lab_images *test);
model *reader_create(const model_config *config, const lab_cloze *cloze);
model *order_create(const model_config *config, const corpus *c, const lab_scenes *scenes);
void model_free(model *m);
/* Chooses the batch of a step (1, 2, ...); before the shards run. */
void model_prepare(model *m, int64_t step);

/* ---- for the models (models/model.c) ---- */

/* A model without parameters or batches yet; its state is zeros. */
model *model_start(const model_kind *kind, const model_config *config);
/* Batches of the first `count` examples, of like length where lengths are given (taken over). */
void model_batches(model *m, int64_t count, int32_t *lengths);
/* Takes the parameters' memory: the last step of building. */
model *model_finish(model *m);

net model_net(model *m, tape *t, int shard);

/* The first of the held-out examples that are scored: the last `tested` of them. The default settings were chosen with
 * the first ones, so the default run scores examples that had no part in the choice. */
int64_t model_first_tested(const model *m, int64_t held_out);
/* Adds up what `count_right` finds among the examples [first, first + count) of all chunks of a test set. */
typedef int64_t (*count_right_fn)(model *m, tape *t, int shard, int64_t first, int64_t count);
int64_t count_in_chunks(model *m, tape **tapes, const rms_executor *executor, int64_t count,
                        count_right_fn count_right);
/* Column of the largest element. */
int64_t best_column(const tensor *x, int64_t row);

#endif
