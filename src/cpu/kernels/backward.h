/* SPDX-License-Identifier: MIT
 *
 * The backward over the segments of a job. Opens each one, takes or forms its statistic, hands it to the sweeps of
 * backward_segment.h, alone or in batches, and empties the blocks of column sums. */

enum { K(STRETCH) = 4096 / sizeof(REAL) }; /* columns of a row that are streamed before those of the next */

/* Where the statistics and sums of segment i stand. */
INLINE int64_t K(number_of)(const rms_backward_job *job, int64_t i) {
  const int64_t groups = job->lay.groups;
  return job->row_step == 1 ? i : i / groups * job->row_step * groups + i % groups;
}

/* i: its number. */
INLINE K(statistic) K(backward_statistic)(const rms_backward_job *job, K(gradient) * s, int64_t i) {
  const rms_layout *lay = &job->lay;
  if (job->stats_in) return K(import_stat)(lay, &job->stats_in[i], &s->x, false);
  if (job->rstd && lay->eps_place == RMS_EPS_INSIDE) {
    K(statistic)
    st = {((const REAL *)job->rstd)[i], job->mean ? ((const REAL *)job->mean)[i] : 0, 0, (REAL)lay->k, 0, false};
    return st;
  }
  return K(finish)(lay, K(moment_of)(lay, &s->x), (REAL)lay->k);
}

INLINE void K(open_gradient)(const rms_backward_job *job, const rms_column_sums *sums, const rms_cursor *at,
                             K(gradient) * s) {
  const rms_layout *lay = &job->lay;
  int64_t residual_size = lay->residual_is_f32 ? 4 : T_SIZE, weight_size = lay->weight_is_f32 ? 4 : T_SIZE;
  int64_t weight_at = at->inner * lay->weight_inner + at->group * lay->width * weight_size;
  int64_t piece = ((lay->per_inner ? at->inner * lay->groups : 0) + at->group) * job->pitch;
  s->x.x_type = job->x_is_f32 ? RMS_F32 : T;
  s->x.x = rms_segment(&job->x, at, lay, K(size_of)(s->x.x_type));
  const char *gate = job->gate.data ? rms_segment(&job->gate, at, lay, T_SIZE) : NULL;
  s->x.gate = lay->gate_place == RMS_GATE_BEFORE ? gate : NULL;
  s->gate = lay->gate_place == RMS_GATE_AFTER ? gate : NULL;
  s->x.sigmoid = s->sigmoid = lay->activation == RMS_ACT_SIGMOID;
  s->bias = job->bias ? job->bias + weight_at : NULL;
  s->dgate = job->dgate.data ? rms_segment(&job->dgate, at, lay, T_SIZE) : NULL;
  s->x.residual = NULL;
  s->x.residual_is_f32 = false;
  s->x.up1 = s->x.up2 = 1;
  s->dy = rms_segment(&job->dy, at, lay, K(size_of)(job->dy_type));
  s->dy_type = job->dy_type;
  s->mixed = false;
  s->weight = lay->weight ? lay->weight + weight_at : NULL;
  s->dresidual = job->dresidual.data ? rms_segment(&job->dresidual, at, lay, residual_size) : NULL;
  s->dx = job->dx.data ? rms_segment(&job->dx, at, lay, T_SIZE) : NULL;
  s->dresidual_out = job->dresidual_out.data ? rms_segment(&job->dresidual_out, at, lay, residual_size) : NULL;
  s->gain = NULL;
  s->dweight = sums && sums->dweight_block ? (REAL *)sums->dweight_block + piece : NULL;
  s->dbias = sums && sums->dbias_block ? (REAL *)sums->dbias_block + piece : NULL;
  s->indices = lay->indices;
  s->width = lay->width;
  s->k = lay->k;
  s->ahead_x = s->ahead_dy = 0;
  s->gain_form = K(gain_form_of)(lay);
  s->weight_is_f32 = lay->weight_is_f32;
  s->residual_is_f32 = lay->residual_is_f32;
  s->before = lay->rounding == RMS_ROUND_BEFORE_WEIGHT;
  s->terms = lay->steps == RMS_STEPS_TERMS;
  s->add_to_dx = job->add_to_dx;
  s->dy1 = s->dy2 = s->u1 = s->u2 = 1;
  for (int i = 0; i < 4; i++)
    s->down[i] = 1;
  s->stream_dx = job->stream_dx;
  s->stream_residual = job->stream_residual;
  s->stream_dgate = job->stream_dgate;
}

static bool K(backward_is_common)(const rms_backward_job *job, const rms_column_sums *sums) {
  const rms_layout *lay = &job->lay;
  bool alone = !sums->dweight_block && !sums->dbias_block;
  bool all = sums->dweight_block && (sums->dbias_block != NULL) == (lay->kind == RMS_KIND_LAYER);
  return (alone || all) && lay->steps <= RMS_STEPS_TERMS && !job->gate.data && !job->dresidual.data &&
         !job->dresidual_out.data && !job->add_to_dx && job->dx.data && lay->k > 0 && !lay->indices && !job->x_is_f32;
}

/* Whether a common job needs the loops for mixed types. */
INLINE bool K(is_mixed_back)(const rms_backward_job *job, const K(gains) * gains) {
  const rms_layout *lay = &job->lay;
  return gains->mixed || job->dy_type != T || lay->steps == RMS_STEPS_TERMS ||
         (K(rounds_before)(lay) && (lay->kind == RMS_KIND_LAYER || lay->k < lay->width));
}

/* A gate after the norm, or before it, and nothing but a weight beside it. */
static bool K(gate_is_alone)(const rms_backward_job *job, const rms_column_sums *sums) {
  const rms_layout *lay = &job->lay;
  return job->gate.data && job->dy_type == T && lay->kind == RMS_KIND_RMS && lay->k == lay->width && !job->x_is_f32 &&
         !job->bias && !job->dresidual.data && !job->dresidual_out.data && !job->add_to_dx && job->dx.data &&
         job->dgate.data && !sums->dbias_block;
}

/* total += block in element order, or total = block for the first one; then block = 0, but for the last one. */
static void K(flush_block)(double *total, REAL *block, int64_t count, bool first, bool last) {
  for (int64_t j = 0; j < count; j += LANES) {
    REAL ordered[LANES];
    V(store)(ordered, V(load)(block + j, REAL_TYPE, 0), REAL_TYPE, EO);
    if (!last) V(store)(block + j, V(set)(0), REAL_TYPE, 0);
    for (int i = 0; i < LANES; i += 8) {
      vd old = first ? vd_set(0) : vd_load(total + j + i, RMS_F64, 0);
      vd_store(total + j + i, vd_add(old, vd_load(ordered + i, REAL_TYPE, 0)), RMS_F64, 0);
    }
  }
}

NOINLINE void K(flush)(const rms_backward_job *job, const rms_column_sums *sums, bool first, bool last) {
  int64_t count = (job->lay.per_inner ? job->lay.inner : 1) * job->lay.groups * job->pitch;
  if (sums->dweight_total) K(flush_block)(sums->dweight_total, (REAL *)sums->dweight_block, count, first, last);
  if (sums->dbias_total) K(flush_block)(sums->dbias_total, (REAL *)sums->dbias_block, count, first, last);
}

/* How many segments of a common job are measured before they are written: of those that share their column sums. Past
 * the caches rows of f32 and f64 that are not short are written one by one, while the next is fetched, unless the job
 * asks for batches. */
static int64_t K(gradients_together)(const rms_backward_job *job) {
  const int64_t bytes = job->lay.width * (T_SIZE + K(size_of)(job->dy_type)), is_short = 2048;
  bool alone = T == REAL_TYPE && job->stream_dx && job->way != RMS_WAY_BATCHES && bytes > is_short;
  if (job->lay.groups > 1 || job->lay.per_inner || alone) return 1;
  return K(fit)(K(LARGE_BATCH_BYTES), bytes);
}

/* A segment between its two sweeps. */
typedef struct {
  K(gradient) s;
  K(statistic) st;
  K(coefficients) co;
  bool in_range;
} K(measured);

/* A segment of zeros, of RMS, whose u is neither so large nor so small that it must be scaled: dx = u*r. */
NOINLINE bool K(is_unscaled_zero)(const K(gradient) * s, bool common) {
  if (!K(is_zero)(&s->x, s->width)) return false;
  REAL bound = K(bound_of_u)(s, common);
  return bound == 0 || (bound >= SUM_LEAST && bound <= SUM_MOST);
}

/* Sums out of range that need no scale all the same: those of dy = 0, which are exactly zero, and those of a segment
 * with a NaN or an infinity, whose results no scale would change. */
NOINLINE bool K(settle_gradient)(const rms_backward_job *job, K(measured) * m, K(row_sums) g) {
  bool layer = job->lay.kind == RMS_KIND_LAYER, known = K(r_in_range)(m->st);
  K(source) dm = K(dm_source)(&m->s);
  if (job->stats_in || job->sums_in || m->st.e) return false;
  if (known && g.ux == 0 && g.u == 0) return K(is_zero)(&dm, m->s.width);
  bool finite = K(largest)(&m->s.x, NULL, m->s.width) <= REAL_MAX && K(largest)(&dm, NULL, m->s.width) <= REAL_MAX;
  if (finite) return false;
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

/* zero_r: the r of a segment of zeros. */
INLINE void K(measure_gradient)(const rms_backward_job *job, K(measured) * m, int64_t i, bool common, bool gate,
                                REAL zero_r) {
  bool layer = job->lay.kind == RMS_KIND_LAYER;
  K(row_sums) g = {0, 0};
  m->st = K(backward_statistic)(job, &m->s, i);
  m->in_range = K(r_in_range)(m->st);
  if (__builtin_expect(m->st.r == zero_r && !layer && !job->stats_in && !m->st.e, 0) &&
      K(is_unscaled_zero)(&m->s, common && !m->s.mixed)) {
    m->co = K(coefficients_of)(&job->lay, m->st, g);
    m->in_range = true;
    return;
  }
  if (m->in_range && job->sums_in)
    g.ux = (REAL)job->sums_in[i].ux, g.u = (REAL)job->sums_in[i].u;
  else if (m->in_range)
    g = K(sums_of)(&m->s, m->st, layer, common, gate);
  m->co = K(coefficients_of)(&job->lay, m->st, g);
  m->in_range = m->in_range && K(sums_in_range)(g) && (layer || m->st.clamped || K(c_in_range)(m->co));
  if (__builtin_expect(!m->in_range, 0)) m->in_range = K(settle_gradient)(job, m, g);
}

/* Writes the rows that have been measured. Non-temporal stores of wide rows of f32 and f64 fill a stretch of
 * one row after the other. */
static void K(end_rows)(K(gradient_rows) * rows, bool layer) {
  const int count = rows->count;
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
}

/* Segments i..i+n-1 of a common job, which share their gain and their column sums. `at` is moved behind them. */
static void K(backward_together)(const rms_backward_job *job, const rms_column_sums *sums, const K(gains) * gains,
                                 rms_cursor *at, int64_t i, int64_t n, bool more, REAL zero_r) {
  const rms_layout *lay = &job->lay;
  const bool layer = lay->kind == RMS_KIND_LAYER;
  K(gradient_rows) rows;
  K(measured) m;
  K(open_gradient)(job, sums, at, &m.s);
  if (gains->gain) m.s.gain = gains->gain + at->inner * gains->inner + at->group * gains->group;
  rows.gain = m.s.gain;
  rows.raw_gain = K(are_raw)(gains) ? m.s.weight : NULL;
  rows.gain_form = m.s.gain_form;
  rows.dy_type = m.s.dy_type;
  rows.mixed = m.s.mixed = K(is_mixed_back)(job, gains);
  rows.dweight = m.s.dweight;
  rows.dbias = m.s.dbias;
  rows.stream = m.s.stream_dx;
  rows.before = K(rounds_before)(lay);
  rows.product = !lay->weight_is_f32;
  rows.terms = lay->steps == RMS_STEPS_TERMS;
  rows.width = lay->width;
  rows.k = lay->k;
  rows.ahead_x = rows.ahead_dy = 0;
  rows.count = 0;
  rms_cursor row = *at;
  const char *x0 = m.s.x.x, *dy0 = m.s.dy;
  for (int64_t b = 0; b < n; b++)
    rms_cursor_next(at, lay);
  if (job->fetch_ahead && more) {
    rows.ahead_x = rms_segment(&job->x, at, lay, T_SIZE) - x0;
    rows.ahead_dy = rms_segment(&job->dy, at, lay, K(size_of)(job->dy_type)) - dy0;
  }
  for (int64_t b = 0; b < n; b++, rms_cursor_next(&row, lay)) {
    m.s.x.x = rms_segment(&job->x, &row, lay, T_SIZE);
    m.s.dy = rms_segment(&job->dy, &row, lay, K(size_of)(job->dy_type));
    m.s.dx = rms_segment(&job->dx, &row, lay, T_SIZE);
    const int64_t number = K(number_of)(job, i + b);
    K(measure_gradient)(job, &m, number, true, false, zero_r);
    if (__builtin_expect(m.in_range, 1)) {
      K(add_gradient_row)(&rows, &m.s, m.st, m.co);
    } else {
      K(end_rows)(&rows, layer);
      K(gradient) scaled = m.s;
      if (m.s.mixed) scaled.gain = NULL; /* there, a gain says that the job is common */
      K(backward_scaled)(job, &scaled, number);
      m.s.x.up1 = m.s.x.up2 = 1;
    }
  }
  K(end_rows)(&rows, layer);
}

/* Any segment. `at` is moved behind it. gains: of a job whose gate is alone, else NULL. */
static void K(backward_alone)(const rms_backward_job *job, const rms_column_sums *sums, const K(gains) * gains,
                              rms_cursor *at, int64_t i, bool more, REAL zero_r) {
  const rms_layout *lay = &job->lay;
  const bool gate = gains != NULL;
  K(measured) m;
  K(open_gradient)(job, sums, at, &m.s);
  if (gate && gains->gain) m.s.gain = gains->gain + at->inner * gains->inner + at->group * gains->group;
  rms_cursor_next(at, lay);
  if (job->fetch_ahead && more) {
    m.s.ahead_x = rms_segment(&job->x, at, lay, K(size_of)(m.s.x.x_type)) - m.s.x.x;
    m.s.ahead_dy = rms_segment(&job->dy, at, lay, K(size_of)(m.s.dy_type)) - m.s.dy;
  }
  const int64_t number = K(number_of)(job, i);
  if (T != REAL_TYPE && lay->steps >= RMS_STEPS_RSTD) {
    K(backward_stepwise)(job, &m.s, number);
    return;
  }
  K(measure_gradient)(job, &m, number, false, gate, zero_r);
  if (__builtin_expect(!m.in_range, 0)) {
    m.s.gain = NULL; /* there, a gain says that the job is common */
    K(backward_scaled)(job, &m.s, number);
  } else if (gate && m.s.gate) {
    K(write_gate_after)(&m.s, m.st, m.co);
  } else if (gate) {
    K(write_gate_before)(&m.s, m.st, m.co);
  } else {
    K(write_any)(&m.s, m.st, m.co, lay->kind == RMS_KIND_LAYER);
  }
}

KERNEL void K(rms_backward)(const rms_backward_job *job, const rms_column_sums *sums, int64_t first, int64_t last) {
  const rms_layout *lay = &job->lay;
  REAL room[2][K(GAIN_BYTES) / sizeof(REAL)];
  K(gains) gains;
  bool common = K(backward_is_common)(job, sums), gate = K(gate_is_alone)(job, sums);
  if (common || gate) K(prepare_gains)(lay, NULL, last - first, &gains, room);
  if (gate && gains.mixed) gate = false;
  int64_t block = RMS_BLOCK_ROWS * lay->groups * (lay->per_inner ? lay->inner : 1), in_block = 0;
  int64_t batch = common ? K(gradients_together)(job) : 1, n;
  const K(moment) zeros = {0, 0, 0, 0};
  const REAL zero_r = lay->k > 0 ? K(finish)(lay, zeros, (REAL)lay->k).r : -1;
  rms_cursor at = rms_cursor_at(lay, first);
  for (int64_t i = first; i < last; i += n) {
    n = last - i < batch ? last - i : batch;
    if (n > block - in_block) n = block - in_block;
    if (common)
      K(backward_together)(job, sums, &gains, &at, i, n, i + n < last, zero_r);
    else
      K(backward_alone)(job, sums, gate ? &gains : NULL, &at, i, i + n < last, zero_r);
    in_block += n;
    if (in_block == block || i + n == last) {
      K(flush)(job, sums, !job->go_on && i + n - in_block == first, !job->go_on && i + n == last);
      in_block = 0;
    }
  }
  if (job->stream_dx || job->stream_residual || job->stream_dgate) vec_stream_fence();
}

KERNEL void K(rms_backward_stats)(const rms_backward_job *job, int64_t first, int64_t last) {
  const rms_layout *lay = &job->lay;
  rms_cursor at = rms_cursor_at(lay, first);
  for (int64_t i = first; i < last; i++, rms_cursor_next(&at, lay)) {
    K(gradient) s;
    K(row_sums) g = {0, 0};
    K(open_gradient)(job, NULL, &at, &s);
    K(statistic) st = K(backward_statistic)(job, &s, i);
    bool in_range = K(r_in_range)(st);
    if (in_range) g = K(sums_any)(&s, st, lay->kind == RMS_KIND_LAYER);
    if (in_range && K(sums_in_range)(g)) {
      job->sums_out[i].ux = (double)g.ux;
      job->sums_out[i].u = (double)g.u;
    } else {
      K(backward_scaled)(job, &s, i);
    }
  }
}
