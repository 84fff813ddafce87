/* SPDX-License-Identifier: MIT */
#include "device.h"
#include <cuda_runtime.h>
#include <atomic>

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

/* Asking costs microseconds and the answer never changes: it is kept for each device, as the virtual architecture times
 * 1000 plus that of the machine code. 0: not asked yet. */
enum { KEPT = 64 };
static std::atomic<int> kept[KEPT];

static cudaError_t code_of(int id, Code *code) {
  int both = id < KEPT ? kept[id].load(std::memory_order_relaxed) : 0;
  if (both == 0) {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, probe_kernel);
    if (error != cudaSuccess) return error;
    both = attributes.ptxVersion * 1000 + attributes.binaryVersion;
    if (id < KEPT) kept[id].store(both, std::memory_order_relaxed);
  }
  *code = {both / 1000, both % 1000};
  return cudaSuccess;
}

cudaError_t query_device(Device *device) {
  int id = 0, major = 0, minor = 0;
  Code code = {0, 0};
  cudaError_t error = cudaGetDevice(&id);
  const struct {
    int *value;
    cudaDeviceAttr attribute;
  } asked[] = {{&device->multiprocessors, cudaDevAttrMultiProcessorCount},
               {&device->shared_per_multiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor},
               {&device->shared_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin},
               {&major, cudaDevAttrComputeCapabilityMajor},
               {&minor, cudaDevAttrComputeCapabilityMinor}};
  for (const auto &a : asked)
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(a.value, a.attribute, id);
  if (error == cudaSuccess) error = code_of(id, &code);
  if (error != cudaSuccess) return error;
  const int capability = major * 10 + minor;
  device->clusters = has_hopper_code(code, capability);
  return can_run(code, capability) ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

} // namespace rms_cuda
