/* SPDX-License-Identifier: MIT
 *
 * The backward pass of one segment, in two sweeps. The first forms the row sums, the
 * second writes dx and adds to the column sums of dweight and dbias.
 *
 *   u = dy*g                       (before-weight rounding: u = T(dy*g))
 *   RMS:        dx = u*r - c*x,    c = (sum(u*x) * ((r*r)*r)) / k for elements in the statistic, 0 for the others
 *   LayerNorm:  dx = r*((u - b) - h*a),  a = sum(u*h)/n,  b = sum(u)/n
 *
 * A segment whose r or sums leave a safe range is done again with x and dy scaled by exact powers of two:
 * backward_scaled.h.
 *
 * `common` is the job of nearly every model: one rounding, the whole segment in the statistic, nothing added, and dx
 * with dweight (LayerNorm: and dbias) or, `sums` being false, alone. */

typedef struct {
  K(source) x;
  const char *dy, *weight, *dresidual;
  char *dx, *dresidual_out;
  const REAL *gain;      /* the weight + offset in lane order, in the common case      */
  REAL *dweight, *dbias; /* column sums of the current block of rows, in lane order */
  const int64_t *indices;
  int64_t width, k, ahead_x, ahead_dy;
  REAL offset;
  bool weight_is_f32, residual_is_f32, before, add_to_dx, stream_dx, stream_residual;
  REAL dy1, dy2, u1, u2, down[4]; /* scaled: dy is multiplied by dy1*dy2, u by u1*u2, dx by the four factors of down */
} K(gradient);

INLINE VEC K(load_u)(const K(gradient) * s, VEC dy, int64_t j, int n, bool scaled, bool common) {
  VEC u = dy;
  if (common) return s->gain ? V(mul)(u, K(load_gain)(s->gain, j, n)) : u;
  if (scaled && !s->before) u = V(mul)(V(mul)(u, V(set)(s->dy1)), V(set)(s->dy2));
  if (s->weight) u = V(mul)(u, K(gain)(s->weight, j, n, s->offset, s->weight_is_f32));
  if (s->before) u = V(round)(u, T);
  if (scaled) u = V(mul)(V(mul)(u, V(set)(s->u1)), V(set)(s->u2));
  return u;
}

typedef struct {
  REAL ux, u;
} K(row_sums);

typedef struct {
  VEC ux, u;
} K(sum_pair);

INLINE K(sum_pair) K(add_gradient)(K(sum_pair) acc, const K(gradient) * s, int64_t j, VEC mean, VEC r, bool layer,
                                   bool scaled, bool common) {
  VEC u = K(load_u)(s, K(load)(s->dy, j, LANES, false), j, LANES, scaled, common);
  VEC v = K(load_source)(&s->x, j, LANES, false, scaled);
  if (layer) {
    v = V(mul)(V(sub)(v, mean), r);
    acc.u = V(add)(acc.u, u);
  }
  acc.ux = V(fma)(u, v, acc.ux);
  return acc;
}

/* The last, incomplete quad of a segment as a whole one. */
NOINLINE const char *K(pad)(char *to, const char *from, int64_t count, int64_t size) {
  memset(to, 0, (size_t)(K(QUAD) * size));
  memcpy(to, from, (size_t)(count * size));
  return to;
}

/* A gain laid out even/odd is padded to whole vectors, and only whole vectors of it make sense. */
INLINE int64_t K(gain_left)(int64_t left) {
  return EO ? (left + LANES - 1) / LANES * LANES : left;
}

/* sum(u*x), or sum(u*h) and sum(u), over the elements first..to-1, which are at most a stretch. */
INLINE K(row_sums) K(sum_gradient_stretch)(const K(gradient) * s, int64_t first, int64_t to, VEC r, VEC mean,
                                           bool layer, bool scaled, bool common) {
  VEC zero = V(set)(0);
  K(sum_pair) a = {zero, zero}, b = a, c = a, d = a;
  K(gradient) at = *s;
  if (common) at.x.x_is_f32 = false;
  for (int64_t j = first; j < to; j += K(QUAD)) {
    char x[256], dy[256], w[256];
    int64_t left = to - j, from = j;
    if (left < K(QUAD)) {
      int64_t x_size = at.x.x_is_f32 ? 4 : T_SIZE, w_size = s->weight_is_f32 ? 4 : T_SIZE;
      at.x.x = K(pad)(x, s->x.x + j * x_size, left, x_size);
      at.dy = K(pad)(dy, s->dy + j * T_SIZE, left, T_SIZE);
      if (common && s->gain)
        at.gain = (const REAL *)(const void *)K(pad)(w, (const char *)(s->gain + j), K(gain_left)(left), sizeof(REAL));
      else if (!common && s->weight)
        at.weight = K(pad)(w, s->weight + j * w_size, left, w_size);
      from = 0;
    }
    a = K(add_gradient)(a, &at, from, mean, r, layer, scaled, common);
    b = K(add_gradient)(b, &at, from + LANES, mean, r, layer, scaled, common);
    c = K(add_gradient)(c, &at, from + 2 * LANES, mean, r, layer, scaled, common);
    d = K(add_gradient)(d, &at, from + 3 * LANES, mean, r, layer, scaled, common);
  }
  K(row_sums) sums = {V(sum4)(a.ux, b.ux, c.ux, d.ux, EO), 0};
  if (layer) sums.u = V(sum4)(a.u, b.u, c.u, d.u, EO);
  return sums;
}

/* The same over the whole segment. */
INLINE K(row_sums) K(sum_gradient)(const K(gradient) * s, K(statistic) st, bool layer, bool scaled, bool common) {
  VEC r = V(set)(st.r), mean = V(set)(st.mean);
  double ux = 0, u = 0;
  for (int64_t from = 0;; from += K(STRETCH)) {
    bool last = s->width - from <= K(STRETCH);
    int64_t to = last ? s->width : from + K(STRETCH);
    K(row_sums) sums = K(sum_gradient_stretch)(s, from, to, r, mean, layer, scaled, common);
    if (last && from == 0) return sums;
    ux += (double)sums.ux;
    u += (double)sums.u;
    if (last) return (K(row_sums)){(REAL)ux, (REAL)u};
  }
}

NOINLINE K(row_sums) K(sums_rms)(const K(gradient) * s, K(statistic) st) {
  return K(sum_gradient)(s, st, false, false, true);
}

NOINLINE K(row_sums) K(sums_layer)(const K(gradient) * s, K(statistic) st) {
  return K(sum_gradient)(s, st, true, false, true);
}

NOINLINE K(row_sums) K(sums_any)(const K(gradient) * s, K(statistic) st, bool layer) {
  return K(sum_gradient)(s, st, layer, false, false);
}

NOINLINE K(row_sums) K(sums_scaled)(const K(gradient) * s, K(statistic) st, bool layer) {
  return K(sum_gradient)(s, st, layer, true, false);
}

/* dx = u*r - c*x, or r*((u - b) - h*a). */
typedef struct {
  REAL c, a, b;
} K(coefficients);

static inline K(coefficients) K(coefficients_of)(const rms_layout *lay, K(statistic) st, K(row_sums) sums) {
  K(coefficients) co = {0, 0, 0};
  bool inside = lay->eps_place == RMS_EPS_INSIDE;
  if (lay->kind == RMS_KIND_LAYER) {
    co.a = sums.ux / st.k;
    co.b = sums.u / st.k;
    if (!inside) co.a = st.rms == 0 ? 0 : co.a / (st.r * st.rms);
  } else if (inside) {
    co.c = sums.ux == 0 ? 0 : (sums.ux * ((st.r * st.r) * st.r)) / st.k;
  } else {
    co.c = st.rms == 0 ? 0 : ((sums.ux * (st.r * st.r)) / st.rms) / st.k;
  }
  return co;
}

/* c in the lanes of elements that are in the statistic, 0 in the others. `next` walks the index list. */
INLINE VEC K(mask_statistic)(const K(gradient) * s, REAL c, int64_t j, int64_t *next) {
  if (!s->indices && j + LANES <= s->k) return V(set)(c);
  if (!s->indices && j >= s->k) return V(set)(0);
  REAL lane[LANES] = {0};
  if (s->indices)
    for (; *next < s->k && s->indices[*next] < j + LANES; ++*next)
      lane[V(lane)((int)(s->indices[*next] - j), EO)] = c;
  else
    for (int i = 0; j + i < s->k; i++)
      lane[V(lane)(i, EO)] = c;
  return V(load)(lane, REAL_TYPE, 0);
}

INLINE void K(add_to_block)(REAL *block, int64_t j, VEC term) {
  V(store)(block + j, V(add)(V(load)(block + j, REAL_TYPE, 0), term), REAL_TYPE, 0);
}

INLINE VEC K(dweight_term)(const K(gradient) * s, VEC dy, VEC h, bool common) {
  if (common || !s->before) return V(mul)(dy, h);
  VEC term = V(mul)(dy, V(round)(h, T));
  return s->weight_is_f32 ? term : V(round)(term, T);
}

typedef struct {
  VEC r, mean, c, a, b;
  REAL c_inside; /* c, for elements that are in the statistic of a partial one */
} K(gradient_constants);

/* What a sweep writes: known at the call, so that the branches on it vanish. */
typedef struct {
  bool layer, scaled, common, sums, stream;
} K(sweep);

INLINE void K(gradient_vector)(const K(gradient) * s, K(gradient_constants) k, int64_t j, int n, int64_t *next,
                               K(sweep) w) {
  VEC dy = K(load)(s->dy, j, n, false), u = K(load_u)(s, dy, j, n, w.scaled, w.common), h, dx;
  VEC v = K(load_source)(&s->x, j, n, false, w.scaled);
  if (w.layer) {
    h = V(mul)(V(sub)(v, k.mean), k.r);
    dx = V(mul)(k.r, V(sub)(V(sub)(u, k.b), V(mul)(h, k.a)));
  } else {
    h = V(mul)(v, k.r);
    dx = V(sub)(V(mul)(u, k.r), V(mul)(w.common ? k.c : K(mask_statistic)(s, k.c_inside, j, next), v));
  }
  if (w.scaled)
    for (int i = 0; i < 4; i++)
      dx = V(mul)(dx, V(set)(s->down[i]));
  if (!w.common && s->dresidual) dx = V(add)(dx, K(load)(s->dresidual, j, n, s->residual_is_f32));
  if (!w.common && s->add_to_dx) dx = V(add)(dx, K(load)(s->dx, j, n, false));
  if (w.common)
    K(put_clean)(s->dx, j, n, dx, w.stream);
  else if (s->dx)
    K(put)(s->dx, j, n, dx, false, w.stream);
  if (!w.common && s->dresidual_out) K(put)(s->dresidual_out, j, n, dx, s->residual_is_f32, s->stream_residual);
  if (w.common ? w.sums : s->dweight != NULL) K(add_to_block)(s->dweight, j, K(dweight_term)(s, dy, h, w.common));
  if (w.common ? w.sums && w.layer : s->dbias != NULL) K(add_to_block)(s->dbias, j, dy);
}

/* Elements from..to-1; `from` is a whole number of vectors. */
INLINE void K(write_gradient)(const K(gradient) * given, K(statistic) st, K(coefficients) co, int64_t from, int64_t to,
                              K(sweep) w) {
  K(gradient) s = *given; /* a copy that no store can change: its members stay in registers */
  if (w.common) s.x.x_is_f32 = false;
  K(gradient_constants) k = {V(set)(st.r), V(set)(st.mean), V(set)(co.c), V(set)(co.a), V(set)(co.b), co.c};
  int64_t j = from, next = 0;
  for (; j + LANES <= to; j += LANES) {
    if (s.ahead_dy) {
      vec_prefetch(s.x.x + s.ahead_x + j * T_SIZE);
      vec_prefetch(s.dy + s.ahead_dy + j * T_SIZE);
    }
    K(gradient_vector)(&s, k, j, LANES, &next, w);
  }
  if (j < to) K(gradient_vector)(&s, k, j, (int)(to - j), &next, w);
}

NOINLINE void K(write_rms)(const K(gradient) * s, K(statistic) st, K(coefficients) co, int64_t from, int64_t to) {
  K(write_gradient)(s, st, co, from, to, (K(sweep)){.common = true, .sums = true});
}

NOINLINE void K(write_rms_stream)(const K(gradient) * s, K(statistic) st, K(coefficients) co, int64_t from,
                                  int64_t to) {
  K(write_gradient)(s, st, co, from, to, (K(sweep)){.common = true, .sums = true, .stream = true});
}

NOINLINE void K(write_layer)(const K(gradient) * s, K(statistic) st, K(coefficients) co, int64_t from, int64_t to) {
  const K(sweep) w = {.layer = true, .common = true, .sums = true, .stream = s->stream_dx};
  K(write_gradient)(s, st, co, from, to, w);
}

NOINLINE void K(write_rms_dx)(const K(gradient) * s, K(statistic) st, K(coefficients) co, int64_t from, int64_t to) {
  K(write_gradient)(s, st, co, from, to, (K(sweep)){.common = true, .stream = s->stream_dx});
}

NOINLINE void K(write_layer_dx)(const K(gradient) * s, K(statistic) st, K(coefficients) co, int64_t from, int64_t to) {
  K(write_gradient)(s, st, co, from, to, (K(sweep)){.layer = true, .common = true, .stream = s->stream_dx});
}

INLINE void K(write_common_gradient)(const K(gradient) * s, K(statistic) st, K(coefficients) co, bool layer,
                                     int64_t from, int64_t to) {
  if (!s->dweight && layer)
    K(write_layer_dx)(s, st, co, from, to);
  else if (!s->dweight)
    K(write_rms_dx)(s, st, co, from, to);
  else if (layer)
    K(write_layer)(s, st, co, from, to);
  else if (s->stream_dx)
    K(write_rms_stream)(s, st, co, from, to);
  else
    K(write_rms)(s, st, co, from, to);
}

NOINLINE void K(write_any)(const K(gradient) * s, K(statistic) st, K(coefficients) co, bool layer) {
  K(write_gradient)(s, st, co, 0, s->width, (K(sweep)){.layer = layer, .stream = s->stream_dx});
}

NOINLINE void K(write_scaled)(const K(gradient) * s, K(statistic) st, K(coefficients) co, bool layer) {
  K(write_gradient)(s, st, co, 0, s->width, (K(sweep)){.layer = layer, .scaled = true, .stream = s->stream_dx});
}

INLINE bool K(r_in_range)(K(statistic) st) {
  return st.e == 0 && st.r >= R_LEAST && st.r <= R_MOST && st.mean == st.mean;
}

INLINE bool K(sums_in_range)(K(row_sums) s) {
  REAL a = s.ux < 0 ? -s.ux : s.ux, b = s.u < 0 ? -s.u : s.u;
  return (a >= SUM_LEAST || b >= SUM_LEAST) && a <= SUM_MOST && b <= SUM_MOST;
}

/* c multiplies four values that are each in range: it may leave the range all the same. */
INLINE bool K(c_in_range)(K(coefficients) co) {
  REAL a = ABS(co.c);
  return a >= TINY && a <= 1 / TINY;
}
