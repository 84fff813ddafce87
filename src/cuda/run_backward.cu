/* SPDX-License-Identifier: MIT
 *
 * Backward and the two halves of it: check -> choose the kernels -> launch. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "host.h"

namespace rms_cuda {

/* ---- the job ---- */

static BackwardJob backward_job(const rms_backward_job &checked, const rms_backward_args *args) {
  BackwardJob job = {};
  job.lay = layout_of(checked.lay, args->outer);
  job.dy = rows_of(checked.dy);
  job.x = rows_of(checked.x);
  job.dresidual = rows_of(checked.dresidual);
  job.dx = rows_of(checked.dx);
  job.dresidual_out = rows_of(checked.dresidual_out);
  job.x_wide = checked.x_is_f32;
  job.add_to_dx = checked.add_to_dx;
  job.round_product = job.lay.before && !job.lay.weight_wide;
  job.want_dweight = args->dweight != nullptr;
  job.want_dbias = args->dbias != nullptr;
  job.rstd = checked.rstd;
  job.mean = checked.mean;
  job.stats_in = checked.stats_in;
  job.sums_in = checked.sums_in;
  job.sums_out = checked.sums_out;
  const size_t size = (size_t)element_size(job.lay.dtype), residual_size = job.lay.residual_wide ? 4 : size;
  job.aligned = aligned_rows(job.lay, job.dy, size) && aligned_rows(job.lay, job.x, job.x_wide ? 4 : size) &&
                aligned_rows(job.lay, job.dresidual, residual_size) && aligned_rows(job.lay, job.dx, size) &&
                aligned_rows(job.lay, job.dresidual_out, residual_size) &&
                aligned_parameter(job.lay, job.lay.weight, job.lay.weight_wide ? 4 : size);
  return job;
}

static FinishJob finish_job(const rms_backward_args *args, const rms_backward_job &checked, const BackwardJob &job) {
  FinishJob finish = {};
  finish.partial = job.partial;
  finish.partial_is_f64 = job.partial_is_f64;
  finish.slices = job.slices;
  finish.shares = job.slice_rows > 0 ? job.shares : 0;
  finish.width = job.lay.width;
  auto add = [&](void *out, rms_dtype type, int flag) {
    if (!out) return;
    finish.out[finish.planes] = out;
    finish.type[finish.planes] = type;
    finish.add[finish.planes++] = (args->accumulate & flag) != 0;
  };
  add(args->dweight, checked.dweight_type, RMS_ACCUMULATE_DWEIGHT);
  add(args->dbias, checked.dbias_type, RMS_ACCUMULATE_DBIAS);
  return finish;
}

/* ---- which kernels ---- */

/* How a call is done: by the lean kernels, the tuned ones, or the plain ones. A function of the arguments and the
 * device that is the same for a call and for the second half of a split one, so that both have the same column sums. */
struct Choice {
  bool is_lean;
  LeanBackward lean;
  LeanShares lean_plan;
  Plan plan;
  Sums sums;
  bool wide;      /* the tuned kernels need room: for f32 residuals, or rows that are not aligned */
  int64_t planes; /* sums that are wanted */
};

/* saved: statistics were saved. */
static bool choose_lean(const Device &device, const BackwardJob &job, bool saved, LeanBackward *p, LeanShares *plan) {
  const Layout &lay = job.lay;
  if (!job.aligned || lay.dtype == RMS_F64 || lay.indices || lay.k == 0 || lay.eps_outside || lay.groups != 1 ||
      lay.weight_inner != 0 || job.x_wide || (job.dresidual.data && job.add_to_dx) || (job.want_dbias && !lay.layer) ||
      (lay.residual_wide && (job.dresidual.data || job.dresidual_out.data)) || vectors_of(lay) > INT32_MAX / 16)
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
  const bool added = p->added.data || p->copy.data;
  p->form = !even || !saved || added || lay.before || !p->whole ? 1 : 0;
  if (p->form == 1 && element_size(lay.dtype) == 2 && !lay.layer && lay.before && saved && p->dx.data && !added)
    p->form = 2;
  const bool big = lay.layer && p->form == 1;
  *plan = plan_lean_backward(device, lay, p->rows, big ? (int)BACKWARD_TEAM : (int)BACKWARD_THREADS);
  if (plan->shares == 0 || plan->shares * plan->cluster > most_blocks || (plan->cluster > 1 && big)) return false;
  p->weight = lay.weight, p->weight_wide = lay.weight_wide;
  p->exact_eps = lay.eps, p->eps = (float)lay.eps, p->offset = (float)lay.offset, p->eps_limit = lay.eps_limit;
  p->k = (float)lay.k, p->inverse_k = 1.0f / (float)lay.k;
  p->vectors = (int)vectors_of(lay);
  p->stored = p->dx.data ? p->vectors : 0;
  p->want_dweight = job.want_dweight, p->want_dbias = job.want_dbias;
  return true;
}

static Choice choose(const Device &device, const BackwardJob &job, bool saved) {
  Choice c = {};
  c.planes = (int64_t)job.want_dweight + (int64_t)job.want_dbias;
  c.is_lean = job.lay.outer > 0 && choose_lean(device, job, saved, &c.lean, &c.lean_plan);
  if (c.is_lean) {
    c.sums = {1, c.lean.rows, c.lean_plan.shares, 0};
    return c;
  }
  c.wide = job.lay.residual_wide || !job.aligned;
  c.plan = plan_backward(device, job.lay, job.aligned, job.lay.residual_wide);
  if (!c.plan.tuned) c.plan = plan_plain(job.lay);
  c.sums = plan_sums(device, c.plan, job.lay, c.wide);
  return c;
}

/* ---- workspace ---- */

/* a*b, at most INT64_MAX. */
static int64_t product(int64_t a, int64_t b) {
  return a != 0 && b > INT64_MAX / a ? INT64_MAX : a * b;
}

static int64_t sum(int64_t a, int64_t b) {
  return b > INT64_MAX - a ? INT64_MAX : a + b;
}

static int64_t round_up(int64_t bytes) {
  return bytes > INT64_MAX - 63 ? INT64_MAX : (bytes + 63) / 64 * 64;
}

/* Where the parts of the workspace begin; INT64_MAX stands for what no address can reach. First the partial sums, then
 * what the plain kernels keep of a batch of rows, or what the second half of a split call keeps for the lean ones. */
struct Workspace {
  int64_t scalars, rstd, mean, total;
};

static Workspace workspace_of(const Choice &c, const Layout &lay, bool split) {
  Workspace w = {};
  const int64_t partial = product(product(c.planes, c.sums.slices), product(c.sums.shares, lay.width));
  w.total = round_up(product(partial, c.is_lean ? sizeof(float) : sizeof(double)));
  if (!c.is_lean && !c.plan.tuned) {
    w.scalars = w.total;
    w.total = sum(w.total, product(product(c.sums.slices, c.sums.batch), sizeof(RowScalars)));
  }
  if (c.is_lean && split) {
    const int64_t bytes = round_up(product(c.lean.rows, sizeof(float)));
    w.rstd = w.total;
    w.mean = w.total = sum(w.total, bytes);
    if (lay.layer) w.total = sum(w.total, bytes);
  }
  return w;
}

/* Rows can be worked on in turns; columns, and pieces that have weights of their own, cannot. */
static bool too_many_blocks(const Choice &c, const Layout &lay) {
  const int64_t tiles = c.is_lean || c.plan.tuned ? 1 : (vectors_of(lay) + 127) / 128;
  return product(product(c.sums.slices, c.sums.shares), product(tiles, c.is_lean ? 1 : c.plan.cluster)) > most_blocks;
}

/* ---- launches ---- */

static cudaError_t launch_lean(const LeanBackward &p, rms_dtype dtype, LeanShares &plan, bool layer,
                               cudaStream_t stream) {
  switch (dtype) {
  case RMS_BF16:
    return launch_lean_backward_of<__nv_bfloat16>(p, plan, layer, stream);
  case RMS_F16:
    return launch_lean_backward_of<__half>(p, plan, layer, stream);
  default:
    return launch_lean_backward_of<float>(p, plan, layer, stream);
  }
}

static cudaError_t launch_tuned(const BackwardJob &job, const Grid &grid, cudaStream_t stream, int *clusters) {
  switch (job.lay.dtype) {
  case RMS_BF16:
    return launch_backward_of<__nv_bfloat16>(job, grid, stream, clusters);
  case RMS_F16:
    return launch_backward_of<__half>(job, grid, stream, clusters);
  default:
    return launch_backward_of<float>(job, grid, stream, clusters);
  }
}

static cudaError_t run_lean(Choice &c, BackwardJob &job, const Workspace &w, char *workspace, cudaStream_t stream) {
  LeanBackward &p = c.lean;
  p.partial = reinterpret_cast<float *>(workspace);
  p.rstd = static_cast<const float *>(job.rstd), p.mean = static_cast<const float *>(job.mean);
  p.stats = job.stats_in;
  if (job.stats_in) {
    float *rstd = reinterpret_cast<float *>(workspace + w.rstd), *mean = reinterpret_cast<float *>(workspace + w.mean);
    cudaError_t error = launch_saved(job.lay, job.stats_in, p.rows, rstd, job.lay.layer ? mean : nullptr, stream);
    if (error != cudaSuccess) return error;
    p.rstd = rstd, p.mean = mean;
    p.stored = 0; /* dx comes after it */
  }
  cudaError_t error = launch_lean(p, job.lay.dtype, c.lean_plan, job.lay.layer, stream);
  job.shares = c.lean_plan.shares; /* may be fewer than planned */
  return error;
}

static cudaError_t run_tuned(const Device &device, const Choice &c, BackwardJob &job, cudaStream_t stream) {
  const Plan &plan = c.plan;
  Grid grid = {0, plan.threads, 0};
  grid.shared = plan_ring(device, plan, job.lay, c.wide, job.dresidual.data != nullptr, &job.stages);
  job.team = plan.team;
  job.cluster = plan.cluster;
  if (plan.cluster > 1) {
    int clusters = 0;
    cudaError_t error = launch_tuned(job, grid, stream, &clusters);
    if (error != cudaSuccess) return error;
    const int64_t most = clusters / job.slices > 0 ? clusters / job.slices : 1;
    if (job.shares > most) job.shares = most;
  }
  const int teams = plan.team <= 32 ? plan.threads / plan.team : 1;
  job.partial_is_f64 = job.slice_rows > job.shares * teams * BLOCK_ROWS;
  grid.blocks = job.slices * job.shares * plan.cluster;
  return launch_tuned(job, grid, stream, nullptr);
}

/* Rows in batches: their sums first, then everything that is made of them. */
static cudaError_t run_plain(const Plan &plan, BackwardJob &job, int64_t batch, cudaStream_t stream) {
  const int64_t tiles = (vectors_of(job.lay) + 127) / 128;
  job.team = plan.team;
  job.partial_is_f64 = true;
  for (job.first = 0; job.first < job.slice_rows; job.first += batch) {
    job.count = job.slice_rows - job.first < batch ? job.slice_rows - job.first : batch;
    cudaError_t error = launch_plain_rows(job, grid_of(plan, job.slices * job.count), stream);
    const Grid grid = {tiles * job.shares * job.slices, 128, 0};
    if (error == cudaSuccess && job.scalars) error = launch_plain_columns(job, grid, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

/* dx and dresidual_out alone, or the sums of the split form. */
static cudaError_t run_rows(const Device &device, BackwardJob job, cudaStream_t stream) {
  const Plan plan = plan_plain(job.lay);
  const Sums sums = plan_sums(device, plan, job.lay, false);
  job.slices = sums.slices;
  job.slice_rows = sums.slice_rows;
  job.scalars = nullptr;
  job.want_dweight = job.want_dbias = false;
  return run_plain(plan, job, most_blocks / job.slices > 0 ? most_blocks / job.slices : 1, stream);
}

/* Everything that a call asks for, but for the end of dweight and dbias. */
static cudaError_t run_choice(const Device &device, Choice &c, BackwardJob &job, const Workspace &w, char *workspace,
                              cudaStream_t stream) {
  if (c.is_lean) return run_lean(c, job, w, workspace, stream);
  if (c.plan.tuned) return run_tuned(device, c, job, stream);
  if (c.planes == 0) return run_rows(device, job, stream);
  job.scalars = reinterpret_cast<RowScalars *>(workspace + w.scalars);
  return run_plain(c.plan, job, c.sums.batch, stream);
}

/* A half of a split call. Its column sums come from the kernels of the whole call, which give them the same bits, and
 * dx after them from those that know the sums over all shards: it may be written over what both read. */
static cudaError_t run_half(const Device &device, Choice &c, BackwardJob &job, const Workspace &w, char *workspace,
                            cudaStream_t stream) {
  const bool plain = !c.is_lean && !c.plan.tuned;
  if (c.planes > 0 && plain) return run_choice(device, c, job, w, workspace, stream);
  const BackwardJob rows = job;
  if (c.planes > 0) {
    job.dx.data = job.dresidual_out.data = nullptr;
    job.add_to_dx = false;
    cudaError_t error = run_choice(device, c, job, w, workspace, stream);
    if (error != cudaSuccess) return error;
  }
  return rows.dx.data || rows.dresidual_out.data || rows.sums_out ? run_rows(device, rows, stream) : cudaSuccess;
}

/* ---- a call ---- */

rms_status run_backward(const rms_spec *spec, const rms_backward_args *args, int flags, const rms_stat *stats_in,
                        const rms_grad_sum *sums_in, rms_grad_sum *sums_out, cudaStream_t stream) {
  rms_backward_job checked;
  int64_t segments;
  rms_status status =
      rms_check_backward(spec, args, flags | RMS_CHECK_DEVICE, stats_in, sums_in, sums_out, &checked, &segments);
  if (status) return status;
  BackwardJob job = backward_job(checked, args);
  if (sums_out) job.want_dweight = job.want_dbias = job.add_to_dx = false;
  const bool columns = job.want_dweight || job.want_dbias, rows = job.dx.data || job.dresidual_out.data || sums_out;
  if ((segments == 0 && !columns) || (!columns && !rows)) return RMS_OK;
  const bool workspace_needed = columns && segments > 0;
  if (workspace_needed && (!args->workspace || (uintptr_t)args->workspace % 64 != 0)) return RMS_E_WORKSPACE;
  LastError last;
  Device device;
  cudaError_t error = query_device(&device);
  if (!last.settle(error)) return RMS_E_DEVICE;

  Choice choice = choose(device, job, args->rstd && (!job.lay.layer || args->mean));
  const Workspace w = workspace_of(choice, job.lay, stats_in != nullptr);
  if (workspace_needed && w.total == INT64_MAX) return RMS_E_SIZE;
  if (workspace_needed && args->workspace_bytes < (size_t)w.total) return RMS_E_WORKSPACE;
  if (too_many_blocks(choice, job.lay)) return RMS_E_SIZE;
  job.slices = choice.sums.slices;
  job.slice_rows = choice.sums.slice_rows;
  job.shares = choice.sums.shares;
  char *workspace = static_cast<char *>(args->workspace);
  job.partial = workspace;
  if (segments > 0)
    error = stats_in ? run_half(device, choice, job, w, workspace, stream)
                     : run_choice(device, choice, job, w, workspace, stream);
  const bool overlap = segments > 0 && device.clusters && (choice.is_lean || choice.plan.tuned);
  if (error == cudaSuccess && columns) error = launch_finish(finish_job(args, checked, job), overlap, stream);
  return last.settle(error) ? RMS_OK : RMS_E_DEVICE;
}

size_t backward_workspace(const Device &device, const rms_spec *spec, const rms_backward_args *args) {
  rms_backward_job checked;
  int64_t segments;
  const int flags = RMS_CHECK_SPLIT | RMS_CHECK_DEVICE | RMS_CHECK_QUERY;
  if (rms_check_backward(spec, args, flags, nullptr, nullptr, nullptr, &checked, &segments)) return 0;
  const BackwardJob job = backward_job(checked, args);
  if (segments == 0 || !(job.want_dweight || job.want_dbias)) return 0;
  const Choice choice = choose(device, job, args->rstd && (!job.lay.layer || args->mean));
  const Workspace w = workspace_of(choice, job.lay, true); /* a call, or the second half of a split one */
  return w.total == INT64_MAX || too_many_blocks(choice, job.lay) ? 0 : (size_t)w.total;
}

} // namespace rms_cuda
