/* SPDX-License-Identifier: MIT
 *
 * rmsnorm bench --device cuda: operations in graph replay over rotating buffers, so that neither inputs nor outputs are
 * in L2, beside plain copies of the same bytes with the same mix of reads and writes. */
#include <cuda_runtime.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "rmsnorm_cuda.h"
#include "cuda.h"
extern "C" {
#include "cli.h"
#include "problem.h"
}

namespace {

enum { ROUNDS = 15, MOST_SETS = 1024 };
constexpr size_t cold_bytes = (size_t)640 << 20; /* of all sets together: several times the L2 */

#define MUST(call)                                                                                                     \
  do {                                                                                                                 \
    cudaError_t error_ = (call);                                                                                       \
    if (error_ != cudaSuccess) {                                                                                       \
      fprintf(stderr, "rmsnorm: cuda: %s\n", cudaGetErrorString(error_));                                              \
      exit(CLI_FAILED);                                                                                                \
    }                                                                                                                  \
  } while (0)

/* ---- plain copies ---- */

struct Streams {
  const uint4 *in[4];
  uint4 *out[3];
};

template <int READS, int WRITES, int UNROLL>
__global__ void __launch_bounds__(256) copy_kernel(Streams s, int64_t vectors) {
  int64_t first = (int64_t)blockIdx.x * 256 * UNROLL + threadIdx.x;
  uint4 v[UNROLL][READS];
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
#pragma unroll
    for (int r = 0; r < READS; r++)
      if (first + u * 256 < vectors) v[u][r] = s.in[r][first + u * 256];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    if (first + u * 256 >= vectors) continue;
    uint4 x = v[u][0];
#pragma unroll
    for (int r = 1; r < READS; r++)
      x.x ^= v[u][r].x, x.y ^= v[u][r].y, x.z ^= v[u][r].z, x.w ^= v[u][r].w;
#pragma unroll
    for (int w = 0; w < WRITES; w++)
      s.out[w][first + u * 256] = x;
  }
}

template <int READS, int WRITES> void copy_with(const Streams &s, int64_t vectors, int unroll, cudaStream_t stream) {
  unsigned blocks = (unsigned)((vectors + 256 * unroll - 1) / (256 * unroll));
  if (unroll == 1) copy_kernel<READS, WRITES, 1><<<blocks, 256, 0, stream>>>(s, vectors);
  if (unroll == 2) copy_kernel<READS, WRITES, 2><<<blocks, 256, 0, stream>>>(s, vectors);
  if (unroll == 4) copy_kernel<READS, WRITES, 4><<<blocks, 256, 0, stream>>>(s, vectors);
}

void copy(int reads, int writes, const Streams &s, int64_t vectors, int unroll, cudaStream_t stream) {
  if (reads == 1 && writes == 1) copy_with<1, 1>(s, vectors, unroll, stream);
  if (reads == 2 && writes == 1) copy_with<2, 1>(s, vectors, unroll, stream);
  if (reads == 2 && writes == 2) copy_with<2, 2>(s, vectors, unroll, stream);
  if (reads == 3 && writes == 1) copy_with<3, 1>(s, vectors, unroll, stream);
  if (reads == 3 && writes == 2) copy_with<3, 2>(s, vectors, unroll, stream);
  if (reads == 4 && writes == 1) copy_with<4, 1>(s, vectors, unroll, stream);
}

/* ---- random data ---- */

__device__ float noise(uint64_t i) {
  i = (i + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
  i ^= i >> 29;
  i *= 0x94d049bb133111ebull;
  i ^= i >> 32;
  return (float)(int32_t)(uint32_t)i * 0x1p-30f;
}

__global__ void fill_kernel(void *p, int64_t count, rms_dtype type, uint64_t seed) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
    float f = noise((uint64_t)i + (seed << 40));
    uint32_t bits = __float_as_uint(f);
    if (type == RMS_F32) static_cast<float *>(p)[i] = f;
    if (type == RMS_F64) static_cast<double *>(p)[i] = f;
    if (type == RMS_BF16) static_cast<uint16_t *>(p)[i] = (uint16_t)(bits >> 16);
    if (type == RMS_F16) /* sign, exponent 2^-1..2^0, random fraction */
      static_cast<uint16_t *>(p)[i] = (uint16_t)((bits >> 16 & 0x8000) | 0x3800 | (bits & 0x7ff));
  }
}

__global__ void ones_kernel(float *p, int64_t count) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
    p[i] = 1.0f;
}

/* ---- one problem ---- */

struct Buffers {
  char *x, *residual, *dy, *dresidual, *y, *sum, *dx, *ds;
  float *rstd, *mean;
};

struct Bench {
  verify_problem problem;
  verify_spec spec;
  rms_spec called; /* the same for the library */
  int64_t rows, cols, pitch, outer_pitch, elements;
  size_t size, residual_size;
  int reads, writes; /* streams of whole tensors */
  double bytes;      /* that must move            */
  std::vector<void *> owned;
  std::vector<Buffers> sets;
  char *weight, *bias, *dweight, *dbias, *workspace;
  size_t workspace_bytes;
  cudaStream_t stream;
};

char *allocate(Bench &b, size_t bytes) {
  void *p;
  MUST(cudaMalloc(&p, bytes + 256));
  b.owned.push_back(p);
  return static_cast<char *>(p);
}

/* Every tensor has room for the wider of the types in use: a copy moves the same bytes in each of its streams. */
char *tensor(Bench &b, size_t elements, rms_dtype type) {
  static uint64_t seed = 1;
  char *p = allocate(b, elements * std::max(rms_dtype_size(type), std::max(b.size, b.residual_size)));
  fill_kernel<<<1024, 256, 0, b.stream>>>(p, (int64_t)elements, type, seed++);
  return p;
}

/* Saved statistics: the time of a backward does not depend on their values. */
float *ones(Bench &b, size_t count) {
  float *p = reinterpret_cast<float *>(allocate(b, count * sizeof(float)));
  ones_kernel<<<256, 256, 0, b.stream>>>(p, (int64_t)count);
  return p;
}

bool wants(const Bench &b, unsigned output) {
  return (b.problem.outputs & output) != 0;
}

void count_streams(Bench &b) {
  const verify_problem &p = b.problem;
  double s = (double)b.elements * (double)b.size, r = (double)b.elements * (double)b.residual_size;
  if (!p.backward) {
    b.reads = 1 + p.has_residual;
    b.writes = 1 + wants(b, VERIFY_OUT_SUM);
    b.bytes = 2 * s + (p.has_residual ? r : 0) + (wants(b, VERIFY_OUT_SUM) ? r : 0);
  } else {
    b.reads = 2 + p.has_dresidual + ((p.accumulate & RMS_ACCUMULATE_DX) != 0);
    b.writes = wants(b, VERIFY_OUT_DX) + wants(b, VERIFY_OUT_DS);
    b.bytes = s + (p.has_residual ? r : s) + (p.has_dresidual ? r : 0) + (wants(b, VERIFY_OUT_DX) ? s : 0) +
              (wants(b, VERIFY_OUT_DS) ? r : 0) + (p.accumulate & RMS_ACCUMULATE_DX ? s : 0);
  }
}

Buffers make_set(Bench &b) {
  Buffers s = {};
  const verify_problem &p = b.problem;
  size_t span = (size_t)(b.problem.outer * b.outer_pitch);
  rms_dtype t = b.spec.dtype, r = b.spec.residual_dtype;
  s.x = tensor(b, span, p.backward && p.has_residual ? r : t);
  if (!p.backward) {
    if (p.has_residual) s.residual = tensor(b, span, r);
    s.y = tensor(b, span, t);
    if (wants(b, VERIFY_OUT_SUM)) s.sum = tensor(b, span, r);
  } else {
    s.dy = tensor(b, span, t);
    if (p.has_dresidual) s.dresidual = tensor(b, span, r);
    if (wants(b, VERIFY_OUT_DX)) s.dx = tensor(b, span, t);
    if (wants(b, VERIFY_OUT_DS)) s.ds = tensor(b, span, r);
  }
  size_t statistics = (size_t)(b.rows * (b.spec.groups > 1 ? b.spec.groups : 1)) * 2;
  s.rstd = ones(b, statistics);
  s.mean = ones(b, statistics);
  return s;
}

template <class View, class Data> void set_view(const Bench &b, View &view, Data *data, rms_dtype type) {
  if (data) view = {data, (int32_t)type, 0, b.outer_pitch, b.pitch, 0};
}

rms_status call_forward(const Bench &b, const Buffers &s) {
  rms_forward_args a = {};
  a.outer = b.problem.outer;
  a.inner = b.problem.inner;
  set_view(b, a.x, s.x, b.spec.dtype);
  set_view(b, a.residual, s.residual, b.spec.residual_dtype);
  set_view(b, a.y, s.y, b.spec.dtype);
  set_view(b, a.residual_out, s.sum, b.spec.residual_dtype);
  a.weight = b.weight;
  a.bias = b.bias;
  a.weight_dtype = a.bias_dtype = (int32_t)b.spec.weight_dtype;
  if (wants(b, VERIFY_OUT_STATS)) {
    a.rstd = s.rstd;
    a.mean = b.spec.kind == RMS_KIND_LAYER ? s.mean : nullptr;
  }
  return rms_cuda_forward(&b.called, &a, b.stream);
}

rms_backward_args backward_args(const Bench &b, const Buffers &s) {
  rms_backward_args a = {};
  a.outer = b.problem.outer;
  a.inner = b.problem.inner;
  set_view(b, a.dy, s.dy, b.spec.dtype);
  set_view(b, a.x, s.x, b.problem.has_residual ? b.spec.residual_dtype : b.spec.dtype);
  set_view(b, a.dresidual, s.dresidual, b.spec.residual_dtype);
  set_view(b, a.dx, s.dx, b.spec.dtype);
  set_view(b, a.dresidual_out, s.ds, b.spec.residual_dtype);
  a.weight = b.weight;
  a.weight_dtype = (int32_t)b.spec.weight_dtype;
  a.dweight_dtype = a.dbias_dtype = (int32_t)b.spec.grad_dtype;
  a.accumulate = b.problem.accumulate;
  if (!b.problem.recompute) {
    a.rstd = s.rstd;
    a.mean = b.spec.kind == RMS_KIND_LAYER ? s.mean : nullptr;
  }
  if (wants(b, VERIFY_OUT_DW)) a.dweight = b.dweight;
  if (wants(b, VERIFY_OUT_DB)) a.dbias = b.dbias;
  a.workspace = b.workspace;
  a.workspace_bytes = b.workspace_bytes;
  return a;
}

rms_status call_backward(const Bench &b, const Buffers &s) {
  const rms_backward_args a = backward_args(b, s);
  return rms_cuda_backward(&b.called, &a, b.stream);
}

struct Timing {
  double median, low, high; /* microseconds of one call */
};

template <class Queue> Timing time_of(Bench &b, int calls, Queue queue) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t start, stop;
  MUST(cudaStreamBeginCapture(b.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; i++)
    queue(i);
  MUST(cudaStreamEndCapture(b.stream, &graph));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaEventCreate(&start));
  MUST(cudaEventCreate(&stop));
  std::vector<double> times;
  for (int round = -2; round < ROUNDS; round++) {
    float ms;
    MUST(cudaEventRecord(start, b.stream));
    MUST(cudaGraphLaunch(exec, b.stream));
    MUST(cudaEventRecord(stop, b.stream));
    MUST(cudaEventSynchronize(stop));
    MUST(cudaEventElapsedTime(&ms, start, stop));
    if (round >= 0) times.push_back(1e3 * (double)ms / calls);
  }
  MUST(cudaEventDestroy(start));
  MUST(cudaEventDestroy(stop));
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return {times[ROUNDS / 2], times[1], times[ROUNDS - 2]};
}

/* The fastest of the copies: of several loops, and for one read and one write also the runtime's own. */
Timing time_copies(Bench &b, int calls) {
  Timing best = {1e30, 0, 0};
  const int64_t vectors = (int64_t)(b.bytes / (b.reads + b.writes) / 16);
  auto streams = [&](int i) -> Streams {
    const Buffers &s = b.sets[(size_t)i % b.sets.size()];
    Streams out = {};
    const char *in[] = {s.x, s.residual, s.dy, s.dresidual, s.dx};
    char *to[] = {s.y, s.sum, s.dx, s.ds};
    int n = 0, m = 0;
    for (const char *p : in)
      if (p && n < b.reads) out.in[n++] = reinterpret_cast<const uint4 *>(p);
    for (char *p : to)
      if (p && m < b.writes) out.out[m++] = reinterpret_cast<uint4 *>(p);
    return out;
  };
  for (int unroll = 1; unroll <= 4; unroll *= 2) {
    Timing t = time_of(b, calls, [&](int i) { copy(b.reads, b.writes, streams(i), vectors, unroll, b.stream); });
    if (t.median < best.median) best = t;
  }
  if (b.reads == 1 && b.writes == 1) {
    Timing t = time_of(b, calls, [&](int i) {
      Streams s = streams(i);
      (void)cudaMemcpyAsync(s.out[0], s.in[0], (size_t)vectors * 16, cudaMemcpyDeviceToDevice, b.stream);
    });
    if (t.median < best.median) best = t;
  }
  return best;
}

/* Everything of one problem on the device; returns an exit code, with a reason where it is not CLI_OK. */
int prepare(Bench &b, const char **reason) {
  b.spec = b.problem.spec;
  b.called = verify_library_spec(&b.spec);
  b.cols = b.spec.cols;
  b.rows = b.problem.outer * b.problem.inner;
  b.pitch = b.cols + b.problem.pad;
  b.outer_pitch = b.pitch * b.problem.inner + (b.problem.inner > 1 ? b.problem.pad : 0); /* a gap: two distances */
  b.elements = b.rows * b.cols;
  b.size = rms_dtype_size(b.spec.dtype);
  b.residual_size = rms_dtype_size(b.spec.residual_dtype);
  count_streams(b);
  *reason = "the split form, index lists and in-place problems are not timed on this device";
  if (b.problem.split || b.problem.has_indices || b.problem.in_place || b.elements == 0 || b.writes == 0)
    return CLI_BAD;
  *reason = "the tensors do not fit the device";
  size_t free_bytes, total;
  MUST(cudaMemGetInfo(&free_bytes, &total));
  double set_bytes = b.bytes * (double)b.pitch / (double)b.cols + 16.0 * (double)b.rows + 4096;
  int sets = (int)std::min((double)MOST_SETS, std::max(2.0, std::ceil((double)cold_bytes / set_bytes)));
  if (set_bytes * sets > 0.9 * (double)free_bytes) return CLI_BAD;
  MUST(cudaStreamCreate(&b.stream));
  size_t weights = (size_t)(b.cols * (b.spec.weight_per_inner ? b.problem.inner : 1));
  if (b.problem.has_weight) b.weight = tensor(b, weights, b.spec.weight_dtype);
  if (b.problem.has_bias) b.bias = tensor(b, weights, b.spec.weight_dtype);
  b.dweight = tensor(b, weights, RMS_F64);
  b.dbias = tensor(b, weights, RMS_F64);
  for (int i = 0; i < sets; i++)
    b.sets.push_back(make_set(b));
  if (b.problem.backward) {
    const rms_backward_args a = backward_args(b, b.sets[0]);
    b.workspace_bytes = rms_cuda_backward_workspace(&b.called, &a);
  }
  b.workspace = allocate(b, b.workspace_bytes);
  rms_status status = b.problem.backward ? call_backward(b, b.sets[0]) : call_forward(b, b.sets[0]);
  *reason = rms_status_string(status);
  if (status) return CLI_BAD;
  MUST(cudaDeviceSynchronize());
  return CLI_OK;
}

void release(Bench &b) {
  for (void *p : b.owned)
    (void)cudaFree(p);
  if (b.stream) (void)cudaStreamDestroy(b.stream);
}

/* What the library is held to on an H200; the last entries are what models in use ask for, without a bar. */
struct Bar {
  const char *problem;
  double share; /* of the ceiling; 0: none         */
  double rate;  /* GB/s; 0: none                   */
  double time;  /* at most so many microseconds, with inputs and outputs in L2 */
};

const Bar bars[] = {
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

struct Result {
  Timing ours, copy;
  Timing warm; /* over and over on the same buffers */
  double rate, ceiling;
};

/* A LayerNorm is held to the RMSNorm of the same shape: 5 % of its time. */
double partner_time(const std::vector<std::pair<const char *, Result>> &done, const char *text) {
  if (strncmp(text, "layer:", 6) != 0) return 0;
  for (const auto &d : done)
    if (strncmp(d.first, "rms:", 4) == 0 && strcmp(d.first + 4, text + 6) == 0) return d.second.ours.median;
  return 0;
}

void print_verdict(const Bar *bar, const Result &r, double partner) {
  if (bar && bar->share > 0)
    printf("  %s %.2f of the copy", r.rate >= bar->share * r.ceiling ? "reached" : "MISSED", bar->share);
  if (bar && bar->rate > 0) printf("  %s %.0f GB/s", r.rate >= bar->rate ? "reached" : "MISSED", bar->rate);
  if (bar && bar->time > 0)
    printf("  warm %.2f us, %s %.1f us", r.warm.median, r.warm.median <= bar->time ? "reached" : "MISSED", bar->time);
  if (partner > 0)
    printf("  %s 1.05 of RMSNorm (%.2f)", r.ours.median <= 1.05 * partner ? "reached" : "MISSED",
           r.ours.median / partner);
}

} // namespace

extern "C" int bench_cuda(char **problems, int count, int json) {
  if (rms_cuda_available() != RMS_OK) return cli_error("--device", "cuda: %s", rms_status_string(RMS_E_DEVICE));
  std::vector<std::pair<const char *, Result>> done;
  const int total = count ? count : (int)(sizeof bars / sizeof *bars);
  for (int i = 0; i < count; i++) {
    verify_problem problem;
    char message[256];
    if (verify_problem_parse(problems[i], &problem, message, sizeof message))
      return cli_error(problems[i], "%s", message);
  }
  if (json)
    printf("{\"device\": \"cuda\", \"results\": [");
  else
    printf("%-36s %9s %19s %7s %7s %6s\n", "problem", "us", "spread", "GB/s", "copy", "share");
  for (int i = 0; i < total; i++) {
    const char *text = count ? problems[i] : bars[i].problem, *reason;
    Bench b = {};
    char message[256];
    (void)verify_problem_parse(text, &b.problem, message, sizeof message);
    int code = prepare(b, &reason);
    if (code != CLI_OK) {
      release(b);
      return cli_error(text, "%s", reason);
    }
    int calls = std::max(8, (int)b.sets.size());
    Result r = {};
    auto time_ours = [&](size_t sets) {
      return time_of(b, calls, [&](int c) {
        const Buffers &s = b.sets[(size_t)c % sets];
        (void)(b.problem.backward ? call_backward(b, s) : call_forward(b, s));
      });
    };
    r.ours = time_ours(b.sets.size());
    if (!count && bars[i].time > 0) r.warm = time_ours(1);
    r.copy = time_copies(b, calls);
    r.rate = b.bytes / r.ours.median * 1e-3;
    r.ceiling = b.bytes / r.copy.median * 1e-3;
    release(b);
    if (json) {
      printf("%s\n  {\"problem\": ", i ? "," : "");
      cli_json_string(stdout, text);
      printf(", \"us\": %.4g, \"us_low\": %.4g, \"us_high\": %.4g, \"gb_per_s\": %.5g, \"copy_gb_per_s\": %.5g}",
             r.ours.median, r.ours.low, r.ours.high, r.rate, r.ceiling);
    } else {
      printf("%-36s %9.2f %9.2f-%9.2f %7.0f %7.0f %6.3f", text, r.ours.median, r.ours.low, r.ours.high, r.rate,
             r.ceiling, r.rate / r.ceiling);
      print_verdict(count ? nullptr : &bars[i], r, partner_time(done, text));
      printf("\n");
      fflush(stdout);
    }
    done.push_back({text, r});
  }
  if (json) printf("\n]}\n");
  return CLI_OK;
}
