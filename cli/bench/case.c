/* SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE /* madvise */
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, LINE = 64, SKEW_LINES = 21 };

/* ---- Buffers in one arena: first laid out with data = NULL, then placed ---- */

static size_t add_buffer(bench_case *c, int64_t count, rms_dtype dtype, int input, int output) {
  c->buffers[c->buffer_count] =
      (case_buffer){.bytes = (size_t)count * rms_dtype_size(dtype), .dtype = dtype, .input = input, .output = output};
  return (size_t)c->buffer_count++;
}

static size_t add_row_buffer(bench_case *c, int64_t count, rms_dtype dtype, int input, int output) {
  size_t index = add_buffer(c, count, dtype, input, output);
  c->buffers[index].per_row = 1;
  return index;
}

/* Each buffer starts on its own line offset within a page: power-of-two distances would make streams evict
 * each other. */
static int place_buffers(bench_case *c) {
  size_t at = 0, starts[CASE_BUFFERS_MAX];
  for (int i = 0; i < c->buffer_count; i++) {
    starts[i] = at + (size_t)i * SKEW_LINES * LINE;
    at = (starts[i] + c->buffers[i].bytes + LINE - 1) / LINE * LINE;
    if (c->buffers[i].bytes >= HUGE_PAGE) at = (at + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  }
  c->arena_bytes = at + 2 * HUGE_PAGE;
  c->arena = mmap(NULL, c->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (c->arena == MAP_FAILED) {
    c->arena = NULL;
    return -1;
  }
#ifdef MADV_HUGEPAGE
  (void)madvise(c->arena, c->arena_bytes, MADV_HUGEPAGE); /* no huge pages: the same for all engines */
#endif
  char *base = (char *)(((uintptr_t)c->arena + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
  for (int i = 0; i < c->buffer_count; i++)
    c->buffers[i].data = base + starts[i];
  return 0;
}

/* ---- Contents ---- */

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* +-m/64 with 1 <= m <= 128: exact in every type. */
static void store_value(void *to, rms_dtype dtype, uint64_t random) {
  float value = (float)(1 + (random >> 32) % 128) / 64 * (random & 1 ? 1.0f : -1.0f);
  double wide = (double)value;
  uint32_t bits;
  uint16_t half;
  memcpy(&bits, &value, sizeof bits);
  switch (dtype) {
  case RMS_F64:
    memcpy(to, &wide, sizeof wide);
    break;
  case RMS_F32:
    memcpy(to, &value, sizeof value);
    break;
  case RMS_BF16:
    half = (uint16_t)(bits >> 16);
    memcpy(to, &half, sizeof half);
    break;
  case RMS_F16:
    half = (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 127 + 15) << 10) | (bits >> 13 & 0x3ff));
    memcpy(to, &half, sizeof half);
    break;
  case RMS_AS_X:
    break;
  }
}

/* A random stretch repeated with an odd period: no two rows are equal, and filling runs at the speed of a copy. */
static void fill_buffer(const case_buffer *b, uint64_t seed) {
  enum { PERIOD = 65521 };
  size_t size = rms_dtype_size(b->dtype), period = PERIOD * size;
  if (period > b->bytes) period = b->bytes;
  for (size_t at = 0; at < period; at += size)
    store_value((char *)b->data + at, b->dtype, next_random(&seed));
  for (size_t done = period; done < b->bytes;) {
    size_t step = done < b->bytes - done ? done / period * period : b->bytes - done;
    memcpy((char *)b->data + done, b->data, step);
    done += step;
  }
}

/* The statistics that a backward is given: what the forward would have saved, to within rounding. */
static int fill_statistics(bench_case *c) {
  int64_t groups = c->spec.groups > 1 ? c->spec.groups : 1;
  int64_t count = c->problem.outer * c->problem.inner * groups;
  rms_stat *stats = malloc((size_t)count * sizeof *stats);
  const rms_spec spec = c->spec;
  rms_forward_args args = {.outer = c->problem.outer, .inner = c->problem.inner, .x = c->backward.x};
  if (!stats || rms_stats(&spec, &args, stats, NULL) != RMS_OK) {
    free(stats);
    return -1;
  }
  for (int64_t i = 0; i < count; i++) {
    double square = stats[i].m2 / stats[i].count;
    double r = spec.eps_place == RMS_EPS_INSIDE ? 1 / sqrt(square + spec.eps) : 1 / (sqrt(square) + spec.eps);
    if (c->problem.spec.dtype == RMS_F64) {
      ((double *)(uintptr_t)c->backward.rstd)[i] = r;
      if (c->backward.mean) ((double *)(uintptr_t)c->backward.mean)[i] = stats[i].mean;
    } else {
      ((float *)(uintptr_t)c->backward.rstd)[i] = (float)r;
      if (c->backward.mean) ((float *)(uintptr_t)c->backward.mean)[i] = (float)stats[i].mean;
    }
  }
  free(stats);
  return 0;
}

static void fill_indices(bench_case *c) {
  uint64_t state = c->problem.seed * 2 + 1;
  int64_t left = c->spec.partial, width = c->spec.cols / (c->spec.groups > 1 ? c->spec.groups : 1), at = 0;
  for (int64_t j = 0; j < width && left > 0; j++) {
    if ((int64_t)(next_random(&state) % (uint64_t)(width - j)) < left) {
      c->indices[at++] = j;
      left--;
    }
  }
}

void case_reset(bench_case *c) {
  for (int i = 0; i < c->buffer_count; i++) {
    const case_buffer *b = &c->buffers[i];
    if (c->filled && !b->output) continue; /* stays as it is */
    if (b->input)
      fill_buffer(b, c->problem.seed * 1000003 + (uint64_t)i * 7919 + 1);
    else
      memset(b->data, c->problem.accumulate ? 0 : 0xff, b->bytes);
  }
  if (c->backward.rstd && !c->filled) (void)fill_statistics(c);
  c->filled = 1;
}

/* Four independent chains: a single one would cost more than the run it checks. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
  const uint64_t prime = 0x9e3779b97f4a7c15u;
  uint64_t chains[4] = {hash, hash + 1, hash + 2, hash + 3}, words[4];
  size_t at = 0;
  for (; at + sizeof words <= bytes; at += sizeof words) {
    memcpy(words, (const char *)data + at, sizeof words);
    for (int i = 0; i < 4; i++)
      chains[i] = (chains[i] ^ words[i]) * prime;
  }
  for (; at < bytes; at++)
    chains[0] = (chains[0] ^ ((const unsigned char *)data)[at]) * prime;
  for (int i = 0; i < 4; i++)
    hash = (hash ^ (chains[i] ^ chains[i] >> 29)) * prime;
  return hash;
}

uint64_t case_digest(const bench_case *c) {
  uint64_t hash = 1;
  for (int i = 0; i < c->buffer_count; i++)
    if (c->buffers[i].output) hash = hash_bytes(hash, c->buffers[i].data, c->buffers[i].bytes);
  return hash;
}

/* ---- From a problem to arguments ---- */

/* Remembers a tensor for the ceiling; a tensor of wider elements counts as several streams of the narrowest width. */
static void add_stream(bench_case *c, const case_buffer *b, int write) {
  size_t width = c->streams.bytes, parts = b->bytes / width;
  for (size_t i = 0; i < parts; i++) {
    char *part = (char *)b->data + i * width;
    if (write && c->streams.write_count < COPY_WRITES_MAX) c->streams.writes[c->streams.write_count++] = part;
    if (!write && c->streams.read_count < COPY_READS_MAX) c->streams.reads[c->streams.read_count++] = part;
  }
  c->bytes += c->elements * (double)rms_dtype_size(b->dtype);
}

typedef struct slots {
  int64_t tensor;        /* elements of a tensor with its padding */
  int64_t params, stats; /* elements of weight, of rstd           */
  int64_t inner_stride, outer_stride;
} slots;

static rms_const_view view_of(const case_buffer *b, const slots *s) {
  return (rms_const_view){b->data, (int32_t)b->dtype, 0, s->outer_stride, s->inner_stride, 0};
}

static rms_view output_view_of(const case_buffer *b, const slots *s) {
  return (rms_view){b->data, (int32_t)b->dtype, 0, s->outer_stride, s->inner_stride, 0};
}

static int build_forward(bench_case *c, const slots *s) {
  const verify_problem *p = &c->problem;
  rms_dtype type = p->spec.dtype, weight_type = p->spec.weight_dtype, residual_type = p->spec.residual_dtype;
  rms_dtype stat_type = type == RMS_F64 ? RMS_F64 : RMS_F32;
  int wants_sum = (p->outputs & VERIFY_OUT_SUM) != 0, wants_stats = (p->outputs & VERIFY_OUT_STATS) != 0;
  int sum_in_place = p->in_place && wants_sum;
  case_buffer *b = c->buffers;
  size_t x = add_row_buffer(c, s->tensor, type, 1, p->in_place), y = x, residual = 0, sum = 0;
  size_t weight = 0, bias = 0, rstd = 0, mean = 0;
  if (!p->in_place) y = add_row_buffer(c, s->tensor, type, 0, 1);
  if (p->has_residual) residual = sum = add_row_buffer(c, s->tensor, residual_type, 1, sum_in_place);
  if (wants_sum && !sum_in_place) sum = add_row_buffer(c, s->tensor, residual_type, 0, 1);
  if (p->has_weight) weight = add_buffer(c, s->params, weight_type, 1, 0);
  if (p->has_bias) bias = add_buffer(c, s->params, weight_type, 1, 0);
  if (wants_stats) rstd = add_row_buffer(c, s->stats, stat_type, 0, 1);
  if (wants_stats) mean = add_row_buffer(c, s->stats, stat_type, 0, 1);
  if (place_buffers(c)) return -1;

  rms_forward_args *a = &c->forward;
  a->weight_dtype = a->bias_dtype = (int32_t)weight_type;
  a->x = view_of(&b[x], s);
  a->y = output_view_of(&b[y], s);
  if (residual) a->residual = view_of(&b[residual], s);
  if (wants_sum) a->residual_out = output_view_of(&b[sum], s);
  a->weight = weight ? b[weight].data : NULL;
  a->bias = bias ? b[bias].data : NULL;
  a->rstd = rstd ? b[rstd].data : NULL;
  a->mean = mean ? b[mean].data : NULL;
  add_stream(c, &b[x], 0);
  if (residual) add_stream(c, &b[residual], 0);
  add_stream(c, &b[y], 1);
  if (wants_sum) add_stream(c, &b[sum], 1);
  return 0;
}

/* What the call will need: any address tells the library which tensors there are. */
static size_t backward_workspace(const bench_case *c, const slots *s, int dweight, int dbias) {
  static double somewhere;
  const verify_spec *spec = &c->problem.spec;
  const case_buffer x = {.data = &somewhere, .dtype = c->problem.has_residual ? spec->residual_dtype : spec->dtype};
  const case_buffer dy = {.data = &somewhere, .dtype = spec->dtype};
  rms_backward_args a = {.outer = c->problem.outer, .inner = c->problem.inner};
  a.x = view_of(&x, s);
  a.dy = view_of(&dy, s);
  a.dweight = dweight ? &somewhere : NULL;
  a.dbias = dbias ? &somewhere : NULL;
  a.dweight_dtype = a.dbias_dtype = (int32_t)spec->grad_dtype;
  return rms_backward_workspace(&c->spec, &a);
}

static int build_backward(bench_case *c, const slots *s) {
  const verify_problem *p = &c->problem;
  rms_dtype type = p->spec.dtype, residual_type = p->spec.residual_dtype;
  rms_dtype stat_type = type == RMS_F64 ? RMS_F64 : RMS_F32;
  int wants_dx = (p->outputs & VERIFY_OUT_DX) != 0, wants_ds = (p->outputs & VERIFY_OUT_DS) != 0;
  case_buffer *b = c->buffers;
  size_t dy = add_row_buffer(c, s->tensor, type, 1, p->in_place), dx = dy, dresidual = 0, ds = 0;
  size_t x = add_row_buffer(c, s->tensor, p->has_residual ? residual_type : type, 1, 0);
  size_t weight = 0, rstd = 0, mean = 0, dweight = 0, dbias = 0, workspace = 0;
  if (wants_dx && !p->in_place) dx = add_row_buffer(c, s->tensor, type, 0, 1);
  if (p->has_dresidual) dresidual = add_row_buffer(c, s->tensor, residual_type, 1, 0);
  if (wants_ds) ds = add_row_buffer(c, s->tensor, residual_type, 0, 1);
  if (p->has_weight) weight = add_buffer(c, s->params, p->spec.weight_dtype, 1, 0);
  if (!p->recompute) rstd = add_row_buffer(c, s->stats, stat_type, 0, 0);
  if (!p->recompute) mean = add_row_buffer(c, s->stats, stat_type, 0, 0);
  if (p->outputs & VERIFY_OUT_DW) dweight = add_buffer(c, s->params, p->spec.grad_dtype, 0, 1);
  if (p->outputs & VERIFY_OUT_DB) dbias = add_buffer(c, s->params, p->spec.grad_dtype, 0, 1);
  size_t workspace_bytes = backward_workspace(c, s, dweight != 0, dbias != 0);
  if (dweight || dbias) workspace = add_buffer(c, (int64_t)(workspace_bytes + 7) / 8, RMS_F64, 0, 0);
  if (place_buffers(c)) return -1;

  rms_backward_args *a = &c->backward;
  a->weight_dtype = (int32_t)p->spec.weight_dtype;
  a->dweight_dtype = a->dbias_dtype = (int32_t)p->spec.grad_dtype;
  a->dy = view_of(&b[dy], s);
  a->x = view_of(&b[x], s);
  a->accumulate = p->accumulate;
  if (dresidual) a->dresidual = view_of(&b[dresidual], s);
  a->weight = weight ? b[weight].data : NULL;
  a->rstd = rstd ? b[rstd].data : NULL;
  a->mean = mean ? b[mean].data : NULL;
  if (wants_dx) a->dx = output_view_of(&b[dx], s);
  if (wants_ds) a->dresidual_out = output_view_of(&b[ds], s);
  a->dweight = dweight ? b[dweight].data : NULL;
  a->dbias = dbias ? b[dbias].data : NULL;
  a->workspace = workspace ? b[workspace].data : NULL;
  a->workspace_bytes = workspace ? workspace_bytes : 0;
  add_stream(c, &b[dy], 0);
  add_stream(c, &b[x], 0);
  if (dresidual) add_stream(c, &b[dresidual], 0);
  if (wants_dx && p->accumulate & RMS_ACCUMULATE_DX) add_stream(c, &b[dx], 0);
  if (wants_dx) add_stream(c, &b[dx], 1);
  if (wants_ds) add_stream(c, &b[ds], 1);
  return 0;
}

static int prepare(bench_case *c) {
  const verify_problem *p = &c->problem;
  slots s = {.inner_stride = c->spec.cols + p->pad};
  s.outer_stride = p->inner * s.inner_stride;
  s.tensor = p->outer * s.outer_stride;
  s.params = c->spec.weight_per_inner ? p->inner * c->spec.cols : c->spec.cols;
  s.stats = p->outer * p->inner * (c->spec.groups > 1 ? c->spec.groups : 1);
  c->elements = (double)p->outer * (double)p->inner * (double)c->spec.cols;
  c->streams.bytes = (size_t)s.tensor * rms_dtype_size(p->spec.dtype);
  c->forward.outer = c->backward.outer = p->outer;
  c->forward.inner = c->backward.inner = p->inner;
  if (p->has_indices) {
    c->indices = malloc((size_t)c->spec.partial * sizeof *c->indices);
    if (!c->indices) return -1;
    fill_indices(c);
    c->spec.indices = c->indices;
  }
  return p->backward ? build_backward(c, &s) : build_forward(c, &s);
}

int case_create(bench_case *c, const verify_problem *problem) {
  *c = (bench_case){.problem = *problem, .spec = verify_library_spec(&problem->spec)};
  if (prepare(c)) {
    case_destroy(c);
    return -1;
  }
  case_reset(c);
  return 0;
}

void case_destroy(bench_case *c) {
  if (c->arena) munmap(c->arena, c->arena_bytes);
  free(c->indices);
  c->arena = NULL;
  c->indices = NULL;
}
