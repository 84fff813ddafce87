/* SPDX-License-Identifier: MIT
 *
 * The activations of a gate and their slopes: the bits of the CPU library, for every number of a 16-bit type and for
 * numbers of every size of f32 and f64. Rows of ones without eps are their own norm, so that y is act(z), and dgate of
 * dy = 1 its slope. */
#include "gpu.h"

enum { COLS = 64 };

/* Bit patterns: all of a 16-bit type; of the others every `step`-th. */
static std::vector<char> patterns(rms_dtype type, uint64_t count) {
  const size_t size = rms_dtype_size(type);
  std::vector<char> z((size_t)count * size);
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t bits = size == 2 ? i : size == 4 ? i * ((uint64_t)1 << 32) / count : i * (UINT64_MAX / count);
    memcpy(&z[(size_t)i * size], &bits, size);
  }
  return z;
}

/* Numbers between -130 and 40 (f64: -820 and 70), where the activation is neither 0 nor z. */
static std::vector<char> numbers(rms_dtype type, uint64_t count) {
  std::vector<char> z((size_t)count * rms_dtype_size(type));
  for (uint64_t i = 0; i < count; i++) {
    const double share = (double)i / (double)count, d = type == RMS_F64 ? -820 + 890 * share : -130 + 170 * share;
    const float f = (float)d;
    if (type == RMS_F64)
      memcpy(&z[(size_t)i * 8], &d, 8);
    else
      memcpy(&z[(size_t)i * 4], &f, 4);
  }
  return z;
}

static std::vector<char> ones(rms_dtype type, size_t count) {
  const float f = 1;
  const double d = 1;
  const uint16_t half = type == RMS_BF16 ? 0x3f80 : 0x3c00;
  const size_t size = rms_dtype_size(type);
  std::vector<char> x(count * size);
  for (size_t i = 0; i < count; i++)
    memcpy(&x[i * size], type == RMS_F64 ? (const void *)&d : type == RMS_F32 ? (const void *)&f : &half, size);
  return x;
}

/* NaN has no bits of its own. */
static bool is_nan(rms_dtype type, const char *p) {
  float f;
  double d;
  uint16_t half;
  memcpy(&half, p, 2);
  if (type == RMS_BF16) return (half & 0x7fff) > 0x7f80;
  if (type == RMS_F16) return (half & 0x7fff) > 0x7c00;
  if (type == RMS_F32) return memcpy(&f, p, 4), f != f;
  return memcpy(&d, p, 8), d != d;
}

static void compare(rms_dtype type, const std::vector<char> &z, const std::vector<char> &cpu,
                    const std::vector<char> &gpu, const std::string &name) {
  const size_t size = rms_dtype_size(type);
  for (size_t i = 0; i < z.size(); i += size) {
    const bool same = is_nan(type, &cpu[i]) ? is_nan(type, &gpu[i]) : memcmp(&cpu[i], &gpu[i], size) == 0;
    if (same) continue;
    uint64_t bits = 0;
    memcpy(&bits, &z[i], size);
    expect(false, name + " of the bits " + std::to_string(bits));
    return;
  }
  expect(true, name);
}

static void check_activation(rms_dtype type, rms_activation activation, const std::vector<char> &z) {
  const int64_t rows = (int64_t)(z.size() / rms_dtype_size(type)) / COLS;
  const std::vector<char> x = ones(type, z.size() / rms_dtype_size(type));
  std::vector<char> y(z.size()), dz(z.size());
  rms_spec spec = {};
  spec.cols = COLS;
  spec.gate_place = RMS_GATE_AFTER;
  spec.activation = activation;
  rms_forward_args f = {};
  f.outer = rows;
  f.x = input(x.data(), type), f.gate = input(z.data(), type), f.y = output(y.data(), type);
  rms_backward_args b = {};
  b.outer = rows;
  b.x = b.dy = f.x, b.gate = f.gate, b.dgate = output(dz.data(), type);
  expect(rms_forward(&spec, &f, nullptr) == RMS_OK && rms_backward(&spec, &b, nullptr) == RMS_OK, "on the CPU");
  Memory device;
  char *there_y = device.bytes(y.size()), *there_dz = device.bytes(dz.size());
  f.x.data = device.copy(x), f.gate.data = device.copy(z), f.y.data = there_y;
  b.x = b.dy = f.x, b.gate = f.gate, b.dgate.data = there_dz;
  expect(rms_cuda_forward(&spec, &f, nullptr) == RMS_OK && rms_cuda_backward(&spec, &b, nullptr) == RMS_OK,
         "on the GPU");
  must(cudaDeviceSynchronize(), "run");
  const std::string name = (activation == RMS_ACT_SILU ? "silu, type " : "sigmoid, type ") + std::to_string(type);
  compare(type, z, y, fetch(there_y, y.size()), name);
  compare(type, z, dz, fetch(there_dz, dz.size()), name + ": slope");
}

void test_activations(Extent extent) {
  const uint64_t many = extent == SMALL ? 1 << 16 : 1 << 22;
  for (rms_dtype type : {RMS_F32, RMS_BF16, RMS_F16, RMS_F64})
    for (rms_activation activation : {RMS_ACT_SILU, RMS_ACT_SIGMOID}) {
      if (!is_mine()) continue;
      const bool half = rms_dtype_size(type) == 2;
      check_activation(type, activation, patterns(type, half ? 1 << 16 : many));
      if (!half) check_activation(type, activation, numbers(type, many));
    }
}
