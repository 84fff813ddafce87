/* SPDX-License-Identifier: MIT */
#include "backward_launch.cuh"

namespace rms_cuda {
template cudaError_t launch_backward_of<__half>(const BackwardJob &, const Grid &, cudaStream_t, int *);
}
