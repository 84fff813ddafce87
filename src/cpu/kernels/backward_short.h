/* SPDX-License-Identifier: MIT
 *
 * The first sweep of short rows, up to a batch of them together: as in short_sums.h eight trees of additions run side
 * by side, and so do the divisions and roots. Rows that are out of range are measured again by K(add_row), but for the
 * usual ones of them: zeros, and of RMSNorm those with a NaN. */

enum { K(SHORT_BACK_BYTES) = 1024 }; /* a row of x at most: what the sweep reads of a batch stays in the L1 cache */

/* Rows at a constant distance. */
INLINE bool K(are_even)(const rms_rows *rows, int64_t inner) {
  return inner == 1 || (uint64_t)rows->outer == (uint64_t)inner * (uint64_t)rows->inner;
}

INLINE int64_t K(step_of)(const rms_rows *rows, int64_t inner) {
  return inner == 1 ? rows->outer : rows->inner;
}

static bool K(are_short_rows)(const rms_backward_job *job, const K(gains) * gains) {
  const rms_layout *lay = &job->lay;
  return lay->eps_place == RMS_EPS_INSIDE && lay->width * T_SIZE <= K(SHORT_BACK_BYTES) &&
         !K(is_mixed_back)(job, gains) && !K(are_raw)(gains) && !job->stats_in && !job->sums_in &&
         K(are_even)(&job->x, lay->inner) && K(are_even)(&job->dy, lay->inner) && K(are_even)(&job->dx, lay->inner);
}

/* The lanes of sum(u*x) of each row, added up to one vector, or, of rows of zeros, those of K(bound_of_u); of rows to
 * be left out, ones. The last two have a bit in `zeros` and in `out`. */
INLINE void K(fold_gradients)(VEC *sums, const K(gradient_rows) * rows, const K(gradient) * given, int count,
                              unsigned zeros, unsigned out, K(sweep) w) {
  const K(statistic_vectors) none = {V(set)(0), V(set)(0)};
  K(gradient) s = *given;
  for (int b = 0; b < count; b++) {
    s.x = K(x_source)(rows->x[b]);
    s.dy = rows->dy[b];
    if (zeros >> b & 1 && w.weighted) {
      const K(lanes) most = K(extent_of_u)(&s, false, true);
      sums[b] = V(add)(most.a, most.b);
    } else if (zeros >> b & 1) {
      sums[b] = V(first)(V(set)(K(bound_of_u)(&s, true)), 1, EO);
    } else if (out >> b & 1) {
      sums[b] = V(set)(1);
    } else {
      const K(sum_quad) q = K(add_gradient_portion)(&s, &s.x, 0, s.width, none, w);
      sums[b] = V(add)(V(add)(q.a.ux, q.c.ux), V(add)(q.b.ux, q.d.ux));
    }
  }
}

NOINLINE void K(fold_products)(VEC *sums, const K(gradient_rows) * rows, const K(gradient) * s, int count,
                               unsigned zeros, unsigned out) {
  if (T != REAL_TYPE && rows->before)
    K(fold_gradients)(sums, rows, s, count, zeros, out, (K(sweep)){.common = true, .before = true});
  else if (s->gain)
    K(fold_gradients)(sums, rows, s, count, zeros, out, (K(sweep)){.common = true, .weighted = true});
  else
    K(fold_gradients)(sums, rows, s, count, zeros, out, (K(sweep)){.common = true});
}

/* c of a batch, in a loop that the compiler makes vectors of; whether each row is in range. */
INLINE bool K(finish_gradients)(REAL *c, int *in_range, const REAL *r, const REAL *ux, REAL k) {
  int all = 1;
  for (int b = 0; b < K(BATCH); b++) {
    const REAL of = (ux[b] * ((r[b] * r[b]) * r[b])) / k, a = ABS(ux[b]), size = ABS(of);
    c[b] = of;
    in_range[b] =
        (r[b] >= R_LEAST) & (r[b] <= R_MOST) & (a >= SUM_LEAST) & (a <= SUM_MOST) & (size >= TINY) & (size <= 1 / TINY);
    all &= in_range[b];
  }
  return all;
}

/* Whether r is NaN where x or dy is not finite alone: the statistic of other rows is formed again. */
static bool K(are_spoilt)(const K(gradient_rows) * rows, int n) {
  for (int b = 0; b < n; b++)
    if (rows->r[b] != rows->r[b] && K(largest_x)(rows->x[b], rows->width) <= REAL_MAX &&
        K(largest_x)(rows->dy[b], rows->width) <= REAL_MAX)
      return false;
  return true;
}

/* Whether rows of which some are not in range need no scale all the same: where r is NaN, and usually where both sums
 * are zero, as dy = 0 makes them. A loop that the compiler makes vectors of. */
INLINE bool K(are_idle)(const K(gradient_rows) * rows, const int *in_range, const REAL *ux, const REAL *u,
                        int64_t dy_step, int n) {
  REAL other[K(BATCH)]; /* than dy = 0 */
  int all = 1, zeros = 0, spoilt = 0;
  for (int b = 0; b < K(BATCH); b++) {
    const REAL r = rows->r[b];
    const int none = r != r, zero = (r >= R_LEAST) & (r <= R_MOST) & (ux[b] == 0) & (u[b] == 0);
    other[b] = !zero;
    all &= in_range[b] | none | zero;
    zeros |= zero;
    spoilt |= none;
  }
  return all && (!zeros || K(are_zero_rows)(rows->dy[0], dy_step, other, n, rows->width)) &&
         (!spoilt || K(are_spoilt)(rows, n));
}

/* Of such a row. A NaN has no payload: see V(store_clean). */
INLINE void K(rest_row)(K(gradient_rows) * rows, int b, bool layer) {
  rows->a[b] = rows->b[b] = rows->c[b] = 0;
  if (rows->r[b] != rows->r[b]) rows->r[b] = (REAL)NAN;
  if (layer && rows->mean[b] != rows->mean[b]) rows->mean[b] = (REAL)NAN; /* RMSNorm has none */
}

/* Whether a row out of range that is not one of zeros needs no scale all the same: one with a NaN or an infinity, or
 * with dy = 0. Sets r and c then, as K(measure_gradient) would. sum: of the squares. */
NOINLINE bool K(is_plain)(const K(gradient) * s, REAL sum, REAL ux, REAL *r, REAL *c) {
  const bool known = *r >= R_LEAST && *r <= R_MOST && K(squares_in_range)(sum);
  *c = 0;
  if (known && ux == 0) return K(are_zeros)(&s->dy, 1, s->width, T_SIZE);
  if (sum == sum && *r == *r && !(known && ux != ux)) return false;
  if (sum == sum && K(largest_x)(s->x.x, s->width) <= REAL_MAX && K(largest_x)(s->dy, s->width) <= REAL_MAX)
    return false;
  if (known)
    *c = (REAL)NAN;
  else
    *r = (REAL)NAN;
  return true;
}

/* m->s is the first of n rows. */
INLINE void K(open_short_rows)(const rms_backward_job *job, K(gradient_rows) * rows, const K(measured) * m, int n) {
  const int64_t inner = job->lay.inner, x_step = K(step_of)(&job->x, inner), dy_step = K(step_of)(&job->dy, inner);
  const int64_t dx_step = K(step_of)(&job->dx, inner);
  for (int b = 0; b < n; b++) {
    rows->x[b] = m->s.x.x + b * x_step;
    rows->dy[b] = m->s.dy + b * dy_step;
    rows->dx[b] = m->s.dx + b * dx_step;
  }
}

/* m->s is row b from here on. */
INLINE void K(move_to_row)(K(measured) * m, const K(gradient_rows) * rows, int b) {
  m->s.x.x = rows->x[b];
  m->s.dy = rows->dy[b];
  m->s.dx = rows->dx[b];
}

/* number: that of the first row. */
NOINLINE void K(add_short_rows)(const rms_backward_job *job, K(gradient_rows) * rows, K(measured) * m, int64_t number,
                                int n, REAL zero_r) {
  const rms_layout *lay = &job->lay;
  const int64_t x_step = K(step_of)(&job->x, lay->inner);
  VEC folded[K(BATCH)];
  REAL sum[K(BATCH)], ux[K(BATCH)];
  int in_range[K(BATCH)];
  unsigned out = 0, zeros = 0;
  K(open_short_rows)(job, rows, m, n);
  if (job->rstd) {
    for (int b = 0; b < K(BATCH); b++)
      sum[b] = rows->r[b] = 1;
    for (int b = 0; b < n; b++) {
      rows->r[b] = ((const REAL *)job->rstd)[number + b * job->row_step];
      if (rows->r[b] == zero_r) sum[b] = 0, zeros |= 1u << b;
    }
  } else if (K(measure_batch)(rows->r, sum, m->s.x.x, x_step, n, lay->k, (REAL)lay->eps) != K(IN_RANGE)) {
    for (int b = 0; b < n; b++) {
      zeros |= (unsigned)(sum[b] == 0) << b;
      out |= (unsigned)!K(squares_in_range)(sum[b]) << b;
    }
  }
  if (zeros && !K(are_zero_rows)(m->s.x.x, x_step, sum, n, lay->width)) zeros = 0;
  K(fold_products)(folded, rows, &m->s, n, zeros, out);
  for (int b = n; b < K(BATCH); b++)
    folded[b] = V(set)(1);
  V(sum8)(ux, folded, EO);
  const bool all = K(finish_gradients)(rows->c, in_range, rows->r, ux, (REAL)lay->k);
  if (__builtin_expect(all && !(zeros | out), 1)) {
    rows->count = n;
    return;
  }
  if (!(zeros | out) && K(are_idle)(rows, in_range, ux, ux, K(step_of)(&job->dy, lay->inner), n)) {
    for (int b = 0; b < n; b++)
      if (!in_range[b]) K(rest_row)(rows, b, false);
    rows->count = n;
    return;
  }
  for (int b = 0; b < n; b++) {
    K(move_to_row)(m, rows, b);
    rows->count = b + 1;
    if (zeros >> b & 1 && K(is_u_in_range)(ux[b])) {
      rows->r[b] = zero_r;
      rows->c[b] = 0;
      continue;
    }
    if (in_range[b] && !((zeros | out) >> b & 1)) continue;
    if (!(zeros >> b & 1) && K(is_plain)(&m->s, sum[b], ux[b], &rows->r[b], &rows->c[b])) continue;
    rows->count = b;
    if (out >> b & 1)
      m->st = K(finish)(lay, K(settle)(lay, &m->s.x, (K(moment)){sum[b], 0, 0, 0}, false), (REAL)lay->k);
    else
      m->st = (K(statistic)){rows->r[b], 0, 0, (REAL)lay->k, 0, false};
    K(add_row)(job, rows, m, number + b * job->row_step, zero_r);
  }
}

/* ---- LayerNorm ---- */

/* The lanes of sum(u*h) and sum(u) of each row, each added up to one vector; of rows to be left out, which have a bit
 * in `out`, ones. */
INLINE void K(fold_layer_gradients)(VEC *ux, VEC *u, const K(gradient_rows) * rows, const K(gradient) * given,
                                    int count, unsigned out, K(sweep) w) {
  K(gradient) s = *given;
  for (int b = 0; b < count; b++) {
    ux[b] = u[b] = V(set)(1);
    if (out >> b & 1) continue;
    const K(statistic_vectors) st = {V(set)(rows->r[b]), V(set)(rows->mean[b])};
    s.x = K(x_source)(rows->x[b]);
    s.dy = rows->dy[b];
    const K(sum_quad) q = K(add_gradient_portion)(&s, &s.x, 0, s.width, st, w);
    ux[b] = V(add)(V(add)(q.a.ux, q.c.ux), V(add)(q.b.ux, q.d.ux));
    u[b] = V(add)(V(add)(q.a.u, q.c.u), V(add)(q.b.u, q.d.u));
  }
  for (int b = count; b < K(BATCH); b++)
    ux[b] = u[b] = V(set)(1);
}

NOINLINE void K(fold_layer_products)(VEC *ux, VEC *u, const K(gradient_rows) * rows, const K(gradient) * s, int count,
                                     unsigned out) {
  if (s->gain)
    K(fold_layer_gradients)(ux, u, rows, s, count, out, (K(sweep)){.layer = true, .common = true, .weighted = true});
  else
    K(fold_layer_gradients)(ux, u, rows, s, count, out, (K(sweep)){.layer = true, .common = true});
}

/* a and b of a batch; whether each row is in range. */
INLINE bool K(finish_layer_gradients)(K(gradient_rows) * rows, int *in_range, const REAL *ux, const REAL *u, REAL k) {
  int all = 1;
  for (int b = 0; b < K(BATCH); b++) {
    const REAL r = rows->r[b], mean = rows->mean[b], size = ABS(ux[b]), other = ABS(u[b]);
    rows->a[b] = ux[b] / k;
    rows->b[b] = u[b] / k;
    rows->c[b] = 0;
    in_range[b] = (r >= R_LEAST) & (r <= R_MOST) & (mean == mean) & ((size >= SUM_LEAST) | (other >= SUM_LEAST)) &
                  (size <= SUM_MOST) & (other <= SUM_MOST);
    all &= in_range[b];
  }
  return all;
}

/* The statistics of n rows. Returns a bit for each row whose statistic must be formed again. */
INLINE unsigned K(layer_statistics)(const rms_backward_job *job, K(gradient_rows) * rows, REAL *sum, const char *x,
                                    int64_t number, int n, REAL zero_r) {
  const rms_layout *lay = &job->lay;
  const int64_t x_step = K(step_of)(&job->x, lay->inner);
  unsigned out = 0;
  if (job->rstd) {
    for (int b = 0; b < K(BATCH); b++) {
      rows->r[b] = b < n ? ((const REAL *)job->rstd)[number + b * job->row_step] : 1;
      rows->mean[b] = b < n && job->mean ? ((const REAL *)job->mean)[number + b * job->row_step] : 0;
    }
    return 0;
  }
  if (K(measure_layer_batch)(rows->r, rows->mean, sum, x, x_step, n, lay->k, (REAL)lay->eps) == K(IN_RANGE)) return 0;
  const bool zeros = K(are_zero_rows)(x, x_step, sum, n, lay->k);
  for (int b = 0; b < n; b++)
    if (zeros && sum[b] == 0)
      rows->r[b] = zero_r;
    else
      out |= (unsigned)!K(squares_in_range)(sum[b]) << b;
  return out;
}

/* As K(add_short_rows). */
NOINLINE void K(add_short_layer_rows)(const rms_backward_job *job, K(gradient_rows) * rows, K(measured) * m,
                                      int64_t number, int n, REAL zero_r) {
  const rms_layout *lay = &job->lay;
  VEC folded_ux[K(BATCH)], folded_u[K(BATCH)];
  REAL sum[K(BATCH)], ux[K(BATCH)], u[K(BATCH)];
  int in_range[K(BATCH)];
  K(open_short_rows)(job, rows, m, n);
  const unsigned out = K(layer_statistics)(job, rows, sum, m->s.x.x, number, n, zero_r);
  K(fold_layer_products)(folded_ux, folded_u, rows, &m->s, n, out);
  V(sum8)(ux, folded_ux, EO);
  V(sum8)(u, folded_u, EO);
  if (__builtin_expect(K(finish_layer_gradients)(rows, in_range, ux, u, (REAL)lay->k) && !out, 1)) {
    rows->count = n;
    return;
  }
  if (!out && K(are_idle)(rows, in_range, ux, u, K(step_of)(&job->dy, lay->inner), n)) {
    for (int b = 0; b < n; b++)
      if (!in_range[b]) K(rest_row)(rows, b, true);
    rows->count = n;
    return;
  }
  for (int b = 0; b < n; b++) {
    const K(statistic) st = {rows->r[b], rows->mean[b], 0, (REAL)lay->k, 0, false};
    const bool known = K(r_in_range)(st) && !(out >> b & 1);
    K(move_to_row)(m, rows, b);
    rows->count = b + 1;
    if (known && (in_range[b] || (ux[b] == 0 && u[b] == 0 && K(are_zeros)(&m->s.dy, 1, lay->width, T_SIZE)))) continue;
    if (out >> b & 1 && sum[b] != sum[b] && !(K(largest_x)(m->s.x.x, lay->width) <= REAL_MAX)) {
      rows->r[b] = (REAL)NAN;
      K(rest_row)(rows, b, true);
      continue;
    }
    rows->count = b;
    m->st = st;
    if (out >> b & 1)
      m->st = K(finish)(lay, K(settle)(lay, &m->s.x, (K(moment)){sum[b], rows->mean[b], 0, 0}, false), (REAL)lay->k);
    K(add_row)(job, rows, m, number + b * job->row_step, zero_r);
  }
}
