/* SPDX-License-Identifier: MIT
 *
 * The forward kernels of one data type. Included by one small file per type, so that they compile side by side. */
#ifndef RMS_CUDA_FORWARD_LAUNCH_CUH
#define RMS_CUDA_FORWARD_LAUNCH_CUH

#include "forward.cuh"
#include "launch.cuh"

namespace rms_cuda {

template <class T> cudaError_t launch_forward_of(const ForwardJob &job, const Grid &grid, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    if (job.lay.residual_wide && job.residual.data)
      return job.aligned ? launch(forward_kernel<T, float, 4, true>, job, grid, job.cluster, false, stream)
                         : launch(forward_kernel<T, float, 4, false>, job, grid, job.cluster, false, stream);
  }
  return job.aligned ? launch(forward_kernel<T, T, 4, true>, job, grid, job.cluster, false, stream)
                     : launch(forward_kernel<T, T, 4, false>, job, grid, job.cluster, false, stream);
}

} // namespace rms_cuda

#endif
