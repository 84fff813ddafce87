/* SPDX-License-Identifier: MIT
 *
 * The kernels of aligned rows of the forms that round at every step, of one 16-bit type (RMS_TYPE): compiled once for
 * each, side by side. */
#include "backward_launch.h"
#include "launch.h"
#include "stepwise_rows.cuh"
#include "stepwise_rows_backward.cuh"

namespace rms_cuda {

template <class T>
cudaError_t launch_stepwise_rows(const StepwiseForward &job, const StepwisePlan &plan, const Device &device,
                                 cudaStream_t stream) {
  void (*kernel)(const StepwiseForward) =
      plan.role == Role::BLOCK
          ? plan.threads <= 256 ? stepwise_forward_block_kernel<T, 4, 256> : stepwise_forward_block_kernel<T, 4, 512>
      : plan.per_thread == 1 ? stepwise_forward_warp_kernel<T, 1>
      : plan.per_thread == 2 ? stepwise_forward_warp_kernel<T, 2>
                             : stepwise_forward_warp_kernel<T, 4>;
  StepwiseForward g = job;
  g.p.team = plan.team;
  const Grid grid = {(g.p.rows + plan.block_rows - 1) / plan.block_rows, plan.threads, 0};
  return launch(kernel, g, grid, 1, device.clusters, device, stream);
}

template <class T, bool BOTH> static void (*backward_kernel(Role role))(const StepwiseBackward) {
  return role == Role::WARP    ? stepwise_backward_warp_kernel<T, BOTH>
         : role == Role::BLOCK ? stepwise_backward_block_kernel<T, BOTH, false>
                               : stepwise_backward_block_kernel<T, BOTH, true>;
}

template <class T>
cudaError_t launch_stepwise_rows(const StepwiseBackward &job, const BackwardQuestion &q, BackwardPlan &plan,
                                 const Device &device, cudaStream_t stream) {
  void (*kernel)(const StepwiseBackward) =
      q.layer ? backward_kernel<T, true>(plan.role) : backward_kernel<T, false>(plan.role);
  StepwiseBackward g = job;
  Grid grid;
  const cudaError_t error = set_plan(reinterpret_cast<const void *>(kernel), plan, device, &g.p, &grid);
  if (error != cudaSuccess) return error;
  return launch(kernel, g, grid, plan.cluster, device.clusters, device, stream);
}

template cudaError_t launch_stepwise_rows<RMS_TYPE>(const StepwiseForward &, const StepwisePlan &, const Device &,
                                                    cudaStream_t);
template cudaError_t launch_stepwise_rows<RMS_TYPE>(const StepwiseBackward &, const BackwardQuestion &, BackwardPlan &,
                                                    const Device &, cudaStream_t);

} // namespace rms_cuda
