/* SPDX-License-Identifier: MIT
 *
 * The driver of the forward: chooses one of three ways for the segments of a job.
 *
 * Common jobs are processed in batches: a few segments are measured together, then
 * finished, then written, so that the divisions and roots of one overlap with the sums of the others. Short rows go
 * through forward_short.h, others through forward_common.h.
 *
 * All other jobs are processed one segment after the other by forward_segment.h, or by stepwise.h, and so are segments
 * that must be scaled of jobs with more than x, a gain and a bias. With RMS_STEPS_RSTD a segment in range is one that
 * is rounded before the weight, with T(r) in place of r.
 *
 * For data beyond the caches, while a wide segment is written the next one is prefetched into the L2 cache. */

/* How many segments are measured before they are written. Usually as many as fit in the L1 cache together, so that the
 * sums of one hide the latencies of the other. If the job asks for it (RMS_WAY_BATCHES), as many as fit in the L2
 * cache, so that phases of reading and of writing are long: core/strategy.h. */
static int64_t K(batch_of)(const rms_forward_job *job) {
  int64_t bytes = job->lay.width * T_SIZE * (job->residual.data ? 2 : 1);
  if (!job->stream_y) return K(fit)(K(BATCH_BYTES), bytes);
  return K(fit)(job->way == RMS_WAY_BATCHES ? K(LARGE_BATCH_BYTES) : K(BATCH_BYTES) / 2, bytes);
}

/* Memory for the elements of a few segments, padded to whole vectors. */
typedef struct {
  REAL *at;
  int64_t count;
} K(room);

/* What prepare_gains has left of its room, where there is no bias. */
INLINE K(room) K(room_left)(const K(gains) * gains, REAL room[2][K(GAIN_BYTES) / sizeof(REAL)]) {
  const int64_t half = K(GAIN_BYTES) / sizeof(REAL);
  const bool used = gains->gain == room[0];
  K(room) left = {&room[0][0] + (used ? half : 0), used ? half : 2 * half};
  return left;
}

/* The segment after this one is fetched while x*act(z) of this one is formed: the memory then works beside the
 * activations, which take the most time. */
static void K(fetch_products)(const rms_forward_job *job, rms_cursor at, K(source) * src) {
  rms_cursor_next(&at, &job->lay);
  src->ahead = rms_segment(&job->x, &at, &job->lay, T_SIZE) - src->x;
  src->ahead_gate = rms_segment(&job->gate, &at, &job->lay, T_SIZE) - src->gate;
}

static void K(forward_batches)(const rms_forward_job *job, const K(gains) * gains, int64_t batch, K(room) room,
                               int64_t first, int64_t last) {
  const rms_layout *lay = &job->lay;
  bool layer = lay->kind == RMS_KIND_LAYER, saves = job->rstd || job->mean;
  const bool steps = T != REAL_TYPE && lay->steps == RMS_STEPS_RSTD;
  bool fetch = job->fetch_ahead && batch == 1 && lay->width * T_SIZE >= RMS_WIDE_BYTES;
  bool read_first = job->way == RMS_WAY_SPACED && lay->k < lay->width && lay->width * T_SIZE <= 2 * RMS_WIDE_BYTES;
  /* x*act(z) of a gate before the norm is kept until it is written, and so is x + residual of bf16 */
  const int64_t pitch = (lay->width + LANES - 1) / LANES * LANES;
  const bool sum = T == RMS_BF16 && job->residual.data && !job->bias && !lay->indices && !layer;
  const bool keep = (lay->gate_place == RMS_GATE_BEFORE || sum) && lay->k == lay->width && pitch <= room.count;
  if (keep && batch * pitch > room.count) batch = room.count / pitch;
  rms_cursor measure = rms_cursor_at(lay, first), write = measure;
  K(source) src;
  K(common_segment) s;
  K(open_source)(job, &src);
  K(open_common)(job, gains, &s);
  const bool plain = K(is_plain_job)(job, &s, layer) && !steps;
  for (int64_t i = first; i < last; i += batch) {
    K(moment) m[K(BATCH)];
    K(statistic) st[K(BATCH)];
    int64_t n = last - i < batch ? last - i : batch;
    for (int64_t b = 0; b < n; b++, rms_cursor_next(&measure, lay)) {
      K(move_source)(job, &measure, &src);
      if (keep) src.products = room.at + b * pitch;
      if (fetch && src.gate && i + b + 1 < last) K(fetch_products)(job, measure, &src);
      if (read_first) K(read_ahead)(src.x, lay->width * T_SIZE);
      m[b] = K(measure)(lay, &src);
      if (__builtin_expect(!K(squares_in_range)(m[b].sum), 0)) m[b] = K(settle)(lay, &src, m[b], false);
    }
    for (int64_t b = 0; b < n; b++)
      st[b] = K(finish)(lay, m[b], (REAL)lay->k);
    for (int64_t b = 0; b < n; b++, rms_cursor_next(&write, lay)) {
      const REAL rounded = steps ? K(step)(st[b].r) : 1;
      const bool scaled = m[b].e != 0;
      /* scaled, or a NaN of an f32 residual, whose payload those loops do not take: see V(store_clean) */
      if (__builtin_expect((scaled && !plain) || (m[b].sum != m[b].sum && lay->residual_is_f32) || rounded == 0, 0)) {
        if (steps)
          K(forward_stepwise)(job, &write, i + b);
        else
          K(forward_measured)(job, &write, st[b], i + b);
        continue;
      }
      K(move_common)(job, &write, gains, &s);
      if (__builtin_expect(scaled, 0)) K(set_scale)(&s.src, m[b].e);
      if (keep) s.src.products = room.at + b * pitch;
      if (fetch && !s.src.gate && i + 1 < last) s.ahead = rms_segment(&job->x, &measure, lay, T_SIZE) - s.src.x;
      if (s.ahead && s.gate) s.ahead_gate = rms_segment(&job->gate, &measure, lay, T_SIZE) - s.gate;
      if (saves) K(save_statistic)(job, i + b, st[b]);
      if (steps) st[b].r = rounded;
      K(write_common)(&s, st[b], layer);
    }
  }
}

/* Jobs for forward_common.h. A gate beside anything but a weight in T goes the general way. */
static bool K(forward_is_common)(const rms_forward_job *job) {
  const rms_layout *lay = &job->lay;
  if (job->stats_in || lay->k == 0 || !job->y.data || lay->steps > RMS_STEPS_RSTD) return false;
  if (lay->residual_is_f32 && lay->k < lay->width) return false; /* a NaN with a payload may stand outside the sum */
  if (lay->gate_place == RMS_GATE_NONE) return true;
  return lay->weight && !job->bias && !job->residual.data && lay->kind == RMS_KIND_RMS && !lay->indices &&
         job->y_type == T;
}

/* Rows for forward_short.h: RMSNorm, also with a gate after it, or LayerNorm that is rounded once, and nothing else,
 * with or without a weight and (LayerNorm) a bias. */
static bool K(is_short)(const rms_forward_job *job, const K(gains) * gains) {
  const bool layer = job->lay.kind == RMS_KIND_LAYER, whole = gains->gain && (gains->bias || !layer);
  if (layer ? K(rounds_before)(&job->lay) : gains->bias != NULL) return false;
  return !gains->mixed && !K(are_raw)(gains) && (whole || gains->inner == 0) && !job->residual.data &&
         !job->lay.indices && job->lay.gate_place != RMS_GATE_BEFORE && job->lay.groups == 1 &&
         job->lay.eps_place == RMS_EPS_INSIDE && job->lay.steps < RMS_STEPS_RSTD;
}

/* The loops of short rows have a gain, and of LayerNorm a bias. Where the job has none, ones and -0 change no bit. */
static void K(complete_gains)(const rms_layout *lay, K(gains) * gains, bool biased,
                              REAL room[2][K(GAIN_BYTES) / sizeof(REAL)]) {
  const int64_t pitch = (lay->width + LANES - 1) / LANES * LANES;
  if (!gains->gain) {
    for (int64_t j = 0; j < pitch; j++)
      room[0][j] = 1;
    gains->gain = room[0];
  }
  if (!gains->bias && biased) {
    for (int64_t j = 0; j < pitch; j++)
      room[1][j] = -(REAL)0;
    gains->bias = room[1];
  }
}

/* The same of wide rows of LayerNorm with a weight and no bias: whether there is room, and whether it pays. Past the
 * caches one more vector to load is dearer than the loop for anything. */
static bool K(can_complete)(const rms_forward_job *job, const K(gains) * gains, int64_t rows) {
  const rms_layout *lay = &job->lay;
  const bool pays = rows >= 8 && !(T == REAL_TYPE && job->stream_y);
  return gains->gain && !gains->bias && !gains->mixed && !K(are_raw)(gains) && lay->groups == 1 && !lay->per_inner &&
         !K(rounds_before)(lay) && lay->width <= (int64_t)(K(GAIN_BYTES) / sizeof(REAL)) && pays;
}

KERNEL void K(rms_forward)(const rms_forward_job *job, int64_t first, int64_t last) {
  const rms_layout *lay = &job->lay;
  REAL room[2][K(GAIN_BYTES) / sizeof(REAL)];
  K(gains) gains;
  bool common = K(forward_is_common)(job);
  if (common) {
    K(prepare_gains)(lay, job->bias, last - first, &gains, room);
    gains.mixed = K(is_mixed)(job, &gains);
  }
  if (common && !(gains.mixed && job->gate.data)) {
    int64_t batch = K(batch_of)(job);
    const bool layer = lay->kind == RMS_KIND_LAYER;
    int64_t most = job->stream_y ? K(SHORT_STREAM_BYTES) : layer ? K(SHORT_LAYER_BYTES) : K(SHORT_BYTES);
    if (last - first > 1 && lay->width * T_SIZE <= most && K(is_short)(job, &gains)) {
      K(complete_gains)(lay, &gains, layer, room);
      K(forward_short)(job, gains.gain, gains.bias, gains.inner, first, last);
    } else {
      if (layer && K(can_complete)(job, &gains, last - first)) K(complete_gains)(lay, &gains, true, room);
      K(forward_batches)(job, &gains, batch, K(room_left)(&gains, room), first, last);
    }
  } else {
    rms_cursor at = rms_cursor_at(lay, first);
    for (int64_t i = first; i < last; i++, rms_cursor_next(&at, lay))
      if (T != REAL_TYPE && lay->steps >= RMS_STEPS_RSTD)
        K(forward_stepwise)(job, &at, i);
      else
        K(forward_segment)(job, &at, i);
  }
  if (job->stream_y || job->stream_residual) vec_stream_fence();
}

KERNEL void K(rms_stats)(const rms_forward_job *job, int64_t first, int64_t last) {
  rms_cursor at = rms_cursor_at(&job->lay, first);
  for (int64_t i = first; i < last; i++, rms_cursor_next(&at, &job->lay)) {
    K(segment) s;
    K(open_segment)(job, &at, &s);
    if (T != REAL_TYPE && job->lay.steps >= RMS_STEPS_RSTD)
      job->stats_out[i] = K(export_steps)(&job->lay, &s.src);
    else
      job->stats_out[i] = K(export_moment)(&job->lay, K(moment_of)(&job->lay, &s.src, true));
  }
}
