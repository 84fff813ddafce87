/* SPDX-License-Identifier: MIT
 *
 * Forward and the two halves of it: check -> plan -> launch. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "host.h"

namespace rms_cuda {

static cudaError_t launch_forward(const ForwardJob &job, const Grid &grid, const Plan &plan, cudaStream_t stream) {
  if (!plan.tuned) return launch_plain_forward(job, grid, stream);
  switch (job.lay.dtype) {
  case RMS_BF16:
    return launch_forward_of<__nv_bfloat16>(job, grid, stream);
  case RMS_F16:
    return launch_forward_of<__half>(job, grid, stream);
  default:
    return launch_forward_of<float>(job, grid, stream);
  }
}

/* ---- aligned rows ---- */

/* The segments of a forward as rows with at most two distances and weights by inner index; returns the rows of an outer
 * index, or 0 where that cannot be. */
static int64_t make_rows(const ForwardJob &job, LeanForward *p) {
  const Layout &lay = job.lay;
  const int64_t size = element_size(lay.dtype), weight_size = lay.weight_wide ? 4 : size;
  Rows *const to[] = {&p->x, &p->residual, &p->y, &p->sum};
  const Rows *const from[] = {&job.x, &job.residual, &job.y, &job.residual_out};
  bool even = true;
  int64_t pitch[4];
  for (int i = 0; i < 4; i++) {
    even = one_pitch(lay, *from[i], &pitch[i]) && even;
    *to[i] = *from[i];
  }
  p->rows = lay.outer * lay.inner * lay.groups;
  p->weight_inner = lay.inner > 1 ? lay.weight_inner : 0;
  if (!even || p->weight_inner != 0) return lay.groups == 1 ? lay.inner : 0;
  for (int i = 0; i < 4; i++) { /* one distance for all rows, or one for rows and one for groups */
    to[i]->outer = pitch[i];
    to[i]->inner = lay.width * size;
  }
  if (lay.groups > 1 && (lay.weight || job.bias)) p->weight_inner = lay.width * weight_size;
  return lay.groups;
}

static bool make_lean(const Device &device, const ForwardJob &job, LeanForward *p) {
  const Layout &lay = job.lay;
  if (!job.aligned || lay.dtype == RMS_F64 || lay.indices || (lay.residual_wide && job.residual.data) ||
      vectors_of(lay) > INT32_MAX / 16)
    return false;
  *p = {};
  const int64_t inner = make_rows(job, p);
  if (inner == 0 || inner > most_blocks) return false;
  p->inner = inner_of(inner);
  p->weight = lay.weight, p->bias = job.bias;
  p->rstd = static_cast<float *>(job.rstd), p->mean = static_cast<float *>(job.mean);
  p->exact_eps = lay.eps, p->eps = (float)lay.eps, p->offset = (float)lay.offset, p->eps_limit = lay.eps_limit;
  p->statistic = (int)lay.k, p->k = (float)lay.k, p->inverse_k = 1.0f / (float)lay.k;
  p->before = lay.before, p->eps_outside = lay.eps_outside;
  p->weight_wide = lay.weight_wide && (lay.weight || job.bias);
  p->vectors = (int)vectors_of(lay);
  p->options =
      inner > 1 || p->before || p->eps_outside || p->weight_wide || lay.k != lay.width || (job.bias && !lay.weight);
  /* one launch of the wide kernels has all rows */
  return plan_lean_forward(device, p->vectors, job.residual.data != nullptr, p->options) &&
         (inner == 1 || p->rows <= most_blocks || p->vectors <= 2048);
}

static cudaError_t launch_lean(const LeanForward &p, const ForwardJob &job, const Device &device, cudaStream_t stream) {
  const bool layer = job.lay.layer;
  switch (job.lay.dtype) {
  case RMS_BF16:
    return p.options ? launch_lean_forward_of<__nv_bfloat16, true>(p, layer, device, stream)
                     : launch_lean_forward_of<__nv_bfloat16, false>(p, layer, device, stream);
  case RMS_F16:
    return p.options ? launch_lean_forward_of<__half, true>(p, layer, device, stream)
                     : launch_lean_forward_of<__half, false>(p, layer, device, stream);
  default:
    return p.options ? launch_lean_forward_of<float, true>(p, layer, device, stream)
                     : launch_lean_forward_of<float, false>(p, layer, device, stream);
  }
}

/* ---- a call ---- */

static ForwardJob forward_job(const rms_forward_job &checked, int64_t outer) {
  ForwardJob job = {};
  job.lay = layout_of(checked.lay, outer);
  job.x = rows_of(checked.x);
  job.residual = rows_of(checked.residual);
  if (!checked.stats_out) {
    job.y = rows_of(checked.y);
    job.residual_out = rows_of(checked.residual_out);
    job.bias = checked.bias;
    job.rstd = checked.rstd;
    job.mean = checked.mean;
  }
  job.stats_in = checked.stats_in;
  job.stats_out = checked.stats_out;
  const size_t size = (size_t)element_size(job.lay.dtype), residual_size = job.lay.residual_wide ? 4 : size;
  const size_t weight_size = job.lay.weight_wide ? 4 : size;
  job.aligned =
      aligned_rows(job.lay, job.x, size) && aligned_rows(job.lay, job.y, size) &&
      aligned_rows(job.lay, job.residual, residual_size) && aligned_rows(job.lay, job.residual_out, residual_size) &&
      aligned_parameter(job.lay, job.lay.weight, weight_size) && aligned_parameter(job.lay, job.bias, weight_size);
  return job;
}

static cudaError_t launch(const Device &device, ForwardJob &job, int64_t segments, cudaStream_t stream) {
  const bool split = job.stats_in || job.stats_out;
  LeanForward lean;
  if (!split && make_lean(device, job, &lean)) return launch_lean(lean, job, device, stream);
  Plan plan = plan_forward(device, job.lay);
  if (!plan.tuned || split) plan = plan_plain(job.lay);
  job.team = plan.team;
  job.cluster = plan.cluster;
  const int teams = plan.team <= 32 ? plan.threads / plan.team : 1;
  const int64_t step = most_blocks / plan.cluster * teams;
  for (job.first = 0; job.first < segments; job.first += step) {
    const int64_t left = segments - job.first;
    cudaError_t error = launch_forward(job, grid_of(plan, left < step ? left : step), plan, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

rms_status run_forward(const rms_spec *spec, const rms_forward_args *args, int flags, const rms_stat *stats_in,
                       rms_stat *stats_out, cudaStream_t stream) {
  rms_forward_job checked;
  int64_t segments;
  rms_status status = rms_check_forward(spec, args, flags | RMS_CHECK_DEVICE, stats_in, stats_out, &checked, &segments);
  if (status) return status;
  if (segments == 0) return RMS_OK;
  LastError last;
  Device device;
  cudaError_t error = query_device(&device);
  if (error == cudaSuccess) {
    ForwardJob job = forward_job(checked, args->outer);
    error = launch(device, job, segments, stream);
  }
  return last.settle(error) ? RMS_OK : RMS_E_DEVICE;
}

} // namespace rms_cuda
