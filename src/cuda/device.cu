/* SPDX-License-Identifier: MIT */
#include "device.h"
#include <cuda_runtime.h>
#include <atomic>
#include <cstdint>

namespace rms_cuda {

enum { OLDEST = 80, HOPPER = 90 };

bool can_run(const Code &code, int capability) {
  return code.virtual_architecture >= OLDEST && capability >= code.virtual_architecture;
}

bool has_hopper_code(const Code &code, int capability) {
  return can_run(code, capability) && code.virtual_architecture >= HOPPER && code.binary >= HOPPER;
}

/* Compiled like every other kernel: what holds for it holds for all. */
__global__ void probe_kernel() {}

/* Whether a cluster of 16 blocks fits, with all the shared memory of an SM each. Some chips refuse the question. */
static bool has_wide_clusters(int shared) {
  const cudaError_t before = cudaPeekAtLastError();
  const void *kernel = reinterpret_cast<const void *>(probe_kernel);
  cudaLaunchAttribute attribute[1];
  cudaLaunchConfig_t config = {};
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = 16;
  attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
  config.gridDim = dim3(16);
  config.blockDim = dim3(512);
  config.dynamicSmemBytes = (size_t)shared;
  config.attrs = attribute;
  config.numAttrs = 1;
  int clusters = 0;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error == cudaSuccess) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  if (error != cudaSuccess && before == cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess && clusters > 0;
}

static cudaError_t ask(int id, Device *device) {
  cudaFuncAttributes attributes;
  int major = 0, minor = 0;
  cudaError_t error = cudaSuccess;
  const struct {
    int *value;
    cudaDeviceAttr attribute;
  } asked[] = {{&device->multiprocessors, cudaDevAttrMultiProcessorCount},
               {&device->shared_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin},
               {&major, cudaDevAttrComputeCapabilityMajor},
               {&minor, cudaDevAttrComputeCapabilityMinor}};
  for (const auto &a : asked)
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(a.value, a.attribute, id);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, probe_kernel);
  if (error != cudaSuccess) return error;
  const Code code = {attributes.ptxVersion, attributes.binaryVersion};
  device->clusters = has_hopper_code(code, major * 10 + minor);
  device->wide_clusters = device->clusters && has_wide_clusters(device->shared_per_block);
  return can_run(code, major * 10 + minor) ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

/* Asking costs microseconds and the answer never changes: it is kept for each device that can run the library, in one
 * word. 0: not asked yet. */
enum { KEPT = 64 };
static std::atomic<uint64_t> kept[KEPT];

static uint64_t packed(const Device &device) {
  return (uint64_t)device.multiprocessors << 40 | (uint64_t)device.shared_per_block << 8 |
         (device.wide_clusters ? 4 : 0) | (device.clusters ? 2 : 0) | 1;
}

cudaError_t query_device(Device *device) {
  int id = 0;
  cudaError_t error = cudaGetDevice(&id);
  if (error != cudaSuccess) return error;
  uint64_t word = id < KEPT ? kept[id].load(std::memory_order_relaxed) : 0;
  if (word == 0) {
    error = ask(id, device);
    if (error != cudaSuccess) return error;
    word = packed(*device);
    if (id < KEPT) kept[id].store(word, std::memory_order_relaxed);
  }
  *device = {(int)(word >> 40), (int)(word >> 8 & 0xffffffff), (word & 2) != 0, id, (word & 4) != 0};
  return cudaSuccess;
}

} // namespace rms_cuda
