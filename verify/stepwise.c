/* SPDX-License-Identifier: MIT
 * The forms that round between x and y, one plain operation after the other. */
#include "stepwise.h"

#include <float.h>
#include <stdlib.h>
#include "bounds.h"
#include "number.h"

/* ---- Numbers ---- */

static double f32(double v) {
  return verify_round(RMS_F32, v);
}

/* A step: an operation of the arithmetic, f32, rounded to the data type. */
static double step(rms_dtype type, double v) {
  return verify_round(type, f32(v));
}

/* The same number, the sign of a zero included. */
static int same(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a >= b && a <= b && !signbit(a) == !signbit(b);
}

/* What a number may be. unknown: anything. */
typedef struct range {
  double low, high;
  int unknown;
} range;

static range only(double v) {
  return (range){v, v, 0};
}

/* A step of each end, in order. One end that is no number says nothing about the numbers between them. */
static range between(double a, double b) {
  if (isnan(a) != isnan(b)) return (range){0, 0, 1};
  return a <= b || isnan(a) ? (range){a, b, 0} : (range){b, a, 0};
}

/* The numbers of a 16-bit type in order: the place of one, and the one at a place. */
static int place_of(rms_dtype type, double v) {
  uint16_t bits;
  verify_store(type, &bits, 0, v);
  return bits & 0x8000 ? -(int)(bits & 0x7fff) : bits;
}

static double number_at(rms_dtype type, int place) {
  uint16_t bits = (uint16_t)(place < 0 ? 0x8000 | -place : place);
  return verify_load(type, &bits, 0);
}

/* How many numbers of the type a range has, and the i-th of them. */
static int64_t count_of(rms_dtype type, range r) {
  return same(r.low, r.high) ? 1 : place_of(type, r.high) - place_of(type, r.low) + 1;
}

static double choice_of(rms_dtype type, range r, int64_t i) {
  return same(r.low, r.high) ? r.low : number_at(type, place_of(type, r.low) + (int)i);
}

/* ---- A group and its sums ---- */

typedef struct segment {
  verify_row *row;
  const verify_steps_got *got;
  rms_dtype type;
  int64_t index, start, width; /* of the group: its number, its first column, its columns */
  double k, eps;
  int layer, all;
  rms_eps_place place;
  double *u, *term; /* of the gradient; width of them */
} segment;

/* The power of two whose multiple a number is. */
static double last_bit(double v) {
  int exponent, digits = 0;
  double rest = fabs(frexp(v, &exponent));
  for (; rest > floor(rest); digits++)
    rest *= 2;
  return ldexp(1, exponent - digits);
}

/* The f32 sum of s->term: exact where every partial sum is. Infinities and NaNs are those of any order; a sum whose
 * parts may overflow in some order is unknown, unless all terms have one sign. */
static range sum_of(const segment *s) {
  dd exact = dd_from(0);
  double size = 0, unit = (double)INFINITY, infinite = 0;
  int positive = 0, negative = 0;
  for (int64_t j = 0; j < s->width; j++) {
    const double t = s->term[j];
    if (isnan(t)) return only((double)NAN);
    positive |= t > 0;
    negative |= t < 0;
    if (isinf(t)) {
      infinite += t;
    } else if (t > 0 || t < 0) {
      exact = dd_add(exact, dd_from(t));
      size += fabs(t);
      unit = fmin(unit, last_bit(t));
    }
  }
  if (infinite > 0 || infinite < 0 || isnan(infinite)) {
    const int safe = size < (double)FLT_MAX || !(positive && negative);
    return safe ? only(infinite) : (range){0, 0, 1};
  }
  if (size <= 0x1p24 * unit && size < 0x1p127) return only(exact.hi);
  const double error = verify_bound_row_sum(&s->row->spec, s->width) * size * (1 + 1e-12);
  if (size + error >= (double)FLT_MAX && positive && negative) return (range){0, 0, 1};
  return between(f32(exact.hi - error), f32(exact.hi + error));
}

/* ---- The statistic ---- */

/* One choice of what a group's steps end in. */
typedef struct steps {
  double mean;    /* LayerNorm                                               */
  double norm;    /* eps outside, or a clamp                                 */
  double by;      /* the divisor, or with a clamp and RMS_STEPS_RSTD a factor */
  double inverse; /* a clamp: of the norm                                    */
  int clamped;
  range r; /* RMS_STEPS_RSTD: r itself */
} steps;

typedef struct choices {
  steps *list;
  int64_t count, room;
  int unknown, no_memory;
} choices;

static void add_choice(choices *c, steps one) {
  if (c->count == c->room) {
    const int64_t room = c->room ? 2 * c->room : 16;
    steps *list = realloc(c->list, (size_t)room * sizeof *list);
    if (!list) {
      c->no_memory = 1;
      return;
    }
    c->list = list;
    c->room = room;
  }
  c->list[c->count++] = one;
}

static double x_at(const segment *s, int64_t j) {
  return s->row->x[s->start + j];
}

/* x, or T(x - mean). */
static double centred(const segment *s, const steps *st, int64_t j) {
  return s->layer ? step(s->type, x_at(s, j) - st->mean) : x_at(s, j);
}

static int divides(const segment *s) {
  return s->all && s->place != RMS_EPS_CLAMP;
}

/* e or u divided or multiplied. */
static double scaled(const segment *s, const steps *st, double v) {
  if (st->by == 0) return 0;
  return step(s->type, divides(s) ? v / st->by : v * st->by);
}

/* ImageGPT and VitDet: T(sqrt(T(T(mean of T(e*e)) + eps))), of one mean. */
static void choose_root(const segment *s, choices *c, steps st) {
  for (int64_t j = 0; j < s->width; j++) {
    const double e = centred(s, &st, j);
    s->term[j] = step(s->type, e * e);
  }
  range by = sum_of(s);
  if (by.unknown) {
    c->unknown = 1;
    return;
  }
  double ends[2] = {by.low, by.high};
  for (int i = 0; i < 2; i++) {
    const double square = step(s->type, f32(ends[i] / s->k));
    ends[i] = step(s->type, f32(sqrt(step(s->type, square + s->eps))));
  }
  by = between(ends[0], ends[1]);
  for (int64_t i = 0; i < count_of(s->type, by); i++) {
    st.by = choice_of(s->type, by, i);
    add_choice(c, st);
  }
}

static void choose_mean(const segment *s, choices *c) {
  if (!s->layer) {
    choose_root(s, c, (steps){0});
    return;
  }
  for (int64_t j = 0; j < s->width; j++)
    s->term[j] = x_at(s, j);
  range mean = sum_of(s);
  if (mean.unknown) {
    c->unknown = 1;
    return;
  }
  mean = between(step(s->type, f32(mean.low / s->k)), step(s->type, f32(mean.high / s->k)));
  for (int64_t i = 0; i < count_of(s->type, mean); i++)
    choose_root(s, c, (steps){.mean = choice_of(s->type, mean, i)});
}

/* The ends of what a measured number may be, rounded to a type. */
static range measured(rms_dtype type, dd value, double error) {
  if (isnan(value.hi)) return only((double)NAN);
  return between(verify_round(type, value.hi - error), verify_round(type, value.hi + error));
}

/* The paper's code and Zaya's: T(L2 norm), and what follows from it. */
static void choose_norm(const segment *s, choices *c) {
  double error;
  const dd exact = verify_bound_norm(s->row, s->index, &error);
  const range norm = measured(s->type, exact, error);
  for (int64_t i = 0; i < count_of(s->type, norm); i++) {
    steps st = {.norm = choice_of(s->type, norm, i)};
    if (s->place == RMS_EPS_OUTSIDE) {
      const double mean = step(s->type, st.norm * f32(1 / sqrt(s->k)));
      st.by = step(s->type, mean + s->eps);
    } else {
      const double least = step(s->type, s->row->spec.eps * sqrt(s->k));
      st.clamped = st.norm < least;
      const double bound = st.clamped ? least : st.norm;
      st.inverse = bound == 0 ? 0 : step(s->type, 1 / bound);
      st.by = step(s->type, st.inverse * f32(sqrt(s->k)));
    }
    add_choice(c, st);
  }
}

/* DeepSeek-V4: T(r). */
static void choose_r(const segment *s, choices *c) {
  double error;
  const dd exact = verify_bound_r(s->row, s->index, &error);
  range r = measured(RMS_F32, exact, error);
  if (s->got->given) r = only(s->got->given[s->index]);
  if (s->got->rstd && !isnan(r.low)) {
    const double stored = s->got->rstd[s->index];
    if (stored >= r.low && stored <= r.high) r = only(stored);
  }
  const range by = between(verify_round(s->type, r.low), verify_round(s->type, r.high));
  for (int64_t i = 0; i < count_of(s->type, by); i++)
    add_choice(c, (steps){.by = choice_of(s->type, by, i), .r = r});
}

static choices choices_of(const segment *s) {
  choices c = {0};
  if (!s->all)
    choose_r(s, &c);
  else if (s->place == RMS_EPS_INSIDE)
    choose_mean(s, &c);
  else
    choose_norm(s, &c);
  return c;
}

/* The r that a forward stores. */
static range stored_r(const segment *s, const steps *st) {
  if (!s->all) return st->by == 0 ? only(0) : st->r;
  if (st->by == 0) return only(0);
  return only(divides(s) ? f32(1 / st->by) : st->by);
}

/* ---- Comparing ---- */

/* How far the best choice so far has come, and where it ends. */
typedef struct progress {
  int64_t right;
  verify_steps_miss miss;
} progress;

/* Elements of one choice, one after the other, until one is wrong. */
typedef struct trial {
  progress *best;
  int64_t right;
  int failed;
} trial;

static void expect(trial *t, verify_role role, int64_t column, double got, range want) {
  if (t->failed) return;
  const int inside =
      same(want.low, want.high) || isnan(want.low) ? same(got, want.low) : got >= want.low && got <= want.high;
  if (want.unknown || inside) {
    t->right++;
    return;
  }
  t->failed = 1;
  if (t->right >= t->best->right) {
    t->best->right = t->right;
    t->best->miss = (verify_steps_miss){role, column, got, want.low};
  }
}

/* ---- Forward ---- */

/* y before its rounding to its own type: h in T, times the weight, plus the bias. */
static double affine(const segment *s, double h, int64_t column) {
  const verify_row *row = s->row;
  if (row->g) {
    h = f32(h * row->g[column]);
    if (verify_product_is_rounded(&row->spec)) h = verify_round(s->type, h);
  }
  return row->b ? f32(h + row->b[column]) : h;
}

static int explains_forward(const segment *s, const steps *st, progress *best) {
  trial t = {.best = best};
  const verify_steps_got *got = s->got;
  if (got->rstd) expect(&t, VERIFY_RSTD, s->index, got->rstd[s->index], stored_r(s, st));
  if (got->mean) expect(&t, VERIFY_MEAN, s->index, got->mean[s->index], only(st->mean));
  for (int64_t j = 0; got->y && j < s->width && !t.failed; j++) {
    const double y = affine(s, scaled(s, st, centred(s, st, j)), s->start + j);
    expect(&t, VERIFY_Y, s->start + j, got->y[s->start + j], only(verify_round(verify_y_type(&s->row->spec), y)));
  }
  return !t.failed;
}

/* A value and its error grow to hold one more number. */
static void widen(dd *value, double *error, double number, int first) {
  if (first || isnan(number)) {
    *value = dd_from(number);
    *error = 0;
    return;
  }
  if (same(value->hi, number)) return;
  const double low = fmin(value->hi - *error, number), high = fmax(value->hi + *error, number);
  *value = dd_from(low / 2 + high / 2);
  *error = (high - low) / 2 * (1 + 1e-12);
}

static void keep_y(const segment *s, const steps *st, int first) {
  for (int64_t j = 0; j < s->width; j++) {
    const int64_t at = s->start + j;
    widen(&s->row->y[at], &s->row->y_error[at], affine(s, scaled(s, st, centred(s, st, j)), at), first);
  }
}

/* ---- Backward ---- */

/* What B is a multiple of: x, T(x/norm) or T(2*e). */
static double direction(const segment *s, const steps *st, int64_t j) {
  const double e = centred(s, st, j);
  if (!s->all) return e;
  if (s->place == RMS_EPS_INSIDE) return step(s->type, e + e);
  return st->norm == 0 ? 0 : step(s->type, e / st->norm);
}

/* What the divisor, or the factor, sends back to B: monotone in the sum, so that the ends of the one give those of the
 * other. */
static double through_of(const segment *s, const steps *st, double sum, double r) {
  const rms_dtype type = s->type;
  sum = verify_round(type, sum);
  if (!s->all) return -f32(f32(sum * f32(f32(r * r) * r)) / s->k);
  if (s->place == RMS_EPS_CLAMP) {
    if (st->clamped) return 0;
    return step(type, -step(type, sum * f32(sqrt(s->k))) * step(type, st->inverse * st->inverse));
  }
  if (s->place == RMS_EPS_OUTSIDE) return step(type, sum * f32(1 / sqrt(s->k)));
  return step(type, step(type, sum / step(type, st->by + st->by)) / s->k);
}

/* The terms of the sum that this is made of. */
static void fill_slopes(const segment *s, const steps *st) {
  for (int64_t j = 0; j < s->width; j++) {
    const double h = scaled(s, st, centred(s, st, j));
    s->term[j] = divides(s) ? step(s->type, -s->u[j] * scaled(s, st, h)) : step(s->type, s->u[j] * x_at(s, j));
  }
}

static double b_at(const segment *s, const steps *st, double through, int64_t j) {
  return st->by == 0 ? 0 : step(s->type, through * direction(s, st, j));
}

/* LayerNorm: what reaches x through the mean. */
static range shift_of(const segment *s, const steps *st, double through) {
  if (!s->layer || st->by == 0) return only(0);
  for (int64_t j = 0; j < s->width; j++)
    s->term[j] = scaled(s, st, s->u[j]);
  const range a = sum_of(s);
  for (int64_t j = 0; j < s->width; j++)
    s->term[j] = b_at(s, st, through, j);
  const range b = sum_of(s);
  if (a.unknown || b.unknown) return (range){0, 0, 1};
  const rms_dtype type = s->type;
  const double low = step(type, -verify_round(type, a.low) - verify_round(type, b.low));
  const double high = step(type, -verify_round(type, a.high) - verify_round(type, b.high));
  return between(step(type, high / s->k), step(type, low / s->k));
}

/* dx and dresidual_out of one element whose B and D are these. */
typedef struct outputs {
  double dx, ds;
} outputs;

static outputs outputs_of(const segment *s, const steps *st, double b, double shift, int64_t j) {
  const verify_row *row = s->row;
  const int64_t at = s->start + j;
  double dx = step(s->type, scaled(s, st, s->u[j]) + b);
  if (s->layer) dx = step(s->type, dx + shift);
  if (row->dres) dx = f32(dx + row->dres[at]);
  if (row->old) dx = f32(dx + row->old[at]);
  return (outputs){verify_round(s->type, dx), verify_round(row->spec.residual_dtype, dx)};
}

/* through: one number, or for RMS_STEPS_RSTD what it may be, for each element on its own. */
static int explains_gradient(const segment *s, const steps *st, range through, double shift, progress *best) {
  trial t = {.best = best};
  for (int64_t j = 0; j < s->width && !t.failed; j++) {
    const int64_t at = s->start + j;
    const outputs one = outputs_of(s, st, b_at(s, st, through.low, j), shift, j);
    const outputs two =
        same(through.low, through.high) ? one : outputs_of(s, st, b_at(s, st, through.high, j), shift, j);
    if (s->got->dx) expect(&t, VERIFY_DX, at, s->got->dx[at], between(one.dx, two.dx));
    if (s->got->ds) expect(&t, VERIFY_DS, at, s->got->ds[at], between(one.ds, two.ds));
  }
  return !t.failed;
}

/* Every shift that this `through` may lead to. */
static int explains_through(const segment *s, const steps *st, double through, progress *best) {
  const range shift = shift_of(s, st, through);
  if (shift.unknown) return 1;
  for (int64_t i = 0; i < count_of(s->type, shift); i++)
    if (explains_gradient(s, st, only(through), choice_of(s->type, shift, i), best)) return 1;
  return 0;
}

static int explains_backward(const segment *s, const steps *st, progress *best) {
  if (!s->got->dx && !s->got->ds) return 1;
  fill_slopes(s, st);
  const range sum = sum_of(s);
  if (sum.unknown) return 1;
  if (s->all) {
    const range through = between(through_of(s, st, sum.low, 0), through_of(s, st, sum.high, 0));
    if (through.unknown) return 1;
    for (int64_t i = 0; i < count_of(s->type, through); i++)
      if (explains_through(s, st, choice_of(s->type, through, i), best)) return 1;
    return 0;
  }
  const range rounded = between(verify_round(s->type, sum.low), verify_round(s->type, sum.high));
  for (int64_t i = 0; i < count_of(s->type, rounded); i++) {
    const double one = choice_of(s->type, rounded, i);
    const range through = between(through_of(s, st, one, st->r.low), through_of(s, st, one, st->r.high));
    if (through.unknown || explains_gradient(s, st, through, 0, best)) return 1;
  }
  return 0;
}

static void fill_u(const segment *s) {
  const verify_row *row = s->row;
  for (int64_t j = 0; j < s->width; j++) {
    const double dy = row->dy[s->start + j];
    s->u[j] = row->g ? step(s->type, dy * row->g[s->start + j]) : verify_round(s->type, dy);
  }
}

/* The terms of dweight and dbias. */
static void keep_columns(const segment *s, const steps *st, int first) {
  verify_row *row = s->row;
  for (int64_t j = 0; j < s->width; j++) {
    const int64_t at = s->start + j;
    const double h = scaled(s, st, centred(s, st, j));
    double term = f32(row->dy[at] * h);
    if (verify_product_is_rounded(&row->spec)) term = verify_round(s->type, term);
    widen(&row->dw[at], &row->dw_error[at], term, first);
    row->dm[at] = dd_from(row->dy[at]);
    row->dm_error[at] = 0;
    row->h_size[at] = fabs(h);
  }
}

/* ---- Rows ---- */

typedef int explains(const segment *s, const steps *st, progress *best);
typedef void keeps(const segment *s, const steps *st, int first);

/* Nothing is known of a group. */
static void forget(const segment *s) {
  verify_row *row = s->row;
  for (int64_t j = s->start; j < s->start + s->width; j++) {
    row->y[j] = row->dw[j] = dd_from(0);
    row->y_error[j] = row->dw_error[j] = (double)INFINITY;
    if (row->dy) row->dm[j] = dd_from(row->dy[j]);
    row->dm_error[j] = 0;
  }
}

/* 1: a choice explains the group; 0: none does; -1: no memory. */
static int judge_group(const segment *s, explains *explain, keeps *keep, verify_steps_miss *miss) {
  progress best = {.right = -1};
  choices c = choices_of(s);
  int64_t right = 0;
  for (int64_t i = 0; i < c.count && !c.unknown; i++)
    if (explain(s, &c.list[i], &best)) keep(s, &c.list[i], right++ == 0);
  if (right == 0) {
    forget(s);
    *miss = best.miss;
  }
  const int result = c.no_memory ? -1 : c.unknown || right > 0;
  free(c.list);
  return result;
}

static int64_t judge_row(verify_row *row, const verify_steps_got *got, explains *explain, keeps *keep,
                         verify_steps_miss *miss) {
  const verify_spec *spec = &row->spec;
  segment s = {.row = row, .got = got, .type = spec->dtype, .width = row->width, .k = (double)row->k};
  s.eps = f32(spec->eps);
  s.layer = spec->kind == RMS_KIND_LAYER;
  s.all = verify_steps(spec) == RMS_STEPS_ALL;
  s.place = spec->eps_place;
  s.u = calloc((size_t)s.width, sizeof(double));
  s.term = calloc((size_t)s.width, sizeof(double));
  int64_t wrong = s.u && s.term ? 0 : -1;
  for (; wrong >= 0 && s.index < row->groups; s.index++, s.start += s.width) {
    verify_steps_miss here;
    if (row->dy) fill_u(&s);
    const int right = judge_group(&s, explain, keep, &here);
    if (right == 0 && wrong == 0) *miss = here;
    wrong = right < 0 ? -1 : wrong + !right;
  }
  free(s.u);
  free(s.term);
  return wrong;
}

int64_t verify_steps_forward(verify_row *row, const verify_steps_got *got, verify_steps_miss *miss) {
  return judge_row(row, got, explains_forward, keep_y, miss);
}

int64_t verify_steps_backward(verify_row *row, const verify_steps_got *got, verify_steps_miss *miss) {
  return judge_row(row, got, explains_backward, keep_columns, miss);
}
