/* SPDX-License-Identifier: MIT
 *
 * The public functions: check -> plan -> launch. */
#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "../../include/rmsnorm_cuda.h"
#include "plan.h"
extern "C" {
#include "../core/check.h"
}

namespace rms_cuda {

/* Blocks of one launch; more rows take more launches. */
constexpr int64_t most_blocks = (int64_t)1 << 30;

static rms_status status_of(cudaError_t error) {
  if (error == cudaSuccess) return RMS_OK;
  (void)cudaGetLastError();
  return RMS_E_DEVICE;
}

static Rows rows_of(const rms_rows &rows) {
  return {rows.data, rows.outer, rows.inner};
}

static Layout layout_of(const rms_layout &in, rms_dtype dtype, int64_t outer) {
  Layout lay = {};
  lay.outer = outer;
  lay.inner = in.inner;
  lay.groups = in.groups;
  lay.width = in.width;
  lay.k = in.k;
  lay.indices = in.indices;
  lay.eps = in.eps;
  lay.offset = in.offset;
  lay.layer = in.kind == RMS_KIND_LAYER;
  lay.eps_outside = in.eps_place == RMS_EPS_OUTSIDE;
  lay.before = in.rounding == RMS_ROUND_BEFORE_WEIGHT;
  lay.weight_wide = in.weight_is_f32;
  lay.residual_wide = in.residual_is_f32;
  lay.weight = in.weight;
  lay.weight_inner = in.weight_inner;
  lay.dtype = dtype;
  int e = 0;
  (void)std::frexp(lay.eps, &e);
  lay.eps_limit = lay.eps == 0 ? 4096 : lay.eps_outside ? -e : -(e / 2);
  return lay;
}

/* ---- alignment ---- */

static bool aligned_rows(const Layout &lay, const Rows &rows, size_t size) {
  if (!rows.data) return true;
  int64_t low = (int64_t)((uintptr_t)rows.data | (uintptr_t)(lay.width * (int64_t)size));
  if (lay.outer > 1) low |= rows.outer;
  if (lay.inner > 1) low |= rows.inner;
  return low % 16 == 0;
}

static bool aligned_parameter(const Layout &lay, const char *p, size_t size) {
  return ((uintptr_t)p | (uintptr_t)lay.weight_inner | (uintptr_t)(lay.width * (int64_t)size)) % 16 == 0;
}

/* ---- forward ---- */

static Grid grid_of(const Plan &plan, int64_t segments) {
  const int teams = plan.team <= 32 ? plan.threads / plan.team : 1;
  Grid grid = {(segments + teams - 1) / teams * plan.cluster, plan.threads, 0};
  return grid;
}

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

/* ---- the common case ---- */

/* Rows as one sequence at one distance: sets it, in bytes. */
static bool one_pitch(const Layout &lay, const Rows &rows, int64_t *pitch) {
  *pitch = lay.inner > 1 ? rows.inner : rows.outer;
  return !rows.data || lay.inner <= 1 || lay.outer <= 1 || rows.outer == rows.inner * lay.inner;
}

/* For rows of which there are fewer than 2^31. */
static Inner inner_of(int64_t rows) {
  Inner inner = {0, 0, 0};
  if (rows <= 1) return inner;
  inner.rows = (unsigned)rows;
  while ((int64_t)2 << inner.shift < rows)
    inner.shift++;
  inner.factor = (unsigned)(((uint64_t)1 << (32 + inner.shift)) / (uint64_t)rows + 1);
  return inner;
}

/* The segments of a forward as rows with at most two distances and weights by inner index; returns the rows of an outer
 * index, or 0 where that cannot be. */
static int64_t make_rows(const ForwardJob &job, LeanForward *p) {
  const Layout &lay = job.lay;
  const int64_t size = (int64_t)rms_dtype_size(lay.dtype), weight_size = lay.weight_wide ? 4 : size;
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

static rms_status forward(const rms_spec *spec, const rms_forward_args *args, int flags, const rms_stat *stats_in,
                          rms_stat *stats_out, cudaStream_t stream) {
  rms_forward_job checked;
  int64_t segments;
  rms_status status = rms_check_forward(spec, args, flags | RMS_CHECK_DEVICE, stats_in, stats_out, &checked, &segments);
  if (status) return status;
  if (segments == 0) return RMS_OK;
  Device device;
  if (!query_device(&device)) return RMS_E_DEVICE;

  ForwardJob job = {};
  job.lay = layout_of(checked.lay, spec->dtype, args->outer);
  job.x = rows_of(checked.x);
  job.residual = rows_of(checked.residual);
  if (!stats_out) {
    job.y = rows_of(checked.y);
    job.residual_out = rows_of(checked.residual_out);
    job.bias = checked.bias;
    job.rstd = checked.rstd;
    job.mean = checked.mean;
  }
  job.stats_in = stats_in;
  job.stats_out = stats_out;
  const size_t size = rms_dtype_size(spec->dtype), residual_size = job.lay.residual_wide ? 4 : size;
  const size_t weight_size = job.lay.weight_wide ? 4 : size;
  job.aligned =
      aligned_rows(job.lay, job.x, size) && aligned_rows(job.lay, job.y, size) &&
      aligned_rows(job.lay, job.residual, residual_size) && aligned_rows(job.lay, job.residual_out, residual_size) &&
      aligned_parameter(job.lay, job.lay.weight, weight_size) && aligned_parameter(job.lay, job.bias, weight_size);

  const bool split = stats_in || stats_out;
  LeanForward lean;
  if (!split && make_lean(device, job, &lean)) return status_of(launch_lean(lean, job, device, stream));
  Plan plan = plan_forward(device, job.lay);
  if (!plan.tuned || split) plan = plan_plain(job.lay);
  job.team = plan.team;
  job.cluster = plan.cluster;
  const int teams = plan.team <= 32 ? plan.threads / plan.team : 1;
  const int64_t step = most_blocks / plan.cluster * teams;
  for (job.first = 0; job.first < segments; job.first += step) {
    int64_t left = segments - job.first;
    status = status_of(launch_forward(job, grid_of(plan, left < step ? left : step), plan, stream));
    if (status) return status;
  }
  return RMS_OK;
}

/* ---- backward ---- */

/* Bytes of the parts of the workspace: the scalars of a batch of rows (plain kernels), then the partial sums. */
static size_t scalar_bytes(const Plan &plan, const Sums &sums) {
  return plan.tuned ? 0 : ((size_t)(sums.slices * sums.batch) * sizeof(RowScalars) + 63) / 64 * 64;
}

static size_t sum_bytes(const Layout &lay, const Sums &sums) {
  return (size_t)(2 * sums.slices * sums.shares * lay.width) * sizeof(double);
}

/* The most that any call of this shape can need on this device: alignment and the types in use are not known here. */
static size_t workspace_bytes(const Device &device, const Layout &lay) {
  size_t most = 0;
  for (int variant = 0; variant < 3; variant++) {
    Plan plan = plan_backward(device, lay, variant == 0, variant == 1);
    if (!plan.tuned || variant == 2) plan = plan_plain(lay);
    Sums sums = plan_sums(device, plan, lay, variant == 1);
    size_t bytes = scalar_bytes(plan, sums) + sum_bytes(lay, sums);
    if (bytes > most) most = bytes;
  }
  for (int threads : {(int)BACKWARD_TEAM, (int)BACKWARD_THREADS}) {
    const LeanShares plan = plan_lean_backward(device, lay, lay.outer * lay.inner, threads);
    size_t bytes = (size_t)(2 * plan.shares * lay.width) * sizeof(float);
    if (bytes > most) most = bytes;
  }
  return most;
}

static bool make_lean(const Device &device, const BackwardJob &job, LeanBackward *p, LeanShares *plan) {
  const Layout &lay = job.lay;
  const bool saved = job.rstd && (!lay.layer || job.mean);
  if (!job.aligned || lay.dtype == RMS_F64 || lay.indices || lay.k == 0 || lay.eps_outside || lay.groups != 1 ||
      lay.weight_inner != 0 || job.x_wide || (job.dresidual.data && job.add_to_dx) || (job.want_dbias && !lay.layer) ||
      (lay.residual_wide && (job.dresidual.data || job.dresidual_out.data)))
    return false;
  *p = {};
  p->rows = lay.outer * lay.inner;
  p->dy = job.dy, p->x = job.x, p->dx = job.dx.data ? job.dx : job.dresidual_out;
  p->added = job.add_to_dx ? job.dx : job.dresidual;
  if (job.dx.data) p->copy = job.dresidual_out;
  bool even = true;
  for (Rows *rows : {&p->dy, &p->x, &p->dx, &p->added, &p->copy}) {
    int64_t pitch;
    even = one_pitch(lay, *rows, &pitch) && even;
  }
  for (Rows *rows : {&p->dy, &p->x, &p->dx, &p->added, &p->copy})
    if (even) (void)one_pitch(lay, *rows, &rows->outer);
  if (!even && (p->rows > 0x7fffffff || lay.inner > 0x7fffffff)) return false;
  if (!even) p->inner = inner_of(lay.inner);
  p->before = lay.before, p->round_product = job.round_product, p->leading = (int)lay.k, p->whole = lay.k == lay.width;
  p->more = !even || !saved || !p->dx.data || p->added.data || p->copy.data || lay.before || lay.k != lay.width;
  const bool big = lay.layer && p->more;
  *plan = plan_lean_backward(device, lay, p->rows, big ? (int)BACKWARD_TEAM : (int)BACKWARD_THREADS);
  if (plan->shares == 0 || plan->shares * plan->cluster > most_blocks || (plan->cluster > 1 && big)) return false;
  p->weight = lay.weight, p->weight_wide = lay.weight_wide;
  if (saved) p->rstd = static_cast<const float *>(job.rstd), p->mean = static_cast<const float *>(job.mean);
  p->exact_eps = lay.eps, p->eps = (float)lay.eps, p->offset = (float)lay.offset, p->eps_limit = lay.eps_limit;
  p->k = (float)lay.k, p->inverse_k = 1.0f / (float)lay.k;
  p->vectors = (int)vectors_of(lay);
  p->want_dweight = job.want_dweight, p->want_dbias = job.want_dbias;
  return true;
}

static cudaError_t launch_lean(const LeanBackward &p, const BackwardJob &job, LeanShares &plan, cudaStream_t stream) {
  switch (job.lay.dtype) {
  case RMS_BF16:
    return launch_lean_backward_of<__nv_bfloat16>(p, plan, job.lay.layer, stream);
  case RMS_F16:
    return launch_lean_backward_of<__half>(p, plan, job.lay.layer, stream);
  default:
    return launch_lean_backward_of<float>(p, plan, job.lay.layer, stream);
  }
}

static cudaError_t launch_backward(const BackwardJob &job, const Grid &grid, cudaStream_t stream, int *clusters) {
  switch (job.lay.dtype) {
  case RMS_BF16:
    return launch_backward_of<__nv_bfloat16>(job, grid, stream, clusters);
  case RMS_F16:
    return launch_backward_of<__half>(job, grid, stream, clusters);
  default:
    return launch_backward_of<float>(job, grid, stream, clusters);
  }
}

static cudaError_t run_tuned(const Device &device, const Plan &plan, BackwardJob &job, bool wide, cudaStream_t stream) {
  Grid grid = {0, plan.threads, 0};
  grid.shared = plan_ring(device, plan, job.lay, wide, job.dresidual.data != nullptr, &job.stages);
  job.team = plan.team;
  job.cluster = plan.cluster;
  if (plan.cluster > 1) {
    int clusters = 0;
    cudaError_t error = launch_backward(job, grid, stream, &clusters);
    if (error != cudaSuccess) return error;
    const int64_t most = clusters / job.slices > 0 ? clusters / job.slices : 1;
    if (job.shares > most) job.shares = most;
  }
  const int teams = plan.team <= 32 ? plan.threads / plan.team : 1;
  job.partial_is_f64 = job.slice_rows > job.shares * teams * BLOCK_ROWS;
  grid.blocks = job.slices * job.shares * plan.cluster;
  return launch_backward(job, grid, stream, nullptr);
}

static cudaError_t run_columns(BackwardJob &job, cudaStream_t stream) {
  Grid grid = {(vectors_of(job.lay) + 127) / 128 * job.shares * job.slices, 128, 0};
  return launch_plain_columns(job, grid, stream);
}

/* Rows in batches: their sums first, then everything that is made of them. */
static cudaError_t run_plain(const Plan &plan, BackwardJob &job, int64_t batch, cudaStream_t stream) {
  job.team = plan.team;
  job.partial_is_f64 = true;
  for (job.first = 0; job.first < job.slice_rows; job.first += batch) {
    job.count = job.slice_rows - job.first < batch ? job.slice_rows - job.first : batch;
    cudaError_t error = launch_plain_rows(job, grid_of(plan, job.slices * job.count), stream);
    if (error == cudaSuccess && job.scalars) error = run_columns(job, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

static BackwardJob backward_job(const rms_spec *spec, const rms_backward_args *args, const rms_backward_job &checked) {
  BackwardJob job = {};
  job.lay = layout_of(checked.lay, spec->dtype, args->outer);
  job.dy = rows_of(checked.dy);
  job.x = rows_of(checked.x);
  job.dresidual = rows_of(checked.dresidual);
  job.dx = rows_of(checked.dx);
  job.dresidual_out = rows_of(checked.dresidual_out);
  job.x_wide = checked.x_is_f32;
  job.add_to_dx = checked.add_to_dx;
  job.round_product = job.lay.before && spec->weight_dtype == spec->dtype;
  job.want_dweight = args->dweight != nullptr;
  job.want_dbias = args->dbias != nullptr;
  job.rstd = checked.rstd;
  job.mean = checked.mean;
  const size_t size = rms_dtype_size(spec->dtype), residual_size = job.lay.residual_wide ? 4 : size;
  job.aligned = aligned_rows(job.lay, job.dy, size) && aligned_rows(job.lay, job.x, job.x_wide ? 4 : size) &&
                aligned_rows(job.lay, job.dresidual, residual_size) && aligned_rows(job.lay, job.dx, size) &&
                aligned_rows(job.lay, job.dresidual_out, residual_size) &&
                aligned_parameter(job.lay, job.lay.weight, job.lay.weight_wide ? 4 : size);
  return job;
}

static FinishJob finish_job(const rms_spec *spec, const rms_backward_args *args, const BackwardJob &job) {
  FinishJob finish = {};
  finish.partial = job.partial;
  finish.partial_is_f64 = job.partial_is_f64;
  finish.slices = job.slices;
  finish.shares = job.slice_rows > 0 ? job.shares : 0;
  finish.width = job.lay.width;
  finish.type = spec->grad_dtype;
  if (args->dweight) {
    finish.out[finish.planes] = args->dweight;
    finish.add[finish.planes++] = (args->accumulate & RMS_ACCUMULATE_DWEIGHT) != 0;
  }
  if (args->dbias) {
    finish.out[finish.planes] = args->dbias;
    finish.add[finish.planes++] = (args->accumulate & RMS_ACCUMULATE_DBIAS) != 0;
  }
  return finish;
}

static rms_status backward(const rms_spec *spec, const rms_backward_args *args, int flags, const rms_stat *stats_in,
                           const rms_grad_sum *sums_in, rms_grad_sum *sums_out, cudaStream_t stream) {
  rms_backward_job checked;
  int64_t segments;
  rms_status status =
      rms_check_backward(spec, args, flags | RMS_CHECK_DEVICE, stats_in, sums_in, sums_out, &checked, &segments);
  if (status) return status;
  BackwardJob job = backward_job(spec, args, checked);
  job.stats_in = stats_in;
  job.sums_in = sums_in;
  job.sums_out = sums_out;
  if (sums_out) {
    job.dx.data = job.dresidual_out.data = nullptr;
    job.want_dweight = job.want_dbias = job.add_to_dx = false;
  }
  const bool want_sums = job.want_dweight || job.want_dbias;
  if (segments == 0 && !want_sums) return RMS_OK;
  const bool want_workspace = want_sums && segments > 0;
  if (want_workspace && (!args->workspace || (uintptr_t)args->workspace % 64 != 0)) return RMS_E_WORKSPACE;
  if (!want_sums && !job.dx.data && !job.dresidual_out.data && !sums_out) return RMS_OK;
  Device device;
  if (!query_device(&device)) return RMS_E_DEVICE;
  if (want_workspace && args->workspace_bytes < workspace_bytes(device, job.lay)) return RMS_E_WORKSPACE;

  LeanBackward lean;
  LeanShares lean_plan;
  if (segments > 0 && !stats_in && make_lean(device, job, &lean, &lean_plan)) {
    lean.partial = static_cast<float *>(args->workspace);
    cudaError_t error = launch_lean(lean, job, lean_plan, stream);
    job.partial = args->workspace;
    job.slices = 1;
    job.slice_rows = lean.rows;
    job.shares = lean_plan.shares;
    if (error == cudaSuccess && want_sums) error = launch_finish(finish_job(spec, args, job), true, stream);
    return status_of(error);
  }

  /* Only what is there makes the residual's type count. */
  const bool wide = job.lay.residual_wide && (job.x_wide || job.dresidual.data || job.dresidual_out.data);
  job.lay.residual_wide = wide;
  Plan plan = plan_backward(device, job.lay, job.aligned, wide);
  if (!plan.tuned || stats_in) plan = plan_plain(job.lay);
  Sums sums = plan_sums(device, plan, job.lay, wide || !job.aligned);
  job.slices = sums.slices;
  job.slice_rows = sums.slice_rows;
  job.shares = sums.shares;
  if (job.slices * job.shares * plan.cluster > most_blocks) return RMS_E_SIZE;
  if (want_workspace) {
    job.partial = static_cast<char *>(args->workspace) + scalar_bytes(plan, sums);
    if (!plan.tuned && !stats_in) job.scalars = static_cast<RowScalars *>(args->workspace);
  }
  cudaError_t error = cudaSuccess;
  if (segments > 0) {
    if (plan.tuned) {
      error = run_tuned(device, plan, job, wide || !job.aligned, stream);
    } else if (sums_in) {
      job.partial_is_f64 = true;
      job.count = job.slice_rows;
      error = run_columns(job, stream);
    } else {
      int64_t most = most_blocks / job.slices > 0 ? most_blocks / job.slices : 1;
      error = run_plain(plan, job, want_sums ? sums.batch : most, stream);
    }
  }
  if (error == cudaSuccess && want_sums)
    error = launch_finish(finish_job(spec, args, job), device.clusters && plan.tuned && segments > 0, stream);
  return status_of(error);
}

/* ---- merging statistics ---- */

__global__ void merge_kernel(bool layer, int64_t count, rms_stat *into, const rms_stat *from) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
    rms_stat a = into[i], b = from[i];
    double n = a.count + b.count;
    rms_stat both = {n, a.mean, a.m2 + b.m2};
    if (layer && b.count != 0) {
      if (a.count == 0) {
        both.mean = b.mean;
      } else {
        double difference = b.mean - a.mean;
        both.mean = a.mean + difference * (b.count / n);
        both.m2 += difference * difference * (a.count * (b.count / n));
      }
    }
    into[i] = both;
  }
}

} // namespace rms_cuda

using namespace rms_cuda;

rms_status rms_cuda_available(void) {
  Device device;
  return query_device(&device) ? RMS_OK : RMS_E_DEVICE;
}

rms_status rms_cuda_forward(const rms_spec *spec, const rms_forward_args *args, rms_cuda_stream stream) {
  return forward(spec, args, 0, nullptr, nullptr, stream);
}

rms_status rms_cuda_stats(const rms_spec *spec, const rms_forward_args *args, rms_stat *stats, rms_cuda_stream stream) {
  if (!stats) return RMS_E_ARGUMENT;
  return forward(spec, args, RMS_CHECK_SPLIT | RMS_CHECK_STATS, nullptr, stats, stream);
}

rms_status rms_cuda_apply(const rms_spec *spec, const rms_forward_args *args, const rms_stat *stats,
                          rms_cuda_stream stream) {
  if (!stats) return RMS_E_ARGUMENT;
  return forward(spec, args, RMS_CHECK_SPLIT, stats, nullptr, stream);
}

rms_status rms_cuda_stats_merge(const rms_spec *spec, int64_t count, rms_stat *into, const rms_stat *from,
                                rms_cuda_stream stream) {
  rms_layout lay;
  rms_status status = rms_check_spec(spec, RMS_CHECK_SPLIT | RMS_CHECK_DEVICE, &lay);
  if (status) return status;
  if (count < 0 || (count > 0 && (!into || !from))) return RMS_E_ARGUMENT;
  if (count == 0) return RMS_OK;
  if (rms_cuda_available()) return RMS_E_DEVICE;
  const int64_t blocks = (count + 255) / 256;
  merge_kernel<<<(unsigned)(blocks < 4096 ? blocks : 4096), 256, 0, stream>>>(lay.kind == RMS_KIND_LAYER, count, into,
                                                                              from);
  return status_of(cudaPeekAtLastError());
}

rms_status rms_cuda_backward(const rms_spec *spec, const rms_backward_args *args, rms_cuda_stream stream) {
  return backward(spec, args, 0, nullptr, nullptr, nullptr, stream);
}

rms_status rms_cuda_backward_stats(const rms_spec *spec, const rms_backward_args *args, const rms_stat *stats,
                                   rms_grad_sum *sums, rms_cuda_stream stream) {
  if (!stats || !sums) return RMS_E_ARGUMENT;
  return backward(spec, args, RMS_CHECK_SPLIT | RMS_CHECK_STATS, stats, nullptr, sums, stream);
}

rms_status rms_cuda_backward_apply(const rms_spec *spec, const rms_backward_args *args, const rms_stat *stats,
                                   const rms_grad_sum *sums, rms_cuda_stream stream) {
  if (!stats || !sums) return RMS_E_ARGUMENT;
  return backward(spec, args, RMS_CHECK_SPLIT, stats, sums, nullptr, stream);
}

size_t rms_cuda_backward_workspace(const rms_spec *spec, int64_t outer, int64_t inner) {
  rms_layout lay;
  Device device;
  if (rms_check_spec(spec, RMS_CHECK_SPLIT | RMS_CHECK_DEVICE, &lay) || outer < 0 || inner < 0 ||
      !query_device(&device))
    return 0;
  lay.inner = inner ? inner : 1;
  lay.weight_inner = lay.per_inner ? 1 : 0;
  return workspace_bytes(device, layout_of(lay, spec->dtype, outer));
}
