/* SPDX-License-Identifier: MIT
 *
 * bf16 for avx512.c on processors that round to it by an instruction (AVX512_BF16), two registers of 512 bits at a
 * time. */
#define VEC_NATIVE_BF16
#include "../vec/avx512.h"
#define RMS_ISA avx512
#define KERNEL
#include "../kernels/unit.h"
#define T        RMS_BF16
#define T_NAME   K_(bf16_native, RMS_ISA)
#define T_IS_F64 0
#include "../kernels/template.h"
