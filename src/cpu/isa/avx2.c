/* SPDX-License-Identifier: MIT */
#include "../vec/avx2.h"
#define RMS_ISA avx2
#include "../kernels/instantiate.h"
