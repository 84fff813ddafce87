/* SPDX-License-Identifier: MIT */
#include "../vec/scalar.h"
#define RMS_ISA scalar
#include "../kernels/instantiate.h"
