/* SPDX-License-Identifier: MIT */
#include "bars.h"

#include <stdio.h>

/* 8192x4096 lies past the caches of most machines; 512x1024 (2 + 2 MB) in the last-level cache; 64x1024 (256 + 256 KB)
 * in the second; a row of 4096 about the first. Consecutive bars on the same problem share one measurement. */
const bench_bar BENCH_BARS[] = {
    {"rms:fwd:f32:8192x4096", BAR_CEILING, 0.90},     {"rms:fwd:f32:8192x4096:threads=2", BAR_CEILING, 0.90},
    {"rms:fwd:bf16:8192x4096", BAR_CEILING, 0.75},    {"rms:fwd:f16:8192x4096", BAR_CEILING, 0.75},
    {"rms:bwd:f32:8192x4096", BAR_CEILING, 0.85},     {"rms:bwd:bf16:8192x4096", BAR_CEILING, 0.60},
    {"rms:fwd:f32:8192x4096:res", BAR_CEILING, 0.85}, {"rms:fwd:f32:512x1024", BAR_MEMCPY, 1 / 1.25},
    {"rms:fwd:f32:512x1024", BAR_LAYER, 0.25},        {"rms:fwd:f32:512x1024", BAR_PARTIAL, 0.20},
    {"rms:fwd:f32:64x1024", BAR_LAYER, 0.25},         {"rms:fwd:f32:64x1024", BAR_PARTIAL, 0.20},
    {"rms:fwd:f32:1x4096", BAR_MEMCPY, 1 / 1.7},      {"rms:fwd:f32:4096x128", BAR_MEMCPY, 0.50},
    {"rms:fwd:bf16:4096x128", BAR_MEMCPY, 0.30},      {"rms:fwd:f32:1x64", BAR_CALL, 45},
};
const int BENCH_BAR_COUNT = sizeof BENCH_BARS / sizeof BENCH_BARS[0];

void bar_describe(const bench_bar *bar, char *text, size_t size) {
  switch (bar->measure) {
  case BAR_CEILING:
    snprintf(text, size, "at least %.2f of the fastest copy", bar->limit);
    break;
  case BAR_MEMCPY:
    snprintf(text, size, "at least %.2f of memcpy", bar->limit);
    break;
  case BAR_CALL:
    snprintf(text, size, "at most %.0f ns a call", bar->limit);
    break;
  case BAR_LAYER:
    snprintf(text, size, "at least %.0f %% less time than LayerNorm", 100 * bar->limit);
    break;
  case BAR_PARTIAL:
    snprintf(text, size, "pRMSNorm 1/16: at least %.0f %% less time", 100 * bar->limit);
    break;
  }
}

double bar_value(const bench_bar *bar, const bench_result *result) {
  const bench_engine *self = result_engine(result, ROLE_SELF);
  switch (bar->measure) {
  case BAR_CEILING:
    return self->of_ceiling;
  case BAR_MEMCPY:
    return engine_ratio(self, result_engine(result, ROLE_MEMCPY));
  case BAR_CALL:
    return self->median;
  case BAR_LAYER:
    return 1 - engine_ratio(result_engine(result, ROLE_LAYER), self);
  case BAR_PARTIAL:
    return 1 - engine_ratio(self, result_engine(result, ROLE_PARTIAL));
  }
  return 0;
}

int bar_reached(const bench_bar *bar, double value) {
  return bar->measure == BAR_CALL ? value <= bar->limit : value >= bar->limit;
}

const flat_level FLAT_LEVELS[FLAT_LEVEL_COUNT] = {
    {"second-level cache", 1 << 16}, {"last-level cache", 1 << 20}, {"memory", 1 << 24}};
const int64_t FLAT_WIDTHS[FLAT_WIDTH_COUNT] = {64, 256, 1024, 4096, 16384, 65536, 262144, 1048576};
const double FLAT_LIMIT = 1.5;

void workspace_sizes(size_t *few_rows, size_t *many_rows) {
  static float somewhere;
  rms_spec spec = {.cols = 4096, .eps = 1e-6};
  rms_backward_args args = {.x = {&somewhere, RMS_F32}, .dy = {.data = &somewhere}, .dweight = &somewhere};
  args.outer = (int64_t)1 << 20;
  *few_rows = rms_backward_workspace(&spec, &args);
  args.outer = (int64_t)1 << 40;
  *many_rows = rms_backward_workspace(&spec, &args);
}
