/* SPDX-License-Identifier: MIT */
#include "torch_shim.h"
#include <dlfcn.h>

namespace pn {

shim_functions shim;

/* ---- functions ---- */

template <class F> static bool find(void *torch, const char *name, F &function) {
  function = reinterpret_cast<F>(dlsym(torch, name));
  return function != nullptr;
}

#define PN_FIND(name, result, parameters)                                                                              \
  if (!find(torch, #name, shim.name)) return #name;

const char *load_shim(const char *libtorch_cpu) {
  void *torch = dlopen(libtorch_cpu, RTLD_LAZY | RTLD_NOLOAD);
  if (!torch) return "libtorch_cpu";
  PN_SHIM_FUNCTIONS(PN_FIND)
  if (!find(torch, "torch_parallel_for", shim.torch_parallel_for) ||
      !find(torch, "torch_get_num_threads", shim.torch_get_num_threads))
    shim.torch_parallel_for = nullptr;
  find(torch, "_ZN2at15get_num_threadsEv", shim.get_num_threads);
  shim.dtype[RMS_AS_X] = -1;
  shim.dtype[RMS_F32] = shim.aoti_torch_dtype_float32();
  shim.dtype[RMS_F64] = shim.aoti_torch_dtype_float64();
  shim.dtype[RMS_BF16] = shim.aoti_torch_dtype_bfloat16();
  shim.dtype[RMS_F16] = shim.aoti_torch_dtype_float16();
  shim.int64 = shim.aoti_torch_dtype_int64();
  shim.bytes = shim.aoti_torch_dtype_uint8();
  for (int dtype = RMS_I8; dtype < RMS_Q8_0; dtype++)
    shim.dtype[dtype] = shim.bytes;
  shim.cpu = shim.aoti_torch_device_type_cpu();
  shim.cuda = shim.aoti_torch_device_type_cuda();
  return nullptr;
}

const char *load_cuda_shim(const char *libtorch_cuda) {
  void *torch = dlopen(libtorch_cuda, RTLD_LAZY | RTLD_NOLOAD);
  if (!torch) return "libtorch_cuda";
  PN_SHIM_CUDA_FUNCTIONS(PN_FIND)
  return nullptr;
}

/* ---- tensors ---- */

/* On the CPU alone torch's dispatcher has seen to it. */
static void check_place(const char *name, handle tensor, place *at) {
  int32_t type, index;
  if (at->type == shim.cpu) return;
  check(shim.aoti_torch_get_device_type(tensor, &type));
  check(shim.aoti_torch_get_device_index(tensor, &index));
  if (at->index < 0 && type == at->type) at->index = index;
  if (type != at->type || index != at->index)
    throw std::runtime_error(std::string("rmsnorm: ") + name + " is on another device than the other tensors");
}

void tensor::read(const char *name, place *at) {
  if (!owned) return;
  int64_t ndim, *sizes, *strides;
  int32_t dtype;
  void *data;
  check(shim.aoti_torch_get_dim(owned, &ndim));
  check(shim.aoti_torch_get_sizes(owned, &sizes));
  check(shim.aoti_torch_get_strides(owned, &strides));
  check(shim.aoti_torch_get_dtype(owned, &dtype));
  check(shim.aoti_torch_get_data_ptr(owned, &data));
  check_place(name, owned, at);
  for (view.dtype = RMS_F16; view.dtype > 0 && shim.dtype[view.dtype] != dtype;)
    view.dtype--;
  if (view.dtype == 0) throw std::runtime_error(std::string("rmsnorm: the dtype of ") + name + " is not offered");
  fill(data, ndim, sizes, strides);
}

void tensor::make(int32_t dtype, int64_t ndim, const int64_t *sizes, const int64_t *strides, const place &at) {
  void *data;
  require(shim.aoti_torch_empty_strided(ndim, sizes, strides, shim.dtype[dtype], at.type, at.index, &owned) == 0,
          "torch could not allocate a result");
  check(shim.aoti_torch_get_data_ptr(owned, &data));
  view.dtype = dtype;
  fill(data, ndim, sizes, strides);
}

void tensor::make_dense(int32_t dtype, int64_t ndim, const int64_t *sizes, const place &at) {
  int64_t strides[PN_MAX_DIMS], next = 1;
  for (int64_t d = ndim - 1; d >= 0; d--) {
    strides[d] = next;
    next *= sizes[d] > 1 ? sizes[d] : 1;
  }
  make(dtype, ndim, sizes, strides, at);
}

void tensor::make_like(const tensor &other, int32_t dtype, const place &at) {
  int64_t strides[PN_MAX_DIMS];
  const int64_t size = (int64_t)rms_dtype_size((rms_dtype)other.view.dtype);
  for (int d = 0; d < other.view.ndim; d++)
    strides[d] = other.view.stride[d] / size;
  pn_dense_strides(other.view.ndim, other.view.shape, strides, strides);
  make(dtype, other.view.ndim, other.view.shape, strides, at);
}

void tensor::fill(void *data, int64_t ndim, const int64_t *sizes, const int64_t *strides) {
  require(ndim <= PN_MAX_DIMS, "a tensor has too many dimensions");
  const int64_t size = (int64_t)rms_dtype_size((rms_dtype)view.dtype);
  view.data = static_cast<char *>(data);
  view.ndim = (int32_t)ndim;
  for (int64_t d = 0; d < ndim; d++) {
    view.shape[d] = sizes[d];
    view.stride[d] = strides[d] * size;
  }
}

void index_list::read(place *at) {
  if (!owned) return;
  int64_t ndim, *sizes, *strides;
  int32_t dtype;
  void *pointer;
  check(shim.aoti_torch_get_dim(owned, &ndim));
  check(shim.aoti_torch_get_sizes(owned, &sizes));
  check(shim.aoti_torch_get_strides(owned, &strides));
  check(shim.aoti_torch_get_dtype(owned, &dtype));
  check(shim.aoti_torch_get_data_ptr(owned, &pointer));
  check_place("indices", owned, at);
  require(ndim == 1 && sizes[0] > 0 && (sizes[0] == 1 || strides[0] == 1) && dtype == shim.int64,
          "indices must be a dense list of int64");
  data = static_cast<const int64_t *>(pointer);
  count = sizes[0];
}

} // namespace pn
