/* SPDX-License-Identifier: MIT
 *
 * What the current device is, and which of the library's code it runs. */
#ifndef RMS_CUDA_DEVICE_H
#define RMS_CUDA_DEVICE_H

#include <cuda_runtime_api.h>

namespace rms_cuda {

/* Architectures as the runtime tells them: 80, 90, ... */
struct Code {
  int virtual_architecture; /* that the source was compiled for: __CUDA_ARCH__ / 10                     */
  int binary;               /* that the machine code is for: another one where the driver compiled it   */
};

/* Whether the kernels of this library run at all, and whether clusters, bulk copies and early starts are in their code:
 * they are compiled for sm_90 and later, and empty in anything older, even where the driver compiled that for a newer
 * chip. */
bool can_run(const Code &code, int capability);
bool has_hopper_code(const Code &code, int capability);

struct Device {
  int multiprocessors;
  int shared_per_block;       /* bytes that a block may ask for                                              */
  bool clusters;              /* and bulk copies and early starts: of the device and of the code that it runs */
  int id = 0;                 /* the runtime's number for it                                                 */
  bool wide_clusters = false; /* of 16 blocks that have an SM each                                     */
};

/* An error of the runtime, or none, and a device that can run the library. */
cudaError_t query_device(Device *device);

/* The runtime keeps the last error of the calling thread. One that the caller's work left there is not ours: it is
 * neither reported nor cleared. One that a call of the library leaves is reported by that call and removed again. */
class LastError {
  cudaError_t before;

public:
  LastError() : before(cudaPeekAtLastError()) {}
  /* True if there was no error. */
  bool settle(cudaError_t error) const {
    if (error == cudaSuccess) return true;
    if (before == cudaSuccess) (void)cudaGetLastError();
    return false;
  }
};

} // namespace rms_cuda

#endif
