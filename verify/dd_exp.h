/* SPDX-License-Identifier: MIT
 *
 * The exponential in double-double, and the activations of gates that are made of it. Arguments are finite. Results err
 * by at most 2^-99 of their magnitude (silu's slope s (1 + z (1 - s)): of s (1 + |z| (1 - s))), and by another 2^-1074
 * below the normal range. */
#ifndef RMSNORM_VERIFY_DD_EXP_H
#define RMSNORM_VERIFY_DD_EXP_H

#include <stdbool.h>
#include "dd.h"

/* exp(a) - 1 for |a| <= 0.35: nine terms of the series at a/1024, then ten times exp(2x) - 1 = 2(exp(x) - 1) + (exp(x)
 * - 1)^2. */
static inline dd dd_expm1_reduced(dd a) {
  const int halvings = 10;
  dd x = dd_scale(a, -halvings), sum = dd_from(1);
  for (int i = 9; i >= 2; i--)
    sum = dd_add(dd_from(1), dd_multiply(sum, dd_divide(x, dd_from(i))));
  sum = dd_multiply(sum, x);
  for (int i = 0; i < halvings; i++)
    sum = dd_add(dd_scale(sum, 1), dd_multiply(sum, sum));
  return sum;
}

/* m with exp(a) = m 2^power, m between 0.7 and 1.42. |a| is cut to 2000, where exp(a) leaves the range of doubles. */
static inline dd dd_exp_parts(dd a, int *power) {
  if (fabs(a.hi) > 2000) a = dd_from(copysign(2000, a.hi));
  double whole = nearbyint(a.hi * 1.4426950408889634);
  /* ln 2 in three parts, the first two of 40 bits: their products with a whole number are exact */
  a = dd_subtract(a, dd_from(whole * 0x1.62e42fefa2p-1));
  a = dd_subtract(a, dd_from(whole * 0x1.9ef35793c6p-41));
  a = dd_subtract(a, dd_exact_product(whole, 0x1.673007e5ed5e8p-81));
  *power = (int)whole;
  return dd_add(dd_from(1), dd_expm1_reduced(a));
}

static inline dd dd_exp(dd a) {
  int power;
  dd m = dd_exp_parts(a, &power);
  return dd_scale(m, power);
}

/* q and rest with sigmoid(z) = q 2^power and 1 - sigmoid(z) = rest, without cancellation. q lies between 0.35 and 1.42:
 * a product with it does not underflow before its time. */
static inline dd dd_sigmoid_parts(dd z, dd *rest, int *power) {
  const bool below = z.hi < 0;
  int down;
  dd m = dd_exp_parts(below ? z : dd_negate(z), &down); /* exp(-|z|) = m 2^down */
  dd whole = dd_add(dd_from(1), dd_scale(m, down));
  dd large = dd_divide(dd_from(1), whole), small = dd_divide(m, whole);
  *rest = below ? large : dd_scale(small, down);
  *power = below ? down : 0;
  return below ? small : large;
}

/* sigmoid(z) or silu(z) = z sigmoid(z) */
static inline dd dd_activation(dd z, bool sigmoid) {
  dd rest;
  int power;
  dd q = dd_sigmoid_parts(z, &rest, &power);
  return dd_scale(sigmoid ? q : dd_multiply(z, q), power);
}

static inline dd dd_sigmoid(dd z) {
  return dd_activation(z, true);
}

/* The derivative: s (1 - s), or s (1 + z (1 - s)), with s = sigmoid(z). */
static inline dd dd_activation_slope(dd z, bool sigmoid) {
  dd rest;
  int power;
  dd q = dd_sigmoid_parts(z, &rest, &power);
  return dd_scale(dd_multiply(q, sigmoid ? rest : dd_add(dd_from(1), dd_multiply(z, rest))), power);
}

#endif
