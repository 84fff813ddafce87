/* SPDX-License-Identifier: MIT
 *
 * Running error analysis: each intermediate value of the contract's arithmetic is a ball, the exact value with a radius
 * that the computed value cannot leave. The operations below carry the radius along. docs/error-bounds.md
 * derives them. */
#include "bounds.h"

#include <float.h>
#include "activation_bounds.h"
#include "number.h"

/* The radius is computed in double by a few hundred operations at most, each good to 2^-53. */
#define SLACK (1 + 1e-12)

typedef struct ball {
  double v, e; /* |computed - v| <= e */
} ball;

/* u: unit roundoff; eta: half the smallest subnormal, in the units of the group. */
typedef struct arithmetic {
  double u, eta;
  int lanes, tree; /* of the row sums: lanes and the depth of the tree that adds them up */
  int narrow;      /* the data type is narrower than the arithmetic */
  int narrow_y;    /* and so is that of y                           */
  rms_dtype data;
} arithmetic;

static arithmetic arithmetic_of(const verify_spec *spec) {
  rms_dtype type = verify_arithmetic(spec->dtype);
  int f64 = type == RMS_F64;
  return (arithmetic){verify_unit_roundoff(type), verify_underflow_unit(type), f64 ? 32 : 64, f64 ? 5 : 6,
                      type != spec->dtype,        type != verify_y_type(spec), spec->dtype};
}

static ball exact(double v) {
  return (ball){v, 0};
}
static ball of(dd v, double e) {
  return (ball){v.hi, e};
}

/* One rounding of the arithmetic. */
static ball rounded(const arithmetic *a, ball b) {
  return (ball){b.v, (b.e + a->u * (fabs(b.v) + b.e) + a->eta) * SLACK};
}

static ball add(ball a, ball b) {
  return (ball){a.v + b.v, a.e + b.e};
}
static ball subtract(ball a, ball b) {
  return (ball){a.v - b.v, a.e + b.e};
}

static ball multiply(ball a, ball b) {
  return (ball){a.v * b.v, (fabs(a.v) * b.e + fabs(b.v) * a.e + a.e * b.e) * SLACK};
}

/* b.v > 0. If the divisor may be 0 nothing is known. */
static ball divide(ball a, ball b) {
  double v = a.v / b.v, least = b.v - b.e;
  return (ball){v, least > 0 ? (a.e + fabs(v) * b.e) / least * SLACK : (double)INFINITY};
}

static ball root(ball a) {
  double v = sqrt(a.v), least = a.v - a.e;
  return (ball){v, least > 0 ? a.e / (v + sqrt(least)) * SLACK : v + sqrt(a.v + a.e)};
}

/* Rounding to the data type is monotone: the result lies between the rounded ends. `v` is the exact value rounded. */
static ball to_data_type(const arithmetic *a, ball b, double v) {
  double above = verify_round(a->data, b.v + b.e * SLACK + fabs(b.v) * 0x1p-52) - v;
  double below = v - verify_round(a->data, b.v - b.e * SLACK - fabs(b.v) * 0x1p-52);
  return (ball){v, fmax(fmax(above, below), 0)};
}

/* A value on its way to the data type: the arithmetic's own rounding happens first if that is a different type. */
static ball settle(const arithmetic *a, ball b) {
  return a->narrow ? rounded(a, b) : b;
}

/* The same for y, which may have a type of its own. */
static ball settle_y(const arithmetic *a, ball b) {
  return a->narrow_y ? rounded(a, b) : b;
}

/* Elements of a row whose sum is formed in the lanes; longer rows add such sums in f64. */
enum { PORTION = 16384 };

/* gamma(n) of the sum of `terms` terms in lanes, and of the f64 sum of several such sums, rounded once. */
static double sum_factor(const arithmetic *a, int64_t terms) {
  int64_t in_lanes = terms < PORTION ? terms : PORTION, portions = (terms + PORTION - 1) / PORTION;
  double depth = (double)((in_lanes + a->lanes - 1) / a->lanes + a->tree + (portions > 1));
  double beyond = portions > 1 ? (double)portions * 0x1p-53 : 0;
  return (depth * a->u / (1 - depth * a->u) + beyond) * SLACK;
}

/* ---- The gate ---- */

/* act(z), in the arithmetic. */
static ball activation_of(const verify_row *row, const arithmetic *a, int64_t j) {
  bool sigmoid = row->spec.activation == RMS_ACT_SIGMOID;
  return (ball){row->act[j].hi, verify_activation_error(row->z[j], sigmoid, a->u, a->eta)};
}

/* The gradient of z from that of act(z), whose terms have this size. */
static void bound_dz(verify_row *row, const arithmetic *a, ball of_act, double size, int64_t j) {
  bool sigmoid = row->spec.activation == RMS_ACT_SIGMOID;
  double v = dd_activation_slope(dd_from(row->z[j]), sigmoid).hi;
  ball slope = {v, verify_activation_slope_error(row->z[j], sigmoid, a->u, a->eta)};
  /* A product that underflows loses a unit, which may vanish in the double arithmetic of the radius. */
  row->dz_error[j] = settle(a, multiply(of_act, slope)).e + 2 * a->eta;
  row->dz_size[j] = size * (fabs(v) + slope.e / a->u);
}

static int is_gated_after(const verify_row *row) {
  return row->spec.gate_place == RMS_GATE_AFTER;
}

/* How far what is normalised may be from the exact product with act(z), in true units. */
static void bound_v(verify_row *row, const arithmetic *a) {
  for (int64_t j = 0; j < row->spec.cols; j++) {
    row->v_error[j] = 0;
    if (row->spec.gate_place == RMS_GATE_BEFORE)
      row->v_error[j] = rounded(a, multiply(exact(row->x[j]), activation_of(row, a, j))).e;
  }
}

/* An element of what is normalised, in the group's units. */
static ball element(const verify_row *row, int64_t j) {
  int scale = row->group[j / row->width].scale;
  return (ball){ldexp(row->v[j].hi, -scale), ldexp(row->v_error[j], -scale)};
}

/* ---- The statistic ---- */

/* What underflow can take from a sum of squares. In the group's own units a square loses at most eta; where the sum is
 * formed unscaled (only if it is then a normal number) eta is that of the unscaled arithmetic. */
static double square_underflow(const arithmetic *a, const verify_group *g, int64_t terms) {
  int exponent;
  frexp(g->m2.hi, &exponent);
  int normal = a->lanes == 32 ? exponent + 2 * g->scale > -1023 : exponent + 2 * g->scale > -127;
  return (double)terms * (4 * a->eta + (normal ? ldexp(a->eta, -2 * g->scale) : 0));
}

/* The error of the mean before its rounding; *size: the mean of |x|. */
static double mean_error(const verify_row *row, const arithmetic *a, const verify_group *g, int64_t start,
                         double *size) {
  double magnitude = 0, error = 0, n = (double)row->width;
  for (int64_t j = start; j < start + row->width; j++) {
    ball v = element(row, j);
    magnitude += fabs(v.v);
    error += v.e;
  }
  *size = magnitude / n;
  ball sum = {g->mean.hi * n, error + sum_factor(a, row->width) * (magnitude + error) + n * a->eta};
  return divide(sum, exact(n)).e;
}

/* LayerNorm: the squares are of x - m with m off the mean by at most `shift`; their exact sum is m2 +
 * n*(mean - m)^2. */
static double centred_square_error(const verify_row *row, const arithmetic *a, const verify_group *g, int64_t start,
                                   double shift) {
  double squares = 0, moved = 0, n = (double)row->width, difference = (1 + a->u) * (1 + a->u) - 1;
  for (int64_t j = start; j < start + row->width; j++) {
    ball v = element(row, j);
    double most = fabs(v.v - g->mean.hi) + v.e + shift + fabs(g->mean.hi) * 0x1p-50;
    squares += most * most;
    moved += 2 * most * v.e;
  }
  return (moved + n * shift * shift + (difference + sum_factor(a, row->width) * (1 + difference)) * squares) * SLACK;
}

/* What the errors of the elements themselves do to the sum of their squares. */
static double square_shift(const verify_row *row, int64_t start) {
  double shift = 0;
  for (int64_t j = 0; j < row->width; j++)
    if (row->in_stat[j]) {
      ball v = element(row, start + j);
      shift += (2 * fabs(v.v) + v.e) * v.e;
    }
  return shift * SLACK;
}

typedef struct statistic {
  ball r, rms, mean; /* rms is needed with eps outside the root alone */
  int either;        /* a clamp: rms and eps are so near that r may depend on the row or not */
  double r_unrounded, mean_size;
} statistic;

/* The sum of squares of a group without a mean. */
static ball bound_squares(const verify_row *row, const arithmetic *a, int64_t index) {
  const verify_group *g = &row->group[index];
  double moved = square_shift(row, index * row->width);
  return of(g->m2, square_underflow(a, g, row->k) + moved + sum_factor(a, row->k) * (g->m2.hi + moved));
}

static statistic bound_statistic(const verify_row *row, const arithmetic *a, int64_t index) {
  const verify_group *g = &row->group[index];
  statistic s = {0};
  ball squares;
  if (row->spec.kind == RMS_KIND_LAYER) {
    s.mean = rounded(a, of(g->mean, mean_error(row, a, g, index * row->width, &s.mean_size)));
    s.mean.e += ldexp(a->eta, -g->scale); /* it may have been stored, or formed unscaled, where it can be subnormal */
    squares = of(g->m2, square_underflow(a, g, row->k) + centred_square_error(row, a, g, index * row->width, s.mean.e));
  } else {
    squares = bound_squares(row, a, index);
  }
  ball ms = rounded(a, divide(squares, exact((double)row->k)));
  ball eps = row->spec.eps > 0 ? rounded(a, exact(g->eps)) : exact(0), whole;
  s.rms = rounded(a, root(ms));
  if (row->spec.eps_place == RMS_EPS_INSIDE)
    whole = rounded(a, root(rounded(a, add(ms, eps))));
  else if (row->spec.eps_place == RMS_EPS_CLAMP) /* the larger of two numbers is no farther off than either of them */
    whole = (ball){fmax(s.rms.v, eps.v), fmax(s.rms.e, eps.e)};
  else
    whole = rounded(a, add(s.rms, eps));
  s.either = row->spec.eps_place == RMS_EPS_CLAMP && fabs(s.rms.v - eps.v) <= s.rms.e + eps.e;
  if (g->r.hi == 0) return s; /* a statistic of exactly zero: r is 0 by definition */
  ball r = divide(exact(1), whole);
  s.r_unrounded = r.e;
  s.r = rounded(a, r);
  /* r may have been stored between forward and backward, where it can be subnormal. */
  s.r.e += ldexp(a->eta, g->scale);
  return s;
}

dd verify_bound_norm(const verify_row *row, int64_t index, double *error) {
  const arithmetic a = arithmetic_of(&row->spec);
  const verify_group *g = &row->group[index];
  *error = g->m2.hi > 0 ? ldexp(rounded(&a, root(bound_squares(row, &a, index))).e, g->scale) : 0;
  return dd_scale(dd_sqrt(g->m2), g->scale);
}

dd verify_bound_r(const verify_row *row, int64_t index, double *error) {
  const arithmetic a = arithmetic_of(&row->spec);
  const verify_group *g = &row->group[index];
  *error = ldexp(bound_statistic(row, &a, index).r_unrounded + a.u * g->r.hi, -g->scale);
  return dd_scale(g->r, -g->scale);
}

double verify_bound_row_sum(const verify_spec *spec, int64_t terms) {
  const arithmetic a = arithmetic_of(spec);
  return sum_factor(&a, terms);
}

/* ---- Forward ---- */

/* h before its own rounding. Scaling x down may have cost an underflow unit. */
static ball bound_h(verify_row *row, const arithmetic *a, const statistic *s, int64_t j) {
  ball x = element(row, j);
  row->h_size[j] = (fabs(x.v) + s->mean_size) * s->r.v;
  if (row->spec.kind == RMS_KIND_LAYER) {
    x = rounded(a, subtract(x, s->mean));
    x.v = fabs(x.v) + fabs(s->mean.v) * 0x1p-52; /* only the size matters below, and v may have cancelled */
  } else {
    x.e += a->eta;
  }
  return (ball){row->h[j].hi, multiply(x, s->r).e + a->eta};
}

/* The q of the definition: rounded to the data type or not. Returns the ball of what enters the product with g. */
static ball bound_q(verify_row *row, const arithmetic *a, ball h, int64_t j) {
  ball q = rounded(a, h);
  row->h_error[j] = q.e;
  if (row->spec.rounding == RMS_ROUND_BEFORE_WEIGHT) q = to_data_type(a, settle(a, h), row->q[j].hi);
  row->q_error[j] = q.e;
  return q;
}

/* P of the header: `v` is the exact value rounded by it. */
static ball round_product(const verify_row *row, const arithmetic *a, ball b, double v) {
  return verify_product_is_rounded(&row->spec) ? to_data_type(a, settle(a, b), v) : rounded(a, b);
}

static ball bound_y_before(const verify_row *row, const arithmetic *a, ball q, int64_t j) {
  ball y = q;
  if (row->g) {
    y = multiply(q, exact(row->g[j]));
    if (verify_product_is_rounded(&row->spec)) {
      /* the exact product again: the sum with the bias may have been rounded since */
      double product = verify_round_exactly(row->spec.dtype, dd_multiply(row->q[j], dd_from(row->g[j]))).hi;
      y = to_data_type(a, settle(a, y), product);
    } else if (row->b || is_gated_after(row)) {
      y = rounded(a, y);
    }
  }
  if (row->b) y = add(y, exact(row->b[j]));
  if (is_gated_after(row)) return row->b ? round_product(row, a, y, row->m[j].hi) : y;
  return row->g || row->b ? settle_y(a, y) : y;
}

static ball bound_y_after(const verify_row *row, const arithmetic *a, ball h, int64_t j) {
  if (!row->g && !row->b) return is_gated_after(row) ? rounded(a, h) : settle_y(a, h);
  ball y = rounded(a, h);
  if (row->g) y = multiply(y, exact(row->g[j]));
  if (row->b) y = add(y, exact(row->b[j]));
  return is_gated_after(row) ? rounded(a, y) : settle_y(a, y);
}

/* y before its last rounding, or what a gate after the norm multiplies. */
static ball bound_affine(const verify_row *row, const arithmetic *a, ball h, ball q, int64_t j) {
  int before = row->spec.rounding == RMS_ROUND_BEFORE_WEIGHT;
  return before ? bound_y_before(row, a, q, j) : bound_y_after(row, a, h, j);
}

/* ---- What nothing is known of: the exceptions of docs/numerics.md, *Range* ---- */

static int is_beyond(const arithmetic *a, double v) {
  return !isnan(v) && fabs(v) > (a->lanes == 32 ? DBL_MAX : (double)FLT_MAX);
}

/* What is normalised is a product with a gate, or a sum with a residual, that leaves the arithmetic; or there is a NaN
 * outside a statistic, which may or may not reach the other elements. */
static int is_group_lost(const verify_row *row, const arithmetic *a, int64_t index) {
  for (int64_t j = 0; j < row->width; j++) {
    const double v = row->v[index * row->width + j].hi;
    if (is_beyond(a, v) || (isnan(v) && !row->in_stat[j])) return 1;
  }
  return 0;
}

static void lose_forward(verify_row *row, int64_t index) {
  row->r_error[index] = row->mean_error[index] = -1;
  for (int64_t j = index * row->width; j < (index + 1) * row->width; j++)
    row->y_error[j] = -1;
}

static double affine_size(const verify_row *row, int64_t j) {
  return row->h_size[j] * (row->g ? fabs(row->g[j]) : 1) + (row->b ? fabs(row->b[j]) : 0);
}

void verify_bound_forward(verify_row *row) {
  arithmetic a = arithmetic_of(&row->spec);
  bound_v(row, &a);
  for (int64_t i = 0; i < row->groups; i++) {
    statistic s = bound_statistic(row, &a, i);
    int scale = row->group[i].scale;
    verify_bound_r(row, i, &row->r_error[i]);
    row->mean_error[i] = ldexp(s.mean.e, scale);
    for (int64_t j = i * row->width; j < (i + 1) * row->width; j++) {
      ball h = bound_h(row, &a, &s, j), q = bound_q(row, &a, h, j);
      ball y = bound_affine(row, &a, h, q, j);
      row->y_size[j] = affine_size(row, j);
      if (is_gated_after(row)) {
        y = settle_y(&a, multiply(y, activation_of(row, &a, j)));
        row->y_size[j] *= fabs(row->act[j].hi);
      }
      row->y_error[j] = y.e;
    }
    if (is_group_lost(row, &a, i)) lose_forward(row, i);
  }
}

/* ---- Backward ---- */

/* The arithmetic of a group's gradient, in its units. A row whose r or sums leave the range that numerics.md names is
 * scaled: an underflow costs eta in the group's units. Any other may not be, and then it costs eta in true units. */
static arithmetic gradient_arithmetic(const verify_row *row, const arithmetic *a, const statistic *s, int64_t index) {
  const verify_group *g = &row->group[index];
  int wide = a->lanes == 32, r_limit = wide ? 251 : 32, sum_limit = wide ? -501 : -61;
  double ux = 0, uh = 0, u = 0, r = ldexp(s->r.v, -g->scale);
  for (int64_t j = index * row->width; j < (index + 1) * row->width; j++) {
    double size = fabs(row->u[j].hi);
    u += size;
    ux += size * fabs(element(row, j).v);
    uh += size * fabs(row->h[j].hi);
  }
  double other = row->spec.kind == RMS_KIND_LAYER ? u : ldexp(ux, g->scale), least = ldexp(1, sum_limit - g->u_scale);
  int scaled = r < ldexp(1, -r_limit) || r > ldexp(1, r_limit) || (uh < least && other < least);
  arithmetic gradient = *a;
  if (!scaled || (row->drstd && u == 0)) gradient.eta += ldexp(a->eta, -g->u_scale);
  return gradient;
}

/* dm, in true units. */
static ball bound_dm(const verify_row *row, const arithmetic *a, int64_t j) {
  ball dm = exact(row->dy[j]);
  if (!is_gated_after(row)) return dm;
  dm = multiply(dm, activation_of(row, a, j));
  if (row->spec.rounding == RMS_ROUND_BEFORE_WEIGHT) return round_product(row, a, dm, row->dm[j].hi);
  return rounded(a, dm);
}

/* `a` is the arithmetic in true units, `in` that of the group's gradient. */
static void bound_u(verify_row *row, const arithmetic *a, const arithmetic *in, int64_t index) {
  int scale = row->group[index].u_scale;
  for (int64_t j = index * row->width; j < (index + 1) * row->width; j++) {
    ball dm = bound_dm(row, a, j), u = row->g ? multiply(dm, exact(row->g[j])) : dm;
    row->dm_error[j] = dm.e;
    if (row->spec.rounding == RMS_ROUND_BEFORE_WEIGHT) {
      u = to_data_type(a, row->g ? settle(a, u) : u, ldexp(row->u[j].hi, scale));
      u.e = ldexp(u.e, -scale);
    } else {
      u = (ball){row->u[j].hi, ldexp(u.e, -scale)};
      if (row->g) u = rounded(in, u);
    }
    row->u_error[j] = u.e;
  }
}

typedef struct row_sum {
  ball sum;
  double size; /* sum of the terms' magnitudes */
} row_sum;

/* A row sum of u*z, z with errors, every product added by one fma. */
static row_sum bound_sum(const verify_row *row, const arithmetic *a, int64_t start, dd sum,
                         ball (*z)(const verify_row *, int64_t)) {
  double error = 0, size = 0;
  for (int64_t j = start; j < start + row->width; j++) {
    ball term = multiply((ball){row->u[j].hi, row->u_error[j]}, z(row, j));
    error += term.e;
    size += fabs(term.v);
  }
  double total = error + sum_factor(a, row->width) * (size + error) + 2 * (double)row->width * a->eta;
  return (row_sum){{sum.hi, total * SLACK}, size};
}

/* The sum with what the gradient of r adds to it. */
static void add_drstd(const arithmetic *a, row_sum *s, ball drstd) {
  s->sum.e = rounded(a, (ball){s->sum.v, s->sum.e + drstd.e}).e;
  s->size += fabs(drstd.v);
}

static ball one(const verify_row *row, int64_t j) {
  (void)row, (void)j;
  return exact(1);
}

static ball normalised(const verify_row *row, int64_t j) {
  return of(row->h[j], row->h_error[j]);
}

/* dresidual and the old dx are added one by one in the arithmetic; the last operation's rounding is the output's own.
 */
static void bound_added(verify_row *row, const arithmetic *a, ball value, double size, int64_t j) {
  if (row->dres) value = add(rounded(a, value), exact(row->dres[j]));
  if (row->old) value = add(rounded(a, value), exact(row->old[j]));
  row->dx_error[j] = settle(a, value).e;
  row->dx_size[j] = size + (row->dres ? fabs(row->dres[j]) : 0) + (row->old ? fabs(row->old[j]) : 0);
}

/* In true units: the caller's ball is in those of the group. */
static void bound_dx(verify_row *row, const arithmetic *a, ball dx, double size, int64_t j) {
  const verify_group *g = &row->group[j / row->width];
  int scale = g->u_scale - g->scale;
  /* The scaled form pays an underflow unit in its own units, in which dy is of the order of one, and four on the way
   * back. */
  ball value = {ldexp(dx.v, scale), ldexp(dx.e, scale) + 8 * a->eta};
  size = ldexp(size, scale);
  if (row->dmean) {
    const ball shift = rounded(a, divide(exact(row->dmean[j / row->width]), exact((double)row->width)));
    value = add(rounded(a, value), shift);
    size += fabs(shift.v);
  }
  if (row->spec.gate_place == RMS_GATE_BEFORE) {
    value = (ball){row->d[j].hi, rounded(a, value).e};
    bound_dz(row, a, rounded(a, multiply(value, exact(row->x[j]))), size * fabs(row->x[j]), j);
    value = multiply(value, activation_of(row, a, j));
    size *= fabs(row->act[j].hi);
  }
  bound_added(row, a, value, size, j);
}

/* A number in the group's units as it is rounded to the data type in true ones: the ends of what it may become. */
static void ends_of_term(const verify_row *row, const arithmetic *a, ball term, int64_t j, double ends[2]) {
  const verify_group *g = &row->group[j / row->width];
  const int scale = g->u_scale - g->scale;
  const double v = ldexp(term.v, scale), e = (ldexp(term.e, scale) + 8 * a->eta) * SLACK + fabs(v) * 0x1p-50;
  ends[0] = verify_round(a->data, v - e);
  ends[1] = verify_round(a->data, v + e);
}

/* RMS_STEPS_TERMS: T(T(first) - T(second)). A term that may be infinite or not leaves nothing known. */
static void bound_terms(verify_row *row, const arithmetic *a, ball first, ball second, double size, int64_t j) {
  const verify_group *g = &row->group[j / row->width];
  const int scale = g->u_scale - g->scale;
  double one[2], two[2];
  ends_of_term(row, a, first, j, one);
  ends_of_term(row, a, second, j, two);
  const int finite = isfinite(one[0]) && isfinite(one[1]) && isfinite(two[0]) && isfinite(two[1]);
  if (finite) {
    const double low = verify_round(a->data, one[0] - two[1]), high = verify_round(a->data, one[1] - two[0]);
    const double v = row->d[j].hi;
    if (isfinite(low) && isfinite(high)) {
      bound_added(row, a, (ball){v, fmax(fmax(high - v, v - low), 0)}, ldexp(size, scale), j);
      return;
    }
  }
  row->dx_size[j] = ldexp(size, scale);
  row->dx_error[j] = -1;
}

/* `a` is the arithmetic in true units, `in` that of the group's gradient. */
static void bound_rms_gradient(verify_row *row, const arithmetic *a, const arithmetic *in, const statistic *s,
                               int64_t index) {
  int64_t start = index * row->width;
  const verify_group *g = &row->group[index];
  row_sum ux = bound_sum(row, in, start, g->sum_ux, element);
  if (row->drstd) add_drstd(in, &ux, exact(g->drstd));
  ball k = exact((double)row->k), c = exact(0), square = rounded(a, multiply(s->r, s->r));
  double c_size = 0;
  if (g->rms.hi > 0 && row->spec.eps_place != RMS_EPS_OUTSIDE && (!g->clamped || s->either)) {
    c = rounded(in, divide(rounded(in, multiply(ux.sum, rounded(a, multiply(square, s->r)))), k));
    c_size = ux.size * square.v * s->r.v / k.v;
    if (s->either) c = (ball){c.v, 2 * fabs(c.v) + c.e};
  } else if (g->rms.hi > 0 && row->spec.eps_place == RMS_EPS_OUTSIDE) {
    c = rounded(in, divide(rounded(in, divide(rounded(in, multiply(ux.sum, square)), s->rms)), k));
    c_size = ux.size * square.v / s->rms.v / k.v;
  }
  for (int64_t j = start; j < start + row->width; j++) {
    const int in_stat = row->in_stat[j - start];
    ball x = element(row, j), direct = multiply(of(row->u[j], row->u_error[j]), s->r);
    ball through = in_stat ? rounded(in, multiply(c, x)) : exact(0);
    double size = fabs(direct.v) + (in_stat ? c_size * fabs(x.v) : 0);
    if (verify_steps(&row->spec) == RMS_STEPS_TERMS)
      bound_terms(row, a, rounded(in, direct), through, size, j);
    else
      bound_dx(row, a, in_stat ? subtract(rounded(in, direct), through) : direct, size, j);
  }
}

/* With eps outside the root the gradient of r is multiplied by x/rms: of elements so far below eps that their squares
 * vanish beside it, the oracle does not know that. */
static int knows_drstd(const verify_row *row, const verify_group *g) {
  return !row->drstd || row->spec.eps_place == RMS_EPS_INSIDE || g->clamped || g->rms.hi > 0x1p-500 || g->r.hi == 0;
}

static void bound_layer_gradient(verify_row *row, const arithmetic *a, const arithmetic *in, const statistic *s,
                                 int64_t index) {
  int64_t start = index * row->width;
  const verify_group *g = &row->group[index];
  row_sum uh = bound_sum(row, in, start, g->sum_ux, normalised), u = bound_sum(row, in, start, g->sum_u, one);
  if (row->drstd) add_drstd(in, &uh, rounded(in, multiply(s->r, exact(g->drstd))));
  ball n = exact((double)row->width), mean_uh = rounded(in, divide(uh.sum, n)), mean_u = rounded(in, divide(u.sum, n));
  if (row->spec.eps_place == RMS_EPS_OUTSIDE)
    mean_uh = g->rms.hi > 0 ? rounded(in, divide(mean_uh, rounded(a, multiply(s->r, s->rms)))) : exact(0);
  if (row->spec.eps_place == RMS_EPS_CLAMP && (g->rms.hi == 0 || (g->clamped && !s->either))) mean_uh = exact(0);
  if (s->either) mean_uh.e += 2 * fabs(mean_uh.v);
  for (int64_t j = start; j < start + row->width; j++) {
    ball centred = rounded(in, subtract(of(row->u[j], row->u_error[j]), mean_u));
    ball along = rounded(in, multiply(normalised(row, j), mean_uh));
    double size = s->r.v * (fabs(row->u[j].hi) + (u.size + row->h_size[j] * uh.size) / n.v);
    bound_dx(row, a, multiply(s->r, rounded(in, subtract(centred, along))), size, j);
  }
}

/* dm times h or q, rounded to the arithmetic and, where the definition says so, to the data type. */
static void bound_dweight_term(verify_row *row, const arithmetic *a, int64_t j) {
  ball term = multiply(of(row->dm[j], row->dm_error[j]), of(row->q[j], row->q_error[j]));
  if (row->spec.rounding == RMS_ROUND_BEFORE_WEIGHT && verify_product_is_rounded(&row->spec))
    term = to_data_type(a, settle(a, term), row->dw[j].hi);
  else
    term = rounded(a, term);
  row->dw_error[j] = term.e;
}

/* The same of a gradient: dy*act(z) leaves the arithmetic, or u the type that it is rounded to; or a NaN in dy stands
 * beside a statistic of zero with eps outside the root, and is multiplied by a slope that is not there. */
static int is_gradient_lost(const verify_row *row, const arithmetic *a, int64_t index) {
  const int sloped = row->spec.eps_place == RMS_EPS_INSIDE || row->group[index].rms.hi > 0;
  if (is_group_lost(row, a, index)) return 1;
  for (int64_t j = index * row->width; j < (index + 1) * row->width; j++)
    if (is_beyond(a, row->dm[j].hi) || isinf(row->u[j].hi) ||
        ((!sloped || row->group[index].clamped) && isnan(row->u[j].hi)))
      return 1;
  return 0;
}

static void lose_backward(verify_row *row, int64_t index) {
  for (int64_t j = index * row->width; j < (index + 1) * row->width; j++)
    row->dx_error[j] = row->dz_error[j] = row->dw_error[j] = row->dm_error[j] = -1;
}

/* The products on the way to dx and dz, of which the results may be numbers. */
static void lose_products(verify_row *row, const arithmetic *a, int64_t index) {
  for (int64_t j = index * row->width; row->z && j < (index + 1) * row->width; j++) {
    const double d = row->d[j].hi;
    if (is_gated_after(row)) {
      if (is_beyond(a, row->dy[j] * row->m[j].hi)) row->dz_error[j] = -1;
      continue;
    }
    if (is_beyond(a, d)) row->dx_error[j] = -1;
    if (is_beyond(a, d) || is_beyond(a, d * row->x[j])) row->dz_error[j] = -1;
  }
}

void verify_bound_backward(verify_row *row) {
  arithmetic a = arithmetic_of(&row->spec);
  bound_v(row, &a);
  for (int64_t i = 0; i < row->groups; i++) {
    statistic s = bound_statistic(row, &a, i);
    arithmetic in = gradient_arithmetic(row, &a, &s, i);
    bound_u(row, &a, &in, i);
    for (int64_t j = i * row->width; j < (i + 1) * row->width; j++) {
      ball h = bound_h(row, &a, &s, j), q = bound_q(row, &a, h, j);
      if (is_gated_after(row)) {
        ball m = bound_affine(row, &a, h, q, j), of_act = rounded(&a, multiply(exact(row->dy[j]), m));
        bound_dz(row, &a, of_act, fabs(row->dy[j]) * affine_size(row, j), j);
      }
      bound_dweight_term(row, &a, j);
    }
    if (row->spec.kind == RMS_KIND_LAYER)
      bound_layer_gradient(row, &a, &in, &s, i);
    else
      bound_rms_gradient(row, &a, &in, &s, i);
    lose_products(row, &a, i);
    if (is_gradient_lost(row, &a, i)) lose_backward(row, i);
    if (knows_drstd(row, &row->group[i])) continue;
    for (int64_t j = i * row->width; j < (i + 1) * row->width; j++)
      row->dx_error[j] = row->dz_error[j] = -1;
  }
}

/* Within a block a term passes at most as many additions as the block has rows; then in f64 one per block, and up to 64
 * where parts that were summed apart are joined; never more than there are rows. */
double verify_bound_column(const verify_spec *spec, int64_t rows, double error, double magnitude) {
  double u = verify_unit_roundoff(verify_arithmetic(spec->dtype)), depth = rows < 64 ? (double)rows : 64;
  double inner = depth * u / (1 - depth * u), joins = (double)(rows / 64 + 64 < rows ? rows / 64 + 64 : rows);
  double blocks = joins * 0x1p-53;
  return (error + (inner + blocks + inner * blocks) * (magnitude + error)) * SLACK;
}
