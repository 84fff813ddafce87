/* SPDX-License-Identifier: MIT */
#include "../../src/cpu/vec/scalar.h"
#include "activations.h"
#include "operations.h"

void vec_check_scalar(void) {
  check_every_operation();
}

const ref_activations vec_activations_scalar = {activations_f32, activations_f64};
