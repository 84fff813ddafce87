/* SPDX-License-Identifier: MIT */
#include "../vec/avx512.h"
#define RMS_ISA avx512
#include "../kernels/instantiate.h"
