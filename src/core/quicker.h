/* SPDX-License-Identifier: MIT
 *
 * Which of two tables is quicker with a 16-bit type. How wide the registers should be differs between processors with
 * AVX-512: some take longer to widen sixteen numbers of f16 than eight of them twice, and bf16 needs fewer instructions
 * on 256 bits, which is quicker where one of 512 bits takes as long as two of them. So it is timed in the first such
 * call of a process. The bits are the same. */
#ifndef RMS_CORE_QUICKER_H
#define RMS_CORE_QUICKER_H

#include "../cpu/kernels.h"

/* Whether a row of the type takes clearly less time with `other` than with `usual`: some ten microseconds. */
bool rms_is_quicker(const rms_kernels *other, const rms_kernels *usual, rms_dtype type);

#endif
