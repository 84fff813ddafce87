/* SPDX-License-Identifier: MIT */
#include "lean_backward_launch.cuh"

namespace rms_cuda {
template cudaError_t launch_lean_backward_of<__nv_bfloat16>(const LeanBackward &, LeanShares &, bool, cudaStream_t);
}
