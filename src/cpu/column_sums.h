/* SPDX-License-Identifier: MIT
 *
 * dweight and dbias: sums over rows. The rows are cut into chunks by the shape alone; each chunk sums its rows into its
 * own part of the workspace (kernels/backward.h), then the chunks are added in order and rounded once. So the bits
 * do not depend on which thread runs which chunk.
 *
 * Where many inner indices have weights of their own, every chunk would keep sums of all of them. There the work is cut
 * by inner index instead: the rows of one are summed in the same chunks, one after the other, by one thread. The
 * additions are the same, in the same order. */
#ifndef RMS_CPU_COLUMN_SUMS_H
#define RMS_CPU_COLUMN_SUMS_H

#include "kernels.h"

enum { RMS_STRIP = 64 }; /* columns that are finished together; pieces start on a whole number of them */

typedef struct {
  int64_t rows, chunks;
  int64_t pitch, elements;   /* of one (inner, group) piece; of all pieces of dweight      */
  int64_t real, chunk_bytes; /* size of the arithmetic type; of one chunk's workspace      */
  bool dweight, dbias;       /* what is wanted                                             */
  int64_t slots,
      slot_bytes; /* by inner index: parts that are worked on at a time, and the workspace of one; 0: by chunk */
} rms_sums_plan;

/* False if the sizes overflow. */
bool rms_plan_sums(const rms_layout *lay, int64_t rows, bool dweight, bool dbias, rms_sums_plan *plan);

static inline int64_t rms_sums_bytes(const rms_sums_plan *plan) {
  return plan->slots ? plan->slots * plan->slot_bytes : plan->chunks * plan->chunk_bytes;
}

/* The first row of a chunk; of chunk plan->chunks: the number of rows. */
int64_t rms_chunk_start(const rms_sums_plan *plan, int64_t chunk);

/* The chunk that a row belongs to. */
int64_t rms_chunk_of(const rms_sums_plan *plan, int64_t row);

/* The plan of one inner index alone, as one chunk, in the workspace of its slot. Behind what that takes, the slot has
 * room for the f64 sums of another chunk. */
rms_sums_plan rms_plan_inner(const rms_sums_plan *plan, const rms_layout *lay);

/* Where a chunk keeps its sums. */
rms_column_sums rms_chunk_sums(const rms_sums_plan *plan, char *workspace, int64_t chunk);

/* The gradient that the sums become. */
typedef struct {
  void *data;
  rms_dtype type;
  bool accumulate;
} rms_gradient;

/* Adds the chunks of one strip and writes (or adds to) those elements of the gradient. */
void rms_finish_strip(const rms_sums_plan *plan, const rms_layout *lay, char *workspace, const rms_gradient *out,
                      bool bias, int64_t strip);

#endif
