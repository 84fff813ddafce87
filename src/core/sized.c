/* SPDX-License-Identifier: MIT */
#include "sized.h"
#include <stdint.h>
#include <string.h>
#include "../../include/rmsnorm.h"

const void *rms_resized(const void *given, size_t given_size, void *room, size_t known_size) {
  const unsigned char *bytes = given;
  for (size_t i = known_size; i < given_size; i++)
    if (bytes[i] != 0) return NULL;
  size_t copied = given_size < known_size ? given_size : known_size;
  memcpy(room, given, copied);
  memset((char *)room + copied, 0, known_size - copied);
  return room;
}

/* ---- the layout that programs are compiled with ----
 *
 * A change of any number below breaks every program that was compiled before, unless it is a size that grew. No struct
 * has padding: a field added behind the last one must not fall into bytes that old callers left undefined. */
#if UINTPTR_MAX == UINT64_MAX
#define AT(type, field, at) _Static_assert(offsetof(type, field) == (at), "the offset of " #field " in " #type)
#define SIZE(type, size)    _Static_assert(sizeof(type) == (size), "the size of " #type)

SIZE(rms_spec, 96);
AT(rms_spec, cols, 0);
AT(rms_spec, eps, 8);
AT(rms_spec, partial, 16);
AT(rms_spec, indices, 24);
AT(rms_spec, groups, 32);
AT(rms_spec, weight_offset, 40);
AT(rms_spec, kind, 48);
AT(rms_spec, eps_place, 52);
AT(rms_spec, rounding, 56);
AT(rms_spec, weight_per_inner, 60);
AT(rms_spec, gate_place, 64);
AT(rms_spec, activation, 68);
AT(rms_spec, scale_block, 72);
AT(rms_spec, scale_least, 80);
AT(rms_spec, gain_rounding, 88);
AT(rms_spec, steps, 92);

SIZE(rms_view, 40);
AT(rms_view, data, 0);
AT(rms_view, dtype, 8);
AT(rms_view, reserved, 12);
AT(rms_view, outer_stride, 16);
AT(rms_view, inner_stride, 24);
AT(rms_view, col_stride, 32);

SIZE(rms_const_view, 40);
AT(rms_const_view, data, 0);
AT(rms_const_view, dtype, 8);
AT(rms_const_view, reserved, 12);
AT(rms_const_view, outer_stride, 16);
AT(rms_const_view, inner_stride, 24);
AT(rms_const_view, col_stride, 32);

SIZE(rms_forward_args, 312);
AT(rms_forward_args, outer, 0);
AT(rms_forward_args, inner, 8);
AT(rms_forward_args, x, 16);
AT(rms_forward_args, residual, 56);
AT(rms_forward_args, weight, 96);
AT(rms_forward_args, bias, 104);
AT(rms_forward_args, y, 112);
AT(rms_forward_args, residual_out, 152);
AT(rms_forward_args, rstd, 192);
AT(rms_forward_args, mean, 200);
AT(rms_forward_args, weight_dtype, 208);
AT(rms_forward_args, bias_dtype, 212);
AT(rms_forward_args, gate, 216);
AT(rms_forward_args, q, 256);
AT(rms_forward_args, scale, 296);
AT(rms_forward_args, weight_stride, 304);

SIZE(rms_backward_args, 408);
AT(rms_backward_args, outer, 0);
AT(rms_backward_args, inner, 8);
AT(rms_backward_args, dy, 16);
AT(rms_backward_args, x, 56);
AT(rms_backward_args, dresidual, 96);
AT(rms_backward_args, weight, 136);
AT(rms_backward_args, rstd, 144);
AT(rms_backward_args, mean, 152);
AT(rms_backward_args, dx, 160);
AT(rms_backward_args, dresidual_out, 200);
AT(rms_backward_args, dweight, 240);
AT(rms_backward_args, dbias, 248);
AT(rms_backward_args, workspace, 256);
AT(rms_backward_args, workspace_bytes, 264);
AT(rms_backward_args, weight_dtype, 272);
AT(rms_backward_args, dweight_dtype, 276);
AT(rms_backward_args, dbias_dtype, 280);
AT(rms_backward_args, accumulate, 284);
AT(rms_backward_args, gate, 288);
AT(rms_backward_args, dgate, 328);
AT(rms_backward_args, bias, 368);
AT(rms_backward_args, bias_dtype, 376);
AT(rms_backward_args, reserved, 380);
AT(rms_backward_args, weight_stride, 384);
AT(rms_backward_args, drstd, 392);
AT(rms_backward_args, dmean, 400);

/* These never change. */
SIZE(rms_stat, 24);
AT(rms_stat, count, 0);
AT(rms_stat, mean, 8);
AT(rms_stat, m2, 16);
SIZE(rms_grad_sum, 16);
AT(rms_grad_sum, ux, 0);
AT(rms_grad_sum, u, 8);
SIZE(rms_executor, 24);
AT(rms_executor, ctx, 0);
AT(rms_executor, concurrency, 8);
AT(rms_executor, run, 16);
#endif
