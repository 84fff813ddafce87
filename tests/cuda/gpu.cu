/* SPDX-License-Identifier: MIT
 *
 * The CUDA library on a GPU: the whole matrix of operations against the oracle, bits that may not change, sizes beyond
 * 2^31, graphs. Exit status 77: there is no device. --quick: fewer sizes; --small: a set for compute-sanitizer. */
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>
#include "rmsnorm_cuda.h"
extern "C" {
#include "run.h"
#include "suite.h"
}

static int failures, checks;

static void expect(bool ok, const std::string &what) {
  checks++;
  if (!ok) {
    failures++;
    if (failures <= 40) printf("FAILED %s\n", what.c_str());
    fflush(stdout);
  }
}

static void must(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  printf("FAILED %s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}

/* ---- against the oracle ---- */

static void run_problem(const vf_backend *backend, const vf_problem &problem) {
  vf_result result;
  char text[VF_TEXT_MAX];
  bool ok = vf_run(&problem, backend, &result) == 1;
  if (result.refused) return;
  vf_problem_print(&problem, text, sizeof text);
  expect(ok, std::string(text) + ": " + result.message);
}

static void run_text(const vf_backend *backend, const std::string &text) {
  vf_problem problem;
  char message[256];
  if (vf_problem_parse(text.c_str(), &problem, message, sizeof message)) {
    expect(false, text + ": " + message);
    return;
  }
  run_problem(backend, problem);
}

enum Extent { SMALL, QUICK, FULL };

static void test_matrix(const vf_backend *backend, Extent extent) {
  const bool small = extent == SMALL;
  int templates, sizes;
  const vf_template *t = vf_suite_templates(&templates);
  const int64_t *size = vf_suite_sizes(extent == FULL, &sizes);
  for (int i = 0; i < templates; i++)
    for (int dtype = 0; dtype < 4; dtype++)
      for (int s = 0; s < sizes; s++) {
        vf_problem problem;
        if (small && s % 2 == 0) continue;
        if (vf_suite_problem(&t[i], (rms_dtype)dtype, size[s], &problem)) run_problem(backend, problem);
      }
}

/* Widths on both sides of every change of kernel, and very wide ones. */
static void test_widths(const vf_backend *backend, Extent extent) {
  const char *types[] = {"f32", "bf16", "f16"};
  const int64_t widths[] = {8,     16,     56,     72,     136,    256,    264,    504,     512,
                            520,   768,    1024,   1032,   2048,   2560,   5120,   6144,    8192,
                            8200,  12288,  16384,  16392,  20480,  32768,  32776,  49152,   65536,
                            65544, 100000, 131072, 131080, 200000, 262144, 300000, 1048576, 1048577};
  const char *problems[] = {"rms:fwd:%s:2x%s:out=y+stats",
                            "layer:fwd:%s:2x%s:bias:w=f32",
                            "rms:bwd:%s:3x%s",
                            "layer:bwd:%s:3x%s:bias:recompute",
                            "rms:fwd:%s:2x%s:res",
                            "rms:bwd:%s:3x%s:res:dres:pad=8",
                            "prms:bwd:%s:2x%s:p=0.3:recompute",
                            "rms:fwd:%s:3x%s:round=before:bias",
                            "prms:fwd:%s:2x%s:p=0.3:epsout:w=none",
                            "rms:fwd:%s:2x3x%s:perhead:pad=8:off=1",
                            "layer:fwd:%s:2x%s:groups=8:w=f32:res",
                            "layer:bwd:%s:3x%s:bias",
                            "rms:bwd:%s:3x%s:round=before"};
  for (const char *type : types)
    for (int64_t width : widths)
      for (const char *problem : problems) {
        char text[256];
        if (width > 300000 && (problem != problems[0] && problem != problems[2])) continue;
        if (extent != FULL && (width > 132000 || (strcmp(type, "bf16") != 0 && width % 100 != 20))) continue;
        snprintf(text, sizeof text, problem, type, std::to_string(width).c_str());
        run_text(backend, text);
      }
  for (const char *type : {"f32", "bf16", "f16", "f64"})
    for (const char *rest :
         {"rms:bwd:%s:3000x24:bias", "rms:bwd:%s:9000x128", "layer:bwd:%s:2000x512:bias",
          "rms:bwd:%s:700000x2:grad=f32", "rms:bwd:%s:700x4x64:perhead:bias", "rms:bwd:%s:900x1536:groups=3",
          "rms:bwd:%s:3000x1024:pad=8", "layer:bwd:%s:1400x2048:bias:pad=3", "layer:bwd:%s:3000x1024:bias",
          "rms:bwd:%s:3000x1024:round=before", "rms:bwd:%s:9000x128:round=before:w=f32",
          "rms:bwd:%s:700x4x64:pad=16:round=before"}) {
      char text[256];
      snprintf(text, sizeof text, rest, type);
      run_text(backend, text);
    }
  if (extent == FULL) { /* so many rows that the partial sums are f64 */
    run_text(backend, "rms:bwd:bf16:3300000x2");
    run_text(backend, "layer:bwd:bf16:7000x8192:bias");
  }
}

/* ---- bits ---- */

struct Device {
  std::vector<void *> owned;
  ~Device() {
    for (void *p : owned)
      (void)cudaFree(p);
  }
  char *bytes(size_t n) {
    void *p;
    must(cudaMalloc(&p, n + 512), "cudaMalloc");
    owned.push_back(p);
    return static_cast<char *>(p);
  }
  char *copy(const std::vector<char> &host, size_t offset) {
    char *p = bytes(host.size() + offset) + offset;
    must(cudaMemcpy(p, host.data(), host.size(), cudaMemcpyHostToDevice), "copy");
    return p;
  }
};

static std::vector<char> fetch(const char *p, size_t n) {
  std::vector<char> host(n);
  must(cudaMemcpy(host.data(), p, n, cudaMemcpyDeviceToHost), "fetch");
  return host;
}

static std::vector<char> random_elements(rms_dtype type, int64_t n, uint64_t seed) {
  std::vector<char> out((size_t)n * rms_dtype_size(type));
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    float f = (float)((int64_t)(seed >> 33) - (1 << 30)) / (float)(1 << 28);
    uint32_t bits;
    memcpy(&bits, &f, 4);
    char *to = &out[(size_t)i * rms_dtype_size(type)];
    uint16_t half =
        type == RMS_BF16 ? (uint16_t)(bits >> 16) : (uint16_t)((bits >> 16 & 0x8000) | 0x3800 | (bits >> 8 & 0x7ff));
    double d = f;
    if (type == RMS_F32) memcpy(to, &f, 4);
    if (type == RMS_F64) memcpy(to, &d, 8);
    if (rms_dtype_size(type) == 2) memcpy(to, &half, 2);
  }
  return out;
}

/* A row of elements of about this size, or zeros: beyond the range in which sums are formed without scaling. */
static void extreme_row(std::vector<char> &x, rms_dtype type, int64_t row, int64_t cols, int exponent) {
  const size_t size = rms_dtype_size(type);
  for (int64_t i = row * cols; i < (row + 1) * cols; i++) {
    uint32_t bits;
    char *at = &x[(size_t)i * size];
    if (exponent == 0) {
      memset(at, 0, size);
    } else if (type == RMS_F32) {
      memcpy(&bits, at, 4);
      bits = (bits & 0x807fffff) | (uint32_t)(exponent + 127) << 23;
      memcpy(at, &bits, 4);
    } else if (type == RMS_BF16) {
      uint16_t half;
      memcpy(&half, at, 2);
      half = (uint16_t)((half & 0x807f) | (exponent + 127) << 7);
      memcpy(at, &half, 2);
    }
  }
}

struct Shape {
  rms_dtype type;
  rms_kind kind;
  int64_t rows, cols;
};

struct Outputs {
  std::vector<char> y, rstd, dx, dweight;
};

/* How the rows are laid out, and what is asked for. */
struct Way {
  int64_t pitch;   /* elements from one row to the next                                     */
  size_t offset;   /* bytes that every tensor starts beyond an aligned address              */
  int64_t inner;   /* rows of an outer index, between which there is a gap; 0: no gaps      */
  bool listed;     /* the elements of the statistic as a list: takes other kernels          */
  bool recompute;  /* no saved statistics                                                   */
  int64_t partial; /* elements in the statistic; 0: all                                     */
  bool before;     /* rounding before the weight                                            */
  bool residual;   /* a gradient is added, and the sum goes to a second tensor too          */
};

/* Forward and backward of `rows` rows of the data. */
static Outputs run_layout(const Shape &s, const std::vector<char> &x, const std::vector<char> &dy,
                          const std::vector<char> &weight, const Way &way) {
  Device device;
  const size_t size = rms_dtype_size(s.type), row = (size_t)s.cols * size, stat = s.type == RMS_F64 ? 8 : 4;
  const size_t offset = way.offset;
  const int64_t inner = way.inner ? way.inner : 1, outer_pitch = inner * way.pitch + (way.inner ? 16 : 0);
  const int64_t outer = s.rows / inner;
  rms_spec spec = {};
  spec.cols = s.cols;
  spec.eps = 1e-6;
  spec.kind = s.kind;
  spec.dtype = spec.weight_dtype = spec.residual_dtype = s.type;
  spec.grad_dtype = RMS_F32;
  if (s.type == RMS_F64) spec.grad_dtype = RMS_F64;
  if (way.before) spec.rounding = RMS_ROUND_BEFORE_WEIGHT;
  spec.partial = way.partial;
  auto at = [&](int64_t r) { return (size_t)(r / inner * outer_pitch + r % inner * way.pitch) * size; };
  std::vector<char> spread_x((size_t)(outer * outer_pitch) * size), spread_dy(spread_x.size());
  for (int64_t r = 0; r < s.rows; r++) {
    memcpy(&spread_x[at(r)], &x[(size_t)r * row], row);
    memcpy(&spread_dy[at(r)], &dy[(size_t)r * row], row);
  }
  char *at_x = device.copy(spread_x, offset), *at_dy = device.copy(spread_dy, offset),
       *at_w = device.copy(weight, offset);
  char *y = device.bytes(spread_x.size() + offset) + offset, *dx = device.bytes(spread_x.size() + offset) + offset,
       *ds = device.bytes(spread_x.size() + offset) + offset;
  char *rstd = device.bytes((size_t)s.rows * stat), *mean = device.bytes((size_t)s.rows * stat),
       *dw = device.bytes((size_t)s.cols * 8);
  if (way.listed) {
    if (!spec.partial) spec.partial = s.cols;
    std::vector<int64_t> list((size_t)spec.partial);
    for (int64_t i = 0; i < spec.partial; i++)
      list[(size_t)i] = i;
    const char *bytes = reinterpret_cast<char *>(list.data());
    spec.indices = reinterpret_cast<int64_t *>(device.copy(std::vector<char>(bytes, bytes + list.size() * 8), 0));
  }
  must(cudaMemset(y, 0xff, spread_x.size()), "memset"); /* the gaps between rows are fetched too */
  must(cudaMemset(dx, 0xff, spread_x.size()), "memset");
  must(cudaMemset(ds, 0xff, spread_x.size()), "memset");
  rms_forward_args f = {};
  f.outer = outer;
  f.inner = inner;
  f.x = {at_x, outer_pitch, way.pitch};
  f.y = {y, outer_pitch, way.pitch};
  f.weight = at_w;
  f.rstd = rstd;
  f.mean = mean;
  expect(rms_cuda_forward(&spec, &f, nullptr) == RMS_OK, "forward status");
  rms_backward_args b = {};
  b.outer = outer;
  b.inner = inner;
  b.dy = {at_dy, outer_pitch, way.pitch};
  b.x = {at_x, outer_pitch, way.pitch};
  b.weight = at_w;
  if (!way.recompute) {
    b.rstd = rstd;
    b.mean = s.kind == RMS_KIND_LAYER ? mean : nullptr;
  }
  b.dx = {dx, outer_pitch, way.pitch};
  if (way.residual) {
    b.dresidual = {at_x, outer_pitch, way.pitch};
    b.dresidual_out = {ds, outer_pitch, way.pitch};
  }
  b.dweight = dw;
  b.workspace_bytes = rms_cuda_backward_workspace(&spec, outer, inner);
  b.workspace = device.bytes(b.workspace_bytes);
  expect(rms_cuda_backward(&spec, &b, nullptr) == RMS_OK, "backward status");
  must(cudaDeviceSynchronize(), "run");
  Outputs out;
  std::vector<char> wide_y = fetch(y, spread_x.size()), wide_dx = fetch(dx, spread_x.size()),
                    wide_ds = fetch(ds, spread_x.size());
  for (int64_t r = 0; r < s.rows; r++) {
    out.y.insert(out.y.end(), &wide_y[at(r)], &wide_y[at(r)] + row);
    out.dx.insert(out.dx.end(), &wide_dx[at(r)], &wide_dx[at(r)] + row);
    if (way.residual) expect(memcmp(&wide_ds[at(r)], &wide_dx[at(r)], row) == 0, "dresidual_out is dx");
  }
  out.rstd = fetch(rstd, (size_t)s.rows * stat);
  out.dweight = fetch(dw, (size_t)s.cols * (s.type == RMS_F64 ? 8 : 4));
  return out;
}

/* Some rows out of range in all the ways there are. */
static void add_extremes(const Shape &s, std::vector<char> &x, std::vector<char> &dy) {
  const int x_size[] = {0, 100, -100, 1, 1, 1, 120, -110}, dy_size[] = {1, 1, 1, 0, 100, -100, -90, 90};
  for (int i = 0; i < 8 && s.rows >= 12; i++) {
    if (x_size[i] != 1) extreme_row(x, s.type, i + 2, s.cols, x_size[i]);
    if (dy_size[i] != 1) extreme_row(dy, s.type, i + 2, s.cols, dy_size[i]);
  }
}

static void test_bits(const Shape &s) {
  std::string name = "bits " + std::to_string(s.type) + " kind " + std::to_string(s.kind) + " " +
                     std::to_string(s.rows) + "x" + std::to_string(s.cols);
  const size_t row = (size_t)s.cols * rms_dtype_size(s.type);
  std::vector<char> x = random_elements(s.type, s.rows * s.cols, 1), dy = random_elements(s.type, s.rows * s.cols, 2),
                    w = random_elements(s.type, s.cols, 3);
  add_extremes(s, x, dy);
  Way plain = {};
  plain.pitch = s.cols;
  Outputs base = run_layout(s, x, dy, w, plain);
  Outputs again = run_layout(s, x, dy, w, plain);
  expect(again.y == base.y && again.dx == base.dx && again.rstd == base.rstd, name + ": run to run");
  expect(again.dweight == base.dweight, name + ": dweight run to run");
  Way way = plain;
  way.recompute = true;
  Outputs recomputed = run_layout(s, x, dy, w, way);
  expect(recomputed.dx == base.dx, name + ": recomputed statistics");
  for (size_t offset : {1, 2, 4, 8}) {
    way = plain;
    way.pitch += (int64_t)offset % 5, way.offset = offset;
    Outputs moved = run_layout(s, x, dy, w, way);
    expect(moved.y == base.y && moved.dx == base.dx && moved.rstd == base.rstd,
           name + ": offset " + std::to_string(offset));
  }
  for (int64_t r : {(int64_t)0, s.rows / 2, s.rows - 1}) {
    Shape one = s;
    one.rows = 1;
    std::vector<char> x1(&x[(size_t)r * row], &x[(size_t)r * row] + row),
        dy1(&dy[(size_t)r * row], &dy[(size_t)r * row] + row);
    Outputs alone = run_layout(one, x1, dy1, w, plain);
    expect(memcmp(alone.y.data(), &base.y[(size_t)r * row], row) == 0, name + ": y of a row alone");
    expect(memcmp(alone.dx.data(), &base.dx[(size_t)r * row], row) == 0, name + ": dx of a row alone");
  }
  if (s.kind == RMS_KIND_RMS) { /* a list of all elements takes other kernels */
    way = plain;
    way.listed = true;
    Outputs listed = run_layout(s, x, dy, w, way);
    expect(listed.y == base.y && listed.dx == base.dx && listed.rstd == base.rstd, name + ": list of all elements");
  }
}

/* What the tuned kernels do beside the common case: the same bits with saved statistics and without, from rows that are
 * not aligned, from rows at two distances, and from a list of the elements, which all take other kernels. */
static void test_other_bits(const Shape &s) {
  std::vector<char> x = random_elements(s.type, s.rows * s.cols, 4), dy = random_elements(s.type, s.rows * s.cols, 5),
                    w = random_elements(s.type, s.cols, 6);
  add_extremes(s, x, dy);
  for (int what = 1; what < 8; what++) {
    const bool partial = (what & 2) != 0;
    if (partial && s.kind == RMS_KIND_LAYER) continue;
    std::string name = "other bits " + std::to_string(what) + " type " + std::to_string(s.type) + " kind " +
                       std::to_string(s.kind) + " " + std::to_string(s.rows) + "x" + std::to_string(s.cols);
    Way plain = {};
    plain.pitch = s.cols;
    plain.before = (what & 1) != 0;
    plain.partial = partial ? (s.cols + 2) / 3 : 0;
    plain.residual = (what & 4) != 0;
    const Outputs base = run_layout(s, x, dy, w, plain);
    auto compare = [&](const Way &way, const char *how) {
      Outputs other = run_layout(s, x, dy, w, way);
      expect(other.y == base.y && other.dx == base.dx && other.rstd == base.rstd, name + ": " + how);
    };
    Way way = plain;
    way.recompute = true;
    compare(way, "recomputed statistics");
    way = plain;
    way.inner = 4;
    compare(way, "two distances");
    way.recompute = true;
    compare(way, "two distances, recomputed statistics");
    way = plain;
    way.pitch++, way.offset = rms_dtype_size(s.type);
    compare(way, "not aligned");
    if (s.kind == RMS_KIND_LAYER) continue;
    way = plain;
    way.listed = true;
    compare(way, "a list of the elements");
  }
}

/* ---- beyond 2^31 ---- */

__global__ void fill(uint16_t *p, int64_t n) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
    p[i] = (uint16_t)(0x3f00 + (i * 2654435761ull >> 13 & 0x80ff) % 0x100 + (i & 1) * 0x8000);
}

/* The last row of a big tensor has the bits that it has alone. */
static void test_big(int64_t rows, int64_t cols, bool backward) {
  Device device;
  std::string name = "big " + std::to_string(rows) + "x" + std::to_string(cols) + (backward ? " backward" : " forward");
  const size_t bytes = (size_t)(rows * cols) * 2, row = (size_t)cols * 2;
  uint16_t *x = reinterpret_cast<uint16_t *>(device.bytes(bytes)),
           *y = reinterpret_cast<uint16_t *>(device.bytes(bytes));
  char *one = device.bytes(row), *rest = device.bytes(row);
  fill<<<2048, 256>>>(x, rows * cols);
  must(cudaMemset(y, 0xff, bytes), "memset");
  rms_spec spec = {};
  spec.cols = cols;
  spec.eps = 1e-6;
  spec.dtype = spec.weight_dtype = spec.residual_dtype = RMS_BF16;
  const char *last = reinterpret_cast<char *>(x + (rows - 1) * cols),
             *middle = reinterpret_cast<char *>(x + rows / 2 * cols);
  auto run = [&](int64_t n, const void *from, const void *gradient, void *to) {
    if (backward) {
      rms_backward_args b = {};
      b.outer = n;
      b.x = {from, 0, 0};
      b.dy = {gradient, 0, 0};
      b.dx = {to, 0, 0};
      return rms_cuda_backward(&spec, &b, nullptr);
    }
    rms_forward_args f = {};
    f.outer = n;
    f.x = {from, 0, 0};
    f.y = {to, 0, 0};
    return rms_cuda_forward(&spec, &f, nullptr);
  };
  expect(run(rows, x, x, y) == RMS_OK, name + ": status");
  expect(run(1, last, last, one) == RMS_OK && run(1, middle, middle, rest) == RMS_OK, name + ": status of one row");
  must(cudaDeviceSynchronize(), name.c_str());
  expect(fetch(one, row) == fetch(reinterpret_cast<char *>(y + (rows - 1) * cols), row), name + ": last row");
  expect(fetch(rest, row) == fetch(reinterpret_cast<char *>(y + rows / 2 * cols), row), name + ": middle row");
}

/* ---- graphs, empty calls ---- */

static void test_graph() {
  Device device;
  const int64_t rows = 300, cols = 1024;
  rms_spec spec = {};
  spec.cols = cols;
  spec.eps = 1e-6;
  std::vector<char> x = random_elements(RMS_F32, rows * cols, 5), w = random_elements(RMS_F32, cols, 6);
  char *at_x = device.copy(x, 0), *at_w = device.copy(w, 0), *y = device.bytes(x.size()), *dx = device.bytes(x.size());
  char *dw = device.bytes((size_t)cols * 4);
  size_t workspace_bytes = rms_cuda_backward_workspace(&spec, rows, 1);
  char *workspace = device.bytes(workspace_bytes);
  cudaStream_t stream;
  must(cudaStreamCreate(&stream), "stream");
  auto queue = [&]() {
    rms_forward_args f = {};
    f.outer = rows;
    f.x = {at_x, 0, 0};
    f.y = {y, 0, 0};
    f.weight = at_w;
    rms_backward_args b = {};
    b.outer = rows;
    b.x = {at_x, 0, 0};
    b.dy = {y, 0, 0};
    b.weight = at_w;
    b.dx = {dx, 0, 0};
    b.dweight = dw;
    b.workspace = workspace;
    b.workspace_bytes = workspace_bytes;
    expect(rms_cuda_forward(&spec, &f, stream) == RMS_OK && rms_cuda_backward(&spec, &b, stream) == RMS_OK,
           "graph: statuses");
  };
  queue();
  must(cudaStreamSynchronize(stream), "direct");
  std::vector<char> direct_y = fetch(y, x.size()), direct_dx = fetch(dx, x.size()),
                    direct_dw = fetch(dw, (size_t)cols * 4);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  queue();
  must(cudaStreamEndCapture(stream, &graph), "end of capture");
  must(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  for (int i = 0; i < 2; i++) {
    must(cudaMemset(y, 0xff, x.size()), "memset");
    must(cudaMemset(dx, 0xff, x.size()), "memset");
    must(cudaMemset(dw, 0xff, (size_t)cols * 4), "memset");
    must(cudaDeviceSynchronize(), "memsets");
    must(cudaGraphLaunch(exec, stream), "replay");
    must(cudaStreamSynchronize(stream), "replay");
    expect(fetch(y, x.size()) == direct_y && fetch(dx, x.size()) == direct_dx &&
               fetch(dw, (size_t)cols * 4) == direct_dw,
           "graph: bits of the replay");
  }
  must(cudaGraphExecDestroy(exec), "destroy");
  must(cudaGraphDestroy(graph), "destroy");
  must(cudaStreamDestroy(stream), "destroy");
}

static void test_empty() {
  Device device;
  rms_spec spec = {};
  spec.cols = 100;
  spec.eps = 1e-6;
  rms_forward_args f = {};
  expect(rms_cuda_forward(&spec, &f, nullptr) == RMS_OK, "forward of no rows");
  std::vector<char> ones(400, 1);
  char *dw = device.copy(ones, 0);
  rms_backward_args b = {};
  b.dweight = dw;
  b.accumulate = RMS_ACCUMULATE_DWEIGHT;
  expect(rms_cuda_backward(&spec, &b, nullptr) == RMS_OK, "backward of no rows, adding");
  must(cudaDeviceSynchronize(), "no rows");
  expect(fetch(dw, 400) == ones, "dweight of no rows, adding");
  b.accumulate = 0;
  expect(rms_cuda_backward(&spec, &b, nullptr) == RMS_OK, "backward of no rows");
  must(cudaDeviceSynchronize(), "no rows");
  expect(fetch(dw, 400) == std::vector<char>(400, 0), "dweight of no rows");
}

static void say(const char *part) {
  static time_t start = time(nullptr);
  printf("%s: %d checks so far, %d failures, %d s\n", part, checks, failures, (int)(time(nullptr) - start));
}

int main(int argc, char **argv) {
  const bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
  const Extent extent = small ? SMALL : argc > 1 && strcmp(argv[1], "--quick") == 0 ? QUICK : FULL;
  const char *why = nullptr;
  const vf_backend *backend = vf_backend_cuda(&why);
  if (!backend) {
    printf("skipped: %s\n", why);
    return 77;
  }
  say("start");
  test_empty();
  test_graph();
  test_matrix(backend, extent);
  say("matrix");
  fflush(stdout);
  for (rms_dtype type : {RMS_F32, RMS_BF16, RMS_F16, RMS_F64})
    for (int kind = 0; kind < 2; kind++)
      for (int64_t cols : {24, 128, 520, 1024, 4096, 8192, 20480, 70000}) {
        if (small && (cols > 1024 || type == RMS_F16 || type == RMS_F64)) continue;
        test_bits({type, (rms_kind)kind, cols > 4096 ? 5 : 37, cols});
      }
  for (rms_dtype type : {RMS_F32, RMS_BF16, RMS_F16})
    for (int kind = 0; kind < 2; kind++)
      for (int64_t cols : {24, 128, 520, 4096, 5120, 8192, 20480}) {
        if (small && (cols > 1024 || type == RMS_F16)) continue;
        test_other_bits({type, (rms_kind)kind, cols > 8192 ? 8 : 40, cols});
      }
  say("bits");
  fflush(stdout);
  if (!small) {
    test_widths(backend, extent);
    say("widths");
    fflush(stdout);
    test_big(((int64_t)1 << 31) / 4096 + 5, 4096, false);
    test_big(((int64_t)1 << 31) / 4096 + 5, 4096, true);
    test_big(((int64_t)1 << 31) + 77, 1, false);
    test_big(((int64_t)1 << 31) / 128 + 9, 128, true);
  }
  printf("%d checks, %d failures\n", checks, failures);
  return failures ? 1 : 0;
}
