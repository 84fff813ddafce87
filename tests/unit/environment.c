/* SPDX-License-Identifier: MIT
 * RMSNORM_ISA and RMSNORM_STREAM_BYTES, which are read at the first call: run once per setting by CTest. */
#include "harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static rms_status norm(float *y) {
  static const float x[4] = {1, 2, 3, 4};
  return rms_norm_f32(y, x, NULL, 1, 4, 1e-5);
}

enum { ROWS = 3, COLS = 4 };

/* Every operation on rows, each with valid arguments. */
static void expect_from_operations(rms_status expected) {
  static const float in[ROWS * COLS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  _Alignas(64) static char workspace[1 << 16];
  float out[ROWS * COLS] = {0}, before[ROWS * COLS] = {0}, dweight[COLS];
  rms_spec spec = {.cols = COLS, .eps = 1e-5};
  rms_forward_args forward = {.outer = ROWS, .x = {.data = in, .dtype = RMS_F32}, .y = {.data = out}};
  rms_backward_args backward = {
      .outer = ROWS, .dy = {.data = in}, .x = {.data = in, .dtype = RMS_F32}, .dx = {.data = out}};
  rms_stat stats[ROWS] = {{4, 0, 30}, {4, 0, 174}, {4, 0, 446}};
  rms_grad_sum sums[ROWS] = {{30, 0}, {174, 0}, {446, 0}};
  backward.dweight = dweight;
  backward.workspace = workspace;
  backward.workspace_bytes = sizeof workspace;
  T_EQ_STATUS(expected, rms_norm_f32(out, in, NULL, 1, COLS, 1e-5));
  T_EQ_STATUS(expected, rms_forward(&spec, &forward, NULL));
  T_EQ_STATUS(expected, rms_apply(&spec, &forward, stats, NULL));
  T_EQ_STATUS(expected, rms_backward(&spec, &backward, NULL));
  T_EQ_STATUS(expected, rms_backward_apply(&spec, &backward, stats, sums, NULL));
  T_EQ_STATUS(expected, rms_stats(&spec, &forward, stats, NULL));
  T_EQ_STATUS(expected, rms_backward_stats(&spec, &backward, stats, sums, NULL));
  forward.outer = backward.outer = 0;
  T_EQ_STATUS(expected, rms_forward(&spec, &forward, NULL));
  T_EQ_STATUS(expected, rms_backward(&spec, &backward, NULL));
  if (expected != RMS_OK) T_EQ_BYTES(before, out, sizeof out);
}

/* A name that cannot run fails every operation, writes nothing, and is never replaced in silence. */
static void isa(void) {
  const char *name = getenv("RMSNORM_ISA");
  t_isas isas = t_usable_isas();
  float y[4] = {9, 9, 9, 9}, before[4];
  memcpy(before, y, sizeof y);
  if (!name || !*name || rms_isa_usable(name)) {
    T_EQ_STR(name && *name ? name : isas.name[isas.count - 1], rms_isa_active());
    if (rms_stream_threshold() < 0) return; /* see stream_bytes */
    T_EQ_STATUS(RMS_OK, norm(y));
    T_CHECK(memcmp(before, y, sizeof y) != 0);
    return;
  }
  T_EQ_STR(NULL, rms_isa_active());
  T_EQ_STATUS(RMS_E_ISA, norm(y));
  T_EQ_BYTES(before, y, sizeof y);
  T_EQ_STR(NULL, rms_isa_active());
  expect_from_operations(RMS_E_ISA);
  T_EQ_STATUS(RMS_OK, rms_isa_force("scalar")); /* the program may still choose for itself */
  T_EQ_STR("scalar", rms_isa_active());
  T_EQ_STATUS(RMS_OK, norm(y));
}

/* What RMSNORM_STREAM_BYTES means: -1 for anything but digits that make an int64_t. */
static int64_t bytes_in(const char *text) {
  size_t digits = strspn(text, "0123456789");
  errno = 0;
  long long bytes = strtoll(text, NULL, 10);
  return digits == strlen(text) && errno == 0 ? (int64_t)bytes : -1;
}

static void stream_bytes(void) {
  const char *text = getenv("RMSNORM_STREAM_BYTES");
  int64_t now = rms_stream_threshold();
  if (rms_isa_active() == NULL) T_EQ_STATUS(RMS_OK, rms_isa_force("scalar"));
  if (text && *text && bytes_in(text) < 0) {
    T_EQ_INT(-1, now);
    expect_from_operations(RMS_E_ENVIRONMENT);
    T_EQ_STATUS(RMS_E_ENVIRONMENT, rms_stream_threshold_set(-1));
    expect_from_operations(RMS_E_ENVIRONMENT);
    T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(7)); /* the program may still choose for itself */
    T_EQ_STATUS(RMS_E_ENVIRONMENT, rms_stream_threshold_set(-1));
    T_EQ_INT(7, rms_stream_threshold());
    expect_from_operations(RMS_OK);
    return;
  }
  expect_from_operations(RMS_OK);
  if (text && *text)
    T_EQ_INT(bytes_in(text), now);
  else
    T_CHECK(now >= 1 << 16); /* from the size of a cache */
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(1));
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(-1));
  T_EQ_INT(now, rms_stream_threshold());
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"isa", isa}, {"stream_bytes", stream_bytes}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
