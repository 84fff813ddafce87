/* SPDX-License-Identifier: MIT
 *
 * From sums to the statistic of a segment. A segment whose sum of squares left the range in which f32 (f64 for f64
 * data) is exact is measured again, scaled by a power of two (guard.cuh). */
#ifndef RMS_CUDA_STATISTIC_CUH
#define RMS_CUDA_STATISTIC_CUH

#include "sum.cuh"

namespace rms_cuda {

/* What is the same for all rows. */
template <class R> struct Norm {
  double wide_eps; /* eps, rounded to the arithmetic type before anything else: to be scaled */
  R eps;           /* the same                                                              */
  R k;             /* elements in the statistic                                             */
  int eps_limit;   /* largest exponent by which a row may be scaled                         */
  bool layer;      /* LayerNorm                                                             */
  bool eps_outside, round_before;
  bool clamp = false; /* of eps_outside: eps bounds the root, and is not added to it        */
};

/* Of the segment times `scale`, its sum of squares of that times scale*2^more. h = fma(x, scale, -mean) * r. `more` is
 * not 0 only where eps stands outside the root and keeps the scale so small that the squares would vanish. rms: used
 * where eps stands outside the root; 0 where eps bounds it from below, so that r does not depend on the segment. */
template <class R> struct Statistic {
  R sum, mean, rms, r, scale;
  int more;
};

template <class R> struct Range;
template <> struct Range<float> {
  static __device__ __forceinline__ float tiny() { return 0x1p-100f; }
  static __device__ __forceinline__ float most() { return 3.402823466e38f; }
  /* Scales stay normal numbers, and what is scaled by them has squares that add up without trouble. */
  static constexpr int lowest = -100, highest = 120;
};
template <> struct Range<double> {
  static __device__ __forceinline__ double tiny() { return 0x1p-900; }
  static __device__ __forceinline__ double most() { return 1.7976931348623157e308; }
  static constexpr int lowest = -900, highest = 1000;
};

__device__ __forceinline__ float square_root(float a) {
  return __fsqrt_rn(a);
}
__device__ __forceinline__ double square_root(double a) {
  return __dsqrt_rn(a);
}
__device__ __forceinline__ float quotient(float a, float b) {
  return __fdiv_rn(a, b);
}
__device__ __forceinline__ double quotient(double a, double b) {
  return __ddiv_rn(a, b);
}
__device__ __forceinline__ float reciprocal(float a) {
  return __frcp_rn(a);
}
__device__ __forceinline__ double reciprocal(double a) {
  return __drcp_rn(a);
}
__device__ __forceinline__ float fused(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
__device__ __forceinline__ double fused(double a, double b, double c) {
  return __fma_rn(a, b, c);
}
/* a/k with the bits of a division, where neither a nor the quotient is at the edge of the range: inverse is 1/k,
 * rounded once. */
__device__ __forceinline__ float divided(float a, float k, float inverse) {
  float q = a * inverse;
  return fused(fused(-q, k, a), inverse, q);
}
__device__ __forceinline__ float magnitude(float a) {
  return fabsf(a);
}
__device__ __forceinline__ double magnitude(double a) {
  return fabs(a);
}

/* Of a sum of squares; NaN is not in range. */
template <class R> __device__ __forceinline__ bool squares_in_range(R sum) {
  return (sum >= Range<R>::tiny()) & (sum <= Range<R>::most());
}

/* Magnitude for a search for the largest: NaN counts as infinity. */
template <class R> __device__ __forceinline__ R size_for_scale(R a) {
  a = magnitude(a);
  return a <= Range<R>::most() ? a : (R)INFINITY;
}

/* 2^e, with e first brought into the range of scales. */
__device__ __forceinline__ float power_of_two(int e, float) {
  e = e < Range<float>::lowest ? Range<float>::lowest : e > Range<float>::highest ? Range<float>::highest : e;
  return __int_as_float((e + 127) << 23);
}
__device__ __forceinline__ double power_of_two(int e, double) {
  e = e < Range<double>::lowest ? Range<double>::lowest : e > Range<double>::highest ? Range<double>::highest : e;
  return __hiloint2double((e + 1023) << 20, 0);
}

/* a*2^e, for powers beyond the range of scales too. */
__device__ __forceinline__ double power_of_two(int e) {
  return __hiloint2double((e + 1023) << 20, 0);
}
__device__ __forceinline__ float times_power(float a, int e) {
  return __double2float_rn((double)a * power_of_two(e));
}
__device__ __forceinline__ double times_power(double a, int e) {
  return scalbn(a, e);
}

/* e with 2^e <= a < 2^(e+1); for subnormal numbers that of the smallest normal one. */
__device__ __forceinline__ int exponent_of(float a) {
  return (__float_as_int(a) >> 23 & 255) - 127;
}
__device__ __forceinline__ int exponent_of(double a) {
  return (__double2hiint(a) >> 20 & 2047) - 1023;
}

/* The power of two that brings `largest` to the order of one, as far as the range of scales allows; 1 where there is
 * nothing to scale (all zeros, or something that is not finite). */
template <class R> __device__ __forceinline__ R scale_for(R largest, int limit) {
  if (!(largest > 0) || !(largest <= Range<R>::most())) return 1;
  int e = -exponent_of(largest);
  return power_of_two(e > limit ? limit : e, largest);
}

/* The largest exponent of the scale with which squares are formed. Beside eps outside the root they still count. */
template <class R> __device__ __forceinline__ int square_limit(const Norm<R> &norm) {
  return norm.eps_outside ? Range<R>::highest : norm.eps_limit;
}

/* From the scale of the squares to one that eps allows. */
template <class R> __device__ __forceinline__ void limit_scale(const Norm<R> &norm, Statistic<R> &st) {
  const int e = exponent_of(st.scale);
  if (e <= norm.eps_limit) return;
  st.more = e - norm.eps_limit;
  st.scale = power_of_two(norm.eps_limit, st.scale);
}

/* r from the sum of squares of k elements, scaled. */
template <class R> __device__ __forceinline__ void finish(const Norm<R> &norm, Statistic<R> &st, R k) {
  R eps = norm.eps;
  if (st.scale != (R)1) eps = (R)(norm.wide_eps * (double)st.scale * (norm.eps_outside ? 1.0 : (double)st.scale));
  R root = square_root(quotient(st.sum, k) + (norm.eps_outside ? (R)0 : eps));
  st.rms = 0;
  if (norm.eps_outside) {
    st.rms = st.more != 0 ? times_power(root, -st.more) : root;
    root = norm.clamp ? st.rms : st.rms + eps;
    if (norm.clamp && st.rms < eps) root = eps, st.rms = 0;
    /* all elements equal a huge mean, beside which 1/eps overflows */
    if (norm.clamp && st.scale < (R)1 && root * Range<R>::most() < (R)1) root = 0;
  }
  const R r = reciprocal(root);
  st.r = root == 0 ? (R)0 : r;
}

/* The factor of the correction where eps is added outside the root: d r / d x has r^2 / rms in place of r^3. */
template <class R> __device__ __forceinline__ R outside_factor(const Statistic<R> &st) {
  R product = st.rms * st.r;
  return product > 0 ? quotient((R)1, product) : (R)0;
}

/* The same of a correction of any row: the factor may be beyond the range where what it belongs to is not. Where eps
 * bounds the root, r is 1/rms, or there is no correction. */
template <class R>
__device__ __forceinline__ R times_outside_factor(const Norm<R> &norm, const Statistic<R> &st, R c2) {
  if (norm.clamp) return st.rms > 0 ? c2 : (R)0;
  if (st.rms * st.r >= Range<R>::tiny()) return c2 * outside_factor(st);
  return st.rms > 0 && st.r > 0 ? quotient(quotient(c2, st.rms), st.r) : (R)0;
}

/* ---- the public form, for rows that are sharded ---- */

template <class R> __device__ __forceinline__ rms_stat export_statistic(const Statistic<R> &st, int64_t count) {
  const double down = 1.0 / (double)st.scale, of_squares = down * power_of_two(-st.more);
  rms_stat out = {(double)count, (double)st.mean * down, (double)st.sum * of_squares * of_squares};
  return out;
}

template <class R> __device__ __forceinline__ Statistic<R> import_statistic(const Norm<R> &norm, const rms_stat &in) {
  Statistic<R> st = {(R)in.m2, (R)in.mean, 0, 0, 1, 0};
  if (!squares_in_range(st.sum) && (in.m2 > 0 || in.mean != 0) && in.m2 <= Range<double>::most()) {
    /* a sum of zero: all elements equal the mean, or are so small beside eps that their squares vanished */
    const int e = in.m2 > 0 ? -(exponent_of(in.m2 / in.count) / 2) : -exponent_of(in.mean), most = square_limit(norm);
    st.scale = power_of_two(e > most ? most : e, (R)0);
    st.sum = (R)(in.m2 * (double)st.scale * (double)st.scale);
    limit_scale(norm, st);
    st.mean = (R)(in.mean * (double)st.scale);
  }
  finish(norm, st, (R)in.count);
  return st;
}

/* The same in true units, as a forward saves it. rms is right where the scale was one, r in range only where it
 * is right. */
template <class R> __device__ __forceinline__ Statistic<R> given_statistic(const Norm<R> &norm, const rms_stat &in) {
  Statistic<R> st = import_statistic(norm, in);
  st.r *= st.scale;
  st.mean = quotient(st.mean, st.scale);
  if (norm.eps_outside && st.scale != (R)1) st.r = 0;
  st.scale = 1;
  return st;
}

} // namespace rms_cuda

#endif
