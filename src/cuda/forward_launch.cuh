/* SPDX-License-Identifier: MIT
 *
 * The forward kernels of one data type. Included by one small file per type, so that they compile side by side. */
#ifndef RMS_CUDA_FORWARD_LAUNCH_CUH
#define RMS_CUDA_FORWARD_LAUNCH_CUH

#include "fast.cuh"
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

/* As many blocks as the device holds at once, or fewer where there are fewer rows. */
inline cudaError_t launch_resident(void (*kernel)(const ForwardJob), const ForwardJob &job, Grid grid, int multiprocessors,
                                   cudaStream_t stream) {
  int blocks = 0;
  cudaError_t error = cudaSuccess;
  if (grid.shared > 48 * 1024)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)grid.shared);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, grid.threads, grid.shared);
  if (error != cudaSuccess) return error;
  int64_t most = (int64_t)multiprocessors * (blocks > 0 ? blocks : 1) / job.cluster * job.cluster;
  if (grid.blocks > most) grid.blocks = most;
  return launch(kernel, job, grid, job.cluster, false, stream);
}

template <class T>
cudaError_t launch_fast_of(const ForwardJob &job, const Grid &grid, int multiprocessors, cudaStream_t stream) {
  const bool layer = job.lay.layer, residual = job.residual.data != nullptr;
  void (*kernel)(const ForwardJob);
  if (job.stages == 0)
    kernel = layer ? (residual ? fast_forward_kernel<T, 4, true, true, false> : fast_forward_kernel<T, 4, true, false, false>)
                   : (residual ? fast_forward_kernel<T, 4, false, true, false> : fast_forward_kernel<T, 4, false, false, false>);
  else if (job.per_thread == 4)
    kernel = layer ? (residual ? fast_forward_kernel<T, 4, true, true, true> : fast_forward_kernel<T, 4, true, false, true>)
                   : (residual ? fast_forward_kernel<T, 4, false, true, true> : fast_forward_kernel<T, 4, false, false, true>);
  else
    kernel = layer ? (residual ? fast_forward_kernel<T, 8, true, true, true> : fast_forward_kernel<T, 8, true, false, true>)
                   : (residual ? fast_forward_kernel<T, 8, false, true, true> : fast_forward_kernel<T, 8, false, false, true>);
  if (job.stages == 0) return launch(kernel, job, grid, 1, false, stream);
  return launch_resident(kernel, job, grid, multiprocessors, stream);
}

} // namespace rms_cuda

#endif
