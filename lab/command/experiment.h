/* SPDX-License-Identifier: MIT
 *
 * The experiments: each adds to the report.
 */
#ifndef LAB_EXPERIMENT_H
#define LAB_EXPERIMENT_H

#include "command/dataset.h"
#include "command/settings.h"
#include "train/contest.h"

typedef struct lab_context {
  const lab_options *options;
  const rms_executor *executor;
  lab_report *report;
  dataset data[FAMILIES]; /* of the families that are asked for; zeros: not loaded */
} lab_context;

/* Loads the data of every family that is asked for and checks the settings of every run, so that nothing is trained
 * before everything is known to be right. */
int experiment_prepare(lab_context *x, lab_error *error);
/* Says on stderr what data there is. */
void experiment_announce(const lab_context *x);
void experiment_free(lab_context *x);

/* Each returns 0, STOPPED, or -1 with an error; what was done by then is in the report. */
enum { STOPPED = 1 };
int experiment_run(lab_context *x, lab_error *error); /* the models, seed by seed, then their times */
int psweep_run(lab_context *x, lab_error *error);
int init_run(lab_context *x, lab_error *error);
int scaling_run(lab_context *x, lab_error *error);

/* A model with these settings and what trains it. */
trainer *make_trainer(const lab_context *x, lab_family family, const model_config *config, const train_config *train);

#endif
