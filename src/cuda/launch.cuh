/* SPDX-License-Identifier: MIT
 *
 * One launch, with what sm_90 adds: clusters, and a start that overlaps the end of the kernel before. */
#ifndef RMS_CUDA_LAUNCH_CUH
#define RMS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include "params.h"

namespace rms_cuda {

template <class Job>
cudaError_t launch(void (*kernel)(const Job), const Job &job, const Grid &grid, int cluster, bool overlap,
                   cudaStream_t stream) {
  cudaLaunchAttribute attribute[2];
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)grid.blocks);
  config.blockDim = dim3((unsigned)grid.threads);
  config.dynamicSmemBytes = grid.shared;
  config.stream = stream;
  config.attrs = attribute;
  if (cluster > 1) {
    attribute[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attribute[config.numAttrs].val.clusterDim.x = (unsigned)cluster;
    attribute[config.numAttrs].val.clusterDim.y = attribute[config.numAttrs].val.clusterDim.z = 1;
    config.numAttrs++;
  }
  if (overlap) {
    attribute[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[config.numAttrs].val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs++;
  }
  return cudaLaunchKernelEx(&config, kernel, job);
}

/* Allows a kernel that much dynamic shared memory, and divides the SM's memory in favour of shared memory: kernels that
 * overlap must agree on the division. */
template <class Job> cudaError_t allow_shared(void (*kernel)(const Job), size_t bytes) {
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}

/* Clusters that the device holds at once: fewer than its SMs over the cluster's size, for clusters do not cross its
 * parts. */
template <class Job>
cudaError_t active_clusters(void (*kernel)(const Job), const Grid &grid, int cluster, int *clusters) {
  cudaLaunchAttribute attribute[1];
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)cluster);
  config.blockDim = dim3((unsigned)grid.threads);
  config.dynamicSmemBytes = grid.shared;
  config.attrs = attribute;
  config.numAttrs = 1;
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = (unsigned)cluster;
  attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
  return cudaOccupancyMaxActiveClusters(clusters, kernel, &config);
}

} // namespace rms_cuda

#endif
