/* SPDX-License-Identifier: MIT
 *
 * The kernels of rows that share the weights of their inner index, of one data type (RMS_TYPE): compiled once
 * for each, side by side. */
#include "samples.h"
#include "backward_samples.cuh"
#include "forward_samples.cuh"
#include "launcher.h"

namespace rms_cuda {

namespace { /* what differs from one compilation to the next keeps to itself */

typedef void (*SamplesKernel)(const ForwardJob);

template <class T, bool LAYER, bool BIAS> SamplesKernel kernel_of(int vectors) {
  return vectors <= 5 * 32 ? forward_samples_kernel<T, 5, LAYER, BIAS> : forward_samples_kernel<T, 8, LAYER, BIAS>;
}

} // namespace

template <class T>
cudaError_t launch_samples(const ForwardJob &p, bool layer, const Device &device, cudaStream_t stream) {
  constexpr int rows = SAMPLE_THREADS / 32;
  const SamplesKernel kernel = layer
                                   ? p.bias ? kernel_of<T, true, true>(p.vectors) : kernel_of<T, true, false>(p.vectors)
                               : p.bias ? kernel_of<T, false, true>(p.vectors)
                                        : kernel_of<T, false, false>(p.vectors);
  const int64_t outer = p.rows / p.inner.rows;
  const Grid grid = {(outer + rows - 1) / rows * p.inner.rows, SAMPLE_THREADS,
                     (size_t)p.width * sizeof(float) * (p.bias ? 2 : 1)};
  return launch(kernel, p, grid, 1, device.clusters, device, stream);
}

template <class T>
cudaError_t launch_samples(const BackwardJob &job, const BackwardPlan &plan, const Device &device,
                           cudaStream_t stream) {
  BackwardJob p = job;
  p.stages = plan.stages, p.shares = (int)plan.shares;
  const Grid grid = {plan.shares * p.slices, plan.threads, plan.shared};
  void (*kernel)(const BackwardJob) = p.layer ? backward_samples_kernel<T, true> : backward_samples_kernel<T, false>;
  return launch(kernel, p, grid, 1, true, device, stream);
}

template cudaError_t launch_samples<RMS_TYPE>(const ForwardJob &, bool, const Device &, cudaStream_t);
template cudaError_t launch_samples<RMS_TYPE>(const BackwardJob &, const BackwardPlan &, const Device &, cudaStream_t);

} // namespace rms_cuda
