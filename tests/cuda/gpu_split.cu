/* SPDX-License-Identifier: MIT
 *
 * The split form with one shard has the bits of the whole call: y, dx, dweight and dbias, for every kind of kernel. */
#include <cmath>
#include "gpu.h"

/* What is asked for, beside the kind, the type and the width. */
enum {
  RECOMPUTE = 1,   /* statistics are not saved           */
  BEFORE = 2,      /* rounding before the weight         */
  PER_HEAD = 4,    /* weights of each inner index        */
  OUTSIDE = 8,     /* eps outside the root               */
  ACCUMULATE = 16, /* added to dx and dweight            */
  EXTREMES = 32,   /* rows out of range                  */
  RESIDUAL = 64,   /* a gradient is added to dx          */
  WIDE_SUM = 128,  /* ... in f32, and x is an f32 sum    */
  PARTIAL = 256,   /* the first half in the statistic    */
  LIST = 512,      /* every other element                */
  NO_DX = 1024,    /* outputs that are not asked for     */
  NO_DBIAS = 2048
};

struct Option {
  const char *name;
  int64_t rows, inner, groups;
  int64_t pad; /* elements between rows: 1: not aligned */
  int flags;
};

static const Option options[] = {
    {"usual", 37, 1, 1, 0, 0},
    {"recomputed", 37, 1, 1, 0, RECOMPUTE},
    {"many rows", 3000, 1, 1, 0, 0},
    {"out of range", 40, 1, 1, 0, EXTREMES},
    {"out of range, recomputed", 40, 1, 1, 0, EXTREMES | RECOMPUTE},
    {"rounding before the weight", 37, 1, 1, 0, BEFORE},
    {"rounding before the weight, recomputed", 37, 1, 1, 0, BEFORE | RECOMPUTE},
    {"not aligned", 37, 1, 1, 1, 0},
    {"two distances", 9, 4, 1, 8, 0},
    {"groups", 37, 1, 2, 0, 0},
    {"weights of each head", 19, 3, 1, 0, PER_HEAD},
    {"eps outside the root", 37, 1, 1, 0, OUTSIDE},
    {"accumulated", 37, 1, 1, 0, ACCUMULATE},
    {"residual", 37, 1, 1, 0, RESIDUAL},
    {"f32 residual", 37, 1, 1, 0, RESIDUAL | WIDE_SUM},
    {"partial", 37, 1, 1, 0, PARTIAL},
    {"list", 37, 1, 1, 0, LIST},
    {"sums alone", 37, 1, 1, 0, NO_DX},
    {"dweight alone", 37, 1, 1, 0, NO_DBIAS},
};

struct Results {
  std::vector<char> y, dx, ds, dweight, dbias;
};

struct Call {
  rms_spec spec = {};
  rms_forward_args forward = {};
  rms_backward_args backward = {};
  size_t tensor_bytes, weight_bytes;
  char *y, *dx, *ds, *dweight, *dbias;
};

/* Some rows far out of range, in x and in dy. */
static void spoil_rows(std::vector<char> &x, std::vector<char> &dy, rms_dtype type, int64_t row_elements) {
  for (int which = 0; which < 6; which++) {
    const int high = which % 3 == 0 ? 0 : which % 3 == 1 ? 0x7e : 0x01; /* bits of the exponent: 0, large, small */
    std::vector<char> &in = which < 3 ? x : dy;
    const size_t size = rms_dtype_size(type);
    for (int64_t i = 0; i < row_elements; i++) {
      char *top = &in[(size_t)((which * 5 + 2) * row_elements + i) * size + size - 1];
      *top = (char)((*top & 0x80) | high);
    }
  }
}

static void make_call(Memory &device, rms_dtype type, rms_kind kind, int64_t cols, const Option &o, Call &c) {
  const int64_t rows = o.rows * o.inner, pitch = cols + o.pad,
                outer_pitch = o.inner * pitch + (o.inner > 1 ? o.pad : 0);
  const rms_dtype residual = o.flags & WIDE_SUM ? RMS_F32 : type;
  const int64_t span = o.rows * outer_pitch, weights = cols * (o.flags & PER_HEAD ? o.inner : 1);
  const size_t size = rms_dtype_size(type), residual_size = rms_dtype_size(residual), stat = type == RMS_F64 ? 8 : 4;
  std::vector<char> x = random_elements(residual, span, 1), dy = random_elements(type, span, 2);
  if (o.flags & EXTREMES) spoil_rows(x, dy, type, outer_pitch);
  c.spec.cols = cols;
  c.spec.eps = 1e-6;
  c.spec.kind = kind;
  c.spec.groups = o.groups;
  c.spec.rounding = o.flags & BEFORE ? RMS_ROUND_BEFORE_WEIGHT : RMS_ROUND_AFTER_WEIGHT;
  c.spec.eps_place = o.flags & OUTSIDE ? RMS_EPS_OUTSIDE : RMS_EPS_INSIDE;
  c.spec.weight_per_inner = o.flags & PER_HEAD ? 1 : 0;
  if (o.flags & (PARTIAL | LIST)) c.spec.partial = cols / 2;
  if (o.flags & LIST) {
    std::vector<int64_t> list;
    for (int64_t i = 0; i < cols / 2; i++)
      list.push_back(2 * i);
    const char *bytes = reinterpret_cast<char *>(list.data());
    c.spec.indices = reinterpret_cast<int64_t *>(device.copy(std::vector<char>(bytes, bytes + list.size() * 8)));
  }
  c.tensor_bytes = (size_t)span * residual_size;
  c.weight_bytes = (size_t)weights * 8;
  char *at_x = device.copy(x), *at_dy = device.copy(dy), *weight = device.copy(random_elements(type, weights, 3));
  c.y = device.bytes(c.tensor_bytes), c.dx = device.bytes(c.tensor_bytes), c.ds = device.bytes(c.tensor_bytes);
  c.dweight = device.bytes(c.weight_bytes), c.dbias = device.bytes(c.weight_bytes);
  char *rstd = device.bytes((size_t)(rows * o.groups) * stat), *mean = device.bytes((size_t)(rows * o.groups) * stat);

  rms_forward_args &f = c.forward;
  f.outer = o.rows, f.inner = o.inner;
  f.x = input(at_x, residual, outer_pitch, pitch);
  if (residual != type) { /* an f32 sum is normalised as a residual beside zeros */
    char *zeros = device.bytes((size_t)span * size);
    must(cudaMemset(zeros, 0, (size_t)span * size), "zeros");
    f.residual = f.x;
    f.x = input(zeros, type, outer_pitch, pitch);
  }
  f.y = output(c.y, type, outer_pitch, pitch);
  f.weight = weight;
  f.rstd = rstd;
  if (kind == RMS_KIND_LAYER) f.mean = mean;
  f.weight_dtype = type;

  rms_backward_args &b = c.backward;
  b.outer = o.rows, b.inner = o.inner;
  b.dy = input(at_dy, type, outer_pitch, pitch);
  b.x = input(at_x, residual, outer_pitch, pitch);
  b.weight = weight;
  b.weight_dtype = type;
  b.dweight_dtype = b.dbias_dtype = type == RMS_F64 ? RMS_F64 : RMS_F32;
  if (!(o.flags & RECOMPUTE)) b.rstd = rstd, b.mean = kind == RMS_KIND_LAYER ? mean : nullptr;
  if (o.flags & RESIDUAL) {
    b.dresidual = input(at_x, residual, outer_pitch, pitch);
    b.dresidual_out = output(c.ds, residual, outer_pitch, pitch);
  }
  if (!(o.flags & NO_DX)) b.dx = output(c.dx, type, outer_pitch, pitch);
  b.dweight = c.dweight;
  if (!(o.flags & NO_DBIAS)) b.dbias = c.dbias;
  if (o.flags & ACCUMULATE) b.accumulate = RMS_ACCUMULATE_DWEIGHT | RMS_ACCUMULATE_DX;
  b.workspace_bytes = rms_cuda_backward_workspace(&c.spec, &b);
  b.workspace = device.bytes(b.workspace_bytes);
}

static void clear(const Call &c) {
  for (char *p : {c.y, c.dx, c.ds})
    must(cudaMemset(p, 0, c.tensor_bytes), "memset");
  for (char *p : {c.dweight, c.dbias})
    must(cudaMemset(p, 0, c.weight_bytes), "memset");
}

static Results results(const Call &c) {
  must(cudaDeviceSynchronize(), "run");
  return {fetch(c.y, c.tensor_bytes), fetch(c.dx, c.tensor_bytes), fetch(c.ds, c.tensor_bytes),
          fetch(c.dweight, c.weight_bytes), fetch(c.dbias, c.weight_bytes)};
}

static void check_split(rms_dtype type, rms_kind kind, int64_t cols, const Option &o) {
  Memory device;
  Call c;
  make_call(device, type, kind, cols, o, c);
  const std::string name = std::string("split, ") + o.name + ", type " + std::to_string(type) + " kind " +
                           std::to_string(kind) + " cols " + std::to_string(cols);
  const size_t segments = (size_t)(o.rows * o.inner * o.groups);
  clear(c);
  expect(rms_cuda_forward(&c.spec, &c.forward, nullptr) == RMS_OK, name + ": forward");
  expect(rms_cuda_backward(&c.spec, &c.backward, nullptr) == RMS_OK, name + ": backward");
  const Results whole = results(c);
  clear(c);
  rms_stat *stats = reinterpret_cast<rms_stat *>(device.bytes(segments * sizeof(rms_stat)));
  rms_grad_sum *sums = reinterpret_cast<rms_grad_sum *>(device.bytes(segments * sizeof(rms_grad_sum)));
  expect(rms_cuda_stats(&c.spec, &c.forward, stats, nullptr) == RMS_OK, name + ": stats");
  expect(rms_cuda_apply(&c.spec, &c.forward, stats, nullptr) == RMS_OK, name + ": apply");
  expect(rms_cuda_backward_stats(&c.spec, &c.backward, stats, sums, nullptr) == RMS_OK, name + ": backward_stats");
  expect(rms_cuda_backward_apply(&c.spec, &c.backward, stats, sums, nullptr) == RMS_OK, name + ": backward_apply");
  const Results split = results(c);
  expect(split.y == whole.y, name + ": y");
  expect(split.dx == whole.dx, name + ": dx");
  expect(split.ds == whole.ds, name + ": dresidual_out");
  expect(split.dweight == whole.dweight, name + ": dweight");
  expect(split.dbias == whole.dbias, name + ": dbias");
}

/* Gradients of r and of the mean, which are added to the sums between the halves as rmsnorm.h says. dy is zero, so that
 * dx has nothing else. */
static void check_statistics(rms_kind kind, int64_t cols) {
  Memory device;
  Call c;
  make_call(device, RMS_F32, kind, cols, options[0], c);
  const size_t rows = (size_t)options[0].rows, n = (size_t)cols;
  const std::string name = "gradients of statistics, kind " + std::to_string(kind) + " cols " + std::to_string(cols);
  rms_stat *stats = reinterpret_cast<rms_stat *>(device.bytes(rows * sizeof(rms_stat)));
  rms_grad_sum *sums = reinterpret_cast<rms_grad_sum *>(device.bytes(rows * sizeof(rms_grad_sum)));
  c.backward.dweight = c.backward.dbias = nullptr;
  must(cudaMemset(const_cast<void *>(c.backward.dy.data), 0, c.tensor_bytes), "memset");
  expect(rms_cuda_stats(&c.spec, &c.forward, stats, nullptr) == RMS_OK, name + ": stats");
  expect(rms_cuda_apply(&c.spec, &c.forward, stats, nullptr) == RMS_OK, name + ": apply");
  expect(rms_cuda_backward_stats(&c.spec, &c.backward, stats, sums, nullptr) == RMS_OK, name + ": backward_stats");
  std::vector<rms_grad_sum> added(rows);
  std::vector<float> r(rows), x(rows * n), dx(rows * n);
  must(cudaMemcpy(added.data(), sums, rows * sizeof(rms_grad_sum), cudaMemcpyDeviceToHost), "sums");
  must(cudaMemcpy(r.data(), c.forward.rstd, rows * sizeof(float), cudaMemcpyDeviceToHost), "rstd");
  must(cudaMemcpy(x.data(), c.backward.x.data, x.size() * sizeof(float), cudaMemcpyDeviceToHost), "x");
  const bool layer = kind == RMS_KIND_LAYER;
  for (size_t i = 0; i < rows; i++) {
    const double dr = 0.25 * (double)(i + 1), dmean = 3 - (double)i;
    added[i].ux += layer ? (double)r[i] * dr : dr;
    if (layer) added[i].u -= dmean / (double)r[i];
  }
  must(cudaMemcpy(sums, added.data(), rows * sizeof(rms_grad_sum), cudaMemcpyHostToDevice), "sums");
  expect(rms_cuda_backward_apply(&c.spec, &c.backward, stats, sums, nullptr) == RMS_OK, name + ": backward_apply");
  must(cudaMemcpy(dx.data(), c.dx, dx.size() * sizeof(float), cudaMemcpyDeviceToHost), "dx");
  for (size_t i = 0; i < rows; i++) {
    double mean = 0, m2 = 0, dr = 0.25 * (double)(i + 1), dmean = layer ? 3 - (double)i : 0;
    for (size_t j = 0; j < n && layer; j++)
      mean += (double)x[i * n + j] / (double)n;
    for (size_t j = 0; j < n; j++)
      m2 += ((double)x[i * n + j] - mean) * ((double)x[i * n + j] - mean);
    const double exact_r = 1 / sqrt(m2 / (double)n + (double)1e-6f),
                 slope = dr * exact_r * exact_r * exact_r / (double)n;
    bool right = true;
    for (size_t j = 0; j < n; j++) {
      const double e = (double)x[i * n + j] - mean, exact = dmean / (double)n - slope * e;
      /* Fewer than 64 roundings; those of the mean are of the size of all x. */
      const double size = fabs(dmean) / (double)n + fabs(slope) * (fabs(e) + (layer ? sqrt(m2 / (double)n) : 0));
      right = right && fabs((double)dx[i * n + j] - exact) <= 64 * 0x1p-24 * size;
    }
    expect(right, name + " row " + std::to_string(i));
  }
}

void test_split(Extent extent) {
  for (int kind = 0; kind < 2; kind++)
    for (int64_t cols : {48, 1024, 5120})
      if (is_mine()) check_statistics((rms_kind)kind, cols);
  for (rms_dtype type : {RMS_F32, RMS_BF16, RMS_F16, RMS_F64})
    for (int kind = 0; kind < 2; kind++)
      for (const Option &o : options)
        for (int64_t cols : {16, 128, 1024, 4096, 5120, 9216, 20480}) {
          if (o.flags & (PARTIAL | LIST) && kind == RMS_KIND_LAYER) continue;
          if (o.flags & WIDE_SUM && (type == RMS_F32 || type == RMS_F64)) continue;
          if (o.flags & EXTREMES && type == RMS_F64) continue; /* the split form of f64 has no range guard */
          if (o.rows > 1000 && cols > 4096) continue;
          if (extent == SMALL && (cols > 1024 || o.rows > 1000 || type == RMS_F16)) continue;
          if (extent == QUICK && type == RMS_F16 && cols != 1024) continue;
          if (is_mine()) check_split(type, (rms_kind)kind, cols, o);
        }
}
