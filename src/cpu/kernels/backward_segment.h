/* SPDX-License-Identifier: MIT
 *
 * The backward pass of one segment, in two sweeps. The first forms the row sums, the
 * second writes dx and adds to the column sums of dweight and dbias.
 *
 *   u = dy*g                       (before-weight rounding: u = T(dy*g))
 *   RMS:        dx = u*r - c*x,    c = (sum(u*x) * ((r*r)*r)) / k for elements in the statistic, 0 for the others
 *   LayerNorm:  dx = r*((u - b) - h*a),  a = sum(u*h)/n,  b = sum(u)/n
 *
 * With a gate after the norm dm = dy*act(z) stands for dy; with one before it, x*act(z) stands for x, and what dx would
 * be is the gradient of that product.
 *
 * A segment whose r or sums leave a safe range is done again with x and dy scaled by exact powers of two:
 * backward_scaled.h.
 *
 * `common` is the job of nearly every model: no index list, no gate, nothing added, and dx alone or with
 * dweight (LayerNorm: and dbias). Its second sweep is that of backward_common.h. It is `mixed` if it has a dy of its
 * own type, raw gains that are not plain numbers of T, or a rounding order that the other loops leave out. */

typedef struct {
  K(source) x;
  const char *dy, *weight, *dresidual;
  const char *gate, *bias; /* of a gate after the norm; one before it belongs to x */
  char *dx, *dresidual_out, *dgate;
  const REAL *gain;      /* the weight + offset in lane order, of common jobs and lone gates */
  REAL *sigmoids;        /* room for those of a lone gate's tame quads, in lane order; NULL: none */
  bool kept;             /* they are there */
  REAL *dweight, *dbias; /* column sums of the current block of rows, in lane order */
  const int64_t *indices;
  int64_t width, k, ahead_x, ahead_dy, ahead_gate;
  K(gain_form) gain_form;
  rms_dtype dy_type;
  REAL shift; /* what the mean's own gradient adds to every dx; 0: nothing */
  bool mixed; /* of a common job */
  bool terms; /* the two terms of dx are rounded on their own */
  bool weight_is_f32, residual_is_f32, before, add_to_dx, sigmoid, stream_dx, stream_residual, stream_dgate;
  REAL most_x, most_dm; /* the largest magnitudes of a row, where they are known, finite and not zero; else -1 */
  REAL dy1, dy2, u1, u2, down[4]; /* scaled: dy is multiplied by dy1*dy2, u by u1*u2, dx by the four factors of down */
} K(gradient);

/* What a sweep computes: known at the call, so that the branches on it vanish. gate: the job has one and is otherwise
 * as plain as a common one (K(gate_is_alone)); `after` says where, and the activation is part of the loop. before:
 * of a common job, rounding before the weight. raw: the gain of a common job or a lone gate is not laid out. */
typedef struct {
  bool layer, scaled, common, before, gate, after, raw, mixed;
  bool own;       /* neither common nor a lone gate: dy may have a type of its own */
  bool dy_scaled; /* but neither x nor u */
  bool weighted;  /* of a common job whose gain is laid out: it is there, so that no loop asks */
  bool rounded;   /* every product of a sum is: RMS_STEPS_RSTD */
} K(sweep);

/* Whether all NaNs are such as V(store_clean) takes. */
INLINE bool K(is_lean)(K(sweep) w) {
  return (w.common && !w.mixed) || w.gate;
}

INLINE VEC K(round_data)(VEC v, K(sweep) w) {
  return K(is_lean)(w) ? V(round_clean)(v, T) : V(round)(v, T);
}

INLINE bool K(has_gain)(const K(gradient) * s, K(sweep) w) {
  if (w.weighted) return true;
  return (w.common || w.gate) && !w.raw ? s->gain != NULL : s->weight != NULL;
}

INLINE VEC K(gain_of)(const K(gradient) * s, int64_t j, int n, K(sweep) w) {
  if ((w.common || w.gate) && !w.raw) return K(load_gain)(s->gain, j, n);
  return K(is_lean)(w) ? K(plain_gain)(s->weight, j, n, s->gain_form.offset) : K(gain)(s->weight, j, n, s->gain_form);
}

INLINE bool K(is_before)(const K(gradient) * s, K(sweep) w) {
  return w.common ? w.before : s->before;
}

/* A product with the weight or with act(z), in the type that the definition gives it. */
INLINE VEC K(round_product)(const K(gradient) * s, VEC v, K(sweep) w) {
  return s->before && !s->weight_is_f32 ? K(round_data)(v, w) : v;
}

/* s->dy = NULL: zeros. Only an `own` sweep has that. */
INLINE VEC K(load_dy)(const K(gradient) * s, int64_t j, int n, K(sweep) w) {
  if (!w.mixed && !w.own) return K(load)(s->dy, j, n, false);
  if (w.own && !s->dy) return V(set)(0);
  return w.common ? K(load_in_place)(s->dy, j, n, s->dy_type) : K(load_as)(s->dy, j, n, s->dy_type);
}

/* dm: dy, or what reaches the norm of it through the gate behind. */
INLINE VEC K(load_dm)(const K(gradient) * s, int64_t j, int n, K(sweep) w) {
  VEC dy = K(load_dy)(s, j, n, w);
  if (w.common || (w.gate && !w.after) || !s->gate) return dy;
  return K(round_product)(s, V(mul)(dy, K(load_gate)(s->gate, j, n, s->sigmoid)), w);
}

/* The same as a source, where nothing is rounded. */
INLINE K(source) K(dm_source)(const K(gradient) * s) {
  K(source) dm = K(x_source)(s->dy);
  dm.x_type = s->dy_type;
  dm.gate = s->gate;
  dm.sigmoid = s->sigmoid;
  return dm;
}

INLINE VEC K(load_u)(const K(gradient) * s, VEC dm, int64_t j, int n, K(sweep) w) {
  VEC u = dm;
  bool before = K(is_before)(s, w);
  if ((w.scaled || w.dy_scaled) && !before) u = V(mul)(V(mul)(u, V(set)(s->dy1)), V(set)(s->dy2));
  if (K(has_gain)(s, w)) u = V(mul)(u, K(gain_of)(s, j, n, w));
  if (before) u = K(round_data)(u, w);
  if (w.scaled) u = V(mul)(V(mul)(u, V(set)(s->u1)), V(set)(s->u2));
  return u;
}

typedef struct {
  REAL ux, u;
} K(row_sums);

typedef struct {
  VEC ux, u;
} K(sum_pair);

typedef struct {
  VEC r, mean;
} K(statistic_vectors);

INLINE K(sum_pair) K(add_product)(K(sum_pair) acc, VEC u, VEC v, K(statistic_vectors) st, K(sweep) w) {
  if (w.rounded) {
    acc.ux = V(add)(acc.ux, K(round_data)(V(mul)(u, v), w));
    return acc;
  }
  if (w.layer) {
    v = V(mul)(V(sub)(v, st.mean), st.r);
    acc.u = V(add)(acc.u, u);
  }
  acc.ux = V(fma)(u, v, acc.ux);
  return acc;
}

/* Adds one vector of which n elements are there: the others, dy = 0, add zeros. */
INLINE K(sum_pair) K(add_gradient)(K(sum_pair) acc, const K(gradient) * s, const K(source) * x, int64_t j, int n,
                                   K(statistic_vectors) st, K(sweep) w) {
  VEC u = K(load_u)(s, K(load_dm)(s, j, n, w), j, n, w);
  K(reading) as = {.gated = w.gate ? !w.after : !w.common && x->gate, .scaled = w.scaled};
  return K(add_product)(acc, u, K(load_source)(x, j, n, as), st, w);
}

/* n elements of a common job from element j on, in the last lanes: see K(lead). */
INLINE K(sum_pair) K(add_lead_gradient)(K(sum_pair) acc, const K(gradient) * s, int64_t j, int64_t n,
                                        K(statistic_vectors) st, bool layer) {
  VEC u = K(load_last)(s->dy + j * T_SIZE, n);
  if (s->gain) u = V(mul)(u, K(load_last)(s->gain + j, n));
  return K(add_product)(acc, u, K(load_last)(s->x.x + j * T_SIZE, n), st, (K(sweep)){.layer = layer});
}

INLINE K(sum_pair) K(add_some_gradient)(K(sum_pair) acc, const K(gradient) * s, const K(source) * x, int64_t j,
                                        int64_t left, K(statistic_vectors) st, K(sweep) w) {
  return K(add_gradient)(acc, s, x, j, left < LANES ? (int)left : LANES, st, w);
}

/* act(z) and its derivative. */
typedef struct {
  VEC act, slope;
} K(gate_vectors);

NOINLINE K(gate_vectors) K(open_gate)(const char *gate, int64_t j, int n, bool sigmoid) {
  VEC z = K(load)(gate, j, n, false), sig = K(sigmoid)(z);
  K(gate_vectors) v = {K(activate)(z, sig, sigmoid), K(activate_slope)(z, sig, sigmoid)};
  return v;
}

/* The sigmoids of a quad z that is tame: those that were kept, or new ones, which are kept where there is room. */
INLINE K(lanes) K(quad_sigmoids)(const K(gradient) * s, K(lanes) z, int64_t j) {
  K(lanes) sig;
  if (s->kept) {
    const REAL *room = s->sigmoids + j;
    sig.a = V(load)(room, REAL_TYPE, 0), sig.b = V(load)(room + LANES, REAL_TYPE, 0);
    sig.c = V(load)(room + 2 * LANES, REAL_TYPE, 0), sig.d = V(load)(room + 3 * LANES, REAL_TYPE, 0);
    return sig;
  }
  sig.a = K(tame_sigmoid)(z.a), sig.b = K(tame_sigmoid)(z.b);
  sig.c = K(tame_sigmoid)(z.c), sig.d = K(tame_sigmoid)(z.d);
  if (s->sigmoids) {
    REAL *room = s->sigmoids + j;
    V(store)(room, sig.a, REAL_TYPE, 0), V(store)(room + LANES, sig.b, REAL_TYPE, 0);
    V(store)(room + 2 * LANES, sig.c, REAL_TYPE, 0), V(store)(room + 3 * LANES, sig.d, REAL_TYPE, 0);
  }
  return sig;
}

/* One vector of a lone gate's sum, by its act(z). */
INLINE VEC K(add_gated)(VEC acc, const K(gradient) * s, VEC act, int64_t j, K(sweep) w) {
  VEC dm = K(load)(s->dy, j, LANES, false), v = K(load)(s->x.x, j, LANES, false);
  if (w.after)
    dm = K(round_product)(s, V(mul)(dm, act), w);
  else
    v = V(mul)(v, act);
  return V(fma)(K(load_u)(s, dm, j, LANES, w), v, acc);
}

/* A quad of it. Returns false, and adds nothing, if that is not tame. Beside it, the gate and dy of the next segment
 * are fetched, and x beside the second sweep: the memory works during both. */
INLINE bool K(add_gated_quad)(K(lanes) * acc, const K(gradient) * s, int64_t j, K(sweep) w) {
  const char *gate = w.after ? s->gate : s->x.gate;
  if (s->ahead_dy)
    for (int64_t byte = j * T_SIZE; byte < (j + K(QUAD)) * T_SIZE; byte += 64) {
      vec_prefetch(gate + s->ahead_gate + byte);
      vec_prefetch(s->dy + s->ahead_dy + byte);
    }
  K(lanes) z = K(load_quad)(gate, j);
  if (__builtin_expect(!K(are_tame)(z.a, z.b, z.c, z.d), 0)) return false;
  K(lanes) act = K(quad_sigmoids)(s, z, j);
  if (!s->sigmoid) {
    act.a = V(mul)(z.a, act.a), act.b = V(mul)(z.b, act.b);
    act.c = V(mul)(z.c, act.c), act.d = V(mul)(z.d, act.d);
  }
  acc->a = K(add_gated)(acc->a, s, act.a, j, w);
  acc->b = K(add_gated)(acc->b, s, act.b, j + LANES, w);
  acc->c = K(add_gated)(acc->c, s, act.c, j + 2 * LANES, w);
  acc->d = K(add_gated)(acc->d, s, act.d, j + 3 * LANES, w);
  return true;
}

typedef struct {
  K(sum_pair) a, b, c, d;
} K(sum_quad);

/* The lanes of sum(u*x), or of sum(u*h) and sum(u), over the elements from..to-1, which are at most a portion. */
INLINE K(sum_quad) K(add_gradient_portion)(const K(gradient) * s, const K(source) * x, int64_t from, int64_t to,
                                           K(statistic_vectors) st, K(sweep) w) {
  VEC zero = V(set)(0);
  K(sum_pair) a = {zero, zero}, b = a, c = a, d = a;
  int64_t lead =
      w.common && !w.mixed && !w.scaled && to - from >= 2 * K(QUAD) ? K(to_line)(x->x + from * T_SIZE, to - from) : 0;
  int64_t j = from + lead;
  if (lead > 0) d = K(add_lead_gradient)(d, s, from, lead, st, w.layer);
  for (; j + K(QUAD) <= to; j += K(QUAD)) {
    if (w.gate) {
      K(lanes) acc = {a.ux, b.ux, c.ux, d.ux};
      bool added = K(add_gated_quad)(&acc, s, j, w);
      a.ux = acc.a, b.ux = acc.b, c.ux = acc.c, d.ux = acc.d;
      if (added) continue;
    }
    a = K(add_gradient)(a, s, x, j, LANES, st, w);
    b = K(add_gradient)(b, s, x, j + LANES, LANES, st, w);
    c = K(add_gradient)(c, s, x, j + 2 * LANES, LANES, st, w);
    d = K(add_gradient)(d, s, x, j + 3 * LANES, LANES, st, w);
  }
  int64_t left = to - j;
  if (left > 0) a = K(add_some_gradient)(a, s, x, j, left, st, w);
  if (left > LANES) b = K(add_some_gradient)(b, s, x, j + LANES, left - LANES, st, w);
  if (left > 2 * LANES) c = K(add_some_gradient)(c, s, x, j + 2 * LANES, left - 2 * LANES, st, w);
  if (left > 3 * LANES) d = K(add_some_gradient)(d, s, x, j + 3 * LANES, left - 3 * LANES, st, w);
  return (K(sum_quad)){a, b, c, d};
}

/* Those sums. */
INLINE K(row_sums) K(sum_gradient_portion)(const K(gradient) * s, const K(source) * x, int64_t from, int64_t to,
                                           K(statistic_vectors) st, K(sweep) w) {
  const K(sum_quad) q = K(add_gradient_portion)(s, x, from, to, st, w);
  K(row_sums) sums = {V(sum4)(q.a.ux, q.b.ux, q.c.ux, q.d.ux, EO), 0};
  if (w.layer) sums.u = V(sum4)(q.a.u, q.b.u, q.c.u, q.d.u, EO);
  return sums;
}

/* The same over the whole segment. */
INLINE K(row_sums) K(sum_gradient)(const K(gradient) * s, K(statistic) of, K(sweep) w) {
  K(statistic_vectors) st = {V(set)(of.r), V(set)(of.mean)};
  K(source) x = s->x;
  if (w.common || w.gate) x.x_type = T;
  double ux = 0, u = 0;
  for (int64_t from = 0;; from += K(PORTION)) {
    bool last = s->width - from <= K(PORTION);
    K(row_sums) sums = K(sum_gradient_portion)(s, &x, from, last ? s->width : from + K(PORTION), st, w);
    if (last && from == 0) return sums;
    ux += (double)sums.ux;
    u += (double)sums.u;
    if (last) return (K(row_sums)){(REAL)ux, (REAL)u};
  }
}

NOINLINE K(row_sums) K(sums_rms)(const K(gradient) * s, K(statistic) st) {
  if (s->gain) return K(sum_gradient)(s, st, (K(sweep)){.common = true, .weighted = true});
  return K(sum_gradient)(s, st, (K(sweep)){.common = true});
}

NOINLINE K(row_sums) K(sums_before)(const K(gradient) * s, K(statistic) st) {
  if (s->gain) return K(sum_gradient)(s, st, (K(sweep)){.common = true, .before = true, .weighted = true});
  return K(sum_gradient)(s, st, (K(sweep)){.common = true, .before = true});
}

NOINLINE K(row_sums) K(sums_layer)(const K(gradient) * s, K(statistic) st) {
  if (s->gain) return K(sum_gradient)(s, st, (K(sweep)){.layer = true, .common = true, .weighted = true});
  return K(sum_gradient)(s, st, (K(sweep)){.layer = true, .common = true});
}

/* Of common jobs whose gain is not laid out. */
NOINLINE K(row_sums) K(sums_raw)(const K(gradient) * s, K(statistic) st, bool layer) {
  if (layer) return K(sum_gradient)(s, st, (K(sweep)){.layer = true, .common = true, .raw = true});
  return K(sum_gradient)(s, st, (K(sweep)){.common = true, .before = s->before, .raw = true});
}

/* Of mixed common jobs. */
NOINLINE K(row_sums) K(sums_mixed)(const K(gradient) * s, K(statistic) st, bool layer) {
  const bool raw = s->weight && !s->gain;
  if (layer)
    return K(sum_gradient)(s, st,
                           (K(sweep)){.layer = true, .common = true, .before = s->before, .raw = raw, .mixed = true});
  return K(sum_gradient)(s, st, (K(sweep)){.common = true, .before = s->before, .raw = raw, .mixed = true});
}

/* Of common jobs with RMS_STEPS_RSTD: T(sum T(u*x)). */
NOINLINE K(row_sums) K(sums_rounded)(const K(gradient) * s, K(statistic) st) {
  K(sweep) w = {.common = true, .before = true, .raw = s->weight && !s->gain, .mixed = true, .rounded = true};
  K(row_sums) sums = K(sum_gradient)(s, st, w);
  sums.ux = K(step)(sums.ux);
  return sums;
}

NOINLINE K(row_sums) K(sums_own)(const K(gradient) * s, K(statistic) st, bool layer) {
  return K(sum_gradient)(s, st, (K(sweep)){.layer = layer, .own = true});
}

NOINLINE K(row_sums) K(sums_any)(const K(gradient) * s, K(statistic) st, bool layer) {
  if (s->dy_type != T || !s->dy) return K(sums_own)(s, st, layer);
  return K(sum_gradient)(s, st, (K(sweep)){.layer = layer});
}

NOINLINE K(row_sums) K(sums_gate_after)(const K(gradient) * s, K(statistic) st) {
  return K(sum_gradient)(s, st, (K(sweep)){.gate = true, .after = true, .raw = T != REAL_TYPE && !s->gain});
}

NOINLINE K(row_sums) K(sums_gate_before)(const K(gradient) * s, K(statistic) st) {
  return K(sum_gradient)(s, st, (K(sweep)){.gate = true, .raw = T != REAL_TYPE && !s->gain});
}

/* s->gain: the job is common. */
NOINLINE K(row_sums) K(sums_scaled)(const K(gradient) * s, K(statistic) st, bool layer) {
  if (s->gain && !layer)
    return K(sum_gradient)(s, st, (K(sweep)){.scaled = true, .common = true, .before = s->before, .weighted = true});
  return K(sum_gradient)(s, st, (K(sweep)){.layer = layer, .scaled = true, .own = true});
}

/* dx = u*r - c*x, or r*((u - b) - h*a). */
typedef struct {
  REAL c, a, b;
} K(coefficients);

static inline K(coefficients) K(coefficients_of)(const rms_layout *lay, K(statistic) st, K(row_sums) sums) {
  K(coefficients) co = {0, 0, 0};
  const bool inside = lay->eps_place == RMS_EPS_INSIDE, clamp = lay->eps_place == RMS_EPS_CLAMP;
  if (lay->kind == RMS_KIND_LAYER) {
    co.a = sums.ux / st.k;
    co.b = sums.u / st.k;
    if (!inside) co.a = st.rms == 0 || st.clamped ? 0 : clamp ? co.a : co.a / (st.r * st.rms);
  } else if (st.clamped) {
    co.c = 0;
  } else if (inside || clamp) {
    co.c = sums.ux == 0 ? 0 : (sums.ux * ((st.r * st.r) * st.r)) / st.k;
  } else {
    co.c = st.rms == 0 ? 0 : ((sums.ux * (st.r * st.r)) / st.rms) / st.k;
  }
  return co;
}

/* c in the lanes of elements that are in the statistic, 0 in the others. `next` walks the index list. */
INLINE VEC K(mask_statistic)(const K(gradient) * s, REAL c, int64_t j, int64_t *next) {
  if (!s->indices && j + LANES <= s->k) return V(set)(c);
  if (!s->indices && j >= s->k) return V(set)(0);
  REAL lane[LANES] = {0};
  if (s->indices)
    for (; *next < s->k && s->indices[*next] < j + LANES; ++*next)
      lane[V(lane)((int)(s->indices[*next] - j), EO)] = c;
  else
    for (int i = 0; j + i < s->k; i++)
      lane[V(lane)(i, EO)] = c;
  return V(load)(lane, REAL_TYPE, 0);
}

INLINE void K(add_to_block)(REAL *block, int64_t j, VEC term) {
  V(store)(block + j, V(add)(V(load)(block + j, REAL_TYPE, 0), term), REAL_TYPE, 0);
}

INLINE VEC K(dweight_term)(const K(gradient) * s, VEC dm, VEC h, K(sweep) w) {
  if (!K(is_before)(s, w)) return V(mul)(dm, h);
  return K(round_product)(s, V(mul)(dm, K(round_data)(h, w)), w);
}

/* What the forward multiplies by the activation of a gate behind the norm. */
INLINE VEC K(ungated)(const K(gradient) * s, VEC h, int64_t j, int n, K(sweep) w) {
  const bool weighted = K(has_gain)(s, w);
  VEC bias = h;
  if (s->bias) bias = K(load)(s->bias, j, n, s->weight_is_f32);
  if (!s->before && weighted) {
    VEC g = K(gain_of)(s, j, n, w);
    return s->bias ? V(fma)(h, g, bias) : V(mul)(h, g);
  }
  if (s->before) h = K(round_data)(h, w);
  if (weighted) h = K(round_product)(s, V(mul)(h, K(gain_of)(s, j, n, w)), w);
  return s->bias ? K(round_product)(s, V(add)(h, bias), w) : h;
}

typedef struct {
  VEC r, mean, a, b;
  REAL c;
} K(gradient_constants);

/* dx of the norm, with what is added to it. */
INLINE void K(put_dx)(const K(gradient) * s, VEC dx, int64_t j, int n, K(sweep) w) {
  if (!w.common && s->dresidual) dx = V(add)(dx, K(load)(s->dresidual, j, n, s->residual_is_f32));
  if (!w.common && s->add_to_dx) dx = V(add)(dx, K(load)(s->dx, j, n, false));
  if (s->dx && w.gate)
    K(put_clean)(s->dx, j, n, dx, s->stream_dx);
  else if (s->dx)
    K(put)(s->dx, j, n, dx, false, s->stream_dx);
  if (!w.common && s->dresidual_out) K(put)(s->dresidual_out, j, n, dx, s->residual_is_f32, s->stream_residual);
}

/* A scaled result as it is without the scale. */
INLINE VEC K(unscaled)(const K(gradient) * s, VEC v, K(sweep) w) {
  if (w.scaled)
    for (int i = 0; i < 4; i++)
      v = V(mul)(v, V(set)(s->down[i]));
  return v;
}

/* The second sweep of segments that are scaled, and of jobs that are not common. gate: of those that have one. */
INLINE void K(gradient_vector)(const K(gradient) * s, K(gradient_constants) k, K(gate_vectors) gate, int64_t j, int n,
                               int64_t *next, K(sweep) w) {
  const bool after = w.gate ? w.after : !w.common && s->gate, gated = w.gate ? !w.after : !w.common && s->x.gate;
  VEC dy = K(load_dy)(s, j, n, w), dm = dy, x = dy, dz = dy, terms = dy, h, dx;
  if (after) dm = K(round_product)(s, V(mul)(dy, gate.act), w);
  VEC u = K(load_u)(s, dm, j, n, w), v = x = K(load)(s->x.x, j, n, s->x.x_type != T);
  if (gated) v = V(mul)(v, gate.act);
  if (w.scaled) v = V(mul)(V(mul)(v, V(set)(s->x.up1)), V(set)(s->x.up2));
  if (w.layer) {
    h = V(mul)(V(sub)(v, k.mean), k.r);
    dx = V(mul)(k.r, V(sub)(V(sub)(u, k.b), V(mul)(h, k.a)));
  } else {
    h = V(mul)(v, k.r);
    VEC first = V(mul)(u, k.r), second = V(mul)(K(mask_statistic)(s, k.c, j, next), v);
    dx = V(sub)(first, second);
    if (T != REAL_TYPE && !w.common && !w.gate && s->terms) {
      first = V(round)(K(unscaled)(s, first, w), T);
      second = V(round)(K(unscaled)(s, second, w), T);
      terms = V(round)(V(sub)(first, second), T);
    }
  }
  dx = K(unscaled)(s, dx, w);
  if (T != REAL_TYPE && !w.common && !w.gate && !w.layer && s->terms) dx = terms;
  if (!w.common && !w.gate && w.layer && s->shift != 0) dx = V(add)(dx, V(set)(s->shift));
  if (!w.common && s->dgate) dz = V(mul)(after ? V(mul)(dy, K(ungated)(s, h, j, n, w)) : V(mul)(dx, x), gate.slope);
  if (gated) dx = V(mul)(dx, gate.act);
  K(put_dx)(s, dx, j, n, w);
  if (w.gate)
    K(put_clean)(s->dgate, j, n, dz, s->stream_dgate);
  else if (!w.common && s->dgate)
    K(put)(s->dgate, j, n, dz, false, s->stream_dgate);
  if (s->dweight) K(add_to_block)(s->dweight, j, K(dweight_term)(s, dm, h, w));
  if (s->dbias) K(add_to_block)(s->dbias, j, dm);
}

/* n elements. */
INLINE void K(write_vector)(const K(gradient) * s, K(gradient_constants) k, int64_t j, int n, int64_t *next,
                            K(sweep) w) {
  const char *z = w.gate ? w.after ? s->gate : s->x.gate : w.common ? NULL : s->gate ? s->gate : s->x.gate;
  K(gate_vectors) gate = {k.r, k.r};
  if (z) gate = K(open_gate)(z, j, n, s->sigmoid);
  K(gradient_vector)(s, k, gate, j, n, next, w);
}

INLINE K(gate_vectors) K(open_tame)(VEC z, VEC sig, bool sigmoid) {
  K(gate_vectors) v = {K(tame_activate)(z, sig, sigmoid), K(tame_slope)(z, sig, sigmoid)};
  return v;
}

/* A quad of a lone gate. All of z is read before the first store, which may go there. */
INLINE void K(write_gated_quad)(const K(gradient) * s, K(gradient_constants) k, int64_t j, int64_t *next, K(sweep) w) {
  K(lanes) z = K(load_quad)(w.after ? s->gate : s->x.gate, j);
  if (__builtin_expect(K(are_tame)(z.a, z.b, z.c, z.d), 1)) {
    K(lanes) sig = K(quad_sigmoids)(s, z, j);
    K(gradient_vector)(s, k, K(open_tame)(z.a, sig.a, s->sigmoid), j, LANES, next, w);
    K(gradient_vector)(s, k, K(open_tame)(z.b, sig.b, s->sigmoid), j + LANES, LANES, next, w);
    K(gradient_vector)(s, k, K(open_tame)(z.c, sig.c, s->sigmoid), j + 2 * LANES, LANES, next, w);
    K(gradient_vector)(s, k, K(open_tame)(z.d, sig.d, s->sigmoid), j + 3 * LANES, LANES, next, w);
  } else {
    for (int64_t i = j; i < j + K(QUAD); i += LANES)
      K(write_vector)(s, k, i, LANES, next, w);
  }
}

INLINE void K(write_gradient)(const K(gradient) * given, K(statistic) st, K(coefficients) co, K(sweep) w) {
  K(gradient) s = *given; /* a copy that no store can change: its members stay in registers */
  if (w.common || w.gate) s.x.x_type = T, s.indices = NULL;
  if (w.gate) {
    s.k = INT64_MAX; /* all elements, and the padding of the last vector, are in the statistic */
    s.dresidual = s.bias = NULL;
    s.shift = 0;
    s.dresidual_out = NULL;
    s.dbias = NULL;
    s.add_to_dx = false;
  }
  K(gradient_constants) k = {V(set)(st.r), V(set)(st.mean), V(set)(co.a), V(set)(co.b), co.c};
  int64_t j = 0, next = 0;
  for (; w.gate && j + K(QUAD) <= s.width; j += K(QUAD)) {
    if (s.ahead_dy)
      for (int64_t byte = j * T_SIZE; byte < (j + K(QUAD)) * T_SIZE; byte += 64)
        vec_prefetch(s.x.x + s.ahead_x + byte);
    K(write_gated_quad)(&s, k, j, &next, w);
  }
  for (; j + LANES <= s.width; j += LANES) {
    if (s.ahead_dy && !w.gate) {
      vec_prefetch(s.x.x + s.ahead_x + j * T_SIZE);
      vec_prefetch(s.dy + s.ahead_dy + j * T_SIZE);
    }
    K(write_vector)(&s, k, j, LANES, &next, w);
  }
  if (j < s.width) K(write_vector)(&s, k, j, (int)(s.width - j), &next, w);
}

NOINLINE void K(write_own)(const K(gradient) * s, K(statistic) st, K(coefficients) co, bool layer) {
  K(write_gradient)(s, st, co, (K(sweep)){.layer = layer, .own = true});
}

NOINLINE void K(write_any)(const K(gradient) * s, K(statistic) st, K(coefficients) co, bool layer) {
  if (s->dy_type != T || !s->dy) {
    K(write_own)(s, st, co, layer);
    return;
  }
  K(write_gradient)(s, st, co, (K(sweep)){.layer = layer});
}

NOINLINE void K(write_gate_after)(const K(gradient) * s, K(statistic) st, K(coefficients) co) {
  K(write_gradient)(s, st, co, (K(sweep)){.gate = true, .after = true, .raw = T != REAL_TYPE && !s->gain});
}

NOINLINE void K(write_gate_before)(const K(gradient) * s, K(statistic) st, K(coefficients) co) {
  K(write_gradient)(s, st, co, (K(sweep)){.gate = true, .raw = T != REAL_TYPE && !s->gain});
}

NOINLINE void K(write_scaled)(const K(gradient) * s, K(statistic) st, K(coefficients) co, bool layer) {
  if (s->gain && !layer)
    K(write_gradient)(s, st, co, (K(sweep)){.scaled = true, .common = true, .before = s->before});
  else
    K(write_gradient)(s, st, co, (K(sweep)){.layer = layer, .scaled = true, .own = true});
}

INLINE bool K(r_in_range)(K(statistic) st) {
  return st.e == 0 && st.r >= R_LEAST && st.r <= R_MOST && st.mean == st.mean;
}

INLINE bool K(sums_in_range)(K(row_sums) s) {
  REAL a = s.ux < 0 ? -s.ux : s.ux, b = s.u < 0 ? -s.u : s.u;
  return (a >= SUM_LEAST || b >= SUM_LEAST) && a <= SUM_MOST && b <= SUM_MOST;
}

/* c multiplies four values that are each in range: it may leave the range all the same. */
INLINE bool K(c_in_range)(K(coefficients) co) {
  REAL a = ABS(co.c);
  return a >= TINY && a <= 1 / TINY;
}
