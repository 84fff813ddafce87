/* SPDX-License-Identifier: MIT
 *
 * rms_backward and the two halves of it: check, choose the kernel, run it over the segments. dx is independent row by
 * row; dweight and dbias are summed over chunks of rows (cpu/column_sums.h). */
#include <string.h>
#include "../cpu/column_sums.h"
#include "apart.h"
#include "check.h"
#include "run.h"
#include "sized.h"
#include "strategy.h"

typedef struct {
  rms_backward_job job;
  const rms_kernels *kernels;
  rms_backward_fn *kernel;
  rms_backward_stats_fn *stats_kernel;
  rms_sums_plan plan;
  char *workspace;
  rms_gradient dweight, dbias;
  int64_t traffic;         /* bytes of all the tensors of rows that one segment touches */
  int64_t parts;           /* that the columns are finished in */
  rms_columns_fn *columns; /* makes gradients of the sums of one block, which all rows are (or those of an inner index
                              may be); or NULL */
  int64_t rows;            /* of the call, and their tiles, where their elements lie apart */
  rms_tiles tiles;
} backward_run;

/* As in the forward: of jobs whose rows the kernels take together, because all others go one way. */
static rms_row_kind row_kind_back(const rms_backward_job *job) {
  const rms_layout *lay = &job->lay;
  const bool together = !job->gate.data && !job->dresidual.data && !job->dresidual_out.data && !job->add_to_dx &&
                        !job->x_is_f32 && job->dy_type == lay->dtype && !job->drstd && !job->dmean && !lay->indices &&
                        lay->groups == 1 && !lay->apart && lay->steps <= RMS_STEPS_RSTD;
  return job->stream_dx && together ? rms_row_kind_of(RMS_BACKWARD, lay) : RMS_ONE_WAY;
}

static void move_rows(rms_rows *rows, int64_t inner) {
  if (rows->data) rows->data += inner * rows->inner;
}

/* The rows of one inner index as a job of their own. */
static rms_backward_job job_of_inner(const rms_backward_job *job, int64_t inner) {
  rms_backward_job one = *job;
  const int64_t first = inner * job->lay.groups, size = job->lay.dtype == RMS_F64 ? 8 : 4;
  rms_rows *rows[] = {&one.dy, &one.x, &one.dresidual, &one.gate, &one.dx, &one.dresidual_out, &one.dgate};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    move_rows(rows[i], inner);
  if (one.lay.weight) one.lay.weight += inner * job->lay.weight_inner;
  if (one.bias) one.bias += inner * job->lay.weight_inner;
  if (one.rstd) one.rstd = (const char *)one.rstd + first * size;
  if (one.mean) one.mean = (const char *)one.mean + first * size;
  if (one.drstd) one.drstd = (const char *)one.drstd + first * size;
  if (one.dmean) one.dmean = (const char *)one.dmean + first * size;
  if (one.stats_in) one.stats_in += first;
  if (one.sums_in) one.sums_in += first;
  one.row_step = job->lay.inner;
  one.lay.inner = 1;
  one.lay.weight_inner = 0;
  one.lay.per_inner = false;
  return one;
}

/* Rows up to this size are quicker together with others that share their weight, if there are a few of them. */
enum { SHORT_BYTES = 1024, FEW_ROWS = 4 };

static bool is_by_inner(const rms_layout *lay, int64_t rows) {
  return lay->per_inner && lay->inner > 1 && rows >= FEW_ROWS * lay->inner && !lay->apart &&
         lay->width * (int64_t)rms_dtype_size(lay->dtype) <= SHORT_BYTES;
}

/* Rows first..last-1 whose inner indices have weights of their own: of each block the rows of one index after those of
 * the other. No sum changes: there is one for each index, and its rows keep their order and their blocks. */
static void run_by_inner(const backward_run *r, const rms_backward_job *job, const rms_column_sums *sums, int64_t first,
                         int64_t last) {
  const int64_t step = job->lay.inner, groups = job->lay.groups, piece = groups * r->plan.pitch;
  const size_t totals = (size_t)r->plan.elements * sizeof(double);
  if (sums->dweight_total) memset(sums->dweight_total, 0, totals);
  if (sums->dbias_total) memset(sums->dbias_total, 0, totals);
  for (int64_t next; first < last; first = next) {
    next = last - first > RMS_BLOCK_ROWS * step ? first + RMS_BLOCK_ROWS * step : last;
    for (int64_t inner = 0; inner < step; inner++) {
      const int64_t from = (first - inner + step - 1) / step, to = (next - inner + step - 1) / step;
      rms_backward_job one = job_of_inner(job, inner);
      rms_column_sums of = *sums;
      one.go_on = true;
      if (of.dweight_block) of.dweight_block = (char *)of.dweight_block + inner * piece * r->plan.real;
      if (of.dbias_block) of.dbias_block = (char *)of.dbias_block + inner * piece * r->plan.real;
      if (of.dweight_total) of.dweight_total += inner * piece;
      if (of.dbias_total) of.dbias_total += inner * piece;
      if (from < to) r->kernel(&one, &of, from * groups, to * groups);
    }
  }
}

static void run_chunk(const backward_run *r, const rms_backward_job *job, int64_t chunk) {
  int64_t first = rms_chunk_start(&r->plan, chunk), last = rms_chunk_start(&r->plan, chunk + 1);
  rms_column_sums sums = rms_chunk_sums(&r->plan, r->workspace, chunk);
  if (r->columns) sums.dweight_total = sums.dbias_total = NULL;
  if (sums.dweight_block) memset(sums.dweight_block, 0, (size_t)(r->plan.elements * r->plan.real));
  if (sums.dbias_block) memset(sums.dbias_block, 0, (size_t)(r->plan.elements * r->plan.real));
  if (job->lay.apart)
    rms_backward_apart(job, &r->tiles, r->kernels, r->kernel, &sums, first, last);
  else if (is_by_inner(&job->lay, last - first))
    run_by_inner(r, job, &sums, first, last);
  else
    r->kernel(job, &sums, first * job->lay.groups, last * job->lay.groups);
}

static void run_chunks_by(const void *arg, int64_t first, int64_t last, rms_way way) {
  const backward_run *r = arg;
  rms_backward_job job = r->job;
  job.way = way;
  for (int64_t chunk = first; chunk < last; chunk++)
    run_chunk(r, &job, chunk);
}

static void run_chunks(const void *arg, int64_t first, int64_t last) {
  const backward_run *r = arg;
  const rms_row_kind kind = row_kind_back(&r->job);
  if (kind != RMS_ONE_WAY)
    rms_run_strategy(rms_isa_number(r->kernels), kind, r->plan.rows / r->plan.chunks * r->job.lay.groups * r->traffic,
                     first, last, run_chunks_by, r);
  else
    for (int64_t chunk = first; chunk < last; chunk++)
      run_chunk(r, &r->job, chunk);
}

/* Units first..last-1 of rows whose elements lie apart; no sums over them are wanted. */
static void run_rows_apart(const void *arg, int64_t first, int64_t last) {
  const backward_run *r = arg;
  const rms_column_sums none = {NULL, NULL, NULL, NULL};
  const int64_t from = first * r->tiles.unit, end = last * r->tiles.unit, to = end < r->rows ? end : r->rows;
  if (r->job.sums_out)
    rms_backward_stats_apart(&r->job, &r->tiles, r->kernels, r->stats_kernel, from, to);
  else
    rms_backward_apart(&r->job, &r->tiles, r->kernels, r->kernel, &none, from, to);
}

static void run_rows_by(const void *arg, int64_t first, int64_t last, rms_way way) {
  const backward_run *r = arg;
  const rms_column_sums none = {NULL, NULL, NULL, NULL};
  rms_backward_job job = r->job;
  job.way = way;
  r->kernel(&job, &none, first, last);
}

static void run_rows(const void *arg, int64_t first, int64_t last) {
  const backward_run *r = arg;
  const rms_row_kind kind = row_kind_back(&r->job);
  if (r->job.sums_out)
    r->stats_kernel(&r->job, first, last);
  else if (kind != RMS_ONE_WAY)
    rms_run_strategy(rms_isa_number(r->kernels), kind, r->traffic, first, last, run_rows_by, r);
  else
    run_rows_by(r, first, last, r->job.way);
}

/* Strips first..last-1 of the only block of rows, piece by piece. */
static void write_block(const backward_run *r, const rms_gradient *out, const void *block, int64_t first,
                        int64_t last) {
  const int64_t width = r->job.lay.width, pitch = r->plan.pitch, end = last * RMS_STRIP;
  for (int64_t at = first * RMS_STRIP, next; out->data && at < end; at = next) {
    const int64_t piece = at / pitch, column = at - piece * pitch;
    next = (piece + 1) * pitch < end ? (piece + 1) * pitch : end;
    const int64_t count = next - at < width - column ? next - at : width - column;
    char *to = (char *)out->data + (piece * width + column) * (int64_t)rms_dtype_size(out->type);
    r->columns(to, (const char *)block + at * r->plan.real, count, out->type);
  }
}

static void run_finish(const void *arg, int64_t first, int64_t last) {
  const backward_run *r = arg;
  const int64_t strips = r->plan.elements / RMS_STRIP, each = strips / r->parts, more = strips % r->parts;
  first = first * each + (first < more ? first : more);
  last = last * each + (last < more ? last : more);
  if (r->columns) {
    const rms_column_sums sums = rms_chunk_sums(&r->plan, r->workspace, 0);
    write_block(r, &r->dweight, sums.dweight_block, first, last);
    write_block(r, &r->dbias, sums.dbias_block, first, last);
    return;
  }
  for (int64_t i = first; i < last; i++) {
    if (r->dweight.data) rms_finish_strip(&r->plan, &r->job.lay, r->workspace, &r->dweight, false, i);
    if (r->dbias.data) rms_finish_strip(&r->plan, &r->job.lay, r->workspace, &r->dbias, true, i);
  }
}

/* ---- sums by inner index ---- */

static void clear_sums(const rms_column_sums *sums, const rms_sums_plan *one, bool totals) {
  const size_t elements = (size_t)one->elements;
  if (sums->dweight_block) memset(sums->dweight_block, 0, elements * (size_t)one->real);
  if (sums->dbias_block) memset(sums->dbias_block, 0, elements * (size_t)one->real);
  if (totals && sums->dweight_total) memset(sums->dweight_total, 0, elements * sizeof(double));
  if (totals && sums->dbias_total) memset(sums->dbias_total, 0, elements * sizeof(double));
}

static void add_part(double *total, const double *part, int64_t count) {
  for (int64_t i = 0; total && i < count; i++)
    total[i] += part[i];
}

/* A chunk of several blocks: its totals are made apart. */
static void sum_blocks(const backward_run *r, const rms_backward_job *job, const rms_sums_plan *one,
                       const rms_column_sums *totals, int64_t first, int64_t last) {
  rms_column_sums part = *totals;
  char *behind = (char *)(totals->dweight_total ? totals->dweight_total : totals->dbias_total) + one->chunk_bytes;
  if (part.dweight_total) part.dweight_total = (double *)(void *)behind, behind += one->elements * 8;
  if (part.dbias_total) part.dbias_total = (double *)(void *)behind;
  r->kernel(job, &part, first, last);
  add_part(totals->dweight_total, part.dweight_total, one->elements);
  add_part(totals->dbias_total, part.dbias_total, one->elements);
  clear_sums(totals, one, false);
}

/* The rows of one inner index, chunk by chunk. */
static void sum_inner(const backward_run *r, const rms_sums_plan *one, const rms_column_sums *totals, int64_t inner) {
  rms_backward_job job = job_of_inner(&r->job, inner);
  const int64_t step = r->job.lay.inner, rows = r->plan.rows / step, groups = job.lay.groups;
  clear_sums(totals, one, true);
  for (int64_t first = 0, last; first < rows; first = last) {
    const int64_t chunk = rms_chunk_of(&r->plan, first * step + inner);
    last = (rms_chunk_start(&r->plan, chunk + 1) - inner + step - 1) / step;
    job.go_on = last - first <= RMS_BLOCK_ROWS;
    if (job.go_on)
      r->kernel(&job, totals, first * groups, last * groups);
    else
      sum_blocks(r, &job, one, totals, first * groups, last * groups);
  }
}

/* All rows of an inner index are one block, whose sums become the gradients as they are. */
static bool is_block_of_inner(const backward_run *r, int64_t inner) {
  const int64_t step = r->job.lay.inner, rows = r->plan.rows / step;
  return r->columns && rows <= RMS_BLOCK_ROWS &&
         rms_chunk_of(&r->plan, inner) == rms_chunk_of(&r->plan, (rows - 1) * step + inner);
}

static void sum_block_of_inner(const backward_run *r, const rms_sums_plan *one, const rms_column_sums *totals,
                               int64_t inner) {
  const rms_backward_job job = job_of_inner(&r->job, inner);
  const rms_column_sums block = {totals->dweight_block, totals->dbias_block, NULL, NULL};
  clear_sums(&block, one, false);
  r->kernel(&job, &block, 0, r->plan.rows / r->job.lay.inner * job.lay.groups);
}

static void write_inner(const backward_run *r, const rms_gradient *out, const char *block, int64_t inner) {
  const int64_t groups = r->job.lay.groups, width = r->job.lay.width, size = (int64_t)rms_dtype_size(out->type);
  for (int64_t g = 0; out->data && g < groups; g++)
    r->columns((char *)out->data + (inner * groups + g) * width * size, block + g * r->plan.pitch * r->plan.real, width,
               out->type);
}

static void finish_inner(const backward_run *r, const rms_sums_plan *one, char *room, rms_gradient out, bool bias,
                         int64_t inner) {
  const rms_layout *lay = &r->job.lay;
  if (!out.data) return;
  out.data = (char *)out.data + inner * lay->groups * lay->width * (int64_t)rms_dtype_size(out.type);
  for (int64_t strip = 0; strip < one->elements / RMS_STRIP; strip++)
    rms_finish_strip(one, lay, room, &out, bias, strip);
}

static void run_slots(const void *arg, int64_t first, int64_t last) {
  const backward_run *r = arg;
  const rms_sums_plan one = rms_plan_inner(&r->plan, &r->job.lay);
  const int64_t each = r->job.lay.inner / r->plan.slots, more = r->job.lay.inner % r->plan.slots;
  for (int64_t slot = first; slot < last; slot++) {
    char *room = r->workspace + slot * r->plan.slot_bytes;
    const rms_column_sums totals = rms_chunk_sums(&one, room, 0);
    const int64_t start = slot * each + (slot < more ? slot : more), end = start + each + (slot < more);
    for (int64_t inner = start; inner < end; inner++) {
      if (is_block_of_inner(r, inner)) {
        sum_block_of_inner(r, &one, &totals, inner);
        write_inner(r, &r->dweight, totals.dweight_block, inner);
        write_inner(r, &r->dbias, totals.dbias_block, inner);
        continue;
      }
      sum_inner(r, &one, &totals, inner);
      finish_inner(r, &one, room, r->dweight, false, inner);
      finish_inner(r, &one, room, r->dbias, true, inner);
    }
  }
}

/* ---- a whole call ---- */

/* Gates, gradients of statistics, a dy to be widened on its own, and roundings beside those that most models have: see
 * rms_kernels. */
static bool has_more_arithmetic(const rms_backward_job *job) {
  const rms_layout *lay = &job->lay;
  return job->gate.data || job->drstd || job->dmean || job->dy_type != lay->dtype || lay->steps != RMS_STEPS_WIDE ||
         (lay->kind == RMS_KIND_LAYER && lay->rounding == RMS_ROUND_BEFORE_WEIGHT);
}

static int64_t gradient_traffic(const rms_backward_job *job) {
  int64_t size = (int64_t)rms_dtype_size(job->lay.dtype), residual = job->lay.residual_is_f32 ? 4 : size;
  int64_t bytes = size + (job->dy.data ? (int64_t)rms_dtype_size(job->dy_type) : 0);
  if (job->dx.data) bytes += size;
  if (job->gate.data) bytes += size;
  if (job->dgate.data) bytes += size;
  if (job->dresidual.data) bytes += residual;
  if (job->dresidual_out.data) bytes += residual;
  return bytes * job->lay.width;
}

static bool stream_output(const rms_rows *out, const rms_backward_job *job, int64_t size, int64_t segments) {
  return rms_can_stream(out, &job->lay, job->lay.width * size, segments) && !rms_same_rows(out, &job->dy) &&
         !rms_same_rows(out, &job->x) && !rms_same_rows(out, &job->dresidual) && !rms_same_rows(out, &job->gate);
}

static int64_t chunk_traffic(const rms_sums_plan *plan, int64_t segments, int64_t traffic) {
  return (segments / plan->chunks + 1) * traffic;
}

/* With sums over rows (plan, or NULL) only as many threads work as there are chunks, and half of a thread's cache is
 * what they have for the rows. */
static bool streams_gradients(int64_t segments, int64_t traffic, const rms_sums_plan *plan,
                              const rms_executor *executor) {
  if (!plan || plan->chunks == 1) return rms_streams(segments, traffic, 1, executor);
  return rms_streams(plan->chunks, chunk_traffic(plan, segments, traffic), 2, executor);
}

static void choose_gradient_stores(rms_backward_job *job, int64_t segments, int64_t traffic, const rms_sums_plan *plan,
                                   const rms_executor *executor) {
  const int64_t second_level = 1 << 20, size = (int64_t)rms_dtype_size(job->lay.dtype);
  job->fetch_ahead = segments * traffic > second_level;
  if (!streams_gradients(segments, traffic, plan, executor)) return;
  job->stream_dx = !job->add_to_dx && stream_output(&job->dx, job, size, segments);
  job->stream_dgate = stream_output(&job->dgate, job, size, segments);
  job->stream_residual = stream_output(&job->dresidual_out, job, job->lay.residual_is_f32 ? 4 : size, segments);
}

/* Without rows the sums are zeros. */
static void set_empty(const rms_gradient *out, const rms_layout *lay) {
  size_t count = (size_t)((lay->per_inner ? lay->inner : 1) * lay->groups * lay->width);
  if (out->data && !out->accumulate) memset(out->data, 0, count * rms_dtype_size(out->type));
}

static bool plan_call(const rms_backward_args *args, const rms_layout *lay, rms_sums_plan *plan) {
  return rms_plan_sums(lay, args->outer * lay->inner, args->dweight != NULL, args->dbias != NULL, plan);
}

/* Whether the block's sums can be written as this gradient. */
static bool is_direct(const rms_gradient *out, rms_dtype data) {
  return !out->data || (!out->accumulate && (out->type == data || (out->type == RMS_F32 && data != RMS_F64)));
}

/* Whether the kernel for one block can write the gradients. By inner index that is decided for each. */
static bool is_one_block(const backward_run *r) {
  const rms_dtype data = r->job.lay.dtype;
  const bool one = r->plan.chunks == 1 && r->plan.rows <= RMS_BLOCK_ROWS;
  return (one || r->plan.slots) && is_direct(&r->dweight, data) && is_direct(&r->dbias, data);
}

/* The columns are finished by as many threads as chunks were summed by, since the others may have gone to sleep. Most
 * of the sums lie in the caches of other cores, from where a byte takes about `far` times as long as from the own one.
 */
static void run_sums(backward_run *r, int64_t segments, const rms_executor *executor) {
  const int64_t strips = r->plan.elements / RMS_STRIP, chunks = r->plan.chunks, far = chunks > 1 ? 8 : 1;
  r->job.pitch = r->plan.pitch;
  if (r->plan.slots) {
    rms_run_tasks(executor, r->plan.slots, segments / r->plan.slots * r->traffic, run_slots, r);
    return;
  }
  r->parts = chunks > 1 && chunks < strips ? chunks : strips;
  rms_run_tasks(executor, chunks, chunk_traffic(&r->plan, segments, r->traffic), run_chunks, r);
  rms_run_tasks(executor, r->parts, far * chunks * 8 * (r->plan.elements / r->parts), run_finish, r);
}

static rms_status backward_apart(backward_run *r, bool wants_sums, int64_t segments, const rms_executor *executor) {
  r->rows = segments / r->job.lay.groups;
  r->tiles = rms_plan_backward_tiles(&r->job);
  const int64_t units = (r->rows + r->tiles.unit - 1) / r->tiles.unit;
  const int64_t bytes_each = r->tiles.unit * r->job.lay.groups * r->traffic;
  const int64_t tasks = wants_sums
                            ? rms_tasks_at_once(executor, r->plan.chunks, chunk_traffic(&r->plan, segments, r->traffic))
                            : rms_tasks_at_once(executor, units, bytes_each);
  if (!rms_open_tiles(&r->tiles, &r->job.lay, tasks)) return RMS_E_MEMORY;
  if (wants_sums)
    run_sums(r, segments, executor);
  else
    rms_run_tasks(executor, units, bytes_each, run_rows_apart, r);
  rms_close_rooms(&r->tiles.rooms);
  return RMS_OK;
}

static rms_status backward(const rms_spec *spec, const rms_backward_args *args, int flags, const rms_stat *stats,
                           const rms_grad_sum *sums_in, rms_grad_sum *sums_out, const rms_executor *executor) {
  backward_run r;
  int64_t segments;
  rms_status status = rms_check_backward(spec, args, flags, stats, sums_in, sums_out, &r.job, &segments);
  if (!status) status = rms_check_executor(executor);
  if (status) return status;
  bool wants_sums = !sums_out && (args->dweight || args->dbias);
  if (wants_sums && segments > 0) {
    if (!plan_call(args, &r.job.lay, &r.plan)) return RMS_E_SIZE;
    status = rms_check_workspace(args, rms_sums_bytes(&r.plan));
    if (status) return status;
  }
  const rms_kernels *kernels = rms_active_kernels();
  if (!kernels) return RMS_E_ISA;
  if (r.job.lay.dtype == RMS_BF16) kernels = rms_kernels_of_type(kernels, RMS_BF16);
  if (rms_stream_threshold() < 0) return RMS_E_ENVIRONMENT;
  r.kernels = kernels;
  r.job.way = rms_usual_way(RMS_BACKWARD, r.job.lay.dtype);
  const bool wide = has_more_arithmetic(&r.job);
  r.kernel = (wide ? kernels->wide_backward : kernels->backward)[r.job.lay.dtype];
  r.stats_kernel = kernels->backward_stats[r.job.lay.dtype];
  r.workspace = args->workspace;
  r.dweight = (rms_gradient){args->dweight, r.job.dweight_type, args->accumulate & RMS_ACCUMULATE_DWEIGHT};
  r.dbias = (rms_gradient){args->dbias, r.job.dbias_type, args->accumulate & RMS_ACCUMULATE_DBIAS};
  if (segments == 0) {
    if (wants_sums) set_empty(&r.dweight, &r.job.lay), set_empty(&r.dbias, &r.job.lay);
    return RMS_OK;
  }
  r.traffic = gradient_traffic(&r.job);
  if (!sums_out) choose_gradient_stores(&r.job, segments, r.traffic, wants_sums ? &r.plan : NULL, executor);
  r.columns =
      wants_sums && is_one_block(&r) ? (wide ? kernels->wide_columns : kernels->columns)[r.job.lay.dtype] : NULL;
  if (r.job.lay.apart) return backward_apart(&r, wants_sums, segments, executor);
  if (wants_sums)
    run_sums(&r, segments, executor);
  else
    rms_run_tasks(executor, segments, r.traffic, run_rows, &r);
  return RMS_OK;
}

/* ---- entry points ---- */

rms_status rms_backward_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args, size_t args_size,
                              const rms_executor *executor) {
  rms_backward_structs room;
  rms_status status = rms_take_backward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  return backward(spec, args, 0, NULL, NULL, NULL, executor);
}

size_t rms_backward_workspace_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                    size_t args_size) {
  rms_backward_structs room;
  rms_backward_job job;
  rms_sums_plan plan;
  int64_t segments;
  if (rms_take_backward(&spec, spec_size, &args, args_size, &room)) return 0;
  if (rms_check_backward(spec, args, RMS_CHECK_SPLIT | RMS_CHECK_QUERY, NULL, NULL, NULL, &job, &segments)) return 0;
  if (segments == 0 || !plan_call(args, &job.lay, &plan)) return 0;
  return (size_t)rms_sums_bytes(&plan);
}

rms_status rms_backward_stats_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                    size_t args_size, const rms_stat *stats, rms_grad_sum *sums,
                                    const rms_executor *executor) {
  rms_backward_structs room;
  rms_status status = rms_take_backward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  if (!stats || !sums) return RMS_E_ARGUMENT;
  return backward(spec, args, RMS_CHECK_SPLIT | RMS_CHECK_STATS, stats, NULL, sums, executor);
}

rms_status rms_backward_apply_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                    size_t args_size, const rms_stat *stats, const rms_grad_sum *sums,
                                    const rms_executor *executor) {
  rms_backward_structs room;
  rms_status status = rms_take_backward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  if (!stats || !sums) return RMS_E_ARGUMENT;
  return backward(spec, args, RMS_CHECK_SPLIT, stats, sums, NULL, executor);
}
