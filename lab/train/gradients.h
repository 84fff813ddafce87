/* SPDX-License-Identifier: MIT
 *
 * The gradients of all shards, added up over the processes.
 */
#ifndef LAB_GRADIENTS_H
#define LAB_GRADIENTS_H

#include "tape/params.h"

/* Together (base/cluster.h): adds the gradients of all shards in the order of the shards, whatever process has them, so
 * that the sum has the same bits on any number of processes. Each process gets the sum of the part of the parameters
 * that it updates. With one process it leaves the work to adam_step. */
void gradients_add_up(params *p);

#endif
