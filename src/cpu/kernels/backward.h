/* SPDX-License-Identifier: MIT
 *
 * The backward over the segments of a job. Opens each one, takes or forms its statistic, hands it to the sweeps of
 * backward_segment.h, alone or in batches, and empties the blocks of column sums. */

enum { K(STRIP) = 4096 / sizeof(REAL) }; /* columns that a batch finishes together */

INLINE K(statistic) K(backward_statistic)(const rms_backward_job *job, K(gradient) * s, int64_t i) {
  const rms_layout *lay = &job->lay;
  if (job->stats_in) return K(import_stat)(lay, &job->stats_in[i], &s->x, false);
  if (job->rstd && lay->eps_place == RMS_EPS_INSIDE) {
    K(statistic) st = {((const REAL *)job->rstd)[i], job->mean ? ((const REAL *)job->mean)[i] : 0, 0, (REAL)lay->k, 0};
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
  s->x.x = rms_segment(&job->x, at, lay, job->x_is_f32 ? 4 : T_SIZE);
  s->x.residual = NULL;
  s->x.x_is_f32 = job->x_is_f32;
  s->x.residual_is_f32 = false;
  s->x.up1 = s->x.up2 = 1;
  s->dy = rms_segment(&job->dy, at, lay, T_SIZE);
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
  s->offset = lay->offset == 0 ? -(REAL)0 : (REAL)lay->offset;
  s->weight_is_f32 = lay->weight_is_f32;
  s->residual_is_f32 = lay->residual_is_f32;
  s->before = lay->rounding == RMS_ROUND_BEFORE_WEIGHT;
  s->add_to_dx = job->add_to_dx;
  s->dy1 = s->dy2 = s->u1 = s->u2 = 1;
  for (int i = 0; i < 4; i++)
    s->down[i] = 1;
  s->stream_dx = job->stream_dx;
  s->stream_residual = job->stream_residual;
}

static bool K(backward_is_common)(const rms_backward_job *job, const rms_column_sums *sums) {
  const rms_layout *lay = &job->lay;
  bool alone = !sums->dweight_block && !sums->dbias_block;
  bool all = sums->dweight_block && (sums->dbias_block != NULL) == (lay->kind == RMS_KIND_LAYER);
  return (alone || all) && lay->rounding == RMS_ROUND_AFTER_WEIGHT && !job->dresidual.data &&
         !job->dresidual_out.data && !job->add_to_dx && job->dx.data && lay->k == lay->width && !lay->indices &&
         !job->x_is_f32;
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

/* How many segments are measured before they are written; as in the forward. The column sums of a strip of columns then
 * stay in the first-level cache for the whole batch. Past the caches that pays where prefetches are dropped. */
static int64_t K(gradients_together)(const rms_backward_job *job, bool common) {
  int64_t bytes = 2 * job->lay.width * T_SIZE;
  bool light = T == REAL_TYPE && job->lay.kind == RMS_KIND_RMS, pays = job->large_batches || !job->stream_dx;
  return common && light && pays && bytes > K(WIDE_BYTES) ? K(fit)(K(LARGE_BATCH_BYTES), bytes) : 1;
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
  K(source) dy = K(x_source)(m->s.dy);
  if (job->stats_in || job->sums_in || m->st.e) return false;
  if (known && g.ux == 0 && g.u == 0) return K(is_zero)(&dy, m->s.width);
  bool finite = K(largest)(&m->s.x, NULL, m->s.width) <= REAL_MAX && K(largest)(&dy, NULL, m->s.width) <= REAL_MAX;
  if (finite) return false;
  if (m->st.r != m->st.r) m->st.r = (REAL)NAN; /* without a payload: see V(store_clean) */
  if (m->st.mean != m->st.mean) m->st.mean = (REAL)NAN;
  if (!known) m->co = K(coefficients_of)(&job->lay, m->st, K(sums_any)(&m->s, m->st, layer));
  return true;
}

/* zero_r: the r of a segment of zeros. */
INLINE void K(measure_gradient)(const rms_backward_job *job, K(measured) * m, int64_t i, bool common, REAL zero_r) {
  bool layer = job->lay.kind == RMS_KIND_LAYER;
  K(row_sums) g = {0, 0};
  m->st = K(backward_statistic)(job, &m->s, i);
  m->in_range = K(r_in_range)(m->st);
  if (__builtin_expect(m->st.r == zero_r && !layer && !job->stats_in && !m->st.e, 0) &&
      K(is_unscaled_zero)(&m->s, common)) {
    m->co = K(coefficients_of)(&job->lay, m->st, g);
    m->in_range = true;
    return;
  }
  if (m->in_range && job->sums_in)
    g.ux = (REAL)job->sums_in[i].ux, g.u = (REAL)job->sums_in[i].u;
  else if (m->in_range)
    g = !common ? K(sums_any)(&m->s, m->st, layer) : layer ? K(sums_layer)(&m->s, m->st) : K(sums_rms)(&m->s, m->st);
  m->co = K(coefficients_of)(&job->lay, m->st, g);
  m->in_range = m->in_range && K(sums_in_range)(g) && (layer || K(c_in_range)(m->co));
  if (__builtin_expect(!m->in_range, 0)) m->in_range = K(settle_gradient)(job, m, g);
}

static void K(rms_backward)(const rms_backward_job *job, const rms_column_sums *sums, int64_t first, int64_t last) {
  const rms_layout *lay = &job->lay;
  REAL room[2][K(GAIN_BYTES) / sizeof(REAL)];
  K(gains) gains;
  K(measured) m[K(BATCH)];
  bool layer = lay->kind == RMS_KIND_LAYER;
  bool common = K(backward_is_common)(job, sums) && K(prepare_gains)(lay, NULL, last - first, &gains, room);
  int64_t block = RMS_BLOCK_ROWS * lay->groups * (lay->per_inner ? lay->inner : 1), in_block = 0;
  int64_t batch = K(gradients_together)(job, common), n;
  const K(moment) zeros = {0, 0, 0, 0};
  const REAL zero_r = lay->k > 0 ? K(finish)(lay, zeros, (REAL)lay->k).r : -1;
  rms_cursor at = rms_cursor_at(lay, first);
  for (int64_t i = first; i < last; i += n) {
    bool in_range = true;
    n = last - i < batch ? last - i : batch;
    if (n > block - in_block) n = block - in_block;
    for (int64_t b = 0; b < n; b++) {
      K(gradient) *s = &m[b].s;
      K(open_gradient)(job, sums, &at, s);
      if (common && gains.gain) s->gain = gains.gain + at.inner * gains.inner + at.group * gains.group;
      rms_cursor_next(&at, lay);
      if (job->fetch_ahead && batch == 1 && i + 1 < last) {
        s->ahead_x = rms_segment(&job->x, &at, lay, job->x_is_f32 ? 4 : T_SIZE) - s->x.x;
        s->ahead_dy = rms_segment(&job->dy, &at, lay, T_SIZE) - s->dy;
      }
      K(measure_gradient)(job, &m[b], i + b, common, zero_r);
      in_range = in_range && m[b].in_range;
    }
    int64_t strip = in_range && common && n > 1 ? K(STRIP) : lay->width;
    for (int64_t from = 0; from < lay->width; from += strip) {
      int64_t to = lay->width - from < strip ? lay->width : from + strip;
      for (int64_t b = 0; b < n; b++) {
        const K(measured) *done = &m[b];
        if (__builtin_expect(!done->in_range, 0))
          K(backward_scaled)(job, &m[b].s, i + b);
        else if (common)
          K(write_common_gradient)(&done->s, done->st, done->co, layer, from, to);
        else
          K(write_any)(&done->s, done->st, done->co, layer);
      }
    }
    in_block += n;
    if (in_block == block || i + n == last) {
      K(flush)(job, sums, i + n - in_block == first, i + n == last);
      in_block = 0;
    }
  }
  if (job->stream_dx || job->stream_residual) vec_stream_fence();
}

static void K(rms_backward_stats)(const rms_backward_job *job, int64_t first, int64_t last) {
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
