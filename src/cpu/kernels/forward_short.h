/* SPDX-License-Identifier: MIT
 *
 * Short rows (QK norm) of RMSNorm with a weight and nothing else, in batches: eight trees of
 * additions run side by side in vectors, so do the divisions and roots, and while those are under way the batch before
 * is written. Past the caches a batch is written at once, which is quicker there (docs/log/cpu.md). The same arithmetic
 * as forward_segment.h in another order of work. */

enum {
  K(SHORT_BYTES) = 2048,       /* a row at most                                        */
  K(SHORT_STREAM_BYTES) = 4096 /* past the caches: a row at most, and a batch of them  */
};

/* Rows at a constant distance: `count` of those from segment `first` on. */
typedef struct {
  const char *x;
  char *y;
  const REAL *gain; /* in lane order */
  int64_t x_step, y_step, gain_step, first;
  int from, count; /* rows from..count-1 are to be written */
  bool stretch;    /* they are written as one stretch of memory */
  unsigned scaled; /* a bit for each row that must be scaled: they go another way */
  REAL sum[K(BATCH)], r[K(BATCH)];
  int e[K(BATCH)]; /* of the rows that must be scaled: by 2^e */
} K(batch);

/* The squares of k elements, added up to one vector: the rest of the tree is V(sum8). */
INLINE VEC K(fold_lanes)(K(lanes) acc) {
  return V(add)(V(add)(acc.a, acc.c), V(add)(acc.b, acc.d));
}

INLINE VEC K(fold_source)(const K(source) * s, int64_t k, K(summand) squares) {
  VEC zero = V(set)(0);
  K(lanes) acc = {zero, zero, zero, zero};
  int64_t j = squares.as.scaled ? 0 : K(to_line)(s->x, k);
  if (j > 0) acc.d = K(add_lead)(acc.d, s->x, j, zero, squares);
  for (; j + K(QUAD) <= k; j += K(QUAD))
    acc = K(add_quad)(acc, s, j, K(QUAD), zero, squares);
  if (j < k) acc = K(add_tail)(acc, s, j, k - j, zero, squares);
  return K(fold_lanes)(acc);
}

INLINE VEC K(fold_squares)(const char *x, int64_t k) {
  const K(source) s = K(x_source)(x);
  return K(fold_source)(&s, k, (K(summand)){.squares = true});
}

/* The same of x times 2^e. */
NOINLINE VEC K(fold_scaled)(const char *x, int64_t k, int e) {
  K(source) s = K(x_source)(x);
  K(set_scale)(&s, e);
  return K(fold_source)(&s, k, (K(summand)){.squares = true, .as.scaled = true});
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

/* What is to be done about the sums of a batch: nothing; those that are zero must be rows of zeros, whose r is right;
 * those out of range must be looked at one by one. */
typedef enum { K(IN_RANGE), K(ZEROS), K(OTHERS) } K(batch_state);

/* r of a whole batch, in loops that the compiler makes vectors of. Without eps nothing must be divided by zero: rows of
 * zeros stand as if they were in range until they are looked at. */
INLINE K(batch_state) K(finish_batch)(REAL *r, const REAL *sum, REAL k, REAL eps) {
  const REAL least = eps > 0 ? 0 : TINY;
  int in_range = 1, calm = eps > 0;
  for (int b = 0; b < K(BATCH); b++) {
    REAL safe = sum[b] > least ? sum[b] : least;
    r[b] = 1 / SQRT(safe / k + eps);
  }
  for (int b = 0; b < K(BATCH); b++) {
    const int in = (sum[b] >= TINY) & (sum[b] <= REAL_MAX);
    in_range &= in;
    calm &= in | (sum[b] == 0);
  }
  return in_range ? K(IN_RANGE) : calm ? K(ZEROS) : K(OTHERS);
}

NOINLINE K(batch_state)
    K(measure_batch)(REAL *r, REAL *sum, const char *x, int64_t step, int count, int64_t k, REAL eps) {
  VEC squares[K(BATCH)];
  K(fold_rows)(squares, x, step, count, k);
  for (int b = count; b < K(BATCH); b++)
    squares[b] = V(set)(1);
  V(sum8)(sum, squares, EO);
  return K(finish_batch)(r, sum, (REAL)k, eps);
}

/* What is known at the call: non-temporal stores; rounding before the weight. */
typedef struct {
  bool stream, before;
} K(short_form);

INLINE void K(short_store)(char *y, VEC v, const REAL *gain, VEC r, int64_t j, int n, K(short_form) form) {
  VEC h = V(mul)(v, r);
  if (form.before) h = V(round_clean)(h, T);
  K(put_clean)(y, j, n, V(mul)(h, K(load_gain)(gain, j, n)), form.stream);
}

INLINE void K(short_vector)(char *y, const char *x, const REAL *gain, VEC r, int64_t j, int n, K(short_form) form) {
  K(short_store)(y, K(load)(x, j, n, false), gain, r, j, n, form);
}

/* Any width. The loads of x come before the stores, and the first one of a quad before those of the quad before it: see
 * K(common_quad). */
INLINE void K(write_row)(char *y, const char *x, const REAL *gain, VEC r, int64_t width, K(short_form) form) {
  int64_t j = K(to_line)(y, width);
  VEC first = r;
  if (j > 0) K(short_vector)(y, x, gain, r, 0, (int)j, form);
  if (j + K(QUAD) <= width) first = K(load)(x, j, LANES, false);
  for (; j + K(QUAD) <= width; j += K(QUAD)) {
    VEC v0 = first, v1 = K(load)(x, j + LANES, LANES, false);
    VEC v2 = K(load)(x, j + 2 * LANES, LANES, false), v3 = K(load)(x, j + 3 * LANES, LANES, false);
    if (j + 2 * K(QUAD) <= width) first = K(load)(x, j + K(QUAD), LANES, false);
    K(short_store)(y, v0, gain, r, j, LANES, form);
    K(short_store)(y, v1, gain, r, j + LANES, LANES, form);
    K(short_store)(y, v2, gain, r, j + 2 * LANES, LANES, form);
    K(short_store)(y, v3, gain, r, j + 3 * LANES, LANES, form);
  }
  for (; j + LANES <= width; j += LANES)
    K(short_vector)(y, x, gain, r, j, LANES, form);
  if (j < width) K(short_vector)(y, x, gain, r, j, (int)(width - j), form);
}

/* Rows of at least a vector that follow each other without a gap, as one stretch of memory: a vector that reaches past
 * the end of a row takes the r of both, and stores fill whole lines though rows do not. The first elements of the gain
 * are repeated behind its last. */
NOINLINE void K(write_stretch)(const K(batch) * batch, int64_t width) {
  const K(short_form) form = {false}; /* non-temporal stores are for rows that start at a line each */
  const int from = batch->from;
  const char *x = batch->x + from * width * T_SIZE;
  char *y = batch->y + from * width * T_SIZE;
  const REAL *gain = batch->gain;
  int64_t j = K(to_line)(y, width);
  VEC r = V(set)(batch->r[from]);
  if (j > 0) K(short_vector)(y, x, gain, r, 0, (int)j, form);
  for (int b = from + 1;; b++, x += width * T_SIZE, y += width * T_SIZE) {
    for (; j + LANES <= width; j += LANES)
      K(short_vector)(y, x, gain, r, j, LANES, form);
    const int left = (int)(width - j);
    if (b == batch->count) {
      if (left > 0) K(short_vector)(y, x, gain, r, j, left, form);
      return;
    }
    VEC next = V(set)(batch->r[b]);
    if (left > 0) K(short_vector)(y, x, gain, V(join)(r, next, left), j, LANES, form);
    j = left > 0 ? LANES - left : 0;
    r = next;
  }
}

/* A row of `whole` vectors, a constant of at most 8, and `rest` elements. */
INLINE void K(write_short)(char *y, const char *x, const REAL *gain, VEC r, int whole, int rest, K(short_form) form) {
  if (whole > 0) K(short_vector)(y, x, gain, r, 0, LANES, form);
  if (whole > 1) K(short_vector)(y, x, gain, r, LANES, LANES, form);
  if (whole > 2) K(short_vector)(y, x, gain, r, 2 * LANES, LANES, form);
  if (whole > 3) K(short_vector)(y, x, gain, r, 3 * LANES, LANES, form);
  if (whole > 4) K(short_vector)(y, x, gain, r, 4 * LANES, LANES, form);
  if (whole > 5) K(short_vector)(y, x, gain, r, 5 * LANES, LANES, form);
  if (whole > 6) K(short_vector)(y, x, gain, r, 6 * LANES, LANES, form);
  if (whole > 7) K(short_vector)(y, x, gain, r, 7 * LANES, LANES, form);
  if (rest) K(short_vector)(y, x, gain, r, whole * LANES, rest, form);
}

/* whole: vectors of a row, where that is a constant; -1: any width. */
INLINE void K(write_each)(const K(batch) * batch, int64_t width, int whole, K(short_form) form) {
  int64_t x_step = batch->x_step, y_step = batch->y_step, gain_step = batch->gain_step, from = batch->from;
  const char *x = batch->x + from * x_step;
  char *y = batch->y + from * y_step;
  const REAL *gain = batch->gain + from * gain_step, *r = batch->r + from, *end = batch->r + batch->count;
  int rest = (int)(width - whole * LANES);
  for (; r < end; r++, x += x_step, y += y_step, gain += gain_step)
    if (whole < 0)
      K(write_row)(y, x, gain, V(set)(*r), width, form);
    else
      K(write_short)(y, x, gain, V(set)(*r), whole, rest, form);
}

/* Whether y lies up to a quad after x, modulo 4096: where loads that follow stores wait for them. */
INLINE bool K(is_close_behind)(const K(batch) * batch) {
  return (((uintptr_t)batch->y - (uintptr_t)batch->x) & 4095) - 1 < 4 * 64 - 1;
}

INLINE void K(write_rows)(const K(batch) * batch, int64_t width, K(short_form) form) {
  switch (width > 2 * K(QUAD) || K(is_close_behind)(batch) ? -1 : (int)(width / LANES)) {
  case 0:
    K(write_each)(batch, width, 0, form);
    break;
  case 1:
    K(write_each)(batch, width, 1, form);
    break;
  case 2:
    K(write_each)(batch, width, 2, form);
    break;
  case 3:
    K(write_each)(batch, width, 3, form);
    break;
  case 4:
    K(write_each)(batch, width, 4, form);
    break;
  case 5:
    K(write_each)(batch, width, 5, form);
    break;
  case 6:
    K(write_each)(batch, width, 6, form);
    break;
  case 7:
    K(write_each)(batch, width, 7, form);
    break;
  case 8:
    K(write_each)(batch, width, 8, form);
    break;
  default:
    K(write_each)(batch, width, -1, form);
    break;
  }
}

NOINLINE void K(write_batch)(const K(batch) * batch, int64_t width) {
  K(write_rows)(batch, width, (K(short_form)){false});
}

NOINLINE void K(write_batch_stream)(const K(batch) * batch, int64_t width) {
  K(write_rows)(batch, width, (K(short_form)){.stream = true});
}

NOINLINE void K(write_batch_before)(const K(batch) * batch, int64_t width, bool stream) {
  K(write_each)(batch, width, -1, (K(short_form)){stream, .before = true});
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

/* The rows whose sum is out of range. Rows of zeros and rows with a NaN need no scale: see K(settle). So do those with
 * an infinity, whose r is right. The others are measured again as in K(measure_scaled), with one tree for all. */
NOINLINE void K(settle_batch)(const rms_layout *lay, K(batch) * batch, bool are_zeros, REAL zero_r) {
  const int limit = K(eps_limit)(lay);
  VEC squares[K(BATCH)];
  REAL sum[K(BATCH)];
  int rows[K(BATCH)], e[K(BATCH)], count = 0;
  for (int b = 0; b < batch->count; b++) {
    const char *x = batch->x + b * batch->x_step;
    if (K(squares_in_range)(batch->sum[b])) continue;
    if (batch->sum[b] != batch->sum[b]) {
      batch->r[b] = (REAL)NAN;
    } else if (batch->sum[b] == 0 && (are_zeros || K(are_zeros)(&x, 1, lay->k, T_SIZE))) {
      batch->r[b] = zero_r;
    } else {
      const REAL most = K(largest_x)(x, lay->k);
      if (!(most <= REAL_MAX)) continue;
      rows[count] = b;
      e[count] = K(first_scale)(lay, most, limit);
      squares[count] = K(fold_scaled)(x, lay->k, e[count]);
      count++;
    }
  }
  if (count == 0) return;
  for (int i = count; i < K(BATCH); i++)
    squares[i] = V(set)(0);
  V(sum8)(sum, squares, EO);
  for (int i = 0; i < count; i++) {
    const int b = rows[i];
    const K(moment) m = K(rescale)(lay, (K(moment)){sum[i], 0, 0, 0}, e[i], limit);
    if (m.e) batch->scaled |= 1u << b;
    batch->e[b] = m.e;
    batch->r[b] = K(finish)(lay, m, (REAL)lay->k).r;
  }
}

static void K(write_unscaled)(const rms_forward_job *job, const K(batch) * batch) {
  for (int b = batch->from; job->rstd && b < batch->count; b++)
    ((REAL *)job->rstd)[batch->first + b] = batch->r[b];
  for (int b = batch->from; job->mean && b < batch->count; b++)
    ((REAL *)job->mean)[batch->first + b] = 0;
  if (K(rounds_before)(&job->lay))
    K(write_batch_before)(batch, job->lay.width, job->stream_y);
  else if (batch->stretch)
    K(write_stretch)(batch, job->lay.width);
  else if (job->stream_y)
    K(write_batch_stream)(batch, job->lay.width);
  else
    K(write_batch)(batch, job->lay.width);
}

INLINE void K(write_scaled_row)(const K(batch) * batch, int b, int64_t width, K(short_form) form) {
  const REAL *gain = batch->gain + b * batch->gain_step;
  const VEC r = V(set)(batch->r[b]);
  const K(reading) scaled = {.scaled = true};
  K(source) s = K(x_source)(batch->x + b * batch->x_step);
  char *y = batch->y + b * batch->y_step;
  int64_t j = 0;
  K(set_scale)(&s, batch->e[b]);
  for (; j + LANES <= width; j += LANES)
    K(short_store)(y, K(load_source)(&s, j, LANES, scaled), gain, r, j, LANES, form);
  const int left = (int)(width - j);
  if (left > 0) K(short_store)(y, K(load_source)(&s, j, left, scaled), gain, r, j, left, form);
}

NOINLINE void K(write_short_scaled)(const rms_forward_job *job, const K(batch) * batch, int b) {
  const K(statistic) st = {batch->r[b], 0, 0, (REAL)job->lay.k, batch->e[b], false};
  if (job->rstd || job->mean) K(save_statistic)(job, batch->first + b, st);
  if (K(rounds_before)(&job->lay))
    K(write_scaled_row)(batch, b, job->lay.width, (K(short_form)){.before = true});
  else
    K(write_scaled_row)(batch, b, job->lay.width, (K(short_form)){false});
}

/* A batch with rows that must be scaled. */
NOINLINE void K(write_mixed)(const rms_forward_job *job, K(batch) * batch) {
  const int count = batch->count;
  for (int b = 0; b < count; b = batch->count) {
    const bool scaled = batch->scaled >> b & 1;
    batch->from = b;
    for (batch->count = b + 1; !scaled && batch->count < count && !(batch->scaled >> batch->count & 1);)
      batch->count++;
    if (scaled)
      K(write_short_scaled)(job, batch, b);
    else
      K(write_unscaled)(job, batch);
  }
  batch->count = count;
}

static void K(end_batch)(const rms_forward_job *job, K(batch) * batch) {
  if (__builtin_expect(batch->scaled == 0, 1))
    K(write_unscaled)(job, batch);
  else
    K(write_mixed)(job, batch);
}

/* Whether rows are written as one stretch: those that are no whole number of lines, where vectors can start at any
 * element. */
INLINE bool K(is_stretch)(const rms_layout *lay, int64_t x_step, int64_t y_step) {
  int64_t bytes = lay->width * T_SIZE;
  return IN_ORDER && !K(rounds_before)(lay) && lay->width > K(QUAD) && bytes % 64 != 0 && x_step == bytes &&
         y_step == bytes;
}

/* The gain with its first elements behind the last. */
static const REAL *K(repeat_gain)(REAL *to, const REAL *gain, int64_t width) {
  memcpy(to, gain, (size_t)width * sizeof(REAL));
  memcpy(to + width, gain, LANES * sizeof(REAL));
  return to;
}

/* gain: in lane order, gain_inner elements from one inner index to the next. Rows take at most SHORT_BYTES, and what
 * two batches read stays in the first-level cache until it is written; past the caches at most SHORT_STREAM_BYTES, and
 * so does a batch. */
static void K(forward_short)(const rms_forward_job *job, const REAL *gain, int64_t gain_inner, int64_t first,
                             int64_t last) {
  const rms_layout *lay = &job->lay;
  const rms_rows *x = &job->x, *y = &job->y;
  const int64_t inner = lay->inner, room = job->stream_y ? K(SHORT_STREAM_BYTES) : 4 * K(SHORT_BYTES);
  bool dense = !gain_inner && (uint64_t)x->outer == (uint64_t)inner * (uint64_t)x->inner &&
               (uint64_t)y->outer == (uint64_t)inner * (uint64_t)y->inner;
  bool even = inner == 1 || dense; /* one distance from row to row throughout */
  int64_t x_step = inner == 1 ? x->outer : x->inner, y_step = inner == 1 ? y->outer : y->inner;
  int64_t gain_step = inner == 1 ? 0 : gain_inner;
  const int64_t most = K(fit)(room, lay->width * T_SIZE);
  REAL repeated[K(SHORT_BYTES) / T_SIZE + LANES];
  bool stretch =
      K(is_stretch)(lay, x_step, y_step) && !job->stream_y && gain_step == 0 && even && last - first >= K(BATCH);
  if (stretch) gain = K(repeat_gain)(repeated, gain, lay->width);
  const K(moment) zeros = {0, 0, 0, 0};
  const REAL zero_r = K(finish)(lay, zeros, (REAL)lay->k).r; /* of a row of zeros */
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
      batch->from = 0;
      batch->count = (int)(end - i < most ? end - i : most);
      batch->stretch = stretch;
      batch->scaled = 0;
      for (int b = 0; job->stream_y && lay->k < lay->width && b < batch->count; b++)
        K(read_ahead)(batch->x + b * x_step, lay->width * T_SIZE);
      const K(batch_state) state =
          K(measure_batch)(batch->r, batch->sum, batch->x, x_step, batch->count, lay->k, (REAL)lay->eps);
      if (__builtin_expect(state != K(IN_RANGE), 0)) {
        const bool are_zeros = K(are_zero_rows)(batch->x, x_step, batch->sum, batch->count, lay->k);
        if (state == K(OTHERS) || !are_zeros) K(settle_batch)(lay, batch, are_zeros, zero_r);
      }
      if (job->stream_y)
        K(end_batch)(job, batch);
      else if (before)
        K(end_batch)(job, before);
      before = batch;
    }
  }
  if (before && !job->stream_y) K(end_batch)(job, before);
}
