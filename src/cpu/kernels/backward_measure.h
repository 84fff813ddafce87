/* SPDX-License-Identifier: MIT
 *
 * The first sweep of the backward: takes or forms the statistic of a segment and its sums, finds out whether it must be
 * scaled, and collects the rows of common jobs for backward_common.h. */

enum { K(STRETCH) = 4096 / sizeof(REAL) }; /* columns of a row that are streamed before those of the next */

/* Whether a common job needs the loops for mixed types. */
INLINE bool K(is_mixed_back)(const rms_backward_job *job, const K(gains) * gains) {
  const rms_layout *lay = &job->lay;
  return gains->mixed || job->dy_type != T || lay->steps >= RMS_STEPS_TERMS ||
         (K(rounds_before)(lay) && (lay->kind == RMS_KIND_LAYER || lay->k < lay->width));
}

/* Where the statistics and sums of segment i stand. */
INLINE int64_t K(number_of)(const rms_backward_job *job, int64_t i) {
  const int64_t groups = job->lay.groups;
  return job->row_step == 1 ? i : i / groups * job->row_step * groups + i % groups;
}

/* i: its number */
INLINE K(statistic) K(backward_statistic)(const rms_backward_job *job, K(gradient) * s, int64_t i) {
  const rms_layout *lay = &job->lay;
  if (job->stats_in) return K(import_stat)(lay, &job->stats_in[i], &s->x, false);
  if (job->rstd && lay->eps_place == RMS_EPS_INSIDE) {
    K(statistic)
    st = {((const REAL *)job->rstd)[i], job->mean ? ((const REAL *)job->mean)[i] : 0, 0, (REAL)lay->k, 0, false};
    return st;
  }
  return K(finish)(lay, K(moment_of)(lay, &s->x, false), (REAL)lay->k);
}

/* A segment between its two sweeps. */
typedef struct {
  K(gradient) s;
  K(statistic) st;
  K(coefficients) co;
  bool in_range;
} K(measured);

/* Whether u, of which this is K(bound_of_u), is neither so large nor so small that it must be scaled where x = 0: dx =
 * u*r there. */
INLINE bool K(is_u_in_range)(REAL bound) {
  return bound == 0 || (bound >= SUM_LEAST && bound <= SUM_MOST);
}

/* A segment of zeros, of RMS, that need not be scaled. */
NOINLINE bool K(is_unscaled_zero)(const K(gradient) * s, bool common) {
  return K(is_zero)(&s->x, s->width) && K(is_u_in_range)(K(bound_of_u)(s, common));
}

/* Sums out of range that need no scale all the same: those of dy = 0, which are exactly zero, and those of a segment
 * with a NaN or an infinity, whose results no scale would change. Of others it leaves the magnitudes that it has found.
 */
NOINLINE bool K(settle_gradient)(const rms_backward_job *job, K(measured) * m, K(row_sums) g) {
  bool layer = job->lay.kind == RMS_KIND_LAYER, known = K(r_in_range)(m->st);
  K(source) dm = K(dm_source)(&m->s);
  if (job->stats_in || job->sums_in || m->st.e || job->drstd || !m->s.dy) return false;
  if (known && g.ux == 0 && g.u == 0) return K(is_zero)(&dm, m->s.width);
  const REAL most_x = K(largest)(&m->s.x, NULL, m->s.width);
  const REAL most_dm = most_x <= REAL_MAX ? K(largest)(&dm, NULL, m->s.width) : most_x;
  if (most_x <= REAL_MAX && most_dm <= REAL_MAX) {
    m->s.most_x = most_x > 0 && m->s.k == m->s.width && !m->s.indices ? most_x : -1;
    m->s.most_dm = most_dm > 0 ? most_dm : -1;
    return false;
  }
  const bool spoilt = m->st.r != m->st.r; /* and so is every result, whatever the sums */
  if (spoilt) m->st.r = (REAL)NAN;        /* without a payload: see V(store_clean) */
  if (m->st.mean != m->st.mean) m->st.mean = (REAL)NAN;
  if (!known && !spoilt) g = K(sums_any)(&m->s, m->st, layer);
  if (g.ux != g.ux) g.ux = (REAL)NAN;
  if (g.u != g.u) g.u = (REAL)NAN;
  if (!spoilt) m->co = K(coefficients_of)(&job->lay, m->st, g);
  return true;
}

INLINE K(row_sums) K(sums_of)(const K(gradient) * s, K(statistic) st, bool layer, bool common, bool gate) {
  if (common && s->mixed) return K(sums_mixed)(s, st, layer);
  if (common && T != REAL_TYPE && s->weight && !s->gain) return K(sums_raw)(s, st, layer);
  if (common && T != REAL_TYPE && s->before) return K(sums_before)(s, st);
  if (common) return layer ? K(sums_layer)(s, st) : K(sums_rms)(s, st);
  if (gate) return s->gate ? K(sums_gate_after)(s, st) : K(sums_gate_before)(s, st);
  return K(sums_any)(s, st, layer);
}

/* The rest of measure_gradient for a job whose r has a gradient of its own, or none reaches y. The sums of dy, if there
 * is one, have to be in range without it: it would hide what underflow took from them. */
NOINLINE void K(add_dr)(const rms_backward_job *job, K(measured) * m, K(row_sums) g, int64_t i) {
  const bool layer = job->lay.kind == RMS_KIND_LAYER;
  const REAL dr = K(dr_of)(job, i);
  const bool in_range = m->in_range && (!m->s.dy || K(sums_in_range)(g));
  if (dr != 0) g.ux += layer ? m->st.r * dr : dr;
  m->co = K(coefficients_of)(&job->lay, m->st, g);
  const bool nothing = !m->s.dy && dr == 0;
  const bool fits = layer ? ABS(m->co.a) <= SUM_MOST : m->st.clamped || K(c_in_range)(m->co);
  m->in_range = in_range && (nothing || (K(sums_in_range)(g) && fits));
}

/* m->st is known. zero_r: the r of a segment of zeros. */
INLINE void K(measure_gradient)(const rms_backward_job *job, K(measured) * m, int64_t i, bool common, bool gate,
                                REAL zero_r) {
  bool layer = job->lay.kind == RMS_KIND_LAYER;
  K(row_sums) g = {0, 0};
  m->in_range = K(r_in_range)(m->st);
  if (__builtin_expect(m->st.r == zero_r && !layer && !job->stats_in && !job->drstd && !m->st.e, 0) &&
      K(is_unscaled_zero)(&m->s, common && !m->s.mixed)) {
    m->co = K(coefficients_of)(&job->lay, m->st, g);
    m->in_range = true;
    return;
  }
  if (m->in_range && job->sums_in)
    g.ux = (REAL)job->sums_in[i].ux, g.u = (REAL)job->sums_in[i].u;
  else if (m->in_range && m->s.dy)
    g = K(sums_of)(&m->s, m->st, layer, common, gate), m->s.kept = gate && m->s.sigmoids;
  if (__builtin_expect(job->drstd != NULL || !m->s.dy, 0)) {
    K(add_dr)(job, m, g, i);
    return;
  }
  m->co = K(coefficients_of)(&job->lay, m->st, g);
  m->in_range = m->in_range && K(sums_in_range)(g) && (layer || m->st.clamped || K(c_in_range)(m->co));
  if (__builtin_expect(!m->in_range, 0)) m->in_range = K(settle_gradient)(job, m, g);
}

/* Writes the rows that have been measured. Non-temporal stores of wide rows of f32 and f64 fill a stretch of
 * one row after the other. */
static void K(end_rows)(K(gradient_rows) * rows, bool layer) {
  const int count = rows->count;
  if (count > 0) rows->together = K(rows_go_together)(rows);
  if (count <= 1 || !rows->stream || T != REAL_TYPE || rows->width <= K(STRETCH)) {
    rows->first = 0, rows->from = 0, rows->to = rows->width;
    if (count > 0) K(write_gradient_rows)(rows, layer);
  } else {
    for (rows->from = 0; rows->from < rows->width; rows->from += K(STRETCH)) {
      rows->to = rows->width - rows->from < K(STRETCH) ? rows->width : rows->from + K(STRETCH);
      for (rows->first = 0; rows->first < count; rows->first++) {
        rows->count = rows->first + 1;
        K(write_gradient_rows)(rows, layer);
      }
    }
  }
  rows->count = 0;
  rows->scaled = 0;
}

/* A row that must be scaled. */
NOINLINE void K(add_scaled_row)(const rms_backward_job *job, K(gradient_rows) * rows, K(measured) * m, int64_t number) {
  K(gradient) *s = &m->s;
  (void)K(measure_scaled_gradient)(job, s, number, &m->st, &m->co);
  rows->scaled |= 1u << rows->count;
  rows->scale[rows->count] = (K(row_scale)){
      s->x.up1, s->x.up2, s->dy1, s->dy2, s->u1, s->u2, {s->down[0], s->down[1], s->down[2], s->down[3]}};
  K(add_gradient_row)(rows, s, m->st, m->co);
  s->dy1 = s->dy2 = s->u1 = s->u2 = 1;
}

/* Measures a row of a common job whose statistic is known and adds it to those that are to be written. */
NOINLINE void K(add_row)(const rms_backward_job *job, K(gradient_rows) * rows, K(measured) * m, int64_t number,
                         REAL zero_r) {
  m->in_range = false;
  if (__builtin_expect(!m->st.e, 1)) K(measure_gradient)(job, m, number, true, false, zero_r);
  if (__builtin_expect(m->in_range, 1)) {
    K(add_gradient_row)(rows, &m->s, m->st, m->co);
    return;
  }
  if (!m->s.mixed) {
    K(add_scaled_row)(job, rows, m, number);
  } else {
    K(gradient) scaled = m->s;
    scaled.gain = NULL; /* there, a gain says that the job is common */
    K(end_rows)(rows, job->lay.kind == RMS_KIND_LAYER);
    K(backward_scaled)(job, &scaled, number, m->st);
  }
  m->s.x.up1 = m->s.x.up2 = 1;
  m->s.most_x = m->s.most_dm = -1;
}
