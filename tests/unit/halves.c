/* SPDX-License-Identifier: MIT
 * The choice between two forwards of f16: the quicker one is taken, and the library's own choice gives the bits of
 * every instruction set that may be forced. */
#include "../../src/core/halves.h"
#include <stdlib.h>
#include <string.h>
#include "../../src/core/run.h"
#include "call.h"

enum { ROWS = 37, COLS = 1024 };

static volatile int work;

static bool row(char *y, const char *x, const char *weight, int64_t width, int64_t k, double eps, bool weight_is_f32,
                bool before) {
  memcpy(y, x, (size_t)width * 2);
  return weight && k == width && eps > 0 && !weight_is_f32 && !before;
}

/* Some ten thousand times as long. */
static bool slow_row(char *y, const char *x, const char *weight, int64_t width, int64_t k, double eps,
                     bool weight_is_f32, bool before) {
  for (int i = 0; i < 100000; i++)
    work++;
  return row(y, x, weight, width, k, eps, weight_is_f32, before);
}

static void the_quicker_one(void) {
  const rms_kernels quick = {.name = "quick", .row = {[RMS_F16] = row}};
  const rms_kernels slow = {.name = "slow", .row = {[RMS_F16] = slow_row}};
  T_CHECK(rms_halves_are_quicker(&quick, &slow));
  T_CHECK(!rms_halves_are_quicker(&slow, &quick));
}

static void forward(uint16_t *y, float *rstd, const uint16_t *x, const uint16_t *weight, int64_t rows, rms_kind kind) {
  const rms_spec spec = {.cols = COLS, .eps = 1e-6, .kind = kind};
  const rms_forward_args args = {
      .outer = rows, .x = {.data = x, .dtype = RMS_F16}, .weight = weight, .y = {.data = y}, .rstd = rstd};
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
}

static void same_bits(void) {
  static uint16_t x[ROWS * COLS], weight[COLS], want[ROWS * COLS], y[ROWS * COLS];
  float want_r[ROWS], r[ROWS];
  t_fill(x, RMS_F16, (int64_t)ROWS * COLS, T_NORMAL, t_seed(), 1, 0);
  t_fill(weight, RMS_F16, COLS, T_NORMAL, t_seed(), 2, 0);
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
  const rms_kernels *chosen = rms_active_kernels();
  T_EQ_STR(rms_isa_name(rms_isa_number(chosen)), chosen->name);
  for (rms_kind kind = RMS_KIND_RMS; kind <= RMS_KIND_LAYER; kind++)
    for (int64_t rows = 1; rows <= ROWS; rows += ROWS - 1) {
      T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
      forward(want, want_r, x, weight, rows, kind);
      for (int i = 0; i < rms_isa_count(); i++) {
        if (rms_isa_force(rms_isa_name(i)) != RMS_OK) continue;
        memset(y, 0, sizeof y);
        forward(y, r, x, weight, rows, kind);
        T_EQ_BYTES(want, y, (size_t)rows * COLS * 2);
        T_EQ_BYTES(want_r, r, (size_t)rows * sizeof *r);
        forward(y, NULL, x, weight, rows, kind);
        T_EQ_BYTES(want, y, (size_t)rows * COLS * 2);
      }
    }
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"the_quicker_one", the_quicker_one}, {"same_bits", same_bits}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
