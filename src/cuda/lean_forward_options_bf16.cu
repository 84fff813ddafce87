/* SPDX-License-Identifier: MIT */
#include "lean_forward_launch.cuh"

namespace rms_cuda {
template cudaError_t launch_lean_forward_of<__nv_bfloat16, true>(const LeanForward &, bool, const Device &,
                                                                 cudaStream_t);
}
