/* SPDX-License-Identifier: MIT
 *
 * Training one model: steps, learning rate, the curve of the loss (trainer.c), times (times.c).
 */
#ifndef LAB_TRAIN_H
#define LAB_TRAIN_H

#include "models/model.h"
#include "report/report.h"

typedef struct train_config {
  int64_t steps;
  double rate;
  int64_t warmup;      /* steps over which the rate rises                                      */
  int decay;           /* 1: the rate then falls linearly to a tenth at the last step          */
  double beta1, beta2; /* of Adam                                                              */
  double clip;
} train_config;

typedef struct trainer {
  model *m;       /* owned */
  char data[160]; /* what it is trained on; part of a checkpoint's settings */
  train_config config;
  const rms_executor *executor; /* NULL: the calling thread */
  tape **tapes;                 /* one per shard            */
  int64_t step;                 /* done                     */
  int64_t diverged;             /* first step whose loss was not finite; -1 */
  lab_point *curve;             /* one point per step       */
  int64_t curve_capacity;
  double *seconds; /* of each step since this process started it; NAN for those before */
  int64_t seconds_capacity;
  tape_times *times; /* of each step since this process started; summed over shards, total includes the optimiser */
  int64_t times_capacity;
  int64_t activation_bytes;                   /* most of any step, over all shards */
  double exchange_seconds, optimiser_seconds; /* of all steps: messages between processes; sums and Adam */
} trainer;

trainer *trainer_create(model *m, const train_config *config, const rms_executor *executor);
void trainer_free(trainer *t);
int trainer_done(const trainer *t); /* all steps done, or diverged */
/* One step; returns the loss. */
double trainer_step(trainer *t);
model_score trainer_evaluate(trainer *t); /* does not count as training time; zeros but on process 0 */
double trainer_seconds(const trainer *t); /* training time so far */
/* Seconds per step of trainers that alternated on the same batches: the median of their mean time, times each one's
 * median share. Shares are compared step by step, in CPU time, so that what slows the machine for a while favours none.
 * The first few steps, which warm up memory, are left out where there are enough. NAN without a step that
 * all measured. */
void trainers_seconds_per_step(trainer *const *trainers, int count, double *seconds);
/* Shares of the step time inside normalization and inside matrix products: medians over the steps measured. */
typedef struct step_shares {
  double norm, blas;
} step_shares;
step_shares trainer_shares(const trainer *t);

/* Continues after `step` steps whose curve is given; the parameters are the caller's business. */
void trainer_restore(trainer *t, int64_t step, const lab_point *curve);

#endif
