/* SPDX-License-Identifier: MIT
 *
 * Which kernel a forward of aligned rows takes: a matter of the width, and for few rows of when the weights are
 * loaded. Included by two small files per type. */
#ifndef RMS_CUDA_LEAN_FORWARD_LAUNCH_CUH
#define RMS_CUDA_LEAN_FORWARD_LAUNCH_CUH

#include "launch.cuh"
#include "plan.h"
#include "ring_forward.cuh"

namespace rms_cuda {

typedef void (*ForwardKernel)(const LeanForward);

/* Rows of one launch at most; more take more launches. */
constexpr int64_t most_rows = (int64_t)1 << 30;

inline void skip_rows(Rows &rows, int64_t outer) {
  if (rows.data) rows.data += outer * rows.outer;
}

inline cudaError_t launch_rows(ForwardKernel kernel, LeanForward p, int rows_of_block, int threads, bool overlap,
                               cudaStream_t stream) {
  const int64_t inner = p.inner.rows ? p.inner.rows : 1, outer = most_rows / inner, most = outer * inner;
  for (int64_t left = p.rows; left > 0; left -= most) {
    p.rows = left < most ? left : most;
    const Grid grid = {(p.rows + rows_of_block - 1) / rows_of_block * p.cluster, threads, 0};
    cudaError_t error = launch(kernel, p, grid, p.cluster, overlap, stream);
    if (error != cudaSuccess) return error;
    skip_rows(p.x, outer);
    skip_rows(p.y, outer);
    skip_rows(p.residual, outer);
    skip_rows(p.sum, outer);
    if (p.rstd) p.rstd += most;
    if (p.mean) p.mean += most;
  }
  return cudaSuccess;
}

template <class T, bool LAYER, bool RESIDUAL, bool OPTIONS>
cudaError_t launch_short_forward(LeanForward p, bool overlap, cudaStream_t stream) {
  p.team = 32, p.cluster = 1;
  if constexpr (!OPTIONS) { /* with options a block per row is quicker */
    if (p.vectors > 64)
      return launch_rows(short_forward_kernel<T, 4, 1, LAYER, RESIDUAL, OPTIONS>, p, SHORT_BLOCK / 32, SHORT_BLOCK,
                         overlap, stream);
  }
  if (p.vectors > 32)
    return launch_rows(short_forward_kernel<T, 2, 2, LAYER, RESIDUAL, OPTIONS>, p, SHORT_BLOCK / 16, SHORT_BLOCK,
                       overlap, stream);
  while (p.team / 2 >= p.vectors)
    p.team /= 2;
  return launch_rows(short_forward_kernel<T, 1, SHORT_ROWS, LAYER, RESIDUAL, OPTIONS>, p,
                     SHORT_BLOCK / p.team * SHORT_ROWS, SHORT_BLOCK, overlap, stream);
}

template <class T, bool LAYER, bool RESIDUAL, bool OPTIONS>
cudaError_t launch_ring_forward(LeanForward p, cudaStream_t stream) {
  constexpr int NV =
      LAYER && !RESIDUAL && !OPTIONS ? 8 : 4; /* LayerNorm waits twice for the other blocks: fewer of them */
  const ForwardKernel kernel = ring_forward_kernel<T, NV, LAYER, RESIDUAL, OPTIONS>;
  p.cluster = (p.vectors + NV * RING_TEAM - 1) / (NV * RING_TEAM);
  p.stages = LAYER || RESIDUAL ? 2 : 3;
  Grid grid = {0, RING_TEAM, (size_t)forward_shared<NV, RESIDUAL, NV * RING_TEAM / PANEL>(RING_TEAM, p.stages).total};
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)grid.shared);
  if (error == cudaSuccess) error = active_clusters(kernel, grid, p.cluster, &p.shares);
  if (error != cudaSuccess) return error;
  if (p.shares < 1) p.shares = 1;
  if (p.shares > p.rows) p.shares = (int)p.rows;
  grid.blocks = (int64_t)p.shares * p.cluster;
  return launch(kernel, p, grid, p.cluster, true, stream);
}

/* A row per block of at most MOST threads with NV vectors each. */
template <class T, int NV, bool LAYER, bool RESIDUAL, bool OPTIONS, bool EARLY, int MOST>
cudaError_t launch_block_forward(const LeanForward &p, bool overlap, cudaStream_t stream) {
  return launch_rows(lean_forward_kernel<T, NV, LAYER, RESIDUAL, OPTIONS, EARLY, MOST>, p, 1,
                     (p.vectors + NV * 32 - 1) / (NV * 32) * 32, overlap, stream);
}

template <class T, bool LAYER, bool RESIDUAL, bool OPTIONS>
cudaError_t launch_lean_forward_as(LeanForward p, const Device &device, cudaStream_t stream) {
  const bool overlap = device.clusters;
  p.cluster = 1;
  p.ahead = overlap ? (unsigned)device.multiprocessors * 8 : 0; /* about as many as are there at once */
  if (p.vectors <= (OPTIONS ? 64 : 128)) return launch_short_forward<T, LAYER, RESIDUAL, OPTIONS>(p, overlap, stream);
  constexpr bool wide = LAYER && !RESIDUAL && !OPTIONS; /* LayerNorm: fewer threads to wait for, twice */
  if (p.vectors <= 1024 && p.rows <= 4 * device.multiprocessors)
    return launch_block_forward<T, 4, LAYER, RESIDUAL, OPTIONS, true, 256>(p, overlap, stream);
  if (p.vectors <= (wide ? 512 : 1024))
    return launch_block_forward<T, 4, LAYER, RESIDUAL, OPTIONS, false, 256>(p, overlap, stream);
  if constexpr (wide) {
    if (p.vectors <= 1024) return launch_block_forward<T, 8, LAYER, RESIDUAL, OPTIONS, false, 128>(p, overlap, stream);
  }
  if (p.vectors <= 2048)
    return launch_block_forward < T, wide ? 8 : 4, LAYER, RESIDUAL, OPTIONS, false,
           wide ? 256 : 512 > (p, overlap, stream);
  if constexpr (!RESIDUAL) { /* two rows of eight vectors each do not fit the registers */
    if (p.vectors <= 4096 && !(OPTIONS && has_rings(device))) /* with options, clusters are quicker */
      return launch_block_forward<T, 8, LAYER, false, OPTIONS, false, 512>(p, overlap, stream);
    if constexpr (!OPTIONS) {
      if (p.vectors <= 8192) return launch_block_forward<T, 8, LAYER, false, false, false, 1024>(p, overlap, stream);
    }
  }
  return launch_ring_forward<T, LAYER, RESIDUAL, OPTIONS>(p, stream);
}

template <class T, bool OPTIONS>
cudaError_t launch_lean_forward_of(const LeanForward &p, bool layer, const Device &device, cudaStream_t stream) {
  if (p.residual.data)
    return layer ? launch_lean_forward_as<T, true, true, OPTIONS>(p, device, stream)
                 : launch_lean_forward_as<T, false, true, OPTIONS>(p, device, stream);
  return layer ? launch_lean_forward_as<T, true, false, OPTIONS>(p, device, stream)
               : launch_lean_forward_as<T, false, false, OPTIONS>(p, device, stream);
}

} // namespace rms_cuda

#endif
