/* SPDX-License-Identifier: MIT
 *
 * The kernels' activations on one instruction set. Included by one unit per instruction set, after its vec header. */

#include <stdbool.h>
#include "reference.h"

#define T        RMS_F32
#define T_NAME   test_f32
#define T_IS_F64 0
#include "../../src/cpu/kernels/real.h"
#include "../../src/cpu/kernels/activation.h"
static void activations_f32(const float *z, ref_activated_f32 *out) {
  vf v = vf_load(z, RMS_F32, 0), sig = K(sigmoid)(v);
  vf_store(out->sigmoid, K(activate)(v, sig, true), RMS_F32, 0);
  vf_store(out->silu, K(activate)(v, sig, false), RMS_F32, 0);
  vf_store(out->sigmoid_slope, K(activate_slope)(v, sig, true), RMS_F32, 0);
  vf_store(out->silu_slope, K(activate_slope)(v, sig, false), RMS_F32, 0);
}
#undef T
#undef T_NAME
#undef T_IS_F64

#define T        RMS_F64
#define T_NAME   test_f64
#define T_IS_F64 1
#include "../../src/cpu/kernels/real.h"
#include "../../src/cpu/kernels/activation.h"
static void activations_f64(const double *z, ref_activated_f64 *out) {
  vd v = vd_load(z, RMS_F64, 0), sig = K(sigmoid)(v);
  vd_store(out->sigmoid, K(activate)(v, sig, true), RMS_F64, 0);
  vd_store(out->silu, K(activate)(v, sig, false), RMS_F64, 0);
  vd_store(out->sigmoid_slope, K(activate_slope)(v, sig, true), RMS_F64, 0);
  vd_store(out->silu_slope, K(activate_slope)(v, sig, false), RMS_F64, 0);
}
#undef T
#undef T_NAME
#undef T_IS_F64
