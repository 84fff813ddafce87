/* SPDX-License-Identifier: MIT
 * The small functions: statuses, version, types, counts, the one-line call, instruction sets, the pool's edges. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void status_strings(void) {
#define CHECK_STRING(name, number, message)                                                                            \
  T_EQ_INT(number, name);                                                                                              \
  T_EQ_STR(message, rms_status_string(name));
  RMS_STATUS_LIST(CHECK_STRING)
#undef CHECK_STRING
  T_CHECK(rms_status_string((rms_status)-1) != NULL && rms_status_string((rms_status)-1)[0] != 0);
  T_CHECK(rms_status_string(RMS_STATUS_END) != NULL && strcmp(rms_status_string(RMS_STATUS_END), "success") != 0);
  T_CHECK(rms_status_string((rms_status)1000000) != NULL);
}

static void version(void) {
  char text[40];
  snprintf(text, sizeof text, "%d.%d.%d", RMSNORM_VERSION_MAJOR, RMSNORM_VERSION_MINOR, RMSNORM_VERSION_PATCH);
  T_EQ_STR(text, rms_version());
}

static void dtype_sizes(void) {
  T_EQ_INT(4, rms_dtype_size(RMS_F32));
  T_EQ_INT(8, rms_dtype_size(RMS_F64));
  T_EQ_INT(2, rms_dtype_size(RMS_BF16));
  T_EQ_INT(2, rms_dtype_size(RMS_F16));
  T_EQ_INT(0, rms_dtype_size(RMS_AS_X));
  T_EQ_INT(1, rms_dtype_size(RMS_I8));
  T_EQ_INT(1, rms_dtype_size(RMS_F8E4M3));
  T_EQ_INT(1, rms_dtype_size(RMS_F8E5M2));
  T_EQ_INT(0, rms_dtype_size(RMS_Q8_0));
  T_EQ_INT(0, rms_dtype_size((rms_dtype)9));
  T_EQ_INT(0, rms_dtype_size((rms_dtype)-1));
}

/* With p = a/b every product cols*p that is a whole number in exact arithmetic must stay one. */
static void partial_count(void) {
  T_EQ_INT(7, rms_partial_count(100, 0.07)); /* the product is 7.000000000000001 */
  T_EQ_INT(1, rms_partial_count(1, 1e-9));
  T_EQ_INT(1, rms_partial_count(100, 1e-9));
  T_EQ_INT(100, rms_partial_count(100, 1.0));
  T_EQ_INT(7, rms_partial_count(100, 0.0625)); /* 6.25 */
  T_EQ_INT(6, rms_partial_count(96, 0.0625));
  for (int64_t cols = 1; cols <= 1000; cols++)
    for (int64_t percent = 1; percent <= 100; percent++) {
      t_context("cols=%d p=%g", (int)cols, (double)percent / 100);
      T_EQ_INT((cols * percent + 99) / 100, rms_partial_count(cols, (double)percent / 100));
    }
  T_EQ_INT(INT64_C(1) << 39, rms_partial_count(INT64_C(1) << 40, 0.5));
  static const double bad[] = {0, -0.5, 1.0000001, 2, (double)NAN, (double)INFINITY, -(double)INFINITY};
  for (size_t i = 0; i < T_COUNT(bad); i++)
    T_EQ_INT(INT64_MIN, rms_partial_count(10, bad[i]));
  T_EQ_INT(INT64_MIN, rms_partial_count(0, 0.5));
  T_EQ_INT(INT64_MIN, rms_partial_count(-3, 0.5));
}

static void norm_f32(void) {
  float x[] = {3, 4, 0, 0, 1, 1, 1, 1}, y[8], weight[] = {1, 2, 3, 4};
  T_EQ_STATUS(RMS_OK, rms_norm_f32(y, x, NULL, 2, 4, 0));
  static const float plain[] = {1.2f, 1.6f, 0, 0, 1, 1, 1, 1}; /* 1/sqrt(25/4) = 0.4 */
  for (int i = 0; i < 8; i++)
    T_NEAR((double)plain[i], (double)y[i], 0x1p-22);
  T_EQ_STATUS(RMS_OK, rms_norm_f32(y, x, weight, 2, 4, 0));
  for (int i = 0; i < 8; i++)
    T_NEAR((double)plain[i] * (double)weight[i % 4], (double)y[i], 0x1p-20);
  float in_place[8];
  memcpy(in_place, x, sizeof x);
  T_EQ_STATUS(RMS_OK, rms_norm_f32(in_place, in_place, weight, 2, 4, 0));
  T_EQ_BYTES(y, in_place, sizeof y);
  T_EQ_STATUS(RMS_OK, rms_norm_f32(y, x, weight, 0, 4, 1e-5));

  float untouched[8] = {7, 7, 7, 7, 7, 7, 7, 7}, before[8];
  memcpy(before, untouched, sizeof before);
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_norm_f32(NULL, x, weight, 2, 4, 0));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_norm_f32(untouched, NULL, weight, 2, 4, 0));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_norm_f32(untouched, x, weight, -1, 4, 0));
  T_EQ_STATUS(RMS_E_COLS, rms_norm_f32(untouched, x, weight, 2, 0, 0));
  T_EQ_STATUS(RMS_E_COLS, rms_norm_f32(untouched, x, weight, 2, -4, 0));
  T_EQ_STATUS(RMS_E_EPS, rms_norm_f32(untouched, x, weight, 2, 4, -1e-30));
  T_EQ_STATUS(RMS_E_EPS, rms_norm_f32(untouched, x, weight, 2, 4, (double)NAN));
  T_EQ_STATUS(RMS_E_SIZE, rms_norm_f32(untouched, x, weight, INT64_MAX / 8, 1 << 20, 0));
  T_EQ_STATUS(RMS_E_ALIAS, rms_norm_f32(x + 1, x, weight, 1, 4, 0));
  T_EQ_BYTES(before, untouched, sizeof before);
}

static void isa_names(void) {
  int count = rms_isa_count();
  T_CHECK(count >= 1);
  T_EQ_STR("scalar", rms_isa_name(0));
  T_EQ_STR(NULL, rms_isa_name(-1));
  T_EQ_STR(NULL, rms_isa_name(count));
  T_EQ_INT(1, rms_isa_usable("scalar"));
  T_EQ_INT(0, rms_isa_usable("sse9"));
  T_EQ_INT(0, rms_isa_usable(""));
  T_EQ_INT(0, rms_isa_usable(NULL));
}

static void isa_force(void) {
  t_isas isas = t_usable_isas();
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
  T_EQ_STR(isas.name[isas.count - 1], rms_isa_active()); /* automatic: the best one */
  for (int i = 0; i < isas.count; i++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
    T_EQ_STR(isas.name[i], rms_isa_active());
    T_EQ_STATUS(RMS_E_ISA, rms_isa_force("sse9"));
    T_EQ_STATUS(RMS_E_ISA, rms_isa_force(""));
    T_EQ_STR(isas.name[i], rms_isa_active());
  }
  for (int i = 0; i < rms_isa_count(); i++)
    if (!rms_isa_usable(rms_isa_name(i))) T_EQ_STATUS(RMS_E_ISA, rms_isa_force(rms_isa_name(i)));
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
  T_EQ_STR(isas.name[isas.count - 1], rms_isa_active());
}

static void stream_threshold(void) {
  int64_t standard = rms_stream_threshold();
  T_CHECK(standard > 0);
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(12345));
  T_EQ_INT(12345, rms_stream_threshold());
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(0));
  T_EQ_INT(0, rms_stream_threshold());
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(-1));
  T_EQ_INT(standard, rms_stream_threshold());
}

static void pool_edges(void) {
  rms_pool *pool = NULL;
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_pool_create(NULL, 2));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_pool_create(&pool, 0));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_pool_create(&pool, -1));
  T_CHECK(pool == NULL);
  rms_pool_destroy(NULL);
  T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, 3));
  rms_executor executor = rms_pool_executor(pool);
  T_EQ_INT(3, executor.concurrency);
  T_CHECK(executor.run != NULL);
  rms_pool_destroy(pool);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"status_strings", status_strings},
                                 {"version", version},
                                 {"dtype_sizes", dtype_sizes},
                                 {"partial_count", partial_count},
                                 {"norm_f32", norm_f32},
                                 {"isa_names", isa_names},
                                 {"isa_force", isa_force},
                                 {"stream_threshold", stream_threshold},
                                 {"pool_edges", pool_edges}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
