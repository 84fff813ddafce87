/* SPDX-License-Identifier: MIT
 *
 * A call of a single row of RMSNorm with one rounding after the weight and nothing else: straight from the arguments,
 * without a job. */

INLINE void K(row_vector)(char *y, const char *x, const char *weight, VEC r, int64_t j, int n, bool weighted,
                          bool wide) {
  VEC h = V(mul)(K(load)(x, j, n, false), r);
  if (weighted) h = V(mul)(h, K(load)(weight, j, n, wide));
  /* an f32 weight may hold a NaN with a payload: see V(store_clean) */
  if (wide && n == LANES)
    V(store)(y + j * T_SIZE, h, T, EO);
  else
    K(put_clean)(y, j, n, h, false);
}

INLINE void K(row_quad)(char *y, const char *x, const char *weight, VEC r, int64_t j, bool weighted, bool wide) {
  K(row_vector)(y, x, weight, r, j, LANES, weighted, wide);
  K(row_vector)(y, x, weight, r, j + LANES, LANES, weighted, wide);
  K(row_vector)(y, x, weight, r, j + 2 * LANES, LANES, weighted, wide);
  K(row_vector)(y, x, weight, r, j + 3 * LANES, LANES, weighted, wide);
}

INLINE void K(row_loop)(char *y, const char *x, const char *weight, VEC r, int64_t width, bool weighted, bool wide) {
  int64_t j = 0;
  for (; j + K(QUAD) <= width; j += K(QUAD))
    K(row_quad)(y, x, weight, r, j, weighted, wide);
  for (; j + LANES <= width; j += LANES)
    K(row_vector)(y, x, weight, r, j, LANES, weighted, wide);
  if (j < width) K(row_vector)(y, x, weight, r, j, (int)(width - j), weighted, wide);
}

NOINLINE void K(row_any)(char *y, const char *x, const char *weight, REAL r, int64_t width, bool wide) {
  if (!weight)
    K(row_loop)(y, x, weight, V(set)(r), width, false, false);
  else if (T != RMS_F32 && wide)
    K(row_loop)(y, x, weight, V(set)(r), width, true, true);
  else
    K(row_loop)(y, x, weight, V(set)(r), width, true, false);
}

/* The sum of squares of whole quads, at most a stretch: without the room on the stack that the rest of a row takes. */
INLINE REAL K(row_squares)(const char *x, int64_t width) {
  K(source) s = K(x_source)(x);
  VEC zero = V(set)(0);
  K(lanes) acc = {zero, zero, zero, zero};
  for (int64_t j = 0; j < width; j += K(QUAD))
    acc = K(add_quad)(acc, &s, j, K(QUAD), zero, (K(summand)){.squares = true});
  return K(sum_lanes)(acc);
}

/* False, and nothing written: the sum of squares is out of range. */
static bool K(rms_row)(char *y, const char *x, const char *weight, int64_t width, double eps, bool weight_is_f32) {
  bool whole = width % K(QUAD) == 0 && width <= K(STRETCH);
  REAL sum = whole ? K(row_squares)(x, width) : K(squares_x)(x, width);
  if (__builtin_expect(!K(squares_in_range)(sum), 0)) return false;
  REAL r = 1 / SQRT(sum / (REAL)width + (REAL)eps);
  if (whole && weight && (T == RMS_F32 || !weight_is_f32)) {
    VEC each = V(set)(r);
    for (int64_t j = 0; j < width; j += K(QUAD))
      K(row_quad)(y, x, weight, each, j, true, false);
  } else {
    K(row_any)(y, x, weight, r, width, weight_is_f32);
  }
  return true;
}
