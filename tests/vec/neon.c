/* SPDX-License-Identifier: MIT */
#include "../../src/cpu/vec/neon.h"
#include "activations.h"
#include "operations.h"

void vec_check_neon(void) {
  check_every_operation();
}

const ref_activations vec_activations_neon = {activations_f32, activations_f64};
