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
