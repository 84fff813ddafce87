/* SPDX-License-Identifier: MIT
 *
 * Random numbers that are the same everywhere: integers and the four basic operations only, no libm. */
#ifndef RMSNORM_VERIFY_RANDOM_H
#define RMSNORM_VERIFY_RANDOM_H

#include <stdint.h>

typedef struct verify_random {
  uint64_t state[4]; /* xoshiro256** */
} verify_random;

/* Different streams of one seed are independent. */
verify_random verify_random_start(uint64_t seed, uint64_t stream);
uint64_t verify_random_bits(verify_random *random);
uint64_t verify_random_below(verify_random *random, uint64_t bound); /* 0..bound-1 */
double verify_random_uniform(verify_random *random);                 /* [0, 1) */
double verify_random_normal(verify_random *random);                  /* mean 0, variance 1, within (-6, 6) */

#endif
