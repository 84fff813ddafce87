/* SPDX-License-Identifier: MIT
 *
 * A call of a single row of RMSNorm, full or partial, with a weight or without: straight
 * from the arguments, without a job. */

/* What is known at the call: a weight, in f32 beside other data; rounding before it. */
typedef struct {
  bool weighted, wide, before;
  bool together; /* see K(TOGETHER); the only one that need not be a constant */
} K(row_form);

INLINE VEC K(row_value)(VEC v, const char *weight, VEC r, int64_t j, int n, K(row_form) form) {
  VEC h = V(mul)(v, r);
  if (form.before) h = V(round_clean)(h, T);
  return form.weighted ? V(mul)(h, K(load)(weight, j, n, form.wide)) : h;
}

INLINE void K(row_put)(char *y, VEC value, int64_t j, int n, K(row_form) form) {
  /* an f32 weight may hold a NaN with a payload: see V(store_clean) */
  if (form.wide && n == LANES)
    V(store)(y + j * T_SIZE, value, T, EO);
  else
    K(put_clean)(y, j, n, value, false);
}

INLINE void K(row_store)(char *y, VEC v, const char *weight, VEC r, int64_t j, int n, K(row_form) form) {
  K(row_put)(y, K(row_value)(v, weight, r, j, n, form), j, n, form);
}

/* The four vectors of a quad. */
INLINE void K(row_quad)(char *y, K(lanes) v, const char *weight, VEC r, int64_t j, K(row_form) form) {
  const int64_t b = j + LANES, c = j + 2 * LANES, d = j + 3 * LANES;
  if (!form.together && !K(QUADS)) {
    K(row_store)(y, v.a, weight, r, j, LANES, form);
    K(row_store)(y, v.b, weight, r, b, LANES, form);
    K(row_store)(y, v.c, weight, r, c, LANES, form);
    K(row_store)(y, v.d, weight, r, d, LANES, form);
    return;
  }
  v = (K(lanes)){K(row_value)(v.a, weight, r, j, LANES, form), K(row_value)(v.b, weight, r, b, LANES, form),
                 K(row_value)(v.c, weight, r, c, LANES, form), K(row_value)(v.d, weight, r, d, LANES, form)};
  if (K(QUADS)) {
    K(put_quad)(y, j, v, false);
    return;
  }
  K(row_put)(y, v.a, j, LANES, form);
  K(row_put)(y, v.b, b, LANES, form);
  K(row_put)(y, v.c, c, LANES, form);
  K(row_put)(y, v.d, d, LANES, form);
}

INLINE void K(row_vector)(char *y, const char *x, const char *weight, VEC r, int64_t j, int n, K(row_form) form) {
  K(row_store)(y, K(load)(x, j, n, false), weight, r, j, n, form);
}

/* All whole quads from element j on; returns how far they reach. The loads of x come before the stores, and the first
 * one of a quad before those of the quad before it: see K(common_quad). */
INLINE int64_t K(row_quads)(char *y, const char *x, const char *weight, VEC r, int64_t j, int64_t width,
                            K(row_form) form) {
  form.together = K(TOGETHER) && (K(is_close_behind)(y, x) || (form.weighted && K(is_close_behind)(y, weight)));
  VEC first = r;
  if (j + K(QUAD) <= width) first = K(load)(x, j, LANES, false);
  for (; j + K(QUAD) <= width; j += K(QUAD)) {
    const K(lanes) v = {first, K(load)(x, j + LANES, LANES, false), K(load)(x, j + 2 * LANES, LANES, false),
                        K(load)(x, j + 3 * LANES, LANES, false)};
    if (j + 2 * K(QUAD) <= width) first = K(load)(x, j + K(QUAD), LANES, false);
    K(row_quad)(y, v, weight, r, j, form);
  }
  return j;
}

INLINE void K(row_loop)(char *y, const char *x, const char *weight, VEC r, int64_t width, K(row_form) form) {
  int64_t j = K(to_line)(y, width);
  if (j > 0) K(row_vector)(y, x, weight, r, 0, (int)j, form);
  j = K(row_quads)(y, x, weight, r, j, width, form);
  for (; j + LANES <= width; j += LANES)
    K(row_vector)(y, x, weight, r, j, LANES, form);
  if (j < width) K(row_vector)(y, x, weight, r, j, (int)(width - j), form);
}

NOINLINE void K(row_before)(char *y, const char *x, const char *weight, REAL r, int64_t width, bool wide) {
  K(row_loop)(y, x, weight, V(set)(r), width, (K(row_form)){.weighted = true, .wide = wide, .before = true});
}

NOINLINE void K(row_any)(char *y, const char *x, const char *weight, REAL r, int64_t width, bool wide) {
  if (!weight)
    K(row_loop)(y, x, weight, V(set)(r), width, (K(row_form)){false});
  else if (T != RMS_F32 && wide)
    K(row_loop)(y, x, weight, V(set)(r), width, (K(row_form)){.weighted = true, .wide = true});
  else
    K(row_loop)(y, x, weight, V(set)(r), width, (K(row_form)){.weighted = true});
}

/* The sum of squares of whole quads, at most a portion: without the room on the stack that the rest of a row takes. */
INLINE REAL K(row_squares)(const char *x, int64_t k) {
  K(source) s = K(x_source)(x);
  VEC zero = V(set)(0);
  K(lanes) acc = {zero, zero, zero, zero};
  for (int64_t j = 0; j < k; j += K(QUAD))
    acc = K(add_quad)(acc, &s, j, K(QUAD), zero, (K(summand)){.squares = true});
  return K(sum_lanes)(acc);
}

/* False, and nothing written: the sum of squares is out of range, or may be. */
KERNEL bool K(rms_row)(char *y, const char *x, const char *weight, int64_t width, int64_t k, double eps,
                       bool weight_is_f32, bool before) {
  if (__builtin_expect(K(starts_faint)(x), 0)) return false;
  REAL sum = k % K(QUAD) == 0 && k <= K(PORTION) ? K(row_squares)(x, k) : K(squares_x)(x, k);
  if (__builtin_expect(!K(squares_in_range)(sum), 0)) return false;
  REAL r = 1 / SQRT(sum / (REAL)k + (REAL)eps);
  if (T != REAL_TYPE && before && weight)
    K(row_before)(y, x, weight, r, width, weight_is_f32);
  else if (width % K(QUAD) == 0 && weight && (T == RMS_F32 || !weight_is_f32))
    (void)K(row_quads)(y, x, weight, V(set)(r), 0, width, (K(row_form)){.weighted = true});
  else
    K(row_any)(y, x, weight, r, width, weight_is_f32);
  return true;
}
