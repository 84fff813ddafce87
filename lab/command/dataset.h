/* SPDX-License-Identifier: MIT
 *
 * The data of each family: files named on the command line, what Debian packages installed, or the
 * generator. */
#ifndef LAB_DATASET_H
#define LAB_DATASET_H

#include "command/options.h"
#include "models/model.h"

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
/* A hash of what the models learn from: the processes of a job must have the same. */
uint64_t dataset_hash(const dataset *d);
/* -1 with an error if these settings do not suit the family or its data: found before anything is trained. */
int dataset_check(const dataset *d, lab_family family, const model_config *config, lab_error *error);
/* For settings that dataset_check accepts. */
model *dataset_model(const dataset *d, lab_family family, const model_config *config);

#endif
