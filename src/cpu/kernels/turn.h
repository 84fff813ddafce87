/* SPDX-License-Identifier: MIT
 *
 * Copies `rows` rows of `cols` elements between contiguous rows and rows whose elements lie apart. Included by apart.h
 * once for each SIZE of an element, with ELEMENT, an unsigned type of that size, and LARGE, the bytes of the registers
 * for large squares. Where rows lie next to each other, squares go through registers. The last ones of the rows and of
 * the columns reach back over those before them, where these are no whole number of squares. */

#define S__(name, size, bytes, isa) name##_##size##_##bytes##_##isa
#define S_(name, size, bytes, isa)  S__(name, size, bytes, isa)
#define S(name)                     S_(name, SIZE, BYTES, RMS_ISA)
#define BYTES                       16
#include "square.h"
#if LARGE > 16
#undef BYTES
#define BYTES LARGE
#include "square.h"
#endif
#undef BYTES
#undef S
#define SMALL_SQUARE S_(copy_square, SIZE, 16, RMS_ISA)
#define LARGE_SQUARE S_(copy_square, SIZE, LARGE, RMS_ISA)
#define S(name)      S_(name, SIZE, rows, RMS_ISA)

enum { S(SMALL) = 16 / SIZE, S(LARGE_SIDE) = LARGE / SIZE };

/* The side of the largest squares that there is room for; 1: of none. */
static int64_t S(side)(int64_t inner, int64_t rows, int64_t cols) {
  const int64_t least = rows < cols ? rows : cols;
  if (inner != SIZE || least < S(SMALL)) return 1;
  return least < S(LARGE_SIDE) ? S(SMALL) : S(LARGE_SIDE);
}

/* Where a square begins that would begin at i and must end at n. */
static inline int64_t S(begin)(int64_t i, int64_t side, int64_t n) {
  return i + side <= n ? i : n - side;
}

static void S(copy_element)(char *to, const char *from) {
  ELEMENT e;
  memcpy(&e, from, sizeof e);
  memcpy(to, &e, sizeof e);
}

/* Those columns of the rows of the next tile. */
static void S(fetch)(const char *from, int64_t inner, int64_t col, int64_t rows, int64_t c, int64_t end) {
  for (; c < end; c++)
    for (int64_t ahead = rows * inner; ahead < 2 * rows * inner; ahead += 64)
      vec_prefetch((const void *)((uintptr_t)from + (uintptr_t)(c * col + ahead)));
}

/* Rows that do not lie next to each other, and those too few for a square. */
static void S(gather_each)(char *to, int64_t pitch, const char *from, int64_t inner, int64_t col, int64_t rows,
                           int64_t cols) {
  for (int64_t c = 0; c < cols; c++) {
    if (inner == SIZE) S(fetch)(from, inner, col, rows, c, c + 1);
    for (int64_t row = 0; row < rows; row++)
      S(copy_element)(to + row * pitch + c * SIZE, from + row * inner + c * col);
  }
}

static void S(scatter_each)(char *to, int64_t inner, int64_t col, const char *from, int64_t pitch, int64_t rows,
                            int64_t cols) {
  for (int64_t c = 0; c < cols; c++)
    for (int64_t row = 0; row < rows; row++)
      S(copy_element)(to + row * inner + c * col, from + row * pitch + c * SIZE);
}

/* Element (row, c) of a contiguous row is at row*pitch + c*SIZE, of the others at row*inner + c*col. */
static void S(gather)(char *to, int64_t pitch, const char *from, int64_t inner, int64_t col, int64_t rows,
                      int64_t cols) {
  const int64_t side = S(side)(inner, rows, cols);
  if (side == 1) {
    S(gather_each)(to, pitch, from, inner, col, rows, cols);
    return;
  }
  for (int64_t i = 0; i < cols; i += side) {
    const int64_t c = S(begin)(i, side, cols);
    S(fetch)(from, inner, col, rows, i, c + side);
    for (int64_t j = 0; j < rows; j += side) {
      const int64_t row = S(begin)(j, side, rows);
      char *at = to + row * pitch + c * SIZE;
      const char *x = from + row * inner + c * col;
      if (side == S(LARGE_SIDE))
        LARGE_SQUARE(at, pitch, x, col, false);
      else
        SMALL_SQUARE(at, pitch, x, col, false);
    }
  }
}

/* past: whole lines of rows that lie next to each other go past the caches. A large square writes them whole, four
 * small ones in a row fill as many; the eight of 16-bit elements are too many to stay open until they are
 * (docs/log/cpu.md). Columns that are left over from whole squares are scattered apart, so that no line goes there
 * twice. */
static void S(scatter)(char *to, int64_t inner, int64_t col, const char *from, int64_t pitch, int64_t rows,
                       int64_t cols, bool past) {
  const int64_t side = S(side)(inner, rows, cols);
  if (side == 1) {
    S(scatter_each)(to, inner, col, from, pitch, rows, cols);
    return;
  }
  past = past && SIZE >= 4 && (rows * SIZE | (int64_t)(uintptr_t)to | col) % 64 == 0;
  const int64_t whole = past ? cols / side * side : cols;
  if (whole < cols)
    S(scatter)(to + whole * col, inner, col, from + whole * SIZE, pitch, rows, cols - whole, side > S(SMALL));
  for (int64_t i = 0; i < whole; i += side) {
    const int64_t c = S(begin)(i, side, whole);
    for (int64_t j = 0; j < rows; j += side) {
      const int64_t row = S(begin)(j, side, rows);
      char *y = to + row * inner + c * col;
      const char *at = from + row * pitch + c * SIZE;
      if (side == S(LARGE_SIDE) && past)
        LARGE_SQUARE(y, col, at, pitch, true);
      else if (side == S(LARGE_SIDE))
        LARGE_SQUARE(y, col, at, pitch, false);
      else if (past)
        SMALL_SQUARE(y, col, at, pitch, true);
      else
        SMALL_SQUARE(y, col, at, pitch, false);
    }
  }
}

#undef S
#undef S_
#undef S__
#undef SMALL_SQUARE
#undef LARGE_SQUARE
#undef ELEMENT
#undef SIZE
#undef LARGE
