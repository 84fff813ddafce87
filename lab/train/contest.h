/* SPDX-License-Identifier: MIT
 *
 * The training loop.
 */
#ifndef LAB_CONTEST_H
#define LAB_CONTEST_H

#include "train/trainer.h"

/* Runs of one family that alternate step by step, so that changes in the machine's speed affect all of them. */
typedef struct contest {
  trainer **trainers;
  const char **labels;
  int count;
} contest;

/* Trains all to the end, or until Ctrl-C; shows progress on stderr. checkpoint (may be NULL) is called for a trainer
 * every `every` steps (0 or less: never). Returns 0, 1 if stopped, or -1 if checkpoint failed. */
typedef int (*checkpoint_fn)(void *arg, int index);
int contest_run(contest *c, const char *title, int quiet, int64_t every, checkpoint_fn checkpoint, void *arg);

#endif
