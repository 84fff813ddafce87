/* SPDX-License-Identifier: MIT
 *
 * Compiled with PTX for sm_80 and sm_100 and nothing for sm_90, where a driver then compiles that for sm_80: the
 * library must see that clusters, bulk copies and waits are not in such code. Exit status 77: there is no device of
 * sm_90. */
#include <cstdio>
#include "../../src/cuda/device.h"

int main() {
  int id = 0, major = 0;
  if (cudaGetDevice(&id) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, id) != cudaSuccess || major != 9) {
    printf("skipped: no device of sm_90\n");
    return 77;
  }
  rms_cuda::Device device;
  const cudaError_t error = rms_cuda::query_device(&device);
  const bool ok = error == cudaSuccess && !device.clusters;
  printf("%s: %s, clusters %d\n", ok ? "ok" : "FAILED", cudaGetErrorString(error),
         error == cudaSuccess && device.clusters);
  return ok ? 0 : 1;
}
