/* SPDX-License-Identifier: MIT */
#include "forward_launch.cuh"

namespace rms_cuda {
template cudaError_t launch_forward_of<__nv_bfloat16>(const ForwardJob &, const Grid &, cudaStream_t);
}
