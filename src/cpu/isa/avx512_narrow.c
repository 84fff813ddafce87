/* SPDX-License-Identifier: MIT
 *
 * bf16 for avx512.c on 256-bit registers: two of them, one for the even and one for the odd elements, need fewer
 * instructions to widen and to round than one of 512 bits. Processors that are quicker with those of avx512_native.c
 * take them (src/core/quicker.h), and what has more arithmetic takes 512 bits anyway. */
#define VEC_MASKS
#define WIDE_OUTSIDE
#include "../vec/avx2.h"
#define RMS_ISA avx512
#define KERNEL
#include "../kernels/unit.h"
#include "../kernels/bf16.h"
