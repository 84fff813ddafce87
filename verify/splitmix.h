/* SPDX-License-Identifier: MIT
 *
 * splitmix64: the random numbers of the tests and the lab, and the seeds of verify/random.h. Integers alone, so the
 * same on every machine. */
#ifndef RMSNORM_VERIFY_SPLITMIX_H
#define RMSNORM_VERIFY_SPLITMIX_H

#include <stdint.h>

static inline uint64_t splitmix_mix(uint64_t z) {
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static inline uint64_t splitmix_next(uint64_t *state) {
  return splitmix_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

#endif
