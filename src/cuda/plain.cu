/* SPDX-License-Identifier: MIT */
#include "launch.cuh"
#include "plain.cuh"

namespace rms_cuda {

cudaError_t launch_plain_forward(const ForwardJob &job, const Grid &grid, cudaStream_t stream) {
  switch (job.lay.dtype) {
  case RMS_F64:
    return launch(plain_forward_kernel<double>, job, grid, 1, false, stream);
  case RMS_BF16:
    return launch(plain_forward_kernel<__nv_bfloat16>, job, grid, 1, false, stream);
  case RMS_F16:
    return launch(plain_forward_kernel<__half>, job, grid, 1, false, stream);
  default:
    return launch(plain_forward_kernel<float>, job, grid, 1, false, stream);
  }
}

cudaError_t launch_plain_rows(const BackwardJob &job, const Grid &grid, cudaStream_t stream) {
  switch (job.lay.dtype) {
  case RMS_F64:
    return launch(plain_rows_kernel<double>, job, grid, 1, false, stream);
  case RMS_BF16:
    return launch(plain_rows_kernel<__nv_bfloat16>, job, grid, 1, false, stream);
  case RMS_F16:
    return launch(plain_rows_kernel<__half>, job, grid, 1, false, stream);
  default:
    return launch(plain_rows_kernel<float>, job, grid, 1, false, stream);
  }
}

cudaError_t launch_plain_columns(const BackwardJob &job, const Grid &grid, cudaStream_t stream) {
  switch (job.lay.dtype) {
  case RMS_F64:
    return launch(plain_columns_kernel<double>, job, grid, 1, false, stream);
  case RMS_BF16:
    return launch(plain_columns_kernel<__nv_bfloat16>, job, grid, 1, false, stream);
  case RMS_F16:
    return launch(plain_columns_kernel<__half>, job, grid, 1, false, stream);
  default:
    return launch(plain_columns_kernel<float>, job, grid, 1, false, stream);
  }
}

} // namespace rms_cuda
