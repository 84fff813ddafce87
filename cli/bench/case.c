/* SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE /* madvise */
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../../verify/data.h"
#include "../../verify/number.h"
#include "traffic.h"

enum { HUGE_PAGE = 2 << 20, LINE = 64, SKEW_LINES = 21 };

/* ---- Memory: one arena ---- */

static size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

/* Each tensor starts on its own line offset within a page: power-of-two distances would make buffers evict each
 * other. */
static size_t start_of(size_t used, int number) {
  return used + (size_t)number * SKEW_LINES * LINE;
}

static size_t end_of(size_t used, int number, size_t bytes) {
  size_t end = round_up(start_of(used, number) + bytes, LINE);
  return bytes >= HUGE_PAGE ? round_up(end, HUGE_PAGE) : end;
}

static char *place_tensor(void *ctx, const verify_case *base, verify_role role) {
  bench_case *c = ctx;
  char *at = (char *)round_up((uintptr_t)c->arena, HUGE_PAGE) + start_of(c->used, c->placed);
  c->used = end_of(c->used, c->placed, base->tensor[role].bytes);
  c->placed++;
  return at;
}

static int map_arena(bench_case *c, size_t workspace) {
  size_t used = 0;
  int number = 0;
  for (verify_role role = 0; role < VERIFY_ROLES; role++) {
    const verify_tensor *t = &c->base.tensor[role];
    if (t->present && t->shared_with == role) used = end_of(used, number++, t->bytes);
  }
  c->arena_bytes = end_of(used, number, workspace) + 2 * (size_t)HUGE_PAGE;
  c->arena = mmap(NULL, c->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (c->arena == MAP_FAILED) {
    c->arena = NULL;
    return -1;
  }
#ifdef MADV_HUGEPAGE
  (void)madvise(c->arena, c->arena_bytes, MADV_HUGEPAGE); /* no huge pages: the same for all engines */
#endif
  return 0;
}

/* What the call will need: any address tells the library which tensors there are. */
static size_t workspace_of(const bench_case *c) {
  static double somewhere;
  verify_case probe = c->base;
  for (verify_role role = 0; role < VERIFY_ROLES; role++)
    if (verify_case_has(&probe, role)) probe.tensor[role].data = (char *)&somewhere;
  const rms_backward_args args = verify_case_backward_args(&probe);
  return rms_backward_workspace(&c->spec, &args);
}

/* ---- Contents ---- */

/* A random stretch of +-m/64 with 1 <= m <= 128, exact in every type, repeated with an odd period: no two rows are
 * equal, and filling runs at the speed of a copy. */
static void fill(const verify_tensor *t, verify_random random) {
  enum { PERIOD = 65521 };
  size_t size = rms_dtype_size(t->dtype), period = PERIOD * size;
  if (period > t->bytes) period = t->bytes;
  for (size_t i = 0; i < period / size; i++) {
    double value = (double)(1 + verify_random_below(&random, 128)) / 64;
    verify_store(t->dtype, t->data, (int64_t)i, verify_random_bits(&random) & 1 ? value : -value);
  }
  for (size_t done = period; done < t->bytes;) {
    size_t step = done < t->bytes - done ? done / period * period : t->bytes - done;
    memcpy(t->data + done, t->data, step);
    done += step;
  }
}

/* What the problem says of x and dy; everything else has no names for its data. */
static void fill_input(bench_case *c, verify_role role) {
  const verify_problem *p = &c->base.problem;
  const verify_tensor *t = &c->base.tensor[role];
  const verify_data data = role == VERIFY_DY                             ? p->dy_data
                           : role == VERIFY_X || role == VERIFY_RESIDUAL ? p->data
                                                                         : VERIFY_NORMAL;
  if (role == VERIFY_SCALE || (data != VERIFY_NORMAL && data < VERIFY_ZEROROWS)) {
    verify_fill(&c->base, role);
  } else {
    fill(t, verify_random_start(p->seed, role));
    verify_set_rows(t, data);
  }
}

/* r of a row of zeros, in the arithmetic of the forward, whose bits tell the backward what it has to do with. */
static double zero_r(const rms_spec *spec, rms_dtype dtype) {
  const float eps = (float)spec->eps;
  if (dtype == RMS_F64) return spec->eps_place == RMS_EPS_INSIDE ? 1 / sqrt(spec->eps) : 1 / spec->eps;
  return (double)(spec->eps_place == RMS_EPS_INSIDE ? 1 / sqrtf(eps) : 1 / eps);
}

/* The statistics that a backward is given: what the forward would have saved, to within rounding. */
static int fill_statistics(bench_case *c) {
  const verify_tensor *rstd = &c->base.tensor[VERIFY_RSTD], *mean = &c->base.tensor[VERIFY_MEAN];
  int64_t count = verify_statistic_count(&c->base.problem);
  rms_stat *stats = malloc((size_t)count * sizeof *stats);
  rms_spec spec = c->spec;
  spec.steps = RMS_STEPS_WIDE; /* of which the halves know some alone, and the statistics of all are these */
  rms_forward_args args = {
      .outer = c->backward.outer, .inner = c->backward.inner, .x = c->backward.x, .gate = c->backward.gate};
  if (!stats || rms_stats(&spec, &args, stats, NULL) != RMS_OK) {
    free(stats);
    return -1;
  }
  for (int64_t i = 0; i < count; i++) {
    double square = stats[i].m2 / stats[i].count;
    double r = spec.eps_place == RMS_EPS_INSIDE    ? 1 / sqrt(square + spec.eps)
               : spec.eps_place == RMS_EPS_OUTSIDE ? 1 / (sqrt(square) + spec.eps)
                                                   : 1 / fmax(sqrt(square), spec.eps);
    verify_store(rstd->dtype, rstd->data, i, square == 0 && spec.eps > 0 ? zero_r(&spec, rstd->dtype) : r);
    verify_store(mean->dtype, mean->data, i, stats[i].mean);
  }
  free(stats);
  return 0;
}

void case_reset(bench_case *c) {
  const verify_problem *p = &c->base.problem;
  for (verify_role role = 0; role < VERIFY_ROLES; role++) {
    const verify_tensor *t = &c->base.tensor[role];
    int saved = p->backward && (role == VERIFY_RSTD || role == VERIFY_MEAN);
    int output = verify_case_is_output(&c->base, role);
    if (!t->present || role == VERIFY_INDICES || saved) continue;
    if (c->filled && (role == VERIFY_WORKSPACE || (!output && !p->in_place))) continue; /* stays as it is */
    if (!output)
      fill_input(c, role);
    else if (t->shared_with == role)
      memset(t->data, p->accumulate ? 0 : 0xff, t->bytes);
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

static int is_result(const bench_case *c, verify_role role) {
  return verify_case_has(&c->base, role) && verify_case_is_output(&c->base, role) && role != VERIFY_WORKSPACE;
}

uint64_t case_digest(const bench_case *c) {
  uint64_t hash = 1;
  for (verify_role role = 0; role < VERIFY_ROLES; role++)
    if (is_result(c, role)) hash = hash_bytes(hash, c->base.tensor[role].data, c->base.tensor[role].bytes);
  return hash;
}

size_t case_output_row_bytes(const bench_case *c, verify_role role) {
  int grows = verify_role_has_rows(role) || role == VERIFY_RSTD || role == VERIFY_MEAN || role == VERIFY_SCALE;
  return grows && is_result(c, role) ? c->base.tensor[role].bytes / (size_t)c->base.problem.outer : 0;
}

/* ---- A whole case ---- */

static size_t narrowest(const verify_case *c, const verify_role *roles, int count, size_t size) {
  for (int i = 0; i < count; i++)
    if (rms_dtype_size(c->tensor[roles[i]].dtype) < size) size = rms_dtype_size(c->tensor[roles[i]].dtype);
  return size;
}

/* What the ceiling copies; a tensor of wider elements counts as several buffers of the narrowest width. */
static void find_buffers(bench_case *c) {
  const traffic moved = traffic_of(&c->base);
  const verify_problem *p = &c->base.problem;
  copy_buffers *s = &c->buffers;
  size_t data_size = narrowest(&c->base, moved.reads, moved.read_count, sizeof(double));
  data_size = narrowest(&c->base, moved.writes, moved.write_count, data_size);
  const verify_tensor *first = &c->base.tensor[moved.reads[0]];
  s->bytes = first->bytes / rms_dtype_size(first->dtype) * data_size;
  for (int i = 0; i < moved.read_count; i++) {
    const verify_tensor *t = &c->base.tensor[moved.reads[i]];
    for (size_t at = 0; at + s->bytes <= t->bytes && s->read_count < COPY_READS_MAX; at += s->bytes)
      s->reads[s->read_count++] = t->data + at;
  }
  for (int i = 0; i < moved.write_count; i++) {
    const verify_tensor *t = &c->base.tensor[moved.writes[i]];
    for (size_t at = 0; at + s->bytes <= t->bytes && s->write_count < COPY_WRITES_MAX; at += s->bytes)
      s->writes[s->write_count++] = t->data + at;
  }
  c->bytes = moved.bytes;
  c->elements = (double)p->outer * (double)p->inner * (double)p->spec.cols;
}

static int prepare(bench_case *c, const verify_problem *problem) {
  verify_allocator allocator = {place_tensor, c};
  int has_sums = (problem->outputs & (VERIFY_OUT_DW | VERIFY_OUT_DB)) != 0;
  if (verify_case_describe(&c->base, problem)) return -1;
  verify_tensor *mean = &c->base.tensor[VERIFY_MEAN];
  if (verify_case_has(&c->base, VERIFY_RSTD)) *mean = c->base.tensor[VERIFY_RSTD];
  mean->shared_with = VERIFY_MEAN;
  size_t workspace = has_sums ? workspace_of(c) : 0;
  if (map_arena(c, workspace) || verify_case_place(&c->base, &allocator)) return -1;
  if (has_sums && verify_case_place_workspace(&c->base, workspace, &allocator)) return -1;
  if (problem->has_indices) verify_draw_indices(problem, (int64_t *)(void *)c->base.tensor[VERIFY_INDICES].data);
  const verify_spec spec = verify_case_spec(&c->base);
  c->spec = verify_library_spec(&spec);
  c->forward = (rms_forward_args){.outer = problem->outer, .inner = problem->inner};
  c->backward = (rms_backward_args){.outer = problem->outer, .inner = problem->inner};
  if (problem->backward)
    c->backward = verify_case_backward_args(&c->base);
  else
    c->forward = verify_case_forward_args(&c->base);
  find_buffers(c);
  if (problem->backward || c->forward.rstd) return 0;
  c->saved = calloc(2 * (size_t)verify_statistic_count(problem), sizeof *c->saved);
  return c->saved ? 0 : -1;
}

int case_create(bench_case *c, const verify_problem *problem) {
  *c = (bench_case){.spec = verify_library_spec(&problem->spec)};
  if (prepare(c, problem)) {
    case_destroy(c);
    return -1;
  }
  case_reset(c);
  return 0;
}

void case_destroy(bench_case *c) {
  if (c->arena) munmap(c->arena, c->arena_bytes);
  free(c->saved);
  c->arena = NULL;
  c->saved = NULL;
}
