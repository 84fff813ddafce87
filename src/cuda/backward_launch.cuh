/* SPDX-License-Identifier: MIT
 *
 * The backward kernels of one data type. Included by one small file per type, so that they compile side by side. */
#ifndef RMS_CUDA_BACKWARD_LAUNCH_CUH
#define RMS_CUDA_BACKWARD_LAUNCH_CUH

#include "backward.cuh"
#include "launch.cuh"

namespace rms_cuda {

/* Launches, or with `clusters` tells how many clusters the device holds at once. */
inline cudaError_t launch_big(void (*kernel)(const BackwardJob), const BackwardJob &job, const Grid &grid,
                              cudaStream_t stream, int *clusters) {
  /* more shared memory than the default needs to be asked for */
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)grid.shared);
  if (error != cudaSuccess) return error;
  if (clusters) return active_clusters(kernel, grid, job.cluster, clusters);
  return launch(kernel, job, grid, job.cluster, false, stream);
}

template <class T>
cudaError_t launch_backward_of(const BackwardJob &job, const Grid &grid, cudaStream_t stream, int *clusters) {
  constexpr int NV = BACKWARD_VECTORS;
  if constexpr (sizeof(T) == 2) {
    if (job.lay.residual_wide)
      return launch_big(job.aligned ? backward_kernel<T, float, NV, true, true>
                                    : backward_kernel<T, float, NV, true, false>,
                        job, grid, stream, clusters);
  }
  if (!job.aligned) return launch_big(backward_kernel<T, T, NV, true, false>, job, grid, stream, clusters);
  return launch_big(job.lay.layer || job.want_dbias ? backward_kernel<T, T, NV, true, true>
                                                    : backward_kernel<T, T, NV, false, true>,
                    job, grid, stream, clusters);
}

} // namespace rms_cuda

#endif
