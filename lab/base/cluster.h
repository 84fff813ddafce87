/* SPDX-License-Identifier: MIT
 *
 * The processes that train together: those of an MPI job, or this one alone.
 *
 * All of them run the same program on the same data in step. A function marked "together" is called by every process in
 * the same order, and returns the same on all. With one process each is a plain function that does nothing or next to
 * it.
 */
#ifndef LAB_CLUSTER_H
#define LAB_CLUSTER_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* The number that the job's starter (mpirun, srun) gave this process, known before cluster_start; 0 without one. */
int cluster_expected_rank(void);
/* Joins the job, if a starter of one started this process. Returns -1 where the program was built without MPI and the
 * job has more processes than one. */
int cluster_start(void);
void cluster_end(void); /* together */

int cluster_rank(void); /* 0 .. size-1; 0 prints, writes files and scores */
int cluster_size(void);
/* Together: from now on the first `count` processes are the cluster; the others have a cluster of their own, in which
 * all functions work alike, until cluster_use(0) joins all again. */
void cluster_use(int count);

/* Together: 0 where `result` is not negative on any process, else -1. The error of a process that did not fail itself
 * is empty. */
int cluster_agree(int result, lab_error *error);
int cluster_most(int value);                  /* together: the greatest of all values                  */
int cluster_same(uint64_t value);             /* together: 1 if all processes have the same value      */
void cluster_share(void *data, size_t bytes); /* together: everybody gets process 0's bytes */

/* Seconds that this process has spent in cluster_collect and cluster_swap. */
double cluster_seconds(void);

/* Part `rank` of something that is cut evenly among the processes: [start(rank), start(rank + 1)). */
int64_t cluster_start_of(int64_t count, int rank);
/* Together: every process has filled in its part of `count` units; afterwards all have all. */
void cluster_collect(void *data, int64_t count, size_t unit);

/* One of the blocks that a process sends to or receives from another. */
typedef struct cluster_block {
  void *data;
  int64_t units;
  int rank; /* the other process */
} cluster_block;
/* Together: what one process sends to another arrives in the order of the blocks. */
void cluster_swap(const cluster_block *sent, int64_t sends, const cluster_block *received, int64_t receives,
                  size_t unit);

#endif
