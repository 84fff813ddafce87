/* SPDX-License-Identifier: MIT
 *
 * What is timed beside each other: copies, the library, straightforward loops. */
#include <stdio.h>
#include <string.h>

#include "compare.h"
#include "measure.h"
#include "naive.h"

static bench_engine *add_engine(bench_result *r, engine_type type, engine_role role, const char *name) {
  bench_engine *e = &r->engines[r->engine_count++];
  *e = (bench_engine){.type = type, .role = role, .scale = 1, .stream_bytes = -1};
  snprintf(e->name, sizeof e->name, "%s", name);
  return e;
}

static bench_engine *add_library(bench_result *r, const bench_case *c, engine_role role, const char *name,
                                 const char *isa, const rms_spec *spec) {
  if (c->base.problem.backward && c->backward.workspace &&
      rms_backward_workspace(spec, &c->backward) > c->backward.workspace_bytes)
    return NULL;
  bench_engine *e = add_engine(r, ENGINE_LIBRARY, role, name);
  e->isa = isa;
  e->spec = *spec;
  e->forward = c->forward;
  e->backward = c->backward;
  if (strcmp(isa ? isa : rms_isa_active(), "scalar") == 0) { /* made for sameness, not for speed */
    e->forward.outer = e->backward.outer = compare_outer(c);
    e->scale = (double)c->base.problem.outer / (double)compare_outer(c);
  }
  if (spec->kind == RMS_KIND_RMS) {
    e->forward.mean = NULL;
    e->backward.mean = NULL;
    e->backward.dmean = NULL;
  }
  return e;
}

/* The same shape as another kind of normalization. */
static rms_spec variant_of(const rms_spec *of, engine_role role) {
  rms_spec spec = *of;
  const int64_t width = spec.cols / (spec.groups > 1 ? spec.groups : 1);
  spec.kind = role == ROLE_LAYER ? RMS_KIND_LAYER : RMS_KIND_RMS;
  spec.partial = role == ROLE_PARTIAL   ? rms_partial_count(width, 1.0 / 16)
                 : role == ROLE_QUARTER ? rms_partial_count(width, 1.0 / 4)
                                        : 0;
  spec.indices = NULL;
  spec.steps = RMS_STEPS_WIDE; /* of which no other kind has all */
  return spec;
}

static void add_variant(bench_result *r, const bench_case *c, engine_role role, const char *name, const char *isa) {
  const rms_spec spec = variant_of(&c->spec, role);
  if (spec.kind == c->spec.kind && spec.partial == c->spec.partial && !c->spec.indices) return;
  add_library(r, c, role, name, isa, &spec);
}

static void add_copies(bench_result *r, const bench_case *c) {
  copy_method methods[COPY_METHODS_MAX];
  int count = copy_methods(&c->buffers, methods);
  for (int i = 0; i < count; i++) {
    char name[32];
    snprintf(name, sizeof name, "copy %s", methods[i].name);
    int role = strcmp(methods[i].name, "memcpy") == 0 ? ROLE_MEMCPY : ROLE_OTHER;
    add_engine(r, ENGINE_COPY, (engine_role)role, name)->copy = methods[i].run;
  }
}

static void add_saved(bench_result *r, const bench_case *c, const char *isa) {
  bench_engine *e = add_library(r, c, ROLE_SAVED, "saving statistics", isa, &c->spec);
  e->forward.rstd = c->saved;
  if (c->spec.kind == RMS_KIND_LAYER) e->forward.mean = c->saved + verify_statistic_count(&c->base.problem);
}

static void add_rivals(bench_result *r, const bench_case *c, const char *isa) {
  if (!c->base.problem.isa[0])
    for (int i = rms_isa_count() - 1; i >= 0; i--)
      if (rms_isa_usable(rms_isa_name(i)) && strcmp(rms_isa_name(i), rms_isa_active()) != 0)
        add_library(r, c, ROLE_OTHER, rms_isa_name(i), rms_isa_name(i), &c->spec);
  if (c->saved) add_saved(r, c, isa);
  add_variant(r, c, ROLE_RMS, "as RMSNorm", isa);
  add_variant(r, c, ROLE_PARTIAL, "as pRMSNorm 1/16", isa);
  add_variant(r, c, ROLE_LAYER, "as LayerNorm", isa);
  if (naive_supports(c)) add_engine(r, ENGINE_NAIVE, ROLE_OTHER, "naive C");
}

static void add_norms(bench_result *r, const bench_case *c, const char *isa) {
  static const struct {
    engine_role role;
    const char *name;
  } norms[] = {{ROLE_PARTIAL, "pRMSNorm 1/16"},
               {ROLE_QUARTER, "pRMSNorm 1/4"},
               {ROLE_RMS, "RMSNorm"},
               {ROLE_LAYER, "LayerNorm"}};
  for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++) {
    const rms_spec spec = variant_of(&c->spec, norms[i].role);
    add_library(r, c, norms[i].role, norms[i].name, isa, &spec);
  }
}

static void add_stores(bench_result *r, const bench_case *c, const char *isa) {
  bench_engine *plain, *stream;
  add_library(r, c, ROLE_SELF, "by default", isa, &c->spec);
  if ((plain = add_library(r, c, ROLE_PLAIN, "plain stores", isa, &c->spec))) plain->stream_bytes = INT64_MAX;
  if ((stream = add_library(r, c, ROLE_STREAM, "non-temporal stores", isa, &c->spec))) stream->stream_bytes = 0;
}

void engines_add(bench_result *r, const bench_case *c, measure_set set, int threads, const rms_executor *executor) {
  /* not named where the problem does not name it, because the library then chooses kernels for each type */
  const char *isa = c->base.problem.isa[0] ? c->base.problem.isa : NULL;
  const int first = r->engine_count;
  if (set == MEASURE_NORMS) {
    add_norms(r, c, isa);
  } else if (set == MEASURE_STORES) {
    add_stores(r, c, isa);
  } else {
    add_copies(r, c);
    add_library(r, c, ROLE_SELF, isa ? isa : rms_isa_active(), isa, &c->spec);
    if (set == MEASURE_ALL) add_rivals(r, c, isa);
  }
  for (int i = first; i < r->engine_count; i++) {
    r->engines[i].threads = threads;
    r->engines[i].executor = executor;
  }
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
