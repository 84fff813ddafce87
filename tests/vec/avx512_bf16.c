/* SPDX-License-Identifier: MIT */
#define VEC_MASKS
#include "../../src/cpu/vec/avx2.h"
#include "operations.h"

void vec_check_avx512_bf16(void) {
  check_every_operation();
}
