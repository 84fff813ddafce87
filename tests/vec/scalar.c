/* SPDX-License-Identifier: MIT */
#include "../../src/cpu/vec/scalar.h"
#include "operations.h"

void vec_check_scalar(void) {
  check_every_operation();
}
