/* SPDX-License-Identifier: MIT
 * The choice between the kernels of two tables for a 16-bit type: the quicker ones are taken, and the library's own
 * choice gives the bits of every instruction set that may be forced. */
#include "../../src/core/quicker.h"
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
  const rms_kernels one = {.name = "one", .row = {[RMS_F16] = row, [RMS_BF16] = slow_row}};
  const rms_kernels other = {.name = "other", .row = {[RMS_F16] = slow_row, [RMS_BF16] = row}};
  T_CHECK(rms_is_quicker(&one, &other, RMS_F16));
  T_CHECK(!rms_is_quicker(&other, &one, RMS_F16));
  T_CHECK(rms_is_quicker(&other, &one, RMS_BF16));
  T_CHECK(!rms_is_quicker(&one, &other, RMS_BF16));
}

typedef struct {
  uint16_t y[ROWS * COLS], dx[ROWS * COLS], dweight[COLS], dbias[COLS];
  float r[ROWS];
} results;

/* Forward, without statistics and with them, and backward, over the same data each time. */
static void run(results *to, rms_dtype type, rms_kind kind, int64_t rows) {
  static uint16_t x[ROWS * COLS], weight[COLS];
  static float mean[ROWS];
  static _Alignas(64) char workspace[1 << 20];
  const rms_spec spec = {.cols = COLS, .eps = 1e-6, .kind = kind};
  rms_forward_args forward = {.outer = rows, .x = {.data = x, .dtype = type}, .weight = weight, .y = {.data = to->y}};
  const rms_backward_args backward = {.outer = rows,
                                      .dy = {.data = to->y, .dtype = type},
                                      .x = {.data = x, .dtype = type},
                                      .weight = weight,
                                      .dx = {.data = to->dx},
                                      .dweight = to->dweight,
                                      .dbias = kind == RMS_KIND_LAYER ? to->dbias : NULL,
                                      .workspace = workspace,
                                      .workspace_bytes = sizeof workspace};
  t_fill(x, type, rows * COLS, T_NORMAL, t_seed(), 1, 0);
  t_fill(weight, type, COLS, T_NORMAL, t_seed(), 2, 0);
  memset(to, 0, sizeof *to);
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &forward, NULL));
  static uint16_t alone[ROWS * COLS];
  memcpy(alone, to->y, sizeof alone);
  forward.rstd = to->r;
  forward.mean = kind == RMS_KIND_LAYER ? mean : NULL;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &forward, NULL));
  T_EQ_BYTES(alone, to->y, sizeof alone);
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &backward, NULL));
}

static void same_bits(rms_dtype type) {
  static results want, got;
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
  const rms_kernels *chosen = rms_active_kernels();
  T_EQ_STR(rms_isa_name(rms_isa_number(chosen)), chosen->name);
  for (rms_kind kind = RMS_KIND_RMS; kind <= RMS_KIND_LAYER; kind++)
    for (int64_t rows = 1; rows <= ROWS; rows += ROWS - 1) {
      T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
      run(&want, type, kind, rows);
      for (int i = 0; i < rms_isa_count(); i++) {
        if (rms_isa_force(rms_isa_name(i)) != RMS_OK) continue;
        run(&got, type, kind, rows);
        T_EQ_BYTES(&want, &got, sizeof got);
      }
    }
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
}

static void same_bits_f16(void) {
  same_bits(RMS_F16);
}

static void same_bits_bf16(void) {
  same_bits(RMS_BF16);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {
      {"the_quicker_one", the_quicker_one}, {"same_bits_f16", same_bits_f16}, {"same_bits_bf16", same_bits_bf16}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
