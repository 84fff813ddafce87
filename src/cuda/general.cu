/* SPDX-License-Identifier: MIT
 *
 * The general kernels of one data type (RMS_TYPE), with a gate or without one (RMS_GATED): compiled once for each, side
 * by side. */
#include "backward_double.cuh"
#include "launch.h"
#include "launcher.h"

namespace rms_cuda {

template <class T, bool GATED>
cudaError_t launch_general_forward(const GeneralForward &g, const Grid &grid, const Device &device,
                                   cudaStream_t stream) {
  return launch(g.aligned ? forward_general_kernel<T, true, GATED> : forward_general_kernel<T, false, GATED>, g, grid,
                1, false, device, stream);
}

template <class T, bool GATED>
cudaError_t launch_general_rows(const GeneralBackward &g, const Grid &grid, const Device &device, cudaStream_t stream) {
  if constexpr (sizeof(T) == 8 && !GATED) {
    if (g.ahead)
      return launch(g.job.lay.kind == RMS_KIND_LAYER ? backward_double_kernel<true> : backward_double_kernel<false>, g,
                    grid, 1, false, device, stream);
  }
  return launch(g.aligned ? backward_general_rows_kernel<T, true, GATED>
                          : backward_general_rows_kernel<T, false, GATED>,
                g, grid, 1, false, device, stream);
}

template <class T, bool GATED>
cudaError_t launch_general_columns(const GeneralBackward &g, const Grid &grid, const Device &device,
                                   cudaStream_t stream) {
  return launch(g.aligned ? backward_general_columns_kernel<T, true, GATED>
                          : backward_general_columns_kernel<T, false, GATED>,
                g, grid, 1, false, device, stream);
}

template cudaError_t launch_general_forward<RMS_TYPE, RMS_GATED>(const GeneralForward &, const Grid &, const Device &,
                                                                 cudaStream_t);
template cudaError_t launch_general_rows<RMS_TYPE, RMS_GATED>(const GeneralBackward &, const Grid &, const Device &,
                                                              cudaStream_t);
template cudaError_t launch_general_columns<RMS_TYPE, RMS_GATED>(const GeneralBackward &, const Grid &, const Device &,
                                                                 cudaStream_t);

} // namespace rms_cuda
