/* SPDX-License-Identifier: MIT
 *
 * Copies `rows` rows of `cols` elements between contiguous rows and rows whose elements lie apart. Included once per
 * element size by apart.c, with ELEMENT, an unsigned type of that size. Where rows lie next to each other, squares of
 * N x N elements go through registers: N = 16 bytes / size.
 *
 * Interleaving the first half of the vectors of a square with the second half, log2(N) times, turns it over. */

#define N__(name, size) name##_##size
#define N_(name, size)  N__(name, size)
#define S(name)         N_(name, SIZE)
#define N               (16 / SIZE)

typedef ELEMENT S(vec) __attribute__((vector_size(16)));

static inline S(vec) S(load)(const char *p) {
  S(vec) v;
  memcpy(&v, p, sizeof v);
  return v;
}

static inline void S(turn)(S(vec) square[N]) {
  UNROLLED for (int stage = 1; stage < N; stage *= 2) {
    S(vec) next[N];
    UNROLLED for (int i = 0; i < N / 2; i++) {
      next[2 * i] = S(low)(square[i], square[i + N / 2]);
      next[2 * i + 1] = S(high)(square[i], square[i + N / 2]);
    }
    UNROLLED for (int i = 0; i < N; i++) square[i] = next[i];
  }
}

/* N x N elements; the steps are those from one vector to the next. past: by stores that bypass the caches. */
static inline void S(copy_square)(char *to, int64_t to_step, const char *from, int64_t from_step, bool past) {
  S(vec) square[N];
  UNROLLED for (int i = 0; i < N; i++) square[i] = S(load)(from + i * from_step);
  S(turn)(square);
  UNROLLED for (int i = 0; i < N; i++) {
    if (past)
      store_past(to + i * to_step, &square[i]);
    else
      memcpy(to + i * to_step, &square[i], sizeof square[i]);
  }
}

static void S(copy_element)(char *to, const char *from) {
  ELEMENT e;
  memcpy(&e, from, sizeof e);
  memcpy(to, &e, sizeof e);
}

/* Element (row, c) of a contiguous row is at row*pitch + c*SIZE, of the others at row*inner + c*col. */
static void S(gather)(char *to, int64_t pitch, const char *from, int64_t inner, int64_t col, int64_t rows,
                      int64_t cols) {
  const int64_t squares = inner == SIZE ? rows / N * N : 0;
  for (int64_t c = 0; c < cols; c += N) {
    const int64_t n = cols - c < N ? cols - c : N;
    int64_t row = 0;
    for (int64_t i = c; i < c + n; i++)
      for (int64_t ahead = rows * inner; ahead < 2 * rows * inner; ahead += 64) /* the rows of the next tile */
        __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)(i * col + ahead)), 0, 2);
    for (; n == N && row < squares; row += N)
      S(copy_square)(to + row * pitch + c * SIZE, pitch, from + row * inner + c * col, col, false);
    for (; row < rows; row++)
      for (int64_t i = c; i < c + n; i++)
        S(copy_element)(to + row * pitch + i * SIZE, from + row * inner + i * col);
  }
}

/* past: whole lines of rows that lie next to each other go past the caches. Four squares in a row fill N lines; the
 * eight of 16-bit elements are too many to stay open until they are whole (docs/log/cpu.md). */
static void S(scatter)(char *to, int64_t inner, int64_t col, const char *from, int64_t pitch, int64_t rows,
                       int64_t cols, bool past) {
  const int64_t squares = inner == SIZE ? rows / N * N : 0;
  past = past && N <= 4 && (rows * SIZE | (int64_t)(uintptr_t)to | col) % 64 == 0;
  for (int64_t c = 0; c < cols; c += N) {
    const int64_t n = cols - c < N ? cols - c : N;
    int64_t row = 0;
    for (; past && n == N && row < squares; row += N)
      S(copy_square)(to + row * inner + c * col, col, from + row * pitch + c * SIZE, pitch, true);
    for (; n == N && row < squares; row += N)
      S(copy_square)(to + row * inner + c * col, col, from + row * pitch + c * SIZE, pitch, false);
    for (; row < rows; row++)
      for (int64_t i = c; i < c + n; i++)
        S(copy_element)(to + row * inner + i * col, from + row * pitch + i * SIZE);
  }
}

#undef N
#undef S
#undef N_
#undef N__
#undef ELEMENT
#undef SIZE
