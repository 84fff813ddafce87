/* SPDX-License-Identifier: MIT
 *
 * How far the contract's activations and their slopes can be from the exact ones (docs/error-bounds.md, Activations),
 * for a finite z. u: unit roundoff of the arithmetic; eta: half its smallest subnormal number. */
#ifndef RMSNORM_VERIFY_ACTIVATION_BOUNDS_H
#define RMSNORM_VERIFY_ACTIVATION_BOUNDS_H

#include "dd_exp.h"

/* The exponential's relative error in units of u. */
#define VERIFY_EXP_ERROR 1.5
/* The terms of second order, and the evaluation of a bound in double. */
#define VERIFY_ACTIVATION_SLACK(u) ((1 + 8 * (u)) * (1 + 1e-12))

/* Relative error of sigmoid before it can underflow: the exponential's own, as far as it counts in 1 + exp(-z), the
 * sum's and the quotient's. rest: 1 - sigmoid(z). */
static inline double verify_sigmoid_relative_error(double rest, double u) {
  return (2 + VERIFY_EXP_ERROR * rest) * u * VERIFY_ACTIVATION_SLACK(u);
}

/* What underflow adds to a result, and to the oracle's where the arithmetic is that of double. */
static inline double verify_activation_underflow(double eta) {
  return eta + 0x1p-1074;
}

static inline double verify_activation_error(double z, bool sigmoid, double u, double eta) {
  double rest = dd_sigmoid(dd_from(-z)).hi, value = fabs(dd_activation(dd_from(z), sigmoid).hi);
  double relative = verify_sigmoid_relative_error(rest, u);
  if (!sigmoid) relative += u * VERIFY_ACTIVATION_SLACK(u); /* the product's rounding */
  return relative * value + verify_activation_underflow(eta);
}

/* Absolute, because 1 + z (1 - s) has a zero near z = -1.278 and 1 - s cancels for large z. */
static inline double verify_activation_slope_error(double z, bool sigmoid, double u, double eta) {
  double value = dd_sigmoid(dd_from(z)).hi, rest = dd_sigmoid(dd_from(-z)).hi;
  double value_error = verify_sigmoid_relative_error(rest, u) * value;
  /* of 1 - s; where that is below u/2 the computed s is 1 and the difference 0 */
  double factor = rest, error = rest < u / 2 ? rest : value_error + u * (rest + value_error);
  if (!sigmoid) {
    factor = fabs(1 + z * rest);
    error = fabs(z) * error;                     /* z (1 - s) */
    error += u * (fabs(z) * rest + error) + eta; /* rounded */
    error += u * (factor + error);               /* 1 + z (1 - s), rounded */
  }
  error = value * error + value_error * (factor + error); /* times s */
  return (error + u * (value * factor + error)) * VERIFY_ACTIVATION_SLACK(u) + verify_activation_underflow(eta);
}

#endif
