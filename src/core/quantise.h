/* SPDX-License-Identifier: MIT
 *
 * A forward with a quantised output. Most jobs without y go straight from x to q (kernels/quantise_rows.h). All others
 * take the ordinary kernels: they write y, a few segments at a time, to a room that stays in the cache, and the
 * quantising kernels read it there. */
#ifndef RMS_CORE_QUANTISE_H
#define RMS_CORE_QUANTISE_H

#include "../cpu/kernels.h"

/* For y of a segment: on the stack, which is small in threads of some systems. Wider segments are done piece by piece,
 * with a statistic that is measured before. */
enum { RMS_QUANTISE_ROOM = 32 * 1024 };

/* Segments first..last-1 of a job with q. */
void rms_forward_quantised(const rms_kernels *kernels, const rms_forward_job *job, int64_t first, int64_t last);

#endif
