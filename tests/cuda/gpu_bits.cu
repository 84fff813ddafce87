/* SPDX-License-Identifier: MIT
 *
 * Same row, same bits: alone and in a batch, aligned or not, from every kernel. */
#include "gpu.h"

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
  std::vector<char> y, rstd, dx, dgate, dweight;
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
  rms_steps steps;
  rms_eps_place eps_place;
  bool residual; /* a gradient is added, and the sum goes to a second tensor too          */
  rms_gate_place gate;
};

/* Forward and backward of `rows` rows of the data. */
static Outputs run_layout(const Shape &s, const std::vector<char> &x, const std::vector<char> &dy,
                          const std::vector<char> &weight, const Way &way) {
  Memory device;
  const size_t size = rms_dtype_size(s.type), row = (size_t)s.cols * size, stat = s.type == RMS_F64 ? 8 : 4;
  const size_t offset = way.offset;
  const int64_t inner = way.inner ? way.inner : 1, outer_pitch = inner * way.pitch + (way.inner ? 16 : 0);
  const int64_t outer = s.rows / inner;
  rms_spec spec = {};
  spec.cols = s.cols;
  spec.eps = 1e-6;
  spec.kind = s.kind;
  const rms_dtype grad = s.type == RMS_F64 ? RMS_F64 : RMS_F32;
  if (way.before) spec.rounding = RMS_ROUND_BEFORE_WEIGHT;
  spec.steps = way.steps;
  spec.eps_place = way.eps_place;
  spec.gate_place = way.gate;
  spec.activation = way.before ? RMS_ACT_SIGMOID : RMS_ACT_SILU;
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
  char *dz = device.bytes(spread_x.size() + offset) + offset; /* dy is the gate as well */
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
  must(cudaMemset(dz, 0xff, spread_x.size()), "memset");
  rms_forward_args f = {};
  f.outer = outer;
  f.inner = inner;
  f.x = input(at_x, s.type, outer_pitch, way.pitch);
  f.y = output(y, s.type, outer_pitch, way.pitch);
  if (way.gate) f.gate = input(at_dy, s.type, outer_pitch, way.pitch);
  f.weight = at_w;
  f.rstd = rstd;
  f.mean = mean;
  expect(rms_cuda_forward(&spec, &f, nullptr) == RMS_OK, "forward status");
  rms_backward_args b = {};
  b.outer = outer;
  b.inner = inner;
  b.dy = input(at_dy, s.type, outer_pitch, way.pitch);
  b.x = input(at_x, s.type, outer_pitch, way.pitch);
  b.weight = at_w;
  if (!way.recompute) {
    b.rstd = rstd;
    b.mean = s.kind == RMS_KIND_LAYER ? mean : nullptr;
  }
  b.dx = output(dx, s.type, outer_pitch, way.pitch);
  if (way.gate) {
    b.gate = input(at_dy, s.type, outer_pitch, way.pitch);
    b.dgate = output(dz, s.type, outer_pitch, way.pitch);
  }
  if (way.residual) {
    b.dresidual = input(at_x, s.type, outer_pitch, way.pitch);
    b.dresidual_out = output(ds, s.type, outer_pitch, way.pitch);
  }
  b.dweight = dw;
  b.dweight_dtype = (int32_t)grad;
  b.workspace_bytes = rms_cuda_backward_workspace(&spec, &b);
  b.workspace = device.bytes(b.workspace_bytes);
  expect(rms_cuda_backward(&spec, &b, nullptr) == RMS_OK, "backward status");
  must(cudaDeviceSynchronize(), "run");
  Outputs out;
  std::vector<char> wide_y = fetch(y, spread_x.size()), wide_dx = fetch(dx, spread_x.size()),
                    wide_ds = fetch(ds, spread_x.size()), wide_dz = fetch(dz, spread_x.size());
  for (int64_t r = 0; r < s.rows; r++) {
    out.y.insert(out.y.end(), &wide_y[at(r)], &wide_y[at(r)] + row);
    out.dx.insert(out.dx.end(), &wide_dx[at(r)], &wide_dx[at(r)] + row);
    out.dgate.insert(out.dgate.end(), &wide_dz[at(r)], &wide_dz[at(r)] + row);
    if (way.residual) expect(memcmp(&wide_ds[at(r)], &wide_dx[at(r)], row) == 0, "dresidual_out is dx");
  }
  out.rstd = fetch(rstd, (size_t)s.rows * stat);
  out.dweight = fetch(dw, (size_t)s.cols * (s.type == RMS_F64 ? 8 : 4));
  return out;
}

/* Some rows out of range in all the ways there are; the last exponents are those of subnormal numbers. */
static void add_extremes(const Shape &s, std::vector<char> &x, std::vector<char> &dy) {
  const int x_size[] = {0, 100, -100, 1, 1, 1, 120, -110, 1, 1, 127, -127, -52},
            dy_size[] = {1, 1, 1, 0, 100, -100, -90, 90, 127, -127, -127, -126, -127};
  for (int i = 0; i < 13 && s.rows >= 16; i++) {
    if (x_size[i] != 1) extreme_row(x, s.type, i + 2, s.cols, x_size[i]);
    if (dy_size[i] != 1) extreme_row(dy, s.type, i + 2, s.cols, dy_size[i]);
  }
}

static void check_bits(const Shape &s) {
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

/* The last row on its own. */
static void check_last_row(const Shape &s, const std::vector<char> &x, const std::vector<char> &dy,
                           const std::vector<char> &w, const Way &way, const Outputs &base, const std::string &name) {
  const size_t row = (size_t)s.cols * rms_dtype_size(s.type);
  auto last = [&](const std::vector<char> &of) { return std::vector<char>(of.end() - (ptrdiff_t)row, of.end()); };
  Shape one = s;
  one.rows = 1;
  const Outputs alone = run_layout(one, last(x), last(dy), w, way);
  expect(alone.y == last(base.y) && alone.dx == last(base.dx) && alone.dgate == last(base.dgate),
         name + ": a row alone");
}

/* What the kernels of aligned rows do beside the common case, and what gates give: the same bits with saved statistics
 * and without, from rows that are not aligned, from rows at two distances, and from a list of the elements, which all
 * take other kernels; with a gate also from a row alone. */
static void check_other_bits(const Shape &s, rms_gate_place gate) {
  std::vector<char> x = random_elements(s.type, s.rows * s.cols, 4), dy = random_elements(s.type, s.rows * s.cols, 5),
                    w = random_elements(s.type, s.cols, 6);
  add_extremes(s, x, dy);
  for (int what = gate ? 0 : 1; what < 16; what++) {
    const bool partial = (what & 2) != 0, terms = (what & 8) != 0;
    if (terms && (gate || s.kind == RMS_KIND_LAYER || s.type == RMS_F32)) continue;
    if (partial && s.kind == RMS_KIND_LAYER) continue;
    std::string name = "other bits " + std::to_string(what) + " gate " + std::to_string(gate) + " type " +
                       std::to_string(s.type) + " kind " + std::to_string(s.kind) + " " + std::to_string(s.rows) + "x" +
                       std::to_string(s.cols);
    Way plain = {};
    plain.pitch = s.cols;
    plain.before = (what & 1) != 0;
    plain.steps = terms ? RMS_STEPS_TERMS : RMS_STEPS_WIDE;
    plain.partial = partial ? (s.cols + 2) / 3 : 0;
    plain.residual = (what & 4) != 0;
    plain.gate = gate;
    const Outputs base = run_layout(s, x, dy, w, plain);
    auto compare = [&](const Way &way, const char *how) {
      Outputs other = run_layout(s, x, dy, w, way);
      expect(other.y == base.y && other.dx == base.dx && other.dgate == base.dgate && other.rstd == base.rstd,
             name + ": " + how);
    };
    if (gate) check_last_row(s, x, dy, w, plain, base, name);
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

/* The forms that round at every step, and eps as a bound: the kernels of aligned rows have the bits of those of any. */
static void check_step_bits(const Shape &s, rms_steps steps, rms_eps_place eps_place) {
  const std::string name = "bits of steps " + std::to_string(steps) + " eps " + std::to_string(eps_place) + " type " +
                           std::to_string(s.type) + " kind " + std::to_string(s.kind) + " " + std::to_string(s.rows) +
                           "x" + std::to_string(s.cols);
  std::vector<char> x = random_elements(s.type, s.rows * s.cols, 7), dy = random_elements(s.type, s.rows * s.cols, 8),
                    w = random_elements(s.type, s.cols, 9);
  add_extremes(s, x, dy);
  Way plain = {};
  plain.pitch = s.cols;
  plain.steps = steps;
  plain.eps_place = eps_place;
  const Outputs base = run_layout(s, x, dy, w, plain), again = run_layout(s, x, dy, w, plain);
  expect(again.dweight == base.dweight, name + ": dweight run to run");
  auto compare = [&](const Way &way, const char *how) {
    const Outputs other = run_layout(s, x, dy, w, way);
    expect(other.y == base.y && other.rstd == base.rstd, name + ": forward, " + how);
    expect(other.dx == base.dx, name + ": backward, " + how);
  };
  Way way = plain;
  way.recompute = true;
  compare(way, "recomputed statistics");
  way = plain;
  way.inner = 4;
  compare(way, "two distances");
  way = plain;
  way.pitch++, way.offset = rms_dtype_size(s.type);
  compare(way, "not aligned");
}

static void test_step_bits(Extent extent) {
  const bool small = extent == SMALL;
  const struct {
    rms_kind kind;
    rms_steps steps;
    rms_eps_place eps_place;
  } forms[] = {{RMS_KIND_RMS, RMS_STEPS_RSTD, RMS_EPS_INSIDE},  {RMS_KIND_RMS, RMS_STEPS_ALL, RMS_EPS_INSIDE},
               {RMS_KIND_RMS, RMS_STEPS_ALL, RMS_EPS_OUTSIDE},  {RMS_KIND_RMS, RMS_STEPS_ALL, RMS_EPS_CLAMP},
               {RMS_KIND_LAYER, RMS_STEPS_ALL, RMS_EPS_INSIDE}, {RMS_KIND_RMS, RMS_STEPS_WIDE, RMS_EPS_CLAMP},
               {RMS_KIND_LAYER, RMS_STEPS_WIDE, RMS_EPS_CLAMP}};
  for (rms_dtype type : {RMS_BF16, RMS_F16})
    for (auto form : forms)
      for (int64_t cols : {24, 128, 264, 512, 520, 1024, 4096, 8200, 16384}) {
        if (small && (cols > 1024 || type == RMS_F16)) continue;
        const int64_t rows = small ? 40 : cols <= 264 ? 9000 : cols <= 4096 ? 1200 : 300; /* rings go round */
        if (is_mine()) check_step_bits({type, form.kind, rows, cols}, form.steps, form.eps_place);
      }
}

void test_bits(Extent extent) {
  test_step_bits(extent);
  const bool small = extent == SMALL;
  for (rms_dtype type : {RMS_F32, RMS_BF16, RMS_F16, RMS_F64})
    for (int kind = 0; kind < 2; kind++)
      for (int64_t cols :
           {24, 128, 520, 1024, 4096, 8192, 20480, 70000, 127, 385, 1023, 4097, 16385, 36868, 131072, 140000}) {
        /* the small set has rows within a warp, within a block (with rings) and across clusters of either size */
        const bool more = cols > 1024 || cols % 8 != 0, some = type == RMS_BF16 && kind == 0 && cols < 131072;
        if (small && ((more && !some) || type == RMS_F16 || type == RMS_F64)) continue;
        if (is_mine()) check_bits({type, (rms_kind)kind, cols > 4096 ? 5 : 37, cols});
      }
  for (rms_dtype type : {RMS_F32, RMS_BF16, RMS_F16})
    for (int kind = 0; kind < 2; kind++)
      for (int64_t cols : {24, 128, 520, 4096, 5120, 8192, 20480, 131, 1001}) {
        if (small && (cols > 1024 || cols == 131 || type == RMS_F16)) continue;
        for (rms_gate_place gate : {RMS_GATE_NONE, RMS_GATE_AFTER, RMS_GATE_BEFORE})
          if (is_mine()) check_other_bits({type, (rms_kind)kind, cols > 8192 ? 16 : 40, cols}, gate);
      }
}
