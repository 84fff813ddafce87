/* SPDX-License-Identifier: MIT */
#include "../../src/cpu/vec/avx2.h"
#include "activations.h"
#include "operations.h"

void vec_check_avx2(void) {
  check_every_operation();
}

const ref_activations vec_activations_avx2 = {activations_f32, activations_f64};
