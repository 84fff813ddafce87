/* SPDX-License-Identifier: MIT
 *
 * What `rmsnorm bench --device cuda` times when it is given no problem, and what the library is held to on an H200. The
 * last entries are what models in use ask for, without a target. */
#ifndef RMSNORM_BENCH_CUDA_TARGETS_H
#define RMSNORM_BENCH_CUDA_TARGETS_H

struct Target {
  const char *problem;
  double share; /* of the ceiling; 0: none                                     */
  double rate;  /* GB/s; 0: none                                               */
  double time;  /* at most so many microseconds, with inputs and outputs in L2 */
};

static const Target targets[] = {
    {"rms:fwd:bf16:32768x1024", 0.97, 0, 0},
    {"rms:fwd:bf16:32768x4096", 0.97, 0, 0},
    {"rms:fwd:bf16:16384x8192", 0.97, 0, 0},
    {"rms:fwd:bf16:8192x16384", 0.97, 0, 0},
    {"rms:fwd:bf16:4096x32768", 0.95, 0, 0},
    {"rms:fwd:bf16:2048x65536", 0.95, 0, 0},
    {"rms:fwd:bf16:1024x131072", 0.95, 0, 0},
    {"rms:fwd:bf16:32768x128", 1.0, 0, 0},
    {"rms:fwd:bf16:8x4096", 0, 0, 1.7},
    {"rms:fwd:bf16:64x4096", 0, 0, 2.1},
    {"rms:bwd:bf16:32768x4096", 0.92, 0, 0},
    {"rms:bwd:bf16:16384x8192", 0.92, 0, 0},
    {"rms:bwd:bf16:8192x4096", 0, 3700, 0},
    {"rms:bwd:bf16:32768x1024", 0.88, 0, 0},
    {"rms:bwd:bf16:8192x16384", 0.88, 0, 0},
    {"rms:bwd:bf16:4096x32768", 0.88, 0, 0},
    {"rms:bwd:bf16:32768x128", 0, 2500, 0},
    {"rms:fwd:bf16:32768x4096:res", 0.95, 0, 0},
    {"layer:fwd:bf16:32768x1024", 0, 0, 0},
    {"layer:fwd:bf16:32768x4096", 0, 0, 0},
    {"layer:fwd:bf16:16384x8192", 0, 0, 0},
    {"layer:fwd:bf16:8192x16384", 0, 0, 0},
    {"layer:fwd:bf16:4096x32768", 0, 0, 0},
    {"layer:fwd:bf16:2048x65536", 0, 0, 0},
    {"layer:fwd:bf16:1024x131072", 0, 0, 0},
    {"layer:fwd:bf16:32768x128", 0, 0, 0},
    {"layer:fwd:bf16:8x4096", 0, 0, 0},
    {"layer:fwd:bf16:64x4096", 0, 0, 0},
    {"layer:bwd:bf16:32768x4096", 0, 0, 0},
    {"layer:bwd:bf16:16384x8192", 0, 0, 0},
    {"layer:bwd:bf16:8192x4096", 0, 0, 0},
    {"layer:bwd:bf16:32768x1024", 0, 0, 0},
    {"layer:bwd:bf16:8192x16384", 0, 0, 0},
    {"layer:bwd:bf16:4096x32768", 0, 0, 0},
    {"layer:bwd:bf16:32768x128", 0, 0, 0},
    {"rms:fwd:bf16:32768x4096:round=before", 0, 0, 0},
    {"rms:fwd:bf16:8x4096:round=before", 0, 0, 0},
    {"prms:fwd:bf16:32768x4096:p=0.25", 0, 0, 0},
    {"rms:fwd:bf16:32768x4096:w=f32", 0, 0, 0},
    {"rms:fwd:bf16:32768x4096:res=f32", 0, 0, 0},
    {"rms:fwd:bf16:1024x32x128:pad=128", 0, 0, 0},
    {"rms:fwd:bf16:1024x32x128:perhead", 0, 0, 0},
    {"rms:fwd:bf16:32768x768", 0, 0, 0},
    {"rms:fwd:bf16:16384x5120", 0, 0, 0},
    {"rms:fwd:bf16:8192x12288", 0, 0, 0},
    {"rms:fwd:f32:16384x4096", 0, 0, 0},
    {"rms:fwd:f64:8192x4096", 0, 0, 0},
    {"rms:fwd:bf16:32768x4097", 0, 0, 0},
    {"rms:bwd:bf16:32768x4096:round=before", 0, 0, 0},
    {"rms:bwd:bf16:32768x4096:res:dres", 0, 0, 0},
    {"rms:bwd:bf16:32768x4096:recompute", 0, 0, 0},
    {"prms:bwd:bf16:32768x4096:p=0.25", 0, 0, 0},
    {"rms:bwd:bf16:1024x32x128:pad=128", 0, 0, 0},
    {"layer:bwd:bf16:32768x4096:bias", 0, 0, 0},
    {"layer:bwd:bf16:8192x16384:bias", 0, 0, 0},
    {"rms:bwd:bf16:32768x768", 0, 0, 0},
    {"rms:bwd:bf16:16384x5120", 0, 0, 0},
    {"rms:bwd:bf16:8192x12288", 0, 0, 0},
    {"rms:bwd:f32:16384x4096", 0, 0, 0},
};

#endif
