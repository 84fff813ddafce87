/* SPDX-License-Identifier: MIT */
#include "torch_cuda.h"
#include "rmsnorm_cuda.h"
#include <dlfcn.h>

namespace pn {

/* ---- the library ---- */

#define PN_DEVICE_FUNCTIONS(X)                                                                                         \
  X(forward)                                                                                                           \
  X(backward)                                                                                                          \
  X(backward_workspace)                                                                                                \
  X(stats)                                                                                                             \
  X(stats_merge)                                                                                                       \
  X(apply)                                                                                                             \
  X(backward_stats)                                                                                                    \
  X(backward_apply)

#define PN_DECLARE(name) decltype(&rms_cuda_##name##_sized) name;
static struct {
  PN_DEVICE_FUNCTIONS(PN_DECLARE)
  bool on_cpu;
} device;

template <class F> static bool find(void *from, const char *name, F &function) {
  function = reinterpret_cast<F>(dlsym(from, name));
  return function != nullptr;
}

const char *load_device(const char *libtorch_cuda, const char *library) {
  const char *missing = libtorch_cuda ? load_cuda_shim(libtorch_cuda) : nullptr;
  if (missing) return missing;
  device.on_cpu = !libtorch_cuda;
  void *found = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!found) return dlerror();
#define PN_FIND(name)                                                                                                  \
  if (!find(found, "rms_cuda_" #name "_sized", device.name)) return "rms_cuda_" #name "_sized";
  PN_DEVICE_FUNCTIONS(PN_FIND)
  return nullptr;
}

int32_t device_type() {
  return device.on_cpu ? shim.cpu : shim.cuda;
}

/* ---- memory: torch's allocator, which knows the stream ---- */

bool device_call::allocate(void *context, int64_t bytes, pn_block *block) {
  const place &at = static_cast<device_call *>(context)->at;
  const int64_t one = 1;
  if (shim.aoti_torch_empty_strided(1, &bytes, &one, shim.bytes, at.type, at.index, &block->owner)) return false;
  return shim.aoti_torch_get_data_ptr(block->owner, &block->data) == 0;
}

void device_call::release(void *, const pn_block *block) {
  shim.aoti_torch_delete_tensor_object(block->owner);
}

/* A tensor of torch's on memory that others own, with t's shape and these strides. */
static handle borrow(const pn_tensor *t, void *data, const int64_t *strides, const place &at) {
  handle made = nullptr;
  return shim.aoti_torch_create_tensor_from_blob(data, t->ndim, t->shape, strides, 0, shim.dtype[t->dtype], at.type,
                                                 at.index, &made)
             ? nullptr
             : made;
}

bool device_call::copy(void *context, const pn_rows *rows, const pn_tensor *t, void *dense, bool back) {
  const place &at = static_cast<device_call *>(context)->at;
  const int64_t size = (int64_t)rms_dtype_size((rms_dtype)t->dtype);
  int64_t own[PN_MAX_DIMS], walk[PN_MAX_DIMS], next = t->shape[t->ndim - 1];
  for (int d = 0; d < t->ndim; d++) {
    own[d] = t->stride[d] / size;
    walk[d] = 1;
  }
  for (int i = rows->count - 1; i >= 0; i--) {
    walk[rows->order[i]] = next;
    next *= t->shape[rows->order[i]];
  }
  handle theirs = borrow(t, t->data, own, at), ours = borrow(t, dense, walk, at);
  const bool good = theirs && ours && shim.aoti_torch_copy_(back ? theirs : ours, back ? ours : theirs, 1) == 0;
  for (handle h : {theirs, ours})
    if (h) shim.aoti_torch_delete_tensor_object(h);
  return good;
}

/* ---- calls ---- */

static rms_cuda_stream stream_of(const void *context) {
  return static_cast<rms_cuda_stream>(*static_cast<void *const *>(context));
}

rms_status device_call::run_forward(const void *context, const rms_spec *spec, const rms_forward_args *args) {
  return device.forward(spec, sizeof *spec, args, sizeof *args, stream_of(context));
}

rms_status device_call::run_backward(const void *context, const rms_spec *spec, const rms_backward_args *args) {
  return device.backward(spec, sizeof *spec, args, sizeof *args, stream_of(context));
}

size_t device_call::workspace(const rms_spec *spec, const rms_backward_args *args) {
  return device.backward_workspace(spec, sizeof *spec, args, sizeof *args);
}

rms_status device_call::stats(const void *context, const rms_spec *spec, const rms_forward_args *args,
                              rms_stat *stats) {
  return device.stats(spec, sizeof *spec, args, sizeof *args, stats, stream_of(context));
}

rms_status device_call::merge(const void *context, const rms_spec *spec, int64_t count, rms_stat *into,
                              const rms_stat *from) {
  return device.stats_merge(spec, sizeof *spec, count, into, from, stream_of(context));
}

rms_status device_call::apply(const void *context, const rms_spec *spec, const rms_forward_args *args,
                              const rms_stat *stats) {
  return device.apply(spec, sizeof *spec, args, sizeof *args, stats, stream_of(context));
}

rms_status device_call::backward_stats(const void *context, const rms_spec *spec, const rms_backward_args *args,
                                       const rms_stat *stats, rms_grad_sum *sums) {
  return device.backward_stats(spec, sizeof *spec, args, sizeof *args, stats, sums, stream_of(context));
}

rms_status device_call::backward_apply(const void *context, const rms_spec *spec, const rms_backward_args *args,
                                       const rms_stat *stats, const rms_grad_sum *sums) {
  return device.backward_apply(spec, sizeof *spec, args, sizeof *args, stats, sums, stream_of(context));
}

device_call::device_call(const place &where)
    : backend{{allocate, copy, release, this},
              run_forward,
              run_backward,
              workspace,
              stats,
              merge,
              apply,
              backward_stats,
              backward_apply,
              nullptr,
              &stream},
      at(where) {
  if (device.on_cpu) return;
  check(shim.aoti_torch_create_cuda_guard(at.index, &guard));
  if (shim.aoti_torch_get_current_cuda_stream(at.index, &stream)) {
    shim.aoti_torch_delete_cuda_guard(guard);
    check(1);
  }
}

device_call::~device_call() {
  if (guard) shim.aoti_torch_delete_cuda_guard(guard);
}

} // namespace pn
