/* SPDX-License-Identifier: MIT
 *
 * The oracle: every operation of the library from its mathematical definition, in double-double, one row at a time.
 *
 * A group is handled in units of 2^scale, a power of two near its largest element or the root of eps, and its gradient
 * in units of 2^u_scale, a power of two near the largest dy, so that nothing overflows or underflows on the way; the
 * scales are put back at the end. Roundings that belong to the definition (the
 * stored residual sum, g = weight + offset, rounding before the weight) are done exactly; no other rounding is. */
#ifndef RMSNORM_VERIFY_ORACLE_H
#define RMSNORM_VERIFY_ORACLE_H

#include "dd.h"
#include "spec.h"

/* One group of one row. All but the scales in units of 2^scale; the sums, which have u as a factor, of
 * 2^u_scale too. */
typedef struct verify_group {
  int scale, u_scale;
  dd mean;      /* LayerNorm; 0 otherwise                                          */
  dd m2;        /* sum of squares over the statistic's elements, centred: LayerNorm */
  dd rms;       /* sqrt(m2 / k)                                                    */
  int clamped;  /* r is 1/eps: rms is below it, and eps bounds it                 */
  dd r;         /* times 2^-scale is rstd                                          */
  double drstd; /* in units in which it is added to the sum of u*x or u*e          */
  dd sum_ux;    /* RMS: sum of u*x; LayerNorm: sum of u*h; with drstd's part       */
  dd sum_u;     /* LayerNorm: sum of u                                             */
  double eps;   /* in these units                                                  */
} verify_group;

/* A row: inputs, exact results (dd) and, beside each, the bound on the error before the last rounding (filled by
 * verify_bound_*). Arrays of cols elements; g, b, z, dy, dres, old: NULL where absent. */
typedef struct verify_row {
  verify_spec spec;       /* indices included               */
  int64_t groups, width;  /* groups >= 1; cols / groups     */
  int64_t k;              /* elements in the statistic      */
  unsigned char *in_stat; /* width flags                    */
  const double *x, *g, *b, *z, *dy, *dres, *old;
  const double *drstd, *dmean; /* gradients of r and the mean, per group; NULL: none */
  verify_group *group;         /* groups of them */
  dd *act;                     /* act(z), with a gate                                     */
  dd *v;                       /* what is normalised: x, or x*act with a gate before      */
  dd *h;                       /* v*r or (x - mean)*r                                     */
  dd *q;                       /* h, rounded to the data type when rounding before        */
  dd *m;                       /* with a gate after: what y would be without it, rounded to P when rounding before */
  dd *dm;                      /* dy, or with a gate after dy*act, rounded to P when rounding before             */
  dd *u;                       /* dm*g, rounded to the data type when rounding before; in units of 2^u_scale */
  dd *y, *dx;                  /* before the last rounding                                */
  dd *dw;                      /* this row's term of dweight                              */
  dd *dz;                      /* of the gate, before the last rounding                   */
  dd *d;                       /* the gradient of v, as RMS_STEPS_TERMS rounds it         */
  double *h_error, *q_error, *u_error, *y_error, *dx_error, *dw_error, *v_error, *dm_error, *dz_error;
  double *h_size, *y_size, *dx_size,
      *dz_size;                 /* the sum of the magnitudes of the terms that h, y, dx and dz are sums of */
  double *r_error, *mean_error; /* per group, of the true r and mean, before their last rounding */
} verify_row;

/* Allocates all arrays but the inputs. Returns 0 or -1. */
int verify_row_create(verify_row *row, const verify_spec *spec);
void verify_row_destroy(verify_row *row);

/* g = weight + offset rounded to the arithmetic type, and with RMS_GAIN_AS_WEIGHT to the weight's; the stored sum of x
 * and residual. Exactly as specified. */
double verify_gain(const verify_spec *spec, double weight);
double verify_residual_sum(const verify_spec *spec, double x, double residual);

/* The exact value rounded once. */
dd verify_round_exactly(rms_dtype dtype, dd value);

/* statistic: group[]. forward: h, q, y (after statistic). backward: h, q, u, dx, dw (after statistic). */
void verify_oracle_statistic(verify_row *row);
void verify_oracle_forward(verify_row *row);
void verify_oracle_backward(verify_row *row);

/* The rounding to the weight's product type P: the data type if weight and data share it, else none (see
 * the header). */
int verify_product_is_rounded(const verify_spec *spec);

#endif
