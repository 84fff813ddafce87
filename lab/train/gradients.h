/* SPDX-License-Identifier: MIT
 *
 * The gradients of all shards, added up over the processes.
 */
#ifndef LAB_GRADIENTS_H
#define LAB_GRADIENTS_H

#include "tape/params.h"

/* Adds the gradients of all shards in the order of the shards, whatever process has them: the sum has the same bits on
 * any number of processes. Each process adds up its part of the parameters, then all get all parts. With one process it
 * leaves the work to adam_step. */
void gradients_add_up(params *p);

#endif
