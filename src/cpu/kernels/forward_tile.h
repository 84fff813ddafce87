/* SPDX-License-Identifier: MIT
 *
 * The forward of tiles (tile.h): RMSNorm and LayerNorm of x with a weight and a bias. The same arithmetic as
 * forward_common.h. */

/* The statistics of a tile's rows, in the order of the rows. */
typedef struct {
  REAL sum[K(TILE)], mean[K(TILE)], r[K(TILE)];
} K(tile_statistics);

/* Whether all rows of which the sums are zero are rows of zeros, or their squares are so far below eps that it does not
 * matter. */
NOINLINE bool K(has_zero_rows)(const rms_layout *lay, const K(tile) * t, const K(tile_statistics) * s) {
  if (K(eps)(lay) == 0) return false;
  if (K(outweighs_zero)(lay)) return true;
  REAL most[K(TILE)];
  for (int v = 0; v * LANES < t->rows; v++) {
    VEC m = V(set)(0);
    for (int64_t c = 0; c < lay->k; c++)
      m = V(max_bits)(m, K(load)(t->x + c * t->step, v * LANES, K(rows_in)(t, v), false));
    V(store)((char *)(most + v * LANES), m, REAL_TYPE, EO);
  }
  for (int i = 0; i < t->rows; i++)
    if (s->sum[i] == 0 && most[i] != 0) return false;
  return true;
}

/* Whether every sum may be taken as it is. */
static bool K(is_tile_in_range)(const rms_layout *lay, const K(tile) * t, const K(tile_statistics) * s) {
  int in_range = 1, calm = 1;
  for (int i = 0; i < K(TILE); i++) {
    const int in = (s->sum[i] >= TINY) & (s->sum[i] <= REAL_MAX);
    in_range &= in;
    calm &= in | (s->sum[i] == 0);
  }
  return in_range || (calm && K(has_zero_rows)(lay, t, s));
}

/* r of all rows, in loops that the compiler makes vectors of. Zeros come here beside an eps alone. */
static void K(finish_tile)(const rms_layout *lay, K(tile_statistics) * s) {
  const REAL k = (REAL)lay->k, eps = K(eps)(lay);
  REAL root[K(TILE)];
  const bool inside = lay->eps_place == RMS_EPS_INSIDE, clamp = lay->eps_place == RMS_EPS_CLAMP;
  const REAL in = inside ? eps : 0, out = inside || clamp ? 0 : eps, least = clamp ? eps : 0;
  for (int i = 0; i < K(TILE); i++)
    root[i] = SQRT(s->sum[i] / k + in) + out;
  for (int i = 0; i < K(TILE); i++)
    s->r[i] = 1 / (root[i] < least ? least : root[i]);
}

static bool K(measure_tile)(const rms_layout *lay, const K(tile) * t, K(tile_statistics) * s) {
  VEC sums[K(SIDE)], mean[K(SIDE)];
  const VEC k = V(set)((REAL)lay->k);
  const bool layer = lay->kind == RMS_KIND_LAYER;
  if (layer) K(sum_rows)(sums, t, lay->k);
  for (int v = 0; layer && v * LANES < t->rows; v++)
    mean[v] = V(div)(sums[v], k);
  K(square_rows)(sums, t, lay->k, layer ? mean : NULL);
  for (int v = 0; v * LANES < t->rows; v++) {
    V(store)((char *)(s->sum + v * LANES), sums[v], REAL_TYPE, EO);
    if (layer) V(store)((char *)(s->mean + v * LANES), mean[v], REAL_TYPE, EO);
  }
  for (int i = t->rows; i < K(TILE); i++)
    s->sum[i] = 1;
  if (!K(is_tile_in_range)(lay, t, s)) return false;
  K(finish_tile)(lay, s);
  return true;
}

/* What a tile is written with. gain and bias: in lane order. */
typedef struct {
  K(tile) from;
  const REAL *gain, *bias;
  char *y;
  int64_t step, width;
  bool before, product, stream;
} K(tile_output);

INLINE REAL K(gain_at)(const REAL *gain, int64_t c) {
  return gain[EO ? c - c % LANES + V(lane)((int)(c % LANES), EO) : c];
}

INLINE VEC K(tile_value)(const K(tile_output) * o, const char *x, int vector, int n, VEC r, VEC mean, VEC g, VEC b,
                         bool layer, bool before) {
  VEC h = K(load)(x, vector * LANES, n, false);
  if (layer) h = V(sub)(h, mean);
  h = V(mul)(h, r);
  if (before) {
    h = V(mul)(V(round_clean)(h, T), g);
    if (o->product) h = V(round_clean)(h, T);
    h = V(add)(h, b);
  } else {
    h = V(fma)(h, g, b);
  }
  return h;
}

INLINE void K(write_in_tile)(const K(tile_output) * o, const char *x, char *y, int vector, int n, VEC r, VEC mean,
                             VEC g, VEC b, bool layer, bool before) {
  K(put_clean)(y, vector * LANES, n, K(tile_value)(o, x, vector, n, r, mean, g, b, layer, before), o->stream);
}

INLINE void K(write_tile)(const K(tile_output) * given, const K(tile_statistics) * s, int first, int vectors, int n,
                          bool layer, bool before) {
  const K(tile_output) o = *given; /* a copy that no store can change */
  const VEC zero = V(set)(0);
  K(side) r = {{zero, zero, zero, zero}}, mean = r;
  for (int v = 0; v < vectors; v++) {
    r.of[v] = V(load)((const char *)(s->r + (first + v) * LANES), REAL_TYPE, EO);
    if (layer) mean.of[v] = V(load)((const char *)(s->mean + (first + v) * LANES), REAL_TYPE, EO);
  }
  const char *x = o.from.x;
  char *y = o.y;
  for (int64_t c = 0; c < o.width; c++, x += o.from.step, y += o.step) {
    const VEC g = V(set)(K(gain_at)(o.gain, c)), b = V(set)(K(gain_at)(o.bias, c));
    if (vectors > 1) /* of the tile that is read next */
      for (int64_t byte = 0; byte < K(TILE) * T_SIZE; byte += 64)
        vec_prefetch(x + K(TILE) * T_SIZE + byte);
    if (K(QUADS) && vectors > 1) {
      const K(lanes) h = {K(tile_value)(&o, x, 0, n, r.of[0], mean.of[0], g, b, layer, before),
                          K(tile_value)(&o, x, 1, n, r.of[1], mean.of[1], g, b, layer, before),
                          K(tile_value)(&o, x, 2, n, r.of[2], mean.of[2], g, b, layer, before),
                          K(tile_value)(&o, x, 3, n, r.of[3], mean.of[3], g, b, layer, before)};
      K(put_quad)(y, 0, h, o.stream);
      continue;
    }
    K(write_in_tile)(&o, x, y, first, n, r.of[0], mean.of[0], g, b, layer, before);
    if (vectors == 1) continue;
    K(write_in_tile)(&o, x, y, 1, n, r.of[1], mean.of[1], g, b, layer, before);
    K(write_in_tile)(&o, x, y, 2, n, r.of[2], mean.of[2], g, b, layer, before);
    K(write_in_tile)(&o, x, y, 3, n, r.of[3], mean.of[3], g, b, layer, before);
  }
}

NOINLINE void K(write_rms_tile)(const K(tile_output) * o, const K(tile_statistics) * s) {
  K(write_tile)(o, s, 0, K(SIDE), LANES, false, false);
}

NOINLINE void K(write_layer_tile)(const K(tile_output) * o, const K(tile_statistics) * s) {
  K(write_tile)(o, s, 0, K(SIDE), LANES, true, false);
}

/* Where h is rounded before the weight, in a whole tile. */
NOINLINE void K(write_tile_before)(const K(tile_output) * o, const K(tile_statistics) * s, bool layer) {
  if (layer)
    K(write_tile)(o, s, 0, K(SIDE), LANES, true, true);
  else
    K(write_tile)(o, s, 0, K(SIDE), LANES, false, true);
}

/* One vector of a tile that is not whole, which need not begin with a line. */
NOINLINE void K(write_some)(const K(tile_output) * given, const K(tile_statistics) * s, int vector, bool layer) {
  K(tile_output) o = *given;
  o.stream = false;
  K(write_tile)(&o, s, vector, 1, K(rows_in)(&o.from, vector), layer, o.before);
}

static void K(write_any_tile)(const K(tile_output) * o, const K(tile_statistics) * s, bool layer) {
  if (o->from.rows < K(TILE)) {
    for (int v = 0; v * LANES < o->from.rows; v++)
      K(write_some)(o, s, v, layer);
  } else if (o->before) {
    K(write_tile_before)(o, s, layer);
  } else if (layer) {
    K(write_layer_tile)(o, s);
  } else {
    K(write_rms_tile)(o, s);
  }
}

/* The rows up to the next whole tile of their outer index, or to `last`. */
INLINE int K(tile_rows)(const rms_layout *lay, int64_t row, int64_t last) {
  const int64_t at = row % lay->inner, whole = K(TILE) - at % K(TILE), image = lay->inner - at;
  int64_t rows = whole < image ? whole : image;
  return (int)(rows < last - row ? rows : last - row);
}

KERNEL int64_t K(rms_forward_tiles)(const rms_forward_job *job, int64_t first, int64_t last) {
  const rms_layout *lay = &job->lay;
  REAL room[2][K(GAIN_BYTES) / sizeof(REAL)];
  K(gains) gains;
  K(tile_statistics) s = {.mean = {0}};
  const bool layer = lay->kind == RMS_KIND_LAYER;
  const int64_t pitch = (lay->width + LANES - 1) / LANES * LANES;
  if (pitch > (int64_t)(K(GAIN_BYTES) / sizeof(REAL))) return first;
  K(prepare_gains)(lay, job->bias, last - first, &gains, room);
  if (K(are_raw)(&gains)) return first;
  K(complete_gains)(lay, &gains, true, room);
  K(tile_output) o = {.gain = gains.gain, .bias = gains.bias, .step = job->y.col, .width = lay->width};
  o.before = lay->rounding == RMS_ROUND_BEFORE_WEIGHT && (T != REAL_TYPE || job->bias);
  o.product = !lay->weight_is_f32;
  o.stream = job->stream_y;
  o.from.step = job->x.col;
  for (int rows; first < last; first += rows) {
    const int64_t outer = first / lay->inner, inner = first % lay->inner;
    rows = K(tile_rows)(lay, first, last);
    o.from.x = job->x.data + outer * job->x.outer + inner * T_SIZE;
    o.from.rows = rows;
    o.y = job->y.data + outer * job->y.outer + inner * T_SIZE;
    if (!K(measure_tile)(lay, &o.from, &s)) break;
    K(write_any_tile)(&o, &s, layer);
    if (job->rstd) memcpy((REAL *)job->rstd + first, s.r, (size_t)rows * sizeof(REAL));
    if (job->mean) memcpy((REAL *)job->mean + first, s.mean, (size_t)rows * sizeof(REAL));
  }
  return first;
}
