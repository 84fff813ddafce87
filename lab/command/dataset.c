/* SPDX-License-Identifier: MIT
 *
 * Where each family's data comes from: files named on the command line, what Debian packages installed, or the built-in
 * generator.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command/dataset.h"

enum {
  FEWEST_WORDS = 3,
  SMALLEST_IMAGE = 16, /* convpool reduces it to a map of 2 x 2; a norm over a single pixel would be meaningless */
  SYNTHETIC_PAIRS = 12000,
  SYNTHETIC_IMAGES = 6000,
  SYNTHETIC_TEXT = 400000,
  SYNTHETIC_SCENES = 6000,
  SCENE_DIMS = 128,
  DATA_SEED = 20191016
};

/* The catalogues that the default run learns from, and the packages they come in (scripts/data-packages.txt). The list
 * is fixed, whatever else is installed, so that two machines have the same pairs. */
static const char *const catalogues[] = {"gutenprint", "iso_639-3", "xkeyboard-config", NULL};
static const char packages[] = "gutenprint-locales iso-codes xkb-data";

/* What is installed, or else synthetic pairs. */
static int read_default(lab_pairs *pairs, int max_words, lab_error *error) {
  int missing = lab_pairs_read_named(pairs, NULL, "de", catalogues, error);
  if (missing < 0) return -1;
  if (missing == 0) {
    lab_pairs_clean(pairs, FEWEST_WORDS, max_words);
    return 0;
  }
  lab_pairs_free(pairs);
  lab_synth_pairs(pairs, SYNTHETIC_PAIRS, DATA_SEED);
  size_t used = strlen(pairs->origin);
  snprintf(pairs->origin + used, sizeof pairs->origin - used, " (for real ones: %s)", packages);
  lab_pairs_clean(pairs, FEWEST_WORDS, max_words);
  return 0;
}

static int read_pairs(lab_pairs *pairs, const lab_options *o, lab_error *error) {
  int max_words = o->max_words != UNSET ? (int)o->max_words : o->full ? 50 : 6, found = 1;
  if (o->synthetic) {
    lab_synth_pairs(pairs, SYNTHETIC_PAIRS, DATA_SEED);
  } else if (o->source != NULL) {
    if (lab_pairs_read_text(pairs, o->source, o->target, error) < 0) return -1;
  } else if (o->catalogue != NULL) {
    if (lab_pairs_read_mo(pairs, o->catalogue, error) < 0) return -1;
  } else if (o->language != NULL) {
    found = lab_pairs_read_installed(pairs, NULL, o->language, error);
    if (found == 0) return lab_fail(error, "--language: no catalogue of '%s' is installed", o->language);
    if (found < 0) return -1;
  } else {
    return read_default(pairs, max_words, error);
  }
  lab_pairs_clean(pairs, FEWEST_WORDS, max_words);
  return 0;
}

static int load_corpus(dataset *d, const lab_options *o, lab_error *error) {
  lab_pairs pairs = {0};
  if (read_pairs(&pairs, o, error) < 0) {
    lab_pairs_free(&pairs);
    return -1;
  }
  d->synthetic = pairs.synthetic;
  snprintf(d->origin, sizeof d->origin, "%s", pairs.origin);
  if (o->pairs != UNSET && o->pairs < pairs.count) {
    lab_pairs_cut(&pairs, DATA_SEED, 0, 0); /* shuffles */
    for (int64_t i = o->pairs; i < pairs.count; i++) {
      free(pairs.items[i].source);
      free(pairs.items[i].target);
    }
    pairs.count = o->pairs;
  }
  int32_t merges = (int32_t)(o->merges != UNSET ? o->merges : o->full ? 32000 : 500);
  return corpus_make(&d->corpus, &pairs, DATA_SEED, merges, o->full ? 100 : 40, o->full ? 3000 : 500, error);
}

static int load_images(dataset *d, const lab_options *o, lab_error *error) {
  int found = 0;
  if (o->images != NULL || !o->synthetic) {
    found = lab_images_read_folder(&d->train_images, &d->test_images, o->images, error);
    if (found < 0) return -1;
    if (found == 0 && o->images != NULL)
      return lab_fail(error, "%s: neither idx files nor CIFAR-10 batches there", o->images);
  }
  if (!found) {
    lab_synth_images(&d->train_images, SYNTHETIC_IMAGES, 1, 28, 28, DATA_SEED);
    lab_synth_images(&d->test_images, SYNTHETIC_IMAGES / 6, 1, 28, 28, DATA_SEED + 1);
  }
  /* The part of the test set that is scored is a fair sample, the same in every run. */
  lab_images_sample(&d->test_images, d->test_images.count, DATA_SEED);
  d->synthetic = d->train_images.synthetic;
  snprintf(d->origin, sizeof d->origin, "%s", d->train_images.origin);
  return 0;
}

static int load_text(dataset *d, const lab_options *o, lab_error *error) {
  if (o->text != NULL && lab_text_read(&d->text, o->text, error) < 0) return -1;
  if (o->text == NULL) lab_synth_text(&d->text, SYNTHETIC_TEXT, DATA_SEED);
  d->synthetic = d->text.synthetic;
  snprintf(d->origin, sizeof d->origin, "%s", d->text.origin);
  return 0;
}

static int load_cloze(dataset *d, const lab_options *o, lab_error *error) {
  lab_cloze_options options = {.seed = DATA_SEED};
  int result = 0;
  if (o->text != NULL) {
    result = load_text(d, o, error) < 0 ? -1 : lab_cloze_make(&d->cloze, &d->text, &options, error);
  } else {
    options.questions = 4000;
    options.passage_words = 30;
    result = lab_synth_cloze(&d->cloze, &options, error);
  }
  if (result < 0) return -1;
  d->synthetic = d->cloze.synthetic;
  snprintf(d->origin, sizeof d->origin, "%s", d->cloze.origin);
  return 0;
}

/* Image features are not installed anywhere: real pairs of sentences stand in, or synthetic scenes. */
static int load_order(dataset *d, const lab_options *o, lab_error *error) {
  if (!o->synthetic) {
    if (load_corpus(d, o, error) < 0) return -1;
    if (!d->synthetic) return 0;
    corpus_free(&d->corpus);
  }
  lab_synth_scenes(&d->scenes, SYNTHETIC_SCENES, SCENE_DIMS, DATA_SEED);
  d->has_scenes = 1;
  d->synthetic = 1;
  snprintf(d->origin, sizeof d->origin, "%s", d->scenes.origin);
  return 0;
}

int dataset_load(dataset *d, lab_family family, const lab_options *o, lab_error *error) {
  *d = (dataset){0};
  int result = -1;
  switch (family) {
  case FAMILY_RNNSEARCH:
  case FAMILY_TRANSFORMER:
    result = load_corpus(d, o, error);
    break;
  case FAMILY_CONVPOOL:
    result = load_images(d, o, error);
    break;
  case FAMILY_READER:
    result = load_cloze(d, o, error);
    break;
  case FAMILY_ORDER:
    result = load_order(d, o, error);
    break;
  case FAMILY_LM:
    result = load_text(d, o, error);
    break;
  case FAMILIES:
    break;
  }
  if (result < 0) dataset_free(d);
  return result;
}

void dataset_free(dataset *d) {
  corpus_free(&d->corpus);
  lab_images_free(&d->train_images);
  lab_images_free(&d->test_images);
  lab_text_free(&d->text);
  lab_cloze_free(&d->cloze);
  if (d->has_scenes) lab_scenes_free(&d->scenes);
  *d = (dataset){0};
}

static uint64_t hash_block(uint64_t hash, const void *bytes, int64_t size) {
  return bytes == NULL ? hash : lab_hash(hash, bytes, (size_t)size);
}

static uint64_t hash_images(uint64_t hash, const lab_images *images) {
  hash = hash_block(hash, images->labels, images->count);
  return hash_block(hash, images->pixels, images->count * images->channels * images->height * images->width);
}

uint64_t dataset_hash(const dataset *d) {
  uint64_t hash = hash_images(hash_images(LAB_HASH_START, &d->train_images), &d->test_images);
  hash = hash_block(hash, d->text.bytes, d->text.size);
  hash = hash_block(hash, d->cloze.ids, d->cloze.ids_count * (int64_t)sizeof *d->cloze.ids);
  for (int64_t i = 0; i < d->corpus.pairs.count; i++) {
    const lab_pair *pair = &d->corpus.pairs.items[i];
    hash = hash_block(hash, pair->source, (int64_t)strlen(pair->source) + 1);
    hash = hash_block(hash, pair->target, (int64_t)strlen(pair->target) + 1);
  }
  return hash;
}

static int check_images(const dataset *d, lab_error *error) {
  const lab_images *images = &d->train_images;
  if (images->height >= SMALLEST_IMAGE && images->width >= SMALLEST_IMAGE) return 0;
  return lab_fail(error, "%s: images of %d x %d are too small for convpool, which needs %d x %d", d->origin,
                  images->height, images->width, SMALLEST_IMAGE, SMALLEST_IMAGE);
}

int dataset_check(const dataset *d, lab_family family, const model_config *config, lab_error *error) {
  const model_sizes *s = &config->sizes;
  if (config->norm.kind == NORM_BATCH && family != FAMILY_CONVPOOL)
    return lab_fail(error, "--norms: batch is for convpool only, not for %s", family_name(family));
  if (config->norm.kind == NORM_PRMS_LOCAL && family == FAMILY_CONVPOOL)
    return lab_fail(error, "--norms: prms-local is not for convpool, whose rows are pixels");
  if (config->norm.kind == NORM_PRMS_LOCAL &&
      (s->width % config->norm.ranks != 0 || s->embed % config->norm.ranks != 0))
    return lab_fail(error, "--ranks: %d does not divide the widths %lld and %lld", config->norm.ranks,
                    (long long)s->width, (long long)(s->embed > 0 ? s->embed : s->width));
  if ((family == FAMILY_TRANSFORMER || family == FAMILY_LM) && s->width % s->heads != 0)
    return lab_fail(error, "--heads: %lld does not divide the width %lld", (long long)s->heads, (long long)s->width);
  if (s->batch < config->shards)
    return lab_fail(error, "--batch: %lld examples cannot be cut into %d shards", (long long)s->batch, config->shards);
  if (family == FAMILY_CONVPOOL) return check_images(d, error);
  if (family == FAMILY_LM) return lm_check(config, &d->text, error);
  return 0;
}

model *dataset_model(const dataset *d, lab_family family, const model_config *config) {
  switch (family) {
  case FAMILY_RNNSEARCH:
    return rnnsearch_create(config, &d->corpus);
  case FAMILY_TRANSFORMER:
    return transformer_create(config, &d->corpus);
  case FAMILY_CONVPOOL:
    return convpool_create(config, &d->train_images, &d->test_images);
  case FAMILY_READER:
    return reader_create(config, &d->cloze);
  case FAMILY_ORDER:
    return order_create(config, &d->corpus, d->has_scenes ? &d->scenes : NULL);
  case FAMILY_LM:
    return lm_create(config, &d->text);
  case FAMILIES:
    break;
  }
  return NULL;
}
