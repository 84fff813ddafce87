/* SPDX-License-Identifier: MIT
 *
 * rms_backward and the two halves of it. dx is independent row by row; dweight and dbias are sums over rows, which are
 * cut into chunks by the shape alone: each chunk sums its rows into its own part of the workspace, then the chunks are
 * added in order. So the bits do not depend on who runs what when. */
#include <string.h>
#include "../cpu/convert.h"
#include "check.h"
#include "run.h"
#include "sized.h"

enum {
  ROWS_PER_CHUNK = 32, /* at least, so that a chunk's fixed cost is small beside its rows  */
  MOST_CHUNKS = 64,    /* enough for as many threads                                       */
  PITCH = 64           /* pieces start on a whole number of blocks                          */
};
static const int64_t most_workspace = (int64_t)256 << 20; /* fewer chunks for very wide rows */

typedef struct {
  int64_t rows, chunks;
  int64_t pitch, elements;   /* of one piece; of all pieces of dweight                  */
  int64_t real, chunk_bytes; /* size of the arithmetic type; of one chunk's workspace   */
} sums_plan;

static int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

/* False if the sizes overflow. The number of chunks follows from the shape alone: it decides the bits. What a chunk
 * keeps is what the call asks for. */
static bool plan_sums(const rms_layout *lay, int64_t rows, bool dweight, bool dbias, sums_plan *p) {
  int64_t pieces, both, bytes;
  if (lay->width > INT64_MAX / 2) return false;
  p->rows = rows;
  p->pitch = round_up(lay->width, PITCH);
  p->real = lay->dtype == RMS_F64 ? 8 : 4;
  if (__builtin_mul_overflow(lay->per_inner ? lay->inner : 1, lay->groups, &pieces)) return false;
  if (__builtin_mul_overflow(pieces, p->pitch, &p->elements)) return false;
  if (__builtin_mul_overflow(p->elements, 2 * (8 + p->real), &both)) return false;
  p->chunk_bytes = both / 2 * ((int64_t)dweight + (int64_t)dbias);
  p->chunks = rows / ROWS_PER_CHUNK + (rows % ROWS_PER_CHUNK != 0);
  if (p->chunks > MOST_CHUNKS) p->chunks = MOST_CHUNKS;
  if (p->chunks > most_workspace / both) p->chunks = most_workspace / both;
  if (p->chunks < 1) p->chunks = 1;
  return !__builtin_mul_overflow(p->chunks, p->chunk_bytes, &bytes);
}

typedef struct {
  rms_backward_job job;
  rms_backward_fn *kernel;
  rms_backward_stats_fn *stats_kernel;
  sums_plan plan;
  char *workspace;
  const rms_backward_args *args;
} backward_run;

static rms_column_sums chunk_sums(const backward_run *r, int64_t chunk) {
  char *at = r->workspace + chunk * r->plan.chunk_bytes;
  int64_t totals = r->plan.elements * 8, blocks = r->plan.elements * r->plan.real;
  rms_column_sums s = {NULL, NULL, NULL, NULL};
  if (r->args->dweight) {
    s.dweight_total = (double *)(void *)at;
    s.dweight_block = at + totals;
    at += totals + blocks;
  }
  if (r->args->dbias) {
    s.dbias_total = (double *)(void *)at;
    s.dbias_block = at + totals;
  }
  return s;
}

static void run_chunk(const backward_run *r, int64_t chunk) {
  int64_t base = r->plan.rows / r->plan.chunks, extra = r->plan.rows % r->plan.chunks;
  int64_t first = chunk * base + (chunk < extra ? chunk : extra), last = first + base + (chunk < extra);
  rms_column_sums sums = chunk_sums(r, chunk);
  if (sums.dweight_block) memset(sums.dweight_block, 0, (size_t)(r->plan.elements * r->plan.real));
  if (sums.dbias_block) memset(sums.dbias_block, 0, (size_t)(r->plan.elements * r->plan.real));
  r->kernel(&r->job, &sums, first * r->job.lay.groups, last * r->job.lay.groups);
}

static void run_chunks(const void *arg, int64_t first, int64_t last) {
  for (int64_t chunk = first; chunk < last; chunk++)
    run_chunk(arg, chunk);
}

static void run_rows(const void *arg, int64_t first, int64_t last) {
  const backward_run *r = arg;
  const rms_column_sums none = {NULL, NULL, NULL, NULL};
  if (r->job.sums_out)
    r->stats_kernel(&r->job, first, last);
  else
    r->kernel(&r->job, &none, first, last);
}

/* ---- the end of dweight and dbias: add the chunks, round once ---- */

static double read_gradient(const char *p, int64_t i, rms_dtype type) {
  uint16_t h;
  float f;
  double d;
  switch (type) {
  case RMS_F32:
    memcpy(&f, p + 4 * i, 4);
    return (double)f;
  case RMS_F64:
    memcpy(&d, p + 8 * i, 8);
    return d;
  default:
    memcpy(&h, p + 2 * i, 2);
    return (double)(type == RMS_BF16 ? rms_f32_from_bf16(h) : rms_f32_from_f16(h));
  }
}

static void write_gradients(char *p, const double *value, int64_t count, rms_dtype type) {
  if (type == RMS_F64) {
    memcpy(p, value, (size_t)count * 8);
  } else if (type == RMS_F32) {
    for (int64_t i = 0; i < count; i++) {
      float f = (float)value[i];
      memcpy(p + 4 * i, &f, 4);
    }
  } else {
    for (int64_t i = 0; i < count; i++) {
      float odd = rms_f32_odd_from_f64(value[i]);
      uint16_t h = type == RMS_BF16 ? rms_bf16_from_f32(odd) : rms_f16_from_f32(odd);
      memcpy(p + 2 * i, &h, 2);
    }
  }
}

/* One strip of PITCH elements, of which a piece is a whole number. */
static void finish_strip(const backward_run *r, char *out, bool bias, bool accumulate, int64_t strip) {
  double sum[PITCH] = {0};
  rms_dtype type = bias ? r->job.dbias_type : r->job.dweight_type;
  int64_t first = strip * PITCH, piece = first / r->plan.pitch, at = first % r->plan.pitch, width = r->job.lay.width;
  int64_t count = width - at < PITCH ? width - at : PITCH;
  for (int64_t c = 0; c < r->plan.chunks; c++) {
    rms_column_sums s = chunk_sums(r, c);
    const double *total = (bias ? s.dbias_total : s.dweight_total) + first;
    for (int64_t i = 0; i < PITCH; i++)
      sum[i] += total[i];
  }
  out += (piece * width + at) * (int64_t)rms_dtype_size(type);
  if (accumulate)
    for (int64_t i = 0; i < count; i++)
      sum[i] = read_gradient(out, i, type) + sum[i];
  write_gradients(out, sum, count, type);
}

static void run_finish(const void *arg, int64_t first, int64_t last) {
  const backward_run *r = arg;
  const rms_backward_args *a = r->args;
  for (int64_t i = first; i < last; i++) {
    if (a->dweight) finish_strip(r, a->dweight, false, a->accumulate & RMS_ACCUMULATE_DWEIGHT, i);
    if (a->dbias) finish_strip(r, a->dbias, true, a->accumulate & RMS_ACCUMULATE_DBIAS, i);
  }
}

/* ---- a whole call ---- */

static int64_t segment_traffic(const rms_backward_job *job) {
  int64_t size = (int64_t)rms_dtype_size(job->lay.dtype), residual = job->lay.residual_is_f32 ? 4 : size;
  int64_t bytes = 2 * size;
  if (job->dx.data) bytes += size;
  if (job->dresidual.data) bytes += residual;
  if (job->dresidual_out.data) bytes += residual;
  return bytes * job->lay.width;
}

static bool stream_output(const rms_rows *out, const rms_backward_job *job, int64_t size) {
  return rms_can_stream(out, &job->lay, job->lay.width * size) && !rms_same_rows(out, &job->dy) &&
         !rms_same_rows(out, &job->x) && !rms_same_rows(out, &job->dresidual);
}

static void choose_stores(rms_backward_job *job, int64_t segments, int64_t traffic) {
  const int64_t second_level = 1 << 20, size = (int64_t)rms_dtype_size(job->lay.dtype);
  job->fetch_ahead = segments * traffic > second_level;
  if (segments * traffic <= rms_stream_threshold()) return;
  job->in_groups = rms_drops_prefetches();
  job->stream_dx = !job->add_to_dx && stream_output(&job->dx, job, size);
  job->stream_residual = stream_output(&job->dresidual_out, job, job->lay.residual_is_f32 ? 4 : size);
}

static void set_empty_sums(const rms_backward_args *args, const rms_backward_job *job) {
  const rms_layout *lay = &job->lay;
  size_t count = (size_t)((lay->per_inner ? lay->inner : 1) * lay->groups * lay->width);
  if (args->dweight && !(args->accumulate & RMS_ACCUMULATE_DWEIGHT))
    memset(args->dweight, 0, count * rms_dtype_size(job->dweight_type));
  if (args->dbias && !(args->accumulate & RMS_ACCUMULATE_DBIAS))
    memset(args->dbias, 0, count * rms_dtype_size(job->dbias_type));
}

static rms_status check_workspace(const backward_run *r) {
  const rms_backward_args *a = r->args;
  if (!a->workspace || (uintptr_t)a->workspace % 64) return RMS_E_WORKSPACE;
  return a->workspace_bytes >= (size_t)(r->plan.chunks * r->plan.chunk_bytes) ? RMS_OK : RMS_E_WORKSPACE;
}

static bool plan_call(const rms_backward_args *args, const rms_layout *lay, sums_plan *plan) {
  return plan_sums(lay, args->outer * lay->inner, args->dweight != NULL, args->dbias != NULL, plan);
}

static rms_status backward(const rms_spec *spec, const rms_backward_args *args, int flags, const rms_stat *stats,
                           const rms_grad_sum *sums_in, rms_grad_sum *sums_out, const rms_executor *executor) {
  backward_run r;
  int64_t segments;
  rms_status status = rms_check_backward(spec, args, flags, stats, sums_in, sums_out, &r.job, &segments);
  if (!status) status = rms_check_executor(executor);
  if (status) return status;
  const rms_kernels *kernels = rms_active_kernels();
  if (!kernels) return RMS_E_ISA;
  r.args = args;
  r.kernel = kernels->backward[r.job.lay.dtype];
  r.stats_kernel = kernels->backward_stats[r.job.lay.dtype];
  bool wants_sums = !sums_out && (args->dweight || args->dbias);
  if (segments == 0) {
    if (wants_sums) set_empty_sums(args, &r.job);
    return RMS_OK;
  }
  int64_t traffic = segment_traffic(&r.job);
  if (!sums_out) choose_stores(&r.job, segments, traffic);
  if (!wants_sums) {
    rms_run_blocks(executor, segments, traffic, run_rows, &r);
    return RMS_OK;
  }
  if (!plan_call(args, &r.job.lay, &r.plan)) return RMS_E_SIZE;
  status = check_workspace(&r);
  if (status) return status;
  r.workspace = args->workspace;
  r.job.pitch = r.plan.pitch;
  int64_t chunk_traffic = (segments / r.plan.chunks + 1) * traffic;
  rms_run_blocks(executor, r.plan.chunks, chunk_traffic, run_chunks, &r);
  rms_run_blocks(executor, r.plan.elements / PITCH, r.plan.chunks * PITCH * 8, run_finish, &r);
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
  sums_plan plan;
  int64_t segments;
  if (rms_take_backward(&spec, spec_size, &args, args_size, &room)) return 0;
  if (rms_check_backward(spec, args, RMS_CHECK_SPLIT | RMS_CHECK_QUERY, NULL, NULL, NULL, &job, &segments)) return 0;
  if (segments == 0 || !plan_call(args, &job.lay, &plan)) return 0;
  return (size_t)(plan.chunks * plan.chunk_bytes);
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
