/* SPDX-License-Identifier: MIT
 *
 * Which of two tables is quicker with a 16-bit type. How wide the registers should be differs between processors with
 * AVX-512: some take longer to widen sixteen numbers of f16 than eight of them twice; and to widen bf16 takes fewer
 * instructions on 256 bits, to round to it fewer on 512 where a processor has AVX512_BF16. So it is timed in the first
 * such call of a process. The bits are the same. */
#ifndef RMS_CORE_QUICKER_H
#define RMS_CORE_QUICKER_H

#include "../cpu/kernels.h"

/* Whether a row of the type takes clearly less time with `other` than with `usual`: some ten microseconds. */
bool rms_is_quicker(const rms_kernels *other, const rms_kernels *usual, rms_dtype type);

#endif
