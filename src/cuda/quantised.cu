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

typedef void (*QuantisedKernel)(const QuantisedJob);

template <class T, bool LAYER, Output OUT, bool OPTIONS, bool FULL, int LINE> QuantisedKernel kernel_as(bool residual) {
  constexpr QuantisedLine line = quantised_table[LINE];
  constexpr int NV = line.per_thread, MOST = line.threads;
  /* Options take registers; so do codes of any kind, and the way of RMS_Q8_0 through shared memory. */
  constexpr bool many = NV == 8 && (OUT == Output::ANY_CODES || OUT == Output::Q8_0);
  constexpr int most = OPTIONS && NV == 4 ? 512 / MOST : many ? 768 / MOST : line.blocks;
  constexpr int BLOCKS = line.blocks < most ? line.blocks : most;
  if constexpr (!FULL) {
    if (residual)
      return quantised_forward_block_kernel<T, NV, LAYER, true, OUT, OPTIONS, line.warp, false, MOST, BLOCKS>;
  }
  return quantised_forward_block_kernel<T, NV, LAYER, false, OUT, OPTIONS, line.warp, FULL, MOST, BLOCKS>;
}

/* Of rows of which every thread has all of its vectors, without options. */
template <class T, int LINE> QuantisedKernel full_kernel_of(const QuantisedJob &job) {
  const bool given = job.blocks == 0, row = !given && job.lanes == 0;
  if (job.p.y.data) return kernel_as<T, false, Output::ANY_CODES, false, true, LINE>(false);
  if (job.q_type == RMS_Q8_0) return kernel_as<T, false, Output::Q8_0, false, true, LINE>(false);
  if (job.q_type == RMS_I8 && given) return kernel_as<T, false, Output::I8_GIVEN, false, true, LINE>(false);
  if (job.q_type == RMS_I8 && row) return kernel_as<T, false, Output::I8_ROW, false, true, LINE>(false);
  if (job.q_type == RMS_F8E4M3 && given) return kernel_as<T, false, Output::E4M3_GIVEN, false, true, LINE>(false);
  if (job.q_type == RMS_F8E4M3 && row) return kernel_as<T, false, Output::E4M3_ROW, false, true, LINE>(false);
  if (job.q_type == RMS_F8E4M3 && job.lanes == common_block / vector_of<T>)
    return kernel_as<T, false, Output::E4M3_BLOCKS, false, true, LINE>(false);
  return kernel_as<T, false, Output::ANY_CODES, false, true, LINE>(false);
}

/* full: every thread has all of its vectors. */
template <class T, int LINE, bool QUANTISED> QuantisedKernel kernel_of(const QuantisedJob &job, bool full) {
  constexpr QuantisedLine line = quantised_table[LINE];
  constexpr Output out = QUANTISED ? Output::ANY_CODES : Output::OWN_TYPE;
  const bool residual = job.p.residual.data;
  if constexpr (QUANTISED) {
    if (!job.options && !job.layer && full && !residual) return full_kernel_of<T, LINE>(job);
  }
  if constexpr (!line.full) {
    if constexpr (QUANTISED) {
      if (!job.options && !job.layer) return kernel_as<T, false, out, false, false, LINE>(residual);
    }
    if constexpr (!line.common)
      return job.layer ? kernel_as<T, true, out, true, false, LINE>(residual)
                       : kernel_as<T, false, out, true, false, LINE>(residual);
  }
  return nullptr;
}

template <class T, int LINE, bool QUANTISED>
cudaError_t launch_line(const QuantisedJob &of, const Device &device, cudaStream_t stream) {
  constexpr QuantisedLine line = quantised_table[LINE];
  constexpr int at_once = 32 * line.per_thread; /* vectors of a warp */
  const bool full = of.p.vectors % at_once == 0;
  if constexpr (LINE + 1 < quantised_lines) {
    if (of.p.vectors > line.vectors || (line.common && (!QUANTISED || of.options || of.layer)) ||
        (line.full && (!full || of.p.residual.data)))
      return launch_line<T, LINE + 1, QUANTISED>(of, device, stream);
  }
  QuantisedJob job = of;
  const int warps = line.warp ? line.threads / 32 : (job.p.vectors + at_once - 1) / at_once,
            rows = line.warp ? warps : 1;
  job.slots = job.lanes ? warps * (at_once / job.lanes) * (int)sizeof(float2) / 16 + 1 : 0;
  job.staged = job.q_type == RMS_Q8_0 ? job.p.width / 32 * 34 / 16 + 1 : 0;
  const Grid grid = {(job.p.rows + rows - 1) / rows, warps * 32, (size_t)(job.slots + job.staged * rows) * 16};
  return launch(kernel_of<T, LINE, QUANTISED>(job, full), job, grid, 1, device.clusters, device, stream);
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
