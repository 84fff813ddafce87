/* SPDX-License-Identifier: MIT
 *
 * The GPU lines of `rmsnorm info`. */
#include <cuda_runtime_api.h>
#include "rmsnorm_cuda.h"
extern "C" {
#include "cli.h"
}

static void print_device(FILE *stream, int json, int id) {
  cudaDeviceProp p;
  int driver = 0, memory_clock = 0;
  if (cudaGetDeviceProperties(&p, id) != cudaSuccess) return;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, id);
  if (json) {
    fprintf(stream, "{\"name\": ");
    cli_json_string(stream, p.name);
    fprintf(stream,
            ", \"compute_capability\": \"%d.%d\", \"multiprocessors\": %d, \"memory_bytes\": %zu, \"l2_bytes\": %d, "
            "\"driver_cuda\": \"%d.%d\", \"usable\": %s}",
            p.major, p.minor, p.multiProcessorCount, p.totalGlobalMem, p.l2CacheSize, driver / 1000, driver % 1000 / 10,
            p.major >= 8 ? "true" : "false");
  } else {
    fprintf(stream, "%s, sm_%d%d, %d multiprocessors, %.0f GiB, %.0f MiB L2, driver for CUDA %d.%d%s\n", p.name,
            p.major, p.minor, p.multiProcessorCount, (double)p.totalGlobalMem / 1073741824.0,
            (double)p.l2CacheSize / 1048576.0, driver / 1000, driver % 1000 / 10,
            p.major >= 8 ? "" : " (not usable: sm_80 or later is needed)");
  }
}

extern "C" void info_cuda(FILE *stream, int json) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    count = 0;
  }
  if (json) fprintf(stream, "[");
  for (int i = 0; i < count; i++) {
    if (i > 0) fprintf(stream, json ? ", " : "%19s", "");
    print_device(stream, json, i);
  }
  if (json)
    fprintf(stream, "]");
  else if (count == 0)
    fprintf(stream, "compiled in, no device\n");
}
