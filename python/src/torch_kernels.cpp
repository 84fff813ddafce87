/* SPDX-License-Identifier: MIT */
#include "torch_kernels.h"
#include "call.h"
#include "threads.h"
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace {

/* ---- torch's stable C interface ----
 * Values travel as 64-bit words. A kernel owns the tensor handles it is given; an optional one is a word on the heap,
 * or 0. Functions return 0 for success. */

using word = uint64_t;
using handle = void *;
using library = void *;
using kernel = void (*)(word *stack, uint64_t inputs, uint64_t outputs);

#define SHIM_FUNCTIONS(X)                                                                                              \
  X(aoti_torch_get_data_ptr, int32_t, (handle, void **))                                                               \
  X(aoti_torch_get_dim, int32_t, (handle, int64_t *))                                                                  \
  X(aoti_torch_get_sizes, int32_t, (handle, int64_t **))                                                               \
  X(aoti_torch_get_strides, int32_t, (handle, int64_t **))                                                             \
  X(aoti_torch_get_dtype, int32_t, (handle, int32_t *))                                                                \
  X(aoti_torch_empty_strided, int32_t,                                                                                 \
    (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, handle *))                                  \
  X(aoti_torch_delete_tensor_object, int32_t, (handle))                                                                \
  X(aoti_torch_library_init_impl, int32_t, (const char *, const char *, const char *, uint32_t, library *))            \
  X(aoti_torch_library_impl, int32_t, (library, const char *, kernel))                                                 \
  X(aoti_torch_delete_library_object, int32_t, (library))                                                              \
  X(aoti_torch_dtype_float32, int32_t, ())                                                                             \
  X(aoti_torch_dtype_float64, int32_t, ())                                                                             \
  X(aoti_torch_dtype_float16, int32_t, ())                                                                             \
  X(aoti_torch_dtype_bfloat16, int32_t, ())                                                                            \
  X(aoti_torch_device_type_cpu, int32_t, ())

#define DECLARE(name, result, parameters) result(*name) parameters;
struct {
  SHIM_FUNCTIONS(DECLARE)
  /* From torch 2.10 on; otherwise NULL. */
  int32_t (*torch_parallel_for)(int64_t begin, int64_t end, int64_t grain, void (*)(int64_t, int64_t, void *), void *);
  int32_t (*torch_get_num_threads)(uint32_t *);
  /* at::get_num_threads(), for torch 2.9. */
  int (*get_num_threads)();
  int32_t dtype[5]; /* torch's code of each rms_dtype */
  int32_t cpu;
} shim;
#undef DECLARE

void check(int32_t error) {
  if (error) throw std::runtime_error("rmsnorm: torch reported an error");
}

/* ---- tensors ---- */

class tensor {
public:
  tensor() = default;
  tensor(const tensor &) = delete;
  ~tensor() {
    if (owned) shim.aoti_torch_delete_tensor_object(owned);
  }

  /* An input. */
  void take(const char *name, word value) {
    int64_t ndim, *sizes, *strides;
    int32_t dtype;
    void *data;
    owned = reinterpret_cast<handle>(value);
    check(shim.aoti_torch_get_dim(owned, &ndim));
    check(shim.aoti_torch_get_sizes(owned, &sizes));
    check(shim.aoti_torch_get_strides(owned, &strides));
    check(shim.aoti_torch_get_dtype(owned, &dtype));
    check(shim.aoti_torch_get_data_ptr(owned, &data));
    for (view.dtype = RMS_F16; view.dtype > 0 && shim.dtype[view.dtype] != dtype;)
      view.dtype--;
    if (view.dtype == 0) throw std::runtime_error(std::string("rmsnorm: the dtype of ") + name + " is not offered");
    fill(data, ndim, sizes, strides);
  }

  void take_optional(const char *name, word value) {
    if (!value) return;
    word *boxed = reinterpret_cast<word *>(value);
    word inner = *boxed;
    delete boxed;
    take(name, inner);
  }

  /* An output; strides in elements. */
  void make(int32_t dtype, int64_t ndim, const int64_t *sizes, const int64_t *strides) {
    void *data;
    check(shim.aoti_torch_empty_strided(ndim, sizes, strides, shim.dtype[dtype], shim.cpu, 0, &owned));
    check(shim.aoti_torch_get_data_ptr(owned, &data));
    view.dtype = dtype;
    fill(data, ndim, sizes, strides);
  }

  void make_dense(int32_t dtype, int64_t ndim, const int64_t *sizes) {
    int64_t strides[PN_MAX_DIMS], next = 1;
    for (int64_t d = ndim - 1; d >= 0; d--) {
      strides[d] = next;
      next *= sizes[d] > 1 ? sizes[d] : 1;
    }
    make(dtype, ndim, sizes, strides);
  }

  void make_nothing() {
    const int64_t zero = 0;
    make_dense(RMS_F32, 1, &zero);
  }

  /* As torch.empty_like does. */
  void make_like(const tensor &other, int32_t dtype) {
    int64_t strides[PN_MAX_DIMS];
    const int64_t size = (int64_t)rms_dtype_size((rms_dtype)other.view.dtype);
    for (int d = 0; d < other.view.ndim; d++)
      strides[d] = other.view.stride[d] / size;
    pn_dense_strides(other.view.ndim, other.view.shape, strides, strides);
    make(dtype, other.view.ndim, other.view.shape, strides);
  }

  word give() {
    handle given = owned;
    owned = nullptr;
    return reinterpret_cast<word>(given);
  }

  const pn_tensor *get() const { return owned ? &view : nullptr; }

  pn_tensor view;

private:
  handle owned = nullptr;

  void fill(void *data, int64_t ndim, const int64_t *sizes, const int64_t *strides) {
    if (ndim > PN_MAX_DIMS) throw std::runtime_error("rmsnorm: a tensor has too many dimensions");
    const int64_t size = (int64_t)rms_dtype_size((rms_dtype)view.dtype);
    view.data = static_cast<char *>(data);
    view.ndim = (int32_t)ndim;
    for (int64_t d = 0; d < ndim; d++) {
      view.shape[d] = sizes[d];
      view.stride[d] = strides[d] * size;
    }
  }
};

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

void require(bool good, const char *message) {
  if (!good) throw std::runtime_error(std::string("rmsnorm: ") + message);
}

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

/* ---- parameters: eps, weight_offset, partial, groups, mode ---- */

enum { MODE_LAYER = 1, MODE_EPS_OUTSIDE = 2, MODE_BEFORE_WEIGHT = 4 };

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

void make_stats(tensor &stats, const tensor &x, const rms_spec &spec) {
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
  stats.make(v.dtype == RMS_F64 ? RMS_F64 : RMS_F32, leading + 2, sizes, strides);
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

/* ---- forward ---- */

/* What the four forward operators share. */
struct forward {
  tensor x, residual, weight, bias, y, sum, stats;
  pn_tensor rstd, mean;
  pn_forward call = {};

  void run(bool with_stats) {
    check_x(&x.view);
    check_rows(residual.get(), &x.view, "residual must have the shape of x");
    check_weight(weight.get(), &x.view, "weight must have the shape (n,) or (heads, n)");
    check_weight(bias.get(), &x.view, "bias must have the shape (n,) or (heads, n)");
    require(!weight.get() || !bias.get() || weight.view.ndim == bias.view.ndim, "weight and bias differ in shape");
    y.make_like(x, x.view.dtype);
    if (residual.get()) sum.make_like(x, residual.view.dtype);
    if (with_stats) make_stats(stats, x, call.spec);
    call.x = x.get();
    call.residual = residual.get();
    call.weight = weight.get();
    call.bias = bias.get();
    call.y = y.get();
    call.sum = sum.get();
    if (with_stats) {
      rstd = statistic(stats.view, 0);
      call.rstd = &rstd;
      if (call.spec.kind == RMS_KIND_LAYER) {
        mean = statistic(stats.view, 1);
        call.mean = &mean;
      }
    }
    rms_executor executor = make_executor();
    finish(pn_run_forward(&call, &executor));
  }
};

void read_norm(forward &f, word *stack) {
  f.weight.take_optional("weight", stack[1]);
  f.bias.take_optional("bias", stack[2]);
  f.x.take("x", stack[0]);
  f.call.spec = read_spec(stack + 3);
}

void norm(word *stack, uint64_t, uint64_t) {
  forward f;
  read_norm(f, stack);
  f.run(false);
  stack[0] = f.y.give();
}

void norm_stats(word *stack, uint64_t, uint64_t) {
  forward f;
  read_norm(f, stack);
  f.run(true);
  stack[0] = f.y.give();
  stack[1] = f.stats.give();
}

void read_add_norm(forward &f, word *stack) {
  f.weight.take_optional("weight", stack[2]);
  f.bias.take_optional("bias", stack[3]);
  f.x.take("x", stack[0]);
  f.residual.take("residual", stack[1]);
  f.call.spec = read_spec(stack + 4);
}

void add_norm(word *stack, uint64_t, uint64_t) {
  forward f;
  read_add_norm(f, stack);
  f.run(false);
  stack[0] = f.y.give();
  stack[1] = f.sum.give();
}

void add_norm_stats(word *stack, uint64_t, uint64_t) {
  forward f;
  read_add_norm(f, stack);
  f.run(true);
  stack[0] = f.y.give();
  stack[1] = f.sum.give();
  stack[2] = f.stats.give();
}

/* ---- backward ---- */

/* Which gradients are wanted, and the type and shape of a bias that has no weight beside it. */
enum { WANT_DX = 1, WANT_DWEIGHT = 2, WANT_DBIAS = 4, BIAS_F32 = 8, BIAS_PER_HEAD = 16, WANT_DRESIDUAL = 32 };

void make_like_weight(tensor &t, const tensor &x, bool heads, int32_t dtype) {
  const int last = x.view.ndim - 1;
  require(!heads || last > 0, "x has no dimension for the heads");
  if (heads)
    t.make_dense(dtype, 2, x.view.shape + last - 1);
  else
    t.make_dense(dtype, 1, x.view.shape + last);
}

struct backward {
  tensor dy, x, dsum, weight, stats, dx, dresidual, dweight, dbias;
  pn_tensor rstd, mean;
  pn_backward call = {};
  int64_t wanted = 0;

  void check_arguments() const {
    check_x(&x.view);
    check_rows(dy.get(), &x.view, "dy must have the shape of x");
    check_rows(dsum.get(), &x.view, "dsum must have the shape of x");
    check_weight(weight.get(), &x.view, "weight must have the shape (n,) or (heads, n)");
    check_stats(stats.view, x.view, call.spec);
  }

  void make_results() {
    const bool heads = weight.get() ? weight.view.ndim == 2 : (wanted & BIAS_PER_HEAD) != 0;
    if (wanted & WANT_DX) dx.make_like(x, dy.view.dtype);
    if (wanted & WANT_DRESIDUAL) dresidual.make_like(x, x.view.dtype);
    if (wanted & WANT_DWEIGHT) make_like_weight(dweight, x, heads, weight.get() ? weight.view.dtype : dy.view.dtype);
    if (wanted & WANT_DBIAS) make_like_weight(dbias, x, heads, wanted & BIAS_F32 ? (int32_t)RMS_F32 : dy.view.dtype);
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
    rms_executor executor = make_executor();
    finish(pn_run_backward(&call, &executor));
  }
};

/* An operator cannot leave a result out: what was not wanted has no elements. */
word give(tensor &t) {
  if (!t.get()) t.make_nothing();
  return t.give();
}

void norm_backward(word *stack, uint64_t, uint64_t) {
  backward b;
  b.weight.take_optional("weight", stack[2]);
  b.dy.take("dy", stack[0]);
  b.x.take("x", stack[1]);
  b.stats.take("stats", stack[3]);
  b.wanted = (int64_t)stack[4];
  b.call.spec = read_spec(stack + 5);
  b.run();
  stack[0] = give(b.dx);
  stack[1] = give(b.dweight);
  stack[2] = give(b.dbias);
}

void add_norm_backward(word *stack, uint64_t, uint64_t) {
  backward b;
  b.dsum.take_optional("dsum", stack[2]);
  b.weight.take_optional("weight", stack[3]);
  b.dy.take("dy", stack[0]);
  b.x.take("sum", stack[1]);
  b.stats.take("stats", stack[4]);
  b.wanted = (int64_t)stack[5];
  b.call.spec = read_spec(stack + 6);
  b.run();
  stack[0] = give(b.dx);
  stack[1] = give(b.dresidual);
  stack[2] = give(b.dweight);
  stack[3] = give(b.dbias);
}

/* ---- registration ---- */

template <class F> bool find(void *torch, const char *name, F &function) {
  function = reinterpret_cast<F>(dlsym(torch, name));
  return function != nullptr;
}

const char *load(void *torch) {
#define FIND(name, result, parameters)                                                                                 \
  if (!find(torch, #name, shim.name)) return #name;
  SHIM_FUNCTIONS(FIND)
#undef FIND
  if (!find(torch, "torch_parallel_for", shim.torch_parallel_for) ||
      !find(torch, "torch_get_num_threads", shim.torch_get_num_threads))
    shim.torch_parallel_for = nullptr;
  find(torch, "_ZN2at15get_num_threadsEv", shim.get_num_threads);
  shim.dtype[RMS_F32] = shim.aoti_torch_dtype_float32();
  shim.dtype[RMS_F64] = shim.aoti_torch_dtype_float64();
  shim.dtype[RMS_BF16] = shim.aoti_torch_dtype_bfloat16();
  shim.dtype[RMS_F16] = shim.aoti_torch_dtype_float16();
  shim.dtype[RMS_AS_X] = -1;
  shim.cpu = shim.aoti_torch_device_type_cpu();
  return nullptr;
}

/* Kernels live as long as this object of torch's. */
library registered;

} // namespace

void pn_torch_unregister(void) {
  if (registered) shim.aoti_torch_delete_library_object(registered);
  registered = nullptr;
}

const char *pn_torch_register(const char *path) {
  static const struct {
    const char *name;
    kernel function;
  } kernels[] = {{"_norm", norm},
                 {"_norm_stats", norm_stats},
                 {"_add_norm", add_norm},
                 {"_add_norm_stats", add_norm_stats},
                 {"_norm_backward", norm_backward},
                 {"_add_norm_backward", add_norm_backward}};
  void *torch = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (!torch) return "libtorch_cpu";
  const char *missing = load(torch);
  if (missing) return missing;
  if (shim.aoti_torch_library_init_impl("rmsnorm", "CPU", __FILE__, __LINE__, &registered))
    return "aoti_torch_library_init_impl";
  for (const auto &k : kernels)
    if (shim.aoti_torch_library_impl(registered, k.name, k.function)) return k.name;
  return nullptr;
}
