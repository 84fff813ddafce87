/* SPDX-License-Identifier: MIT
 *
 * A forward as the operators of torch make it: arguments, checks, results. */
#ifndef PN_TORCH_FORWARD_H
#define PN_TORCH_FORWARD_H

#include "torch_operands.h"
#include "torch_stats.h"

namespace pn {

template <bool DEVICE> struct forward {
  tensor x, residual, gate, weight, bias, y, sum, stats;
  index_list indices;
  pn_tensor rstd, mean;
  pn_forward call = {};
  int64_t mode = 0;
  place at = start<DEVICE>();

  /* The arguments behind the tensors of rows. */
  void read(const word *stack) {
    weight.take_optional(stack[0]);
    bias.take_optional(stack[1]);
    indices.take_optional(stack[2 + SPEC_WORDS]);
    x.read("x", &at);
    residual.read("residual", &at);
    gate.read("gate", &at);
    weight.read("weight", &at);
    bias.read("bias", &at);
    read_spec(stack + 2);
  }

  /* eps and what follows it. */
  void read_spec(const word *stack) {
    read_options(&call.spec, &indices, stack, &at);
    mode = (int64_t)stack[4];
    call.torch_sums = (mode & PN_MODE_TORCH_SUMS) != 0;
  }

  void check_arguments() const {
    check_x(&x.view);
    check_rows(residual.get(), &x.view, "residual must have the shape of x");
    check_gate(gate.get(), &x.view, x.view.dtype);
    check_weight(weight.get(), &x.view, "weight must have the shape (n,) or (heads, n)");
    check_weight(bias.get(), &x.view, "bias must have the shape (n,) or (heads, n)");
    require(!weight.get() || !bias.get() || weight.view.ndim == bias.view.ndim, "weight and bias differ in shape");
    check_weight_dtype(weight.get(), &x.view, "weight must have the dtype of x or float32");
    check_weight_dtype(bias.get(), &x.view, "bias must have the dtype of x or float32");
  }

  void run(bool with_stats, bool with_y = true) {
    check_arguments();
    call.y_dtype = pn_result_dtype(mode, x.view.dtype);
    if (with_y) y.make_like(x, call.y_dtype, at);
    if (residual.get()) sum.make_like(x, residual.view.dtype, at);
    call.x = x.get();
    call.residual = residual.get();
    call.gate = gate.get();
    call.weight = weight.get();
    call.bias = bias.get();
    call.y = y.get();
    call.sum = sum.get();
    if (with_stats) {
      make_stats(stats, x, call.spec, at);
      rstd = statistic(stats.view, 0);
      call.rstd = &rstd;
      if (call.spec.kind == RMS_KIND_LAYER) {
        mean = statistic(stats.view, 1);
        call.mean = &mean;
      }
    }
    finish(pn_run_forward(&call, backend<DEVICE>(at)));
  }
};

} // namespace pn

#endif
