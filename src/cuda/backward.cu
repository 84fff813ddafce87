/* SPDX-License-Identifier: MIT
 *
 * The backward kernels of aligned rows, of one data type (RMS_TYPE), with a gate or without one (RMS_GATED): compiled
 * once for each, side by side. */
#include "backward_block.cuh"
#include "backward_warp.cuh"
#include "launch.h"
#include "launcher.h"

namespace rms_cuda {

typedef void (*BackwardKernel)(const BackwardJob);

template <class T, bool LAYER, bool DBIAS, Form FORM> BackwardKernel kernel_as(const BackwardPlan &plan) {
  if (plan.role == Role::WARP) return backward_warp_kernel<T, LAYER, DBIAS, FORM>;
  if (plan.role == Role::BLOCK) return backward_block_kernel<T, LAYER, DBIAS, false, FORM>;
  if constexpr (has_paired_teams(DBIAS, FORM))
    if (plan.team < plan.threads) return backward_block_kernel<T, LAYER, DBIAS, true, FORM, true>;
  return backward_block_kernel<T, LAYER, DBIAS, true, FORM>;
}

template <class T, Form FORM> BackwardKernel gated_kernel_as(Role role) {
  return role == Role::WARP ? backward_warp_kernel<T, false, false, FORM>
                            : backward_block_kernel<T, false, false, false, FORM>;
}

template <class T> BackwardKernel gated_kernel_of(Form form, Role role) {
  switch (form) {
  case Form::GATED_AFTER:
    return gated_kernel_as<T, Form::GATED_AFTER>(role);
  case Form::GATED_AFTER_ROUNDED:
    return gated_kernel_as<T, Form::GATED_AFTER_ROUNDED>(role);
  case Form::GATED_BEFORE:
    return gated_kernel_as<T, Form::GATED_BEFORE>(role);
  default:
    return gated_kernel_as<T, Form::GATED_BEFORE_ROUNDED>(role);
  }
}

template <class T> BackwardKernel kernel_of(const BackwardQuestion &q, const BackwardPlan &plan) {
  switch (q.form) {
  case Form::F32_SUM:
    if constexpr (sizeof(T) == 2)
      return q.layer ? kernel_as<T, true, true, Form::F32_SUM>(plan) : kernel_as<T, false, false, Form::F32_SUM>(plan);
    return nullptr;
  case Form::F32_DY:
    if constexpr (sizeof(T) == 2)
      return q.layer ? backward_block_kernel<T, true, true, false, Form::F32_DY>
                     : backward_block_kernel<T, false, false, false, Form::F32_DY>;
    return nullptr;
  case Form::ROUNDED:
    if constexpr (sizeof(T) == 2) return kernel_as<T, false, false, Form::ROUNDED>(plan);
    return nullptr;
  case Form::TERMS:
    if constexpr (sizeof(T) == 2) return kernel_as<T, false, false, Form::TERMS>(plan);
    return nullptr;
  case Form::SHIFTED:
    return q.layer ? kernel_as<T, true, true, Form::SHIFTED>(plan) : kernel_as<T, false, false, Form::SHIFTED>(plan);
  case Form::OPTIONS:
    return q.layer ? kernel_as<T, true, true, Form::OPTIONS>(plan) : kernel_as<T, false, false, Form::OPTIONS>(plan);
  default:
    if (!q.layer) return kernel_as<T, false, false, Form::COMMON>(plan);
    return q.dbias ? kernel_as<T, true, true, Form::COMMON>(plan) : kernel_as<T, true, false, Form::COMMON>(plan);
  }
}

template <class T, bool GATED>
cudaError_t launch_backward(const BackwardJob &job, const BackwardQuestion &q, BackwardPlan &plan, const Device &device,
                            cudaStream_t stream) {
  BackwardKernel kernel;
  if constexpr (GATED)
    kernel = gated_kernel_of<T>(q.form, plan.role);
  else
    kernel = kernel_of<T>(q, plan);
  BackwardJob p = job;
  p.team = plan.team, p.cluster = plan.cluster, p.stages = plan.stages, p.ahead = plan.ahead, p.late = plan.late;
  Grid grid = {0, plan.threads, plan.shared};
  cudaError_t error = cudaSuccess;
  if (plan.cluster > 1) {
    int clusters = 0;
    error = active_clusters(reinterpret_cast<const void *>(kernel), grid, plan.cluster, device, &clusters);
    const int64_t most = clusters / p.slices;
    if (plan.shares > most && most > plan.least) plan.shares = most;
  }
  if (error != cudaSuccess) return error;
  const int64_t stride = plan.shares * (plan.threads / plan.team);
  p.shares = (int)plan.shares, p.rounds = (int)((p.rows + stride - 1) / stride);
  grid.blocks = plan.shares * p.slices * plan.cluster;
  return launch(kernel, p, grid, plan.cluster, device.clusters, device, stream);
}

template cudaError_t launch_backward<RMS_TYPE, RMS_GATED>(const BackwardJob &, const BackwardQuestion &, BackwardPlan &,
                                                          const Device &, cudaStream_t);

} // namespace rms_cuda
