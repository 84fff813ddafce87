/* SPDX-License-Identifier: MIT
 *
 * Turns a square of N x N elements over in registers of BYTES bytes, N = BYTES / SIZE. Included by turn.h once for each
 * SIZE of an element and BYTES of a register.
 *
 * Interleaving the first half of the vectors of a square with the second half, log2(N) times, turns it over. */

#if BYTES == 2 * SIZE
#define N 2
#elif BYTES == 4 * SIZE
#define N 4
#elif BYTES == 8 * SIZE
#define N 8
#else
#define N 16
#endif

typedef ELEMENT S(vec) __attribute__((vector_size(BYTES)));

static inline S(vec) S(load)(const char *p) {
  S(vec) v;
  memcpy(&v, p, sizeof v);
  return v;
}

static inline VEC_INLINE void S(turn)(S(vec) square[N]) {
  UNROLLED for (int stage = 1; stage < N; stage *= 2) {
    S(vec) next[N];
    UNROLLED for (int i = 0; i < N / 2; i++) {
      next[2 * i] = TURNS(S(vec), square[i], square[i + N / 2], K_(LOWER, N));
      next[2 * i + 1] = TURNS(S(vec), square[i], square[i + N / 2], K_(UPPER, N));
    }
    UNROLLED for (int i = 0; i < N; i++) square[i] = next[i];
  }
}

/* The steps are those from one vector to the next. past: by stores that bypass the caches. */
static inline VEC_INLINE void S(copy_square)(char *to, int64_t to_step, const char *from, int64_t from_step,
                                             bool past) {
  S(vec) square[N];
  UNROLLED for (int i = 0; i < N; i++) square[i] = S(load)(from + i * from_step);
  S(turn)(square);
  UNROLLED for (int i = 0; i < N; i++) {
    if (past)
      vec_stream_part(to + i * to_step, &square[i], BYTES);
    else
      memcpy(to + i * to_step, &square[i], sizeof square[i]);
  }
}

#undef N
