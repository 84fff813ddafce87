/* SPDX-License-Identifier: MIT
 *
 * How far the contract's activations and their slopes can be from the exact ones (docs/error-bounds.md, Activations),
 * for a finite z. u: unit roundoff of the arithmetic; eta: half its smallest subnormal number. */
#ifndef RMSNORM_VERIFY_ACTIVATION_BOUNDS_H
#define RMSNORM_VERIFY_ACTIVATION_BOUNDS_H

#include "dd_exp.h" /* the exact values that the bounds are about */

/* The exponential's relative error in units of u. */
#define VERIFY_EXP_ERROR 1.5
/* The terms of second order, and the evaluation of a bound in double. */
#define VERIFY_ACTIVATION_SLACK(u) ((1 + 8 * (u)) * (1 + 1e-12))

/* sigmoid(z) as a double, which is enough for a bound. 1 - sigmoid(z) is verify_sigmoid(-z). */
static inline double verify_sigmoid(double z) {
  double e = exp(-fabs(z));
  return (z < 0 ? e : 1) / (1 + e);
}

/* Relative error of the computed sigmoid before it can underflow: the exponential's, as far as it counts in 1 +
 * exp(-z), the sum's and the quotient's. */
static inline double verify_sigmoid_relative_error(double z, double u) {
  return (2 + VERIFY_EXP_ERROR * verify_sigmoid(-z)) * u * VERIFY_ACTIVATION_SLACK(u);
}

/* What underflow adds to a result, and to the oracle's where the arithmetic is that of double. */
static inline double verify_activation_underflow(double eta) {
  return eta + 0x1p-1074;
}

/* How far the computed sigmoid(z) or silu(z) can be from the exact one. */
static inline double verify_activation_error(double z, bool sigmoid, double u, double eta) {
  double relative = verify_sigmoid_relative_error(z, u), value = verify_sigmoid(z);
  if (!sigmoid) {
    relative += u * VERIFY_ACTIVATION_SLACK(u); /* the product's rounding */
    value *= fabs(z);
  }
  return relative * value + verify_activation_underflow(eta);
}

/* The same of the slope s (1 - s) or s (1 + z (1 - s)). Absolute, because 1 + z (1 - s) has a zero near z = -1.278 and
 * because 1 - s cancels for large z. */
static inline double verify_activation_slope_error(double z, bool sigmoid, double u, double eta) {
  double s = verify_sigmoid(z), rest = verify_sigmoid(-z), s_error = verify_sigmoid_relative_error(z, u) * s;
  /* of 1 - s; where that is below u/2 the computed s is 1 and the difference 0 */
  double factor = rest, error = rest < u / 2 ? rest : s_error + u * (rest + s_error);
  if (!sigmoid) {
    error = fabs(z) * error;                     /* z (1 - s) */
    error += u * (fabs(z) * rest + error) + eta; /* rounded */
    factor = fabs(1 + z * rest);
    error += u * (factor + error); /* 1 + z (1 - s), rounded */
  }
  error = s * error + s_error * (factor + error); /* times s */
  return (error + u * (s * factor + error)) * VERIFY_ACTIVATION_SLACK(u) + verify_activation_underflow(eta);
}

#endif
