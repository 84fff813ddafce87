/* SPDX-License-Identifier: MIT
 *
 * The forward kernels of rows in vectors, of one data type (RMS_TYPE) and one kind of forms (RMS_FORMS: COMMON,
 * OPTIONS, SHIFTED, GATED): compiled once for each, side by side. The kernels are those of the lines of the planner's
 * table.
 */
#include <utility>
#include "forward_block.cuh"
#include "forward_cluster.cuh"
#include "forward_flat.cuh"
#include "forward_warp.cuh"
#include "forward_wide.cuh"
#include "launch.h"
#include "launcher.h"

namespace rms_cuda {

namespace { /* what differs from one compilation to the next keeps to itself */

typedef void (*ForwardKernel)(const ForwardJob);

template <class T, int FORM> /* of what is normalised */
using stream_of = std::conditional_t<(FORM & (FORM_F32_RESIDUAL | FORM_GATE_BEFORE)) != 0, float, T>;

template <class T, int FORM> constexpr bool has_form() {
  constexpr int f32 = FORM_F32_RESIDUAL | FORM_RESIDUAL | FORM_OPTIONS;
  constexpr bool has_both = (FORM & FORM_SHIFTED) == 0 || (FORM & ~(FORM_LAYER | FORM_GATED)) == FORM_SHIFTED ||
                            (FORM & (FORM_OPTIONS | FORM_F32_RESIDUAL)) == FORM_OPTIONS;
  constexpr int gate = FORM & FORM_GATED;
  constexpr int rest = FORM & ~(FORM_LAYER | FORM_GATED); /* no options, or rows that are not aligned: RMSNorm alone */
  if (gate == FORM_GATED ||
      (gate != 0 && rest != FORM_OPTIONS && ((rest & ~(FORM_OPTIONS | FORM_SHIFTED)) != 0 || (FORM & FORM_LAYER) != 0)))
    return false;
  return forms_of(FORM) == Forms::RMS_FORMS && has_both &&
         ((FORM & FORM_F32_RESIDUAL) == 0 || ((FORM & f32) == f32 && sizeof(T) == 2));
}

/* The kernel of a line of the table. */
template <class T, int FORM, int LINE> constexpr ForwardKernel kernel_of() {
  constexpr ForwardLine line = forward_table[LINE];
  using S = stream_of<T, FORM>;
  constexpr bool layer = (FORM & FORM_LAYER) != 0, residual = (FORM & FORM_RESIDUAL) != 0,
                 options = (FORM & FORM_OPTIONS) != 0, shifted = (FORM & FORM_SHIFTED) != 0;
  constexpr rms_gate_place gate = FORM & FORM_GATE_AFTER    ? RMS_GATE_AFTER
                                  : FORM & FORM_GATE_BEFORE ? RMS_GATE_BEFORE
                                                            : RMS_GATE_NONE;
  if constexpr (!has_form<T, FORM>() || !line.takes(FORM))
    return nullptr;
  else if constexpr (line.role == Role::WARP)
    return forward_warp_kernel<T, S, line.per_thread, line.rows, layer, residual, options, shifted, gate>;
  else if constexpr (line.role == Role::BLOCK)
    return forward_block_kernel<T, S, line.per_thread, layer, residual, options, shifted, line.early, line.threads,
                                gate>;
  else if constexpr (line.role == Role::FLAT)
    return forward_flat_kernel<T, line.per_thread, line.rows, layer>;
  else if constexpr (line.role == Role::PIECES)
    return forward_pieces_kernel<T, S, line.per_thread, layer, line.threads, gate>;
  else if constexpr (line.role == Role::WIDE)
    return forward_wide_kernel<T, layer>;
  else
    return forward_cluster_kernel<T, S, line.per_thread, layer, residual, options>;
}

template <class T, int FORM, int... LINES> ForwardKernel kernel_at(int line, std::integer_sequence<int, LINES...>) {
  static constexpr ForwardKernel kernels[] = {kernel_of<T, FORM, LINES>()...};
  return kernels[line];
}

template <class T, int... ALL> ForwardKernel find_kernel(int form, int line, std::integer_sequence<int, ALL...>) {
  ForwardKernel found = nullptr;
  (void)((form == ALL && (found = kernel_at<T, ALL>(line, std::make_integer_sequence<int, forward_lines>()), true)) ||
         ...);
  return found;
}

/* Bytes of shared memory of a block of a cluster. */
template <class T, class S, bool RESIDUAL, bool OPTIONS> int cluster_shared(int per_thread, int stages) {
  return per_thread == 8 ? ForwardBlock<T, S, 8, RESIDUAL, OPTIONS>::bytes(stages)
                         : ForwardBlock<T, S, 4, RESIDUAL, OPTIONS>::bytes(stages);
}

template <class T> int cluster_shared(int form, int per_thread, int stages) {
  if constexpr (sizeof(T) == 2) {
    if (form & FORM_F32_RESIDUAL) return cluster_shared<T, float, true, true>(per_thread, stages);
  }
  constexpr bool options = Forms::RMS_FORMS != Forms::COMMON;
  return form & FORM_RESIDUAL ? cluster_shared<T, T, true, options>(per_thread, stages)
                              : cluster_shared<T, T, false, options>(per_thread, stages);
}

/* Persistent clusters: as many as the device holds at once. */
cudaError_t launch_clusters(ForwardKernel kernel, ForwardJob p, size_t shared, const ForwardPlan &plan,
                            const Device &device, cudaStream_t stream) {
  const void *function = reinterpret_cast<const void *>(kernel);
  Grid grid = {0, plan.threads, shared};
  cudaError_t error = active_clusters(function, grid, plan.cluster, device, &p.shares);
  if (error != cudaSuccess) return error;
  if (p.shares < 1) p.shares = 1;
  if (p.shares > p.rows) p.shares = (int)p.rows;
  grid.blocks = (int64_t)p.shares * plan.cluster;
  return launch(kernel, p, grid, plan.cluster, plan.overlap, device, stream);
}

void skip_rows(Rows &rows, int64_t outer) {
  if (rows.data) rows.data += outer * rows.outer;
}

/* A launch has at most most_blocks rows. */
cudaError_t launch_rows(ForwardKernel kernel, ForwardJob p, const ForwardPlan &plan, const Device &device,
                        cudaStream_t stream) {
  const int64_t inner = p.inner.rows ? p.inner.rows : 1, outer = most_blocks / inner, most = outer * inner;
  for (int64_t left = p.rows; left > 0; left -= most) {
    p.rows = left < most ? left : most;
    const Grid grid = {(p.rows + plan.block_rows - 1) / plan.block_rows, plan.threads, plan.shared};
    cudaError_t error = launch(kernel, p, grid, 1, plan.overlap, device, stream);
    if (error != cudaSuccess) return error;
    skip_rows(p.x, outer);
    skip_rows(p.y, outer);
    skip_rows(p.residual, outer);
    skip_rows(p.sum, outer);
    skip_rows(p.gate, outer);
    if (p.rstd) p.rstd += most;
    if (p.mean) p.mean += most;
  }
  return cudaSuccess;
}

} // namespace

template <class T, Forms FORMS_OF>
cudaError_t launch_forward(const ForwardJob &job, int form, const ForwardPlan &plan, const Device &device,
                           cudaStream_t stream) {
  const ForwardKernel kernel = find_kernel<T>(form, plan.line, std::make_integer_sequence<int, FORMS>());
  ForwardJob p = job;
  p.team = plan.team, p.cluster = plan.cluster, p.stages = plan.stages, p.ahead = plan.ahead;
  p.panels = plan.panels, p.kept = plan.kept;
  if (plan.role != Role::CLUSTER && plan.role != Role::WIDE) return launch_rows(kernel, p, plan, device, stream);
  const int bytes = plan.role == Role::WIDE ? wide_forward_shared(plan.stages, plan.panels, plan.kept).total
                                            : cluster_shared<T>(form, forward_table[plan.line].per_thread, plan.stages);
  const size_t shared = (size_t)bytes;
  return launch_clusters(kernel, p, shared, plan, device, stream);
}

template cudaError_t launch_forward<RMS_TYPE, Forms::RMS_FORMS>(const ForwardJob &, int, const ForwardPlan &,
                                                                const Device &, cudaStream_t);

} // namespace rms_cuda
