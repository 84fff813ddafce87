/* SPDX-License-Identifier: MIT
 *
 * Data made from a seed, so that every experiment runs where no data set is installed. Each set is learnable, sets
 * synthetic = 1 and an origin that says "synthetic"; a figure got from it says something about speed and convergence,
 * nothing about language or vision.
 */
#ifndef LAB_DATA_SYNTH_H
#define LAB_DATA_SYNTH_H

#include "data/images.h"
#include "data/pairs.h"
#include "data/text.h"

/* Sentences of a small grammar and their "translation": other words, the verb at the end, adjectives after the noun,
 * endings that agree. 3 to 20 words, all distinct. */
void lab_synth_pairs(lab_pairs *pairs, int64_t count, uint64_t seed);

/* Ten classes of noisy drawings (stripes, rings, checks, ...) at random places and sizes. */
void lab_synth_images(lab_images *images, int64_t count, int channels, int height, int width, uint64_t seed);

/* Little stories of the same grammar in English words: somebody goes somewhere, takes something, gives it
 * to somebody. */
void lab_synth_text(lab_text *text, int64_t bytes, uint64_t seed);

/* Cloze questions about such stories (lab_cloze_make on lab_synth_text, so that the maker is the same). */
int lab_synth_cloze(lab_cloze *cloze, const lab_cloze_options *options, lab_error *error);

/* Scenes for retrieval: a feature vector, as an image network would give, and a caption that describes it. */
typedef struct lab_scenes {
  int64_t count;
  int dims;
  float *features; /* count x dims */
  char **captions; /* all distinct */
  char origin[160];
} lab_scenes;

void lab_synth_scenes(lab_scenes *scenes, int64_t count, int dims, uint64_t seed);
void lab_scenes_free(lab_scenes *scenes);

#endif
