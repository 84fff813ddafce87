/* SPDX-License-Identifier: MIT */
#include "launcher.h"
#include <mutex>

namespace rms_cuda {

/* ---- answers that are kept ---- */

/* Of a question about a kernel on a device: how much shared memory it was allowed (cluster = 0), or how many clusters
 * of its blocks fit. */
struct Answer {
  const void *kernel;
  int device, cluster, threads;
  size_t shared;
  int value;
};

enum { ANSWERS = 1024, KEPT_DEVICES = 64 };
static std::mutex answers_lock;
static Answer answers[ANSWERS];

/* The place of a question's answer, empty (kernel = NULL) or not; NULL where none is left. With the lock held. */
static Answer *find(const void *kernel, const Device &device, int cluster, int threads, size_t shared) {
  size_t at = ((uintptr_t)kernel >> 4) + (size_t)(device.id * 31 + cluster * 7) + shared / 1024;
  for (int tries = 0; tries < ANSWERS; tries++, at++) {
    Answer &a = answers[at % ANSWERS];
    if (!a.kernel || (a.kernel == kernel && a.device == device.id && a.cluster == cluster && a.threads == threads &&
                      a.shared == shared))
      return &a;
  }
  return nullptr;
}

static int recall(const void *kernel, const Device &device, int cluster, int threads, size_t shared) {
  if (device.id >= KEPT_DEVICES) return 0;
  std::lock_guard<std::mutex> hold(answers_lock);
  const Answer *a = find(kernel, device, cluster, threads, shared);
  return a && a->kernel ? a->value : 0;
}

static void keep(const void *kernel, const Device &device, int cluster, int threads, size_t shared, int value) {
  if (device.id >= KEPT_DEVICES) return;
  std::lock_guard<std::mutex> hold(answers_lock);
  Answer *a = find(kernel, device, cluster, threads, shared);
  if (a) *a = {kernel, device.id, cluster, threads, shared, value};
}

/* ---- shared memory ---- */

/* Allows a kernel that much dynamic shared memory, and wide clusters. Kernels that overlap must agree on how an SM's
 * memory is divided: in favour of shared memory. */
static cudaError_t allow(const void *kernel, size_t bytes, int cluster, bool overlap, const Device &device) {
  const size_t before = (size_t)recall(kernel, device, 0, 0, 0);
  if (bytes < before) bytes = before;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (error == cudaSuccess && overlap)
    error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error == cudaSuccess && cluster > MAX_CLUSTER)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error == cudaSuccess) keep(kernel, device, 0, 0, 0, (int)bytes);
  return error;
}

static bool is_allowed(const void *kernel, size_t bytes, const Device &device) {
  return bytes == 0 || (size_t)recall(kernel, device, 0, 0, 0) >= bytes;
}

/* ---- launches ---- */

static void set_cluster(cudaLaunchAttribute &attribute, int cluster) {
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = (unsigned)cluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
}

cudaError_t active_clusters(const void *kernel, const Grid &grid, int cluster, const Device &device, int *clusters) {
  *clusters = recall(kernel, device, cluster, grid.threads, grid.shared);
  if (*clusters > 0) return cudaSuccess;
  cudaLaunchAttribute attribute[1];
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)cluster);
  config.blockDim = dim3((unsigned)grid.threads);
  config.dynamicSmemBytes = grid.shared;
  config.attrs = attribute;
  config.numAttrs = 1;
  set_cluster(attribute[0], cluster);
  cudaError_t error = cudaSuccess;
  if (!is_allowed(kernel, grid.shared, device) || cluster > MAX_CLUSTER)
    error = allow(kernel, grid.shared, cluster, true, device);
  if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(clusters, kernel, &config);
  if (error == cudaSuccess) keep(kernel, device, cluster, grid.threads, grid.shared, *clusters);
  return error;
}

cudaError_t launch_kernel(const void *kernel, void *job, const Grid &grid, int cluster, bool overlap,
                          const Device &device, cudaStream_t stream) {
  cudaLaunchAttribute attribute[2];
  cudaLaunchConfig_t config = {};
  void *arguments[] = {job};
  config.gridDim = dim3((unsigned)grid.blocks);
  config.blockDim = dim3((unsigned)grid.threads);
  config.dynamicSmemBytes = grid.shared;
  config.stream = stream;
  config.attrs = attribute;
  if (cluster > 1) set_cluster(attribute[config.numAttrs++], cluster);
  if (overlap) {
    attribute[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[config.numAttrs].val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs++;
  }
  if (is_allowed(kernel, grid.shared, device)) {
    cudaError_t error = cudaLaunchKernelExC(&config, kernel, arguments);
    if (error != cudaErrorInvalidValue || grid.shared == 0) return error;
    (void)cudaGetLastError(); /* the device was reset, and has forgotten what was allowed */
  }
  cudaError_t error = allow(kernel, grid.shared, cluster, overlap, device);
  return error == cudaSuccess ? cudaLaunchKernelExC(&config, kernel, arguments) : error;
}

} // namespace rms_cuda
