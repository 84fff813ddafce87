/* SPDX-License-Identifier: MIT
 *
 * The backward over the segments of a job. Opens each one, has it measured and written, alone or in batches, and
 * empties the blocks of column sums. */

INLINE void K(open_gradient)(const rms_backward_job *job, const rms_column_sums *sums, const rms_cursor *at,
                             K(gradient) * s) {
  const rms_layout *lay = &job->lay;
  int64_t residual_size = lay->residual_is_f32 ? 4 : T_SIZE, weight_size = lay->weight_is_f32 ? 4 : T_SIZE;
  int64_t weight_at = at->inner * lay->weight_inner + at->group * lay->width * weight_size;
  int64_t piece = ((lay->per_inner ? at->inner * lay->groups : 0) + at->group) * job->pitch;
  const rms_dtype x_type = job->x_is_f32 ? RMS_F32 : T;
  s->x = K(x_source)(rms_segment(&job->x, at, lay, K(size_of)(x_type)));
  s->x.x_type = x_type;
  const char *gate = job->gate.data ? rms_segment(&job->gate, at, lay, T_SIZE) : NULL;
  s->x.gate = lay->gate_place == RMS_GATE_BEFORE ? gate : NULL;
  s->gate = lay->gate_place == RMS_GATE_AFTER ? gate : NULL;
  s->x.sigmoid = s->sigmoid = lay->activation == RMS_ACT_SIGMOID;
  s->bias = job->bias ? job->bias + weight_at : NULL;
  s->dgate = job->dgate.data ? rms_segment(&job->dgate, at, lay, T_SIZE) : NULL;
  s->dy = job->dy.data ? rms_segment(&job->dy, at, lay, K(size_of)(job->dy_type)) : NULL;
  s->dy_type = job->dy_type;
  s->shift = 0;
  s->mixed = false;
  s->weight = lay->weight ? lay->weight + weight_at : NULL;
  s->dresidual = job->dresidual.data ? rms_segment(&job->dresidual, at, lay, residual_size) : NULL;
  s->dx = job->dx.data ? rms_segment(&job->dx, at, lay, T_SIZE) : NULL;
  s->dresidual_out = job->dresidual_out.data ? rms_segment(&job->dresidual_out, at, lay, residual_size) : NULL;
  s->gain = NULL;
  s->sigmoids = NULL;
  s->kept = false;
  s->dweight = sums && sums->dweight_block ? (REAL *)sums->dweight_block + piece : NULL;
  s->dbias = sums && sums->dbias_block ? (REAL *)sums->dbias_block + piece : NULL;
  s->indices = lay->indices;
  s->width = lay->width;
  s->k = lay->k;
  s->ahead_x = s->ahead_dy = s->ahead_gate = 0;
  s->gain_form = K(gain_form_of)(lay);
  s->weight_is_f32 = lay->weight_is_f32;
  s->residual_is_f32 = lay->residual_is_f32;
  s->before = lay->rounding == RMS_ROUND_BEFORE_WEIGHT;
  s->terms = lay->steps == RMS_STEPS_TERMS;
  s->add_to_dx = job->add_to_dx;
  s->most_x = s->most_dm = -1;
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
  return (alone || all) && lay->steps <= RMS_STEPS_RSTD && !job->gate.data && !job->dresidual.data &&
         !job->dresidual_out.data && !job->add_to_dx && job->dx.data && lay->k > 0 && !lay->indices && !job->x_is_f32 &&
         !job->drstd && !job->dmean;
}

/* A gate after the norm, or before it, and nothing but a weight beside it. */
static bool K(gate_is_alone)(const rms_backward_job *job, const rms_column_sums *sums) {
  const rms_layout *lay = &job->lay;
  return job->gate.data && job->dy_type == T && lay->kind == RMS_KIND_RMS && lay->k == lay->width && !job->x_is_f32 &&
         !job->bias && !job->dresidual.data && !job->dresidual_out.data && !job->add_to_dx && job->dx.data &&
         job->dgate.data && !sums->dbias_block && !job->drstd;
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
 * the caches the job says in which way: rows that are not short are written one by one, unless it asks for batches. */
static int64_t K(gradients_together)(const rms_backward_job *job) {
  const int64_t bytes = job->lay.width * (T_SIZE + K(size_of)(job->dy_type)), is_short = 2048;
  bool alone = job->stream_dx && job->way != RMS_WAY_BATCHES && bytes > is_short;
  if (job->lay.groups > 1 || job->lay.per_inner || alone) return 1;
  return K(fit)(job->stream_dx && job->way == RMS_WAY_BURST ? K(BURST_BYTES) : K(LARGE_BATCH_BYTES), bytes);
}

/* A row of a common job with RMS_STEPS_RSTD: its second sweep rounds both terms and takes T(r) for r. What is out of
 * range is not scaled. */
NOINLINE void K(add_rounded_row)(const rms_backward_job *job, K(gradient_rows) * rows, K(measured) * m,
                                 int64_t number) {
  if (K(r_in_range)(m->st)) {
    const K(row_sums) g = K(sums_rounded)(&m->s, m->st);
    m->co = K(coefficients_of)(&job->lay, m->st, g);
    m->st.r = K(step)(m->st.r);
    if (K(r_in_range)(m->st) && K(sums_in_range)(g) && K(c_in_range)(m->co)) {
      K(add_gradient_row)(rows, &m->s, m->st, m->co);
      return;
    }
  }
  m->s.x.up1 = m->s.x.up2 = 1;
  K(end_rows)(rows, false);
  K(backward_stepwise)(job, &m->s, number);
}

/* Fetches all that is read of the rows that should be fetched early, of short rows whose x and dy are in T. */
static void K(fetch_gradients)(K(gradient_rows) * rows, int count) {
  for (int b = 0; b < count; b++) {
    K(fetch_rows)(rows->x[b] + rows->ahead_x, 0, rows->width * T_SIZE, 1);
    K(fetch_rows)(rows->dy[b] + rows->ahead_dy, 0, rows->width * T_SIZE, 1);
  }
  rows->ahead_x = rows->ahead_dy = 0;
}

/* Segments i..i+n-1 of a common job, which share their gain and their column sums. `at` is moved behind them. */
static void K(backward_together)(const rms_backward_job *job, const rms_column_sums *sums, const K(gains) * gains,
                                 rms_cursor *at, int64_t i, int64_t n, bool is_short, bool more, REAL zero_r) {
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
  const bool steps = T != REAL_TYPE && lay->steps == RMS_STEPS_RSTD;
  rows.terms = lay->steps == RMS_STEPS_TERMS || steps;
  rows.width = lay->width;
  rows.k = lay->k;
  rows.ahead_x = rows.ahead_dy = 0;
  rows.count = 0;
  rows.scaled = 0;
  rms_cursor row = *at;
  const char *x0 = m.s.x.x, *dy0 = m.s.dy;
  for (int64_t b = 0; b < n; b++)
    rms_cursor_next(at, lay);
  if (job->fetch_ahead && more && job->way != RMS_WAY_LEFT) {
    rows.ahead_x = rms_segment(&job->x, at, lay, T_SIZE) - x0;
    rows.ahead_dy = rms_segment(&job->dy, at, lay, K(size_of)(job->dy_type)) - dy0;
  }
  if (is_short && layer) {
    K(add_short_layer_rows)(job, &rows, &m, K(number_of)(job, i), (int)n, zero_r);
  } else if (is_short) {
    K(add_short_rows)(job, &rows, &m, K(number_of)(job, i), (int)n, zero_r);
  } else {
    for (int64_t b = 0; b < n; b++, rms_cursor_next(&row, lay)) {
      m.s.x.x = rms_segment(&job->x, &row, lay, T_SIZE);
      m.s.dy = rms_segment(&job->dy, &row, lay, K(size_of)(job->dy_type));
      m.s.dx = rms_segment(&job->dx, &row, lay, T_SIZE);
      const int64_t number = K(number_of)(job, i + b);
      m.st = K(backward_statistic)(job, &m.s, number);
      if (steps)
        K(add_rounded_row)(job, &rows, &m, number);
      else
        K(add_row)(job, &rows, &m, number, zero_r);
    }
  }
  if (is_short && job->way == RMS_WAY_BURST && rows.ahead_dy) K(fetch_gradients)(&rows, (int)n);
  K(end_rows)(&rows, layer);
}

/* Any segment. `at` is moved behind it. gains, room: of a job whose gate is alone, else NULL and nothing. */
static void K(backward_alone)(const rms_backward_job *job, const rms_column_sums *sums, const K(gains) * gains,
                              K(room) room, rms_cursor *at, int64_t i, bool more, REAL zero_r) {
  const rms_layout *lay = &job->lay;
  const bool gate = gains != NULL;
  K(measured) m;
  K(open_gradient)(job, sums, at, &m.s);
  if (gate && gains->gain) m.s.gain = gains->gain + at->inner * gains->inner + at->group * gains->group;
  if (gate && lay->width <= room.count) m.s.sigmoids = room.at;
  rms_cursor_next(at, lay);
  if (job->fetch_ahead && more && m.s.dy) {
    m.s.ahead_x = rms_segment(&job->x, at, lay, K(size_of)(m.s.x.x_type)) - m.s.x.x;
    m.s.ahead_dy = rms_segment(&job->dy, at, lay, K(size_of)(m.s.dy_type)) - m.s.dy;
    if (gate) m.s.ahead_gate = rms_segment(&job->gate, at, lay, T_SIZE) - (m.s.gate ? m.s.gate : m.s.x.gate);
  }
  const int64_t number = K(number_of)(job, i);
  if (T != REAL_TYPE && lay->steps >= RMS_STEPS_RSTD) {
    K(backward_stepwise)(job, &m.s, number);
    return;
  }
  if (job->dmean) m.s.shift = ((const REAL *)job->dmean)[number] / (REAL)lay->k;
  m.st = K(backward_statistic)(job, &m.s, number);
  K(measure_gradient)(job, &m, number, false, gate, zero_r);
  if (__builtin_expect(!m.in_range, 0)) {
    m.s.gain = NULL; /* there, a gain says that the job is common */
    K(backward_scaled)(job, &m.s, number, m.st);
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
  const K(room) left = gate ? K(room_left)(&gains, room) : (K(room)){NULL, 0};
  int64_t block = RMS_BLOCK_ROWS * lay->groups * (lay->per_inner ? lay->inner : 1), in_block = 0;
  int64_t batch = common ? K(gradients_together)(job) : 1, n;
  const bool is_short = common && batch > 1 && K(are_short_rows)(job, &gains);
  const K(moment) zeros = {0, 0, 0, 0};
  const REAL zero_r = lay->k > 0 ? K(finish)(lay, zeros, (REAL)lay->k).r : -1;
  rms_cursor at = rms_cursor_at(lay, first);
  for (int64_t i = first; i < last; i += n) {
    n = last - i < batch ? last - i : batch;
    if (n > block - in_block) n = block - in_block;
    if (common)
      K(backward_together)(job, sums, &gains, &at, i, n, is_short, i + n < last, zero_r);
    else
      K(backward_alone)(job, sums, gate ? &gains : NULL, left, &at, i, i + n < last, zero_r);
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
      K(backward_scaled)(job, &s, i, st);
    }
  }
}
