/* SPDX-License-Identifier: MIT
 *
 * Which of two tables has the quicker forward of f16. Widening sixteen numbers takes some processors with registers of
 * 512 bits longer than widening eight of them twice, and others not: so it is timed in the first such call of a
 * process. The bits are the same. */
#ifndef RMS_CORE_HALVES_H
#define RMS_CORE_HALVES_H

#include "../cpu/kernels.h"

/* Whether a row of f16 takes clearly less time with `narrow` than with `wide`: some ten microseconds. */
bool rms_halves_are_quicker(const rms_kernels *narrow, const rms_kernels *wide);

#endif
