/* SPDX-License-Identifier: MIT
 *
 * What surrounds a call on a GPU: streams, graphs, the errors and kernels of other people; and calls without rows, or
 * with more than 2^31 elements. */
#include "gpu.h"

__global__ void fill(uint16_t *p, int64_t n) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
    p[i] = (uint16_t)(0x3f00 + (i * 2654435761ull >> 13 & 0x80ff) % 0x100 + (i & 1) * 0x8000);
}

/* ---- beyond 2^31 elements ---- */

/* The last row of a big tensor has the bits that it has alone. */
static void check_big(int64_t rows, int64_t cols, bool backward) {
  Memory device;
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
  const char *last = reinterpret_cast<char *>(x + (rows - 1) * cols),
             *middle = reinterpret_cast<char *>(x + rows / 2 * cols);
  auto run = [&](int64_t n, const void *from, const void *gradient, void *to) {
    if (backward) {
      rms_backward_args b = {};
      b.outer = n;
      b.x = input(from, RMS_BF16);
      b.dy = input(gradient, RMS_BF16);
      b.dx = output(to, RMS_BF16);
      return rms_cuda_backward(&spec, &b, nullptr);
    }
    rms_forward_args f = {};
    f.outer = n;
    f.x = input(from, RMS_BF16);
    f.y = output(to, RMS_BF16);
    return rms_cuda_forward(&spec, &f, nullptr);
  };
  expect(run(rows, x, x, y) == RMS_OK, name + ": status");
  expect(run(1, last, last, one) == RMS_OK && run(1, middle, middle, rest) == RMS_OK, name + ": status of one row");
  must(cudaDeviceSynchronize(), name.c_str());
  expect(fetch(one, row) == fetch(reinterpret_cast<char *>(y + (rows - 1) * cols), row), name + ": last row");
  expect(fetch(rest, row) == fetch(reinterpret_cast<char *>(y + rows / 2 * cols), row), name + ": middle row");
}

/* ---- graphs, calls without rows ---- */

static void test_graph() {
  Memory device;
  const int64_t rows = 300, cols = 1024;
  rms_spec spec = {};
  spec.cols = cols;
  spec.eps = 1e-6;
  std::vector<char> x = random_elements(RMS_F32, rows * cols, 5), w = random_elements(RMS_F32, cols, 6);
  char *at_x = device.copy(x, 0), *at_w = device.copy(w, 0), *y = device.bytes(x.size()), *dx = device.bytes(x.size());
  char *dw = device.bytes((size_t)cols * 4);
  cudaStream_t stream;
  must(cudaStreamCreate(&stream), "stream");
  rms_forward_args f = {};
  f.outer = rows;
  f.x = input(at_x, RMS_F32);
  f.y = output(y, RMS_F32);
  f.weight = at_w;
  rms_backward_args b = {};
  b.outer = rows;
  b.x = input(at_x, RMS_F32);
  b.dy = input(y, RMS_F32);
  b.weight = at_w;
  b.dx = output(dx, RMS_F32);
  b.dweight = dw;
  b.workspace_bytes = rms_cuda_backward_workspace(&spec, &b);
  b.workspace = device.bytes(b.workspace_bytes);
  char *q = device.bytes((size_t)(rows * cols)), *scale = device.bytes((size_t)rows * 4);
  rms_spec quantised_spec = spec;
  quantised_spec.scale_block = cols;
  rms_forward_args quantised = f;
  quantised.y = {};
  quantised.q = output(q, RMS_F8E4M3);
  quantised.scale = scale;
  auto queue = [&]() {
    expect(rms_cuda_forward(&spec, &f, stream) == RMS_OK && rms_cuda_backward(&spec, &b, stream) == RMS_OK &&
               rms_cuda_forward(&quantised_spec, &quantised, stream) == RMS_OK,
           "graph: statuses");
  };
  queue();
  must(cudaStreamSynchronize(stream), "direct");
  std::vector<char> direct_y = fetch(y, x.size()), direct_dx = fetch(dx, x.size()),
                    direct_dw = fetch(dw, (size_t)cols * 4), direct_q = fetch(q, (size_t)(rows * cols)),
                    direct_scale = fetch(scale, (size_t)rows * 4);
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
    must(cudaMemset(q, 0xff, (size_t)(rows * cols)), "memset");
    must(cudaMemset(scale, 0xff, (size_t)rows * 4), "memset");
    must(cudaDeviceSynchronize(), "memsets");
    must(cudaGraphLaunch(exec, stream), "replay");
    must(cudaStreamSynchronize(stream), "replay");
    expect(fetch(y, x.size()) == direct_y && fetch(dx, x.size()) == direct_dx &&
               fetch(dw, (size_t)cols * 4) == direct_dw,
           "graph: bits of the replay");
    expect(fetch(q, (size_t)(rows * cols)) == direct_q && fetch(scale, (size_t)rows * 4) == direct_scale,
           "graph: bits of a quantised output");
  }
  must(cudaGraphExecDestroy(exec), "destroy");
  must(cudaGraphDestroy(graph), "destroy");
  must(cudaStreamDestroy(stream), "destroy");
}

static void test_empty() {
  Memory device;
  rms_spec spec = {};
  spec.cols = 100;
  spec.eps = 1e-6;
  rms_forward_args f = {};
  f.x.dtype = RMS_F32;
  expect(rms_cuda_forward(&spec, &f, nullptr) == RMS_OK, "forward of no rows");
  std::vector<char> ones(400, 1);
  char *dw = device.copy(ones, 0);
  f.q = output(dw, RMS_I8);
  expect(rms_cuda_forward(&spec, &f, nullptr) == RMS_OK, "quantised forward of no rows");
  must(cudaDeviceSynchronize(), "no rows");
  expect(fetch(dw, 400) == ones, "nothing is written of no rows");
  rms_backward_args b = {};
  b.x.dtype = RMS_F32;
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

/* ---- what others left behind ---- */

/* A small forward whose result is known: rows of ones stay ones. */
struct Ones {
  Memory device;
  rms_spec spec = {};
  rms_forward_args args = {};
  std::vector<char> expected;
  Ones() {
    const std::vector<float> ones(64 * 256, 1.0f);
    expected.assign(reinterpret_cast<const char *>(ones.data()),
                    reinterpret_cast<const char *>(ones.data() + ones.size()));
    spec.cols = 256;
    args.outer = 64;
    args.x = input(device.copy(expected), RMS_F32);
    args.y = output(device.bytes(expected.size()), RMS_F32);
  }
  bool right() const { return fetch(static_cast<const char *>(args.y.data), expected.size()) == expected; }
};

/* An error that the caller's own work left in the runtime is neither reported nor cleared. */
static void test_errors_of_others() {
  Ones ones;
  must(cudaGetLastError(), "no error so far");
  const cudaError_t theirs = cudaMemcpy(nullptr, nullptr, 16, (cudaMemcpyKind)99);
  expect(theirs != cudaSuccess && cudaPeekAtLastError() == theirs, "an error of the caller's");
  expect(rms_cuda_available() == RMS_OK && cudaPeekAtLastError() == theirs, "available after an error of the caller's");
  expect(rms_cuda_forward(&ones.spec, &ones.args, nullptr) == RMS_OK, "forward after an error of the caller's");
  expect(cudaPeekAtLastError() == theirs, "the caller's error after a forward");
  rms_stat *stats = reinterpret_cast<rms_stat *>(ones.device.bytes(2 * sizeof(rms_stat)));
  must(cudaMemset(stats, 0, 2 * sizeof(rms_stat)), "memset");
  expect(rms_cuda_stats_merge(&ones.spec, 1, stats, stats + 1, nullptr) == RMS_OK,
         "merge after an error of the caller's");
  expect(cudaGetLastError() == theirs, "the caller's error after a merge");
  must(cudaDeviceSynchronize(), "run");
  expect(ones.right(), "y after an error of the caller's");
}

/* ---- kernels that start early ---- */

/* Lets the next kernel start at once, waits for the one before, works for a while, and only then writes what the next
 * one needs. */
__global__ void slow_producer(float *to, int count, float value, long long cycles) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
  for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += (int)(gridDim.x * blockDim.x))
    to[i] = value;
}

static void produce(float *to, int64_t count, float value, cudaStream_t stream) {
  cudaLaunchAttribute attribute[1];
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(8);
  config.blockDim = dim3(128);
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = 1;
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  must(cudaLaunchKernelEx(&config, slow_producer, to, (int)count, value, 200000LL), "producer");
}

/* The weights, the gradient or the rows of a call come from a kernel that let the call start long before it wrote them;
 * and what a call writes is read by one that may start early, and by the kernel after that. */
static void test_early(int64_t rows, int64_t cols, rms_kind kind) {
  Memory device;
  const std::string name =
      "early start " + std::to_string(rows) + "x" + std::to_string(cols) + " kind " + std::to_string(kind);
  const size_t bytes = (size_t)(rows * cols) * 4;
  char *x = device.copy(random_elements(RMS_F32, rows * cols, 7)),
       *dy = device.copy(random_elements(RMS_F32, rows * cols, 8));
  float *weight = reinterpret_cast<float *>(device.bytes((size_t)cols * 4));
  char *y = device.bytes(bytes), *dx = device.bytes(bytes), *dweight = device.bytes((size_t)cols * 4);
  char *rstd = device.bytes((size_t)rows * 4), *mean = device.bytes((size_t)rows * 4);
  cudaStream_t stream;
  must(cudaStreamCreate(&stream), "stream");
  rms_spec spec = {};
  spec.cols = cols, spec.eps = 1e-6, spec.kind = kind;
  rms_forward_args f = {};
  f.outer = rows;
  f.x = input(x, RMS_F32), f.y = output(y, RMS_F32);
  f.weight = weight;
  f.rstd = rstd, f.mean = kind == RMS_KIND_LAYER ? mean : nullptr;
  rms_backward_args b = {};
  b.outer = rows;
  b.x = input(x, RMS_F32), b.dy = input(dy, RMS_F32), b.dx = output(dx, RMS_F32);
  b.weight = weight;
  b.rstd = rstd, b.mean = f.mean;
  b.dweight = dweight;
  b.workspace_bytes = rms_cuda_backward_workspace(&spec, &b);
  b.workspace = device.bytes(b.workspace_bytes);
  std::vector<char> results[2][3];
  for (int early = 0; early < 2; early++) {
    must(cudaMemset(weight, 0, (size_t)cols * 4), "memset");
    must(cudaDeviceSynchronize(), "memset");
    auto settle = [&]() {
      if (!early) must(cudaStreamSynchronize(stream), "in turn");
    };
    produce(weight, cols, 3.0f, stream), settle();
    expect(rms_cuda_forward(&spec, &f, stream) == RMS_OK, name + ": forward"), settle();
    produce(weight, cols, 0.5f, stream), settle();
    expect(rms_cuda_backward(&spec, &b, stream) == RMS_OK, name + ": backward"), settle();
    produce(reinterpret_cast<float *>(dy), cols, 0.25f, stream), settle(); /* the first row of the next backward */
    expect(rms_cuda_backward(&spec, &b, stream) == RMS_OK, name + ": second backward"), settle();
    produce(weight, cols, 7.0f, stream); /* too late for it */
    must(cudaStreamSynchronize(stream), name.c_str());
    results[early][0] = fetch(y, bytes), results[early][1] = fetch(dx, bytes);
    results[early][2] = fetch(dweight, (size_t)cols * 4);
    must(cudaMemcpy(dy, random_elements(RMS_F32, rows * cols, 8).data(), bytes, cudaMemcpyHostToDevice), "dy again");
  }
  for (int i = 0; i < 3; i++)
    expect(results[0][i] == results[1][i], name + (i == 0 ? ": y" : i == 1 ? ": dx" : ": dweight"));
  must(cudaStreamDestroy(stream), "destroy");
}

/* compute-sanitizer counts every error of the runtime, those that are made on purpose too: not in its set. */
void test_streams(Extent extent) {
  test_empty();
  test_graph();
  if (extent != SMALL) test_errors_of_others();
  for (int kind = 0; kind < 2; kind++)
    for (int64_t cols : {16, 128, 512, 1024, 4096, 20480})
      for (int64_t rows : {3, 300}) {
        if (extent == SMALL && (cols == 16 || cols == 512 || cols > 1024 || rows > 3)) continue;
        test_early(rows, cols, (rms_kind)kind);
      }
}

void test_big() {
  check_big(((int64_t)1 << 31) / 4096 + 5, 4096, false);
  check_big(((int64_t)1 << 31) / 4096 + 5, 4096, true);
  check_big(((int64_t)1 << 31) + 77, 1, false);
  check_big(((int64_t)1 << 31) / 128 + 9, 128, true);
}
