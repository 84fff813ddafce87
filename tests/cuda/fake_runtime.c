/* SPDX-License-Identifier: MIT */
#include "fake_runtime.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

fake_runtime fake;

void fake_device(int capability, int code, int binary) {
  memset(&fake, 0, sizeof fake);
  fake.id = 1000; /* beyond those whose code the library keeps in mind */
  fake.capability = capability;
  fake.code = code;
  fake.binary = binary;
  fake.multiprocessors = capability >= 90 ? 132 : 108;
  fake.shared_per_block = capability >= 90 ? 232448 : 166912;
  fake.clusters = 16;
  fake.bad_launch = -1;
}

static cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) fake.last = error;
  return error;
}

static cudaError_t device_error(void) {
  return answer(fake.capability ? cudaSuccess : cudaErrorNoDevice);
}

/* ---- kernels register themselves under the address of their host function ---- */

enum { MOST_KERNELS = 1024 };
static struct {
  const void *host;
  const char *name;
} kernels[MOST_KERNELS];
static int kernel_count;

static const char *name_of(const void *host) {
  for (int i = 0; i < kernel_count; i++)
    if (kernels[i].host == host) return kernels[i].name;
  return "?";
}

void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *tid,
                            void *bid, void *block, void *grid, int *warp);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);

void **__cudaRegisterFatBinary(void *binary) {
  static void *handle;
  (void)binary;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void **handle) {
  (void)handle;
}
void __cudaUnregisterFatBinary(void **handle) {
  (void)handle;
}
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *tid,
                            void *bid, void *block, void *grid, int *warp) {
  (void)handle, (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
  if (kernel_count == MOST_KERNELS) abort();
  kernels[kernel_count].host = host;
  kernels[kernel_count++].name = name;
}
/* The host functions that these serve are never called: the library launches by cudaLaunchKernelExC alone. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
  (void)kernel, (void)host;
  abort();
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               cudaStream_t stream) {
  (void)kernel, (void)grid, (void)block, (void)args, (void)shared, (void)stream;
  abort();
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  (void)grid, (void)block, (void)shared, (void)stream;
  abort();
}

/* ---- what the library calls ---- */

cudaError_t cudaGetDevice(int *device) {
  *device = fake.id;
  return device_error();
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  (void)device;
  fake.questions++;
  switch (attribute) {
  case cudaDevAttrMultiProcessorCount:
    *value = fake.multiprocessors;
    break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    *value = fake.shared_per_block;
    break;
  case cudaDevAttrComputeCapabilityMajor:
    *value = fake.capability / 10;
    break;
  case cudaDevAttrComputeCapabilityMinor:
    *value = fake.capability % 10;
    break;
  default:
    return answer(cudaErrorInvalidValue);
  }
  return device_error();
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
  (void)function;
  fake.questions++, fake.probes++;
  memset(attributes, 0, sizeof *attributes);
  attributes->ptxVersion = fake.code;
  attributes->binaryVersion = fake.binary;
  return answer(fake.code ? cudaSuccess : cudaErrorNoKernelImageForDevice);
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
  (void)function;
  fake.questions++;
  return answer(attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value > fake.shared_per_block
                    ? cudaErrorInvalidValue
                    : cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *function, const cudaLaunchConfig_t *config) {
  (void)function, (void)config;
  fake.questions++;
  *clusters = fake.clusters;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **args) {
  (void)args;
  if (fake.launch_error != cudaSuccess && fake.launches >= fake.bad_launch) return answer(fake.launch_error);
  fake_launch launch = {name_of(function), config->gridDim.x, config->blockDim.x, config->dynamicSmemBytes, 1, 0};
  for (unsigned i = 0; i < config->numAttrs; i++) {
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
      launch.cluster = (int)config->attrs[i].val.clusterDim.x;
    if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
      launch.early = config->attrs[i].val.programmaticStreamSerializationAllowed;
  }
  if (fake.launches < FAKE_LAUNCHES) fake.launch[fake.launches] = launch;
  fake.launches++;
  if (launch.blocks == 0 || launch.blocks > 0x7fffffffu || launch.threads == 0 || launch.threads > 1024 ||
      launch.blocks % (unsigned)launch.cluster != 0 || launch.shared > (size_t)fake.shared_per_block)
    return answer(cudaErrorInvalidConfiguration);
  return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
  cudaError_t error = fake.last;
  fake.last = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) {
  return fake.last;
}
