/* SPDX-License-Identifier: MIT */
#include "command/settings.h"

#include <math.h>
#include <string.h>

typedef struct family_defaults {
  model_sizes sizes;
  train_config train;
} family_defaults;

static const family_defaults small_defaults[FAMILIES] = {
    [FAMILY_RNNSEARCH] = {{.width = 96, .embed = 64, .batch = 64, .beam = 4, .tested = 200},
                          {.steps = 280, .rate = 4e-3, .warmup = 20, .decay = 1, .beta2 = 0.999, .clip = 1}},
    [FAMILY_TRANSFORMER] =
        {{.width = 64, .hidden = 64, .layers = 4, .heads = 1, .batch = 64, .beam = 4, .tested = 200, .dropout = 0.1},
         {.steps = 280, .rate = 4e-3, .warmup = 40, .decay = 1, .beta2 = 0.98, .clip = 1}},
    /* The paper's dropout of 0.5 and noise are for 200 epochs; here no image is seen twice. */
    [FAMILY_CONVPOOL] = {{.embed = 12, .batch = 8, .tested = 2000},
                         {.steps = 7000, .rate = 3e-3, .warmup = 100, .decay = 1, .beta2 = 0.999, .clip = 1}},
    [FAMILY_READER] = {{.width = 64, .embed = 64, .batch = 32, .tested = 400},
                       {.steps = 200, .rate = 3e-3, .warmup = 20, .decay = 1, .beta2 = 0.999, .clip = 5}},
    [FAMILY_ORDER] = {{.width = 128, .embed = 64, .batch = 128, .tested = 500},
                      {.steps = 200, .rate = 3e-3, .warmup = 20, .decay = 1, .beta2 = 0.999, .clip = 2}},
    [FAMILY_LM] = {{.width = 128, .hidden = 256, .layers = 2, .heads = 4, .length = 64, .batch = 16, .tested = 200},
                   {.steps = 200, .rate = 2e-3, .warmup = 50, .decay = 1, .beta2 = 0.98, .clip = 1}},
};

static const family_defaults full_defaults[FAMILIES] = {
    [FAMILY_RNNSEARCH] = {{.width = 1024, .embed = 512, .batch = 80, .beam = 5, .tested = 3000, .dropout = 0.1},
                          {.steps = 300000, .rate = 1e-4, .warmup = 1, .beta2 = 0.999, .clip = 1}},
    [FAMILY_TRANSFORMER] = {{.width = 512,
                             .hidden = 2048,
                             .layers = 6,
                             .heads = 8,
                             .batch = 128,
                             .beam = 4,
                             .tested = 3000,
                             .dropout = 0.1,
                             .smoothing = 0.1},
                            {.steps = 300000, .rate = 7e-4, .warmup = 4000, .decay = 1, .beta2 = 0.98}},
    [FAMILY_CONVPOOL] = {{.embed = 96, .batch = 100, .tested = 10000, .dropout = 0.5, .noise = 0.15},
                         {.steps = 100000, .rate = 3e-3, .warmup = 1, .decay = 1, .beta2 = 0.999}},
    [FAMILY_READER] = {{.width = 240, .embed = 240, .batch = 64, .tested = 3000},
                       {.steps = 300000, .rate = 8e-5, .warmup = 1, .beta2 = 0.999, .clip = 10}},
    [FAMILY_ORDER] = {{.width = 1024, .embed = 300, .batch = 128, .tested = 1000},
                      {.steps = 30000, .rate = 1e-3, .warmup = 1, .beta2 = 0.999, .clip = 2}},
    [FAMILY_LM] = {{.width = 512,
                    .hidden = 2048,
                    .layers = 6,
                    .heads = 8,
                    .length = 256,
                    .batch = 32,
                    .tested = 1000,
                    .dropout = 0.1},
                   {.steps = 100000, .rate = 7e-4, .warmup = 4000, .decay = 1, .beta2 = 0.98, .clip = 1}},
};

static int64_t chosen(int64_t given, int64_t otherwise) {
  return given != UNSET ? given : otherwise;
}

static double chosen_real(double given, double otherwise) {
  return isnan(given) ? otherwise : given;
}

int64_t settings_runs(const lab_options *o) {
  return chosen(o->runs, o->full ? 1 : 2);
}

uint64_t settings_seed(const lab_options *o) {
  return (uint64_t)chosen(o->seed, 1);
}

int64_t settings_timing(const lab_options *o) {
  return chosen(o->timing, o->full ? 0 : 30);
}

int settings_shards(const lab_options *o) {
  return (int)chosen(o->shards, o->full ? 8 : 2);
}

/* The paper's shares are those of wide layers: 6.25 % of 512 are 32 elements. At the small sizes the same number of
 * elements is a larger share. */
static double default_share(lab_family family, int full) {
  if (family == FAMILY_CONVPOOL) return full ? 0.125 : 0.5;
  return full ? 0.0625 : 0.25;
}

void settings_of_family(const lab_options *o, lab_family family, model_config *config, train_config *train) {
  const family_defaults *d = o->full ? &full_defaults[family] : &small_defaults[family];
  *config = (model_config){.sizes = d->sizes};
  model_sizes *s = &config->sizes;
  s->width = chosen(o->width, s->width);
  s->embed = chosen(o->embed, s->embed);
  s->hidden = chosen(o->hidden, s->hidden);
  s->layers = chosen(o->layers, s->layers);
  s->heads = chosen(o->heads, s->heads);
  s->length = chosen(o->length, s->length);
  s->batch = chosen(o->batch, s->batch);
  s->beam = chosen(o->beam, s->beam);
  s->tested = chosen(o->tested, s->tested);
  s->dropout = chosen_real(o->dropout, s->dropout);
  s->noise = chosen_real(o->noise, s->noise);
  s->pre_norm = o->pre_norm || (!o->post_norm && !o->full); /* learns sooner; the paper seems to have used the other */
  config->shards = settings_shards(o);
  config->norm.engine = o->engine != NULL && strcmp(o->engine, "textbook") == 0 ? ENGINE_TEXTBOOK : ENGINE_LIBRARY;
  config->norm.p = chosen_real(o->p, default_share(family, o->full));
  config->norm.ranks = (int)chosen(o->ranks, 4);
  config->norm.eps = chosen_real(o->eps, 1e-5);
  config->norm.spread = o->subset != NULL && strcmp(o->subset, "spread") == 0;
  *train = d->train;
  train->steps = chosen(o->steps, train->steps);
  train->warmup = chosen(o->warmup, train->warmup);
  train->rate = chosen_real(o->rate, train->rate);
  train->clip = chosen_real(o->clip, train->clip);
  train->beta1 = 0.9;
}
