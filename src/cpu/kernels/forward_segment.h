/* SPDX-License-Identifier: MIT
 *
 * The forward pass of one segment in full generality: any rounding order, given statistics, rows that need scaling.
 * h = x*r or (x - mean)*r, then the affine part, one sweep that also stores the residual sum. */

typedef struct {
  K(source) src;
  const char *weight, *bias, *gate; /* gate: after the norm; one before it belongs to the source */
  char *y, *residual_out;
  int64_t width;
  rms_dtype y_type;
  K(gain_form) gain;
  bool weight_is_f32, before, sigmoid, stream_y, stream_residual;
} K(segment);

INLINE VEC K(affine)(const K(segment) * s, VEC h, int64_t j, int n) {
  if (s->before) {
    h = V(round)(h, T);
    if (s->weight) {
      h = V(mul)(h, K(gain)(s->weight, j, n, s->gain));
      if (!s->weight_is_f32) h = V(round)(h, T);
    }
    return s->bias ? V(add)(h, K(load)(s->bias, j, n, s->weight_is_f32)) : h;
  }
  if (!s->weight) return s->bias ? V(add)(h, K(load)(s->bias, j, n, s->weight_is_f32)) : h;
  VEC g = K(gain)(s->weight, j, n, s->gain);
  return s->bias ? V(fma)(h, g, K(load)(s->bias, j, n, s->weight_is_f32)) : V(mul)(h, g);
}

/* What y is without a gate, times the gate's activation. */
INLINE VEC K(gate_after)(const K(segment) * s, VEC m, VEC act) {
  if (s->before && !s->weight_is_f32) m = V(round)(m, T);
  return V(mul)(m, act);
}

INLINE void K(apply_vector)(const K(segment) * s, VEC r, VEC mean, int64_t j, int n, bool layer, bool scaled) {
  const char *gate = s->gate ? s->gate : s->src.gate;
  VEC v = K(load_source)(&s->src, j, n, (K(reading)){.residual = s->src.residual != NULL}), act = v;
  if (gate) act = K(load_gate)(gate, j, n, s->sigmoid); /* before the first store, which may go there */
  if (s->residual_out) K(put)(s->residual_out, j, n, v, s->src.residual_is_f32, s->stream_residual);
  if (s->src.gate) v = V(mul)(v, act);
  if (scaled) v = V(mul)(V(mul)(v, V(set)(s->src.up1)), V(set)(s->src.up2));
  if (layer) v = V(sub)(v, mean);
  VEC y = K(affine)(s, V(mul)(v, r), j, n);
  if (s->y) K(put_as)(s->y, j, n, s->gate ? K(gate_after)(s, y, act) : y, s->y_type, s->stream_y);
}

INLINE void K(apply_segment)(const K(segment) * given, K(statistic) st, bool layer, bool scaled) {
  const K(segment) s = *given; /* a copy that no store can change: its members stay in registers */
  VEC r = V(set)(st.r), mean = V(set)(st.mean);
  int64_t j = 0, width = s.width;
  for (; j + LANES <= width; j += LANES)
    K(apply_vector)(&s, r, mean, j, LANES, layer, scaled);
  if (j < width) K(apply_vector)(&s, r, mean, j, (int)(width - j), layer, scaled);
}

NOINLINE void K(apply_any)(const K(segment) * s, K(statistic) st, bool layer) {
  K(apply_segment)(s, st, layer, false);
}

NOINLINE void K(apply_scaled)(const K(segment) * s, K(statistic) st, bool layer) {
  K(apply_segment)(s, st, layer, true);
}

static void K(save_statistic)(const rms_forward_job *job, int64_t segment, K(statistic) st) {
  REAL r = st.r, mean = st.mean;
  if (st.e) r = (REAL)rms_ldexp((double)r, st.e), mean = (REAL)rms_ldexp((double)mean, -st.e);
  if (job->rstd) ((REAL *)job->rstd)[segment] = r;
  if (job->mean) ((REAL *)job->mean)[segment] = mean;
}

INLINE void K(open_segment)(const rms_forward_job *job, const rms_cursor *at, K(segment) * s) {
  const rms_layout *lay = &job->lay;
  int64_t residual_size = lay->residual_is_f32 ? 4 : T_SIZE, weight_size = lay->weight_is_f32 ? 4 : T_SIZE;
  int64_t weight_at = at->inner * lay->weight_inner + at->group * lay->width * weight_size;
  s->src = K(x_source)(rms_segment(&job->x, at, lay, T_SIZE));
  s->src.residual = job->residual.data ? rms_segment(&job->residual, at, lay, residual_size) : NULL;
  const char *gate = job->gate.data ? rms_segment(&job->gate, at, lay, T_SIZE) : NULL;
  s->src.gate = lay->gate_place == RMS_GATE_BEFORE ? gate : NULL;
  s->gate = lay->gate_place == RMS_GATE_AFTER ? gate : NULL;
  s->src.sigmoid = s->sigmoid = lay->activation == RMS_ACT_SIGMOID;
  s->src.residual_is_f32 = lay->residual_is_f32;
  s->weight = lay->weight ? lay->weight + weight_at : NULL;
  s->bias = job->bias ? job->bias + weight_at : NULL;
  s->y = job->y.data ? rms_segment(&job->y, at, lay, K(size_of)(job->y_type)) : NULL;
  s->y_type = job->y_type;
  s->residual_out = job->residual_out.data ? rms_segment(&job->residual_out, at, lay, residual_size) : NULL;
  s->width = lay->width;
  s->gain = K(gain_form_of)(lay);
  s->weight_is_f32 = lay->weight_is_f32;
  s->before = lay->rounding == RMS_ROUND_BEFORE_WEIGHT;
  s->stream_y = job->stream_y;
  s->stream_residual = job->stream_residual;
}

/* The segment with its statistic, scaled by 2^st.e. */
static void K(write_segment)(const rms_forward_job *job, const K(segment) * s, K(statistic) st, int64_t i) {
  bool layer = job->lay.kind == RMS_KIND_LAYER;
  if (job->rstd || job->mean) K(save_statistic)(job, i, st);
  if (!s->y && !s->residual_out) return;
  if (st.e)
    K(apply_scaled)(s, st, layer);
  else
    K(apply_any)(s, st, layer);
}

/* One segment in full generality. */
NOINLINE void K(forward_segment)(const rms_forward_job *job, const rms_cursor *at, int64_t i) {
  const rms_layout *lay = &job->lay;
  K(segment) s;
  K(statistic) st;
  K(open_segment)(job, at, &s);
  if (job->stats_in)
    st = K(import_stat)(lay, &job->stats_in[i], &s.src, false);
  else
    st = K(finish)(lay, K(moment_of)(lay, &s.src, false), (REAL)lay->k);
  K(write_segment)(job, &s, st, i);
}

/* One that is measured already. */
NOINLINE void K(forward_measured)(const rms_forward_job *job, const rms_cursor *at, K(statistic) st, int64_t i) {
  K(segment) s;
  K(open_segment)(job, at, &s);
  K(set_scale)(&s.src, st.e);
  K(write_segment)(job, &s, st, i);
}
