/* SPDX-License-Identifier: MIT
 *
 * The command line of `rmsnorm lab`.
 */
#ifndef LAB_OPTIONS_H
#define LAB_OPTIONS_H

#include "train/trainer.h"

typedef enum lab_family {
  FAMILY_RNNSEARCH = 0,
  FAMILY_TRANSFORMER,
  FAMILY_CONVPOOL,
  FAMILY_READER,
  FAMILY_ORDER,
  FAMILY_LM,
  FAMILIES
} lab_family;

const char *family_name(lab_family family);

/* -1 for an unknown name. */
int family_by_name(const char *name);

/* What the command line says; what it leaves open stays 0 (or NULL) and follows from the family's defaults. */
typedef struct lab_options {
  int help, full, synthetic, pre_norm, post_norm, resume, quiet;
  const char *norms, *engine, *subset, *out;
  const char *source, *target, *catalogue, *language, *text, *images; /* data */
  const char *checkpoints;
  int64_t every;
  double p, rate, dropout, noise, clip, eps;
  int64_t runs, seed, threads, shards, steps, batch, warmup;
  int64_t width, embed, hidden, layers, heads, length, beam, tested;
  int64_t merges, max_words, pairs;
  const char *words[16]; /* models and subcommands */
  int word_count;
} lab_options;

/* -1 with an error on bad usage. */
int options_parse(lab_options *o, int argc, char **argv, lab_error *error);
void options_help(void);
/* The norms named by --norms; -1 with an error for an unknown one. */
int options_norms(const lab_options *o, norm_kind norms[NORM_KINDS], lab_error *error);
/* The model named after a subcommand ("psweep transformer"), or `otherwise`; -1 with an error for an unknown one. */
int second_family(const lab_options *o, lab_family otherwise, lab_family *family, lab_error *error);

#endif
