/* SPDX-License-Identifier: MIT
 *
 * Double-double numbers: the unevaluated sum of two doubles, about 106 bits. The oracle computes in these; each
 * operation errs by a few units of 2^-104, nothing beside the 2^-53 of the finest arithmetic under test. Needs
 * -ffp-contract=off. */
#ifndef RMSNORM_VERIFY_DD_H
#define RMSNORM_VERIFY_DD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct dd {
  double hi, lo;
} dd;

static inline dd dd_from(double a) {
  return (dd){a, 0};
}

/* |a| >= |b| or a = 0. What is infinite or NaN has no second part. */
static inline dd dd_fast_sum(double a, double b) {
  double sum = a + b;
  if (!isfinite(a)) return dd_from(a); /* b may be NaN then, of a finite number that left the range */
  return (dd){sum, isfinite(sum) ? b - (sum - a) : 0};
}

static inline dd dd_exact_sum(double a, double b) {
  double sum = a + b, part = sum - a;
  if (!isfinite(sum)) return dd_from(sum);
  return (dd){sum, (a - (sum - part)) + (b - part)};
}

static inline dd dd_exact_product(double a, double b) {
  double product = a * b;
  return (dd){product, isfinite(product) ? fma(a, b, -product) : 0};
}

static inline dd dd_add(dd a, dd b) {
  dd high = dd_exact_sum(a.hi, b.hi), low = dd_exact_sum(a.lo, b.lo);
  high = dd_fast_sum(high.hi, high.lo + low.hi);
  return dd_fast_sum(high.hi, high.lo + low.lo);
}

static inline dd dd_negate(dd a) {
  return (dd){-a.hi, -a.lo};
}
static inline dd dd_subtract(dd a, dd b) {
  return dd_add(a, dd_negate(b));
}

static inline dd dd_multiply(dd a, dd b) {
  dd product = dd_exact_product(a.hi, b.hi);
  return dd_fast_sum(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi));
}

/* Two Newton corrections of the double quotient. */
static inline dd dd_divide(dd a, dd b) {
  double first = a.hi / b.hi;
  dd rest = dd_subtract(a, dd_multiply(b, dd_from(first)));
  double second = rest.hi / b.hi;
  rest = dd_subtract(rest, dd_multiply(b, dd_from(second)));
  return dd_add(dd_fast_sum(first, second), dd_from(rest.hi / b.hi));
}

/* One Newton correction of the double root. a >= 0 */
static inline dd dd_sqrt(dd a) {
  if (a.hi <= 0) return dd_from(0);
  double root = sqrt(a.hi);
  dd rest = dd_subtract(a, dd_exact_product(root, root));
  return dd_fast_sum(root, rest.hi / (2 * root));
}

/* Exact but for underflow. */
static inline dd dd_scale(dd a, int exponent) {
  double hi = ldexp(a.hi, exponent);
  return (dd){hi, isfinite(hi) ? ldexp(a.lo, exponent) : 0};
}

/* A double that rounds to every type of at most 51 bits as the exact sum does: cut towards zero, last bit set if
 * anything was cut (rounding to odd), so that rounding twice is rounding once. */
static inline double dd_to_odd(dd a) {
  uint64_t bits;
  double cut = a.hi;
  if (a.lo == 0 || a.hi == 0) return a.hi;
  if ((a.lo < 0) != (a.hi < 0)) cut = nextafter(a.hi, 0);
  memcpy(&bits, &cut, sizeof bits);
  bits |= 1;
  memcpy(&cut, &bits, sizeof cut);
  return cut;
}

#endif
