/* SPDX-License-Identifier: MIT */
#include "torch_kernels.h"
#include "call.h"
#include "threads.h"
#include "torch_cuda.h"
#include "torch_shim.h"
#include <cstring>

namespace pn {
namespace {

/* ---- threads: torch's own ---- */

struct region {
  void (*task)(void *arg, int64_t i);
  void *arg;
};

void run_range(int64_t begin, int64_t end, void *data) {
  region *r = static_cast<region *>(data);
  for (int64_t i = begin; i < end; i++)
    r->task(r->arg, i);
}

void run_on_torch(void *, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  region r = {task, arg};
  shim.torch_parallel_for(0, tasks, 1, run_range, &r);
}

rms_executor make_executor() {
  uint32_t threads = 1;
  if (shim.torch_parallel_for) {
    shim.torch_get_num_threads(&threads);
    return {nullptr, threads > 0 ? (int32_t)threads : 1, run_on_torch};
  }
  if (shim.get_num_threads && pn_openmp_known()) return pn_openmp_executor(shim.get_num_threads());
  return pn_openmp_executor(1);
}

/* ---- checks ---- */

void check_rows(const pn_tensor *t, const pn_tensor *x, const char *message) {
  if (!t) return;
  require(t->ndim == x->ndim && std::memcmp(t->shape, x->shape, sizeof *t->shape * (size_t)t->ndim) == 0, message);
}

void check_weight(const pn_tensor *w, const pn_tensor *x, const char *message) {
  if (!w) return;
  const int last = x->ndim - 1;
  const bool plain = w->ndim == 1 && w->shape[0] == x->shape[last];
  const bool heads = w->ndim == 2 && last > 0 && w->shape[1] == x->shape[last] && w->shape[0] == x->shape[last - 1];
  require(plain || heads, message);
}

void check_x(const pn_tensor *x) {
  require(x->ndim > 0 && x->shape[x->ndim - 1] > 0, "x needs a last dimension that is not empty");
}

void finish(rms_status status) {
  if (status != RMS_OK) throw std::runtime_error(std::string("rmsnorm: ") + rms_status_string(status));
}

/* ---- parameters: eps, weight_offset, partial, groups, mode; behind them indices ---- */

enum { MODE_LAYER = 1, MODE_EPS_OUTSIDE = 2, MODE_BEFORE_WEIGHT = 4, MODE_TORCH_SUMS = 8 };
enum { SPEC_WORDS = 5 };

double as_double(word w) {
  double d;
  std::memcpy(&d, &w, sizeof d);
  return d;
}

rms_spec read_spec(const word *stack) {
  rms_spec spec = {};
  const int64_t mode = (int64_t)stack[4];
  spec.eps = as_double(stack[0]);
  spec.weight_offset = as_double(stack[1]);
  spec.partial = (int64_t)stack[2];
  spec.groups = (int64_t)stack[3];
  spec.kind = mode & MODE_LAYER ? RMS_KIND_LAYER : RMS_KIND_RMS;
  spec.eps_place = mode & MODE_EPS_OUTSIDE ? RMS_EPS_OUTSIDE : RMS_EPS_INSIDE;
  spec.rounding = mode & MODE_BEFORE_WEIGHT ? RMS_ROUND_BEFORE_WEIGHT : RMS_ROUND_AFTER_WEIGHT;
  return spec;
}

/* ---- statistics: one tensor (1 or 2, leading dimensions of x, groups), dense in x's order of rows ---- */

void make_stats(tensor &stats, const tensor &x, const rms_spec &spec, const place &at) {
  const pn_tensor &v = x.view;
  const int leading = v.ndim - 1;
  const int64_t groups = spec.groups > 1 ? spec.groups : 1, size = (int64_t)rms_dtype_size((rms_dtype)v.dtype);
  int64_t sizes[PN_MAX_DIMS + 1], strides[PN_MAX_DIMS + 1], rows = 1;
  require(v.ndim < PN_MAX_DIMS, "x has too many dimensions");
  for (int d = 0; d < leading; d++) {
    sizes[d + 1] = v.shape[d];
    strides[d + 1] = v.stride[d] / size;
    rows *= v.shape[d];
  }
  pn_dense_strides(leading, sizes + 1, strides + 1, strides + 1);
  for (int d = 0; d < leading; d++)
    strides[d + 1] *= groups;
  sizes[0] = spec.kind == RMS_KIND_LAYER ? 2 : 1;
  strides[0] = rows * groups;
  sizes[leading + 1] = groups;
  strides[leading + 1] = 1;
  stats.make(v.dtype == RMS_F64 ? RMS_F64 : RMS_F32, leading + 2, sizes, strides, at);
}

/* The i-th statistic: the tensor without its first dimension. */
pn_tensor statistic(const pn_tensor &stats, int i) {
  pn_tensor s;
  s.dtype = stats.dtype;
  s.ndim = stats.ndim - 1;
  s.data = stats.data + i * stats.stride[0];
  for (int d = 0; d < s.ndim; d++) {
    s.shape[d] = stats.shape[d + 1];
    s.stride[d] = stats.stride[d + 1];
  }
  return s;
}

void check_stats(const pn_tensor &stats, const pn_tensor &x, const rms_spec &spec) {
  const int64_t groups = spec.groups > 1 ? spec.groups : 1;
  require(stats.ndim == x.ndim + 1 && stats.shape[0] == (spec.kind == RMS_KIND_LAYER ? 2 : 1) &&
              stats.shape[x.ndim] == groups && stats.dtype == (x.dtype == RMS_F64 ? RMS_F64 : RMS_F32),
          "stats do not belong to x");
  for (int d = 0; d < x.ndim - 1; d++)
    require(stats.shape[d + 1] == x.shape[d], "stats do not belong to x");
}

/* ---- what the operators share: the tensors of a call, and where it runs ---- */

/* On the CPU with torch's own threads, or on the device whose library is loaded. */
template <bool DEVICE> class backend {
public:
  explicit backend(const place &at) : device(at) {}
  operator const pn_backend *() const { return &device.backend; }

private:
  device_call device;
};

template <> class backend<false> {
public:
  explicit backend(const place &) : executor(make_executor()), cpu(pn_cpu(&executor)) {}
  operator const pn_backend *() const { return &cpu; }

private:
  rms_executor executor;
  pn_backend cpu;
};

template <bool DEVICE> place start() {
  return {DEVICE ? device_type() : shim.cpu, DEVICE ? -1 : 0};
}

void read_options(rms_spec *spec, index_list *indices, const word *stack, place *at) {
  *spec = read_spec(stack);
  indices->read(at);
  if (!indices->data) return;
  spec->indices = indices->data;
  spec->partial = indices->count;
}

/* ---- forward ---- */

template <bool DEVICE> struct forward {
  tensor x, residual, weight, bias, y, sum, stats;
  index_list indices;
  pn_tensor rstd, mean;
  pn_forward call = {};
  place at = start<DEVICE>();

  /* The arguments behind the tensors of rows. */
  void read(word *stack) {
    weight.take_optional(stack[0]);
    bias.take_optional(stack[1]);
    indices.take_optional(stack[2 + SPEC_WORDS]);
    x.read("x", &at);
    residual.read("residual", &at);
    weight.read("weight", &at);
    bias.read("bias", &at);
    read_options(&call.spec, &indices, stack + 2, &at);
    call.torch_sums = (stack[6] & MODE_TORCH_SUMS) != 0;
  }

  void check_arguments() const {
    check_x(&x.view);
    check_rows(residual.get(), &x.view, "residual must have the shape of x");
    check_weight(weight.get(), &x.view, "weight must have the shape (n,) or (heads, n)");
    check_weight(bias.get(), &x.view, "bias must have the shape (n,) or (heads, n)");
    require(!weight.get() || !bias.get() || weight.view.ndim == bias.view.ndim, "weight and bias differ in shape");
  }

  void run(bool with_stats) {
    check_arguments();
    y.make_like(x, x.view.dtype, at);
    if (residual.get()) sum.make_like(x, residual.view.dtype, at);
    call.x = x.get();
    call.residual = residual.get();
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

template <bool DEVICE> void norm(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.read(stack + 1);
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

template <bool DEVICE> void add_norm(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.residual.take(stack[1]);
  f.read(stack + 2);
  f.run(false);
  stack[0] = f.y.give();
  stack[1] = f.sum.give();
}

template <bool DEVICE> void add_norm_stats(word *stack, uint64_t, uint64_t) {
  forward<DEVICE> f;
  f.x.take(stack[0]);
  f.residual.take(stack[1]);
  f.read(stack + 2);
  f.run(true);
  stack[0] = f.y.give();
  stack[1] = f.sum.give();
  stack[2] = f.stats.give();
}

/* ---- backward ---- */

/* Which gradients are wanted, and the type and shape of a bias that has no weight beside it. */
enum { WANT_DX = 1, WANT_DWEIGHT = 2, WANT_DBIAS = 4, BIAS_F32 = 8, BIAS_PER_HEAD = 16, WANT_DRESIDUAL = 32 };

void make_like_weight(tensor &t, const tensor &x, bool heads, int32_t dtype, const place &at) {
  const int last = x.view.ndim - 1;
  require(!heads || last > 0, "x has no dimension for the heads");
  if (heads)
    t.make_dense(dtype, 2, x.view.shape + last - 1, at);
  else
    t.make_dense(dtype, 1, x.view.shape + last, at);
}

template <bool DEVICE> struct backward {
  tensor dy, x, dsum, weight, stats, dx, dresidual, dweight, dbias;
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
    weight.read("weight", &at);
    stats.read("stats", &at);
    wanted = (int64_t)stack[2];
    read_options(&call.spec, &indices, stack + 3, &at);
  }

  void check_arguments() const {
    check_x(&x.view);
    check_rows(dy.get(), &x.view, "dy must have the shape of x");
    check_rows(dsum.get(), &x.view, "dsum must have the shape of x");
    check_weight(weight.get(), &x.view, "weight must have the shape (n,) or (heads, n)");
    check_stats(stats.view, x.view, call.spec);
  }

  void make_results() {
    const bool heads = weight.get() ? weight.view.ndim == 2 : (wanted & BIAS_PER_HEAD) != 0;
    const int32_t bias_dtype = wanted & BIAS_F32 ? (int32_t)RMS_F32 : dy.view.dtype;
    if (wanted & WANT_DX) dx.make_like(x, dy.view.dtype, at);
    if (wanted & WANT_DRESIDUAL) dresidual.make_like(x, x.view.dtype, at);
    if (wanted & WANT_DWEIGHT)
      make_like_weight(dweight, x, heads, weight.get() ? weight.view.dtype : dy.view.dtype, at);
    if (wanted & WANT_DBIAS) make_like_weight(dbias, x, heads, bias_dtype, at);
  }

  void run() {
    check_arguments();
    make_results();
    call.dy = dy.get();
    call.x = x.get();
    call.dresidual = dsum.get();
    call.weight = weight.get();
    call.dx = dx.get();
    call.dresidual_out = dresidual.get();
    call.dweight = dweight.get();
    call.dbias = dbias.get();
    rstd = statistic(stats.view, 0);
    call.rstd = &rstd;
    if (call.spec.kind == RMS_KIND_LAYER) {
      mean = statistic(stats.view, 1);
      call.mean = &mean;
    }
    finish(pn_run_backward(&call, backend<DEVICE>(at)));
  }

  /* An operator cannot leave a result out: what was not wanted has no elements. */
  word give(tensor &t) {
    const int64_t zero = 0;
    if (!t.get()) t.make_dense(RMS_F32, 1, &zero, at);
    return t.give();
  }
};

template <bool DEVICE> void norm_backward(word *stack, uint64_t, uint64_t) {
  backward<DEVICE> b;
  b.dy.take(stack[0]);
  b.x.take(stack[1]);
  b.read(stack + 2);
  b.run();
  stack[0] = b.give(b.dx);
  stack[1] = b.give(b.dweight);
  stack[2] = b.give(b.dbias);
}

template <bool DEVICE> void add_norm_backward(word *stack, uint64_t, uint64_t) {
  backward<DEVICE> b;
  b.dy.take(stack[0]);
  b.x.take(stack[1]);
  b.dsum.take_optional(stack[2]);
  b.read(stack + 3);
  b.run();
  stack[0] = b.give(b.dx);
  stack[1] = b.give(b.dresidual);
  stack[2] = b.give(b.dweight);
  stack[3] = b.give(b.dbias);
}

/* ---- registration ---- */

/* Kernels live as long as these objects of torch's: for the CPU and for a device. */
registration registered[2];

template <bool DEVICE> const char *register_kernels(const char *key) {
  static const struct {
    const char *name;
    kernel function;
  } kernels[] = {{"_norm", norm<DEVICE>},
                 {"_norm_stats", norm_stats<DEVICE>},
                 {"_add_norm", add_norm<DEVICE>},
                 {"_add_norm_stats", add_norm_stats<DEVICE>},
                 {"_norm_backward", norm_backward<DEVICE>},
                 {"_add_norm_backward", add_norm_backward<DEVICE>}};
  if (shim.aoti_torch_library_init_impl("rmsnorm", key, __FILE__, __LINE__, &registered[DEVICE]))
    return "aoti_torch_library_init_impl";
  for (const auto &k : kernels)
    if (shim.aoti_torch_library_impl(registered[DEVICE], k.name, k.function)) return k.name;
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
