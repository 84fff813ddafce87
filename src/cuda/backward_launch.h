/* SPDX-License-Identifier: MIT
 *
 * What the launches of the backward kernels of aligned rows have in common. */
#ifndef RMS_CUDA_BACKWARD_LAUNCH_H
#define RMS_CUDA_BACKWARD_LAUNCH_H

#include "launcher.h"

namespace rms_cuda {

/* What a plan says, to a job and the grid of its kernel. Lowers the plan's shares to what the device holds at once. */
inline cudaError_t set_plan(const void *kernel, BackwardPlan &plan, const Device &device, BackwardJob *p, Grid *grid) {
  p->team = plan.team, p->cluster = plan.cluster, p->stages = plan.stages, p->ahead = plan.ahead, p->late = plan.late;
  *grid = {0, plan.threads, plan.shared};
  if (plan.cluster > 1) {
    int clusters = 0;
    const cudaError_t error = active_clusters(kernel, *grid, plan.cluster, device, &clusters);
    if (error != cudaSuccess) return error;
    const int64_t most = clusters / p->slices;
    if (plan.shares > most && most > plan.least) plan.shares = most;
  }
  const int64_t stride = plan.shares * (plan.threads / plan.team);
  p->shares = (int)plan.shares, p->rounds = (int)((p->rows + stride - 1) / stride);
  grid->blocks = plan.shares * p->slices * plan.cluster;
  return cudaSuccess;
}

} // namespace rms_cuda

#endif
