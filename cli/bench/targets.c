/* SPDX-License-Identifier: MIT */
#include "targets.h"

#include <stdio.h>

#include "report.h"

/* 8192x4096 lies past the caches of most machines; 512x1024 (2 + 2 MB) in the last-level cache; 64x1024 (256 + 256 KB)
 * in the second; a row of 4096 about the first. Consecutive targets on the same problem share one measurement. The
 * special forms at the end are timed beside the copies alone, so that the list stays short. */
const bench_target BENCH_TARGETS[] = {
    {"rms:fwd:f32:8192x4096", TARGET_CEILING, 0.90},
    {"rms:fwd:f32:8192x4096:threads=2", TARGET_CEILING, 0.90},
    {"rms:fwd:bf16:8192x4096", TARGET_CEILING, 0.75},
    {"rms:fwd:f16:8192x4096", TARGET_CEILING, 0.75},
    {"rms:bwd:f32:8192x4096", TARGET_CEILING, 0.85},
    {"rms:bwd:bf16:8192x4096", TARGET_CEILING, 0.60},
    {"rms:fwd:f32:8192x4096:res", TARGET_CEILING, 0.85},
    {"rms:fwd:f32:512x1024", TARGET_MEMCPY, 1 / 1.25},
    {"rms:fwd:f32:512x1024", TARGET_LAYER, 0.25},
    {"rms:fwd:f32:512x1024", TARGET_PARTIAL, 0.20},
    {"rms:fwd:f32:512x1024", TARGET_SAVED, 1.03},
    {"rms:fwd:f32:64x1024", TARGET_LAYER, 0.25},
    {"rms:fwd:f32:64x1024", TARGET_PARTIAL, 0.20},
    {"rms:fwd:f32:1x4096", TARGET_MEMCPY, 1 / 1.7},
    {"rms:fwd:f32:4096x128", TARGET_MEMCPY, 0.50},
    {"rms:fwd:f32:4096x128", TARGET_SAVED, 1.03},
    {"rms:fwd:bf16:4096x128", TARGET_MEMCPY, 0.30},
    {"rms:fwd:bf16:4096x128", TARGET_SAVED, 1.03},
    {"rms:fwd:f32:1x64", TARGET_CALL, 45},
    /* short rows without a weight: no more time than with one; of LayerNorm, a third more */
    {"rms:fwd:f32:4096x128:w=none", TARGET_MEMCPY, 0.50, MEASURE_ESSENTIAL},
    {"layer:fwd:f32:4096x128:bias", TARGET_MEMCPY, 0.50 / 1.33, MEASURE_ESSENTIAL},
    {"layer:fwd:bf16:4096x128:bias", TARGET_MEMCPY, 0.30 / 1.33, MEASURE_ESSENTIAL},
    {"layer:bwd:f32:4096x128:bias", TARGET_NONE, 0, MEASURE_ESSENTIAL},
    /* Llama's order of rounding, wider rows, a gate: at most 1.1, 1 and 1.3 times the time of a byte without */
    {"rms:fwd:bf16:8192x4096:round=before", TARGET_CEILING, 0.75 / 1.1},
    {"rms:fwd:bf16:4096x8192", TARGET_CEILING, 0.75},
    {"rms:fwd:bf16:8192x4096:gate=after", TARGET_CEILING, 0.75 / 1.3},
    /* quantised outputs: at most 1.3 times the time of a byte without */
    {"rms:fwd:bf16:8192x4096:q=i8", TARGET_CEILING, 0.75 / 1.3, MEASURE_ESSENTIAL},
    {"rms:fwd:bf16:8192x4096:q=e4m3", TARGET_CEILING, 0.75 / 1.3, MEASURE_ESSENTIAL},
    {"rms:fwd:bf16:8192x4096:q=e4m3:qblock=128", TARGET_CEILING, 0.75 / 1.3, MEASURE_ESSENTIAL},
    {"rms:fwd:bf16:8192x4096:q=q8_0", TARGET_CEILING, 0.75 / 1.3, MEASURE_ESSENTIAL},
    /* a y of another type, scale and shift for each sample: no more time for a byte than without */
    {"rms:fwd:bf16:8192x4096:w=f32:y=f32:round=before", TARGET_CEILING, 0.75 / 1.1, MEASURE_ESSENTIAL},
    {"rms:bwd:bf16:8192x4096:w=f32:y=f32:round=before", TARGET_CEILING, 0.60, MEASURE_ESSENTIAL},
    {"rms:fwd:f32:8192x4096:y=bf16", TARGET_CEILING, 0.75, MEASURE_ESSENTIAL},
    {"layer:fwd:bf16:256x64x1152:bias:off=1:perhead:wstride=6912", TARGET_CEILING, 0.60, MEASURE_ESSENTIAL},
    {"layer:bwd:bf16:256x64x1152:bias:off=1:perhead:wstride=6912", TARGET_CEILING, 0.45, MEASURE_ESSENTIAL},
    /* padded batches, a NaN in the data, and rows that need a scale: 1.05, 1.2 and 2.5 times the time of others */
    {"rms:bwd:bf16:8192x4096:dydata=zerorows", TARGET_CEILING, 0.60 / 1.05, MEASURE_ESSENTIAL},
    {"rms:fwd:f32:8192x4096:data=nanrows", TARGET_CEILING, 0.90 / 1.2, MEASURE_ESSENTIAL},
    {"rms:fwd:bf16:8192x4096:data=mixed", TARGET_CEILING, 0.75 / 2.5, MEASURE_ESSENTIAL},
    /* the other gates and a residual: at most 1.3 times the time of a byte without gate and q */
    {"rms:fwd:bf16:8192x4096:gate=before", TARGET_CEILING, 0.75 / 1.3, MEASURE_ESSENTIAL},
    {"rms:bwd:bf16:8192x4096:gate=after", TARGET_CEILING, 0.60 / 1.3, MEASURE_ESSENTIAL},
    {"rms:bwd:bf16:8192x4096:gate=before", TARGET_CEILING, 0.60 / 1.3, MEASURE_ESSENTIAL},
    {"rms:fwd:bf16:8192x4096:res:q=i8", TARGET_CEILING, 0.75 / 1.3, MEASURE_ESSENTIAL},
    /* on many threads the memory is the limit, not the arithmetic */
    {"rms:fwd:bf16:8192x4096:gate=after:threads=16", TARGET_CEILING, 0.90, MEASURE_ESSENTIAL},
    {"rms:fwd:bf16:8192x4096:gate=before:threads=16", TARGET_CEILING, 0.90, MEASURE_ESSENTIAL},
    {"rms:bwd:bf16:8192x4096:gate=after:threads=16", TARGET_CEILING, 0.80, MEASURE_ESSENTIAL},
    {"rms:bwd:bf16:8192x4096:gate=before:threads=16", TARGET_CEILING, 0.80, MEASURE_ESSENTIAL},
    {"rms:fwd:bf16:8192x4096:q=i8:threads=16", TARGET_CEILING, 0.90, MEASURE_ESSENTIAL},
    {"rms:fwd:bf16:8192x4096:q=e4m3:threads=16", TARGET_CEILING, 0.90, MEASURE_ESSENTIAL},
    {"rms:fwd:bf16:8192x4096:res:q=i8:threads=16", TARGET_CEILING, 0.90, MEASURE_ESSENTIAL},
    /* a lower bound instead of eps: no more time than eps; the rest has no target */
    {"rms:fwd:bf16:8192x4096:epsclamp", TARGET_CEILING, 0.75, MEASURE_ESSENTIAL},
    {"rms:fwd:bf16:2048x4096:w=none:steps=rstd", TARGET_NONE, 0, MEASURE_ESSENTIAL},
    {"rms:bwd:bf16:2048x4096:steps=terms", TARGET_NONE, 0, MEASURE_ESSENTIAL},
    {"layer:fwd:bf16:2048x4096:bias:steps=all", TARGET_NONE, 0, MEASURE_ESSENTIAL},
    {"layer:fwd:bf16:2048x4096:bias:off=1:gain=weight", TARGET_NONE, 0, MEASURE_ESSENTIAL},
    {"layer:fwd:f32:8x3136x96:bias:channels=first", TARGET_NONE, 0, MEASURE_ESSENTIAL},
    {"layer:bwd:f32:8x3136x96:bias:channels=first", TARGET_NONE, 0, MEASURE_ESSENTIAL},
    {"rms:fwd:bf16:2048x4096:out=stats", TARGET_NONE, 0, MEASURE_ESSENTIAL},
    {"rms:bwd:bf16:2048x4096:w=none:of=stats", TARGET_NONE, 0, MEASURE_ESSENTIAL},
};
const int BENCH_TARGET_COUNT = sizeof BENCH_TARGETS / sizeof BENCH_TARGETS[0];
_Static_assert(sizeof BENCH_TARGETS / sizeof BENCH_TARGETS[0] + FLAT_LEVEL_COUNT + 1 <= REPORT_TARGETS_MAX,
               "the report has a line for each target, each level of flatness and the workspace");

void target_describe(const bench_target *target, char *text, size_t size) {
  switch (target->measure) {
  case TARGET_CEILING:
    snprintf(text, size, "at least %.2f of the fastest copy", target->limit);
    break;
  case TARGET_MEMCPY:
    snprintf(text, size, "at least %.2f of memcpy", target->limit);
    break;
  case TARGET_CALL:
    snprintf(text, size, "at most %.0f ns a call", target->limit);
    break;
  case TARGET_LAYER:
    snprintf(text, size, "at least %.0f %% less time than LayerNorm", 100 * target->limit);
    break;
  case TARGET_PARTIAL:
    snprintf(text, size, "pRMSNorm 1/16: at least %.0f %% less time", 100 * target->limit);
    break;
  case TARGET_NONE:
    snprintf(text, size, "no target");
    break;
  case TARGET_SAVED:
    snprintf(text, size, "statistics saved: at most %.2f of the time", target->limit);
    break;
  }
}

double target_value(const bench_target *target, const bench_result *result) {
  const bench_engine *self = result_engine(result, ROLE_SELF);
  switch (target->measure) {
  case TARGET_CEILING:
    return self->of_ceiling;
  case TARGET_MEMCPY:
    return engine_ratio(self, result_engine(result, ROLE_MEMCPY));
  case TARGET_CALL:
    return self->median;
  case TARGET_LAYER:
    return 1 - engine_ratio(result_engine(result, ROLE_LAYER), self);
  case TARGET_PARTIAL:
    return 1 - engine_ratio(self, result_engine(result, ROLE_PARTIAL));
  case TARGET_SAVED:
    return engine_ratio(self, result_engine(result, ROLE_SAVED));
  case TARGET_NONE:
    break;
  }
  return 0;
}

int target_met(const bench_target *target, double value) {
  const int at_most = target->measure == TARGET_CALL || target->measure == TARGET_SAVED;
  return at_most ? value <= target->limit : value >= target->limit;
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
