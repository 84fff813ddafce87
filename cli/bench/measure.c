/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compare.h"
#include "naive.h"

static const double SAMPLE_SECONDS = 100e-6; /* a sample is at least this long: the clock and the warm-up do not show */
enum { SLOW_ROUNDS = 3, LEAST_ROUNDS = 9, MOST_ROUNDS = 201 };

double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- Engines ---- */

static bench_engine *add_engine(bench_result *r, engine_type type, engine_role role, const char *name) {
  bench_engine *e = &r->engines[r->engine_count++];
  *e = (bench_engine){.type = type, .role = role, .scale = 1};
  snprintf(e->name, sizeof e->name, "%s", name);
  return e;
}

static void add_library(bench_result *r, const bench_case *c, engine_role role, const char *name, const char *isa,
                        const rms_spec *spec) {
  if (c->base.problem.backward && c->backward.workspace &&
      rms_backward_workspace(spec, &c->backward) > c->backward.workspace_bytes)
    return;
  bench_engine *e = add_engine(r, ENGINE_LIBRARY, role, name);
  e->isa = isa;
  e->spec = *spec;
  e->forward = c->forward;
  e->backward = c->backward;
  if (strcmp(isa, "scalar") == 0) { /* made for sameness, not for speed */
    e->forward.outer = e->backward.outer = compare_outer(c);
    e->scale = (double)c->base.problem.outer / (double)compare_outer(c);
  }
  if (spec->kind == RMS_KIND_RMS) {
    e->forward.mean = NULL;
    e->backward.mean = NULL;
  }
}

/* The same shape as another kind of normalization. */
static void add_variant(bench_result *r, const bench_case *c, engine_role role, const char *name, const char *isa) {
  rms_spec spec = c->spec;
  int64_t width = spec.cols / (spec.groups > 1 ? spec.groups : 1);
  spec.kind = role == ROLE_LAYER ? RMS_KIND_LAYER : RMS_KIND_RMS;
  spec.partial = role == ROLE_PARTIAL ? rms_partial_count(width, 1.0 / 16) : 0;
  spec.indices = NULL;
  if (spec.kind == c->spec.kind && spec.partial == c->spec.partial && !c->spec.indices) return;
  add_library(r, c, role, name, isa, &spec);
}

static void add_engines(bench_result *r, const bench_case *c, const char *active, int only_essential) {
  copy_method methods[COPY_METHODS_MAX];
  int count = copy_methods(&c->buffers, methods);
  for (int i = 0; i < count; i++) {
    char name[32];
    snprintf(name, sizeof name, "copy %s", methods[i].name);
    int role = strcmp(methods[i].name, "memcpy") == 0 ? ROLE_MEMCPY : ROLE_OTHER;
    add_engine(r, ENGINE_COPY, (engine_role)role, name)->copy = methods[i].run;
  }
  add_library(r, c, ROLE_SELF, active, active, &c->spec);
  if (only_essential) return;
  if (!c->base.problem.isa[0])
    for (int i = rms_isa_count() - 1; i >= 0; i--)
      if (rms_isa_usable(rms_isa_name(i)) && strcmp(rms_isa_name(i), active) != 0)
        add_library(r, c, ROLE_OTHER, rms_isa_name(i), rms_isa_name(i), &c->spec);
  add_variant(r, c, ROLE_RMS, "as RMSNorm", active);
  add_variant(r, c, ROLE_PARTIAL, "as pRMSNorm 1/16", active);
  add_variant(r, c, ROLE_LAYER, "as LayerNorm", active);
  if (naive_supports(c)) add_engine(r, ENGINE_NAIVE, ROLE_OTHER, "naive C");
}

rms_status engine_run(const bench_engine *e, const bench_case *c, const rms_executor *executor, int64_t calls) {
  rms_status status = RMS_OK;
  for (int64_t i = 0; i < calls; i++) {
    if (e->type == ENGINE_COPY)
      copy_run(e->copy, &c->buffers, executor);
    else if (e->type == ENGINE_NAIVE)
      naive_run(c);
    else if (c->base.problem.backward)
      status = rms_backward(&e->spec, &e->backward, executor);
    else
      status = rms_forward(&e->spec, &e->forward, executor);
  }
  return status;
}

/* ---- Rounds ---- */

static double sample(const bench_engine *e, const bench_case *c, const rms_executor *executor, int64_t calls) {
  if (e->type == ENGINE_LIBRARY) (void)rms_isa_force(e->isa);
  double start = seconds_now();
  (void)engine_run(e, c, executor, calls);
  return seconds_now() - start;
}

static double choose_calls(bench_engine *e, const bench_case *c, const rms_executor *executor) {
  e->calls = 1;
  (void)sample(e, c, executor, 1);
  for (;;) {
    double seconds = sample(e, c, executor, e->calls);
    if (seconds >= SAMPLE_SECONDS) return seconds;
    double wanted = seconds > 0 ? SAMPLE_SECONDS / seconds * 1.2 : 10;
    e->calls = 1 + (int64_t)((double)e->calls * (wanted < 10 ? wanted : 10));
  }
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double quantile(const double *sorted, int count, double q) {
  double at = q * (count - 1);
  int below = (int)at;
  int above = below + 1 < count ? below + 1 : below;
  return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

static void summarise(bench_engine *e) {
  double sorted[ROUNDS_MAX];
  memcpy(sorted, e->samples, (size_t)e->sample_count * sizeof *sorted);
  qsort(sorted, (size_t)e->sample_count, sizeof *sorted, compare_doubles);
  e->low = quantile(sorted, e->sample_count, 0.2);
  e->median = quantile(sorted, e->sample_count, 0.5);
  e->high = quantile(sorted, e->sample_count, 0.8);
}

double engine_ratio(const bench_engine *engine, const bench_engine *of) {
  double ratios[ROUNDS_MAX];
  int count = engine->sample_count < of->sample_count ? engine->sample_count : of->sample_count;
  for (int i = 0; i < count; i++)
    ratios[i] = of->samples[i] / engine->samples[i];
  qsort(ratios, (size_t)count, sizeof *ratios, compare_doubles);
  return quantile(ratios, count, 0.5);
}

static int run_rounds(bench_result *r, const bench_case *c, const rms_executor *executor,
                      const measure_options *options) {
  double once[ENGINES_MAX], fastest = 0, round_seconds = 0;
  for (int i = 0; i < r->engine_count; i++) {
    once[i] = choose_calls(&r->engines[i], c, executor);
    if (i == 0 || once[i] < fastest) fastest = once[i];
  }
  for (int i = 0; i < r->engine_count; i++)
    if (once[i] <= 3 * fastest) round_seconds += once[i];
  int64_t rounds = options->rounds ? options->rounds : (int64_t)(options->seconds / round_seconds);
  if (!options->rounds && rounds < LEAST_ROUNDS) rounds = LEAST_ROUNDS;
  if (!options->rounds && rounds > MOST_ROUNDS) rounds = MOST_ROUNDS;
  for (int i = 0; i < r->engine_count; i++) {
    r->engines[i].samples = malloc((size_t)rounds * sizeof(double));
    if (!r->engines[i].samples) return -1;
  }
  for (int64_t round = 0; round < rounds; round++)
    for (int i = 0; i < r->engine_count; i++) {
      bench_engine *e = &r->engines[i];
      int slow = once[i] > 3 * fastest && e->calls == 1;
      if (slow && round >= SLOW_ROUNDS) continue;
      if (e->calls > 1) (void)sample(e, c, executor, 1); /* the caches as this engine leaves them */
      e->samples[e->sample_count++] = 1e9 * e->scale * sample(e, c, executor, e->calls) / (double)e->calls;
    }
  return 0;
}

static void conclude(bench_result *r) {
  r->ceiling = 0;
  for (int i = 0; i < r->engine_count; i++) {
    summarise(&r->engines[i]);
    if (r->engines[i].type == ENGINE_COPY && r->engines[i].median < r->engines[r->ceiling].median) r->ceiling = i;
  }
  for (int i = 0; i < r->engine_count; i++)
    r->engines[i].of_ceiling = engine_ratio(&r->engines[i], &r->engines[r->ceiling]);
}

static int measure_case(bench_case *c, const measure_options *options, bench_result *r, char *reason, size_t size) {
  const verify_problem *p = &c->base.problem;
  const char *active = p->isa[0] ? p->isa : rms_isa_active();
  rms_pool *pool = NULL;
  if (p->threads > 1 && rms_pool_create(&pool, p->threads) != RMS_OK) {
    snprintf(reason, size, "cannot start %d threads", p->threads);
    return -1;
  }
  rms_executor executor = {0};
  if (pool) executor = rms_pool_executor(pool);
  add_engines(r, c, active, options->only_essential);
  int code = 0;
  for (int i = 0; i < r->engine_count && code == 0; i++)
    if (r->engines[i].type == ENGINE_LIBRARY)
      code = compare_with_scalar(&r->engines[i], c, pool ? &executor : NULL, reason, size);
  if (code == 0 && r->engines[r->engine_count - 1].type == ENGINE_NAIVE)
    code = compare_naive(result_engine(r, ROLE_SELF), c, reason, size);
  if (code == 0 && run_rounds(r, c, pool ? &executor : NULL, options)) {
    snprintf(reason, size, "not enough memory");
    code = -1;
  }
  if (code == 0) conclude(r);
  rms_pool_destroy(pool);
  (void)rms_isa_force(NULL);
  return code;
}

int measure_check(const verify_problem *problem, char *reason, size_t reason_size) {
  const double most_elements = 4e9;
  const char *why = NULL;
  double rows = (double)problem->outer * (double)problem->inner;
  if (problem->split) why = "split problems are for check only";
  if (rows < 1) why = "there is nothing to time in zero rows";
  if (rows * (double)(problem->spec.cols + problem->pad) > most_elements)
    why = "more than 4e9 elements: too large to time";
  if (problem->isa[0] && !rms_isa_usable(problem->isa)) why = "its instruction set is unknown or cannot run here";
  if (!why) return 0;
  snprintf(reason, reason_size, "%s", why);
  return -1;
}

int measure(const verify_problem *problem, const measure_options *options, bench_result *result, char *reason,
            size_t reason_size) {
  bench_case c;
  *result = (bench_result){.problem = *problem};
  if (measure_check(problem, reason, reason_size)) return -1;
  if (case_create(&c, problem)) {
    snprintf(reason, reason_size, "not enough memory");
    return -1;
  }
  result->elements = c.elements;
  result->bytes = c.bytes;
  result->reads = c.buffers.read_count;
  result->writes = c.buffers.write_count;
  int code = measure_case(&c, options, result, reason, reason_size);
  case_destroy(&c);
  if (code) measure_free(result);
  return code;
}

void measure_free(bench_result *result) {
  for (int i = 0; i < result->engine_count; i++) {
    free(result->engines[i].samples);
    result->engines[i].samples = NULL;
  }
}

const bench_engine *result_engine(const bench_result *result, engine_role role) {
  for (int i = 0; i < result->engine_count; i++)
    if (result->engines[i].role == role) return &result->engines[i];
  return NULL;
}
