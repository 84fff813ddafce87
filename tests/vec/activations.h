/* SPDX-License-Identifier: MIT
 *
 * The kernels' activations on one instruction set, of tame numbers in the way for those. Included by one unit per
 * instruction set, after its vec header. */

#include <math.h>
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
  ref_activated_f32 tame;
  sig = K(tame_sigmoid)(v);
  vf_store(tame.sigmoid, K(tame_activate)(v, sig, true), RMS_F32, 0);
  vf_store(tame.silu, K(tame_activate)(v, sig, false), RMS_F32, 0);
  vf_store(tame.sigmoid_slope, K(tame_slope)(v, sig, true), RMS_F32, 0);
  vf_store(tame.silu_slope, K(tame_slope)(v, sig, false), RMS_F32, 0);
  for (int i = 0; i < 16; i++) {
    vf none = vf_set(i & 4 ? (float)NAN : 0), one = vf_set(z[i]); /* a NaN beside it must not hide it */
    const int at = i & 3;
    if (!K(are_tame)(at == 0 ? one : none, at == 1 ? one : none, at == 2 ? one : none, at == 3 ? one : none)) continue;
    out->sigmoid[i] = tame.sigmoid[i];
    out->silu[i] = tame.silu[i];
    out->sigmoid_slope[i] = tame.sigmoid_slope[i];
    out->silu_slope[i] = tame.silu_slope[i];
  }
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
  ref_activated_f64 tame;
  sig = K(tame_sigmoid)(v);
  vd_store(tame.sigmoid, K(tame_activate)(v, sig, true), RMS_F64, 0);
  vd_store(tame.silu, K(tame_activate)(v, sig, false), RMS_F64, 0);
  vd_store(tame.sigmoid_slope, K(tame_slope)(v, sig, true), RMS_F64, 0);
  vd_store(tame.silu_slope, K(tame_slope)(v, sig, false), RMS_F64, 0);
  for (int i = 0; i < 8; i++) {
    vd none = vd_set(i & 4 ? (double)NAN : 0), one = vd_set(z[i]);
    const int at = i & 3;
    if (!K(are_tame)(at == 0 ? one : none, at == 1 ? one : none, at == 2 ? one : none, at == 3 ? one : none)) continue;
    out->sigmoid[i] = tame.sigmoid[i];
    out->silu[i] = tame.silu[i];
    out->sigmoid_slope[i] = tame.sigmoid_slope[i];
    out->silu_slope[i] = tame.silu_slope[i];
  }
}
#undef T
#undef T_NAME
#undef T_IS_F64
