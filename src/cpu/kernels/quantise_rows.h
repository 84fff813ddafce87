/* SPDX-License-Identifier: MIT
 *
 * Quantised outputs straight from x, where y itself is not wanted: a piece of y is formed as f32, rounded to T, in lane
 * order, in a room that stays in the first-level cache, with the largest magnitudes of its blocks; then it is
 * converted. The statistics are those of the ordinary kernels. The same arithmetic as the ordinary way
 * (core/quantise.c), which takes everything else: residuals, gates, scaled rows, blocks that are no whole vectors. */

enum {
  K(ROOM) = RMS_LARGEST_BLOCK, /* elements of y, and of q on their way past the caches */
  K(GIVEN) = 1024              /* of a piece where no scale is computed                */
};

/* A segment, and where its columns stand. */
typedef struct {
  const char *x;
  const REAL *gain, *bias;         /* in lane order, or NULL */
  const char *raw_gain, *raw_bias; /* or as the caller has them */
  K(gain_form) gain_form;
  REAL r, mean;
  int64_t ahead; /* bytes from x to what should be fetched early; 0: nothing */
  bool layer, before, product, wide, tame;
} K(quantised_row);

/* What is known at the call: LayerNorm with a bias; rounding before the weight. any: nothing is known; otherwise gains
 * and biases are laid out, and for bf16 tame. */
typedef struct {
  bool layer, before, any;
} K(row_kind);

/* Gains and biases below 2^20, no NaN among them: y is far from the ends of the range then, because h is at most the
 * root of the number of elements, and what is made of an h below the least normal number is still a zero, see below. */
#define TAME 0x1p20f

/* v rounded to T. Of bf16 this is Veltkamp's splitting: v times 2^16 + 1, less what the product exceeds v by, is v
 * rounded to the eight digits that are left, to nearest even (tests/vec/quotient.c walks over all significands), zeros
 * with their sign. Numbers below the least normal one keep too many digits, and are zeros in every block whose scale is
 * within the range: K(quantise_piece) does the others again. */
INLINE VEC K(round_tame)(VEC v) {
  if (T != RMS_BF16) return V(round_clean)(v, T);
  VEC product = V(mul)(v, V(set)(65537));
  return V(sub)(product, V(sub)(product, v));
}

INLINE VEC K(larger)(VEC most, VEC v, K(row_kind) kind) {
  return T == RMS_BF16 && !kind.any ? V(max_magnitude)(most, v) : V(max_bits)(most, v);
}

NOINLINE VEC K(affine_any)(const K(quantised_row) * s, VEC h, int64_t j, int n) {
  const bool weighted = s->gain || s->raw_gain, biased = s->bias || s->raw_bias;
  VEC g = h, b = h;
  if (weighted) g = s->gain ? K(load_gain)(s->gain, j, n) : K(gain)(s->raw_gain, j, n, s->gain_form);
  if (biased) b = s->bias ? K(load_gain)(s->bias, j, n) : K(load)(s->raw_bias, j, n, s->wide);
  if (s->before) {
    h = V(round)(h, T);
    if (weighted) h = V(mul)(h, g);
    if (weighted && s->product) h = V(round)(h, T);
    return biased ? V(add)(h, b) : h;
  }
  if (!weighted) return biased ? V(add)(h, b) : h;
  return biased ? V(fma)(h, g, b) : V(mul)(h, g);
}

/* n elements of y from column j on. */
INLINE VEC K(y_of)(const K(quantised_row) * s, VEC r, VEC mean, int64_t j, int n, K(row_kind) kind) {
  VEC v = K(load)(s->x, j, n, false);
  if (kind.any) {
    if (s->layer) v = V(sub)(v, mean);
    /* an f32 weight may hold a NaN with a payload: see V(store_clean) */
    return V(round)(K(affine_any)(s, V(mul)(v, r), j, n), T);
  }
  if (kind.layer) v = V(sub)(v, mean);
  v = V(mul)(v, r);
  if (kind.before) v = K(round_tame)(v);
  VEC g = K(load_gain)(s->gain, j, n);
  v = kind.layer ? V(fma)(v, g, K(load_gain)(s->bias, j, n)) : V(mul)(v, g);
  return K(round_tame)(v);
}

/* n columns from j on; returns their largest magnitudes in each lane. */
INLINE VEC K(form_block)(const K(quantised_row) * s, VEC r, VEC mean, int64_t from, int64_t n, float *room,
                         K(row_kind) kind) {
  VEC most = V(set)(0), other = most;
  int64_t j = 0;
  for (; j + 2 * LANES <= n; j += 2 * LANES) {
    if (s->ahead)
      for (int64_t line = 0; line < 2 * LANES * T_SIZE; line += 64)
        vec_prefetch(s->x + s->ahead + (from + j) * T_SIZE + line);
    VEC a = K(y_of)(s, r, mean, from + j, LANES, kind), b = K(y_of)(s, r, mean, from + j + LANES, LANES, kind);
    most = K(larger)(most, a, kind);
    other = K(larger)(other, b, kind);
    V(store)(room + j, a, RMS_F32, 0);
    V(store)(room + j + LANES, b, RMS_F32, 0);
  }
  for (; j < n; j += LANES) {
    const int count = n - j < LANES ? (int)(n - j) : LANES;
    VEC a = K(y_of)(s, r, mean, from + j, count, kind);
    if (count < LANES) a = V(first)(a, count, EO);
    most = K(larger)(most, a, kind);
    V(store)(room + j, a, RMS_F32, 0);
  }
  return K(larger)(most, other, kind);
}

/* `count` blocks, at most LANES, with their largest magnitudes: NaN where there is a NaN or an infinity. */
INLINE void K(form_blocks)(const K(quantised_row) * given, int64_t from, int count, int64_t block, float *room,
                           REAL *largest, K(row_kind) kind) {
  const K(quantised_row) s = *given; /* a copy that no store can change: its members stay in registers */
  const VEC r = V(set)(s.r), mean = V(set)(s.mean), infinite = V(set)((REAL)INFINITY);
  VEC most[LANES], all;
  int formed = 0;
  do /* there is one at least */
    most[formed] = K(form_block)(&s, r, mean, from + formed * block, block, room + formed * block, kind);
  while (++formed < count);
  if (count == 1) {
    all = V(set)(V(most)(most[0]));
  } else {
    for (int b = count; b < LANES; b++)
      most[b] = most[0];
    all = V(most16)(most);
  }
  V(store)(largest, V(if_less)(all, infinite, all, V(set)((REAL)NAN)), RMS_F32, 0);
}

/* The blocks of ggml's format have a constant width. */
#define FORM_BLOCKS(name, ...)                                                                                         \
  NOINLINE void K(name)(const K(quantised_row) * s, int64_t from, int count, int64_t block, float *room,               \
                        REAL *largest) {                                                                               \
    const K(row_kind) kind = {__VA_ARGS__};                                                                            \
    if (block == RMS_Q8_0_ELEMENTS)                                                                                    \
      K(form_blocks)(s, from, count, RMS_Q8_0_ELEMENTS, room, largest, kind);                                          \
    else                                                                                                               \
      K(form_blocks)(s, from, count, block, room, largest, kind);                                                      \
  }

FORM_BLOCKS(form_rms, false)
FORM_BLOCKS(form_layer, .layer = true)
FORM_BLOCKS(form_before, .before = true)
FORM_BLOCKS(form_any, .any = true)
#undef FORM_BLOCKS

typedef void K(form_fn)(const K(quantised_row) *, int64_t, int, int64_t, float *, REAL *);

static K(form_fn) * K(form_of)(const K(quantised_row) * s) {
  if (!s->tame || s->raw_gain || s->raw_bias || !s->gain || (s->bias && !s->layer) ||
      (s->layer && (s->before || !s->bias)))
    return K(form_any);
  return s->layer ? K(form_layer) : s->before ? K(form_before) : K(form_rms);
}

/* ---- one segment ---- */

NOINLINE void K(put_q8_0_lanes)(char *to, const K(scales) * s, const char *y, int count) {
  K(put_q8_0)(to, s, y, count, (K(quantising)){.lanes = true});
}

/* Of a piece with a given scale, by its largest magnitude. */
static K(quantising) K(given_form)(const rms_quantised *q, REAL most) {
  const REAL scale = *q->scale, quotient = q->type == RMS_I8 ? most / scale : most * (1 / scale);
  K(quantising) as = {.lanes = true};
  as.by_inverse = K(is_within)(scale, q->type) && most < 0x1p40f;
  as.within = as.by_inverse && quotient <= K(largest_number)(q->type);
  return as;
}

/* A piece of a segment whose y is formed: whole blocks, or any columns where the scale is given. */
typedef struct {
  const float *y;
  int64_t block;
  int count; /* of blocks; 0: there is no such piece */
  char *to;
  float *scale;
  char *past; /* where `bytes` of the part go after this piece, past the caches; NULL: nowhere yet */
  int64_t bytes;
  K(scales) found;
} K(piece);

/* A call. A piece waits while the next one is formed or the next segment measured, until its scales are known. */
typedef struct {
  const rms_quantised *q;
  bool computed; /* scales */
  REAL clear;    /* of a scale that is given: see K(scales) */
  K(piece) * waiting, *next, pieces[2];
  _Alignas(64) float room[K(ROOM)];
  _Alignas(64) char part[K(ROOM) / RMS_Q8_0_ELEMENTS * RMS_Q8_0_BYTES];
} K(quantised_run);

static void K(put_waiting)(K(quantised_run) * run) {
  K(piece) *p = run->waiting;
  const char *y = (const char *)p->y;
  if (!p->count) return;
  if (run->q->type == RMS_Q8_0)
    K(put_q8_0_lanes)(p->to, &p->found, y, p->count);
  else if (run->computed)
    K(put_blocks)(run->q, p->to, p->scale, &p->found, y, p->count, p->block, (K(quantising)){.lanes = true});
  else
    K(quantise_given)(run->q, p->to, y, p->block, run->clear, K(given_form)(run->q, p->found.most[0]));
  if (p->past) vec_copy_stream(p->past, run->part, p->bytes);
  p->count = 0;
}

/* Of a scale that is given. */
static REAL K(clear_of)(REAL scale, rms_dtype type) {
  K(scales) s;
  if (!K(may_be_clear)(type) || !K(is_within)(scale, type)) return 0;
  V(store)(s.factor, V(set)(scale), REAL_TYPE, 0);
  V(store)(s.inverse, V(set)(1 / scale), REAL_TYPE, 0);
  K(find_clear)(&s, type);
  return s.clear[0];
}

/* Whether the rounding of K(round_tame) shows in a piece. */
static bool K(is_rough)(const K(quantised_run) * run, K(form_fn) * form, const K(piece) * p) {
  if (T != RMS_BF16 || form == K(form_any)) return false;
  return !(run->computed ? K(are_within)(&p->found, run->q->type) : K(is_within)(*run->q->scale, run->q->type));
}

static void K(form_piece)(const K(quantised_run) * run, K(form_fn) * form, const K(quantised_row) * s, int64_t from,
                          float *room, K(piece) * p) {
  p->y = room;
  form(s, from, p->count, p->block, room, p->found.most);
  if (run->computed) K(find_scales)(run->q, &p->found);
  if (__builtin_expect(K(is_rough)(run, form, p), 0)) {
    K(form_any)(s, from, p->count, p->block, room, p->found.most);
    if (run->computed) K(find_scales)(run->q, &p->found);
  }
}

/* Elements with one scale, or of a piece where it is given. */
static int64_t K(block_of)(const rms_quantised *q) {
  return q->type == RMS_Q8_0 ? RMS_Q8_0_ELEMENTS : q->block ? q->block : K(GIVEN);
}

/* Blocks that make a piece: as many as fit in half of the room, so that two pieces do. */
static int64_t K(blocks_of)(const K(quantised_run) * run, int64_t block) {
  const int64_t fit = K(ROOM) / 2 / block;
  return !run->computed || fit < 1 ? 1 : fit < LANES ? fit : LANES;
}

/* The half of the room where no piece waits. */
static float *K(free_room)(K(quantised_run) * run) {
  return run->waiting->count && run->waiting->y == run->room ? run->room + K(ROOM) / 2 : run->room;
}

/* On its way past the caches a segment is put together in parts. */
static void K(quantise_row)(K(quantised_run) * run, const K(quantised_row) * s, int64_t width, char *to, float *scale) {
  const rms_quantised *q = run->q;
  const int64_t block = K(block_of)(q), step = block * K(blocks_of)(run, block);
  K(form_fn) *form = K(form_of)(s);
  for (int64_t j = 0, held = 0; j < width; j += step) { /* held: elements in the part */
    const int64_t left = width - j, n = left < step ? left : step;
    K(piece) *p = run->next;
    p->block = left < block ? left : block;
    p->count = (int)(n / p->block);
    p->scale = scale;
    p->to = q->stream ? run->part + rms_quantised_bytes(q->type, held) : to + rms_quantised_bytes(q->type, j);
    p->past = NULL;
    held += n;
    if (q->stream && (n == left || held + step > K(ROOM))) {
      p->past = to + rms_quantised_bytes(q->type, j + n - held);
      p->bytes = rms_quantised_bytes(q->type, held);
      held = 0;
    }
    if (n > K(ROOM) / 2) K(put_waiting)(run);
    K(form_piece)(run, form, s, j, K(free_room)(run), p);
    K(put_waiting)(run);
    run->next = run->waiting;
    run->waiting = p;
    if (scale) scale += p->count;
  }
}

/* ---- jobs ---- */

/* r of a statistic that is in range: see K(finish). */
INLINE REAL K(r_of)(const rms_layout *lay, const rms_stat *stat) {
  const REAL ms = (REAL)stat->m2 / (REAL)stat->count, eps = (REAL)lay->eps;
  return 1 / (lay->eps_place == RMS_EPS_INSIDE ? SQRT(ms + eps) : SQRT(ms) + eps);
}

/* Whether all n elements of what is laid out are tame. */
static bool K(gains_are_tame)(const REAL *gain, int64_t n) {
  VEC most = V(set)(0);
  for (int64_t j = 0; gain && j < n; j += LANES)
    most = V(max_bits)(most, V(load)(gain + j, RMS_F32, 0));
  return V(most)(most) < TAME;
}

/* Of gains that K(prepare_gains) has laid out, and of x, if all of it is in the statistic. */
static bool K(is_tame)(const rms_layout *lay, const K(gains) * gains) {
  const int64_t n = (lay->per_inner ? lay->inner : 1) * lay->groups * gains->group;
  if (T != RMS_BF16) return true;
  return lay->k == lay->width && !lay->indices && K(gains_are_tame)(gains->gain, n) &&
         K(gains_are_tame)(gains->bias, n);
}

static K(quantised_row)
    K(open_quantised)(const rms_forward_job *job, const rms_cursor *at, const K(gains) * gains, const rms_stat *stat) {
  const rms_layout *lay = &job->lay;
  const int64_t gain_at = at->inner * gains->inner + at->group * gains->group,
                raw_at = gain_at * (gains->form.wide ? 4 : T_SIZE);
  K(quantised_row) s = {.x = rms_segment(&job->x, at, lay, T_SIZE), .gain_form = gains->form};
  if (gains->gain) s.gain = gains->gain + gain_at;
  if (gains->bias) s.bias = gains->bias + gain_at;
  if (gains->raw_gain) s.raw_gain = gains->raw_gain + raw_at;
  if (gains->raw_bias) s.raw_bias = gains->raw_bias + raw_at;
  s.layer = lay->kind == RMS_KIND_LAYER;
  s.before = lay->rounding == RMS_ROUND_BEFORE_WEIGHT;
  s.product = !lay->weight_is_f32;
  s.wide = lay->weight_is_f32;
  s.r = K(r_of)(lay, stat);
  s.mean = (REAL)stat->mean;
  return s;
}

static char *K(quantised_at)(const rms_forward_job *job, const rms_cursor *at) {
  const rms_quantised *q = &job->q;
  return q->rows.data + at->outer * q->rows.outer + at->inner * q->rows.inner +
         at->group * rms_quantised_bytes(q->type, job->lay.width);
}

/* Segment i, whose statistic is in range. next: the segment after it. */
static void K(quantise_segment)(K(quantised_run) * run, const rms_forward_job *job, const K(gains) * gains,
                                const rms_cursor *at, int64_t i, const rms_stat *stat, const char *next, bool tame) {
  const rms_quantised *q = &job->q;
  K(quantised_row) s = K(open_quantised)(job, at, gains, stat);
  s.tame = tame;
  if (next) s.ahead = (int64_t)((uintptr_t)next - (uintptr_t)s.x);
  if (job->rstd) ((REAL *)job->rstd)[i] = s.r;
  if (job->mean) ((REAL *)job->mean)[i] = s.mean;
  float *scale = q->block ? q->scale + i * (job->lay.width / q->block) : NULL;
  K(quantise_row)(run, &s, job->lay.width, K(quantised_at)(job, at), scale);
}

/* A few segments are measured together, as many as fit in half of the first-level cache with all that is made of them.
 * Returns the first segment whose statistic is out of range. */
static int64_t K(quantise_segments)(K(quantised_run) * run, const rms_forward_job *job, rms_forward_fn *stats,
                                    const K(gains) * gains, int64_t first, int64_t last) {
  enum { MOST = 8, BYTES = 8 * 1024 };
  const rms_layout *lay = &job->lay;
  const int64_t fit = BYTES / (lay->width * T_SIZE), batch = fit < 1 ? 1 : fit > MOST ? MOST : fit;
  const bool tame = K(is_tame)(lay, gains);
  rms_stat found[MOST];
  rms_forward_job measure = *job;
  rms_cursor at = rms_cursor_at(lay, first);
  for (int64_t i = first, end = first; i < last; i++) {
    if (i == end) {
      end = last - i < batch ? last : i + batch;
      measure.stats_out =
          (rms_stat *)((uintptr_t)found - (uintptr_t)i * sizeof *found); /* segment i comes first there */
      first = i;
      stats(&measure, i, end);
      K(put_waiting)(run);
    }
    const rms_stat *stat = &found[i - first];
    if (!(stat->m2 >= (double)TINY && stat->m2 <= (double)REAL_MAX)) return i;
    rms_cursor next = at;
    rms_cursor_next(&next, lay);
    const bool fetch = job->fetch_ahead && i + 1 < last;
    K(quantise_segment)(run, job, gains, &at, i, stat, fetch ? rms_segment(&job->x, &next, lay, T_SIZE) : NULL, tame);
    at = next;
  }
  return last;
}

/* The magnitudes of f16 cost less in 16 bits, as the ordinary way compares them, than in the f32 of small registers. */
static bool K(pays)(const rms_quantised *q) {
  return T != RMS_F16 || VEC_REGISTERS > 8 || q->type == RMS_Q8_0 || (q->block && q->block < K(WIDE_BLOCK));
}

KERNEL int64_t K(rms_quantise_rows)(const rms_forward_job *job, rms_forward_fn *stats, int64_t first, int64_t last) {
  const rms_layout *lay = &job->lay;
  REAL room[2][K(GAIN_BYTES) / sizeof(REAL)];
  K(gains) gains;
  if (!K(pays)(&job->q)) return first;
  K(prepare_gains)(lay, job->bias, last - first, &gains, room);
  K(quantised_run) run;
  run.q = &job->q;
  run.computed = job->q.type == RMS_Q8_0 || job->q.block;
  run.clear = run.computed ? 0 : K(clear_of)(*job->q.scale, job->q.type);
  run.waiting = &run.pieces[0];
  run.next = &run.pieces[1];
  run.waiting->count = 0;
  first = K(quantise_segments)(&run, job, stats, &gains, first, last);
  K(put_waiting)(&run);
  return first;
}
#undef TAME
