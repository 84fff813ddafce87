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

/* Blocks walk through several rows, so that their rings stay filled, but not through all that would be their share:
 * some SMs get less of the memory than others, and what comes later goes to those that are done. Clusters take too long
 * to start. */
enum { ROWS_OF_A_BLOCK = 8 };

inline cudaError_t launch_resident(void (*kernel)(const ForwardJob), const ForwardJob &job, Grid grid,
                                   int multiprocessors, cudaStream_t stream) {
  int blocks = 0;
  cudaError_t error = cudaSuccess;
  if (grid.shared > 48 * 1024)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)grid.shared);
  if (error == cudaSuccess && job.cluster == 1)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, grid.threads, grid.shared);
  if (error == cudaSuccess && job.cluster > 1) error = active_clusters(kernel, grid, job.cluster, &blocks);
  if (error != cudaSuccess) return error;
  int64_t most = (int64_t)(blocks > 0 ? blocks : 1) * (job.cluster > 1 ? job.cluster : multiprocessors);
  const int64_t later = (grid.blocks + ROWS_OF_A_BLOCK - 1) / ROWS_OF_A_BLOCK;
  if (job.cluster == 1 && most < later) most = later;
  if (grid.blocks > most) grid.blocks = most;
  return launch(kernel, job, grid, job.cluster, false, stream);
}

template <class T>
cudaError_t launch_fast_of(const ForwardJob &job, const Grid &grid, int multiprocessors, cudaStream_t stream) {
  const bool layer = job.lay.layer, residual = job.residual.data != nullptr;
  void (*kernel)(const ForwardJob);
  if (job.stages == 0)
    kernel =
        layer
            ? (residual ? fast_forward_kernel<T, 4, true, true, false> : fast_forward_kernel<T, 4, true, false, false>)
            : (residual ? fast_forward_kernel<T, 4, false, true, false>
                        : fast_forward_kernel<T, 4, false, false, false>);
  else
    kernel =
        layer
            ? (residual ? fast_forward_kernel<T, 4, true, true, true> : fast_forward_kernel<T, 4, true, false, true>)
            : (residual ? fast_forward_kernel<T, 4, false, true, true> : fast_forward_kernel<T, 4, false, false, true>);
  if (job.stages == 0) return launch(kernel, job, grid, 1, false, stream);
  return launch_resident(kernel, job, grid, multiprocessors, stream);
}

} // namespace rms_cuda

#endif
