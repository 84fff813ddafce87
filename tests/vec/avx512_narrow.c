/* SPDX-License-Identifier: MIT */
#define VEC_MASKS
#include "../../src/cpu/vec/avx2.h"
#include "activations.h"
#include "operations.h"

void vec_check_avx512_narrow(void) {
  check_every_operation();
}

const ref_activations vec_activations_avx512_narrow = {activations_f32, activations_f64};
