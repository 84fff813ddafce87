/* SPDX-License-Identifier: MIT
 * RMSNORM_ISA and RMSNORM_STREAM_BYTES, which are read at the first call: run once per setting by CTest. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

static rms_status norm(float *y) {
  static const float x[4] = {1, 2, 3, 4};
  return rms_norm_f32(y, x, NULL, 1, 4, 1e-5);
}

/* A name that cannot run fails every operation, writes nothing, and is never replaced in silence. */
static void isa(void) {
  const char *name = getenv("RMSNORM_ISA");
  t_isas isas = t_usable_isas();
  float y[4] = {9, 9, 9, 9}, before[4];
  memcpy(before, y, sizeof y);
  if (!name || !*name || rms_isa_usable(name)) {
    T_EQ_STR(name && *name ? name : isas.name[isas.count - 1], rms_isa_active());
    T_EQ_STATUS(RMS_OK, norm(y));
    T_CHECK(memcmp(before, y, sizeof y) != 0);
    return;
  }
  T_EQ_STR(NULL, rms_isa_active());
  T_EQ_STATUS(RMS_E_ISA, norm(y));
  T_EQ_BYTES(before, y, sizeof y);
  T_EQ_STR(NULL, rms_isa_active());
  T_EQ_STATUS(RMS_OK, rms_isa_force("scalar")); /* the program may still choose for itself */
  T_EQ_STR("scalar", rms_isa_active());
  T_EQ_STATUS(RMS_OK, norm(y));
}

static void stream_bytes(void) {
  const char *text = getenv("RMSNORM_STREAM_BYTES");
  int64_t now = rms_stream_threshold();
  if (text)
    T_EQ_INT(atoll(text), now);
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
