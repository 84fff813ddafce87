/* SPDX-License-Identifier: MIT
 *
 * Sizes and training of each family: small ones for minutes on two cores, and the paper's.
 */
#ifndef LAB_SETTINGS_H
#define LAB_SETTINGS_H

#include "command/options.h"
#include "train/trainer.h"

/* A family's settings under these options; norm.kind, seed and centre are left to the caller. */
void settings_of_family(const lab_options *o, lab_family family, model_config *config, train_config *train);

int64_t settings_runs(const lab_options *o);
uint64_t settings_seed(const lab_options *o);  /* of the first run */
int64_t settings_timing(const lab_options *o); /* steps of the comparison of times; 0: none */
int settings_shards(const lab_options *o);

#endif
