/* SPDX-License-Identifier: MIT
 *
 * The experiments: each adds to the report.
 */
#ifndef LAB_EXPERIMENT_H
#define LAB_EXPERIMENT_H

#include "command/dataset.h"
#include "command/settings.h"
#include "train/contest.h"

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
