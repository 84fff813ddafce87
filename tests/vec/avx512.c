/* SPDX-License-Identifier: MIT */
#include "../../src/cpu/vec/avx512.h"
#include "activations.h"
#include "operations.h"

void vec_check_avx512(void) {
  check_every_operation();
}

const ref_activations vec_activations_avx512 = {activations_f32, activations_f64};
