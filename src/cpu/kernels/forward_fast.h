/* SPDX-License-Identifier: MIT
 *
 * Fifth part of the kernel template: the forward pass with one rounding after the weight, which nearly every model
 * uses. The same arithmetic as forward.h in another order of work:
 *
 * - weight + offset, and the bias, are laid out once per call as REAL in lane order;
 *
 * - a few short segments are measured together, then finished, then written, so that the divisions and roots of one
 *   overlap with the sums of the others;
 *
 * - past the caches, while a wide segment is written the next one is fetched into the second-level cache.
 */

enum { K(GAIN_BYTES) = 16 * 1024, K(WIDE_BYTES) = 8 * 1024, K(GROUP_BYTES) = 128 * 1024 };

typedef struct {
  const REAL *gain, *bias; /* NULL: absent                                     */
  int64_t inner, group;    /* elements from one inner index or group to the next */
} K(gains);

typedef struct {
  K(source) src;
  const REAL *gain, *bias;
  char *y, *residual_out;
  int64_t width, ahead; /* ahead: bytes from x to what should be fetched early; 0: nothing */
  bool stream_y, stream_residual;
} K(strip);

/* Which of gain and bias there are: known at the call, or looked at for each vector. */
enum { K(GAIN), K(GAIN_BIAS), K(ANY) };

INLINE VEC K(apply_gain)(const K(strip) * s, VEC h, int64_t j, int n, int form) {
  if (form == K(GAIN)) return V(mul)(h, K(load_gain)(s->gain, j, n));
  if (form == K(GAIN_BIAS) || (s->gain && s->bias))
    return V(fma)(h, K(load_gain)(s->gain, j, n), K(load_gain)(s->bias, j, n));
  if (s->gain) return V(mul)(h, K(load_gain)(s->gain, j, n));
  return s->bias ? V(add)(h, K(load_gain)(s->bias, j, n)) : h;
}

INLINE void K(strip_vector)(const K(strip) * s, VEC r, VEC mean, int64_t j, int n, bool layer, bool residual, int form,
                            bool stream) {
  VEC v = K(load_source)(&s->src, j, n, residual, false);
  if (residual && s->residual_out) K(put)(s->residual_out, j, n, v, s->src.residual_is_f32, s->stream_residual);
  if (layer) v = V(sub)(v, mean);
  K(put_clean)(s->y, j, n, K(apply_gain)(s, V(mul)(v, r), j, n, form), stream);
}

INLINE void K(strip_loop)(const K(strip) * given, REAL r_, REAL mean_, bool layer, bool residual, int form,
                          bool stream) {
  K(strip) s = *given; /* a copy that no store can change: its members stay in registers */
  s.src.x_is_f32 = false;
  VEC r = V(set)(r_), mean = V(set)(mean_);
  int64_t j = 0, width = s.width;
  for (; j + K(BLOCK) <= width; j += K(BLOCK)) {
    if (s.ahead)
      for (int64_t line = 0; line < K(BLOCK) * T_SIZE; line += 64)
        vec_prefetch(s.src.x + s.ahead + j * T_SIZE + line);
    K(strip_vector)(&s, r, mean, j, LANES, layer, residual, form, stream);
    K(strip_vector)(&s, r, mean, j + LANES, LANES, layer, residual, form, stream);
    K(strip_vector)(&s, r, mean, j + 2 * LANES, LANES, layer, residual, form, stream);
    K(strip_vector)(&s, r, mean, j + 3 * LANES, LANES, layer, residual, form, stream);
  }
  for (; j + LANES <= width; j += LANES)
    K(strip_vector)(&s, r, mean, j, LANES, layer, residual, form, stream);
  if (j < width) K(strip_vector)(&s, r, mean, j, (int)(width - j), layer, residual, form, stream);
}

NOINLINE void K(strip_rms)(const K(strip) * s, REAL r) {
  K(strip_loop)(s, r, 0, false, false, K(GAIN), false);
}

NOINLINE void K(strip_rms_stream)(const K(strip) * s, REAL r) {
  K(strip_loop)(s, r, 0, false, false, K(GAIN), true);
}

NOINLINE void K(strip_layer)(const K(strip) * s, REAL r, REAL mean) {
  K(strip_loop)(s, r, mean, true, false, K(GAIN_BIAS), false);
}

NOINLINE void K(strip_layer_stream)(const K(strip) * s, REAL r, REAL mean) {
  K(strip_loop)(s, r, mean, true, false, K(GAIN_BIAS), true);
}

NOINLINE void K(strip_residual)(const K(strip) * s, REAL r) {
  K(strip_loop)(s, r, 0, false, true, K(GAIN), s->stream_y);
}

NOINLINE void K(strip_any)(const K(strip) * s, REAL r, REAL mean, bool layer) {
  K(strip_loop)(s, r, mean, layer, s->src.residual != NULL, K(ANY), s->stream_y);
}

INLINE void K(write_strip)(const K(strip) * s, K(statistic) st, bool layer) {
  if (!s->gain || (s->bias != NULL) != layer || (layer && s->src.residual))
    K(strip_any)(s, st.r, st.mean, layer);
  else if (s->src.residual)
    K(strip_residual)(s, st.r);
  else if (layer && s->stream_y)
    K(strip_layer_stream)(s, st.r, st.mean);
  else if (layer)
    K(strip_layer)(s, st.r, st.mean);
  else if (s->stream_y)
    K(strip_rms_stream)(s, st.r);
  else
    K(strip_rms)(s, st.r);
}

INLINE K(source) K(open_source)(const rms_forward_job *job, const rms_cursor *at) {
  const rms_layout *lay = &job->lay;
  K(source) src = {rms_segment(&job->x, at, lay, T_SIZE), NULL, false, lay->residual_is_f32, 1, 1};
  if (job->residual.data) src.residual = rms_segment(&job->residual, at, lay, lay->residual_is_f32 ? 4 : T_SIZE);
  return src;
}

INLINE K(strip) K(open_strip)(const rms_forward_job *job, const rms_cursor *at, const K(gains) * gains) {
  const rms_layout *lay = &job->lay;
  int64_t gain_at = at->inner * gains->inner + at->group * gains->group;
  K(strip) s = {K(open_source)(job, at), gains->gain, gains->bias, NULL, NULL, lay->width, 0, false, false};
  if (s.gain) s.gain += gain_at;
  if (s.bias) s.bias += gain_at;
  s.y = rms_segment(&job->y, at, lay, T_SIZE);
  s.stream_y = job->stream_y;
  if (job->residual_out.data) {
    s.residual_out = rms_segment(&job->residual_out, at, lay, lay->residual_is_f32 ? 4 : T_SIZE);
    s.stream_residual = job->stream_residual;
  }
  return s;
}

/* Rows for forward_short.h: RMSNorm with a weight and nothing else. */
static bool K(is_short_rms)(const rms_forward_job *job, const K(gains) * gains) {
  return job->lay.kind == RMS_KIND_RMS && gains->gain && !gains->bias && !job->residual.data && !job->lay.indices &&
         !job->rstd && !job->mean && job->lay.groups == 1 && job->lay.eps_place == RMS_EPS_INSIDE;
}

/* As many segments as fit in the room, at least one, at most a batch. */
static int64_t K(fit)(int64_t room, int64_t bytes) {
  return bytes * K(BATCH) <= room ? K(BATCH) : bytes <= room ? room / bytes : 1;
}

/* How many segments are measured before they are written. Usually as many as stay in the first-level cache together:
 * the sums of one hide the latencies of the other. Of wide ones past the caches, where little is computed and the job
 * says so, as many as stay in the second, so that reading memory and writing it take long turns. */
static int64_t K(batch_of)(const rms_forward_job *job) {
  int64_t bytes = job->lay.width * T_SIZE * (job->residual.data ? 2 : 1);
  bool light = T == REAL_TYPE && job->lay.kind == RMS_KIND_RMS && !job->residual.data;
  if (!job->stream_y) return K(fit)(K(BATCH_BYTES), bytes);
  return K(fit)(job->in_groups && light && bytes > K(WIDE_BYTES) ? K(GROUP_BYTES) : K(BATCH_BYTES) / 2, bytes);
}

static void K(forward_batches)(const rms_forward_job *job, const K(gains) * gains, int64_t batch, int64_t first,
                               int64_t last) {
  const rms_layout *lay = &job->lay;
  bool layer = lay->kind == RMS_KIND_LAYER, saves = job->rstd || job->mean;
  bool fetch = job->fetch_ahead && batch == 1 && lay->width * T_SIZE >= K(WIDE_BYTES);
  rms_cursor measure = rms_cursor_at(lay, first), write = measure;
  for (int64_t i = first; i < last; i += batch) {
    K(moment) m[K(BATCH)];
    K(statistic) st[K(BATCH)];
    int64_t n = last - i < batch ? last - i : batch;
    for (int64_t b = 0; b < n; b++, rms_cursor_next(&measure, lay)) {
      K(source) src = K(open_source)(job, &measure);
      m[b] = K(measure)(lay, &src);
    }
    for (int64_t b = 0; b < n; b++)
      st[b] = K(finish)(lay, m[b], (REAL)lay->k);
    for (int64_t b = 0; b < n; b++, rms_cursor_next(&write, lay)) {
      if (__builtin_expect(!K(in_range)(m[b].sum), 0)) {
        K(forward_segment)(job, &write, i + b);
        continue;
      }
      K(strip) s = K(open_strip)(job, &write, gains);
      if (fetch && i + 1 < last) s.ahead = rms_segment(&job->x, &measure, lay, T_SIZE) - s.src.x;
      if (saves) K(save_statistic)(job, i + b, st[b]);
      K(write_strip)(&s, st[b], layer);
    }
  }
}

/* Lays out weight + offset, or the bias, of all pieces in lane order. */
static void K(lay_out_gain)(REAL *to, const char *from, int64_t pieces, int64_t width, int64_t pitch, REAL offset,
                            bool wide) {
  for (int64_t p = 0; p < pieces; p++, from += width * (wide ? 4 : T_SIZE))
    for (int64_t j = 0; j < width; j += LANES) {
      VEC g = V(add)(K(load)(from, j, width - j < LANES ? (int)(width - j) : LANES, wide), V(set)(offset));
      /* a NaN with a payload becomes the plain one: see V(store_clean) */
      REAL lane[LANES];
      V(store)(lane, g, REAL_TYPE, 0);
      for (int i = 0; i < LANES; i++)
        to[p * pitch + j + i] = lane[i] == lane[i] ? lane[i] : (REAL)NAN;
    }
}

/* Finds or lays out the gain and the bias; returns false where that is not worth it. */
static bool K(prepare_gains)(const rms_layout *lay, const char *bias, int64_t segments, K(gains) * gains,
                             REAL room[2][K(GAIN_BYTES) / sizeof(REAL)]) {
  if (T == REAL_TYPE && !lay->weight_is_f32 && lay->offset == 0 &&
      ((uintptr_t)lay->weight | (uintptr_t)bias) % sizeof(REAL) == 0) {
    gains->gain = (const REAL *)(const void *)lay->weight;
    gains->bias = (const REAL *)(const void *)bias;
    gains->group = lay->width;
    gains->inner = lay->weight_inner / T_SIZE;
    return true;
  }
  gains->gain = gains->bias = NULL;
  gains->group = gains->inner = 0;
  if (!lay->weight && !bias) return true;
  int64_t pieces = (lay->per_inner ? lay->inner : 1) * lay->groups, pitch = (lay->width + LANES - 1) / LANES * LANES;
  if (pieces * pitch > (int64_t)(K(GAIN_BYTES) / sizeof(REAL)) || segments < 4 * pieces) return false;
  REAL offset = lay->offset == 0 ? -(REAL)0 : (REAL)lay->offset;
  if (lay->weight) K(lay_out_gain)(room[0], lay->weight, pieces, lay->width, pitch, offset, lay->weight_is_f32);
  if (bias) K(lay_out_gain)(room[1], bias, pieces, lay->width, pitch, -(REAL)0, lay->weight_is_f32);
  gains->gain = lay->weight ? room[0] : NULL;
  gains->bias = bias ? room[1] : NULL;
  gains->group = pitch;
  gains->inner = lay->per_inner ? lay->groups * pitch : 0;
  return true;
}

static void K_(rms_forward, K_(T_NAME, RMS_ISA))(const rms_forward_job *job, int64_t first, int64_t last) {
  const rms_layout *lay = &job->lay;
  REAL room[2][K(GAIN_BYTES) / sizeof(REAL)];
  K(gains) gains;
  if (lay->rounding == RMS_ROUND_AFTER_WEIGHT && !job->stats_in && lay->k > 0 &&
      K(prepare_gains)(lay, job->bias, last - first, &gains, room)) {
    int64_t batch = K(batch_of)(job);
    int64_t most = job->stream_y ? K(SHORT_STREAM_BYTES) : K(SHORT_BYTES);
    if (last - first > 1 && lay->width * T_SIZE <= most && K(is_short_rms)(job, &gains))
      K(forward_short)(job, gains.gain, gains.inner, first, last);
    else
      K(forward_batches)(job, &gains, batch, first, last);
  } else {
    rms_cursor at = rms_cursor_at(lay, first);
    for (int64_t i = first; i < last; i++, rms_cursor_next(&at, lay))
      K(forward_segment)(job, &at, i);
  }
  if (job->stream_y || job->stream_residual) vec_stream_fence();
}
