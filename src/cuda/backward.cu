/* SPDX-License-Identifier: MIT
 *
 * The backward kernels of aligned rows, of one data type (RMS_TYPE): compiled once for each, side by side. */
#include "backward_block.cuh"
#include "backward_warp.cuh"
#include "launch.h"
#include "launcher.h"

namespace rms_cuda {

typedef void (*BackwardKernel)(const BackwardJob);

template <class T, bool LAYER, bool DBIAS, Form FORM> BackwardKernel kernel_as(Role role) {
  if (role == Role::WARP) return backward_warp_kernel<T, LAYER, DBIAS, FORM>;
  if (role == Role::BLOCK) return backward_block_kernel<T, LAYER, DBIAS, false, FORM>;
  return backward_block_kernel<T, LAYER, DBIAS, true, FORM>;
}

template <class T> BackwardKernel kernel_of(const BackwardQuestion &q, Role role) {
  switch (q.form) {
  case Form::F32_SUM:
    if constexpr (sizeof(T) == 2)
      return q.layer ? kernel_as<T, true, true, Form::F32_SUM>(role) : kernel_as<T, false, false, Form::F32_SUM>(role);
    return nullptr;
  case Form::ROUNDED:
    if constexpr (sizeof(T) == 2) return kernel_as<T, false, false, Form::ROUNDED>(role);
    return nullptr;
  case Form::TERMS:
    if constexpr (sizeof(T) == 2) return kernel_as<T, false, false, Form::TERMS>(role);
    return nullptr;
  case Form::SHIFTED:
    return q.layer ? kernel_as<T, true, true, Form::SHIFTED>(role) : kernel_as<T, false, false, Form::SHIFTED>(role);
  case Form::GATED:
    return backward_block_kernel<T, false, false, false, Form::GATED>;
  case Form::OPTIONS:
    return q.layer ? kernel_as<T, true, true, Form::OPTIONS>(role) : kernel_as<T, false, false, Form::OPTIONS>(role);
  default:
    if (!q.layer) return kernel_as<T, false, false, Form::COMMON>(role);
    return q.dbias ? kernel_as<T, true, true, Form::COMMON>(role) : kernel_as<T, true, false, Form::COMMON>(role);
  }
}

template <class T>
cudaError_t launch_backward(const BackwardJob &job, const BackwardQuestion &q, BackwardPlan &plan, const Device &device,
                            cudaStream_t stream) {
  const BackwardKernel kernel = kernel_of<T>(q, plan.role);
  BackwardJob p = job;
  p.team = plan.team, p.cluster = plan.cluster, p.stages = plan.stages, p.ahead = plan.ahead, p.late = plan.late;
  Grid grid = {0, plan.threads, plan.shared};
  int cluster = plan.cluster * plan.placed; /* one of them is 1 */
  cudaError_t error = cudaSuccess;
  if (cluster > 1) {
    int clusters = 0;
    error = active_clusters(reinterpret_cast<const void *>(kernel), grid, cluster, device, &clusters);
    const int64_t most = (int64_t)clusters * plan.placed / p.slices;
    if (clusters == 0) cluster = plan.cluster; /* no room to place them */
    if (plan.shares > most && most > plan.least) plan.shares = most;
  }
  if (error != cudaSuccess) return error;
  const int64_t stride = plan.shares * (plan.threads / plan.team);
  p.shares = (int)plan.shares, p.rounds = (int)((p.rows + stride - 1) / stride);
  grid.blocks = plan.shares * p.slices * plan.cluster;
  return launch(kernel, p, grid, cluster, device.clusters, device, stream);
}

template cudaError_t launch_backward<RMS_TYPE>(const BackwardJob &, const BackwardQuestion &, BackwardPlan &,
                                               const Device &, cudaStream_t);

} // namespace rms_cuda
