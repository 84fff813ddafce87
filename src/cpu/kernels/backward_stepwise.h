/* SPDX-License-Identifier: MIT
 *
 * The backward of the forms in stepwise.h, as autograd differentiates and rounds them. With u = T(dy*g):
 *
 *   dx = T(A + B), for LayerNorm T(T(A + B) + D)
 *   A = T(u/by) or T(u*by)                    what reaches e = x or T(x - mean) directly
 *   B = T(through * T(2*e)), T(through * T(x/norm)) or T(through * x)       and through the statistic
 *   D = T(T(-T(sum A) - T(sum B)) / k)        and through the mean
 *
 * docs/numerics.md lists the steps that lead to `through`. */

/* The terms of a sum. */
typedef enum { K(STEP_SLOPES), K(STEP_PRODUCTS), K(STEP_A), K(STEP_B) } K(step_gradients);

typedef struct {
  K(steps) st;
  REAL through, shift; /* shift: D */
  bool layer, twice;   /* twice: B is a multiple of T(2*e), otherwise of x or T(x/norm) */
} K(step_gradient);

INLINE VEC K(step_through)(const K(step_gradient) * g, VEC e) {
  if (g->twice)
    e = K(step_vector)(V(add)(e, e));
  else if (g->st.root_k != 0)
    e = g->st.norm == 0 ? V(set)(0) : K(step_vector)(V(div)(e, V(set)(g->st.norm)));
  return g->st.by == 0 ? V(set)(0) : K(step_vector)(V(mul)(V(set)(g->through), e));
}

INLINE VEC K(step_gradient_term)(const K(gradient) * s, const K(step_gradient) * g, int64_t j, int n,
                                 K(step_gradients) what) {
  const K(sweep) w = {.own = true};
  VEC u = K(load_u)(s, K(load_dm)(s, j, n, w), j, n, w);
  VEC x = K(load)(s->x.x, j, n, s->x.x_type != T), e = K(centre_step)(&g->st, x, g->layer), term = u;
  if (what == K(STEP_A)) term = K(scale_step)(&g->st, u);
  if (what == K(STEP_B)) term = K(step_through)(g, e);
  if (what == K(STEP_PRODUCTS)) term = K(step_vector)(V(mul)(u, x));
  if (what == K(STEP_SLOPES)) /* of the divisor: the quotient divided once more */
    term = K(step_vector)(V(mul)(V(sub)(V(set)(0), u), K(scale_step)(&g->st, K(scale_step)(&g->st, e))));
  return n < LANES ? V(first)(term, n, EO) : term;
}

/* T(the sum over the segment). */
NOINLINE REAL K(sum_step_gradient)(const K(gradient) * s, const K(step_gradient) * g, K(step_gradients) what) {
  double total = 0;
  VEC acc[4] = {V(set)(0), V(set)(0), V(set)(0), V(set)(0)};
  for (int64_t j = 0, i = 0; j < s->width; j += LANES, i++) {
    if (j > 0 && j % K(PORTION) == 0) {
      total += (double)V(sum4)(acc[0], acc[1], acc[2], acc[3], EO);
      acc[0] = acc[1] = acc[2] = acc[3] = V(set)(0);
    }
    const int n = s->width - j < LANES ? (int)(s->width - j) : LANES;
    acc[i % 4] = V(add)(acc[i % 4], K(step_gradient_term)(s, g, j, n, what));
  }
  REAL sum = V(sum4)(acc[0], acc[1], acc[2], acc[3], EO);
  return K(step)(s->width <= K(PORTION) ? sum : (REAL)(total + (double)sum));
}

/* Back from y through the statistic. */
static void K(trace_steps)(const rms_layout *lay, const K(gradient) * s, K(step_gradient) * g) {
  const K(steps) *st = &g->st;
  if (lay->steps == RMS_STEPS_RSTD) {
    const REAL sum = K(sum_step_gradient)(s, g, K(STEP_PRODUCTS));
    g->through = -((sum * ((st->r * st->r) * st->r)) / st->k);
  } else if (lay->eps_place == RMS_EPS_CLAMP) {
    const REAL sum = K(sum_step_gradient)(s, g, K(STEP_PRODUCTS));
    const REAL inverse = K(step)(-K(step)(sum * st->root_k) * K(step)(st->inverse * st->inverse));
    g->through = st->clamped ? 0 : inverse;
  } else if (lay->eps_place == RMS_EPS_OUTSIDE) {
    g->through = K(step)(K(sum_step_gradient)(s, g, K(STEP_SLOPES)) * st->root_k);
  } else {
    const REAL slope = K(sum_step_gradient)(s, g, K(STEP_SLOPES));
    g->twice = true;
    g->through = K(step)(K(step)(slope / K(step)(st->by + st->by)) / st->k);
  }
  if (!g->layer || st->by == 0) return;
  const REAL a = K(sum_step_gradient)(s, g, K(STEP_A)), b = K(sum_step_gradient)(s, g, K(STEP_B));
  g->shift = K(step)(K(step)(-a - b) / st->k);
}

INLINE void K(step_gradient_vector)(const K(gradient) * s, const K(step_gradient) * g, int64_t j, int n) {
  const K(sweep) w = {.own = true};
  VEC dy = K(load_dm)(s, j, n, w), u = K(load_u)(s, dy, j, n, w);
  VEC e = K(centre_step)(&g->st, K(load)(s->x.x, j, n, s->x.x_type != T), g->layer), h = K(scale_step)(&g->st, e);
  VEC dx = K(step_vector)(V(add)(K(scale_step)(&g->st, u), K(step_through)(g, e)));
  if (g->layer) dx = K(step_vector)(V(add)(dx, V(set)(g->shift)));
  K(put_dx)(s, dx, j, n, w);
  if (s->dweight) K(add_to_block)(s->dweight, j, K(dweight_term)(s, dy, h, w));
  if (s->dbias) K(add_to_block)(s->dbias, j, dy);
}

/* number: of its statistic. */
NOINLINE void K(backward_stepwise)(const rms_backward_job *job, const K(gradient) * s, int64_t number) {
  const rms_layout *lay = &job->lay;
  K(step_gradient) g = {.layer = lay->kind == RMS_KIND_LAYER};
  if (lay->steps == RMS_STEPS_ALL) {
    g.st = K(all_steps)(lay, &s->x);
  } else if (job->rstd) {
    K(statistic) given = {.r = ((const REAL *)job->rstd)[number]};
    g.st = K(rstd_steps)(lay, given);
  } else {
    K(source) x = s->x;
    g.st = K(rstd_steps)(lay, K(finish)(lay, K(moment_of)(lay, &x, false), (REAL)lay->k));
  }
  K(trace_steps)(lay, s, &g);
  int64_t j = 0;
  for (; j + LANES <= s->width; j += LANES)
    K(step_gradient_vector)(s, &g, j, LANES);
  if (j < s->width) K(step_gradient_vector)(s, &g, j, (int)(s->width - j));
}
