/* SPDX-License-Identifier: MIT */
#define T        RMS_BF16
#define T_NAME   K_(bf16, RMS_ISA)
#define T_IS_F64 0
#include "template.h"
