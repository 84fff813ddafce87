/* SPDX-License-Identifier: MIT
 *
 * bf16 on this unit's vectors, where a unit with others has kernels for it too: for what has more arithmetic. */
#define RMS_BF16_WIDE bf16_wide
#undef KERNEL
#define KERNEL   static __attribute__((unused)) /* the table takes some of them */
#define T        RMS_BF16
#define T_NAME   K_(RMS_BF16_WIDE, RMS_ISA)
#define T_IS_F64 0
#include "template.h"
#undef KERNEL
#define KERNEL static
