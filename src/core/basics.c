/* SPDX-License-Identifier: MIT
 *
 * Statuses, version, sizes: the small things. */
#include <math.h>
#include "../../include/rmsnorm.h"
#include "arithmetic.h"
#include "fp_env.h"

#define TEXT_(a) #a
#define TEXT(a)  TEXT_(a)

const char *rms_version(void) {
  return TEXT(RMSNORM_VERSION_MAJOR) "." TEXT(RMSNORM_VERSION_MINOR) "." TEXT(RMSNORM_VERSION_PATCH);
}

const char *rms_status_string(rms_status status) {
  switch (status) {
#define CASE(name, number, message)                                                                                    \
  case name:                                                                                                           \
    return message;
    RMS_STATUS_LIST(CASE)
#undef CASE
  case RMS_STATUS_END:
    break;
  }
  return "unknown status";
}

size_t rms_dtype_size(rms_dtype dtype) {
  switch (dtype) {
  case RMS_F32:
    return 4;
  case RMS_F64:
    return 8;
  case RMS_BF16:
  case RMS_F16:
    return 2;
  case RMS_I8:
  case RMS_F8E4M3:
  case RMS_F8E5M2:
    return 1;
  case RMS_AS_X:
  case RMS_Q8_0:
    break;
  }
  return 0;
}

static int64_t partial_count(int64_t cols, double p) {
  if (cols < 1 || !(p > 0 && p <= 1)) return INT64_MIN;
  double exact = (double)cols * p, nearest = nearbyint(exact);
  /* A product that should be a whole number misses it by a rounding of p and one of the product. */
  double k = fabs(exact - nearest) <= exact * 0x1p-51 ? nearest : ceil(exact);
  if (k < 1) return 1;
  return k < (double)cols ? (int64_t)k : cols;
}

int64_t rms_partial_count(int64_t cols, double p) {
  rms_fp_word callers = rms_fp_enter();
  RMS_FP_PIN(cols);
  RMS_FP_PIN(p);
  int64_t count = partial_count(cols, p);
  RMS_FP_PIN(count);
  rms_fp_leave(callers);
  return count;
}
