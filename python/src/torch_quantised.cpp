/* SPDX-License-Identifier: MIT */
#include "torch_quantised.h"
#include "torch_forward.h"

namespace pn {
namespace {

/* One number of float32, wherever the call runs. */
void check_given_scale(const pn_tensor *scale) {
  require(scale && scale->dtype == RMS_F32 && (scale->ndim == 0 || (scale->ndim == 1 && scale->shape[0] == 1)),
          "scale must be one number of float32");
}

/* _quantised_norm(x, residual, gate, scale, dtype, block, scale_least, with_y, weight, bias, options)
 *   -> (q, scale, y, sum): q as bytes; what was not asked for, or was given, has no elements. */
template <bool DEVICE> void quantised_norm(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  tensor given, q, scale;
  f.x.take(stack[0]);
  f.residual.take_optional(stack[1]);
  f.gate.take_optional(stack[2]);
  given.take_optional(stack[3]);
  const int64_t dtype = (int64_t)stack[4], block = (int64_t)stack[5];
  f.read(stack + 8);
  given.read("scale", &f.at);
  check_x(&f.x.view);
  require(dtype >= RMS_I8 && dtype <= RMS_Q8_0, "the dtype of q is not offered");
  require(block >= 0, "block must be at least 1");
  const int64_t cols = f.x.view.shape[f.x.view.ndim - 1];
  f.call.q_dtype = (int32_t)dtype;
  f.call.spec.scale_block = block;
  f.call.spec.scale_least = as_double(stack[6]);
  make_rows(q, f.x, pn_quantised_bytes(f.call.q_dtype, cols), RMS_I8, f.at);
  f.call.q = q.get();
  if (block > 0) {
    make_rows(scale, f.x, cols / block, RMS_F32, f.at);
    f.call.scale = scale.get();
  } else if (dtype != RMS_Q8_0) {
    check_given_scale(given.get());
    f.call.scale = given.get();
  }
  f.run(false, stack[7] != 0);
  stack[0] = q.give();
  stack[1] = give_or_empty(scale, f.at);
  stack[2] = give_or_empty(f.y, f.at);
  stack[3] = give_or_empty(f.sum, f.at);
}

} // namespace

named_kernel quantised_kernel(bool device) {
  return {"_quantised_norm", device ? quantised_norm<true> : quantised_norm<false>};
}

} // namespace pn
