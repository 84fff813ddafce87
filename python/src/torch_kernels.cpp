/* SPDX-License-Identifier: MIT */
#include "torch_kernels.h"
#include "torch_forward.h"
#include "torch_quantised.h"
#include "torch_split.h"

namespace pn {
namespace {

/* ---- forward ---- */

template <bool DEVICE> void norm(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.read(stack + 1);
  f.run(false);
  stack[0] = f.y.give();
}

/* norm with a weight and the defaults of everything else but eps: fewer arguments, less time in torch's dispatcher. */
template <bool DEVICE> void weighted_norm(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.weight.take(stack[1]);
  f.x.read("x", &f.at);
  f.weight.read("weight", &f.at);
  f.call.spec.eps = as_double(stack[2]);
  f.run(false);
  stack[0] = f.y.give();
}

template <bool DEVICE> void norm_stats(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.read(stack + 1);
  f.run(true);
  stack[0] = f.y.give();
  stack[1] = f.stats.give();
}

/* The statistics without the norm. */
template <bool DEVICE> void stats_alone(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.indices.take_optional(stack[1 + SPEC_WORDS]);
  f.x.read("x", &f.at);
  f.read_spec(stack + 1);
  f.run(true, false);
  stack[0] = f.stats.give();
}

template <bool DEVICE> void add_norm(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.residual.take(stack[1]);
  f.gate.take_optional(stack[2]);
  f.read(stack + 3);
  f.run(false);
  stack[0] = f.y.give();
  stack[1] = f.sum.give();
}

template <bool DEVICE> void add_norm_stats(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.residual.take(stack[1]);
  f.gate.take_optional(stack[2]);
  f.read(stack + 3);
  f.run(true);
  stack[0] = f.y.give();
  stack[1] = f.sum.give();
  stack[2] = f.stats.give();
}

template <bool DEVICE> void gated_norm(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.gate.take(stack[1]);
  f.read(stack + 2);
  f.run(false);
  stack[0] = f.y.give();
}

template <bool DEVICE> void gated_norm_stats(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.gate.take(stack[1]);
  f.read(stack + 2);
  f.run(true);
  stack[0] = f.y.give();
  stack[1] = f.stats.give();
}

/* ---- backward ---- */

template <bool DEVICE> struct backward {
  tensor dy, x, dsum, gate, weight, bias, stats, dresidual, dgate;
  gradients made;
  index_list indices;
  pn_tensor rstd, mean;
  pn_backward call = {};
  int64_t wanted = 0;
  place at = start<DEVICE>();

  /* The arguments behind x and dsum. */
  void read(word *stack) {
    weight.take_optional(stack[0]);
    stats.take(stack[1]);
    indices.take_optional(stack[3 + SPEC_WORDS]);
    dy.read("dy", &at);
    x.read("x", &at);
    dsum.read("dsum", &at);
    gate.read("gate", &at);
    weight.read("weight", &at);
    bias.read("bias", &at);
    stats.read("stats", &at);
    wanted = (int64_t)stack[2];
    read_options(&call.spec, &indices, stack + 3, &at);
    call.data_dtype = pn_data_dtype((int64_t)stack[7], x.view.dtype, dy.view.dtype);
  }

  void check_arguments() const {
    check_x(&x.view);
    check_rows(dy.get(), &x.view, "dy must have the shape of x");
    check_rows(dsum.get(), &x.view, "dsum must have the shape of x");
    check_gate(gate.get(), &x.view, call.data_dtype);
    require(gate.get() || !(wanted & WANT_DGATE), "there is no gate");
    check_weight(weight.get(), &x.view, "weight must have the shape (n,) or (heads, n)");
    check_weight(bias.get(), &x.view, "bias must have the shape (n,) or (heads, n)");
    check_stats(stats.view, x.view, call.spec);
  }

  void run() {
    check_arguments();
    made.make(call.data_dtype, x, weight, wanted, at);
    if (wanted & WANT_DRESIDUAL) dresidual.make_like(x, x.view.dtype, at);
    if (wanted & WANT_DGATE) dgate.make_like(gate, gate.view.dtype, at);
    call.dy = dy.get();
    call.x = x.get();
    call.dresidual = dsum.get();
    call.gate = gate.get();
    call.weight = weight.get();
    call.bias = bias.get();
    call.dx = made.dx.get();
    call.dgate = dgate.get();
    call.dresidual_out = dresidual.get();
    call.dweight = made.dweight.get();
    call.dbias = made.dbias.get();
    rstd = statistic(stats.view, 0);
    call.rstd = &rstd;
    if (call.spec.kind == RMS_KIND_LAYER) {
      mean = statistic(stats.view, 1);
      call.mean = &mean;
    }
    finish(pn_run_backward(&call, backend<DEVICE>(at)));
  }
};

template <bool DEVICE> void norm_backward(word *stack, uint64_t, uint64_t) {
  backward<DEVICE> b;
  b.dy.take(stack[0]);
  b.x.take(stack[1]);
  b.read(stack + 2);
  b.run();
  stack[0] = give_or_empty(b.made.dx, b.at);
  stack[1] = give_or_empty(b.made.dweight, b.at);
  stack[2] = give_or_empty(b.made.dbias, b.at);
}

template <bool DEVICE> void add_norm_backward(word *stack, uint64_t, uint64_t) {
  backward<DEVICE> b;
  b.dy.take(stack[0]);
  b.x.take(stack[1]);
  b.dsum.take_optional(stack[2]);
  b.gate.take_optional(stack[3]);
  b.bias.take_optional(stack[4]);
  b.read(stack + 5);
  b.run();
  stack[0] = give_or_empty(b.made.dx, b.at);
  stack[1] = give_or_empty(b.dresidual, b.at);
  stack[2] = give_or_empty(b.dgate, b.at);
  stack[3] = give_or_empty(b.made.dweight, b.at);
  stack[4] = give_or_empty(b.made.dbias, b.at);
}

template <bool DEVICE> void gated_norm_backward(word *stack, uint64_t, uint64_t) {
  backward<DEVICE> b;
  b.dy.take(stack[0]);
  b.x.take(stack[1]);
  b.gate.take(stack[2]);
  b.bias.take_optional(stack[3]);
  b.read(stack + 4);
  b.run();
  stack[0] = give_or_empty(b.made.dx, b.at);
  stack[1] = give_or_empty(b.dgate, b.at);
  stack[2] = give_or_empty(b.made.dweight, b.at);
  stack[3] = give_or_empty(b.made.dbias, b.at);
}

/* ---- registration ---- */

/* Kernels live as long as these objects of torch's: for the CPU and for a device. */
registration registered[2];

template <bool DEVICE> const char *register_kernels(const char *key) {
  static const named_kernel kernels[] = {{"_norm", norm<DEVICE>},
                                         {"_weighted_norm", weighted_norm<DEVICE>},
                                         {"_norm_stats", norm_stats<DEVICE>},
                                         {"_stats", stats_alone<DEVICE>},
                                         {"_add_norm", add_norm<DEVICE>},
                                         {"_add_norm_stats", add_norm_stats<DEVICE>},
                                         {"_gated_norm", gated_norm<DEVICE>},
                                         {"_gated_norm_stats", gated_norm_stats<DEVICE>},
                                         {"_gated_norm_backward", gated_norm_backward<DEVICE>},
                                         {"_norm_backward", norm_backward<DEVICE>},
                                         {"_add_norm_backward", add_norm_backward<DEVICE>}};
  if (shim.aoti_torch_library_init_impl("rmsnorm", key, __FILE__, __LINE__, &registered[DEVICE]))
    return "aoti_torch_library_init_impl";
  for (const auto &k : kernels)
    if (shim.aoti_torch_library_impl(registered[DEVICE], k.name, k.function)) return k.name;
  for (const named_kernel *k = split_kernels(DEVICE); k->name; k++)
    if (shim.aoti_torch_library_impl(registered[DEVICE], k->name, k->function)) return k->name;
  const named_kernel quantised = quantised_kernel(DEVICE);
  if (shim.aoti_torch_library_impl(registered[DEVICE], quantised.name, quantised.function)) return quantised.name;
  return nullptr;
}

} // namespace
} // namespace pn

using namespace pn;

void pn_torch_unregister(void) {
  for (auto &r : registered) {
    if (r) shim.aoti_torch_delete_library_object(r);
    r = nullptr;
  }
}

const char *pn_torch_register(const char *libtorch_cpu) {
  const char *missing = load_shim(libtorch_cpu);
  return missing ? missing : register_kernels<false>("CPU");
}

const char *pn_torch_register_cuda(const char *libtorch_cuda, const char *library, const char *key) {
  const char *missing = load_device(libtorch_cuda, library);
  return missing ? missing : register_kernels<true>(key);
}
