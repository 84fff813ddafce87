/* SPDX-License-Identifier: MIT */
#define VEC_NATIVE_BF16
#include "../../src/cpu/vec/avx512.h"
#include "activations.h"
#include "operations.h"

void vec_check_avx512_native(void) {
  check_every_operation();
}

const ref_activations vec_activations_avx512_native = {activations_f32, activations_f64};
