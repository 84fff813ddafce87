/* SPDX-License-Identifier: MIT */
#include "../vec/avx512.h"
#define RMS_ISA      avx512
#define BF16_OUTSIDE /* avx512_narrow.c, avx512_native.c */
#include "../kernels/instantiate.h"
