/* SPDX-License-Identifier: MIT
 *
 * The forms of models that round between x and y where others do not (rms_steps), of 16-bit data: the numbers that a
 * segment's steps end in, and the forward. No step is scaled: what overflows in such a model overflows here. T(v) below
 * is v rounded to T. The backward is backward_stepwise.h. */

typedef struct {
  REAL k;
  REAL mean;    /* LayerNorm: T(mean of x)                                                     */
  REAL by;      /* h = T(e/by), or T(e*by): e = x, or T(x - mean); 0: h and dx are zeros       */
  REAL norm;    /* eps outside or a clamp: T(L2 norm of x)                                     */
  REAL inverse; /* a clamp: T(1/max(norm, least))                                              */
  REAL root_k;  /* a clamp: sqrt(k); eps outside: 1/sqrt(k)                                    */
  REAL r;       /* RMS_STEPS_RSTD: r itself                                                    */
  bool divides; /* by `by`                                                                     */
  bool clamped;
} K(steps);

/* A number rounded to T. */
static REAL K(step)(REAL a) {
  REAL lane[LANES];
  V(store)(lane, V(round)(V(set)(a), T), REAL_TYPE, 0);
  return lane[0];
}

INLINE VEC K(step_vector)(VEC v) {
  return V(round)(v, T);
}

INLINE VEC K(centre_step)(const K(steps) * st, VEC x, bool layer) {
  return layer ? K(step_vector)(V(sub)(x, V(set)(st->mean))) : x;
}

/* e, or u, divided or multiplied as the model does it. */
INLINE VEC K(scale_step)(const K(steps) * st, VEC e) {
  if (st->by == 0) return V(set)(0);
  return K(step_vector)(st->divides ? V(div)(e, V(set)(st->by)) : V(mul)(e, V(set)(st->by)));
}

/* The terms of a sum of the forward. */
typedef enum { K(STEP_X), K(STEP_SQUARES) } K(step_terms);

INLINE VEC K(step_term)(const K(source) * s, const K(steps) * st, int64_t j, int n, bool layer, K(step_terms) what) {
  VEC e = K(centre_step)(st, K(load_source)(s, j, n, (K(reading)){.residual = s->residual != NULL}), layer);
  VEC term = what == K(STEP_X) ? e : K(step_vector)(V(mul)(e, e));
  return n < LANES ? V(first)(term, n, EO) : term;
}

/* A sum over the segment in the order of every other sum: see statistic.h. */
NOINLINE REAL K(sum_steps)(const K(source) * s, const K(steps) * st, int64_t width, bool layer, K(step_terms) what) {
  double total = 0;
  VEC acc[4] = {V(set)(0), V(set)(0), V(set)(0), V(set)(0)};
  for (int64_t j = 0, i = 0; j < width; j += LANES, i++) {
    if (j > 0 && j % K(PORTION) == 0) {
      total += (double)V(sum4)(acc[0], acc[1], acc[2], acc[3], EO);
      acc[0] = acc[1] = acc[2] = acc[3] = V(set)(0);
    }
    const int n = width - j < LANES ? (int)(width - j) : LANES;
    acc[i % 4] = V(add)(acc[i % 4], K(step_term)(s, st, j, n, layer, what));
  }
  REAL sum = V(sum4)(acc[0], acc[1], acc[2], acc[3], EO);
  return width <= K(PORTION) ? sum : (REAL)(total + (double)sum);
}

/* T(L2 norm), then eps as the model adds it, or bounds the norm by it. */
static void K(norm_steps)(const rms_layout *lay, const K(source) * given, K(steps) * st) {
  K(source) s = *given;
  K(moment) m = K(moment_of)(lay, &s, true);
  st->norm = K(step)((REAL)rms_ldexp((double)SQRT(m.sum), -(m.e + m.more)));
  if (lay->eps_place == RMS_EPS_OUTSIDE) {
    st->divides = true;
    st->root_k = (REAL)(1 / rms_sqrt((double)lay->k));
    st->by = K(step)(K(step)(st->norm * st->root_k) + K(step)(K(eps)(lay)));
    return;
  }
  const REAL least = K(step)((REAL)(lay->eps * rms_sqrt((double)lay->k)));
  st->root_k = (REAL)rms_sqrt((double)lay->k);
  st->clamped = st->norm < least;
  const REAL bound = st->clamped ? least : st->norm;
  st->inverse = bound == 0 ? 0 : K(step)(1 / bound);
  st->by = K(step)(st->inverse * st->root_k);
}

/* The steps of RMS_STEPS_ALL. */
static K(steps) K(all_steps)(const rms_layout *lay, const K(source) * s) {
  const bool layer = lay->kind == RMS_KIND_LAYER;
  K(steps) st = {.k = (REAL)lay->k};
  if (lay->eps_place != RMS_EPS_INSIDE) {
    K(norm_steps)(lay, s, &st);
    return st;
  }
  if (layer) st.mean = K(step)(K(sum_steps)(s, &st, lay->width, false, K(STEP_X)) / st.k);
  const REAL square = K(step)(K(sum_steps)(s, &st, lay->width, layer, K(STEP_SQUARES)) / st.k);
  st.divides = true;
  st.by = K(step)(SQRT(K(step)(square + K(step)(K(eps)(lay)))));
  return st;
}

/* Those of RMS_STEPS_RSTD: T(r) of an r that is measured like any other. */
static K(steps) K(rstd_steps)(const rms_layout *lay, K(statistic) of) {
  K(steps) st = {.k = (REAL)lay->k};
  st.r = of.e ? (REAL)rms_ldexp((double)of.r, of.e) : of.r;
  st.by = K(step)(st.r);
  return st;
}

static K(steps) K(forward_steps)(const rms_layout *lay, const K(source) * s) {
  if (lay->steps == RMS_STEPS_ALL) return K(all_steps)(lay, s);
  K(source) src = *s;
  return K(rstd_steps)(lay, K(finish)(lay, K(moment_of)(lay, &src, false), (REAL)lay->k));
}

/* For a segment that is written in parts (core/quantise.c): r itself, or `by`, in place of a sum of squares. */
static rms_stat K(export_steps)(const rms_layout *lay, const K(source) * s) {
  const K(steps) st = K(forward_steps)(lay, s);
  rms_stat out = {(double)st.k, (double)st.mean, (double)(lay->steps == RMS_STEPS_RSTD ? st.r : st.by)};
  return out;
}

static K(steps) K(import_steps)(const rms_layout *lay, const rms_stat *in) {
  if (lay->steps == RMS_STEPS_RSTD) return K(rstd_steps)(lay, (K(statistic)){.r = (REAL)in->m2});
  K(steps) st = {.k = (REAL)in->count, .mean = (REAL)in->mean, .by = (REAL)in->m2};
  st.divides = lay->eps_place != RMS_EPS_CLAMP;
  return st;
}

INLINE void K(apply_steps)(const K(segment) * s, const K(steps) * st, int64_t j, int n, bool layer) {
  VEC v = K(load_source)(&s->src, j, n, (K(reading)){.residual = s->src.residual != NULL});
  if (s->residual_out) K(put)(s->residual_out, j, n, v, s->src.residual_is_f32, s->stream_residual);
  VEC h = K(scale_step)(st, K(centre_step)(st, v, layer));
  if (s->y) K(put_as)(s->y, j, n, K(affine)(s, h, j, n), s->y_type, s->stream_y);
}

NOINLINE void K(forward_stepwise)(const rms_forward_job *job, const rms_cursor *at, int64_t i) {
  const rms_layout *lay = &job->lay;
  const bool layer = lay->kind == RMS_KIND_LAYER;
  K(segment) s;
  K(open_segment)(job, at, &s);
  const K(steps) st = job->stats_in ? K(import_steps)(lay, &job->stats_in[i]) : K(forward_steps)(lay, &s.src);
  if (job->rstd)
    ((REAL *)job->rstd)[i] = st.by == 0 ? 0 : st.divides ? 1 / st.by : lay->steps == RMS_STEPS_RSTD ? st.r : st.by;
  if (job->mean) ((REAL *)job->mean)[i] = st.mean;
  if (!s.y && !s.residual_out) return;
  int64_t j = 0;
  for (; j + LANES <= s.width; j += LANES)
    K(apply_steps)(&s, &st, j, LANES, layer);
  if (j < s.width) K(apply_steps)(&s, &st, j, (int)(s.width - j), layer);
}
