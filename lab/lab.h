/* SPDX-License-Identifier: MIT
 *
 * `rmsnorm lab`: the paper's experiments. The command calls lab_main; the rest is shared by the lab's own files.
 */
#ifndef LAB_LAB_H
#define LAB_LAB_H

#include "train.h"

/* argv[0] is "lab". Exit codes: 0 done, 1 an experiment's answer is no, 2 bad usage or bad input, 130 stopped by
 * Ctrl-C (what was done by then is in the report). */
int lab_main(int argc, char **argv);

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
/* A family's settings under these options; norm.kind, seed and centre are left to the caller. */
void options_settings(const lab_options *o, lab_family family, model_config *config, train_config *train);

/* The data of a family, loaded once and shared by all runs. */
typedef struct dataset {
  corpus corpus;
  lab_images train_images, test_images;
  lab_text text;
  lab_cloze cloze;
  lab_scenes scenes;
  int has_scenes;
  char origin[160];
  int synthetic;
} dataset;

int dataset_load(dataset *d, lab_family family, const lab_options *o, lab_error *error);
void dataset_free(dataset *d);
/* NULL with an error. */
model *dataset_model(const dataset *d, lab_family family, const model_config *config, lab_error *error);

/* Ctrl-C (or SIGTERM) sets a flag; a second one ends the program at once. */
void stop_on_interrupt(void);
int stop_requested(void);

/* Runs of one family that take turns step by step, so that a change in the machine's speed meets them alike. */
typedef struct contest {
  trainer **trainers;
  const char **labels;
  int count;
  int64_t started; /* steps that were already done when the contest began */
} contest;

/* Trains all to the end, or until Ctrl-C; shows progress on stderr. checkpoint (may be NULL) is called for a trainer
 * every `every` steps. Returns 0, or -1 if stopped or if checkpoint failed. */
typedef int (*checkpoint_fn)(void *arg, int index);
int contest_run(contest *c, const char *title, int quiet, int64_t every, checkpoint_fn checkpoint, void *arg);

/* The run's figures, with the score if it was measured. */
void add_run(lab_report *report, lab_family family, const dataset *data, const trainer *t, double seconds_per_step,
             const model_score *score);

/* The subcommands; each adds to the report and returns an exit code. */
typedef struct lab_context {
  const lab_options *options;
  const rms_executor *executor;
  lab_report *report;
} lab_context;

int experiment_run(lab_context *x, lab_family family, lab_error *error); /* 0, 130; -1 with an error */
int psweep_run(lab_context *x, lab_error *error);
int init_run(lab_context *x, lab_error *error);

#endif
