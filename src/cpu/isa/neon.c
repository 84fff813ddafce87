/* SPDX-License-Identifier: MIT */
#include "../vec/neon.h"
#define RMS_ISA neon
#include "../kernels/instantiate.h"
