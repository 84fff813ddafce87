/* SPDX-License-Identifier: MIT
 *
 * Sizes and training of each family: small ones for minutes on two cores, and the paper's.
 */
#ifndef LAB_SETTINGS_H
#define LAB_SETTINGS_H

#include "command/options.h"

/* A family's settings under these options; norm.kind, seed and centre are left to the caller. */
void options_settings(const lab_options *o, lab_family family, model_config *config, train_config *train);

#endif
