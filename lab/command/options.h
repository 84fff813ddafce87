/* SPDX-License-Identifier: MIT
 *
 * The command line of `rmsnorm lab`.
 */
#ifndef LAB_OPTIONS_H
#define LAB_OPTIONS_H

#include "tape/ops.h"

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

/* The task that the command line asks for. */
typedef enum lab_task { TASK_TRAIN = 0, TASK_INVARIANCE, TASK_RATE, TASK_PSWEEP, TASK_INIT, TASK_SCALING, TASKS } lab_task;

/* Counts that the command line leaves open are UNSET, reals NAN, strings NULL; they follow from the
 * family's settings. */
enum { UNSET = -1 };

typedef struct lab_options {
  lab_task task;
  lab_family families[FAMILIES]; /* of all but TASK_INVARIANCE and TASK_RATE */
  int family_count;

  int full, synthetic, pre_norm, post_norm, resume, quiet, replace;
  const char *norms, *engine, *subset, *out;
  const char *source, *target, *catalogue, *language, *text, *images; /* data */
  const char *checkpoints;
  double p, rate, dropout, noise, clip, eps;
  int64_t every, runs, seed, threads, shards, ranks, steps, timing, batch, warmup;
  int64_t width, embed, hidden, layers, heads, length, beam, tested;
  int64_t merges, max_words, pairs;
} lab_options;

/* Returns a negative number to go on, otherwise the exit code: --help was answered or an error was reported. Every
 * option that is given is used by something that is asked for, and every value is within its bounds. */
int options_parse(lab_options *o, int argc, char **argv);

/* The norms named by --norms, or `otherwise`; -1 with an error for an unknown one. */
int options_norms(const lab_options *o, const char *otherwise, norm_kind norms[NORM_KINDS], lab_error *error);

#endif
