/* SPDX-License-Identifier: MIT
 *
 * Rows whose elements lie apart, as the channels of images do (rms_rows.col). The usual forward has kernels of its own
 * (rms_forward_tiles_fn). For everything else a few rows that lie next to each other are gathered into contiguous ones
 * on the stack, the ordinary kernels run on these, and what they write is scattered. So such rows have all operations
 * and the same bits. */
#ifndef RMS_CORE_APART_H
#define RMS_CORE_APART_H

#include "../cpu/kernels.h"

/* What the rows of one call may take on the stack: lay.apart is at most this. */
enum { RMS_APART_BYTES = 50 * 1024 };

/* lay.apart of a job whose tensors are known: the bytes that a row of each tensor takes there. */
int64_t rms_forward_apart_bytes(const rms_forward_job *job);
int64_t rms_backward_apart_bytes(const rms_backward_job *job);

/* Rows first..last-1 of a job with lay.apart > 0. kernel: of the table, for contiguous rows. */
void rms_forward_apart(const rms_forward_job *job, const rms_kernels *kernels, rms_forward_fn *kernel, int64_t first,
                       int64_t last);
void rms_backward_apart(const rms_backward_job *job, const rms_kernels *kernels, rms_backward_fn *kernel,
                        const rms_column_sums *sums, int64_t first, int64_t last);
void rms_backward_stats_apart(const rms_backward_job *job, const rms_kernels *kernels, rms_backward_stats_fn *kernel,
                              int64_t first, int64_t last);

#endif
