/* SPDX-License-Identifier: MIT */
#include "../../src/cpu/vec/avx512.h"
#include "operations.h"

void vec_check_avx512(void) {
  check_every_operation();
}
