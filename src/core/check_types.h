/* SPDX-License-Identifier: MIT
 *
 * Types and numbers as both checks look at them (check.c, check_common.c). */
#ifndef RMS_CORE_CHECK_TYPES_H
#define RMS_CORE_CHECK_TYPES_H

#include <string.h>
#include "job.h"

static inline bool rms_is_dtype(int32_t t) {
  return t >= RMS_F32 && t <= RMS_F16;
}

/* Of a checked type. */
static inline int64_t rms_size_of(rms_dtype t) {
  static const unsigned char size[] = {0, 4, 8, 2, 2};
  return size[t];
}

static inline uint64_t rms_bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

#endif
