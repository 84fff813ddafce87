/* SPDX-License-Identifier: MIT
 *
 * Column sums of one block of rows as a gradient, where there is no other block to add. The bits are those of the way
 * through f64 totals: a sum of one f32 number is exact, and -0 becomes 0. */

INLINE void K(write_columns)(char *to, const REAL *block, int64_t count, rms_dtype type) {
  const int64_t size = type == T ? T_SIZE : (int64_t)sizeof(REAL);
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES)
    V(store)(to + j * size, V(add)(V(load)(block + j, REAL_TYPE, 0), V(set)(0)), type, EO);
  if (j < count)
    V(store_n)(to + j * size, V(add)(V(load)(block + j, REAL_TYPE, 0), V(set)(0)), (int)(count - j), type, EO);
}

/* type: T or REAL_TYPE. */
KERNEL void K(rms_columns)(void *to, const void *block, int64_t count, rms_dtype type) {
  if (type == T)
    K(write_columns)(to, block, count, T);
  else
    K(write_columns)(to, block, count, REAL_TYPE);
}
