/* SPDX-License-Identifier: MIT */
#include "../../src/cpu/vec/avx2.h"
#include "operations.h"

void vec_check_avx2(void) {
  check_every_operation();
}
