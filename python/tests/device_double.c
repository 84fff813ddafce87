/* SPDX-License-Identifier: MIT
 *
 * The functions of librmsnorm_cuda that the package calls, on the CPU's memory. With it the tests run what the package
 * does around a call on a device (temporaries, workspace, tensors of torch's allocator) where there is no GPU. */
#include "rmsnorm_cuda.h"

rms_status rms_cuda_forward_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args,
                                  size_t args_size, rms_cuda_stream stream) {
  return stream ? RMS_E_DEVICE : rms_forward_sized(spec, spec_size, args, args_size, NULL);
}

rms_status rms_cuda_backward_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                   size_t args_size, rms_cuda_stream stream) {
  return stream ? RMS_E_DEVICE : rms_backward_sized(spec, spec_size, args, args_size, NULL);
}

size_t rms_cuda_backward_workspace_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size) {
  return rms_backward_workspace_sized(spec, spec_size, args, args_size);
}

rms_status rms_cuda_stats_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                                rms_stat *stats, rms_cuda_stream stream) {
  return stream ? RMS_E_DEVICE : rms_stats_sized(spec, spec_size, args, args_size, stats, NULL);
}

rms_status rms_cuda_stats_merge_sized(const rms_spec *spec, size_t spec_size, int64_t count, rms_stat *into,
                                      const rms_stat *from, rms_cuda_stream stream) {
  return stream ? RMS_E_DEVICE : rms_stats_merge_sized(spec, spec_size, count, into, from);
}

rms_status rms_cuda_apply_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                                const rms_stat *stats, rms_cuda_stream stream) {
  return stream ? RMS_E_DEVICE : rms_apply_sized(spec, spec_size, args, args_size, stats, NULL);
}

rms_status rms_cuda_backward_stats_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size, const rms_stat *stats, rms_grad_sum *sums,
                                         rms_cuda_stream stream) {
  return stream ? RMS_E_DEVICE : rms_backward_stats_sized(spec, spec_size, args, args_size, stats, sums, NULL);
}

rms_status rms_cuda_backward_apply_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size, const rms_stat *stats, const rms_grad_sum *sums,
                                         rms_cuda_stream stream) {
  return stream ? RMS_E_DEVICE : rms_backward_apply_sized(spec, spec_size, args, args_size, stats, sums, NULL);
}
