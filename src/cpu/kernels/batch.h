/* SPDX-License-Identifier: MIT
 *
 * Batches: segments that are measured together before the first of them is written. */

enum {
  K(BATCH) = 8,                     /* segments at most                                                    */
  K(BATCH_BYTES) = 8 * 1024,        /* what a batch reads stays in the first-level cache                   */
  K(BURST_BYTES) = 4 * 1024,        /* so does what the next one reads beside it                           */
  K(LARGE_BATCH_BYTES) = 128 * 1024 /* stays in the second                                                 */
};

/* Beside the non-temporal stores of a quad: eight plain stores, to the stack.
 * Processors that forget prefetches while their store queue is full of non-temporal stores forget fewer
 * (docs/log/cpu.md). */
INLINE void K(space_stores)(void) {
  volatile int64_t line[8];
  for (int i = 0; i < 8; i++)
    line[i] = i;
  (void)line;
}

/* Reads a row of which a part is measured: reading it all before the first store is quicker than reading it between
 * non-temporal stores. */
INLINE void K(read_ahead)(const char *x, int64_t bytes) {
  for (int64_t byte = 0; byte < bytes; byte += 64)
    (void)*(const volatile char *)(x + byte);
}

/* Fetches `count` rows that are read next. */
INLINE void K(fetch_rows)(const char *x, int64_t step, int64_t bytes, int64_t count) {
  for (; count > 0; count--, x += step)
    for (int64_t byte = 0; byte < bytes; byte += 64)
      vec_prefetch_near(x + byte);
}

/* As many segments as fit in the room, at least one, at most a batch. */
static int64_t K(fit)(int64_t room, int64_t bytes) {
  return bytes * K(BATCH) <= room ? K(BATCH) : bytes <= room ? room / bytes : 1;
}
