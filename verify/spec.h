/* SPDX-License-Identifier: MIT
 *
 * What a problem computes, together with the types of its tensors, which a call of the library takes with
 * the tensors. */
#ifndef RMSNORM_VERIFY_SPEC_H
#define RMSNORM_VERIFY_SPEC_H

#include "rmsnorm.h"

typedef struct verify_spec {
  int64_t cols;
  double eps;
  int64_t partial;
  const int64_t *indices;
  int64_t groups;
  double weight_offset;
  rms_kind kind;
  rms_eps_place eps_place;
  rms_rounding rounding;
  int weight_per_inner;
  rms_gate_place gate_place;
  rms_activation activation;
  rms_gain_rounding gain_rounding;
  rms_steps steps;
  rms_dtype dtype;          /* x, dx, gate; y and dy unless y_dtype says otherwise */
  rms_dtype y_dtype;        /* y, dy; 0: as x                              */
  rms_dtype weight_dtype;   /* weight, bias                                */
  rms_dtype residual_dtype; /* residual, residual_out, dresidual...        */
  rms_dtype grad_dtype;     /* dweight, dbias                              */
  rms_dtype q_dtype;        /* a quantised output; RMS_AS_X: none          */
  int64_t scale_block;
  double scale_least;
} verify_spec;

/* All tensors in the type of x. */
static inline void verify_spec_set_types(verify_spec *spec, rms_dtype dtype) {
  spec->dtype = spec->weight_dtype = spec->residual_dtype = spec->grad_dtype = dtype;
  spec->y_dtype = RMS_AS_X;
}

/* The type of y and dy. */
static inline rms_dtype verify_y_type(const verify_spec *spec) {
  return spec->y_dtype == RMS_AS_X ? spec->dtype : spec->y_dtype;
}

/* The steps as they are taken: those of RMS_STEPS_WIDE with f32 and f64 data. */
static inline rms_steps verify_steps(const verify_spec *spec) {
  return spec->dtype == RMS_BF16 || spec->dtype == RMS_F16 ? spec->steps : RMS_STEPS_WIDE;
}

/* Whether verify/stepwise.h says what is right, and not the oracle. */
static inline int verify_is_stepwise(const verify_spec *spec) {
  return verify_steps(spec) >= RMS_STEPS_RSTD;
}

/* What the library is called with. */
static inline rms_spec verify_library_spec(const verify_spec *s) {
  rms_spec spec = {.cols = s->cols,
                   .eps = s->eps,
                   .partial = s->partial,
                   .indices = s->indices,
                   .groups = s->groups,
                   .weight_offset = s->weight_offset,
                   .kind = (int32_t)s->kind,
                   .eps_place = (int32_t)s->eps_place,
                   .rounding = (int32_t)s->rounding,
                   .weight_per_inner = s->weight_per_inner,
                   .gate_place = (int32_t)s->gate_place,
                   .activation = (int32_t)s->activation,
                   .scale_block = s->scale_block,
                   .scale_least = s->scale_least,
                   .gain_rounding = (int32_t)s->gain_rounding,
                   .steps = (int32_t)s->steps};
  return spec;
}

#endif
