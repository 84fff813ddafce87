/* SPDX-License-Identifier: MIT
 *
 * Refuses compiler settings that would change the bits of results. Contraction (-ffp-contract) cannot be detected here;
 * the digests in tests/golden detect it. */
#ifndef RMS_CORE_ARITHMETIC_H
#define RMS_CORE_ARITHMETIC_H

#include <float.h>

/* 16 is the same as 0, except for _Float16, which is not used here. */
#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error                                                                                                                 \
    "rmsnorm: float and double must be computed as such (FLT_EVAL_METHOD 0); on 32-bit x86 that takes -msse2 -mfpmath=sse"
#endif

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) ||                               \
    (defined(__GCC_IEC_559) && __GCC_IEC_559 == 0)
#error "rmsnorm: compile without -ffast-math, -Ofast, -funsafe-math-optimizations, -ffinite-math-only and their parts"
#endif

#endif
