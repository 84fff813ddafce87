/* SPDX-License-Identifier: MIT
 *
 * rms_forward and the two halves of it: check, choose the kernel, run it over the segments. */
#include <stddef.h>
#include "apart.h"
#include "check.h"
#include "fp_env.h"
#include "quantise.h"
#include "run.h"
#include "sized.h"
#include "strategy.h"

typedef struct {
  rms_forward_job job;
  rms_forward_fn *kernel;
  const rms_kernels *kernels;
  int64_t traffic; /* bytes of all the tensors of rows that one segment touches */
  int64_t rows;    /* of the call, and their tiles, where their elements lie apart */
  rms_tiles tiles;
} forward_run;

/* Whether it makes a difference in which way the rows of a job that streams are written: where little is computed. */
static rms_row_kind row_kind(const rms_forward_job *job) {
  return job->stream_y && !job->residual.data && !job->gate.data ? rms_row_kind_of(RMS_FORWARD, &job->lay)
                                                                 : RMS_ONE_WAY;
}

static void run_forward_by(const void *arg, int64_t first, int64_t last, rms_way way) {
  const forward_run *r = arg;
  rms_forward_job job = r->job;
  job.way = way;
  r->kernel(&job, first, last);
}

static void run_forward(const void *arg, int64_t first, int64_t last) {
  const forward_run *r = arg;
  const rms_row_kind kind = row_kind(&r->job);
  if (kind != RMS_ONE_WAY)
    rms_run_strategy(rms_isa_number(r->kernels), kind, r->traffic, first, last, run_forward_by, r);
  else
    r->kernel(&r->job, first, last);
}

/* Units first..last-1 of rows whose elements lie apart. */
static void run_forward_apart(const void *arg, int64_t first, int64_t last) {
  const forward_run *r = arg;
  const int64_t end = last * r->tiles.unit, rows = r->rows;
  rms_forward_apart(&r->job, &r->tiles, r->kernels, r->kernel, first * r->tiles.unit, end < rows ? end : rows);
}

static rms_status forward_apart(forward_run *r, const rms_executor *executor) {
  r->tiles = rms_plan_forward_tiles(&r->job);
  const int64_t units = (r->rows + r->tiles.unit - 1) / r->tiles.unit;
  const int64_t bytes_each = r->tiles.unit * r->job.lay.groups * r->traffic;
  if (!rms_open_tiles(&r->tiles, &r->job.lay, rms_tasks_at_once(executor, units, bytes_each))) return RMS_E_MEMORY;
  rms_run_tasks(executor, units, bytes_each, run_forward_apart, r);
  rms_close_rooms(&r->tiles.rooms);
  return RMS_OK;
}

static void run_quantised(const void *arg, int64_t first, int64_t last) {
  const forward_run *r = arg;
  rms_forward_quantised(r->kernels, &r->job, first, last);
}

/* Bytes of all the tensors of rows that one segment touches. */
static int64_t segment_traffic(const rms_forward_job *job) {
  int64_t size = (int64_t)rms_dtype_size(job->lay.dtype), bytes = size;
  if (job->y.data) bytes += (int64_t)rms_dtype_size(job->y_type);
  if (job->gate.data) bytes += size;
  if (job->residual.data) {
    int64_t residual = job->lay.residual_is_f32 ? 4 : size;
    bytes += job->residual_out.data ? 2 * residual : residual;
  }
  bytes *= job->lay.width;
  return job->q.rows.data ? bytes + rms_quantised_bytes(job->q.type, job->lay.width) : bytes;
}

static void choose_stores(rms_forward_job *job, int64_t segments, int64_t traffic, const rms_executor *executor) {
  if (!rms_streams(segments, traffic, 1, executor)) return;
  job->fetch_ahead = true;
  int64_t y_bytes = job->lay.width * (int64_t)rms_dtype_size(job->y_type);
  int64_t residual_size = job->lay.residual_is_f32 ? 4 : (int64_t)rms_dtype_size(job->lay.dtype);
  const rms_rows *y = &job->y, *r = &job->residual_out;
  job->stream_y = rms_can_stream(y, &job->lay, y_bytes, segments) && !rms_same_rows(y, &job->x) &&
                  !rms_same_rows(y, &job->residual) && !rms_same_rows(y, &job->gate);
  job->stream_residual = rms_can_stream(r, &job->lay, job->lay.width * residual_size, segments) &&
                         !rms_same_rows(r, &job->x) && !rms_same_rows(r, &job->residual) &&
                         !rms_same_rows(r, &job->gate);
  if (job->q.rows.data)
    job->q.stream = rms_can_stream(&job->q.rows, &job->lay, rms_quantised_bytes(job->q.type, job->lay.width), segments);
}

static rms_status forward(const rms_spec *spec, const rms_forward_args *args, int flags, const rms_stat *stats_in,
                          rms_stat *stats_out, const rms_executor *executor) {
  forward_run r;
  int64_t segments;
  rms_status status = rms_check_executor(executor);
  if (!flags && rms_check_common_forward(spec, args)) {
    rms_fill_common_forward(spec, args, &r.job);
    segments = args->outer;
  } else {
    rms_status refused = rms_check_forward(spec, args, flags, stats_in, stats_out, &r.job, &segments);
    if (refused) return refused;
  }
  if (status) return status;
  const rms_kernels *kernels = rms_active_kernels();
  if (!kernels) return RMS_E_ISA;
  if (rms_stream_threshold() < 0) return RMS_E_ENVIRONMENT;
  const bool wide = r.job.gate.data || r.job.lay.steps >= RMS_STEPS_RSTD;
  const rms_kernels *own =
      wide && r.job.lay.dtype != RMS_BF16 ? kernels : rms_kernels_of_type(kernels, r.job.lay.dtype);
  r.kernel = (stats_out ? own->stats : wide ? own->wide_forward : own->forward)[r.job.lay.dtype];
  r.traffic = segment_traffic(&r.job);
  if (!stats_out) choose_stores(&r.job, segments, r.traffic, executor);
  r.kernels = r.job.lay.dtype == RMS_F16 ? kernels : own;
  r.rows = segments / r.job.lay.groups;
  if (r.job.lay.apart) return forward_apart(&r, executor);
  rms_run_tasks(executor, segments, r.traffic, r.job.q.rows.data ? run_quantised : run_forward, &r);
  return RMS_OK;
}

/* A common call of one short row, straight to its kernel. False: nothing was done. */
static bool forward_row(const rms_spec *spec, const rms_forward_args *args) {
  if (args->outer != 1) return false;
  int64_t traffic = 2 * rms_check_common_forward(spec, args);
  const rms_kernels *kernels = rms_active_kernels();
  if (!traffic || !kernels || traffic >= RMS_SERIAL_BYTES || traffic > rms_stream_threshold()) return false;
  int32_t dtype = args->x.dtype, weight_dtype = args->weight_dtype;
  kernels = rms_kernels_of_type(kernels, (rms_dtype)dtype);
  rms_fp_word callers = rms_fp_enter();
  bool done = kernels->row[dtype](
      args->y.data, args->x.data, args->weight, spec->cols, spec->partial ? spec->partial : spec->cols, spec->eps,
      weight_dtype != RMS_AS_X && weight_dtype != dtype, spec->rounding == RMS_ROUND_BEFORE_WEIGHT);
  rms_fp_leave(callers);
  return done;
}

/* ---- entry points ---- */

rms_status rms_forward_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                             const rms_executor *executor) {
  rms_forward_structs room;
  rms_status status = rms_take_forward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  if (rms_check_executor(executor) == RMS_OK && forward_row(spec, args)) return RMS_OK;
  return forward(spec, args, 0, NULL, NULL, executor);
}

rms_status rms_stats_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                           rms_stat *stats, const rms_executor *executor) {
  rms_forward_structs room;
  rms_status status = rms_take_forward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  if (!stats) return RMS_E_ARGUMENT;
  return forward(spec, args, RMS_CHECK_SPLIT | RMS_CHECK_STATS, NULL, stats, executor);
}

rms_status rms_apply_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                           const rms_stat *stats, const rms_executor *executor) {
  rms_forward_structs room;
  rms_status status = rms_take_forward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  if (!stats) return RMS_E_ARGUMENT;
  return forward(spec, args, RMS_CHECK_SPLIT, stats, NULL, executor);
}

static void merge_stats(bool layer, int64_t count, rms_stat *into, const rms_stat *from) {
  for (int64_t i = 0; i < count; i++) {
    rms_stat a = into[i], b = from[i];
    double n = a.count + b.count;
    into[i].count = n;
    into[i].m2 = a.m2 + b.m2;
    if (!layer || n == 0) continue;
    /* An empty side leaves the other's bits alone. */
    if (b.count == 0) continue;
    if (a.count == 0) {
      into[i].mean = b.mean;
      continue;
    }
    double difference = b.mean - a.mean;
    into[i].mean = a.mean + difference * (b.count / n);
    into[i].m2 += difference * difference * (a.count * (b.count / n));
  }
}

rms_status rms_stats_merge_sized(const rms_spec *spec, size_t spec_size, int64_t count, rms_stat *into,
                                 const rms_stat *from) {
  rms_spec room;
  rms_layout lay;
  if (!spec) return RMS_E_ARGUMENT;
  spec = rms_sized(spec, spec_size, &room, sizeof room);
  if (!spec) return RMS_E_VERSION;
  rms_status status = rms_check_spec(spec, RMS_F64, RMS_CHECK_SPLIT, &lay); /* statistics are doubles */
  if (status) return status;
  if (count < 0 || (count > 0 && (!into || !from))) return RMS_E_ARGUMENT;
  if (((uintptr_t)into | (uintptr_t)from) % sizeof(double)) return RMS_E_ALIGNMENT;
  rms_fp_word callers = rms_fp_enter();
  merge_stats(spec->kind == RMS_KIND_LAYER, count, into, from);
  rms_fp_leave(callers);
  return RMS_OK;
}

rms_status rms_norm_f32(float *y, const float *x, const float *weight, int64_t rows, int64_t cols, double eps) {
  static const rms_const_view no_input;
  static const rms_view no_output;
  rms_spec spec;
  rms_forward_args args;
  spec.cols = cols;
  spec.eps = eps;
  spec.partial = spec.groups = 0;
  spec.indices = NULL;
  spec.weight_offset = 0;
  spec.kind = RMS_KIND_RMS;
  spec.eps_place = RMS_EPS_INSIDE;
  spec.rounding = RMS_ROUND_AFTER_WEIGHT;
  spec.weight_per_inner = 0;
  spec.gate_place = RMS_GATE_NONE;
  spec.activation = RMS_ACT_SILU;
  spec.scale_block = 0;
  spec.scale_least = 0;
  spec.gain_rounding = RMS_GAIN_WIDE;
  spec.steps = RMS_STEPS_WIDE;
  args.outer = rows;
  args.inner = 1;
  args.x = args.residual = args.gate = no_input;
  args.y = args.residual_out = args.q = no_output;
  args.scale = NULL;
  args.weight_stride = 0;
  args.x.data = x;
  args.x.dtype = RMS_F32;
  args.y.data = y;
  args.weight = weight;
  args.bias = NULL;
  args.rstd = args.mean = NULL;
  args.weight_dtype = args.bias_dtype = RMS_AS_X;
  return rms_forward(&spec, &args, NULL);
}
