/* SPDX-License-Identifier: MIT
 *
 * Rows in which the order of the sums or eps decides, on a GPU, against the formulas in double: very wide rows, and
 * rows so small that their squares vanish. */
#include <cmath>
#include "gpu.h"

/* ---- wide rows ---- */

/* docs/cuda.md: additions on the way of a term of any sum over a row. */
enum { DEPTH = 8 + 5 + 5 + 16 + 1 };

/* Equal numbers, whose f32 sums lose digits in one direction: the error of r must not grow with the width. */
static void test_equal_numbers(rms_dtype type, int64_t most) {
  const double value = type == RMS_BF16 ? 0.10009765625 : (double)0.1f, exact = 1 / value;
  const float wide = (float)value;
  uint32_t bits;
  memcpy(&bits, &wide, 4);
  const uint16_t half = (uint16_t)(bits >> 16);
  const size_t size = rms_dtype_size(type);
  std::vector<char> x((size_t)most * size);
  for (int64_t i = 0; i < most; i++)
    memcpy(&x[(size_t)i * size], type == RMS_BF16 ? (const void *)&half : &wide, size);
  Memory device;
  char *at_x = device.copy(x), *y = device.bytes(x.size()), *rstd = device.bytes(4);
  for (int64_t cols = 1 << 10; cols <= most; cols *= 4) {
    rms_spec spec = {};
    spec.cols = cols;
    rms_forward_args f = {};
    f.outer = 1;
    f.x = input(at_x, type);
    f.y = output(y, type);
    f.rstd = rstd;
    expect(rms_cuda_forward(&spec, &f, nullptr) == RMS_OK, "forward status");
    must(cudaDeviceSynchronize(), "run");
    float r;
    memcpy(&r, fetch(rstd, 4).data(), 4);
    expect(std::fabs((double)r / exact - 1) <= (DEPTH / 2.0 + 3) * 0x1p-24,
           "r of " + std::to_string(cols) + " equal numbers of type " + std::to_string(type) + ": " +
               std::to_string((double)r) + ", exact " + std::to_string(exact));
  }
}

/* ---- tiny rows ---- */

/* More than the roundings on the way of an element, of which two are of sums; and half the last place of the smallest.
 */
static bool is_close(double exact, float computed) {
  return std::fabs((double)computed - exact) <= (2 * DEPTH + 24) * 0x1p-24 * std::fabs(exact) + 0x1p-149;
}

/* Rows (1, -2, 3, 1, ...) times 2^lowest, 2^(lowest + 1), ... and a factor, as f32 has them. */
struct TinyRows {
  int lowest, rows;
  int64_t cols;
  std::vector<float> x;

  TinyRows(int from, int count, int64_t width, double factor) : lowest(from), rows(count), cols(width) {
    const double row[] = {1, -2, 3, 1};
    for (int r = 0; r < rows; r++)
      for (int64_t j = 0; j < cols; j++)
        x.push_back((float)(row[j % 4] * std::ldexp(factor, lowest + r)));
  }
  const float *row(int r) const { return x.data() + (int64_t)r * cols; }
  double mean(int r) const {
    double sum = 0;
    for (int64_t j = 0; j < cols; j++)
      sum += (double)row(r)[j];
    return sum / (double)cols;
  }
  double mean_square(int r, double about) const {
    double sum = 0;
    for (int64_t j = 0; j < cols; j++)
      sum += ((double)row(r)[j] - about) * ((double)row(r)[j] - about);
    return sum / (double)cols;
  }
  std::string name(const char *what, int r, double eps) const {
    return std::string(what) + " of " + std::to_string(cols) + " columns, 2^" + std::to_string(lowest + r) + ", eps " +
           std::to_string(std::log10(eps)) + " (log10)";
  }
};

static std::vector<char> bytes_of(const std::vector<float> &numbers) {
  const char *bytes = reinterpret_cast<const char *>(numbers.data());
  return std::vector<char>(bytes, bytes + numbers.size() * 4);
}

static std::vector<float> fetch_floats(const char *p, size_t n) {
  std::vector<float> numbers(n);
  memcpy(numbers.data(), fetch(p, n * 4).data(), n * 4);
  return numbers;
}

/* Whether all elements of a row are close to these, which repeat every four columns. */
static bool row_is_close(const float *row, int64_t cols, const double (&exact)[4]) {
  for (int64_t j = 0; j < cols; j++)
    if (!is_close(exact[j % 4], row[j])) return false;
  return true;
}

/* eps is rounded to f32 before anything else, also where the row is scaled afterwards. offset: of the data from an
 * aligned address, in bytes. */
static void test_subnormal_eps(int64_t cols, size_t offset) {
  const TinyRows tiny(-90, 31, cols, 1);
  Memory device;
  char *x = device.copy(bytes_of(tiny.x), offset), *y = device.bytes(tiny.x.size() * 4 + offset) + offset;
  for (double eps : {1e-45, 1e-44, 3e-45, 1e-40, 0.5e-45}) {
    rms_spec spec = {};
    spec.cols = cols;
    spec.eps = eps;
    rms_forward_args f = {};
    f.outer = tiny.rows;
    f.x = input(x, RMS_F32);
    f.y = output(y, RMS_F32);
    expect(rms_cuda_forward(&spec, &f, nullptr) == RMS_OK, "forward status");
    must(cudaDeviceSynchronize(), "run");
    const std::vector<float> out = fetch_floats(y, tiny.x.size());
    for (int r = 0; r < tiny.rows; r++) {
      const double rstd = 1 / std::sqrt(tiny.mean_square(r, 0) + (double)(float)eps);
      double exact[4];
      for (int j = 0; j < 4; j++)
        exact[j] = (double)tiny.row(r)[j] * rstd;
      expect(row_is_close(out.data() + r * cols, cols, exact), tiny.name("y", r, eps));
    }
  }
}

/* With eps outside the root the second term of dx is small beside eps, but not zero. Elements with dy = 0, and of
 * LayerNorm dy that equals its mean, have no other. */
static void test_eps_outside(rms_kind kind, int64_t cols, size_t offset) {
  const double pattern[2][4] = {{1, 0, 0, 0}, {1, -1, 0, 0}};
  const TinyRows tiny(-124, 85, cols, 1.25);
  std::vector<float> dy(tiny.x.size());
  for (size_t i = 0; i < dy.size(); i++)
    dy[i] = (float)pattern[kind == RMS_KIND_LAYER][i % (size_t)cols % 4];
  Memory device;
  char *x = device.copy(bytes_of(tiny.x), offset), *at_dy = device.copy(bytes_of(dy), offset),
       *dx = device.bytes(dy.size() * 4 + offset) + offset, *stats = device.bytes((size_t)tiny.rows * sizeof(rms_stat));
  for (double eps : {1e-5, 1e-8, 1.0}) {
    rms_spec spec = {};
    spec.cols = cols;
    spec.eps = eps;
    spec.eps_place = RMS_EPS_OUTSIDE;
    spec.kind = kind;
    rms_forward_args f = {};
    f.outer = tiny.rows;
    f.x = input(x, RMS_F32);
    expect(rms_cuda_stats(&spec, &f, reinterpret_cast<rms_stat *>(stats), nullptr) == RMS_OK, "stats status");
    rms_backward_args b = {};
    b.outer = tiny.rows;
    b.dy = input(at_dy, RMS_F32);
    b.x = input(x, RMS_F32);
    b.dx = output(dx, RMS_F32);
    expect(rms_cuda_backward(&spec, &b, nullptr) == RMS_OK, "backward status");
    must(cudaDeviceSynchronize(), "run");
    const std::vector<float> out = fetch_floats(dx, dy.size());
    std::vector<rms_stat> stat((size_t)tiny.rows);
    memcpy(stat.data(), fetch(stats, stat.size() * sizeof(rms_stat)).data(), stat.size() * sizeof(rms_stat));
    for (int r = 0; r < tiny.rows; r++) {
      const float *row = tiny.row(r);
      const double mean = kind == RMS_KIND_LAYER ? tiny.mean(r) : 0, square = tiny.mean_square(r, mean),
                   rms = std::sqrt(square), rstd = 1 / (rms + (double)(float)eps);
      double ux = 0, exact[4];
      for (int j = 0; j < 4; j++)
        ux += (double)dy[(size_t)j] * ((double)row[j] - mean) /
              4; /* the mean of u*(x - mean); that of u is zero, or not asked for */
      for (int j = 0; j < 4; j++)
        exact[j] = (double)dy[(size_t)j] * rstd - ux / rms * rstd * rstd * ((double)row[j] - mean);
      expect(row_is_close(out.data() + r * cols, cols, exact), tiny.name("dx", r, eps));
      expect(std::fabs(stat[(size_t)r].m2 / (square * (double)cols) - 1) <= (DEPTH + 4) * 0x1p-24,
             tiny.name("m2", r, eps));
    }
  }
}

void test_rows(Extent extent) {
  const bool small = extent == SMALL;
  for (rms_dtype type : {RMS_F32, RMS_BF16})
    if (is_mine()) test_equal_numbers(type, (int64_t)1 << (small ? 22 : 24));
  /* rows within a warp, a block and a cluster, not aligned, and wider than the kernels of aligned rows take */
  for (int64_t cols : {4, 512, 20480, 1028, 70000})
    for (size_t offset : {0, 4}) {
      if (small && (cols > 512 || (offset != 0 && cols > 4))) continue;
      if (!is_mine()) continue;
      test_subnormal_eps(cols, offset);
      test_eps_outside(RMS_KIND_RMS, cols, offset);
      test_eps_outside(RMS_KIND_LAYER, cols, offset);
    }
}
