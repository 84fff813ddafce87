/* SPDX-License-Identifier: MIT
 *
 * The kernels of the forms that round at every step, of one 16-bit type (RMS_TYPE): compiled once for each, side by
 * side. */
#include "launch.h"
#include "launcher.h"
#include "stepwise_backward.cuh"

namespace rms_cuda {

template <class T>
cudaError_t launch_stepwise(const GeneralForward &g, const Grid &grid, const Device &device, cudaStream_t stream) {
  return launch(forward_stepwise_kernel<T>, g, grid, 1, false, device, stream);
}

template <class T>
cudaError_t launch_stepwise(const GeneralBackward &g, const Grid &grid, const Device &device, cudaStream_t stream) {
  return launch(backward_stepwise_kernel<T>, g, grid, 1, false, device, stream);
}

template cudaError_t launch_stepwise<RMS_TYPE>(const GeneralForward &, const Grid &, const Device &, cudaStream_t);
template cudaError_t launch_stepwise<RMS_TYPE>(const GeneralBackward &, const Grid &, const Device &, cudaStream_t);

} // namespace rms_cuda
