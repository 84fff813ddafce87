/* SPDX-License-Identifier: MIT
 *
 * torch's stable C interface, looked up in the torch that is loaded, and its tensors. Values travel as 64-bit words. A
 * kernel owns the tensor handles it is given; an optional one is a word on the heap, or 0. Functions return 0 for
 * success. */
#ifndef PN_TORCH_SHIM_H
#define PN_TORCH_SHIM_H

#include "tensor.h"
#include <stdexcept>
#include <string>

namespace pn {

using word = uint64_t;
using handle = void *;
using registration = void *;
using kernel = void (*)(word *stack, uint64_t inputs, uint64_t outputs);

#define PN_SHIM_FUNCTIONS(X)                                                                                           \
  X(aoti_torch_get_data_ptr, int32_t, (handle, void **))                                                               \
  X(aoti_torch_get_dim, int32_t, (handle, int64_t *))                                                                  \
  X(aoti_torch_get_sizes, int32_t, (handle, int64_t **))                                                               \
  X(aoti_torch_get_strides, int32_t, (handle, int64_t **))                                                             \
  X(aoti_torch_get_dtype, int32_t, (handle, int32_t *))                                                                \
  X(aoti_torch_get_device_type, int32_t, (handle, int32_t *))                                                          \
  X(aoti_torch_get_device_index, int32_t, (handle, int32_t *))                                                         \
  X(aoti_torch_empty_strided, int32_t,                                                                                 \
    (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, handle *))                                  \
  X(aoti_torch_create_tensor_from_blob, int32_t,                                                                       \
    (void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t, int32_t, handle *))                 \
  X(aoti_torch_copy_, int32_t, (handle, handle, int32_t))                                                              \
  X(aoti_torch_zero_, int32_t, (handle))                                                                               \
  X(aoti_torch_delete_tensor_object, int32_t, (handle))                                                                \
  X(aoti_torch_library_init_impl, int32_t, (const char *, const char *, const char *, uint32_t, registration *))       \
  X(aoti_torch_library_impl, int32_t, (registration, const char *, kernel))                                            \
  X(aoti_torch_delete_library_object, int32_t, (registration))                                                         \
  X(aoti_torch_dtype_float32, int32_t, ())                                                                             \
  X(aoti_torch_dtype_float64, int32_t, ())                                                                             \
  X(aoti_torch_dtype_float16, int32_t, ())                                                                             \
  X(aoti_torch_dtype_bfloat16, int32_t, ())                                                                            \
  X(aoti_torch_dtype_int64, int32_t, ())                                                                               \
  X(aoti_torch_dtype_uint8, int32_t, ())                                                                               \
  X(aoti_torch_device_type_cpu, int32_t, ())                                                                           \
  X(aoti_torch_device_type_cuda, int32_t, ())

/* In libtorch_cuda. */
#define PN_SHIM_CUDA_FUNCTIONS(X)                                                                                      \
  X(aoti_torch_get_current_cuda_stream, int32_t, (int32_t, void **))                                                   \
  X(aoti_torch_create_cuda_guard, int32_t, (int32_t, handle *))                                                        \
  X(aoti_torch_delete_cuda_guard, int32_t, (handle))

#define PN_DECLARE(name, result, parameters) result(*name) parameters;
struct shim_functions {
  PN_SHIM_FUNCTIONS(PN_DECLARE)
  PN_SHIM_CUDA_FUNCTIONS(PN_DECLARE) /* NULL until load_cuda_shim */
  /* From torch 2.10 on; otherwise NULL. */
  int32_t (*torch_parallel_for)(int64_t begin, int64_t end, int64_t grain, void (*)(int64_t, int64_t, void *), void *);
  int32_t (*torch_get_num_threads)(uint32_t *);
  /* at::get_num_threads(), for torch 2.9. */
  int (*get_num_threads)();
  int32_t dtype[RMS_Q8_0]; /* torch's code of each rms_dtype; quantised elements are bytes */
  int32_t int64, bytes, cpu, cuda;
};
#undef PN_DECLARE

extern shim_functions shim;

/* NULL, or the name of a function that the library at this path, which must be loaded already, lacks. */
const char *load_shim(const char *libtorch_cpu);
const char *load_cuda_shim(const char *libtorch_cuda);

inline void check(int32_t error) {
  if (error) throw std::runtime_error("rmsnorm: torch reported an error");
}

inline void require(bool good, const char *message) {
  if (!good) throw std::runtime_error(std::string("rmsnorm: ") + message);
}

/* Where a call runs: on the CPU, or on one device, on which every tensor must then be. */
struct place {
  int32_t type, index; /* index -1: that of the first tensor */
};

inline handle unbox(word value) {
  word *boxed = reinterpret_cast<word *>(value);
  word inner = *boxed;
  delete boxed;
  return reinterpret_cast<handle>(inner);
}

class tensor {
public:
  tensor() = default;
  tensor(const tensor &) = delete;
  ~tensor() {
    if (owned) shim.aoti_torch_delete_tensor_object(owned);
  }

  /* An input: a kernel takes all of them before it reads one, so that an error leaves none behind. */
  void take(word value) { owned = reinterpret_cast<handle>(value); }
  void take_optional(word value) { owned = value ? unbox(value) : nullptr; }
  void read(const char *name, place *at);

  /* Outputs; strides in elements. */
  void make(int32_t dtype, int64_t ndim, const int64_t *sizes, const int64_t *strides, const place &at);
  void make_dense(int32_t dtype, int64_t ndim, const int64_t *sizes, const place &at);
  /* As torch.empty_like does. */
  void make_like(const tensor &other, int32_t dtype, const place &at);

  /* The elements of another tensor of the same shape. */
  void copy(const tensor &from) { check(shim.aoti_torch_copy_(owned, from.owned, 0)); }

  void zero() { check(shim.aoti_torch_zero_(owned)); }

  word give() {
    handle given = owned;
    owned = nullptr;
    return reinterpret_cast<word>(given);
  }

  const pn_tensor *get() const { return owned ? &view : nullptr; }

  pn_tensor view;

private:
  handle owned = nullptr;

  void fill(void *data, int64_t ndim, const int64_t *sizes, const int64_t *strides);
};

/* A list of elements that enter the statistic. */
class index_list {
public:
  index_list() = default;
  index_list(const index_list &) = delete;
  ~index_list() {
    if (owned) shim.aoti_torch_delete_tensor_object(owned);
  }

  void take_optional(word value) { owned = value ? unbox(value) : nullptr; }
  void read(place *at);

  const int64_t *data = nullptr;
  int64_t count = 0;

private:
  handle owned = nullptr;
};

} // namespace pn

#endif
