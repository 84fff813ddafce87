/* SPDX-License-Identifier: MIT
 *
 * The state of a training run in a file.
 */
#ifndef LAB_CHECKPOINT_H
#define LAB_CHECKPOINT_H

#include "train/trainer.h"

/* Everything that the next step depends on. Written beside its name first, then renamed. */
int checkpoint_write(const trainer *t, const char *path, lab_error *error);
/* The trainer must have been created with the settings of the one that was written. */
int checkpoint_read(trainer *t, const char *path, lab_error *error);
/* Together (base/cluster.h): every process goes on from the state of process 0. */
void checkpoint_share(trainer *t);

#endif
