/* SPDX-License-Identifier: MIT
 *
 * The kernels of rows that have weights of their own, of one data type (RMS_TYPE): compiled once for each, side by
 * side. */
#include "own.h"
#include "backward_own.cuh"
#include "forward_own.cuh"
#include "launcher.h"

namespace rms_cuda {

namespace { /* what differs from one compilation to the next keeps to itself */

typedef void (*OwnForwardKernel)(const ForwardJob);
typedef void (*OwnBackwardKernel)(const OwnBackward);

/* f32 weights of f32 data are no case of their own. */
template <class T, bool LAYER> OwnForwardKernel forward_of(bool wide) {
  if constexpr (sizeof(T) == 2)
    if (wide) return forward_own_kernel<T, LAYER, true>;
  return forward_own_kernel<T, LAYER, false>;
}
template <class T, bool LAYER> OwnBackwardKernel backward_of(bool wide) {
  if constexpr (sizeof(T) == 2)
    if (wide) return backward_own_kernel<T, LAYER, true>;
  return backward_own_kernel<T, LAYER, false>;
}

} // namespace

template <class T> cudaError_t launch_own(const ForwardJob &p, bool layer, const Device &device, cudaStream_t stream) {
  const OwnForwardKernel kernel = layer ? forward_of<T, true>(p.weight_is_f32) : forward_of<T, false>(p.weight_is_f32);
  const Grid grid = {p.rows, own_team(p.vectors), 0};
  return launch(kernel, p, grid, 1, device.clusters, device, stream);
}

template <class T> cudaError_t launch_own(const OwnBackward &given, const Device &device, cudaStream_t stream) {
  OwnBackward job = given;
  BackwardJob &p = job.p;
  p.team = own_team(p.vectors);
  const int teams = p.team == 32 ? (int)OWN_TEAMS : 1, threads = teams * p.team;
  const OwnBackwardKernel kernel =
      p.layer ? backward_of<T, true>(p.weight_is_f32) : backward_of<T, false>(p.weight_is_f32);
  const Grid grid = {((int64_t)p.slices + teams - 1) / teams, threads,
                     p.layer ? own_shared<T, true>(threads, p.team) : own_shared<T, false>(threads, p.team)};
  return launch(kernel, job, grid, 1, device.clusters, device, stream);
}

template cudaError_t launch_own<RMS_TYPE>(const ForwardJob &, bool, const Device &, cudaStream_t);
template cudaError_t launch_own<RMS_TYPE>(const OwnBackward &, const Device &, cudaStream_t);

} // namespace rms_cuda
