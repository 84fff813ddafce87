/* SPDX-License-Identifier: MIT */
#include "torch_split.h"

namespace pn {
namespace {

int64_t groups_of(const rms_spec &spec) {
  return spec.groups > 1 ? spec.groups : 1;
}

/* Numbers of each row of x, dense in the order of the indices whatever x's strides are: every process must have the
 * same order, because they are added over the processes. */
void make_numbers(tensor &t, const tensor &x, int64_t width, const place &at) {
  int64_t sizes[PN_MAX_DIMS];
  const int last = x.view.ndim - 1;
  for (int d = 0; d < last; d++)
    sizes[d] = x.view.shape[d];
  sizes[last] = width;
  t.make_dense(RMS_F64, x.view.ndim, sizes, at);
}

void check_numbers(const tensor &t, const tensor &x, int64_t width, const char *message) {
  const pn_tensor &v = t.view, &rows = x.view;
  require(v.dtype == RMS_F64 && v.ndim == rows.ndim && v.shape[v.ndim - 1] == width, message);
  for (int d = 0; d < v.ndim - 1; d++)
    require(v.shape[d] == rows.shape[d], message);
}

/* A shard without columns: it adds nothing and gets nothing. */
bool is_empty(const tensor &x) {
  return x.view.shape[x.view.ndim - 1] == 0;
}

template <bool DEVICE> struct forward {
  tensor x, stats, weight, bias, y;
  index_list indices;
  pn_forward call = {};
  place at = start<DEVICE>();

  /* With the tensors taken: reads them and the options behind them. */
  void read(const word *options) {
    indices.take_optional(options[SPEC_WORDS]);
    x.read("x", &at);
    stats.read("stats", &at);
    weight.read("weight", &at);
    bias.read("bias", &at);
    read_options(&call.spec, &indices, options, &at);
    require(x.view.ndim > 0, "x needs a last dimension");
  }

  int64_t width() const { return PN_STAT_DOUBLES * groups_of(call.spec); }

  void run(pn_part part) {
    if (is_empty(x)) return;
    call.part = part;
    call.x = x.get();
    call.stats = stats.get();
    call.weight = weight.get();
    call.bias = bias.get();
    call.y = y.get();
    finish(pn_run_forward(&call, backend<DEVICE>(at)));
  }
};

template <bool DEVICE> void split_stats(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.read(stack + 1);
  make_numbers(f.stats, f.x, f.width(), f.at);
  if (is_empty(f.x)) f.stats.zero();
  f.run(PN_STATS);
  stack[0] = f.stats.give();
}

template <bool DEVICE> void split_apply(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.stats.take(stack[1]);
  f.weight.take_optional(stack[2]);
  f.bias.take_optional(stack[3]);
  f.read(stack + 4);
  check_numbers(f.stats, f.x, f.width(), "stats do not belong to x");
  check_weight(f.weight.get(), &f.x.view, "weight must have the shape (n,) or (heads, n)");
  check_weight(f.bias.get(), &f.x.view, "bias must have the shape (n,) or (heads, n)");
  require(!f.weight.get() || !f.bias.get() || f.weight.view.ndim == f.bias.view.ndim,
          "weight and bias differ in shape");
  f.y.make_like(f.x, f.x.view.dtype, f.at);
  f.run(PN_APPLY);
  stack[0] = f.y.give();
}

/* Statistics of LayerNorm; those of RMSNorm are added. */
template <bool DEVICE> void split_merge(word *stack, uint64_t, uint64_t) {
  tensor a, b, merged;
  place at = start<DEVICE>();
  a.take(stack[0]);
  b.take(stack[1]);
  a.read("a", &at);
  b.read("b", &at);
  check_numbers(b, a, PN_STAT_DOUBLES, "a and b are not statistics of the same rows");
  check_numbers(a, a, PN_STAT_DOUBLES, "a and b are not statistics of the same rows");
  tensor from;
  make_numbers(from, b, PN_STAT_DOUBLES, at);
  make_numbers(merged, a, PN_STAT_DOUBLES, at);
  from.copy(b);
  merged.copy(a);
  finish(pn_run_merge(&merged.view, &from.view, backend<DEVICE>(at)));
  stack[0] = merged.give();
}

template <bool DEVICE> struct backward {
  tensor dy, x, stats, sums, weight;
  gradients made;
  index_list indices;
  pn_backward call = {};
  place at = start<DEVICE>();

  void read(const word *options) {
    indices.take_optional(options[SPEC_WORDS]);
    dy.read("dy", &at);
    x.read("x", &at);
    stats.read("stats", &at);
    sums.read("sums", &at);
    weight.read("weight", &at);
    read_options(&call.spec, &indices, options, &at);
    require(x.view.ndim > 0, "x needs a last dimension");
    check_rows(dy.get(), &x.view, "dy must have the shape of x");
    check_numbers(stats, x, PN_STAT_DOUBLES * groups_of(call.spec), "stats do not belong to x");
    check_weight(weight.get(), &x.view, "weight must have the shape (n,) or (heads, n)");
  }

  int64_t width() const { return PN_SUM_DOUBLES * groups_of(call.spec); }

  void run(pn_part part) {
    if (is_empty(x)) return;
    call.part = part;
    call.dy = dy.get();
    call.x = x.get();
    call.stats = stats.get();
    call.sums = sums.get();
    call.weight = weight.get();
    call.dx = made.dx.get();
    call.dweight = made.dweight.get();
    call.dbias = made.dbias.get();
    finish(pn_run_backward(&call, backend<DEVICE>(at)));
  }
};

template <bool DEVICE> void split_backward_stats(word *stack, uint64_t, uint64_t) {
  backward<DEVICE> b;
  b.dy.take(stack[0]);
  b.x.take(stack[1]);
  b.stats.take(stack[2]);
  b.weight.take_optional(stack[3]);
  b.read(stack + 4);
  make_numbers(b.sums, b.x, b.width(), b.at);
  if (is_empty(b.x)) b.sums.zero();
  b.run(PN_STATS);
  stack[0] = b.sums.give();
}

template <bool DEVICE> void split_backward_apply(word *stack, uint64_t, uint64_t) {
  backward<DEVICE> b;
  b.dy.take(stack[0]);
  b.x.take(stack[1]);
  b.stats.take(stack[2]);
  b.sums.take(stack[3]);
  b.weight.take_optional(stack[4]);
  b.read(stack + 6);
  check_numbers(b.sums, b.x, b.width(), "sums do not belong to x");
  b.made.make(b.dy.view.dtype, b.x, b.weight, (int64_t)stack[5], b.at);
  b.run(PN_APPLY);
  stack[0] = give_or_empty(b.made.dx, b.at);
  stack[1] = give_or_empty(b.made.dweight, b.at);
  stack[2] = give_or_empty(b.made.dbias, b.at);
}

} // namespace

const named_kernel *split_kernels(bool device) {
  static const named_kernel on_cpu[] = {{"_split_stats", split_stats<false>},
                                        {"_split_merge", split_merge<false>},
                                        {"_split_apply", split_apply<false>},
                                        {"_split_backward_stats", split_backward_stats<false>},
                                        {"_split_backward_apply", split_backward_apply<false>},
                                        {nullptr, nullptr}};
  static const named_kernel on_device[] = {{"_split_stats", split_stats<true>},
                                           {"_split_merge", split_merge<true>},
                                           {"_split_apply", split_apply<true>},
                                           {"_split_backward_stats", split_backward_stats<true>},
                                           {"_split_backward_apply", split_backward_apply<true>},
                                           {nullptr, nullptr}};
  return device ? on_device : on_cpu;
}

} // namespace pn
