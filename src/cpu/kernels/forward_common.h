/* SPDX-License-Identifier: MIT
 *
 * Writing a measured segment, for nearly every model: with a gate, beside a weight alone. The same arithmetic as
 * forward_segment.h; each combination that decides the speed is a loop of its own. `mixed` loops take what the others
 * do not: a y of its own type, rounding before a weight with a bias, and raw gains of any type. */

typedef struct {
  K(source) src;
  const REAL *gain, *bias;
  const char *raw_gain, *raw_bias; /* where those are not laid out, and `raw` */
  const char *gate;                /* NULL: none, or before the norm */
  char *y, *residual_out;
  int64_t width, ahead;   /* ahead: bytes from x to what should be fetched early; 0: nothing */
  int64_t ahead_gate;     /* the same of a gate after the norm */
  K(gain_form) gain_form; /* of a raw gain */
  rms_dtype y_type;
  bool raw, weighted, biased, mixed;
  bool before, product; /* rounding before the weight, and of the product with it */
  bool stream_y, stream_residual, spaced;
  bool together; /* see K(TOGETHER) */
} K(common_segment);

/* What is known at the call. Which of gain and bias there are may be looked at for each vector. */
typedef struct {
  enum { K(GAIN), K(GAIN_BIAS), K(ANY) } gains;
  bool layer, residual, stream, raw;
  bool before;       /* rounding before the weight */
  bool after, gated; /* a gate after the norm, or before it */
  bool mixed;        /* see above; y is then of this type, and may hold any NaN */
  bool scaled;       /* by src.up1*up2 */
  bool kept;         /* x + residual is read from where it was kept */
  rms_dtype y;
  bool clean; /* y is in T, and so are the gains */
} K(common_form);

INLINE VEC K(common_gain)(const K(common_segment) * s, int64_t j, int n, K(common_form) form) {
  if (!form.raw) return K(load_gain)(s->gain, j, n);
  return form.mixed ? K(gain)(s->raw_gain, j, n, s->gain_form) : K(plain_gain)(s->raw_gain, j, n, s->gain_form.offset);
}

INLINE VEC K(common_bias)(const K(common_segment) * s, int64_t j, int n, K(common_form) form) {
  if (!form.raw) return K(load_gain)(s->bias, j, n);
  return K(load)(s->raw_bias, j, n, form.mixed && s->gain_form.wide);
}

INLINE VEC K(apply_gain)(const K(common_segment) * s, VEC h, int64_t j, int n, K(common_form) form) {
  if (form.gains == K(GAIN)) return V(mul)(h, K(common_gain)(s, j, n, form));
  if (form.gains == K(GAIN_BIAS) || (s->weighted && s->biased))
    return V(fma)(h, K(common_gain)(s, j, n, form), K(common_bias)(s, j, n, form));
  if (s->weighted) return V(mul)(h, K(common_gain)(s, j, n, form));
  return s->biased ? V(add)(h, K(common_bias)(s, j, n, form)) : h;
}

/* h times the gain, with the roundings before the weight, and the bias. */
INLINE VEC K(apply_mixed)(const K(common_segment) * s, VEC h, int64_t j, int n, K(common_form) form) {
  if (!form.before) return K(apply_gain)(s, h, j, n, form);
  h = V(round_clean)(h, T);
  if (form.gains != K(ANY) || s->weighted) {
    h = V(mul)(h, K(common_gain)(s, j, n, form));
    if (s->product) h = V(round_clean)(h, T); /* the weight is in T */
  }
  bool biased = form.gains == K(GAIN_BIAS) || (form.gains == K(ANY) && s->biased);
  return biased ? V(add)(h, K(common_bias)(s, j, n, form)) : h;
}

INLINE VEC K(common_load)(const K(common_segment) * s, int64_t j, int n, K(common_form) form) {
  if (form.kept || (form.gated && s->src.products)) return K(load_gain)(s->src.products, j, n);
  return K(load_source)(&s->src, j, n,
                        (K(reading)){.residual = form.residual, .gated = form.gated, .scaled = form.scaled});
}

/* The element of y. act: of a gate after the norm. */
INLINE VEC K(common_value)(const K(common_segment) * s, VEC v, VEC act, VEC r, VEC mean, int64_t j, int n,
                           K(common_form) form) {
  if (form.layer) v = V(sub)(v, mean);
  v = V(mul)(v, r);
  if (form.mixed) return K(apply_mixed)(s, v, j, n, form);
  if (form.before) v = V(round_clean)(v, T);
  v = K(apply_gain)(s, v, j, n, form);
  if (form.after && form.before && s->product) v = V(round_clean)(v, T);
  return form.after ? V(mul)(v, act) : v;
}

INLINE void K(put_sum)(const K(common_segment) * s, VEC v, int64_t j, int n, K(common_form) form) {
  if (!form.residual || !s->residual_out) return;
  if (form.kept && !s->src.residual_is_f32)
    K(put_clean)(s->residual_out, j, n, v, s->stream_residual);
  else
    K(put)(s->residual_out, j, n, v, s->src.residual_is_f32, s->stream_residual);
}

INLINE void K(put_y)(const K(common_segment) * s, VEC y, int64_t j, int n, K(common_form) form) {
  if (form.mixed && !form.clean)
    K(put_type)(s->y, j, n, y, form.y, form.stream);
  else
    K(put_clean)(s->y, j, n, y, form.stream);
}

INLINE void K(common_store)(const K(common_segment) * s, VEC v, VEC act, VEC r, VEC mean, int64_t j, int n,
                            K(common_form) form) {
  K(put_sum)(s, v, j, n, form);
  K(put_y)(s, K(common_value)(s, v, act, r, mean, j, n, form), j, n, form);
}

/* Whether y lies close behind anything that is read beside the stores. */
INLINE bool K(goes_together)(const K(common_segment) * s) {
  const void *gain = s->gain ? (const void *)s->gain : s->raw_gain,
             *bias = s->bias ? (const void *)s->bias : s->raw_bias;
  return K(TOGETHER) && (K(is_close_behind)(s->y, s->src.x) || (gain && K(is_close_behind)(s->y, gain)) ||
                         (bias && K(is_close_behind)(s->y, bias)));
}

/* The four vectors of a quad. */
INLINE void K(store_quad)(const K(common_segment) * s, K(lanes) v, K(lanes) act, VEC r, VEC mean, int64_t j,
                          K(common_form) form) {
  const int64_t b = j + LANES, c = j + 2 * LANES, d = j + 3 * LANES;
  if (!s->together && !K(QUADS)) {
    K(common_store)(s, v.a, act.a, r, mean, j, LANES, form);
    K(common_store)(s, v.b, act.b, r, mean, b, LANES, form);
    K(common_store)(s, v.c, act.c, r, mean, c, LANES, form);
    K(common_store)(s, v.d, act.d, r, mean, d, LANES, form);
    return;
  }
  const K(lanes) y = {
      K(common_value)(s, v.a, act.a, r, mean, j, LANES, form), K(common_value)(s, v.b, act.b, r, mean, b, LANES, form),
      K(common_value)(s, v.c, act.c, r, mean, c, LANES, form), K(common_value)(s, v.d, act.d, r, mean, d, LANES, form)};
  if (K(QUADS) && form.kept && s->residual_out && !s->src.residual_is_f32) {
    K(put_quad)(s->residual_out, j, v, s->stream_residual);
  } else {
    K(put_sum)(s, v.a, j, LANES, form);
    K(put_sum)(s, v.b, b, LANES, form);
    K(put_sum)(s, v.c, c, LANES, form);
    K(put_sum)(s, v.d, d, LANES, form);
  }
  if (!form.mixed || form.clean) {
    K(put_quad)(s->y, j, y, form.stream);
    return;
  }
  K(put_y)(s, y.a, j, LANES, form);
  K(put_y)(s, y.b, b, LANES, form);
  K(put_y)(s, y.c, c, LANES, form);
  K(put_y)(s, y.d, d, LANES, form);
}

INLINE void K(common_vector)(const K(common_segment) * s, VEC r, VEC mean, int64_t j, int n, K(common_form) form) {
  VEC v = K(common_load)(s, j, n, form), act = v;
  if (form.after) act = K(load_gate)(s->gate, j, n, s->src.sigmoid);
  K(common_store)(s, v, act, r, mean, j, n, form);
}

/* One quad beside a gate. All loads come before the first store, which may go to the gate. */
INLINE void K(gated_quad)(const K(common_segment) * s, VEC r, VEC mean, int64_t j, K(common_form) form) {
  K(lanes) v, act;
  if (form.gated && s->src.products) {
    const REAL *from = s->src.products + j;
    v.a = V(load)(from, REAL_TYPE, 0), v.b = V(load)(from + LANES, REAL_TYPE, 0);
    v.c = V(load)(from + 2 * LANES, REAL_TYPE, 0), v.d = V(load)(from + 3 * LANES, REAL_TYPE, 0);
  } else if (form.gated) {
    v = K(load_products)(&s->src, j);
  } else {
    v = K(load_quad)(s->src.x, j);
  }
  act = v;
  if (form.after) act = K(load_gates)(s->gate, j, s->src.sigmoid);
  K(store_quad)(s, v, act, r, mean, j, form);
}

/* One quad, whose first vector is v0. Returns the first vector of the next quad, if there is one. All loads of x come
 * before the first store: a load waits for a store before it whose address has the same last twelve bits, as where y
 * lies a line after x. */
INLINE VEC K(common_quad)(const K(common_segment) * s, VEC v0, VEC r, VEC mean, int64_t j, bool more,
                          K(common_form) form) {
  const K(lanes) v = {v0, K(common_load)(s, j + LANES, LANES, form), K(common_load)(s, j + 2 * LANES, LANES, form),
                      K(common_load)(s, j + 3 * LANES, LANES, form)};
  VEC next = v0;
  if (more) next = K(common_load)(s, j + K(QUAD), LANES, form);
  K(store_quad)(s, v, v, r, mean, j, form);
  return next;
}

INLINE void K(common_loop)(const K(common_segment) * given, REAL r_, REAL mean_, K(common_form) form) {
  K(common_segment) s = *given; /* a copy that no store can change: its members stay in registers */
  s.src.x_type = T;
  s.together = K(goes_together)(given);
  VEC r = V(set)(r_), mean = V(set)(mean_);
  int64_t j = form.mixed ? 0 : K(to_line)(s.y, s.width), width = s.width;
  if (j > 0) K(common_vector)(&s, r, mean, 0, (int)j, form);
  VEC first = r;
  const bool gate = form.after || form.gated;
  if (!gate && j + K(QUAD) <= width) first = K(common_load)(&s, j, LANES, form);
  for (; j + K(QUAD) <= width; j += K(QUAD)) {
    if (s.ahead)
      for (int64_t line = 0; line < K(QUAD) * T_SIZE; line += 64) {
        vec_prefetch(s.src.x + s.ahead + j * T_SIZE + line);
        if (form.after) vec_prefetch(s.gate + s.ahead_gate + j * T_SIZE + line);
      }
    if (form.stream && s.spaced) K(space_stores)();
    if (gate)
      K(gated_quad)(&s, r, mean, j, form);
    else
      first = K(common_quad)(&s, first, r, mean, j, j + 2 * K(QUAD) <= width, form);
  }
  for (; j + LANES <= width; j += LANES)
    K(common_vector)(&s, r, mean, j, LANES, form);
  if (j < width) K(common_vector)(&s, r, mean, j, (int)(width - j), form);
}

NOINLINE void K(common_rms)(const K(common_segment) * s, REAL r) {
  K(common_loop)(s, r, 0, (K(common_form)){.gains = K(GAIN)});
}

NOINLINE void K(common_rms_stream)(const K(common_segment) * s, REAL r) {
  K(common_loop)(s, r, 0, (K(common_form)){K(GAIN), .stream = true});
}

NOINLINE void K(common_layer)(const K(common_segment) * s, REAL r, REAL mean) {
  K(common_loop)(s, r, mean, (K(common_form)){K(GAIN_BIAS), .layer = true});
}

NOINLINE void K(common_layer_stream)(const K(common_segment) * s, REAL r, REAL mean) {
  K(common_loop)(s, r, mean, (K(common_form)){K(GAIN_BIAS), .layer = true, .stream = true});
}

/* A segment that must be scaled, of a job for the four loops above. */
NOINLINE void K(common_scaled)(const K(common_segment) * s, REAL r, REAL mean, bool layer) {
  if (layer)
    K(common_loop)(s, r, mean, (K(common_form)){K(GAIN_BIAS), .layer = true, .stream = s->stream_y, .scaled = true});
  else
    K(common_loop)(s, r, 0, (K(common_form)){K(GAIN), .stream = s->stream_y, .scaled = true});
}

NOINLINE void K(common_residual)(const K(common_segment) * s, REAL r) {
  K(common_loop)(s, r, 0, (K(common_form)){K(GAIN), .residual = true, .stream = s->stream_y});
}

NOINLINE void K(common_kept)(const K(common_segment) * s, REAL r) {
  K(common_form) form = {K(GAIN), .residual = true, .kept = true, .stream = s->stream_y, .raw = s->raw};
  if (s->before) {
    form.before = true;
    K(common_loop)(s, r, 0, form);
  } else {
    K(common_loop)(s, r, 0, form);
  }
}

NOINLINE void K(common_before)(const K(common_segment) * s, REAL r) {
  K(common_loop)(s, r, 0, (K(common_form)){K(GAIN), .stream = s->stream_y, .before = true, .raw = s->raw});
}

/* A gate beside a gain that is not laid out. */
NOINLINE void K(common_gate_raw)(const K(common_segment) * s, REAL r, bool after) {
  K(common_form) form = {K(GAIN), .stream = s->stream_y, .before = s->before, .raw = true};
  form.after = after;
  form.gated = !after;
  K(common_loop)(s, r, 0, form);
}

NOINLINE void K(common_gate_after)(const K(common_segment) * s, REAL r) {
  K(common_loop)(s, r, 0, (K(common_form)){K(GAIN), .stream = s->stream_y, .after = true});
}

NOINLINE void K(common_gate_after_rounded)(const K(common_segment) * s, REAL r) {
  K(common_loop)(s, r, 0, (K(common_form)){K(GAIN), .stream = s->stream_y, .before = true, .after = true});
}

NOINLINE void K(common_gate_before)(const K(common_segment) * s, REAL r) {
  K(common_loop)(s, r, 0, (K(common_form)){K(GAIN), .stream = s->stream_y, .gated = true});
}

NOINLINE void K(common_gate_before_rounded)(const K(common_segment) * s, REAL r) {
  K(common_loop)(s, r, 0, (K(common_form)){K(GAIN), .stream = s->stream_y, .before = true, .gated = true});
}

/* `before` is false of f32 and f64, as `raw` is. */
static void K(write_gated_segment)(const K(common_segment) * s, REAL r, bool after) {
  if (T != REAL_TYPE && s->raw)
    K(common_gate_raw)(s, r, after);
  else if (T != REAL_TYPE && s->before)
    (after ? K(common_gate_after_rounded) : K(common_gate_before_rounded))(s, r);
  else
    (after ? K(common_gate_after) : K(common_gate_before))(s, r);
}

NOINLINE void K(common_raw)(const K(common_segment) * s, REAL r, REAL mean, bool layer) {
  if (layer)
    K(common_loop)(s, r, mean, (K(common_form)){K(GAIN_BIAS), .layer = true, .stream = s->stream_y, .raw = true});
  else
    K(common_loop)(s, r, 0, (K(common_form)){K(GAIN), .stream = s->stream_y, .raw = true});
}

NOINLINE void K(common_any)(const K(common_segment) * s, REAL r, REAL mean, bool layer) {
  K(common_form) form = {K(ANY), .layer = layer, .residual = s->src.residual != NULL, .stream = s->stream_y};
  form.before = s->before;
  form.raw = T != REAL_TYPE && s->raw;
  K(common_loop)(s, r, mean, form);
}

/* What is known of the types at the call: those of y. */
INLINE void K(mixed_loop)(const K(common_segment) * s, REAL r, REAL mean, bool layer, rms_dtype y) {
  K(common_form) form = {K(ANY), .layer = layer, .residual = s->src.residual != NULL, .stream = s->stream_y};
  form.before = s->before;
  form.raw = s->raw;
  form.mixed = true;
  form.y = y;
  K(common_loop)(s, r, mean, form);
}

NOINLINE void K(mixed_same)(const K(common_segment) * s, REAL r, REAL mean, bool layer) {
  K(mixed_loop)(s, r, mean, layer, T);
}

NOINLINE void K(mixed_f32)(const K(common_segment) * s, REAL r, REAL mean, bool layer) {
  K(mixed_loop)(s, r, mean, layer, RMS_F32);
}

NOINLINE void K(mixed_bf16)(const K(common_segment) * s, REAL r, REAL mean, bool layer) {
  K(mixed_loop)(s, r, mean, layer, RMS_BF16);
}

NOINLINE void K(mixed_f16)(const K(common_segment) * s, REAL r, REAL mean, bool layer) {
  K(mixed_loop)(s, r, mean, layer, RMS_F16);
}

/* A weight in f32 beside 16-bit data, rounding before it, y in f32: Hugging Face's Llama with f32 weights. */
NOINLINE void K(mixed_before_f32)(const K(common_segment) * s, REAL r) {
  K(common_form) form = {K(GAIN), .stream = s->stream_y, .raw = s->raw, .before = true, .mixed = true};
  form.y = RMS_F32;
  K(common_loop)(s, r, 0, form);
}

/* LayerNorm with a scale and a shift of each sample or row, all in T: adaLN. */
NOINLINE void K(mixed_scale_shift)(const K(common_segment) * s, REAL r, REAL mean) {
  K(common_form) form = {K(GAIN_BIAS), .layer = true, .stream = s->stream_y, .raw = s->raw, .mixed = true};
  form.y = T;
  form.clean = true;
  if (s->before) {
    form.before = true;
    K(common_loop)(s, r, mean, form);
  } else {
    K(common_loop)(s, r, mean, form);
  }
}

static void K(write_mixed_types)(const K(common_segment) * s, K(statistic) st, bool layer) {
  const bool same = T == RMS_F64 || s->y_type == T;
  if (same && layer && s->weighted && s->biased && !s->gain_form.wide && !s->src.residual)
    K(mixed_scale_shift)(s, st.r, st.mean);
  else if (same)
    K(mixed_same)(s, st.r, st.mean, layer);
  else if (T != RMS_F32 && s->y_type == RMS_F32 && s->before && s->weighted && !s->biased && !layer && !s->src.residual)
    K(mixed_before_f32)(s, st.r);
  else if (T != RMS_F32 && s->y_type == RMS_F32)
    K(mixed_f32)(s, st.r, st.mean, layer);
  else if (T != RMS_BF16 && s->y_type == RMS_BF16)
    K(mixed_bf16)(s, st.r, st.mean, layer);
  else
    K(mixed_f16)(s, st.r, st.mean, layer);
}

/* Whether the loops that take nothing but x with a gain, and of LayerNorm a bias, serve the job. */
INLINE bool K(is_plain_job)(const rms_forward_job *job, const K(common_segment) * s, bool layer) {
  return !s->mixed && !s->before && !s->raw && s->weighted && s->biased == layer && !job->residual.data &&
         job->lay.gate_place == RMS_GATE_NONE;
}

/* st.e: only where K(is_plain_job). */
INLINE void K(write_common)(const K(common_segment) * s, K(statistic) st, bool layer) {
  if (__builtin_expect(st.e != 0, 0))
    K(common_scaled)(s, st.r, st.mean, layer);
  else if (s->mixed)
    K(write_mixed_types)(s, st, layer);
  else if (s->gate)
    K(write_gated_segment)(s, st.r, true);
  else if (T == RMS_BF16 && s->src.residual && s->src.products && s->weighted && !s->biased)
    K(common_kept)(s, st.r);
  else if (s->src.gate)
    K(write_gated_segment)(s, st.r, false);
  else if (T != REAL_TYPE && s->before && s->weighted && !layer && !s->src.residual)
    K(common_before)(s, st.r);
  else if (s->before || !s->weighted || s->biased != layer || (s->src.residual && (layer || s->raw)))
    K(common_any)(s, st.r, st.mean, layer);
  else if (T != REAL_TYPE && s->raw)
    K(common_raw)(s, st.r, st.mean, layer);
  else if (s->src.residual)
    K(common_residual)(s, st.r);
  else if (layer && s->stream_y)
    K(common_layer_stream)(s, st.r, st.mean);
  else if (layer)
    K(common_layer)(s, st.r, st.mean);
  else if (s->stream_y)
    K(common_rms_stream)(s, st.r);
  else
    K(common_rms)(s, st.r);
}

/* What is the same for all segments, in place: a copy of what was just stored piece by piece waits for those stores. */
INLINE void K(open_source)(const rms_forward_job *job, K(source) * src) {
  *src = (K(source)){.x_type = T};
  src->residual_is_f32 = job->lay.residual_is_f32;
  src->sigmoid = job->lay.activation == RMS_ACT_SIGMOID;
}

/* And what is not. */
INLINE void K(move_source)(const rms_forward_job *job, const rms_cursor *at, K(source) * src) {
  const rms_layout *lay = &job->lay;
  src->x = rms_segment(&job->x, at, lay, T_SIZE);
  src->up1 = src->up2 = 1;
  src->ahead = src->ahead_gate = 0;
  if (lay->gate_place == RMS_GATE_BEFORE) src->gate = rms_segment(&job->gate, at, lay, T_SIZE);
  if (job->residual.data) src->residual = rms_segment(&job->residual, at, lay, lay->residual_is_f32 ? 4 : T_SIZE);
}

/* Whether a common job needs the loops for mixed types. */
INLINE bool K(is_mixed)(const rms_forward_job *job, const K(gains) * gains) {
  return gains->mixed || job->y_type != T || (job->bias && job->lay.rounding == RMS_ROUND_BEFORE_WEIGHT);
}

INLINE void K(open_common)(const rms_forward_job *job, const K(gains) * gains, K(common_segment) * s) {
  const rms_layout *lay = &job->lay;
  *s = (K(common_segment)){.width = lay->width, .y_type = job->y_type, .mixed = gains->mixed};
  K(open_source)(job, &s->src);
  s->before = gains->mixed ? lay->rounding == RMS_ROUND_BEFORE_WEIGHT : K(rounds_before)(lay);
  s->product = !lay->weight_is_f32;
  s->raw = (gains->mixed || T != REAL_TYPE) && K(are_raw)(gains);
  s->gain_form = gains->form;
  s->weighted = gains->gain || (s->raw && gains->raw_gain);
  s->biased = gains->bias || (s->raw && gains->raw_bias);
  s->stream_y = job->stream_y;
  s->stream_residual = job->stream_residual;
  s->spaced = job->way == RMS_WAY_SPACED;
}

INLINE void K(move_common)(const rms_forward_job *job, const rms_cursor *at, const K(gains) * gains,
                           K(common_segment) * s) {
  const rms_layout *lay = &job->lay;
  const int64_t gain_at = at->inner * gains->inner + at->group * gains->group;
  const int64_t size = s->mixed && gains->form.wide ? 4 : T_SIZE; /* of a raw gain */
  K(move_source)(job, at, &s->src);
  s->ahead = s->ahead_gate = 0;
  if (lay->gate_place == RMS_GATE_AFTER) s->gate = rms_segment(&job->gate, at, lay, T_SIZE);
  if (gains->gain) s->gain = gains->gain + gain_at;
  if (gains->bias) s->bias = gains->bias + gain_at;
  if (s->raw && gains->raw_gain) s->raw_gain = gains->raw_gain + gain_at * size;
  if (s->raw && gains->raw_bias) s->raw_bias = gains->raw_bias + gain_at * size;
  s->y = rms_segment(&job->y, at, lay, s->mixed ? K(size_of)(s->y_type) : T_SIZE);
  if (job->residual_out.data)
    s->residual_out = rms_segment(&job->residual_out, at, lay, lay->residual_is_f32 ? 4 : T_SIZE);
}
