/* SPDX-License-Identifier: MIT
 *
 * bf16 on this unit's vectors, where its kernels stand in a unit with others: for what has more arithmetic. Not all of
 * them are used. */
#define RMS_BF16_WIDE bf16_wide
#undef KERNEL
#define KERNEL   static __attribute__((unused))
#define T        RMS_BF16
#define T_NAME   K_(RMS_BF16_WIDE, RMS_ISA)
#define T_IS_F64 0
#include "template.h"
#undef KERNEL
#define KERNEL static
