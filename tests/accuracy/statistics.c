/* SPDX-License-Identifier: MIT
 *
 * Gradients that reach r and the mean themselves, as the header says: drstd and dmean of the backward, beside a dy and
 * without one, or added to the sums between its two halves, with a dy of zeros. Against the formulas in double. */
#include <math.h>
#include <string.h>
#include "harness.h"
#include "number.h"
#include "random.h"

enum { ROWS = 5, COLS = 48 };

typedef enum way { HALVES, STATISTICS_SAVED, STATISTICS_FORMED, WAYS } way;

typedef struct problem {
  rms_spec spec;
  way way;
  rms_dtype dtype;
  int with_dy;
  double size; /* of x */
} problem;

typedef struct row {
  double x[COLS], u[COLS], dr, dmean; /* of one group */
} row;

/* dx of a group and the size of its terms. */
static void exact_gradient(const problem *p, int64_t n, const row *in, double *dx, double *terms) {
  int layer = p->spec.kind == RMS_KIND_LAYER;
  int64_t k = p->spec.partial ? p->spec.partial : n;
  double mean = 0, m2 = 0, eps = p->dtype == RMS_F64 ? p->spec.eps : (double)(float)p->spec.eps;
  for (int64_t j = 0; j < n && layer; j++)
    mean += in->x[j] / (double)n;
  for (int64_t j = 0; j < k; j++)
    m2 += (in->x[j] - mean) * (in->x[j] - mean);
  double rms = sqrt(m2 / (double)k), r = 1 / sqrt(m2 / (double)k + eps);
  double slope = r * r * r; /* times e_j / k it is -dr/dx_j */
  if (p->spec.eps_place == RMS_EPS_OUTSIDE) r = 1 / (rms + eps), slope = r * r / rms;
  if (p->spec.eps_place == RMS_EPS_CLAMP) r = 1 / fmax(rms, eps), slope = rms < eps ? 0 : r * r * r;
  double ue = in->dr, size = fabs(in->dr), u = 0, all_u = 0;
  for (int64_t j = 0; j < n; j++) {
    ue += in->u[j] * (in->x[j] - mean);
    size += fabs(in->u[j] * (in->x[j] - mean));
    u += in->u[j];
    all_u += fabs(in->u[j]);
  }
  for (int64_t j = 0; j < n; j++) {
    double e = j < k ? slope * (in->x[j] - mean) / (double)k : 0;
    dx[j] = in->u[j] * r - e * ue + (layer ? in->dmean / (double)n - r * u / (double)n : 0);
    terms[j] = fabs(in->u[j] * r) + fabs(e) * size;
    if (layer) /* the mean's own error moves e by a share of the largest x, below 4 times the spread here */
      terms[j] += fabs(in->dmean) / (double)n + r * all_u / (double)n + 4 * slope * rms * size / (double)k;
  }
}

static void run_whole(const problem *p, const void *x, const void *dy, const double *dr, const double *dmean,
                      void *dx) {
  const int64_t count = ROWS * (p->spec.groups ? p->spec.groups : 1);
  const rms_dtype type = p->dtype == RMS_F64 ? RMS_F64 : RMS_F32;
  double rstd[ROWS * 4], mean[ROWS * 4], drstd[ROWS * 4], of_mean[ROWS * 4]; /* room for floats */
  const int layer = p->spec.kind == RMS_KIND_LAYER, saved = p->way == STATISTICS_SAVED;
  rms_forward_args f = {.outer = ROWS, .x = {x, (int32_t)p->dtype}, .rstd = rstd, .mean = layer ? mean : NULL};
  rms_backward_args b = {.outer = ROWS, .x = f.x, .drstd = drstd, .dmean = layer ? of_mean : NULL, .dx.data = dx};
  b.rstd = saved ? rstd : NULL;
  b.mean = saved ? f.mean : NULL;
  b.dy.data = p->with_dy ? dy : NULL;
  for (int64_t i = 0; i < count; i++) {
    verify_store(type, drstd, i, dr[i]);
    verify_store(type, of_mean, i, dmean[i]);
  }
  T_EQ_STATUS(RMS_OK, rms_forward(&p->spec, &f, NULL));
  T_EQ_STATUS(RMS_OK, rms_backward(&p->spec, &b, NULL));
}

static void run_halves(const problem *p, const void *x, const void *dy, const double *dr, const double *dmean,
                       void *dx) {
  int64_t groups = p->spec.groups ? p->spec.groups : 1;
  rms_stat stats[ROWS * 4];
  rms_grad_sum sums[ROWS * 4];
  double rstd[ROWS * 4]; /* room for floats */
  rms_forward_args f = {.outer = ROWS, .x = {x, (int32_t)p->dtype}, .rstd = rstd};
  rms_backward_args b = {.outer = ROWS, .x = f.x, .dy.data = dy, .dx.data = dx};
  T_EQ_STATUS(RMS_OK, rms_stats(&p->spec, &f, stats, NULL));
  T_EQ_STATUS(RMS_OK, rms_apply(&p->spec, &f, stats, NULL));
  T_EQ_STATUS(RMS_OK, rms_backward_stats(&p->spec, &b, stats, sums, NULL));
  for (int64_t i = 0; i < ROWS * groups; i++) {
    double r = p->dtype == RMS_F64 ? rstd[i] : (double)((float *)rstd)[i];
    int layer = p->spec.kind == RMS_KIND_LAYER;
    sums[i].ux += layer ? r * dr[i] : dr[i];
    if (layer) sums[i].u -= dmean[i] / r;
  }
  T_EQ_STATUS(RMS_OK, rms_backward_apply(&p->spec, &b, stats, sums, NULL));
}

static void check(const problem *p) {
  verify_random random = verify_random_start(t_seed(), 7);
  double x[ROWS * COLS], dy[ROWS * COLS], dx[ROWS * COLS], dr[ROWS * 4], dmean[ROWS * 4]; /* room for any type */
  int64_t groups = p->spec.groups ? p->spec.groups : 1, n = COLS / groups;
  for (int64_t i = 0; i < ROWS * COLS; i++) {
    verify_store(p->dtype, x, i, p->size * verify_random_normal(&random));
    verify_store(p->dtype, dy, i, p->with_dy ? verify_random_normal(&random) : 0);
  }
  for (int64_t i = 0; i < ROWS * groups; i++) { /* of the size of u*x, and of u*r */
    dr[i] = p->size * verify_random_normal(&random);
    dmean[i] = verify_random_normal(&random) / (p->size + p->spec.eps);
  }
  (p->way == HALVES ? run_halves : run_whole)(p, x, dy, dr, dmean, dx);
  double unit = p->dtype == RMS_F64 ? 0x1p-53 : 0x1p-24;
  double half = p->dtype == RMS_BF16 ? 0x1p-8 : p->dtype == RMS_F16 ? 0x1p-11 : unit;
  double least = p->dtype == RMS_F16 ? 0x1p-25 : p->dtype == RMS_F64 ? 0 : 0x1p-149;
  for (int64_t i = 0; i < ROWS * groups; i++) {
    row in = {.dr = dr[i], .dmean = dmean[i]};
    double exact[COLS], terms[COLS];
    for (int64_t j = 0; j < n; j++) {
      in.x[j] = verify_load(p->dtype, x, i * n + j);
      in.u[j] = verify_load(p->dtype, dy, i * n + j);
    }
    exact_gradient(p, n, &in, exact, terms);
    for (int64_t j = 0; j < n; j++) {
      double got = verify_load(p->dtype, dx, i * n + j);
      t_context("%s way %d kind %d eps place %d type %d groups %d partial %d size %g dy %d: row %d element %d: %.9g, "
                "exact %.9g",
                rms_isa_active(), (int)p->way, p->spec.kind, p->spec.eps_place, (int)p->dtype, (int)groups,
                (int)p->spec.partial, p->size, p->with_dy, (int)i, (int)j, got, exact[j]);
      /* Fewer than 64 roundings of the arithmetic: 9 of a sum in lanes, three times those of r, and a few. */
      T_CHECK(fabs(got - exact[j]) <= 64 * unit * terms[j] + half * fabs(exact[j]) + least);
    }
  }
}

static void gradients(void) {
  static const rms_dtype types[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};
  static const struct {
    int32_t kind, eps_place, partial, groups;
  } forms[] = {{RMS_KIND_RMS, RMS_EPS_INSIDE, 0, 0},   {RMS_KIND_RMS, RMS_EPS_OUTSIDE, 0, 0},
               {RMS_KIND_RMS, RMS_EPS_CLAMP, 0, 0},    {RMS_KIND_RMS, RMS_EPS_INSIDE, 7, 0},
               {RMS_KIND_RMS, RMS_EPS_INSIDE, 0, 3},   {RMS_KIND_LAYER, RMS_EPS_INSIDE, 0, 0},
               {RMS_KIND_LAYER, RMS_EPS_OUTSIDE, 0, 2}};
  static const double eps[] = {1e-5, 0.5, 0};
  t_isas isas = t_usable_isas();
  for (int i = 0; i < isas.count; i++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
    for (size_t t = 0; t < T_COUNT(types); t++)
      for (size_t f = 0; f < T_COUNT(forms); f++)
        for (size_t e = 0; e < T_COUNT(eps); e++)
          for (int with_dy = 0; with_dy < 2; with_dy++) {
            problem p = {.dtype = types[t], .with_dy = with_dy, .size = 1};
            p.spec = (rms_spec){.cols = COLS, .eps = eps[e], .kind = forms[f].kind, .eps_place = forms[f].eps_place};
            p.spec.partial = forms[f].partial;
            p.spec.groups = forms[f].groups;
            for (p.way = HALVES; p.way < WAYS; p.way++)
              check(&p);
          }
  }
  rms_isa_force(NULL);
}

/* Rows that are scaled on the way: r is beyond 2^31, or below 2^-31. */
static void rows_out_of_range(void) {
  static const double sizes[] = {1e-12, 1e-18, 1e12, 1e15};
  for (size_t i = 0; i < T_COUNT(sizes); i++)
    for (int with_dy = 0; with_dy < 2; with_dy++) {
      problem p = {.spec = {.cols = COLS}, .with_dy = with_dy, .size = sizes[i]};
      for (p.way = HALVES; p.way < WAYS; p.way++) {
        p.dtype = RMS_F32;
        check(&p);
        p.dtype = RMS_BF16;
        check(&p);
      }
    }
}

static const t_case cases[] = {{"gradients", gradients}, {"rows_out_of_range", rows_out_of_range}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
