/* SPDX-License-Identifier: MIT
 *
 * bf16 for avx512.c on 256-bit registers: two of them, one for the even and one for the odd elements, need fewer
 * instructions to widen and to round than one of 512 bits. Processors that are quicker with 512 bits all the same take
 * the kernels of avx512.c (src/core/quicker.h), and so does what has more arithmetic. */
#define VEC_MASKS
#define WIDE_OUTSIDE
#include "../vec/avx2.h"
#define RMS_ISA avx512
#define KERNEL
#include "../kernels/unit.h"
#include "../kernels/bf16.h"
