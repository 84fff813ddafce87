/* SPDX-License-Identifier: MIT
 *
 * The backward kernels of aligned rows, of one data type (RMS_TYPE), with a gate or without one (RMS_GATED): compiled
 * once for each, side by side. */
#include "backward_block.cuh"
#include "backward_launch.h"
#include "backward_warp.cuh"
#include "backward_wide.cuh"
#include "launch.h"

namespace rms_cuda {

typedef void (*BackwardKernel)(const BackwardJob);

template <class T, bool LAYER, bool DBIAS, Form FORM> BackwardKernel kernel_as(const BackwardPlan &plan) {
  if (plan.role == Role::WARP) return backward_warp_kernel<T, LAYER, DBIAS, FORM>;
  if (plan.role == Role::BLOCK) return backward_block_kernel<T, LAYER, DBIAS, false, FORM>;
  if constexpr (has_paired_teams(DBIAS, FORM))
    if (plan.team < plan.threads) return backward_block_kernel<T, LAYER, DBIAS, true, FORM, true>;
  return backward_block_kernel<T, LAYER, DBIAS, true, FORM>;
}

template <class T, Form FORM> BackwardKernel gated_kernel_as(Role role, bool is_aligned) {
  if (!is_aligned) return backward_block_kernel<T, false, false, false, shifted(FORM)>;
  return role == Role::WARP ? backward_warp_kernel<T, false, false, FORM>
                            : backward_block_kernel<T, false, false, false, FORM>;
}

template <class T> BackwardKernel gated_kernel_of(Form form, Role role) {
  const bool rounded = is_gated_rounded(form), is_aligned = !is_shifted(form);
  if (is_gated_before(form))
    return rounded ? gated_kernel_as<T, Form::GATED_BEFORE_ROUNDED>(role, is_aligned)
                   : gated_kernel_as<T, Form::GATED_BEFORE>(role, is_aligned);
  return rounded ? gated_kernel_as<T, Form::GATED_AFTER_ROUNDED>(role, is_aligned)
                 : gated_kernel_as<T, Form::GATED_AFTER>(role, is_aligned);
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
  case Form::SHIFTED_COMMON:
    if (plan.role == Role::WARP)
      return q.layer ? backward_warp_kernel<T, true, true, Form::SHIFTED_COMMON>
                     : backward_warp_kernel<T, false, false, Form::SHIFTED_COMMON>;
    return backward_block_kernel<T, false, false, false, Form::SHIFTED_COMMON>;
  case Form::SHIFTED_TAIL:
    return backward_block_kernel<T, false, false, true, Form::SHIFTED_TAIL>;
  case Form::OPTIONS:
    return q.layer ? kernel_as<T, true, true, Form::OPTIONS>(plan) : kernel_as<T, false, false, Form::OPTIONS>(plan);
  default:
    if (!q.layer) return kernel_as<T, false, false, Form::COMMON>(plan);
    return q.dbias ? kernel_as<T, true, true, Form::COMMON>(plan) : kernel_as<T, true, false, Form::COMMON>(plan);
  }
}

/* Persistent clusters: as many as the device holds at once, which share the rows evenly. */
template <class T>
cudaError_t launch_wide(const BackwardJob &job, const BackwardQuestion &q, BackwardPlan &plan, const Device &device,
                        cudaStream_t stream) {
  const BackwardKernel kernel = !q.layer  ? backward_wide_kernel<T, false, false, wide_backward_panels(false)>
                                : q.dbias ? backward_wide_kernel<T, true, true, wide_backward_panels(true)>
                                          : backward_wide_kernel<T, true, false, wide_backward_panels(false)>;
  BackwardJob p = job;
  int clusters = 0;
  Grid grid = {0, plan.threads,
               (size_t)wide_backward_shared(q.layer ? 2 : 1, plan.stages, plan.panels, plan.kept).total};
  cudaError_t error = active_clusters(reinterpret_cast<const void *>(kernel), grid, plan.cluster, device, &clusters);
  if (error != cudaSuccess) return error;
  const int64_t most = device.multiprocessors / plan.cluster;
  int64_t shares = clusters < 1 ? 1 : clusters < most ? clusters : most;
  if (shares > p.rows) shares = p.rows;
  const int64_t rounds = (p.rows + shares - 1) / shares;
  p.cluster = plan.cluster, p.stages = plan.stages, p.panels = plan.panels, p.kept = plan.kept;
  p.shares = (int)shares;
  p.flats = (int)((rounds + WIDE_FLAT - 1) / WIDE_FLAT), p.flat = (int)((rounds + p.flats - 1) / p.flats);
  plan.shares = shares * p.flats;
  p.partials = (int)plan.shares;
  grid.blocks = shares * plan.cluster;
  return launch(kernel, p, grid, plan.cluster, device.clusters, device, stream);
}

template <class T, bool GATED>
cudaError_t launch_backward(const BackwardJob &job, const BackwardQuestion &q, BackwardPlan &plan, const Device &device,
                            cudaStream_t stream) {
  if constexpr (!GATED)
    if (plan.role == Role::WIDE) return launch_wide<T>(job, q, plan, device, stream);
  BackwardKernel kernel;
  if constexpr (GATED)
    kernel = gated_kernel_of<T>(q.form, plan.role);
  else
    kernel = kernel_of<T>(q, plan);
  BackwardJob p = job;
  Grid grid;
  const cudaError_t error = set_plan(reinterpret_cast<const void *>(kernel), plan, device, &p, &grid);
  if (error != cudaSuccess) return error;
  return launch(kernel, p, grid, plan.cluster, device.clusters, device, stream);
}

template cudaError_t launch_backward<RMS_TYPE, RMS_GATED>(const BackwardJob &, const BackwardQuestion &, BackwardPlan &,
                                                          const Device &, cudaStream_t);

} // namespace rms_cuda
