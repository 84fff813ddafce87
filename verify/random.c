/* SPDX-License-Identifier: MIT
 * xoshiro256** seeded by splitmix64. */
#include "random.h"
#include "splitmix.h"

static uint64_t rotate(uint64_t value, int count) {
  return value << count | value >> (64 - count);
}

verify_random verify_random_start(uint64_t seed, uint64_t stream) {
  verify_random random;
  uint64_t state = seed;
  state = splitmix_next(&state) ^ stream * 0xd1342543de82ef95u;
  for (int i = 0; i < 4; i++)
    random.state[i] = splitmix_next(&state);
  return random;
}

uint64_t verify_random_bits(verify_random *random) {
  uint64_t *s = random->state;
  uint64_t result = rotate(s[1] * 5, 7) * 9, shifted = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= shifted;
  s[3] = rotate(s[3], 45);
  return result;
}

uint64_t verify_random_below(verify_random *random, uint64_t bound) {
  return verify_random_bits(random) % bound;
}

double verify_random_uniform(verify_random *random) {
  return (double)(verify_random_bits(random) >> 11) * 0x1p-53;
}

/* The sum of twelve uniform numbers: close enough to a normal one, and exact arithmetic on every machine. */
double verify_random_normal(verify_random *random) {
  uint64_t sum = 0;
  for (int i = 0; i < 4; i++) {
    uint64_t bits = verify_random_bits(random);
    sum += (bits & 0x1fffff) + (bits >> 21 & 0x1fffff) + (bits >> 42 & 0x1fffff);
  }
  return ((double)sum + 6) * 0x1p-21 - 6;
}
