/* SPDX-License-Identifier: MIT
 *
 * The backward pass of a segment whose r or sums leave the safe range: x, dy and u are scaled by exact
 * powers of two. */

/* scaled: with dy scaled, and u not yet. common: of a common job whose gain is laid out. */
INLINE K(lanes) K(extent_of_u)(const K(gradient) * s, bool scaled, bool common) {
  const K(sweep) w = {.dy_scaled = scaled, .common = common, .before = s->before, .own = !common, .weighted = common};
  K(lanes) most = K(no_extent)();
  int64_t j = 0;
  for (; j + 2 * LANES <= s->width; j += 2 * LANES) {
    VEC a = K(load_dm)(s, j, LANES, w), b = K(load_dm)(s, j + LANES, LANES, w);
    most.a = V(max_bits)(most.a, K(load_u)(s, a, j, LANES, w));
    most.b = V(max_bits)(most.b, K(load_u)(s, b, j + LANES, LANES, w));
  }
  for (; j < s->width; j += LANES) {
    int n = s->width - j < LANES ? (int)(s->width - j) : LANES;
    most.a = V(max_bits)(most.a, K(load_u)(s, K(load_dm)(s, j, n, w), j, n, w));
  }
  return most;
}

/* The largest magnitude of u, scaled; above REAL_MAX, or NaN, if one is infinite or NaN. */
NOINLINE REAL K(largest_u)(const K(gradient) * s) {
  return K(largest_of)(s->gain ? K(extent_of_u)(s, true, true) : K(extent_of_u)(s, true, false));
}

/* At least the largest magnitude of u as it is, at most 4*LANES times as much, and zero only if that is; infinite or
 * NaN as above. */
NOINLINE REAL K(bound_of_u)(const K(gradient) * s, bool common) {
  return K(sum_lanes)(common && s->gain ? K(extent_of_u)(s, false, true) : K(extent_of_u)(s, false, false));
}

/* Scales dm and u so that the largest u is of the order of one; returns the exponent by which u was scaled. */
static int K(scale_gradient)(K(gradient) * s) {
  K(source) dm = K(dm_source)(s);
  REAL most;
  int e_dy = 0, e_u = 0;
  if (!s->dy) return 0;
  if (!s->before) {
    most = s->most_dm > 0 ? s->most_dm : K(largest)(&dm, NULL, s->width);
    if (!(most <= REAL_MAX) || most == 0) return 0;
    e_dy = -2 - K(exponent)(most);
    K(split_scale)(&s->dy1, &s->dy2, e_dy);
  }
  most = K(largest_u)(s);
  if (!(most <= REAL_MAX) || most == 0) return e_dy;
  e_u = -K(exponent)(most);
  K(split_scale)(&s->u1, &s->u2, e_u);
  return e_dy + e_u;
}

/* 2^e as four factors. */
static void K(scale_back)(REAL *down, int e) {
  const int fourth = e / 4, third = (e - fourth) / 3;
  down[0] = K(power)(fourth);
  down[1] = K(power)(third);
  K(split_scale)(&down[2], &down[3], e - fourth - third);
}

/* The gradient that reaches r of a segment where rstd is a result of its own. */
INLINE REAL K(dr_of)(const rms_backward_job *job, int64_t segment) {
  return job->drstd ? ((const REAL *)job->drstd)[segment] : 0;
}

/* Lowers the exponent *e_u, by which u is scaled, to e_u + by. */
static void K(lower_u)(K(gradient) * s, int *e_u, int by) {
  REAL one = 0, two = 0; /* so far down nothing is left of it */
  if (by > (T_IS_F64 ? -2000 : -240)) K(split_scale)(&one, &two, by);
  s->u1 *= one, s->u2 *= two;
  *e_u += by;
}

/* What the gradient of r adds to the sum of a scaled segment. u is scaled less where that would be beyond all bounds,
 * and where there is no u the sum is of the order of one. */
NOINLINE REAL K(scaled_dr)(const rms_layout *lay, K(gradient) * s, K(statistic) st, REAL dr, int *e_u) {
  const bool layer = lay->kind == RMS_KIND_LAYER, inside = lay->eps_place == RMS_EPS_INSIDE;
  if (!layer && K(largest)(&s->x, s->indices, s->k) == 0) return dr * 0; /* r^3 may be infinite beside x = 0 */
  if (!(ABS(dr) <= REAL_MAX)) return (REAL)NAN;
  const int e = K(exponent)(ABS(dr));
  double part = rms_ldexp((double)dr, -e);
  if (layer) part *= (double)st.r;
  if (part == 0) return 0;
  /* own: at least the exponent of what becomes of it without e_u: times r^3; or divided by the root mean square, and by
   * r where it was multiplied by it */
  const int size = K(exponent)((REAL)(part < 0 ? -part : part)), most = T_IS_F64 ? 900 : 100;
  int own = e + st.e + size;
  if (!inside && st.rms > 0)
    own = e + st.e + (size > 0 ? size : 0) - K(exponent)(st.rms);
  else if (inside && !layer && st.r > 1)
    own += 3 * K(exponent)(st.r);
  if (!s->dy)
    *e_u = -own;
  else if (own + *e_u > most)
    K(lower_u)(s, e_u, most - own - *e_u);
  return (REAL)rms_ldexp(part, e + st.e + *e_u);
}

/* Measures a segment, scaled. st: its statistic, as far as it is known; s->x is scaled as that is. Returns false if
 * only the sums were asked for. */
NOINLINE bool K(measure_scaled_gradient)(const rms_backward_job *job, K(gradient) * s, int64_t segment,
                                         K(statistic) * known, K(coefficients) * co) {
  const rms_layout *lay = &job->lay;
  bool layer = lay->kind == RMS_KIND_LAYER;
  K(statistic) st = *known;
  if (job->stats_in) {
    st = K(import_stat)(lay, &job->stats_in[segment], &s->x, true);
  } else if (!st.e && s->most_x > 0) {
    st = K(finish)(lay, K(measure_from)(lay, &s->x, s->most_x, false), (REAL)lay->k);
  } else if (!st.e) {
    K(moment) unscaled = K(moment_of)(lay, &s->x, false);
    st = K(finish)(lay, unscaled.e ? unscaled : K(measure_scaled)(lay, &s->x, unscaled, false), (REAL)lay->k);
  }
  const REAL dr = K(dr_of)(job, segment);
  int e_u = K(scale_gradient)(s);
  const REAL part = dr != 0 ? K(scaled_dr)(lay, s, st, dr, &e_u) : 0;
  const int e_ux = layer ? e_u : e_u + st.e;
  K(row_sums) sums;
  if (job->sums_in) {
    sums.ux = (REAL)rms_ldexp(job->sums_in[segment].ux, e_ux);
    sums.u = (REAL)rms_ldexp(job->sums_in[segment].u, e_u);
    if (sums.ux != sums.ux) sums.ux = (REAL)NAN; /* without a payload, which rounding to bf16 may carry over */
    if (sums.u != sums.u) sums.u = (REAL)NAN;
  } else {
    sums = s->dy ? K(sums_scaled)(s, st, layer) : (K(row_sums)){0, 0};
    if (dr != 0) sums.ux += part;
    if (sums.ux != sums.ux && job->drstd) sums.ux = (REAL)NAN;
  }
  if (job->sums_out) {
    job->sums_out[segment].ux = rms_ldexp((double)sums.ux, -e_ux);
    job->sums_out[segment].u = rms_ldexp((double)sums.u, -e_u);
    return false;
  }
  K(scale_back)(s->down, st.e - e_u);
  *known = st;
  *co = K(coefficients_of)(lay, st, sums);
  return true;
}

NOINLINE void K(backward_scaled)(const rms_backward_job *job, K(gradient) * s, int64_t segment, K(statistic) st) {
  K(coefficients) co;
  if (K(measure_scaled_gradient)(job, s, segment, &st, &co))
    K(write_scaled)(s, st, co, job->lay.kind == RMS_KIND_LAYER);
}
