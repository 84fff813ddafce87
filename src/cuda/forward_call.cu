/* SPDX-License-Identifier: MIT
 *
 * Forward and the two halves of it: check -> job -> plan -> launch. */
#include "apart.h"
#include "call.h"
#include "launch.h"

namespace rms_cuda {

static bool is_aligned(const rms_forward_job &job, int64_t outer) {
  const rms_layout &lay = job.lay;
  const int64_t size = element_size(lay.dtype), residual_size = lay.residual_is_f32 ? 4 : size,
                weight_size = lay.weight_is_f32 ? 4 : size;
  return aligned_rows(lay, outer, job.x, size) && aligned_rows(lay, outer, job.y, size) &&
         aligned_rows(lay, outer, job.gate, size) && aligned_rows(lay, outer, job.residual, residual_size) &&
         aligned_rows(lay, outer, job.residual_out, residual_size) && aligned_parameter(lay, lay.weight, weight_size) &&
         aligned_parameter(lay, job.bias, weight_size);
}

/* A job for the kernels of aligned rows, or false where it is not for them. */
static bool make_job(const rms_forward_job &job, int64_t outer, ForwardJob *p, int *form) {
  const rms_layout &lay = job.lay;
  const bool f32_residual = lay.residual_is_f32 && job.residual.data, parameters = lay.weight || job.bias;
  const int64_t size = element_size(lay.dtype), residual_size = lay.residual_is_f32 ? 4 : size;
  if (lay.dtype == RMS_F64 || lay.indices || vectors_of(lay) > INT32_MAX / 16) return false;
  *p = {};
  const bool aligned = is_aligned(job, outer);
  if (job.gate.data && (!aligned || job.residual.data)) return false;
  if (!aligned && (f32_residual || vectors_of(lay) < 2 || !can_shift(lay, outer, job.x, &p->x_end) ||
                   !can_shift(lay, outer, job.residual, &p->residual_end) || !can_shift(lay, outer, job.y, nullptr) ||
                   !can_shift(lay, outer, job.residual_out, nullptr)))
    return false;
  p->x = job.x, p->residual = job.residual, p->y = job.y, p->sum = job.residual_out;
  p->gate = job.gate, p->sigmoid = lay.activation == RMS_ACT_SIGMOID;
  const Tensor tensors[] = {
      {&p->x, size}, {&p->y, size}, {&p->residual, residual_size}, {&p->sum, residual_size}, {&p->gate, size}};
  const int64_t inner = lay_out(lay, outer, tensors, 5, parameters && lay.per_inner, &p->weight_inner);
  if (inner == 0 || inner > most_blocks) return false;
  if (!parameters) p->weight_inner = 0;
  p->rows = outer * lay.inner * lay.groups;
  p->inner = inner_of(inner);
  p->weight = lay.weight, p->bias = job.bias;
  p->rstd = static_cast<float *>(job.rstd), p->mean = static_cast<float *>(job.mean);
  p->eps = (float)lay.eps, p->wide_eps = (double)p->eps, p->offset = (float)lay.offset,
  p->eps_limit = eps_limit_of(lay);
  p->statistic = (int)lay.k, p->k = (float)lay.k, p->inverse_k = 1.0f / (float)lay.k;
  p->round_before = lay.rounding == RMS_ROUND_BEFORE_WEIGHT, p->eps_outside = lay.eps_place == RMS_EPS_OUTSIDE;
  p->weight_is_f32 = lay.weight_is_f32 && parameters;
  p->vectors = (int)vectors_of(lay);
  p->width = (int)lay.width, p->bytes = (int)(lay.width * size);
  const bool options = inner > 1 || p->round_before || p->eps_outside || p->weight_is_f32 || lay.k != lay.width ||
                       (job.bias && !lay.weight) || f32_residual || !aligned || job.gate.data;
  *form = (lay.kind == RMS_KIND_LAYER ? FORM_LAYER : 0) | (job.residual.data ? FORM_RESIDUAL : 0) |
          (options ? FORM_OPTIONS : 0) | (f32_residual ? FORM_F32_RESIDUAL : 0) | (aligned ? 0 : FORM_SHIFTED);
  if (job.gate.data) *form |= lay.gate_place == RMS_GATE_AFTER ? FORM_GATE_AFTER : FORM_GATE_BEFORE;
  return true;
}

static cudaError_t run_general(const Device &device, const rms_forward_job &job, int64_t outer, int64_t segments,
                               cudaStream_t stream) {
  const rms_layout &lay = job.lay;
  GeneralForward g = {};
  g.job = job;
  if (job.stats_out && lay.gate_place == RMS_GATE_AFTER) g.job.gate = {}; /* no part of the statistics */
  g.segments = segments;
  g.eps_limit = eps_limit_of(lay);
  g.aligned = is_aligned(job, outer);
  g.whole = !lay.indices && lay.k == lay.width;
  const bool f32 = lay.residual_is_f32 && job.residual.data;
  const int64_t vectors = vectors_of(lay),
                vector_bytes = (f32 ? 64 / element_size(lay.dtype) : 16) + (g.job.gate.data ? 16 : 0);
  const GeneralPlan plan = plan_general(device, vectors, vectors * vector_bytes, 0);
  g.team = plan.team;
  g.kept = plan.kept;
  const int64_t step = most_blocks * plan.teams();
  for (g.first = 0; g.first < segments; g.first += step) {
    const int64_t left = segments - g.first;
    const Grid grid = {((left < step ? left : step) + plan.teams() - 1) / plan.teams(), plan.threads, plan.shared};
    cudaError_t error = by_type<true>(lay.dtype, [&](auto type) -> cudaError_t {
      using T = decltype(type);
      return g.job.gate.data ? launch_general_forward<T, true>(g, grid, device, stream)
                             : launch_general_forward<T, false>(g, grid, device, stream);
    });
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

static cudaError_t run(const Device &device, const rms_forward_job &job, int64_t outer, int64_t segments,
                       cudaStream_t stream) {
  ForwardJob p;
  int form;
  if (job.lay.apart) return launch_apart(job, outer, device, stream);
  if (job.stats_in || job.stats_out || !make_job(job, outer, &p, &form))
    return run_general(device, job, outer, segments, stream);
  const ForwardPlan plan = plan_forward(device, form, p.vectors, p.rows, p.inner.rows != 0);
  if (plan.role == Role::GENERAL) return run_general(device, job, outer, segments, stream);
  return by_type<false>(job.lay.dtype, [&](auto type) -> cudaError_t {
    using T = decltype(type);
    return form & FORM_GATED     ? launch_forward<T, Forms::GATED>(p, form, plan, device, stream)
           : form & FORM_SHIFTED ? launch_forward<T, Forms::SHIFTED>(p, form, plan, device, stream)
           : form & FORM_OPTIONS ? launch_forward<T, Forms::OPTIONS>(p, form, plan, device, stream)
                                 : launch_forward<T, Forms::COMMON>(p, form, plan, device, stream);
  });
}

rms_status run_forward(const rms_spec *spec, const rms_forward_args *args, int flags, const rms_stat *stats_in,
                       rms_stat *stats_out, cudaStream_t stream) {
  rms_forward_job job;
  int64_t segments;
  rms_status status = rms_check_forward(spec, args, flags | RMS_CHECK_DEVICE, stats_in, stats_out, &job, &segments);
  if (status) return status;
  if (segments == 0) return RMS_OK;
  LastError last;
  Device device;
  cudaError_t error = query_device(&device);
  if (error == cudaSuccess) error = run(device, job, args->outer, segments, stream);
  return last.settle(error) ? RMS_OK : RMS_E_DEVICE;
}

} // namespace rms_cuda
