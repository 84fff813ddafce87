/* SPDX-License-Identifier: MIT
 *
 * Which kernel a backward of the common case takes, and how its rows are shared out: a matter of the width, the number
 * of rows and the device. Included by one small file per type. */
#ifndef RMS_CUDA_LEAN_BACKWARD_LAUNCH_CUH
#define RMS_CUDA_LEAN_BACKWARD_LAUNCH_CUH

#include "launch.cuh"
#include "plan.h"
#include "short_backward.cuh"

namespace rms_cuda {

typedef void (*BackwardKernel)(const LeanBackward);

template <class T, bool LAYER, bool DBIAS, int MORE>
cudaError_t launch_lean_backward_as(LeanBackward p, LeanShares &plan, cudaStream_t stream) {
  p.team = plan.team, p.cluster = plan.cluster;
  auto share_out = [&]() -> void {
    const int64_t stride = plan.shares * (plan.threads / plan.team);
    p.shares = (int)plan.shares, p.rounds = (int)((p.rows + stride - 1) / stride);
  };
  Grid grid = {plan.shares, plan.threads, 0};
  if (p.vectors <= 32) {
    p.ahead = 4;
    share_out();
    grid.shared = (size_t)SHORT_STAGES * SHORT_THREADS * 32;
    cudaError_t error = allow_shared(short_backward_kernel<T, LAYER, DBIAS, MORE>, grid.shared);
    if (error != cudaSuccess) return error;
    return launch(short_backward_kernel<T, LAYER, DBIAS, MORE>, p, grid, 1, true, stream);
  }
  BackwardKernel kernel = lean_backward_kernel<T, 2, LAYER, DBIAS, false, MORE>;
  if constexpr (!(LAYER && MORE)) { /* which takes more registers than there are */
    if (plan.cluster > 1) kernel = lean_backward_kernel<T, 2, LAYER, DBIAS, true, MORE>;
  }
  /* More rows on their way than the memory can keep in order are slower than fewer; LayerNorm, with more to do for
   * each row, asks for them more slowly. */
  const int streams = p.added.data ? 3 : 2;
  const int row = plan.threads / plan.team * p.vectors * 16 * streams / plan.cluster; /* bytes, of all teams */
  p.ahead = plan.team <= BACKWARD_TEAM / 8 ? 4 : 2;
  p.stages = LAYER || plan.cluster > 2 || 2 * row < 64 * 1024 ? 3 : 2;
  p.late = !LAYER && plan.cluster == 1 && plan.team > BACKWARD_TEAM / 4 && p.stages == 2 && (!MORE || streams == 3);
  auto shared = [&](int stages) -> size_t {
    return (size_t)backward_shared<2, vector_of<T>, LAYER, DBIAS, 1>(plan.threads, plan.team, stages, streams,
                                                                     plan.cluster)
        .total;
  };
  if (shared(p.stages) > LEAN_SHARED) p.stages = 2;
  grid.shared = shared(p.stages);
  cudaError_t error = allow_shared(kernel, grid.shared);
  int cluster = plan.cluster * plan.placed; /* one of them is 1 */
  if (error == cudaSuccess && cluster > 1) {
    int clusters = 0;
    error = active_clusters(kernel, grid, cluster, &clusters);
    const int64_t most = (int64_t)clusters * plan.placed;
    if (clusters == 0) cluster = plan.cluster; /* no room to place them */
    if (plan.shares > most) plan.shares = most > plan.least ? most : plan.shares;
  }
  if (error != cudaSuccess) return error;
  share_out();
  grid.blocks = plan.shares * plan.cluster;
  return launch(kernel, p, grid, cluster, true, stream);
}

template <class T>
cudaError_t launch_lean_backward_of(const LeanBackward &p, LeanShares &plan, bool layer, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    if (p.form == 2) return launch_lean_backward_as<T, false, false, 2>(p, plan, stream);
  }
  if (p.form == 1)
    return layer ? launch_lean_backward_as<T, true, true, 1>(p, plan, stream)
                 : launch_lean_backward_as<T, false, false, 1>(p, plan, stream);
  if (!layer) return launch_lean_backward_as<T, false, false, 0>(p, plan, stream);
  return p.want_dbias ? launch_lean_backward_as<T, true, true, 0>(p, plan, stream)
                      : launch_lean_backward_as<T, true, false, 0>(p, plan, stream);
}

} // namespace rms_cuda

#endif
