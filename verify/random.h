/* SPDX-License-Identifier: MIT
 *
 * Random numbers that are the same everywhere: integers and the four basic operations only, no libm. */
#ifndef RMSNORM_VERIFY_RANDOM_H
#define RMSNORM_VERIFY_RANDOM_H

#include <stdint.h>

typedef struct vf_random {
  uint64_t state[4]; /* xoshiro256** */
} vf_random;

/* Different streams of one seed are independent. */
vf_random vf_random_start(uint64_t seed, uint64_t stream);
uint64_t vf_random_bits(vf_random *random);
uint64_t vf_random_below(vf_random *random, uint64_t bound); /* 0..bound-1 */
double vf_random_uniform(vf_random *random);                 /* [0, 1) */
double vf_random_normal(vf_random *random);                  /* mean 0, variance 1, within (-6, 6) */

#endif
