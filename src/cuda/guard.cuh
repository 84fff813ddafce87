/* SPDX-License-Identifier: MIT
 *
 * The range guard: which rows are computed as they are, and how all others are. It stands here once for all kernels, so
 * that a row has the same bits from each of them.
 *
 * A forward measures a row again, scaled, where its sum of squares is out of range.
 *
 * A backward takes a row as it is if its r and its sums of u*h and (LayerNorm) of u lie in the middle of the range:
 * then no product of its elements overflows, and what underflows is far below the last digit of what does not. Any
 * other row is computed from x and dy times powers of two that bring their largest elements to the order of one: x
 * before its statistic is formed, dy together with the weight, so that u neither overflows nor loses digits before it
 * is scaled. */
#ifndef RMS_CUDA_GUARD_CUH
#define RMS_CUDA_GUARD_CUH

#include "statistic.cuh"

namespace rms_cuda {

/* ---- the decision ---- */

/* The limits of docs/numerics.md. */
template <class R> struct Limits;
template <> struct Limits<float> { static constexpr float r = 0x1p31f, sum = 0x1p60f; };
template <> struct Limits<double> { static constexpr double r = 0x1p250, sum = 0x1p500; };

/* NaN is not in range; nor does it need to be: a row whose r was saved as NaN has NaN everywhere, scaled or not. */
template <class R> __device__ __forceinline__ bool is_lost(R r) {
  return r != r;
}
template <class R> __device__ __forceinline__ bool r_in_range(R r) {
  return (r >= 1 / Limits<R>::r) & (r <= Limits<R>::r);
}
template <class R> __device__ __forceinline__ bool sum_in_range(R sum) {
  return (magnitude(sum) >= 1 / Limits<R>::sum) & (magnitude(sum) <= Limits<R>::sum);
}

/* ---- powers of two beyond the range ---- */

/* a*b*2^e with one rounding (f64: a second one where the result is subnormal). */
__device__ __forceinline__ float scaled_product(float a, float b, int e) {
  return __double2float_rn((double)a * (double)b * power_of_two(e));
}
__device__ __forceinline__ double scaled_product(double a, double b, int e) {
  int of_a, of_b;
  const double product = frexp(a, &of_a) * frexp(b, &of_b);
  return scalbn(product, of_a + of_b + e);
}

/* The exponent of a*b for a search for the largest, as a positive number; 0: the product is zero; infinity: it is not a
 * finite number. */
enum { EXPONENT_ZERO = 4096 };
__device__ __forceinline__ float product_exponent(float a, float b) {
  const double product = (double)a * (double)b;
  if (product == 0) return 0;
  if (!(fabs(product) <= Range<double>::most())) return INFINITY;
  return (float)(exponent_of(product) + EXPONENT_ZERO);
}
__device__ __forceinline__ double product_exponent(double a, double b) {
  int of_a, of_b;
  if (a == 0 || b == 0) return 0;
  if (!(fabs(a) <= Range<double>::most() && fabs(b) <= Range<double>::most())) return INFINITY;
  (void)frexp(a, &of_a), (void)frexp(b, &of_b);
  return of_a + of_b + EXPONENT_ZERO;
}

/* The exponent that brings the largest of these to the order of one; 0 where there is nothing to scale. */
template <class R> __device__ __forceinline__ int exponent_for(R largest) {
  return largest > 0 && largest < (R)(2 * EXPONENT_ZERO) ? EXPONENT_ZERO - (int)largest : 0;
}

/* ---- the scaled way ---- */

/* What the second half of a row needs to know. A row in range has a scale of 1 and up = 0. */
template <class R> struct RowFactors {
  R scale, mean, r; /* h = (x*scale - mean)*r            */
  int up;           /* u = dy*g*2^up                     */
  R c1, c2;         /* dx = ((u - c1) - h*c2)*r * 2^down */
  int down;
};

/* The sums of a row in these units: RMSNorm of f64 data has the sum of u*x, which the split form exchanges, in place of
 * that of u*h. */
template <class R> struct GradientSums { R dot, u; };

template <class R> __device__ __forceinline__ bool sums_x(const Norm<R> &norm) {
  return sizeof(R) == 8 && !norm.layer;
}

/* The factor of h in the sum of u*h. */
template <class R> __device__ __forceinline__ R dot_r(const Norm<R> &norm, R r) {
  return sums_x(norm) ? (R)1 : r;
}
template <class R> __device__ __forceinline__ R dot_uh(const Norm<R> &norm, R dot, R r) {
  return sums_x(norm) ? dot * r : dot;
}

/* u of one vector, from dy: as it is, or times 2^up. */
template <bool SCALED, class T, int V, class R>
__device__ __forceinline__ void gradient_u(const Norm<R> &norm, R (&u)[V], const R (&g)[V], int up) {
  if (!SCALED || norm.round_before) {
#pragma unroll
    for (int j = 0; j < V; j++)
      u[j] *= g[j];
    if (norm.round_before) round_to<T>(u);
#pragma unroll
    for (int j = 0; j < V; j++)
      if (SCALED) u[j] = times_power(u[j], up);
  } else {
#pragma unroll
    for (int j = 0; j < V; j++)
      u[j] = scaled_product(u[j], g[j], up);
  }
}

/* Sums of exactly zero are right as well where every product is: a vector of zeros in dy adds exact zeros to both sums,
 * and one of zeros in x (of LayerNorm with a mean of zero) to that of u*h. Of the latter u must be well within the
 * range, for dx = u*r there. This is decided vector by vector, so that it does not depend on who has which; a product
 * that vanished is no such zero. */
template <int V, class R> __device__ __forceinline__ bool u_in_range(const R (&u)[V]) {
  R most = 0;
#pragma unroll
  for (int j = 0; j < V; j++)
    most = magnitude(u[j]) <= most ? most : magnitude(u[j]); /* NaN stays */
  return sum_in_range(most);
}

/* The same where no element is NaN. */
template <int V> __device__ __forceinline__ bool numbers_in_range(const float (&u)[V]) {
  float most = 0;
#pragma unroll
  for (int j = 0; j < V; j++)
    most = fmaxf(most, fabsf(u[j]));
  return sum_in_range(most);
}

template <int V, class R> __device__ __forceinline__ bool is_zero(const R (&f)[V]) {
  bool zero = true;
#pragma unroll
  for (int j = 0; j < V; j++)
    zero = zero && f[j] == 0;
  return zero;
}

/* The largest exponent of the elements of u of one vector. */
template <class T, int V, class R>
__device__ __forceinline__ R largest_u(const Norm<R> &norm, R (&u)[V], const R (&g)[V]) {
  R most = 0;
  if (norm.round_before) {
#pragma unroll
    for (int j = 0; j < V; j++)
      u[j] *= g[j];
    round_to<T>(u);
  }
#pragma unroll
  for (int j = 0; j < V; j++)
    most = Max::of(most, product_exponent(u[j], norm.round_before ? (R)1 : g[j]));
  return most;
}

/* h of one vector, from x. */
template <int V, class R> __device__ __forceinline__ void gradient_h(R (&h)[V], R scale, R mean, R r) {
#pragma unroll
  for (int j = 0; j < V; j++)
    h[j] = fused(h[j], scale, -mean) * r;
}

/* dx of one vector, from u and h; mask: which elements are in the statistic. */
template <bool SCALED, int V, class R>
__device__ __forceinline__ void gradient_dx(const RowFactors<R> &f, R (&u)[V], const R (&h)[V], unsigned mask) {
#pragma unroll
  for (int j = 0; j < V; j++) {
    u[j] = fused(-h[j], mask >> j & 1 ? f.c2 : (R)0, u[j] - f.c1) * f.r;
    if (SCALED) u[j] = times_power(u[j], f.down);
  }
}

/* The same where the two terms are rounded to T on their own (RMS_STEPS_TERMS): RMSNorm, scaled or not. */
template <class T, int V, class R>
__device__ __forceinline__ void gradient_terms(const RowFactors<R> &f, R (&u)[V], const R (&h)[V], unsigned mask) {
  R second[V];
#pragma unroll
  for (int j = 0; j < V; j++) {
    second[j] = times_power(h[j] * (mask >> j & 1 ? f.c2 : (R)0) * f.r, f.down);
    u[j] = times_power(u[j] * f.r, f.down);
  }
  round_to<T>(u);
  round_to<T>(second);
#pragma unroll
  for (int j = 0; j < V; j++)
    u[j] -= second[j];
  round_to<T>(u);
}

/* ---- rows ----
 *
 * Row: the vectors of a row that a thread has, and sums over all of them.
 *   over<Op>(f)     the sum or the largest of what f(i) says of each vector i, for all threads of the row
 *   load_x(i, x), load_dy(i, dy), load_g(i, g)   the elements of vector i; zeros (g: anything finite) where there are
 *                   none
 *   mask(i)         which of them there are and are in the statistic
 *   counts_all()    whether all that there are are in it */

/* The statistic of a row, as it is or scaled. As it is, its r is in range only where it is right: eps outweighs a sum
 * that is too small to be right, unless r is large. A shard may have no elements in the statistic. */
template <bool SCALED, class R, class Row>
__device__ __forceinline__ Statistic<R> row_statistic(const Norm<R> &norm, Row &row) {
  constexpr int V = Row::V;
  Statistic<R> st = {0, 0, 0, 0, 1, 0};
  if (SCALED) {
    const R largest = row.template over<Max>([&](auto i) -> R {
      R x[V], most = 0;
      const unsigned mask = row.mask(i);
      row.load_x(i, x);
#pragma unroll
      for (int j = 0; j < V; j++)
        if (mask >> j & 1) most = Max::of(most, size_for_scale(x[j]));
      return most;
    });
    st.scale = scale_for(largest, square_limit(norm));
  }
#pragma unroll 1
  for (int squares = norm.layer ? 0 : 1; squares < 2; squares++) {
    const R total = row.template over<Add>([&](auto i) -> R {
      R x[V], sum = 0;
      row.load_x(i, x);
      if (SCALED || norm.layer) {
#pragma unroll
        for (int j = 0; j < V; j++)
          x[j] = fused(x[j], st.scale, -st.mean);
      }
      if (norm.layer || !row.counts_all()) {
        const unsigned mask = row.mask(i);
        if (mask != (1u << V) - 1) {
#pragma unroll
          for (int j = 0; j < V; j++)
            x[j] = mask >> j & 1 ? x[j] : (R)0;
        }
      }
#pragma unroll
      for (int j = 0; j < V; j++)
        sum = squares ? fused(x[j], x[j], sum) : sum + x[j];
      return sum;
    });
    if (squares)
      st.sum = total;
    else if (norm.k > 0)
      st.mean = quotient(total, norm.k);
  }
  if (SCALED) {
    limit_scale(norm, st);
    if (st.more != 0) st.mean = times_power(st.mean, -st.more);
  }
  finish(norm, st, norm.k);
  /* a sum that overflowed; eps may outweigh the sum, but rms counts too */
  if (!SCALED) st.r = is_lost(st.r) | (norm.eps_outside & !squares_in_range(st.sum)) ? (R)0 : st.r;
  return st;
}

/* The sums of a row, of u or of u*2^up. */
template <bool SCALED, class T, class R, class Row>
__device__ __forceinline__ GradientSums<R> row_sums(const Norm<R> &norm, Row &row, const Statistic<R> &st, int up) {
  constexpr int V = Row::V;
  GradientSums<R> sums = {0, 0};
#pragma unroll 1
  for (int with_h = norm.layer ? 0 : 1; with_h < 2; with_h++) {
    const R total = row.template over<Add>([&](auto i) -> R {
      R u[V], g[V], h[V], sum = 0;
      row.load_dy(i, u);
      row.load_g(i, g);
      gradient_u<SCALED, T>(norm, u, g, up);
      if (!with_h) {
#pragma unroll
        for (int j = 0; j < V; j++)
          sum += u[j];
        return sum;
      }
      row.load_x(i, h);
      gradient_h(h, st.scale, st.mean, dot_r(norm, st.r));
#pragma unroll
      for (int j = 0; j < V; j++)
        sum = fused(u[j], h[j], sum);
      return sum;
    });
    if (with_h)
      sums.dot = total;
    else
      sums.u = total;
  }
  return sums;
}

template <class R> __device__ __forceinline__ bool row_in_range(const Norm<R> &norm, R r, const GradientSums<R> &sums) {
  return is_lost(r) ||
         (r_in_range(r) && sum_in_range(dot_uh(norm, sums.dot, r)) && (!norm.layer || sum_in_range(sums.u)));
}

/* Whether every vector of a row adds exact zeros. */
template <class T, class R, class Row>
__device__ __forceinline__ bool row_adds_zeros(const Norm<R> &norm, Row &row, const Statistic<R> &st) {
  constexpr int V = Row::V;
  return row.template over<Max>([&](auto i) -> R {
    R u[V], x[V], g[V];
    row.load_dy(i, u);
    row.load_x(i, x);
    if (is_zero(u)) return 0;
    if (!is_zero(x) || st.mean != 0) return 1;
    row.load_g(i, g);
    gradient_u<false, T>(norm, u, g, 0);
    return u_in_range(u) ? (R)0 : (R)1;
  }) == 0;
}

/* The exponent by which u of a row is scaled. */
template <class T, class R, class Row> __device__ __forceinline__ int row_exponent(const Norm<R> &norm, Row &row) {
  constexpr int V = Row::V;
  return exponent_for(row.template over<Max>([&](auto i) -> R {
    R u[V], g[V];
    row.load_dy(i, u);
    row.load_g(i, g);
    return largest_u<T>(norm, u, g);
  }));
}

/* What the second half needs, from the sums. k: elements in the statistic, those of all shards. */
template <class R>
__device__ __forceinline__ RowFactors<R> factors_of(const Norm<R> &norm, const Statistic<R> &st, int up,
                                                    const GradientSums<R> &sums, R k) {
  RowFactors<R> f = {st.scale,
                     st.mean,
                     st.r,
                     up,
                     norm.layer ? quotient(sums.u, k) : (R)0,
                     quotient(dot_uh(norm, sums.dot, st.r), k),
                     exponent_of(st.scale) - up};
  if (norm.eps_outside) f.c2 = times_outside_factor(norm, st, f.c2);
  return f;
}

/* The scaled way of a row that holds all of its elements. stats: its statistic, where it is given. */
template <class T, class R, class Row>
__device__ __forceinline__ RowFactors<R> scaled_factors(const Norm<R> &norm, Row &row, const rms_stat *stats) {
  const Statistic<R> st = stats ? import_statistic<R>(norm, *stats) : row_statistic<true>(norm, row);
  const int up = row_exponent<T>(norm, row);
  return factors_of(norm, st, up, row_sums<true, T>(norm, row, st, up), stats ? (R)stats->count : norm.k);
}

} // namespace rms_cuda

#endif
