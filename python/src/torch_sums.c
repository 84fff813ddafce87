/* SPDX-License-Identifier: MIT */
#include "torch_sums.h"
#include <stdbool.h>
#include <string.h>

/* torch's sum over a dense row of f32, which is the same on every x86 CPU: 32 partial sums (four vectors of eight) take
 * the elements in turn. Each is a cascade of four levels; a level is added to the next one and starts again at zero
 * whenever it is full. Whole vectors that are left go to the first eight sums. Then the four vectors are added up; the
 * elements that are left are added up; and to them the eight sums, one after the other. A row of fewer than eight
 * elements has four sums. */
enum { LANES = 8, VECTORS = 4, LEVELS = 4, SUMS = LANES * VECTORS };

#define PN_INLINE static inline __attribute__((always_inline))

/* On x86 there is a second form of the loops for wider registers; the bits are the same. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__has_attribute)
#if __has_attribute(target_clones)
#define PN_WIDER __attribute__((target_clones("default", "avx2")))
#endif
#endif
#ifndef PN_WIDER
#define PN_WIDER
#endif

PN_INLINE float float_of(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

PN_INLINE uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

/* The magnitude. Subnormal numbers are multiples of 2^-24. */
PN_INLINE float from_f16(uint32_t half) {
  const uint32_t bits = half & 0x7fffu, not_finite = bits >= 0x7c00u ? 112u << 23 : 0;
  const uint32_t normal = (bits << 13) + (112u << 23) + not_finite,
                 subnormal = bits_of((float)(int32_t)bits * 0x1p-24f);
  const uint32_t small = bits < 0x0400u ? UINT32_MAX : 0;
  return float_of((subnormal & small) | (normal & ~small));
}

PN_INLINE uint32_t load_16(const void *row, int64_t i) {
  uint16_t bits;
  memcpy(&bits, (const char *)row + 2 * i, sizeof bits);
  return bits;
}

PN_INLINE uint32_t load_32(const void *row, int64_t i) {
  uint32_t bits;
  memcpy(&bits, (const char *)row + 4 * i, sizeof bits);
  return bits;
}

PN_INLINE float square(const void *row, rms_dtype dtype, int64_t i) {
  const float x = dtype == RMS_F32    ? float_of(load_32(row, i))
                  : dtype == RMS_BF16 ? float_of(load_16(row, i) << 16)
                                      : from_f16(load_16(row, i));
  return x * x;
}

static int ceil_log2(int64_t n) {
  int power = 1;
  while (((int64_t)1 << power) < n)
    power++;
  return power;
}

/* After `done` steps, a multiple of the size of the lowest level. */
PN_INLINE void carry(float sums[LEVELS][SUMS], int width, int64_t done, int power) {
  for (int level = 1; level < LEVELS; level++) {
    for (int k = 0; k < width; k++) {
      sums[level][k] += sums[level - 1][k];
      sums[level - 1][k] = 0;
    }
    if (done & ((((int64_t)1 << power) - 1) << (level * power))) break;
  }
}

/* `steps` times `width` elements; the sums are left in sums[0]. */
PN_INLINE void cascade(const void *row, rms_dtype dtype, int64_t steps, int width, float sums[LEVELS][SUMS]) {
  const int power = ceil_log2(steps) / LEVELS > 4 ? ceil_log2(steps) / LEVELS : 4;
  const int64_t size = (int64_t)1 << power;
  for (int64_t i = 0; i < steps;) {
    const bool full = steps - i >= size;
    for (const int64_t end = full ? i + size : steps; i < end; i++)
      for (int k = 0; k < width; k++)
        sums[0][k] += square(row, dtype, i * width + k);
    if (full) carry(sums, width, i, power);
  }
  for (int level = 1; level < LEVELS; level++)
    for (int k = 0; k < width; k++)
      sums[0][k] += sums[level][k];
}

PN_INLINE float sum(const void *row, rms_dtype dtype, int64_t n, int lanes) {
  const int width = lanes * VECTORS;
  float sums[LEVELS][SUMS] = {{0}}, total = 0;
  int64_t i = n / width * width;
  cascade(row, dtype, n / width, width, sums);
  for (; i + lanes <= n; i += lanes)
    for (int k = 0; k < lanes; k++)
      sums[0][k] += square(row, dtype, i + k);
  for (int vector = 1; vector < VECTORS; vector++)
    for (int k = 0; k < lanes; k++)
      sums[0][k] += sums[0][vector * lanes + k];
  for (; i < n; i++)
    total += square(row, dtype, i);
  for (int k = 0; k < lanes; k++)
    total += sums[0][k];
  return total;
}

PN_WIDER static float sum_f32(const void *row, int64_t n) {
  return n >= LANES ? sum(row, RMS_F32, n, LANES) : sum(row, RMS_F32, n, 1);
}

PN_WIDER static float sum_bf16(const void *row, int64_t n) {
  return n >= LANES ? sum(row, RMS_BF16, n, LANES) : sum(row, RMS_BF16, n, 1);
}

PN_WIDER static float sum_f16(const void *row, int64_t n) {
  return n >= LANES ? sum(row, RMS_F16, n, LANES) : sum(row, RMS_F16, n, 1);
}

/* ---- all rows ---- */

enum { ELEMENTS_OF_A_TASK = 1 << 16 };

typedef struct {
  const rms_forward_args *args;
  rms_stat *stats;
  int64_t rows, cols, rows_of_a_task;
} job;

static const char *row_at(const rms_forward_args *args, int64_t cols, int64_t row) {
  const int64_t outer = row / args->inner, inner = row % args->inner;
  const int64_t inner_stride = args->x.inner_stride ? args->x.inner_stride : cols;
  const int64_t outer_stride = args->x.outer_stride ? args->x.outer_stride : args->inner * inner_stride;
  return (const char *)args->x.data +
         (outer * outer_stride + inner * inner_stride) * (int64_t)rms_dtype_size((rms_dtype)args->x.dtype);
}

static void sum_rows(void *data, int64_t task) {
  const job *j = data;
  const int64_t first = task * j->rows_of_a_task, end = first + j->rows_of_a_task;
  float (*sum_row)(const void *row, int64_t n) = j->args->x.dtype == RMS_F32    ? sum_f32
                                                 : j->args->x.dtype == RMS_BF16 ? sum_bf16
                                                                                : sum_f16;
  for (int64_t row = first; row < end && row < j->rows; row++) {
    const rms_stat stat = {(double)j->cols, 0, (double)sum_row(row_at(j->args, j->cols, row), j->cols)};
    j->stats[row] = stat;
  }
}

static bool offered(const rms_spec *spec, const rms_forward_args *args) {
  return spec->kind == RMS_KIND_RMS && spec->partial == 0 && spec->groups <= 1 && !args->residual.data &&
         args->x.dtype != RMS_F64;
}

rms_status pn_forward_torch_sums(const rms_spec *spec, const rms_forward_args *args, rms_stat *stats,
                                 const rms_executor *executor) {
  job j = {args, stats, args->outer * args->inner, spec->cols, 1};
  if (!offered(spec, args)) return RMS_E_MODE;
  if (j.cols < ELEMENTS_OF_A_TASK) j.rows_of_a_task = ELEMENTS_OF_A_TASK / j.cols;
  const int64_t tasks = (j.rows + j.rows_of_a_task - 1) / j.rows_of_a_task;
  if (executor && executor->concurrency > 1 && tasks > 1)
    executor->run(executor->ctx, tasks, sum_rows, &j);
  else
    for (int64_t task = 0; task < tasks; task++)
      sum_rows(&j, task);
  return rms_apply(spec, args, stats, executor);
}
