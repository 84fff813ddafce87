/* SPDX-License-Identifier: MIT
 *
 * The GPU lines of `rmsnorm info`. */
#include <cuda_runtime_api.h>
#include "rmsnorm_cuda.h"
extern "C" {
#include "cli.h"
}

struct Device {
  cudaDeviceProp p;
  int driver;
  bool usable;
};

static int count_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

static bool read_device(int id, Device &d) {
  d.driver = 0;
  if (cudaGetDeviceProperties(&d.p, id) != cudaSuccess) return false;
  (void)cudaDriverGetVersion(&d.driver);
  d.usable = d.p.major >= 8;
  return true;
}

extern "C" void info_cuda_json(cli_json *j) {
  Device d;
  char text[32];
  cli_json_open(j, "cuda", '[');
  for (int i = 0, count = count_devices(); i < count; i++) {
    if (!read_device(i, d)) continue;
    cli_json_open(j, nullptr, '{');
    cli_json_text(j, "name", d.p.name);
    snprintf(text, sizeof text, "%d.%d", d.p.major, d.p.minor);
    cli_json_text(j, "compute_capability", text);
    cli_json_int(j, "multiprocessors", d.p.multiProcessorCount);
    cli_json_int(j, "memory_bytes", (int64_t)d.p.totalGlobalMem);
    cli_json_int(j, "l2_bytes", d.p.l2CacheSize);
    snprintf(text, sizeof text, "%d.%d", d.driver / 1000, d.driver % 1000 / 10);
    cli_json_text(j, "driver_cuda", text);
    cli_json_flag(j, "usable", d.usable);
    cli_json_close(j);
  }
  cli_json_close(j);
}

extern "C" void info_cuda_text(FILE *stream) {
  Device d;
  int told = 0;
  for (int i = 0, count = count_devices(); i < count; i++) {
    if (!read_device(i, d)) continue;
    fprintf(stream, "%*s%s, sm_%d%d, %d multiprocessors, %.0f GiB, %.0f MiB L2, driver for CUDA %d.%d%s\n",
            told++ ? 19 : 0, "", d.p.name, d.p.major, d.p.minor, d.p.multiProcessorCount,
            (double)d.p.totalGlobalMem / 1073741824.0, (double)d.p.l2CacheSize / 1048576.0, d.driver / 1000,
            d.driver % 1000 / 10, d.usable ? "" : " (not usable: sm_80 or later is needed)");
  }
  if (!told) fprintf(stream, "compiled in, no device\n");
}
