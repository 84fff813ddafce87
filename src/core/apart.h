/* SPDX-License-Identifier: MIT
 *
 * Rows whose elements lie apart, as the channels of images do (rms_rows.col). The usual forward has kernels of its own
 * (rms_forward_tiles_fn). For everything else a few rows that lie next to each other are gathered into contiguous ones,
 * the ordinary kernels run on these, and what they write is scattered. So such rows have all operations and the same
 * bits. They are gathered on the stack, or on the heap if the stack does not have what a cache line of them takes. */
#ifndef RMS_CORE_APART_H
#define RMS_CORE_APART_H

#include "../cpu/kernels.h"
#include "rooms.h"

/* What a tile may take on the stack. */
enum { RMS_APART_BYTES = 50 * 1024 };

/* The tiles of a call. */
typedef struct {
  int64_t rows;    /* of a tile, at most                                               */
  int64_t whole;   /* so many rows, from a multiple of them on, fill whole cache lines */
  int64_t unit;    /* rows that one task takes together                                */
  int64_t bytes;   /* of a room on the heap; 0: tiles are on the stack                 */
  rms_rooms rooms; /* for the caller to close                                          */
} rms_tiles;

/* lay.apart of a job whose tensors are known: the bytes that a row of each tensor takes there. */
int64_t rms_forward_apart_bytes(const rms_forward_job *job);
int64_t rms_backward_apart_bytes(const rms_backward_job *job);

/* Of a job with lay.apart > 0. */
rms_tiles rms_plan_forward_tiles(const rms_forward_job *job);
rms_tiles rms_plan_backward_tiles(const rms_backward_job *job);
/* Their rooms, for so many tasks at once. Without memory for them tiles are on the stack if that has room for a row,
 * and fewer rows are gathered together. False: it has not. */
bool rms_open_tiles(rms_tiles *tiles, const rms_layout *lay, int64_t tasks);

/* Rows first..last-1 of such a job. kernel: of the table, for contiguous rows. */
void rms_forward_apart(const rms_forward_job *job, const rms_tiles *tiles, const rms_kernels *kernels,
                       rms_forward_fn *kernel, int64_t first, int64_t last);
void rms_backward_apart(const rms_backward_job *job, const rms_tiles *tiles, const rms_kernels *kernels,
                        rms_backward_fn *kernel, const rms_column_sums *sums, int64_t first, int64_t last);
void rms_backward_stats_apart(const rms_backward_job *job, const rms_tiles *tiles, const rms_kernels *kernels,
                              rms_backward_stats_fn *kernel, int64_t first, int64_t last);

#endif
