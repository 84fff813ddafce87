/* SPDX-License-Identifier: MIT
 *
 * The sums of up to eight short rows at a constant distance: eight trees of additions run side by side in vectors, and
 * so do the divisions and roots. The same sums as those of statistic.h. */

/* What is added up of k elements, in one vector: the rest of the tree is V(sum8). */
INLINE VEC K(fold_lanes)(K(lanes) acc) {
  return V(add)(V(add)(acc.a, acc.c), V(add)(acc.b, acc.d));
}

INLINE VEC K(fold_source)(const K(source) * s, int64_t k, VEC mean, K(summand) what) {
  VEC zero = V(set)(0);
  K(lanes) acc = {zero, zero, zero, zero};
  int64_t j = what.as.scaled ? 0 : K(to_line)(s->x, k);
  if (j > 0) acc.d = K(add_lead)(acc.d, s->x, j, mean, what);
  for (; j + K(QUAD) <= k; j += K(QUAD))
    acc = K(add_quad)(acc, s, j, K(QUAD), mean, what);
  if (j < k) acc = K(add_tail)(acc, s, j, k - j, mean, what);
  return K(fold_lanes)(acc);
}

INLINE VEC K(fold_squares)(const char *x, int64_t k) {
  const K(source) s = K(x_source)(x);
  return K(fold_source)(&s, k, V(set)(0), (K(summand)){.squares = true});
}

/* The same of x times 2^e. */
NOINLINE VEC K(fold_scaled)(const char *x, int64_t k, int e) {
  K(source) s = K(x_source)(x);
  K(set_scale)(&s, e);
  return K(fold_source)(&s, k, V(set)(0), (K(summand)){.squares = true, .as.scaled = true});
}

/* One vector of a row of `whole` vectors and `rest` elements. */
INLINE VEC K(square_vector)(VEC acc, const char *x, int i, int whole, int rest) {
  if (i > whole || (i == whole && rest == 0)) return acc;
  VEC v = i < whole ? K(load)(x, i * LANES, LANES, false) : V(load_n)(x + i * LANES * T_SIZE, rest, T, EO);
  return V(fma)(v, v, acc);
}

/* The same for k = whole*LANES + rest, `whole` being a constant of at most 8: no loop. */
INLINE VEC K(fold_short)(const char *x, int whole, int rest) {
  VEC zero = V(set)(0);
  K(lanes) acc = {zero, zero, zero, zero};
  acc.a = K(square_vector)(acc.a, x, 0, whole, rest);
  acc.b = K(square_vector)(acc.b, x, 1, whole, rest);
  acc.c = K(square_vector)(acc.c, x, 2, whole, rest);
  acc.d = K(square_vector)(acc.d, x, 3, whole, rest);
  acc.a = K(square_vector)(acc.a, x, 4, whole, rest);
  acc.b = K(square_vector)(acc.b, x, 5, whole, rest);
  acc.c = K(square_vector)(acc.c, x, 6, whole, rest);
  acc.d = K(square_vector)(acc.d, x, 7, whole, rest);
  return K(fold_lanes)(acc);
}

INLINE void K(fold_each)(VEC *sums, const char *x, int64_t step, int count, int64_t k, int whole) {
  int rest = (int)(k - whole * LANES);
  for (int b = 0; b < count; b++, x += step)
    sums[b] = K(fold_short)(x, whole, rest);
}

NOINLINE void K(fold_rows)(VEC *sums, const char *x, int64_t step, int count, int64_t k) {
  if (k > 2 * K(QUAD) || (T == REAL_TYPE && k > K(QUAD) && step % 64 != 0)) {
    for (int b = 0; b < count; b++, x += step)
      sums[b] = K(fold_squares)(x, k);
    return;
  }
  switch ((int)(k / LANES)) {
  case 0:
    K(fold_each)(sums, x, step, count, k, 0);
    break;
  case 1:
    K(fold_each)(sums, x, step, count, k, 1);
    break;
  case 2:
    K(fold_each)(sums, x, step, count, k, 2);
    break;
  case 3:
    K(fold_each)(sums, x, step, count, k, 3);
    break;
  case 4:
    K(fold_each)(sums, x, step, count, k, 4);
    break;
  case 5:
    K(fold_each)(sums, x, step, count, k, 5);
    break;
  case 6:
    K(fold_each)(sums, x, step, count, k, 6);
    break;
  case 7:
    K(fold_each)(sums, x, step, count, k, 7);
    break;
  default:
    K(fold_each)(sums, x, step, count, k, 8);
    break;
  }
}

NOINLINE void K(fold_centred)(VEC *sums, const char *x, int64_t step, int count, int64_t k, const REAL *mean) {
  for (int b = 0; b < count; b++, x += step) {
    const K(source) s = K(x_source)(x);
    sums[b] = K(fold_source)(&s, k, V(set)(mean[b]), (K(summand)){.squares = true, .centred = true});
  }
}

/* Whether some of the rows may be faint, by the first and the last: a look at each would take longer than their sums.
 */
INLINE bool K(may_have_faint)(const char *x, int count, int64_t step) {
  return K(starts_faint)(x) || K(starts_faint)(x + (count - 1) * step);
}

/* The squares, or those about the mean, of rows of which some may be faint. */
NOINLINE void K(fold_faint)(VEC *sums, const char *x, int64_t step, int count, int64_t k, const REAL *mean) {
  for (int b = 0; b < count; b++, x += step)
    if (K(starts_faint)(x) && K(makes_faint)(K(largest_x)(x, k), k))
      sums[b] = V(first)(V(set)(FAINT_SUM), 1, EO);
    else if (mean)
      K(fold_centred)(&sums[b], x, 0, 1, k, &mean[b]);
    else
      K(fold_rows)(&sums[b], x, step, 1, k);
}

/* What is to be done about the sums of a batch: nothing; those that are zero must be rows of zeros, whose r is right;
 * those out of range must be looked at one by one. */
typedef enum { K(IN_RANGE), K(ZEROS), K(OTHERS) } K(batch_state);

/* r of a whole batch, in loops that the compiler makes vectors of: over arrays of its own, which no other pointer can
 * reach. Without eps nothing must be divided by zero: rows of zeros stand as if they were in range until they are
 * looked at. */
INLINE K(batch_state) K(finish_batch)(REAL *to, const REAL *from, REAL k, REAL eps) {
  const REAL least = eps > 0 ? 0 : TINY;
  REAL sum[K(BATCH)], r[K(BATCH)];
  int in_range = 1, calm = eps > 0;
  memcpy(sum, from, sizeof sum);
  for (int b = 0; b < K(BATCH); b++)
    r[b] = (sum[b] > least ? sum[b] : least) / k + eps;
  for (int b = 0; b < K(BATCH); b++)
    r[b] = 1 / SQRT(r[b]);
  for (int b = 0; b < K(BATCH); b++) {
    const int in = (sum[b] >= TINY) & (sum[b] <= REAL_MAX);
    in_range &= in;
    calm &= in | (sum[b] == 0);
  }
  memcpy(to, r, sizeof r);
  return in_range ? K(IN_RANGE) : calm ? K(ZEROS) : K(OTHERS);
}

NOINLINE K(batch_state)
    K(measure_batch)(REAL *r, REAL *sum, const char *x, int64_t step, int count, int64_t k, REAL eps) {
  VEC squares[K(BATCH)];
  if (__builtin_expect(K(may_have_faint)(x, count, step), 0))
    K(fold_faint)(squares, x, step, count, k, NULL);
  else
    K(fold_rows)(squares, x, step, count, k);
  for (int b = count; b < K(BATCH); b++)
    squares[b] = V(set)(1);
  V(sum8)(sum, squares, EO);
  return K(finish_batch)(r, sum, (REAL)k, eps);
}

/* ---- LayerNorm ---- */

NOINLINE void K(fold_elements)(VEC *sums, const char *x, int64_t step, int count, int64_t k) {
  for (int b = 0; b < count; b++, x += step) {
    const K(source) s = K(x_source)(x);
    sums[b] = K(fold_source)(&s, k, V(set)(0), (K(summand)){false});
  }
}

NOINLINE K(batch_state) K(measure_layer_batch)(REAL *r, REAL *mean, REAL *sum, const char *x, int64_t step, int count,
                                               int64_t k, REAL eps) {
  VEC sums[K(BATCH)];
  K(fold_elements)(sums, x, step, count, k);
  for (int b = count; b < K(BATCH); b++)
    sums[b] = V(set)(1);
  V(sum8)(mean, sums, EO);
  for (int b = 0; b < K(BATCH); b++)
    mean[b] = mean[b] / (REAL)k;
  if (__builtin_expect(K(may_have_faint)(x, count, step), 0))
    K(fold_faint)(sums, x, step, count, k, mean);
  else
    K(fold_centred)(sums, x, step, count, k, mean);
  V(sum8)(sum, sums, EO);
  return K(finish_batch)(r, sum, (REAL)k, eps);
}

/* Whether a sum of squares is zero: then it is +0. Integers compare quicker. */
INLINE bool K(is_no_bit_set)(REAL sum) {
  return T_SIZE == 8 ? rms_bits_f64((double)sum) == 0 : rms_bits_f32((float)sum) == 0;
}

/* Whether all rows whose sum is zero are rows of zeros: usually so. They are listed first, because which they are
 * cannot be predicted. n: elements of a row that are looked at. */
NOINLINE bool K(are_zero_rows)(const char *x, int64_t x_step, const REAL *sum, int count, int64_t n) {
  const char *rows[K(BATCH)];
  int zeros = 0;
  for (int b = 0; b < count; b++) {
    rows[zeros] = x + b * x_step;
    zeros += K(is_no_bit_set)(sum[b]);
  }
  return K(are_zeros)(rows, zeros, n, T_SIZE);
}
