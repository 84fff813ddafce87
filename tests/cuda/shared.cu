/* SPDX-License-Identifier: MIT
 *
 * The shared library has a CUDA runtime of its own, this program another: the device, its memory and a stream are
 * shared. Without a device a call says so. */
#include <cuda_runtime.h>
#include <cstdio>
#include <vector>
#include "rmsnorm_cuda.h"

#define MUST(call)                                                                                                     \
  do {                                                                                                                 \
    cudaError_t error_ = (call);                                                                                       \
    if (error_ != cudaSuccess) return printf("FAILED %s: %s\n", #call, cudaGetErrorString(error_)), 1;                 \
  } while (0)

int main() {
  const int rows = 64, cols = 256;
  rms_spec spec = {};
  spec.cols = cols;
  rms_forward_args args = {};
  args.outer = rows;
  args.x.dtype = RMS_F32;
  std::vector<float> ones((size_t)(rows * cols), 1.0f), y(ones.size());
  if (rms_cuda_available() != RMS_OK) {
    args.x.data = ones.data(), args.y.data = y.data();
    const bool ok = rms_cuda_forward(&spec, &args, nullptr) == RMS_E_DEVICE;
    printf("%s: no device\n", ok ? "ok" : "FAILED");
    return ok ? 0 : 1;
  }
  void *at_x, *at_y;
  cudaStream_t stream;
  MUST(cudaSetDevice(0));
  MUST(cudaStreamCreate(&stream));
  MUST(cudaMalloc(&at_x, ones.size() * 4));
  MUST(cudaMalloc(&at_y, ones.size() * 4));
  MUST(cudaMemcpyAsync(at_x, ones.data(), ones.size() * 4, cudaMemcpyHostToDevice, stream));
  args.x.data = at_x, args.y.data = at_y;
  const rms_status status = rms_cuda_forward(&spec, &args, stream);
  MUST(cudaMemcpyAsync(y.data(), at_y, ones.size() * 4, cudaMemcpyDeviceToHost, stream));
  MUST(cudaStreamSynchronize(stream));
  const bool ok = status == RMS_OK && y == ones; /* rows of ones stay ones */
  printf("%s: %s\n", ok ? "ok" : "FAILED", rms_status_string(status));
  return ok ? 0 : 1;
}
