/* SPDX-License-Identifier: MIT
 *
 * The backward pass of a segment whose r or sums leave the safe range: x, dy and u are scaled by exact
 * powers of two. */

INLINE K(extent) K(extent_of_u)(const K(gradient) * s, bool scaled, bool common) {
  K(sweep) w = {.scaled = scaled, .common = common, .before = s->before, .own = !common};
  w.raw = common && T != REAL_TYPE && !s->gain;
  K(extent) e = K(no_extent)();
  int64_t j = 0;
  for (; j + 2 * LANES <= s->width; j += 2 * LANES) {
    VEC a = K(load_dm)(s, j, LANES, w), b = K(load_dm)(s, j + LANES, LANES, w);
    K(extend)(&e, &e.most.a, K(load_u)(s, a, j, LANES, w), true);
    K(extend)(&e, &e.most.b, K(load_u)(s, b, j + LANES, LANES, w), true);
  }
  for (; j < s->width; j += LANES) {
    int n = s->width - j < LANES ? (int)(s->width - j) : LANES;
    K(extend)(&e, &e.most.a, K(load_u)(s, K(load_dm)(s, j, n, w), j, n, w), true);
  }
  return e;
}

/* The largest magnitude of u, scaled; NaN if one is NaN or infinite. */
NOINLINE REAL K(largest_u)(const K(gradient) * s) {
  return K(largest_of)(s->gain ? K(extent_of_u)(s, true, true) : K(extent_of_u)(s, true, false));
}

/* A bound of u as it is: see K(bound_of). */
NOINLINE REAL K(bound_of_u)(const K(gradient) * s, bool common) {
  return K(bound_of)(common ? K(extent_of_u)(s, false, true) : K(extent_of_u)(s, false, false));
}

static void K(split_power)(REAL *factors, int count, int exponent) {
  for (int i = 0; i < count; i++) {
    int part = exponent / (count - i);
    factors[i] = (REAL)rms_ldexp(1.0, part);
    exponent -= part;
  }
}

/* Scales dm and u so that the largest u is of the order of one; returns the exponent by which u was scaled. */
static int K(scale_gradient)(K(gradient) * s) {
  K(source) dm = K(dm_source)(s);
  REAL by[2], most;
  int e_dy = 0, e_u = 0;
  if (!s->before) {
    most = K(largest)(&dm, NULL, s->width);
    if (!(most <= REAL_MAX) || most == 0) return 0;
    e_dy = -2 - K(exponent)(most);
    K(split_power)(by, 2, e_dy);
    s->dy1 = by[0], s->dy2 = by[1];
  }
  most = K(largest_u)(s);
  if (!(most <= REAL_MAX) || most == 0) return e_dy;
  e_u = -K(exponent)(most);
  K(split_power)(by, 2, e_u);
  s->u1 = by[0], s->u2 = by[1];
  return e_dy + e_u;
}

NOINLINE void K(backward_scaled)(const rms_backward_job *job, K(gradient) * s, int64_t segment) {
  const rms_layout *lay = &job->lay;
  bool layer = lay->kind == RMS_KIND_LAYER;
  K(statistic) st;
  if (job->stats_in) {
    st = K(import_stat)(lay, &job->stats_in[segment], &s->x, true);
  } else {
    K(moment) unscaled = K(moment_of)(lay, &s->x);
    st = K(finish)(lay, unscaled.e ? unscaled : K(measure_scaled)(lay, &s->x, unscaled), (REAL)lay->k);
  }
  int e_u = K(scale_gradient)(s), e_ux = layer ? e_u : e_u + st.e;
  K(row_sums) sums;
  if (job->sums_in) {
    sums.ux = (REAL)rms_ldexp(job->sums_in[segment].ux, e_ux);
    sums.u = (REAL)rms_ldexp(job->sums_in[segment].u, e_u);
  } else {
    sums = K(sums_scaled)(s, st, layer);
  }
  if (job->sums_out) {
    job->sums_out[segment].ux = rms_ldexp((double)sums.ux, -e_ux);
    job->sums_out[segment].u = rms_ldexp((double)sums.u, -e_u);
    return;
  }
  K(split_power)(s->down, 4, st.e - e_u);
  K(write_scaled)(s, st, K(coefficients_of)(lay, st, sums), layer);
}
