/* SPDX-License-Identifier: MIT */
#include "../../src/cpu/vec/neon.h"
#include "operations.h"

void vec_check_neon(void) {
  check_every_operation();
}
