/* SPDX-License-Identifier: MIT
 *
 * One launch of a kernel, with what sm_90 adds: clusters, and a start that overlaps the end of the kernel before.
 *
 * What the runtime says of a kernel does not change, and asking costs microseconds: answers are kept for each device.
 */
#ifndef RMS_CUDA_LAUNCHER_H
#define RMS_CUDA_LAUNCHER_H

#include <cuda_runtime.h>
#include "plan.h"

namespace rms_cuda {

/* Clusters that the device holds at once: fewer than its SMs over the cluster's size, for clusters do not cross its
 * parts. */
cudaError_t active_clusters(const void *kernel, const Grid &grid, int cluster, const Device &device, int *clusters);

cudaError_t launch_kernel(const void *kernel, void *job, const Grid &grid, int cluster, bool overlap,
                          const Device &device, cudaStream_t stream);

template <class Job>
cudaError_t launch(void (*kernel)(const Job), const Job &job, const Grid &grid, int cluster, bool overlap,
                   const Device &device, cudaStream_t stream) {
  Job argument = job;
  return launch_kernel(reinterpret_cast<const void *>(kernel), &argument, grid, cluster, overlap, device, stream);
}

} // namespace rms_cuda

#endif
