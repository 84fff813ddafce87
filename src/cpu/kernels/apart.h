/* SPDX-License-Identifier: MIT
 *
 * Rows whose elements lie apart, gathered into contiguous ones and scattered again: core/apart.c. */

/* Squares stay in registers only if their loops are unrolled, which -O2 alone does not do. */
#define UNROLLED _Pragma("GCC unroll 16")

/* Elements of a and b, by their places in both together. */
#if defined(__clang__)
#define TURNS(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TURNS(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif

/* The elements of the lower, or upper, halves of two vectors in turn. */
#define LOWER_2  0, 2
#define UPPER_2  1, 3
#define LOWER_4  0, 4, 1, 5
#define UPPER_4  2, 6, 3, 7
#define LOWER_8  0, 8, 1, 9, 2, 10, 3, 11
#define UPPER_8  4, 12, 5, 13, 6, 14, 7, 15
#define LOWER_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define UPPER_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

#define SIZE    2
#define ELEMENT uint16_t
#define LARGE   VEC_SQUARE_16BIT
#include "turn.h"
#define SIZE    4
#define ELEMENT uint32_t
#define LARGE   VEC_SQUARE
#include "turn.h"
#define SIZE    8
#define ELEMENT uint64_t
#define LARGE   VEC_SQUARE
#include "turn.h"

static void K_(rms_gather, RMS_ISA)(char *to, int64_t pitch, const char *from, const rms_rows *t, int64_t size,
                                    int64_t rows, int64_t cols) {
  (size == 2   ? K_(gather_2_rows, RMS_ISA)
   : size == 4 ? K_(gather_4_rows, RMS_ISA)
               : K_(gather_8_rows, RMS_ISA))(to, pitch, from, t->inner, t->col, rows, cols);
}

static void K_(rms_scatter, RMS_ISA)(char *to, const rms_rows *t, int64_t size, const char *from, int64_t pitch,
                                     int64_t rows, int64_t cols, bool past) {
  (size == 2   ? K_(scatter_2_rows, RMS_ISA)
   : size == 4 ? K_(scatter_4_rows, RMS_ISA)
               : K_(scatter_8_rows, RMS_ISA))(to, t->inner, t->col, from, pitch, rows, cols, past);
}
