/* SPDX-License-Identifier: MIT
 *
 * Calls on a CUDA device: librmsnorm_cuda on torch's current stream, with memory from torch's allocator. */
#ifndef PN_TORCH_CUDA_H
#define PN_TORCH_CUDA_H

#include "call.h"
#include "torch_shim.h"

namespace pn {

/* NULL, or what is missing. libtorch_cuda NULL: the library works on the CPU's memory (for tests). */
const char *load_device(const char *libtorch_cuda, const char *library);

/* torch's type of that device. */
int32_t device_type();

/* One call: makes the device the current one while it lives. */
class device_call {
public:
  explicit device_call(const place &at);
  device_call(const device_call &) = delete;
  ~device_call();

  pn_backend backend;

private:
  place at;
  void *stream = nullptr;
  handle guard = nullptr;

  static bool allocate(void *context, int64_t bytes, pn_block *block);
  static bool copy(void *context, const pn_rows *rows, const pn_tensor *t, void *dense, bool back);
  static void release(void *context, const pn_block *block);
  static rms_status run_forward(const void *context, const rms_spec *spec, const rms_forward_args *args);
  static rms_status run_backward(const void *context, const rms_spec *spec, const rms_backward_args *args);
  static size_t workspace(const rms_spec *spec, const rms_backward_args *args);
  static rms_status stats(const void *context, const rms_spec *spec, const rms_forward_args *args, rms_stat *stats);
  static rms_status merge(const void *context, const rms_spec *spec, int64_t count, rms_stat *into,
                          const rms_stat *from);
  static rms_status apply(const void *context, const rms_spec *spec, const rms_forward_args *args,
                          const rms_stat *stats);
  static rms_status backward_stats(const void *context, const rms_spec *spec, const rms_backward_args *args,
                                   const rms_stat *stats, rms_grad_sum *sums);
  static rms_status backward_apply(const void *context, const rms_spec *spec, const rms_backward_args *args,
                                   const rms_stat *stats, const rms_grad_sum *sums);
};

} // namespace pn

#endif
