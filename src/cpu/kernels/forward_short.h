/* SPDX-License-Identifier: MIT
 *
 * Short rows (QK norm) of RMSNorm with one rounding after the weight and nothing else, in batches: eight trees of
 * additions run side by side in vectors, so do the divisions and roots, and while those are under way the batch before
 * is written. The same arithmetic as forward_segment.h in another order of work. */

enum { K(SHORT_BYTES) = 2048, K(SHORT_STREAM_BYTES) = 256 };

/* Rows at a constant distance: `count` of those from segment `first` on. */
typedef struct {
  const char *x;
  char *y;
  const REAL *gain; /* in lane order */
  int64_t x_step, y_step, gain_step, first;
  int count;
  unsigned scaled; /* a bit for each row that must be scaled: they go another way */
  REAL sum[K(BATCH)], r[K(BATCH)];
  K(moment) moment[K(BATCH)]; /* of the rows that must be scaled */
} K(batch);

/* The squares of k elements, added up to one vector: the rest of the tree is V(sum8). */
INLINE VEC K(fold_squares)(const char *x, int64_t k) {
  VEC zero = V(set)(0);
  K(lanes) acc = {zero, zero, zero, zero};
  K(source) s = K(x_source)(x);
  int64_t j = 0;
  for (; j + K(QUAD) <= k; j += K(QUAD))
    acc = K(add_quad)(acc, &s, j, K(QUAD), zero, (K(summand)){.squares = true});
  if (j < k) acc = K(add_tail)(acc, &s, j, k - j, zero, (K(summand)){.squares = true});
  return V(add)(V(add)(acc.a, acc.c), V(add)(acc.b, acc.d));
}

NOINLINE void K(fold_any)(VEC *sum, const char *x, int64_t k) {
  *sum = K(fold_squares)(x, k);
}

/* r of a whole batch, in loops that the compiler makes vectors of. Rows whose sum is out of range are looked at
 * again; until then they stand as if they were in range, so that nothing is divided by zero. */
INLINE bool K(finish_batch)(REAL *r, const REAL *sum, REAL k, REAL eps) {
  int in_range = 1;
  for (int b = 0; b < K(BATCH); b++) {
    REAL safe = sum[b] > TINY ? sum[b] : TINY;
    r[b] = 1 / SQRT(safe / k + eps);
  }
  for (int b = 0; b < K(BATCH); b++)
    in_range &= (sum[b] >= TINY) & (sum[b] <= REAL_MAX);
  return in_range;
}

/* The usual sizes of a head, one and two quads, run without loops and calls. */
NOINLINE bool K(measure_batch)(REAL *r, REAL *sum, const char *x, int64_t step, int count, int64_t k, REAL eps) {
  VEC squares[K(BATCH)];
  for (int b = 0; b < count; b++, x += step) {
    if (k == K(QUAD))
      squares[b] = K(fold_squares)(x, K(QUAD));
    else if (k == 2 * K(QUAD))
      squares[b] = K(fold_squares)(x, 2 * K(QUAD));
    else
      K(fold_any)(&squares[b], x, k);
  }
  for (int b = count; b < K(BATCH); b++)
    squares[b] = V(set)(1);
  V(sum8)(sum, squares, EO);
  return K(finish_batch)(r, sum, (REAL)k, eps);
}

INLINE void K(short_vector)(char *y, const char *x, const REAL *gain, VEC r, int64_t j, int n, bool stream) {
  VEC h = V(mul)(K(load)(x, j, n, false), r);
  K(put_clean)(y, j, n, V(mul)(h, K(load_gain)(gain, j, n)), stream);
}

INLINE void K(short_quad)(char *y, const char *x, const REAL *gain, VEC r, int64_t j, bool stream) {
  K(short_vector)(y, x, gain, r, j, LANES, stream);
  K(short_vector)(y, x, gain, r, j + LANES, LANES, stream);
  K(short_vector)(y, x, gain, r, j + 2 * LANES, LANES, stream);
  K(short_vector)(y, x, gain, r, j + 3 * LANES, LANES, stream);
}

INLINE void K(write_rest)(char *y, const char *x, const REAL *gain, REAL r_, int64_t width, bool stream) {
  VEC r = V(set)(r_);
  int64_t j = 0;
  for (; j + K(QUAD) <= width; j += K(QUAD))
    K(short_quad)(y, x, gain, r, j, stream);
  for (; j + LANES <= width; j += LANES)
    K(short_vector)(y, x, gain, r, j, LANES, stream);
  if (j < width) K(short_vector)(y, x, gain, r, j, (int)(width - j), stream);
}

NOINLINE void K(write_rest_cached)(char *y, const char *x, const REAL *gain, REAL r, int64_t width) {
  K(write_rest)(y, x, gain, r, width, false);
}

NOINLINE void K(write_rest_stream)(char *y, const char *x, const REAL *gain, REAL r, int64_t width) {
  K(write_rest)(y, x, gain, r, width, true);
}

INLINE void K(write_rows)(const K(batch) * batch, int64_t width, bool stream) {
  const char *x = batch->x;
  char *y = batch->y;
  const REAL *gain = batch->gain, *r = batch->r, *end = r + batch->count;
  int64_t x_step = batch->x_step, y_step = batch->y_step, gain_step = batch->gain_step;
  for (; r < end; r++, x += x_step, y += y_step, gain += gain_step) {
    if (width == K(QUAD)) {
      K(short_quad)(y, x, gain, V(set)(*r), 0, stream);
    } else if (width == 2 * K(QUAD)) {
      VEC each = V(set)(*r);
      K(short_quad)(y, x, gain, each, 0, stream);
      K(short_quad)(y, x, gain, each, K(QUAD), stream);
    } else if (stream) {
      K(write_rest_stream)(y, x, gain, *r, width);
    } else {
      K(write_rest_cached)(y, x, gain, *r, width);
    }
  }
}

NOINLINE void K(write_batch)(const K(batch) * batch, int64_t width) {
  K(write_rows)(batch, width, false);
}

NOINLINE void K(write_batch_stream)(const K(batch) * batch, int64_t width) {
  K(write_rows)(batch, width, true);
}

/* The rows whose sum is out of range, one by one. */
NOINLINE void K(settle_batch)(const rms_layout *lay, K(batch) * batch) {
  const K(moment) zeros = {0, 0, 0, 0};
  const REAL zero_r = K(finish)(lay, zeros, (REAL)lay->k).r;
  for (int b = 0; b < batch->count; b++) {
    if (K(squares_in_range)(batch->sum[b])) continue;
    K(source) s = K(x_source)(batch->x + b * batch->x_step);
    K(moment) m = {batch->sum[b], 0, 0, 0};
    m = K(settle)(lay, &s, m);
    if (m.e)
      batch->scaled |= 1u << b, batch->moment[b] = m;
    else
      batch->r[b] = m.sum == 0 ? zero_r : K(finish)(lay, m, (REAL)lay->k).r;
  }
}

static void K(write_unscaled)(const rms_forward_job *job, const K(batch) * batch) {
  if (job->rstd) memcpy((REAL *)job->rstd + batch->first, batch->r, (size_t)batch->count * sizeof(REAL));
  if (job->mean) memset((REAL *)job->mean + batch->first, 0, (size_t)batch->count * sizeof(REAL));
  if (job->stream_y)
    K(write_batch_stream)(batch, job->lay.width);
  else
    K(write_batch)(batch, job->lay.width);
}

/* A batch with rows that must be scaled. */
NOINLINE void K(write_one_by_one)(const rms_forward_job *job, const K(batch) * batch) {
  rms_cursor at = rms_cursor_at(&job->lay, batch->first);
  for (int b = 0; b < batch->count; b++, rms_cursor_next(&at, &job->lay)) {
    if (batch->scaled >> b & 1) {
      K(statistic) st = K(finish)(&job->lay, batch->moment[b], (REAL)job->lay.k);
      K(forward_measured)(job, &at, st, batch->first + b);
      continue;
    }
    K(batch) one = *batch;
    one.x += b * batch->x_step;
    one.y += b * batch->y_step;
    one.gain += b * batch->gain_step;
    one.first += b;
    one.count = 1;
    one.r[0] = batch->r[b];
    K(write_unscaled)(job, &one);
  }
}

static void K(end_batch)(const rms_forward_job *job, const K(batch) * batch) {
  if (__builtin_expect(batch->scaled == 0, 1))
    K(write_unscaled)(job, batch);
  else
    K(write_one_by_one)(job, batch);
}

/* gain: in lane order, gain_inner elements from one inner index to the next. Rows take at most SHORT_BYTES: what two
 * batches read stays in the first-level cache until it is written. */
static void K(forward_short)(const rms_forward_job *job, const REAL *gain, int64_t gain_inner, int64_t first,
                             int64_t last) {
  const rms_layout *lay = &job->lay;
  const rms_rows *x = &job->x, *y = &job->y;
  int64_t inner = lay->inner, most = 4 * K(SHORT_BYTES) / (lay->width * T_SIZE);
  bool dense = !gain_inner && (uint64_t)x->outer == (uint64_t)inner * (uint64_t)x->inner &&
               (uint64_t)y->outer == (uint64_t)inner * (uint64_t)y->inner;
  bool even = inner == 1 || dense; /* one distance from row to row throughout */
  int64_t x_step = inner == 1 ? x->outer : x->inner, y_step = inner == 1 ? y->outer : y->inner;
  int64_t gain_step = inner == 1 ? 0 : gain_inner;
  if (most > K(BATCH)) most = K(BATCH);
  K(batch) batches[2], *before = NULL;
  rms_cursor at = rms_cursor_at(lay, first);
  for (int64_t i = first; i < last; at.outer++, at.inner = 0) {
    int64_t end = even || last - i < inner - at.inner ? last : i + inner - at.inner;
    const char *x0 = rms_segment(x, &at, lay, T_SIZE);
    char *y0 = rms_segment(y, &at, lay, T_SIZE);
    const REAL *gain0 = gain + at.inner * gain_inner;
    for (int64_t start = i; i < end; i += before->count) {
      K(batch) *batch = &batches[before == batches];
      batch->x = x0 + (i - start) * x_step;
      batch->y = y0 + (i - start) * y_step;
      batch->gain = gain0 + (i - start) * gain_step;
      batch->x_step = x_step;
      batch->y_step = y_step;
      batch->gain_step = gain_step;
      batch->first = i;
      batch->count = (int)(end - i < most ? end - i : most);
      batch->scaled = 0;
      bool in_range = K(measure_batch)(batch->r, batch->sum, batch->x, x_step, batch->count, lay->k, (REAL)lay->eps);
      if (__builtin_expect(!in_range, 0)) K(settle_batch)(lay, batch);
      if (before) K(end_batch)(job, before);
      before = batch;
    }
  }
  if (before) K(end_batch)(job, before);
}
