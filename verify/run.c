/* SPDX-License-Identifier: MIT
 * One problem: run it, compare each output element with the oracle. */
#include "run.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "bounds.h"
#include "data.h"
#include "number.h"
#include "quantise.h"
#include "stepwise.h"

/* ---- Comparing ---- */

/* The correctly rounded end of an interval. Beyond the range of a double, where double-double has no digits, there is
 * only infinity. */
static double round_end(rms_dtype dtype, dd exact, double error) {
  if (isinf(exact.hi)) return exact.hi;
  dd value = dd_add(exact, dd_from(error));
  return dtype == RMS_F64 ? value.hi : verify_round(dtype, dd_to_odd(value));
}

/* `got` must lie between the rounded ends of exact - error .. exact + error: rounding is monotone. size: of the terms
 * that the exact value is a sum of; errors in ulp are told in units at that size, for where terms cancel the units of
 * their sum say nothing. */
static void compare(verify_result *result, const verify_worst *where, rms_dtype dtype, dd exact, double error,
                    double size) {
  if (error < 0) { /* nothing is known of it */
    result->elements++;
    return;
  }
  if (dtype == RMS_F64 && fabs(exact.hi) < 0x1p-960) error += 0x1p-1074; /* double-double has no digits below */
  if (isnan(error)) error = (double)INFINITY; /* a product of a bound without end and of zero */
  double got = where->got, low = round_end(dtype, exact, -error), high = round_end(dtype, exact, error);
  int inside = isnan(exact.hi) ? isnan(got) : !(error < (double)INFINITY) ? !isnan(got) : got >= low && got <= high;
  double distance = fabs(dd_subtract(dd_from(got), exact).hi);
  double bound = error + verify_ulp(dtype, fabs(exact.hi) + error) / 2,
         ulp = distance / verify_ulp(dtype, fmax(size, fabs(exact.hi)));
  double share = distance / bound;
  if (inside && !(distance < (double)INFINITY)) share = ulp = 0; /* infinity, and rightly so */
  if (!inside && !(share > 1)) share = (double)INFINITY;
  result->elements++;
  result->misses += !inside;
  if (!(ulp <= result->ulp)) result->ulp = ulp;
  if (share > result->share || result->worst.role == VERIFY_ROLES) {
    result->share = share;
    result->worst = *where;
    result->worst.expected = exact.hi;
  }
}

static void compare_statistics(verify_result *result, const verify_case *c, const verify_row *row, int64_t outer,
                               int64_t inner) {
  for (int64_t i = 0; i < row->groups; i++) {
    const verify_group *g = &row->group[i];
    int64_t at = (outer * c->problem.inner + inner) * row->groups + i;
    verify_worst where = {VERIFY_RSTD, outer, inner, i, 0, 0};
    if (verify_case_has(c, VERIFY_RSTD)) {
      where.got = verify_load(c->tensor[VERIFY_RSTD].dtype, c->tensor[VERIFY_RSTD].data, at);
      compare(result, &where, c->tensor[VERIFY_RSTD].dtype, dd_scale(g->r, -g->scale), row->r_error[i], 0);
    }
    if (verify_case_has(c, VERIFY_MEAN)) {
      where.role = VERIFY_MEAN;
      where.got = verify_load(c->tensor[VERIFY_MEAN].dtype, c->tensor[VERIFY_MEAN].data, at);
      compare(result, &where, c->tensor[VERIFY_MEAN].dtype, dd_scale(g->mean, g->scale), row->mean_error[i],
              ldexp(0.5, g->scale));
    }
  }
}

/* ---- A walk over the rows ---- */

/* Column sums of one weight row (one per inner index with per-head weights). */
typedef struct column {
  dd sum;
  double error, magnitude, size;
  int unknown; /* a term may be infinite or not */
  int lost;    /* nothing is known of a term    */
} column;

/* Rows of doubles. A row of x, then of what is beside it, what was there before and what is there now. */
enum {
  ROW_X,
  ROW_RESIDUAL,
  ROW_GAIN,
  ROW_DY,
  ROW_OLD,
  ROW_GOT,
  ROW_ZEROS,
  ROW_SIZES,
  ROW_BIAS,
  ROW_GATE,
  ROW_DS,
  ROW_RSTD,
  ROW_MEAN,
  ROW_DRSTD,
  ROW_DMEAN,
  ROWS
};
enum { ROW_DRESIDUAL = ROW_RESIDUAL };

typedef struct walk {
  verify_case c;
  verify_memory memory;
  verify_spec spec;
  rms_spec called; /* the same for the library */
  verify_row row;
  double *rows[ROWS];
  column *dweight, *dbias; /* inner x cols, or cols */
} walk;

static int walk_open(walk *w, const verify_problem *problem) {
  verify_allocator allocator = verify_memory_allocator(&w->memory);
  if (verify_case_describe(&w->c, problem) || verify_case_place(&w->c, &allocator)) return -1;
  verify_case_fill(&w->c);
  verify_memory_keep(&w->memory);
  w->spec = verify_case_spec(&w->c);
  w->called = verify_library_spec(&w->spec);
  size_t cols = (size_t)w->spec.cols, weights = cols * (size_t)(w->spec.weight_per_inner ? w->c.problem.inner : 1);
  int ok = verify_row_create(&w->row, &w->spec) == 0;
  for (int i = 0; i < ROWS; i++)
    ok &= (w->rows[i] = calloc(cols, sizeof(double))) != NULL;
  ok &= (w->dweight = calloc(weights, sizeof(column))) != NULL;
  ok &= (w->dbias = calloc(weights, sizeof(column))) != NULL;
  return ok ? 0 : -1;
}

static void walk_close(walk *w) {
  verify_memory_free(&w->memory);
  verify_row_destroy(&w->row);
  for (int i = 0; i < ROWS; i++)
    free(w->rows[i]);
  free(w->dweight);
  free(w->dbias);
}

static const double *load_row(walk *w, verify_role role, int64_t outer, int64_t inner, int row) {
  if (!verify_case_has(&w->c, role)) return NULL;
  verify_row_before(&w->c, &w->memory, (verify_row_at){role, outer, inner}, w->rows[row]);
  return w->rows[row];
}

/* A row of exact values, how far off each may be, and the size of what it is a sum of. */
typedef struct exact_row {
  const dd *exact;
  const double *error, *size;
} exact_row;

static void compare_row(walk *w, verify_row_at at, exact_row row, verify_result *result) {
  if (!verify_case_has(&w->c, at.role)) return;
  const verify_tensor *t = &w->c.tensor[at.role];
  double *got = w->rows[ROW_GOT];
  verify_row_now(&w->c, at, got);
  for (int64_t j = 0; j < t->cols; j++) {
    verify_worst where = {at.role, at.outer, at.inner, j, 0, got[j]};
    compare(result, &where, t->dtype, row.exact[j], row.error[j], row.size[j]);
  }
}

/* ---- Quantised outputs ---- */

/* A row of q: its bytes, and the element and the scale that a column has there. */
typedef struct quantised_row {
  const unsigned char *bytes;
  const float *scales; /* NULL: q8_0 has them among its bytes */
  int64_t block, outer, inner;
} quantised_row;

static unsigned char byte_at(const walk *w, const quantised_row *q, int64_t j) {
  return q->bytes[w->spec.q_dtype == RMS_Q8_0 ? j / 32 * 34 + 2 + j % 32 : j];
}

static float scale_at(const walk *w, const quantised_row *q, int64_t j) {
  if (q->scales) return q->scales[w->spec.scale_block ? j / w->spec.scale_block : 0];
  return (float)verify_load(RMS_F16, q->bytes + j / 32 * 34, 0);
}

static void judge_quantised(const quantised_row *q, verify_role role, int64_t j, int right, double got, double exact,
                            verify_result *result) {
  result->elements++;
  if (right) return;
  result->misses++;
  result->share = (double)INFINITY;
  result->worst = (verify_worst){role, q->outer, q->inner, j, exact, got};
}

/* The ends of what y can be, rounded. */
static float end_of_y(const walk *w, int64_t j, double sign) {
  return (float)round_end(verify_y_type(&w->spec), w->row.y[j], sign * w->row.y_error[j]);
}

static int between(double low, double got, double high) {
  if (isnan(low) || isnan(high)) return isnan(got);
  return low <= got && got <= high;
}

/* Quantising is monotone: the scale lies between those of the smallest and the largest block that y can be, and an
 * element between those of the ends of what y can be, under the scales that the block can have. Of a y that may be
 * infinite or NaN, or of which nothing is known, nothing is said. */
static void bound_block(const walk *w, const quantised_row *q, int64_t from, verify_result *result) {
  const verify_spec *s = &w->spec;
  const int64_t to = q->block ? from + q->block : s->cols;
  float least = 0, most = 0;
  int known = 1;
  for (int64_t j = from; j < to; j++) {
    const float low = end_of_y(w, j, -1), high = end_of_y(w, j, 1);
    if (!(low >= -FLT_MAX && high <= FLT_MAX) || w->row.y_error[j] < 0) known = 0;
    const float nearest = low > 0 ? low : high < 0 ? -high : 0, farthest = -low > high ? -low : high;
    if (nearest > least) least = nearest;
    if (farthest > most) most = farthest;
  }
  if (!known) return;
  const float stored = scale_at(w, q, from);
  verify_scale first = verify_scale_of(s, least), last = verify_scale_of(s, most);
  if (!q->block)
    first = last = verify_scale_given(s, stored);
  else
    judge_quantised(q, VERIFY_SCALE, from / q->block,
                    between((double)first.stored, (double)stored, (double)last.stored), (double)stored,
                    (double)last.stored, result);
  if (s->q_dtype != RMS_Q8_0 && q->block) { /* the very scale is known */
    first.factor = last.factor = s->q_dtype == RMS_I8 ? (1 / stored > FLT_MAX ? FLT_MAX : 1 / stored)
                                 : stored == 0        ? 1
                                                      : stored;
  }
  for (int64_t j = from; j < to; j++) {
    const float low = end_of_y(w, j, -1), high = end_of_y(w, j, 1);
    const double a = verify_quantise(s, first, low), b = verify_quantise(s, last, low);
    const double c = verify_quantise(s, first, high), d = verify_quantise(s, last, high);
    const double got = verify_quantised_number(s->q_dtype, byte_at(w, q, j));
    judge_quantised(q, VERIFY_Q, j, between(fmin(a, b), got, fmax(c, d)), got, fmin(a, b), result);
  }
}

/* Where y is stored: the bits that plain quantising makes of it. */
static void match_block(const walk *w, const quantised_row *q, const double *y, int64_t from, verify_result *result) {
  const verify_spec *s = &w->spec;
  const int64_t to = q->block ? from + q->block : s->cols;
  const float stored = scale_at(w, q, from);
  float most = 0;
  for (int64_t j = from; j < to; j++)
    if (!(fabs(y[j]) <= (double)most)) most = fabs(y[j]) < (double)INFINITY ? (float)fabs(y[j]) : NAN;
  for (int64_t j = from; j < to; j++)
    if (!(fabs(y[j]) < (double)INFINITY)) most = NAN;
  const verify_scale scale = q->block ? verify_scale_of(s, most) : verify_scale_given(s, stored);
  const int same = isnan(scale.stored) ? isnan(stored) : scale.stored >= stored && scale.stored <= stored;
  judge_quantised(q, VERIFY_SCALE, q->block ? from / q->block : 0, same || !q->block, (double)stored,
                  (double)scale.stored, result);
  for (int64_t j = from; j < to; j++) {
    const double number = verify_quantise(s, scale, (float)y[j]);
    const unsigned char got = byte_at(w, q, j), want = verify_quantised_byte(s->q_dtype, number);
    judge_quantised(q, VERIFY_Q, j, got == want, verify_quantised_number(s->q_dtype, got), number, result);
  }
}

static void compare_quantised(walk *w, int64_t outer, int64_t inner, verify_result *result) {
  const verify_tensor *t = &w->c.tensor[VERIFY_Q], *scale = &w->c.tensor[VERIFY_SCALE];
  const verify_spec *s = &w->spec;
  if (!t->present) return;
  quantised_row q = {.outer = outer, .inner = inner, .block = s->q_dtype == RMS_Q8_0 ? 32 : s->scale_block};
  q.bytes = (const unsigned char *)t->data + outer * t->outer_stride + inner * t->inner_stride;
  if (scale->present) q.scales = (const float *)(const void *)scale->data;
  if (scale->present && s->scale_block) q.scales += (outer * w->c.problem.inner + inner) * (s->cols / s->scale_block);
  if (verify_case_has(&w->c, VERIFY_Y))
    verify_row_now(&w->c, (verify_row_at){VERIFY_Y, outer, inner}, w->rows[ROW_GOT]);
  for (int64_t j = 0; j < s->cols; j += q.block ? q.block : s->cols) {
    bound_block(w, &q, j, result);
    if (verify_case_has(&w->c, VERIFY_Y)) match_block(w, &q, w->rows[ROW_GOT], j, result);
  }
}

static void load_gain(walk *w, int64_t inner) {
  int64_t weight_row = w->spec.weight_per_inner ? inner : 0;
  w->row.g = load_row(w, VERIFY_WEIGHT, 0, weight_row, ROW_GAIN);
  for (int64_t j = 0; w->row.g && j < w->spec.cols; j++)
    w->rows[ROW_GAIN][j] = verify_gain(&w->spec, w->rows[ROW_GAIN][j]);
}

/* The gate, and the bias that is added before it. */
static void load_gate(walk *w, int64_t outer, int64_t inner) {
  w->row.z = load_row(w, VERIFY_GATE, outer, inner, ROW_GATE);
  w->row.b = load_row(w, VERIFY_BIAS, 0, w->spec.weight_per_inner ? inner : 0, ROW_BIAS);
}

/* ---- The forms that round between x and y ---- */

static const double *load_now(walk *w, verify_role role, int64_t outer, int64_t inner, int row) {
  if (!verify_case_has(&w->c, role)) return NULL;
  verify_row_now(&w->c, (verify_row_at){role, outer, inner}, w->rows[row]);
  return w->rows[row];
}

/* rstd or mean of a row's groups. */
static const double *load_statistics(walk *w, verify_role role, int64_t outer, int64_t inner, int row) {
  const verify_tensor *t = &w->c.tensor[role];
  if (!t->present) return NULL;
  for (int64_t i = 0; i < w->row.groups; i++)
    w->rows[row][i] = verify_load(t->dtype, t->data, (outer * w->c.problem.inner + inner) * w->row.groups + i);
  return w->rows[row];
}

static void judge_steps(int64_t wrong, const verify_steps_miss *miss, verify_row_at at, int64_t elements,
                        verify_result *result) {
  result->elements += elements;
  if (result->worst.role == VERIFY_ROLES) result->worst = (verify_worst){at.role, at.outer, at.inner, 0, 0, 0};
  if (wrong == 0) return;
  result->misses += wrong > 0 ? wrong : 1;
  result->share = (double)INFINITY;
  if (wrong > 0)
    result->worst = (verify_worst){miss->role, at.outer, at.inner, miss->column, miss->expected, miss->got};
}

static void judge_forward_steps(walk *w, int64_t outer, int64_t inner, verify_result *result) {
  verify_steps_got got = {.y = load_now(w, VERIFY_Y, outer, inner, ROW_GOT),
                          .rstd = load_statistics(w, VERIFY_RSTD, outer, inner, ROW_RSTD),
                          .mean = load_statistics(w, VERIFY_MEAN, outer, inner, ROW_MEAN)};
  verify_steps_miss miss = {VERIFY_Y, 0, 0, 0};
  const int64_t elements = (got.y ? w->spec.cols : 0) + w->row.groups * ((got.rstd != NULL) + (got.mean != NULL));
  judge_steps(verify_steps_forward(&w->row, &got, &miss), &miss, (verify_row_at){VERIFY_Y, outer, inner}, elements,
              result);
}

static void judge_backward_steps(walk *w, int64_t outer, int64_t inner, verify_result *result) {
  verify_steps_got got = {.dx = load_now(w, VERIFY_DX, outer, inner, ROW_GOT),
                          .ds = load_now(w, VERIFY_DS, outer, inner, ROW_DS),
                          .given = load_statistics(w, VERIFY_RSTD, outer, inner, ROW_RSTD)};
  verify_steps_miss miss = {VERIFY_DX, 0, 0, 0};
  const int64_t elements = w->spec.cols * ((got.dx != NULL) + (got.ds != NULL));
  judge_steps(verify_steps_backward(&w->row, &got, &miss), &miss, (verify_row_at){VERIFY_DX, outer, inner}, elements,
              result);
}

static void forward_row(walk *w, int64_t outer, int64_t inner, verify_result *result) {
  w->row.x = load_row(w, VERIFY_X, outer, inner, ROW_X);
  const double *residual = load_row(w, VERIFY_RESIDUAL, outer, inner, ROW_RESIDUAL);
  load_gain(w, inner);
  load_gate(w, outer, inner);
  dd *sum = w->row.u; /* a forward has no other use for it */
  for (int64_t j = 0; residual && j < w->spec.cols; j++)
    sum[j] = dd_from(w->rows[ROW_X][j] = verify_residual_sum(&w->spec, w->rows[ROW_X][j], residual[j]));
  verify_oracle_statistic(&w->row);
  if (verify_is_stepwise(&w->spec)) {
    judge_forward_steps(w, outer, inner, result);
  } else {
    verify_oracle_forward(&w->row);
    verify_bound_forward(&w->row);
    compare_row(w, (verify_row_at){VERIFY_Y, outer, inner}, (exact_row){w->row.y, w->row.y_error, w->row.y_size},
                result);
    compare_statistics(result, &w->c, &w->row, outer, inner);
  }
  compare_row(w, (verify_row_at){VERIFY_SUM, outer, inner}, (exact_row){sum, w->rows[ROW_ZEROS], w->rows[ROW_ZEROS]},
              result);
  compare_quantised(w, outer, inner, result);
}

static void add_to_columns(walk *w, int64_t inner) {
  int64_t start = w->spec.weight_per_inner ? inner * w->spec.cols : 0;
  for (int64_t j = 0; j < w->spec.cols; j++) {
    column *dw = &w->dweight[start + j], *db = &w->dbias[start + j];
    dw->unknown |= isinf(w->row.dw[j].hi) || !(w->row.dw_error[j] < (double)INFINITY);
    dw->lost |= w->row.dw_error[j] < 0;
    db->lost |= w->row.dm_error[j] < 0;
    dw->sum = dd_add(dw->sum, w->row.dw[j]);
    dw->error += w->row.dw_error[j];
    dw->magnitude += fabs(w->row.dw[j].hi);
    dw->size += fabs(w->row.dm[j].hi) * w->row.h_size[j];
    db->sum = dd_add(db->sum, w->row.dm[j]);
    db->error += w->row.dm_error[j];
    db->size = db->magnitude += fabs(w->row.dm[j].hi);
  }
}

static void load_backward_row(walk *w, int64_t outer, int64_t inner) {
  w->row.x = load_row(w, VERIFY_X, outer, inner, ROW_X);
  w->row.dres = load_row(w, VERIFY_DRESIDUAL, outer, inner, ROW_DRESIDUAL);
  load_gain(w, inner);
  load_gate(w, outer, inner);
  w->row.dy = verify_case_has(&w->c, VERIFY_DY) ? load_row(w, VERIFY_DY, outer, inner, ROW_DY) : w->rows[ROW_ZEROS];
  w->row.drstd = load_statistics(w, VERIFY_DRSTD, outer, inner, ROW_DRSTD);
  w->row.dmean = load_statistics(w, VERIFY_DMEAN, outer, inner, ROW_DMEAN);
  w->row.old = w->c.problem.accumulate & RMS_ACCUMULATE_DX ? load_row(w, VERIFY_DX, outer, inner, ROW_OLD) : NULL;
}

static void backward_row(walk *w, int64_t outer, int64_t inner, verify_result *result) {
  load_backward_row(w, outer, inner);
  verify_oracle_statistic(&w->row);
  if (verify_is_stepwise(&w->spec)) {
    judge_backward_steps(w, outer, inner, result);
    add_to_columns(w, inner);
    return;
  }
  verify_oracle_backward(&w->row);
  verify_bound_backward(&w->row);
  add_to_columns(w, inner);
  const exact_row dx = {w->row.dx, w->row.dx_error, w->row.dx_size};
  compare_row(w, (verify_row_at){VERIFY_DX, outer, inner}, dx, result);
  compare_row(w, (verify_row_at){VERIFY_DS, outer, inner}, dx, result);
  compare_row(w, (verify_row_at){VERIFY_DGATE, outer, inner}, (exact_row){w->row.dz, w->row.dz_error, w->row.dz_size},
              result);
}

/* Terms and the sums of a block are formed in the arithmetic type, unscaled: of terms of both signs they may leave its
 * range to either side, whatever the total is. */
static int parts_may_overflow(const walk *w, const column *s) {
  const double most = w->spec.dtype == RMS_F64 ? DBL_MAX : (double)FLT_MAX;
  const int one_sign = isfinite(s->magnitude) && s->magnitude <= fabs(s->sum.hi); /* the sum may be NaN */
  return s->magnitude + s->error > most && !one_sign;
}

static void compare_columns(walk *w, verify_role role, const column *columns, int accumulate, verify_result *result) {
  if (!verify_case_has(&w->c, role)) return;
  const verify_tensor *t = &w->c.tensor[role];
  int64_t rows = w->c.problem.outer * (w->spec.weight_per_inner ? 1 : w->c.problem.inner);
  for (int64_t h = 0; h < t->inner; h++) {
    if (accumulate) verify_row_before(&w->c, &w->memory, (verify_row_at){role, 0, h}, w->rows[ROW_OLD]);
    for (int64_t j = 0; j < t->cols; j++) {
      const column *s = &columns[h * t->cols + j];
      double error = verify_bound_column(&w->spec, rows, s->error, s->magnitude);
      w->row.dw[j] = accumulate ? dd_add(s->sum, dd_from(w->rows[ROW_OLD][j])) : s->sum;
      w->rows[ROW_SIZES][j] = s->size;
      w->row.dw_error[j] = accumulate ? error + 0x1p-52 * (s->magnitude + fabs(w->rows[ROW_OLD][j])) : error;
      if ((s->unknown && verify_is_stepwise(&w->spec)) || s->lost || parts_may_overflow(w, s)) w->row.dw_error[j] = -1;
    }
    compare_row(w, (verify_row_at){role, 0, h}, (exact_row){w->row.dw, w->row.dw_error, w->rows[ROW_SIZES]}, result);
  }
}

static void compare_all(walk *w, verify_result *result) {
  const verify_problem *p = &w->c.problem;
  for (int64_t i = 0; i < p->outer; i++)
    for (int64_t h = 0; h < p->inner; h++)
      if (p->backward)
        backward_row(w, i, h, result);
      else
        forward_row(w, i, h, result);
  compare_columns(w, VERIFY_DWEIGHT, w->dweight, p->accumulate & RMS_ACCUMULATE_DWEIGHT, result);
  compare_columns(w, VERIFY_DBIAS, w->dbias, p->accumulate & RMS_ACCUMULATE_DBIAS, result);
}

/* ---- Running ---- */

/* The saved statistics of a backward problem: correctly rounded, as a forward writes them up to its error bound. */
static void save_statistics(walk *w) {
  const verify_problem *p = &w->c.problem;
  for (int64_t i = 0; i < p->outer; i++)
    for (int64_t h = 0; h < p->inner; h++) {
      w->row.x = load_row(w, VERIFY_X, i, h, ROW_X);
      load_gate(w, i, h);
      verify_oracle_statistic(&w->row);
      for (int64_t g = 0; g < w->row.groups; g++) {
        const verify_group *group = &w->row.group[g];
        int64_t at = (i * p->inner + h) * w->row.groups + g;
        const verify_tensor *rstd = &w->c.tensor[VERIFY_RSTD], *mean = &w->c.tensor[VERIFY_MEAN];
        verify_store(rstd->dtype, rstd->data, at, ldexp(group->r.hi, -group->scale));
        if (verify_case_has(&w->c, VERIFY_MEAN))
          verify_store(mean->dtype, mean->data, at, ldexp(group->mean.hi, group->scale));
      }
    }
}

static rms_status run_forward(const walk *w, const verify_backend *b) {
  rms_forward_args args = verify_case_forward_args(&w->c);
  rms_stat *stats = (rms_stat *)(void *)w->c.tensor[VERIFY_STATS].data;
  if (!stats) return b->forward(b, &w->memory, &w->called, &args);
  rms_status status = b->stats(b, &w->memory, &w->called, &args, stats);
  return status == RMS_OK ? b->apply(b, &w->memory, &w->called, &args, stats) : status;
}

/* The split backward needs the statistics that rms_stats makes from what was normalised: a forward whose x is that. A
 * residual sum in a wider type is taken as the residual beside an x of zeros, which adds up to it exactly. */
static rms_status run_backward_statistics(walk *w, const verify_backend *b) {
  rms_backward_args backward = verify_case_backward_args(&w->c);
  rms_forward_args args = {.outer = backward.outer, .inner = backward.inner, .x = backward.x, .gate = backward.gate};
  const verify_tensor *x = &w->c.tensor[VERIFY_X];
  if (x->dtype != w->spec.dtype) {
    verify_buffer *zeros = &w->memory.buffer[VERIFY_EXTRA];
    zeros->bytes = x->bytes;
    zeros->base = calloc(1, x->bytes + 1);
    if (!zeros->base) return RMS_E_MEMORY;
    args.residual = backward.x;
    args.x.data = zeros->base;
    args.x.dtype = (int32_t)w->spec.dtype;
  }
  return b->stats(b, &w->memory, &w->called, &args, (rms_stat *)(void *)w->c.tensor[VERIFY_STATS].data);
}

static rms_status run_backward(walk *w, const verify_backend *b) {
  rms_backward_args args = verify_case_backward_args(&w->c);
  if (w->c.problem.outputs & (VERIFY_OUT_DW | VERIFY_OUT_DB)) {
    verify_allocator allocator = verify_memory_allocator(&w->memory);
    size_t bytes = b->backward_workspace(b, &w->called, &args);
    if (verify_case_place_workspace(&w->c, bytes, &allocator)) return RMS_E_MEMORY;
    args = verify_case_backward_args(&w->c);
  }
  if (verify_case_has(&w->c, VERIFY_RSTD)) save_statistics(w);
  verify_memory_keep(&w->memory);
  rms_stat *stats = (rms_stat *)(void *)w->c.tensor[VERIFY_STATS].data;
  rms_grad_sum *sums = (rms_grad_sum *)(void *)w->c.tensor[VERIFY_GRAD_SUMS].data;
  if (!stats) return b->backward(b, &w->memory, &w->called, &args);
  rms_status status = run_backward_statistics(w, b);
  if (status == RMS_OK) status = b->backward_stats(b, &w->memory, &w->called, &args, stats, sums);
  return status == RMS_OK ? b->backward_apply(b, &w->memory, &w->called, &args, stats, sums) : status;
}

static void judge(verify_result *result, const walk *w) {
  const verify_worst *at = &result->worst;
  result->spoiled = verify_memory_spoiled(&w->c, &w->memory);
  result->failed = result->misses > 0 || result->spoiled != VERIFY_ROLES;
  if (result->spoiled != VERIFY_ROLES)
    snprintf(result->message, sizeof result->message, "wrote where it must not: %s", verify_role_name(result->spoiled));
  else if (result->misses > 0)
    snprintf(result->message, sizeof result->message,
             "%" PRId64 " of %" PRId64 " elements outside the bound; worst %s[%" PRId64 "][%" PRId64 "][%" PRId64
             "]: got %.9g, exact %.9g, %.3g of the bound",
             result->misses, result->elements, verify_role_name(at->role), at->outer, at->inner, at->column, at->got,
             at->expected, result->share);
}

static void run_case(walk *w, const verify_backend *backend, verify_result *result) {
  result->status = w->c.problem.backward ? run_backward(w, backend) : run_forward(w, backend);
  if (result->status == RMS_E_UNSUPPORTED) {
    result->refused = 1;
    snprintf(result->message, sizeof result->message, "%s", rms_status_string(result->status));
  } else if (result->status != RMS_OK) {
    result->failed = 1;
    snprintf(result->message, sizeof result->message, "status %d: %s", (int)result->status,
             rms_status_string(result->status));
  } else {
    compare_all(w, result);
    judge(result, w);
  }
}

int verify_run(const verify_problem *problem, const verify_backend *backend, verify_result *result) {
  walk w = {.c = {.problem = *problem}};
  const char *why;
  *result = (verify_result){.spoiled = VERIFY_ROLES, .worst.role = VERIFY_ROLES};
  if (backend->prepare(backend, problem, &why)) {
    result->refused = 1;
    snprintf(result->message, sizeof result->message, "%s", why);
    backend->finish(backend);
    return 0;
  }
  if (walk_open(&w, problem) == 0) {
    run_case(&w, backend, result);
  } else {
    result->refused = 1;
    snprintf(result->message, sizeof result->message, "not enough memory for this problem");
  }
  walk_close(&w);
  backend->finish(backend);
  return !result->failed && !result->refused;
}
