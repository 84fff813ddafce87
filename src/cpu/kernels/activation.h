/* SPDX-License-Identifier: MIT
 *
 * The activations of a gate and their slopes: silu(z) = z*sigmoid(z), and sigmoid(z) itself. docs/numerics.md states
 * the order of operations, docs/error-bounds.md derives the errors.
 *
 * sigmoid(z) = 1 / (1 + exp(-z)) for either sign of z, with one division. Far below zero exp(-z) overflows and the
 * quotient underflows before silu multiplies it by z. So the denominator is formed times GATE_SCALE, a power of two,
 * and so is the numerator, except below GATE_DEEP: there the quotient is the sigmoid divided by GATE_SCALE, and the
 * last operation of activate and activate_slope multiplies by GATE_SCALE again, which is the only one that can
 * underflow. */

#undef GATE_LEAST
#undef GATE_MOST
#undef GATE_DEEP
#undef GATE_SCALE
#undef GATE_TAME
#undef EXP_SHIFTER
#undef EXP_TAME_SHIFTER
#undef EXP_LOG2E
#undef EXP_LN2_HIGH
#undef EXP_LN2_LOW
#undef EXP_FIRST
#undef EXP_TERMS

/* GATE_LEAST: silu of it is less than half of the least subnormal number. GATE_MOST: sigmoid of it rounds to 1.
 * EXP_SHIFTER: a sum with it is rounded to a whole number; its last bits are the exponent field of GATE_SCALE. The one
 * for tame gates has that of 1, and is odd too, so that it rounds alike.
 * EXP_FIRST, EXP_TERMS: from the highest power down, the polynomial 1 - r + c2 r^2 + ... nearest to exp(-r) relative to
 * it for |r| <= 0.3466, found by Remez exchange with 60 digits and rounded to REAL. Its error is below 0.1 u. */
#if T_IS_F64
#define GATE_LEAST       (-800.0)
#define GATE_MOST        64.0
#define GATE_DEEP        (-512.0)
#define GATE_SCALE       0x1p-512
#define GATE_TAME        512
#define EXP_SHIFTER      (0x1.8p52 + 511)
#define EXP_TAME_SHIFTER (0x1.8p52 + 1023)
#define EXP_LOG2E        0x1.71547652b82fep+0
#define EXP_LN2_HIGH     0x1.62e42fefa39efp-1
#define EXP_LN2_LOW      0x1.abc9e3b39803fp-56
#define EXP_FIRST        (-0x1.ad7f778b5f005p-26)
#define EXP_TERMS(term)                                                                                                \
  term(0x1.28ad705e24402p-22) term(-0x1.71df2547e4dc8p-19) term(0x1.a0199a0eef9adp-16) term(-0x1.a01a012a5e90fp-13)    \
      term(0x1.6c16c184292dfp-10) term(-0x1.1111111127bcap-7) term(0x1.5555555550880p-5) term(-0x1.55555555554fap-3)   \
          term(0x1.000000000000ap-1) term(-1.0) term(1.0)
#else
#define GATE_LEAST       (-120.0f)
#define GATE_MOST        32.0f
#define GATE_DEEP        (-64.0f)
#define GATE_SCALE       0x1p-64f
#define GATE_TAME        64
#define EXP_SHIFTER      (0x1.8p23f + 63)
#define EXP_TAME_SHIFTER (0x1.8p23f + 127)
#define EXP_LOG2E        0x1.715476p+0f
#define EXP_LN2_HIGH     0x1.62e430p-1f
#define EXP_LN2_LOW      (-0x1.05c610p-29f)
#define EXP_FIRST        0x1.6a2432p-10f
#define EXP_TERMS(term)                                                                                                \
  term(-0x1.1239e0p-7f) term(0x1.5558f2p-5f) term(-0x1.555492p-3f) term(0x1.fffffcp-2f) term(-1.0f) term(1.0f)
#endif

/* (1 + exp(-z)) * one, a power of two whose exponent field the shifter has: -z = n ln 2 - r with the whole number n
 * nearest to -z/ln 2, so exp(-z) = 2^n exp(-r). The product with the power of two is exact, so that the last fma rounds
 * the sum alone. */
INLINE VEC K(one_plus_exp_minus)(VEC z, REAL shifter, REAL one) {
  VEC shifted = V(fma)(z, V(set)(-EXP_LOG2E), V(set)(shifter));
  VEC n = V(sub)(shifted, V(set)(shifter));
  VEC r = V(fma)(n, V(set)(EXP_LN2_LOW), V(fma)(n, V(set)(EXP_LN2_HIGH), z));
  VEC p = V(set)(EXP_FIRST);
#define EXP_TERM(c) p = V(fma)(r, p, V(set)(c));
  EXP_TERMS(EXP_TERM)
#undef EXP_TERM
  return V(fma)(p, V(exponent)(shifted), V(set)(one));
}

/* What activate and activate_slope want to know of z: sigmoid(z), divided by GATE_SCALE where z < GATE_DEEP. */
INLINE VEC K(sigmoid)(VEC z) {
  z = V(max)(V(set)(GATE_LEAST), z);
  VEC whole = K(one_plus_exp_minus)(V(min)(V(set)(GATE_MOST), z), EXP_SHIFTER, GATE_SCALE);
  VEC one = V(if_less)(z, V(set)(GATE_DEEP), V(set)(1), V(set)(GATE_SCALE));
  return V(div)(one, whole);
}

/* What a result still has to be multiplied by. */
INLINE VEC K(gate_scale)(VEC z) {
  return V(if_less)(z, V(set)(GATE_DEEP), V(set)(GATE_SCALE), V(set)(1));
}

/* The activation of z, whose sig is K(sigmoid)(z): sigmoid(z), or silu(z). -0 for silu of minus infinity. */
INLINE VEC K(activate)(VEC z, VEC sig, bool sigmoid) {
  z = V(max)(V(set)(GATE_LEAST), z);
  return V(mul)(sigmoid ? sig : V(mul)(z, sig), K(gate_scale)(z));
}

/* The activation's derivative at z: sig*(1 - sig), or sig*(1 + z*(1 - sig)). Above GATE_MOST 1 - sig is 0 for any z. */
INLINE VEC K(activate_slope)(VEC z, VEC sig, bool sigmoid) {
  const VEC one = V(set)(1);
  z = V(max)(V(set)(GATE_LEAST), z);
  VEC slope = V(sub)(one, sig);
  if (!sigmoid) slope = V(add)(one, V(mul)(V(min)(V(set)(GATE_MOST), z), slope));
  return V(mul)(V(mul)(sig, slope), K(gate_scale)(z));
}

/* ---- tame gates: the same bits, where no number is larger than GATE_TAME ----
 *
 * There nothing is deep, and nothing leaves the range without a scale, by which all intermediate results above differ.
 * Nor is there a need of GATE_MOST: above it the exponential vanishes beside 1. A NaN may count as
 * tame or not: its own results are NaN either way. */

INLINE bool K(are_tame)(VEC a, VEC b, VEC c, VEC d) {
  VEC first = V(max_magnitude)(V(max_bits)(V(set)(0), a), b), last = V(max_magnitude)(V(max_bits)(V(set)(0), c), d);
  VEC most = V(max_bits)(first, last); /* a NaN of one hides no number of the other */
  return V(all_less)(most, V(set)(GATE_TAME));
}

INLINE VEC K(tame_sigmoid)(VEC z) {
  return V(div)(V(set)(1), K(one_plus_exp_minus)(z, EXP_TAME_SHIFTER, 1));
}

INLINE VEC K(tame_activate)(VEC z, VEC sig, bool sigmoid) {
  return sigmoid ? sig : V(mul)(z, sig);
}

INLINE VEC K(tame_slope)(VEC z, VEC sig, bool sigmoid) {
  const VEC one = V(set)(1);
  VEC slope = V(sub)(one, sig);
  if (!sigmoid) slope = V(add)(one, V(mul)(z, slope));
  return V(mul)(sig, slope);
}
