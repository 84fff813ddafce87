/* SPDX-License-Identifier: MIT
 *
 * The forward kernels of one data type (RMS_TYPE) with other outputs than y in that type: compiled once for each, side
 * by side. */
#include "quantised.h"
#include "forward_quantised.cuh"
#include "launcher.h"
#include "quantised_general.cuh"

namespace rms_cuda {

namespace { /* what differs from one compilation to the next keeps to itself */

template <class T, int LINE, bool QUANTISED>
cudaError_t launch_line(const QuantisedJob &job, const Device &device, cudaStream_t stream) {
  constexpr QuantisedLine line = quantised_table[LINE];
  if constexpr (LINE + 1 < quantised_lines) {
    if (job.p.vectors > line.per_thread * line.threads) return launch_line<T, LINE + 1, QUANTISED>(job, device, stream);
  }
  const int per_warp = 32 * line.per_thread;
  const size_t staged = job.q_type == RMS_Q8_0 ? ((size_t)job.p.width / 32 * 34 + 15) / 16 * 16 : 0;
  const Grid grid = {job.p.rows, (job.p.vectors + per_warp - 1) / per_warp * 32, staged};
  const bool residual = job.p.residual.data, options = !QUANTISED || job.options;
  return launch(
      options    ? residual ? quantised_forward_block_kernel<T, line.per_thread, true, QUANTISED, true, line.threads>
                            : quantised_forward_block_kernel<T, line.per_thread, false, QUANTISED, true, line.threads>
         : residual ? quantised_forward_block_kernel<T, line.per_thread, true, QUANTISED, !QUANTISED, line.threads>
                 : quantised_forward_block_kernel<T, line.per_thread, false, QUANTISED, !QUANTISED, line.threads>,
      job, grid, 1, device.clusters, device, stream);
}

} // namespace

template <class T> cudaError_t launch_quantised(const QuantisedJob &job, const Device &device, cudaStream_t stream) {
  return job.q.data ? launch_line<T, 0, true>(job, device, stream) : launch_line<T, 0, false>(job, device, stream);
}

template <class T, bool GATED>
cudaError_t launch_general_quantised(const GeneralForward &g, const Grid &grid, const Device &device,
                                     cudaStream_t stream) {
  return launch(forward_general_quantised_kernel<T, GATED>, g, grid, 1, false, device, stream);
}

template cudaError_t launch_quantised<RMS_TYPE>(const QuantisedJob &, const Device &, cudaStream_t);
template cudaError_t launch_general_quantised<RMS_TYPE, false>(const GeneralForward &, const Grid &, const Device &,
                                                               cudaStream_t);
template cudaError_t launch_general_quantised<RMS_TYPE, true>(const GeneralForward &, const Grid &, const Device &,
                                                              cudaStream_t);

} // namespace rms_cuda
