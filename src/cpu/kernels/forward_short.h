/* SPDX-License-Identifier: MIT
 *
 * Short rows (QK norm) of RMSNorm with a gain, and a gate after it, and of LayerNorm with a gain and a bias, in batches
 * that short_sums.h measures: while the roots of one batch are under way the batch before is written. Past the caches a
 * batch is written at once, which is quicker there (docs/log/cpu.md). The same arithmetic as forward_segment.h in
 * another order of work. */

enum {
  K(SHORT_BYTES) = 2048,       /* a row at most                                        */
  K(SHORT_LAYER_BYTES) = 3072, /* the same of LayerNorm                                */
  K(SHORT_STREAM_BYTES) = 4096 /* past the caches: a row at most, and a batch of them  */
};

/* Rows at a constant distance: `count` of those from segment `first` on. */
typedef struct {
  const char *x;
  char *y;
  const REAL *gain; /* in lane order */
  const REAL *bias; /* so too; NULL: RMSNorm */
  const char *gate; /* of a gate after RMSNorm; NULL: none */
  int64_t x_step, y_step, gain_step, gate_step, first;
  int count;
  bool stretch;    /* rows are written as one stretch of memory, unless some must be scaled */
  unsigned scaled; /* a bit for each row that must be scaled: they are written apart from the others */
  REAL sum[K(BATCH)], r[K(BATCH)], mean[K(BATCH)];
  int e[K(BATCH)]; /* of the rows that must be scaled: by 2^e */
} K(batch);

/* What is known at the call: non-temporal stores; rounding before the weight. And what is not: see K(TOGETHER). */
typedef struct {
  bool stream, before;
  bool together;
} K(short_form);

INLINE VEC K(short_value)(VEC v, const REAL *gain, VEC r, int64_t j, int n, K(short_form) form) {
  VEC h = V(mul)(v, r);
  if (form.before) h = V(round_clean)(h, T);
  return V(mul)(h, K(load_gain)(gain, j, n));
}

INLINE void K(short_store)(char *y, VEC v, const REAL *gain, VEC r, int64_t j, int n, K(short_form) form) {
  K(put_clean)(y, j, n, K(short_value)(v, gain, r, j, n, form), form.stream);
}

INLINE void K(short_vector)(char *y, const char *x, const REAL *gain, VEC r, int64_t j, int n, K(short_form) form) {
  K(short_store)(y, K(load)(x, j, n, false), gain, r, j, n, form);
}

/* The four vectors of a quad. */
INLINE void K(short_quad)(char *y, K(lanes) v, const REAL *gain, VEC r, int64_t j, K(short_form) form) {
  const int64_t b = j + LANES, c = j + 2 * LANES, d = j + 3 * LANES;
  if (!form.together && !K(QUADS)) {
    K(short_store)(y, v.a, gain, r, j, LANES, form);
    K(short_store)(y, v.b, gain, r, b, LANES, form);
    K(short_store)(y, v.c, gain, r, c, LANES, form);
    K(short_store)(y, v.d, gain, r, d, LANES, form);
    return;
  }
  v = (K(lanes)){K(short_value)(v.a, gain, r, j, LANES, form), K(short_value)(v.b, gain, r, b, LANES, form),
                 K(short_value)(v.c, gain, r, c, LANES, form), K(short_value)(v.d, gain, r, d, LANES, form)};
  K(put_quad)(y, j, v, form.stream);
}

/* Any width. The loads of x come before the stores, and the first one of a quad before those of the quad before it: see
 * K(common_quad). */
INLINE void K(write_row)(char *y, const char *x, const REAL *gain, VEC r, int64_t width, K(short_form) form) {
  int64_t j = K(to_line)(y, width);
  VEC first = r;
  if (j > 0) K(short_vector)(y, x, gain, r, 0, (int)j, form);
  if (j + K(QUAD) <= width) first = K(load)(x, j, LANES, false);
  for (; j + K(QUAD) <= width; j += K(QUAD)) {
    const K(lanes) v = {first, K(load)(x, j + LANES, LANES, false), K(load)(x, j + 2 * LANES, LANES, false),
                        K(load)(x, j + 3 * LANES, LANES, false)};
    if (j + 2 * K(QUAD) <= width) first = K(load)(x, j + K(QUAD), LANES, false);
    K(short_quad)(y, v, gain, r, j, form);
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
  const char *x = batch->x;
  char *y = batch->y;
  const REAL *gain = batch->gain;
  int64_t j = K(to_line)(y, width);
  VEC r = V(set)(batch->r[0]);
  if (j > 0) K(short_vector)(y, x, gain, r, 0, (int)j, form);
  for (int b = 1;; b++, x += width * T_SIZE, y += width * T_SIZE) {
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
  if (K(QUADS) && whole >= 4) {
    K(short_quad)(y, K(load_quad)(x, 0), gain, r, 0, form);
    if (whole == 8) K(short_quad)(y, K(load_quad)(x, K(QUAD)), gain, r, K(QUAD), form);
    for (int j = whole == 8 ? 8 : 4; j < whole; j++)
      K(short_vector)(y, x, gain, r, j * LANES, LANES, form);
    if (rest) K(short_vector)(y, x, gain, r, whole * LANES, rest, form);
    return;
  }
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
  int64_t x_step = batch->x_step, y_step = batch->y_step, gain_step = batch->gain_step;
  const char *x = batch->x;
  char *y = batch->y;
  const REAL *gain = batch->gain, *r = batch->r, *end = batch->r + batch->count;
  int rest = (int)(width - whole * LANES);
  unsigned skip = batch->scaled;
  for (; r < end; r++, x += x_step, y += y_step, gain += gain_step, skip >>= 1)
    if (skip & 1)
      continue;
    else if (whole < 0)
      K(write_row)(y, x, gain, V(set)(*r), width, form);
    else
      K(write_short)(y, x, gain, V(set)(*r), whole, rest, form);
}

/* Whether y lies close behind what is read beside the stores; the gain: behind that of the first row. */
INLINE bool K(batch_is_close)(const K(batch) * batch) {
  return K(is_close_behind)(batch->y, batch->x) || K(is_close_behind)(batch->y, batch->gain);
}

INLINE void K(write_rows)(const K(batch) * batch, int64_t width, K(short_form) form) {
  const bool close = K(batch_is_close)(batch);
  form.together = K(TOGETHER) && close;
  switch (width > 2 * K(QUAD) || close ? -1 : (int)(width / LANES)) {
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
  K(write_each)(batch, width, -1, (K(short_form)){.stream = stream, .before = true});
}

/* The rows whose sum is out of range. Rows of zeros and rows with a NaN need no scale: see K(settle). So do those with
 * an infinity, whose r is right. The others are measured again as in K(measure_scaled), with one tree for all. */
NOINLINE void K(settle_batch)(const rms_layout *lay, K(batch) * batch, bool are_zeros, REAL zero_r) {
  const int limit = K(eps_limit)(lay);
  VEC squares[K(BATCH)];
  REAL sum[K(BATCH)], eps[K(BATCH)], r[K(BATCH)];
  int rows[K(BATCH)], e[K(BATCH)], count = 0;
  for (int i = 0; i < K(BATCH); i++) {
    squares[i] = V(set)(1); /* not 0: the compiler would make a string instruction of it, which is slow to start */
    eps[i] = 1;
  }
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
      if (K(vanishes)(lay, most, e[count], limit))
        squares[count] = V(first)(V(set)(K(vanished_sum)(most, e[count])), 1, EO);
      else
        squares[count] = K(fold_scaled)(x, lay->k, e[count]);
      count++;
    }
  }
  if (count == 0) return;
  V(sum8)(sum, squares, EO);
  for (int i = 0; i < count; i++) {
    const int b = rows[i];
    const K(moment) m = K(rescale)(lay, (K(moment)){sum[i], 0, 0, 0}, e[i], limit);
    if (m.e) batch->scaled |= 1u << b;
    batch->e[b] = m.e;
    sum[i] = m.sum;
    eps[i] = K(scaled_eps)(lay, m.e);
  }
  for (int i = 0; i < K(BATCH); i++)
    r[i] = 1 / SQRT(sum[i] / (REAL)lay->k + eps[i]);
  for (int i = 0; i < count; i++)
    batch->r[rows[i]] = r[i];
}

/* ---- LayerNorm ---- */

INLINE VEC K(layer_of)(VEC v, const REAL *gain, const REAL *bias, VEC r, VEC mean, int64_t j, int n) {
  return V(fma)(V(mul)(V(sub)(v, mean), r), K(load_gain)(gain, j, n), K(load_gain)(bias, j, n));
}

INLINE VEC K(layer_value)(const char *x, const REAL *gain, const REAL *bias, VEC r, VEC mean, int64_t j, int n) {
  return K(layer_of)(K(load)(x, j, n, false), gain, bias, r, mean, j, n);
}

INLINE void K(layer_vector)(char *y, const char *x, const REAL *gain, const REAL *bias, VEC r, VEC mean, int64_t j,
                            int n, bool stream) {
  K(put_clean)(y, j, n, K(layer_value)(x, gain, bias, r, mean, j, n), stream);
}

/* The four vectors of a quad, whose loads come before its stores. */
INLINE void K(layer_quad)(char *y, const char *x, const REAL *gain, const REAL *bias, VEC r, VEC mean, int64_t j,
                          bool stream) {
  const int64_t b = j + LANES, c = j + 2 * LANES, d = j + 3 * LANES;
  const K(lanes)
      v = {K(layer_value)(x, gain, bias, r, mean, j, LANES), K(layer_value)(x, gain, bias, r, mean, b, LANES),
           K(layer_value)(x, gain, bias, r, mean, c, LANES), K(layer_value)(x, gain, bias, r, mean, d, LANES)};
  K(put_quad)(y, j, v, stream);
}

INLINE void K(write_layer_rows)(const K(batch) * batch, int64_t width, bool stream) {
  const bool together = K(TOGETHER) && (K(batch_is_close)(batch) || K(is_close_behind)(batch->y, batch->bias));
  for (int b = 0; b < batch->count; b++) {
    if (batch->scaled >> b & 1) continue;
    const char *x = batch->x + b * batch->x_step;
    char *y = batch->y + b * batch->y_step;
    const REAL *gain = batch->gain + b * batch->gain_step, *bias = batch->bias + b * batch->gain_step;
    const VEC r = V(set)(batch->r[b]), mean = V(set)(batch->mean[b]);
    int64_t j = K(to_line)(y, width);
    if (j > 0) K(layer_vector)(y, x, gain, bias, r, mean, 0, (int)j, stream);
    for (; (together || K(QUADS)) && j + K(QUAD) <= width; j += K(QUAD))
      K(layer_quad)(y, x, gain, bias, r, mean, j, stream);
    for (; j + LANES <= width; j += LANES)
      K(layer_vector)(y, x, gain, bias, r, mean, j, LANES, stream);
    if (j < width) K(layer_vector)(y, x, gain, bias, r, mean, j, (int)(width - j), stream);
  }
}

NOINLINE void K(write_layer)(const K(batch) * batch, int64_t width) {
  K(write_layer_rows)(batch, width, false);
}

NOINLINE void K(write_layer_stream)(const K(batch) * batch, int64_t width) {
  K(write_layer_rows)(batch, width, true);
}

/* The rows whose sum is out of range, one by one. Rows of zeros have the right r, unless there is no eps. */
NOINLINE void K(settle_layer)(const rms_layout *lay, K(batch) * batch, bool are_zeros, REAL zero_r) {
  for (int b = 0; b < batch->count; b++) {
    K(moment) m = {batch->sum[b], batch->mean[b], 0, 0};
    if (K(squares_in_range)(m.sum)) continue;
    if (m.sum == 0 && are_zeros) {
      batch->r[b] = zero_r;
      continue;
    }
    K(source) s = K(x_source)(batch->x + b * batch->x_step);
    if (m.sum != m.sum && !(K(largest_x)(s.x, lay->k) <= REAL_MAX)) {
      batch->r[b] = m.sum; /* the same NaN as that of 1 / sqrt(m.sum / k + eps) */
      continue;
    }
    m = K(settle)(lay, &s, m, false);
    batch->scaled |= (unsigned)(m.e != 0) << b;
    batch->e[b] = m.e;
    batch->r[b] = K(finish)(lay, m, (REAL)lay->k).r;
    batch->mean[b] = m.mean;
  }
}

/* ---- a gate after RMSNorm ---- */

/* What K(common_store) does beside such a gate. */
INLINE VEC K(gated_value)(VEC v, VEC act, const REAL *gain, VEC r, int64_t j, int n, K(short_form) form, bool product) {
  VEC h = K(short_value)(v, gain, r, j, n, form);
  if (form.before && product) h = V(round_clean)(h, T);
  return V(mul)(h, act);
}

INLINE void K(gated_store)(char *y, VEC v, VEC act, const REAL *gain, VEC r, int64_t j, int n, K(short_form) form,
                           bool product) {
  K(put_clean)(y, j, n, K(gated_value)(v, act, gain, r, j, n, form, product), form.stream);
}

/* All loads of a quad come before its stores, which may go to x or to the gate. */
INLINE void K(write_gated_row)(char *y, const char *x, const char *z, const REAL *gain, VEC r, int64_t width,
                               K(short_form) form, bool product, bool sigmoid) {
  int64_t j = 0;
  for (; j + K(QUAD) <= width; j += K(QUAD)) {
    const K(lanes) v = K(load_quad)(x, j), act = K(load_gates)(z, j, sigmoid);
    if (K(QUADS)) {
      const int64_t b = j + LANES, c = j + 2 * LANES, d = j + 3 * LANES;
      const K(lanes) h = {K(gated_value)(v.a, act.a, gain, r, j, LANES, form, product),
                          K(gated_value)(v.b, act.b, gain, r, b, LANES, form, product),
                          K(gated_value)(v.c, act.c, gain, r, c, LANES, form, product),
                          K(gated_value)(v.d, act.d, gain, r, d, LANES, form, product)};
      K(put_quad)(y, j, h, form.stream);
      continue;
    }
    K(gated_store)(y, v.a, act.a, gain, r, j, LANES, form, product);
    K(gated_store)(y, v.b, act.b, gain, r, j + LANES, LANES, form, product);
    K(gated_store)(y, v.c, act.c, gain, r, j + 2 * LANES, LANES, form, product);
    K(gated_store)(y, v.d, act.d, gain, r, j + 3 * LANES, LANES, form, product);
  }
  for (int n; j < width; j += n) {
    n = width - j < LANES ? (int)(width - j) : LANES;
    const VEC v = K(load)(x, j, n, false), act = K(load_gate)(z, j, n, sigmoid);
    K(gated_store)(y, v, act, gain, r, j, n, form, product);
  }
}

NOINLINE void K(write_gated)(const K(batch) * batch, const rms_layout *lay, K(short_form) form) {
  const int64_t width = lay->width;
  const bool product = !lay->weight_is_f32, sigmoid = lay->activation == RMS_ACT_SIGMOID;
  for (int b = 0; b < batch->count; b++)
    if (!(batch->scaled >> b & 1)) K(write_gated_row)
  (batch->y + b * batch->y_step, batch->x + b * batch->x_step, batch->gate + b * batch->gate_step,
   batch->gain + b * batch->gain_step, V(set)(batch->r[b]), width, form, product, sigmoid);
}

/* ---- batches ---- */

static void K(settle_rows)(const rms_layout *lay, K(batch) * batch, K(batch_state) state, REAL zero_r) {
  const bool are_zeros =
      K(outweighs_zero)(lay) || K(are_zero_rows)(batch->x, batch->x_step, batch->sum, batch->count, lay->k);
  if (state == K(ZEROS) && are_zeros) return;
  if (batch->bias)
    K(settle_layer)(lay, batch, are_zeros, zero_r);
  else
    K(settle_batch)(lay, batch, are_zeros, zero_r);
}

static void K(write_unscaled)(const rms_forward_job *job, const K(batch) * batch) {
  for (int b = 0; job->rstd && b < batch->count; b++)
    ((REAL *)job->rstd)[batch->first + b] = batch->r[b];
  for (int b = 0; job->mean && b < batch->count; b++)
    ((REAL *)job->mean)[batch->first + b] = batch->bias ? batch->mean[b] : 0;
  if (batch->gate)
    K(write_gated)(batch, &job->lay, (K(short_form)){.stream = job->stream_y, .before = K(rounds_before)(&job->lay)});
  else if (batch->bias && job->stream_y)
    K(write_layer_stream)(batch, job->lay.width);
  else if (batch->bias)
    K(write_layer)(batch, job->lay.width);
  else if (K(rounds_before)(&job->lay))
    K(write_batch_before)(batch, job->lay.width, job->stream_y);
  else if (batch->stretch)
    K(write_stretch)(batch, job->lay.width);
  else if (job->stream_y)
    K(write_batch_stream)(batch, job->lay.width);
  else
    K(write_batch)(batch, job->lay.width);
}

INLINE void K(scaled_vector)(const K(batch) * batch, int b, const K(source) * s, VEC r, VEC mean, int64_t j, int n,
                             bool layer, K(short_form) form) {
  const REAL *gain = batch->gain + b * batch->gain_step;
  char *y = batch->y + b * batch->y_step;
  VEC v = K(load_source)(s, j, n, (K(reading)){.scaled = true});
  if (layer)
    K(put_clean)(y, j, n, K(layer_of)(v, gain, batch->bias + b * batch->gain_step, r, mean, j, n), form.stream);
  else
    K(short_store)(y, v, gain, r, j, n, form);
}

INLINE void K(write_scaled_rows)(const K(batch) * given, int64_t width, bool layer, K(short_form) form) {
  const K(batch) batch = *given; /* a copy that no store can change */
  for (int b = 0; b < batch.count; b++) {
    if (!(batch.scaled >> b & 1)) continue;
    const VEC r = V(set)(batch.r[b]), mean = V(set)(layer ? batch.mean[b] : 0);
    K(source) s = K(x_source)(batch.x + b * batch.x_step);
    K(set_scale)(&s, batch.e[b]);
    int64_t j = 0;
    for (; j + LANES <= width; j += LANES)
      K(scaled_vector)(&batch, b, &s, r, mean, j, LANES, layer, form);
    if (j < width) K(scaled_vector)(&batch, b, &s, r, mean, j, (int)(width - j), layer, form);
  }
}

NOINLINE void K(write_scaled_batch)(const K(batch) * batch, int64_t width, bool stream, bool before) {
  if (batch->bias)
    K(write_scaled_rows)(batch, width, true, (K(short_form)){.stream = stream});
  else if (before)
    K(write_scaled_rows)(batch, width, false, (K(short_form)){.stream = stream, .before = true});
  else
    K(write_scaled_rows)(batch, width, false, (K(short_form)){.stream = stream});
}

/* A batch with rows that must be scaled. */
NOINLINE void K(write_mixed)(const rms_forward_job *job, K(batch) * batch) {
  const rms_layout *lay = &job->lay;
  batch->stretch = false;
  K(write_unscaled)(job, batch);
  for (int b = 0; b < batch->count; b++) {
    if (!(batch->scaled >> b & 1)) continue;
    const K(statistic) st = {batch->r[b], batch->bias ? batch->mean[b] : 0, 0, (REAL)lay->k, batch->e[b], false};
    if (batch->gate) {
      const rms_cursor at = rms_cursor_at(lay, batch->first + b);
      K(forward_measured)(job, &at, st, batch->first + b);
    } else if (job->rstd || job->mean) {
      K(save_statistic)(job, batch->first + b, st);
    }
  }
  if (!batch->gate) K(write_scaled_batch)(batch, lay->width, job->stream_y, K(rounds_before)(lay));
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

/* Fetches the rows behind a batch, of which there are `more`, before the batch is written past the caches: a processor
 * may not read far ahead of many non-temporal stores. */
INLINE void K(fetch_batch)(const K(batch) * batch, int64_t bytes, int64_t more) {
  const int64_t count = more < batch->count ? more : batch->count;
  if (count == 0) return;
  K(fetch_rows)(batch->x + batch->count * batch->x_step, batch->x_step, bytes, count);
  if (batch->gate) K(fetch_rows)(batch->gate + batch->count * batch->gate_step, batch->gate_step, bytes, count);
}

/* gain, bias: in lane order, gain_inner elements from one inner index to the next; bias is NULL for RMSNorm. Rows take
 * at most SHORT_BYTES (LayerNorm: SHORT_LAYER_BYTES), and what two batches read stays in the first-level cache until it
 * is written; past the caches at most SHORT_STREAM_BYTES, and so does a batch. */
static void K(forward_short)(const rms_forward_job *job, const REAL *gain, const REAL *bias, int64_t gain_inner,
                             int64_t first, int64_t last) {
  const rms_layout *lay = &job->lay;
  const rms_rows *x = &job->x, *y = &job->y;
  const int64_t inner = lay->inner, room = job->stream_y ? K(SHORT_STREAM_BYTES) : 4 * K(SHORT_BYTES);
  const bool gated = job->gate.data != NULL;
  const rms_rows *z = gated ? &job->gate : x;
  bool dense = !gain_inner && (uint64_t)x->outer == (uint64_t)inner * (uint64_t)x->inner &&
               (uint64_t)y->outer == (uint64_t)inner * (uint64_t)y->inner &&
               (uint64_t)z->outer == (uint64_t)inner * (uint64_t)z->inner;
  bool even = inner == 1 || dense; /* one distance from row to row throughout */
  int64_t x_step = inner == 1 ? x->outer : x->inner, y_step = inner == 1 ? y->outer : y->inner;
  int64_t gain_step = inner == 1 ? 0 : gain_inner;
  const int64_t z_step = inner == 1 ? z->outer : z->inner;
  const int64_t most = K(fit)(room, lay->width * T_SIZE);
  REAL repeated[K(SHORT_BYTES) / T_SIZE + LANES];
  bool stretch = K(is_stretch)(lay, x_step, y_step) && !bias && !gated && !job->stream_y && gain_step == 0 && even &&
                 last - first >= K(BATCH);
  if (stretch) gain = K(repeat_gain)(repeated, gain, lay->width);
  const K(moment) zeros = {0, 0, 0, 0};
  const REAL zero_r = K(finish)(lay, zeros, (REAL)lay->k).r; /* of a row of zeros */
  K(batch) batches[2], *before = NULL;
  rms_cursor at = rms_cursor_at(lay, first);
  for (int64_t i = first; i < last; at.outer++, at.inner = 0) {
    int64_t end = even || last - i < inner - at.inner ? last : i + inner - at.inner;
    const char *x0 = rms_segment(x, &at, lay, T_SIZE);
    char *y0 = rms_segment(y, &at, lay, T_SIZE);
    const char *z0 = rms_segment(z, &at, lay, T_SIZE);
    const REAL *gain0 = gain + at.inner * gain_inner;
    for (int64_t start = i; i < end; i += before->count) {
      K(batch) *batch = &batches[before == batches];
      batch->x = x0 + (i - start) * x_step;
      batch->y = y0 + (i - start) * y_step;
      batch->gain = gain0 + (i - start) * gain_step;
      batch->bias = bias ? bias + at.inner * gain_inner + (i - start) * gain_step : NULL;
      batch->gate = gated ? z0 + (i - start) * z_step : NULL;
      batch->gate_step = z_step;
      batch->x_step = x_step;
      batch->y_step = y_step;
      batch->gain_step = gain_step;
      batch->first = i;
      batch->count = (int)(end - i < most ? end - i : most);
      batch->stretch = stretch;
      batch->scaled = 0;
      for (int b = 0; job->stream_y && lay->k < lay->width && b < batch->count; b++)
        K(read_ahead)(batch->x + b * x_step, lay->width * T_SIZE);
      const REAL eps = (REAL)lay->eps;
      const K(batch_state) state =
          bias ? K(measure_layer_batch)(batch->r, batch->mean, batch->sum, batch->x, x_step, batch->count, lay->k, eps)
               : K(measure_batch)(batch->r, batch->sum, batch->x, x_step, batch->count, lay->k, eps);
      if (__builtin_expect(state != K(IN_RANGE), 0)) K(settle_rows)(lay, batch, state, zero_r);
      if (job->stream_y) {
        K(fetch_batch)(batch, lay->width * T_SIZE, end - i - batch->count);
        K(end_batch)(job, batch);
      } else if (before) {
        K(end_batch)(job, before);
      }
      before = batch;
    }
  }
  if (before && !job->stream_y) K(end_batch)(job, before);
}
