/* SPDX-License-Identifier: MIT
 *
 * A forward with a quantised output, on the ordinary kernels: they write y, a few segments at a time, to a room that
 * stays in the cache, and the quantising kernels read it there. */
#ifndef RMS_CORE_QUANTISE_H
#define RMS_CORE_QUANTISE_H

#include "../cpu/kernels.h"

/* Bytes of n elements of a quantised type; n is a multiple of 32 for RMS_Q8_0. */
static inline int64_t rms_quantised_bytes(rms_dtype type, int64_t n) {
  return type == RMS_Q8_0 ? n / RMS_Q8_0_ELEMENTS * RMS_Q8_0_BYTES : n;
}

/* Segments first..last-1 of a job with q. */
void rms_forward_quantised(const rms_kernels *kernels, const rms_forward_job *job, int64_t first, int64_t last);

#endif
