/* SPDX-License-Identifier: MIT
 *
 * The second sweep of common jobs, over the columns of up to a batch of rows: a few vectors of columns are finished for
 * all of the rows, so that their column sums stay in registers, and then the next ones. */

/* What a row that must be scaled is multiplied by: see K(gradient). */
typedef struct {
  REAL x1, x2, dy1, dy2, u1, u2, down[4];
} K(row_scale);

/* Rows that have one gain and one block of column sums, measured. */
typedef struct {
  const char *x[K(BATCH)], *dy[K(BATCH)];
  char *dx[K(BATCH)];
  REAL r[K(BATCH)], mean[K(BATCH)], c[K(BATCH)], a[K(BATCH)], b[K(BATCH)];
  const REAL *gain;     /* NULL: none, or raw                                           */
  const char *raw_gain; /* NULL: none, or laid out                                      */
  K(gain_form) gain_form;
  rms_dtype dy_type;
  REAL *dweight, *dbias;     /* NULL: not wanted                                             */
  int64_t width, k;          /* elements, and those of them that are in the statistic        */
  int64_t ahead_x, ahead_dy; /* bytes from the rows to those that should be fetched early; 0 */
  int64_t from, to;          /* the columns to finish                                        */
  bool stream, mixed;        /* mixed: see backward_segment.h */
  bool before, product;      /* rounding before the weight, and of products with it */
  bool terms;                /* mixed: and of the two terms of dx */
  bool together;             /* see K(TOGETHER) */
  int first, count;          /* rows first..count-1 are to be finished */
  unsigned scaled;           /* a bit for each row that must be scaled */
  K(row_scale) scale[K(BATCH)];
} K(gradient_rows);

/* What is known at the call, so that the branches on it vanish. */
typedef struct {
  bool layer, sums, stream, mixed;
  bool before, product; /* rounding before the weight, and of products with it */
  bool outside, edge;   /* columns that are not in the statistic, of which c is 0; some are, some are not */
  bool scaled;          /* there are rows that must be scaled */
} K(rows_form);

typedef struct {
  VEC dweight, dbias;
} K(column_sum);

/* One row: a copy that no store can change. */
typedef struct {
  const char *x, *dy;
  char *dx;
  VEC r, mean, c, a, b;
  rms_dtype dy_type; /* where the types are mixed, as the next */
  bool terms;
  K(row_scale) scale;
} K(gradient_row);

INLINE K(gradient_row) K(open_row)(const K(gradient_rows) * s, int row, K(rows_form) form) {
  K(gradient_row)
  of = {.x = s->x[row],
        .dy = s->dy[row],
        .dx = s->dx[row],
        .r = V(set)(s->r[row]),
        .mean = V(set)(s->mean[row]),
        .c = V(set)(form.outside ? 0 : s->c[row]),
        .a = V(set)(s->a[row]),
        .b = V(set)(s->b[row]),
        .dy_type = s->dy_type,
        .terms = s->terms};
  if (form.scaled) of.scale = s->scale[row];
  return of;
}

/* A vector of columns: n of them are there, `inside` of them in the statistic. */
typedef struct {
  K(column_sum) sum;
  VEC gain;
  int64_t j;
  int n, inside;
} K(column);

INLINE VEC K(round_row)(VEC v, K(rows_form) form) {
  return form.mixed ? V(round)(v, T) : V(round_clean)(v, T);
}

INLINE VEC K(times_twice)(VEC v, REAL a, REAL b) {
  return V(mul)(V(mul)(v, V(set)(a)), V(set)(b));
}

/* What one row has there. */
typedef struct {
  VEC x, dy;
} K(row_vectors);

INLINE K(row_vectors) K(load_vectors)(K(column) at, const K(gradient_row) * of, K(rows_form) form) {
  return (K(row_vectors)){K(load)(of->x, at.j, at.n, false), form.mixed
                                                                 ? K(load_in_place)(of->dy, at.j, at.n, of->dy_type)
                                                                 : K(load)(of->dy, at.j, at.n, false)};
}

/* One row's part of the sums. */
INLINE K(column_sum) K(add_column)(K(column) at, K(row_vectors) in, const K(gradient_row) * of, K(rows_form) form) {
  const K(row_scale) *by = &of->scale;
  K(column_sum) sum = at.sum;
  if (!form.sums) return sum;
  if (form.scaled) in.x = K(times_twice)(in.x, by->x1, by->x2);
  VEC h = V(mul)(form.layer ? V(sub)(in.x, of->mean) : in.x, of->r);
  if (form.before) h = K(round_row)(h, form);
  VEC term = V(mul)(in.dy, h);
  if (form.before && form.product) term = K(round_row)(term, form);
  sum.dweight = V(add)(sum.dweight, term);
  if (form.layer) sum.dbias = V(add)(sum.dbias, in.dy);
  return sum;
}

/* One row's dx. form.scaled: of a row that must be scaled. */
INLINE VEC K(gradient_column)(K(column) at, K(row_vectors) in, const K(gradient_row) * of, K(rows_form) form) {
  const K(row_scale) *by = &of->scale;
  VEC v = in.x, u = in.dy, dx;
  if (form.scaled && !form.before) u = K(times_twice)(u, by->dy1, by->dy2);
  u = V(mul)(u, at.gain);
  if (form.before) u = K(round_row)(u, form);
  if (form.scaled) u = K(times_twice)(u, by->u1, by->u2), v = K(times_twice)(v, by->x1, by->x2);
  if (form.layer) {
    VEC h = V(mul)(V(sub)(v, of->mean), of->r);
    dx = V(mul)(of->r, V(sub)(V(sub)(u, of->b), V(mul)(h, of->a)));
  } else {
    VEC first = V(mul)(u, of->r), second = V(mul)(form.edge ? V(first)(of->c, at.inside, EO) : of->c, v);
    if (T != REAL_TYPE && form.mixed && of->terms) first = V(round)(first, T), second = V(round)(second, T);
    dx = V(sub)(first, second);
  }
  if (!form.scaled) return dx;
  return K(times_twice)(K(times_twice)(dx, by->down[0], by->down[1]), by->down[2], by->down[3]);
}

INLINE void K(put_column)(K(column) at, VEC dx, const K(gradient_row) * of, K(rows_form) form) {
  if (at.n > 0 && form.mixed)
    K(put)(of->dx, at.j, at.n, dx, false, form.stream);
  else if (at.n > 0)
    K(put_clean)(of->dx, at.j, at.n, dx, form.stream);
}

/* Those of four columns. */
INLINE void K(put_columns)(K(column) a, K(column) b, K(column) c, K(column) d, K(lanes) dx, const K(gradient_row) * of,
                           K(rows_form) form) {
  if (K(QUADS) && !form.mixed && d.n == LANES) {
    K(put_quad)(of->dx, a.j, dx, form.stream);
    return;
  }
  K(put_column)(a, dx.a, of, form);
  K(put_column)(b, dx.b, of, form);
  K(put_column)(c, dx.c, of, form);
  K(put_column)(d, dx.d, of, form);
}

/* Returns the dx of a row, which it adds to the sums. */
INLINE VEC K(take_column)(K(column) * at, K(row_vectors) in, const K(gradient_row) * of, K(rows_form) form) {
  if (at->n == 0) return in.x;
  const VEC dx = K(gradient_column)(*at, in, of, form);
  at->sum = K(add_column)(*at, in, of, form);
  return dx;
}

INLINE void K(finish_column)(K(column) * at, const K(gradient_row) * of, K(rows_form) form) {
  if (at->n == 0) return;
  const K(row_vectors) in = K(load_vectors)(*at, of, form);
  K(put_column)(*at, K(gradient_column)(*at, in, of, form), of, form);
  at->sum = K(add_column)(*at, in, of, form);
}

/* No gain is a gain of one, which changes no bit. */
INLINE VEC K(column_gain)(const K(gradient_rows) * s, int64_t j, int n, K(rows_form) form) {
  if (form.mixed && s->raw_gain) return K(gain)(s->raw_gain, j, n, s->gain_form);
  if (T != REAL_TYPE && s->raw_gain) return K(plain_gain)(s->raw_gain, j, n, s->gain_form.offset);
  return s->gain ? K(load_gain)(s->gain, j, n) : V(set)(1);
}

INLINE void K(fetch_columns)(const K(gradient_rows) * s, int row, int64_t j, int64_t columns, K(rows_form) form) {
  for (int64_t byte = j * T_SIZE; byte < (j + columns) * T_SIZE; byte += 64) {
    vec_prefetch(s->x[row] + s->ahead_x + byte);
    if (!form.mixed) vec_prefetch(s->dy[row] + s->ahead_dy + byte);
  }
  const int64_t size = K(size_of)(s->dy_type);
  for (int64_t byte = j * size; form.mixed && byte < (j + columns) * size; byte += 64)
    vec_prefetch(s->dy[row] + s->ahead_dy + byte);
}

INLINE int K(at_most_a_vector)(int64_t n) {
  return n > LANES ? LANES : n > 0 ? (int)n : 0;
}

INLINE K(column) K(open_column)(const K(gradient_rows) * s, int64_t j, int64_t left, K(rows_form) form) {
  VEC zero = V(set)(0);
  K(column) c = {{zero, zero}, zero, j, K(at_most_a_vector)(left), K(at_most_a_vector)(s->k - j)};
  if (c.n == 0) return c;
  c.gain = K(column_gain)(s, j, c.n, form);
  if (form.sums) c.sum.dweight = V(load)(s->dweight + j, REAL_TYPE, 0);
  if (form.sums && form.layer) c.sum.dbias = V(load)(s->dbias + j, REAL_TYPE, 0);
  return c;
}

INLINE void K(close_column)(const K(gradient_rows) * s, K(column) c, K(rows_form) form) {
  if (c.n > 0 && form.sums) V(store)(s->dweight + c.j, c.sum.dweight, REAL_TYPE, 0);
  if (c.n > 0 && form.sums && form.layer) V(store)(s->dbias + c.j, c.sum.dbias, REAL_TYPE, 0);
}

/* Two or four vectors of columns; n is 0 in those that are not there. */
typedef struct {
  K(column) a, b, c, d;
} K(span);

typedef struct {
  K(row_vectors) a, b, c, d;
} K(span_vectors);

INLINE K(span_vectors) K(load_span)(const K(span) * at, const K(gradient_row) * of, K(rows_form) form) {
  K(span_vectors) in;
  in.a = in.b = in.c = in.d = K(load_vectors)(at->a, of, form);
  if (at->b.n > 0) in.b = K(load_vectors)(at->b, of, form);
  if (at->c.n > 0) in.c = K(load_vectors)(at->c, of, form);
  if (at->d.n > 0) in.d = K(load_vectors)(at->d, of, form);
  return in;
}

/* A row whose vectors are loaded. Those of the next one, if there is one, are loaded before the first store. */
INLINE K(span_vectors) K(finish_loaded)(K(span) * at, K(span_vectors) in, const K(gradient_row) * of,
                                        const K(gradient_row) * next, bool more, K(rows_form) form) {
  const VEC a = K(take_column)(&at->a, in.a, of, form), b = K(take_column)(&at->b, in.b, of, form);
  const VEC c = K(take_column)(&at->c, in.c, of, form), d = K(take_column)(&at->d, in.d, of, form);
  if (more) in = K(load_span)(at, next, form);
  K(put_columns)(at->a, at->b, at->c, at->d, (K(lanes)){a, b, c, d}, of, form);
  return in;
}

/* All rows: see K(TOGETHER). */
INLINE void K(finish_together)(const K(gradient_rows) * s, K(span) * at, int64_t j, int64_t left, K(rows_form) form) {
  K(rows_form) unscaled = form;
  unscaled.scaled = false;
  K(gradient_row) of = K(open_row)(s, s->first, form);
  K(span_vectors) in = K(load_span)(at, &of, form);
  for (int row = s->first; row < s->count; row++) {
    const bool more = row + 1 < s->count;
    const K(gradient_row) next = K(open_row)(s, more ? row + 1 : row, form);
    if (s->ahead_dy) K(fetch_columns)(s, row, j, left, form);
    if (form.scaled && s->scaled >> row & 1)
      in = K(finish_loaded)(at, in, &of, &next, more, form);
    else
      in = K(finish_loaded)(at, in, &of, &next, more, unscaled);
    of = next;
  }
}

INLINE void K(finish_columns_of)(K(span) * at, const K(gradient_row) * of, K(rows_form) form) {
  K(finish_column)(&at->a, of, form);
  K(finish_column)(&at->b, of, form);
  K(finish_column)(&at->c, of, form);
  K(finish_column)(&at->d, of, form);
}

INLINE void K(finish_one_by_one)(const K(gradient_rows) * s, K(span) * at, int64_t j, int64_t left, K(rows_form) form) {
  const int count = s->count;
  K(rows_form) unscaled = form;
  unscaled.scaled = false;
  for (int row = s->first; row < count; row++) {
    const K(gradient_row) of = K(open_row)(s, row, form);
    if (s->ahead_dy) K(fetch_columns)(s, row, j, left, form);
    if (form.scaled && s->scaled >> row & 1)
      K(finish_columns_of)(at, &of, form);
    else
      K(finish_columns_of)(at, &of, unscaled);
  }
}

/* Columns j..j+left-1, of which there may be as many as fit in the registers: two or four vectors. */
INLINE void K(finish_span)(const K(gradient_rows) * s, int64_t j, int64_t left, int vectors, K(rows_form) form) {
  K(span)
  at = {K(open_column)(s, j, left, form), K(open_column)(s, j + LANES, left - LANES, form),
        K(open_column)(s, j + 2 * LANES, vectors == 4 ? left - 2 * LANES : 0, form),
        K(open_column)(s, j + 3 * LANES, vectors == 4 ? left - 3 * LANES : 0, form)};
  if (K(TOGETHER) && (s->together || (K(QUADS) && !form.mixed)))
    K(finish_together)(s, &at, j, left, form);
  else
    K(finish_one_by_one)(s, &at, j, left, form);
  K(close_column)(s, at.a, form);
  K(close_column)(s, at.b, form);
  K(close_column)(s, at.c, form);
  K(close_column)(s, at.d, form);
}

/* Whether dx lies close behind x or dy, those of its row or of the next one; or past the caches, where stores wait so
 * long that they may hold up the loads of rows further down. */
INLINE bool K(rows_go_together)(const K(gradient_rows) * s) {
  const int next = s->count > 1 ? 1 : 0;
  return K(TOGETHER) && (s->stream || K(is_close_behind)(s->dx[0], s->x[0]) || K(is_close_behind)(s->dx[0], s->dy[0]) ||
                         K(is_close_behind)(s->dx[0], s->x[next]) || K(is_close_behind)(s->dx[0], s->dy[next]));
}

/* The vectors that are finished together. */
INLINE int K(span_of)(K(rows_form) form) {
  return (form.scaled || form.layer) && VEC_REGISTERS < 16 ? 2 : 4;
}

INLINE void K(finish_columns)(const K(gradient_rows) * s, int64_t from, K(rows_form) form) {
  const int vectors = K(span_of)(form);
  const int64_t span = vectors * LANES, to = s->to;
  int64_t j = from;
  for (; j + span <= to; j += span)
    K(finish_span)(s, j, span, vectors, form);
  if (j < to) K(finish_span)(s, j, to - j, vectors, form);
}

/* The same where the first k < width columns are in the statistic. */
INLINE void K(finish_partial)(const K(gradient_rows) * s, K(rows_form) form) {
  const int vectors = K(span_of)(form);
  const int64_t span = vectors * LANES, to = s->to, inside = s->k < to ? s->k : to;
  int64_t j = s->from;
  for (; j + span <= inside; j += span)
    K(finish_span)(s, j, span, vectors, form);
  form.edge = true;
  if (j < inside && j + span <= to)
    K(finish_span)(s, j, span, vectors, form);
  else if (j < inside)
    K(finish_span)(s, j, to - j, vectors, form);
  if (j < inside) j += span;
  form.edge = false;
  form.outside = true;
  if (j < to) K(finish_columns)(s, j, form);
}

NOINLINE void K(rows_rms)(const K(gradient_rows) * s) {
  K(finish_columns)(s, s->from, (K(rows_form)){.sums = true});
}

NOINLINE void K(rows_rms_stream)(const K(gradient_rows) * s) {
  K(finish_columns)(s, s->from, (K(rows_form)){.sums = true, .stream = true});
}

NOINLINE void K(rows_before)(const K(gradient_rows) * s) {
  K(finish_columns)
  (s, s->from, (K(rows_form)){.sums = true, .stream = s->stream, .before = true, .product = s->product});
}

NOINLINE void K(rows_before_dx)(const K(gradient_rows) * s) {
  K(finish_columns)(s, s->from, (K(rows_form)){.stream = s->stream, .before = true});
}

NOINLINE void K(rows_layer)(const K(gradient_rows) * s) {
  K(finish_columns)(s, s->from, (K(rows_form)){.layer = true, .sums = true, .stream = s->stream});
}

NOINLINE void K(rows_partial)(const K(gradient_rows) * s) {
  if (s->stream)
    K(finish_partial)(s, (K(rows_form)){.sums = true, .stream = true});
  else
    K(finish_partial)(s, (K(rows_form)){.sums = true});
}

NOINLINE void K(rows_partial_dx)(const K(gradient_rows) * s) {
  K(finish_partial)(s, (K(rows_form)){.stream = s->stream});
}

NOINLINE void K(rows_rms_dx)(const K(gradient_rows) * s) {
  K(finish_columns)(s, s->from, (K(rows_form)){.stream = s->stream});
}

NOINLINE void K(rows_layer_dx)(const K(gradient_rows) * s) {
  K(finish_columns)(s, s->from, (K(rows_form)){.layer = true, .stream = s->stream});
}

NOINLINE void K(rows_mixed)(const K(gradient_rows) * s, bool layer) {
  K(rows_form) form = {.sums = s->dweight != NULL, .stream = s->stream, .mixed = true};
  form.before = s->before;
  form.product = s->product;
  if (s->k < s->width) {
    K(finish_partial)(s, form);
  } else if (layer) {
    form.layer = true;
    K(finish_columns)(s, s->from, form);
  } else {
    K(finish_columns)(s, s->from, form);
  }
}

/* Some of which must be scaled. All columns are taken for the edge of the statistic: less code. */
NOINLINE void K(rows_scaled)(const K(gradient_rows) * s, bool layer) {
  K(rows_form) form = {.sums = s->dweight != NULL, .stream = s->stream, .before = T != REAL_TYPE && s->before};
  form.product = s->product;
  form.scaled = true;
  if (layer) {
    form.layer = true;
    K(finish_columns)(s, s->from, form);
  } else {
    form.edge = true;
    K(finish_columns)(s, s->from, form);
  }
}

static void K(write_gradient_rows)(const K(gradient_rows) * s, bool layer) {
  const bool partial = s->k < s->width;
  if (s->scaled)
    K(rows_scaled)(s, layer);
  else if (s->mixed)
    K(rows_mixed)(s, layer);
  else if (!s->dweight && s->before)
    K(rows_before_dx)(s);
  else if (s->before)
    K(rows_before)(s);
  else if (!s->dweight && partial)
    K(rows_partial_dx)(s);
  else if (partial)
    K(rows_partial)(s);
  else if (!s->dweight && layer)
    K(rows_layer_dx)(s);
  else if (!s->dweight)
    K(rows_rms_dx)(s);
  else if (layer)
    K(rows_layer)(s);
  else if (s->stream)
    K(rows_rms_stream)(s);
  else
    K(rows_rms)(s);
}

INLINE void K(add_gradient_row)(K(gradient_rows) * rows, const K(gradient) * s, K(statistic) st, K(coefficients) co) {
  const int row = rows->count++;
  rows->x[row] = s->x.x;
  rows->dy[row] = s->dy;
  rows->dx[row] = s->dx;
  rows->r[row] = st.r;
  rows->mean[row] = st.mean;
  rows->c[row] = co.c;
  rows->a[row] = co.a;
  rows->b[row] = co.b;
}
