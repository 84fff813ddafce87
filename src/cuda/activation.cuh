/* SPDX-License-Identifier: MIT
 *
 * The activations of a gate and their slopes: silu(z) = z*sigmoid(z), and sigmoid(z) itself, in the operations of
 * docs/numerics.md and with the bits of the CPU library (src/cpu/kernels/activation.h, which explains them). */
#ifndef RMS_CUDA_ACTIVATION_CUH
#define RMS_CUDA_ACTIVATION_CUH

#include "affine.cuh"

namespace rms_cuda {

/* ---- operations ---- */

/* The larger and the smaller number; NaN goes through. */
__device__ __forceinline__ float larger(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
__device__ __forceinline__ float smaller(float a, float b) {
  float c;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
__device__ __forceinline__ double larger(double a, double b) {
  return a > b ? a : b;
}
__device__ __forceinline__ double smaller(double a, double b) {
  return a < b ? a : b;
}

/* 1/a, correctly rounded, where a is far from the ends of the range: what __frcp_rn does there, without its question
 * whether that is so. */
__device__ __forceinline__ float reciprocal_within(float a) {
  float guess;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(guess) : "f"(a));
  return fused(guess, -fused(a, guess, -1.0f), guess);
}
__device__ __forceinline__ double reciprocal_within(double a) {
  return reciprocal(a);
}

/* ---- activations ---- */

/* Below this magnitude an activation needs neither clamps nor scales. */
constexpr float shallow_gate = 64;

/* `terms`: the polynomial of exp(-r), from the highest power down. */
template <class R> struct Gate;
template <> struct Gate<float> {
  static constexpr float least = -120.0f, most = 32.0f, deep = -64.0f, scale = 0x1p-64f;
  static constexpr float shifter = 0x1.8p23f + 63, shallow_shifter = 0x1.8p23f + 127, log2e = 0x1.715476p+0f;
  static constexpr float ln2_high = 0x1.62e430p-1f, ln2_low = -0x1.05c610p-29f;
  static __device__ __forceinline__ float exponential(float r) {
    constexpr float terms[] = {
        0x1.6a2432p-10f, -0x1.1239e0p-7f, 0x1.5558f2p-5f, -0x1.555492p-3f, 0x1.fffffcp-2f, -1.0f, 1.0f};
    float p = terms[0];
#pragma unroll
    for (int i = 1; i < 7; i++)
      p = fused(r, p, terms[i]);
    return p;
  }
  /* 2^n * scale, where `shifted` is n + shifter, and 2^n where it is n + shallow_shifter. */
  static __device__ __forceinline__ float power(float shifted) {
    return __uint_as_float(__float_as_uint(shifted) << 23);
  }
};
template <> struct Gate<double> {
  static constexpr double least = -800.0, most = 64.0, deep = -512.0, scale = 0x1p-512;
  static constexpr double shifter = 0x1.8p52 + 511, shallow_shifter = 0x1.8p52 + 1023, log2e = 0x1.71547652b82fep+0;
  static constexpr double ln2_high = 0x1.62e42fefa39efp-1, ln2_low = 0x1.abc9e3b39803fp-56;
  static __device__ __forceinline__ double exponential(double r) {
    constexpr double terms[] = {-0x1.ad7f778b5f005p-26,
                                0x1.28ad705e24402p-22,
                                -0x1.71df2547e4dc8p-19,
                                0x1.a0199a0eef9adp-16,
                                -0x1.a01a012a5e90fp-13,
                                0x1.6c16c184292dfp-10,
                                -0x1.1111111127bcap-7,
                                0x1.5555555550880p-5,
                                -0x1.55555555554fap-3,
                                0x1.000000000000ap-1,
                                -1.0,
                                1.0};
    double p = terms[0];
#pragma unroll
    for (int i = 1; i < 12; i++)
      p = fused(r, p, terms[i]);
    return p;
  }
  static __device__ __forceinline__ double power(double shifted) {
    return __longlong_as_double((long long)((unsigned long long)__double_as_longlong(shifted) << 52));
  }
};

/* act(z) and its slope. NaN goes through. SHALLOW: |z| < 64, where neither the clamps nor the scales change a bit: the
 * scales are powers of two, above MOST the sigmoid is 1 as well, and the exponential is far from the ends of the range.
 */
template <class R, bool SHALLOW = false> struct Activation {
  using G = Gate<R>;
  R z, capped;  /* z from below, and from both sides, within what the exponential takes */
  R sig, scale; /* sigmoid(z), which is still to be multiplied by `scale`              */

  explicit __device__ __forceinline__ Activation(R of) {
    constexpr R one = SHALLOW ? (R)1 : G::scale, shifter = SHALLOW ? G::shallow_shifter : G::shifter;
    z = SHALLOW ? of : larger(G::least, of);
    capped = SHALLOW ? of : smaller(G::most, z);
    const R shifted = fused(capped, -G::log2e, shifter), n = shifted - shifter;
    const R r = fused(n, G::ln2_low, fused(n, G::ln2_high, capped));
    const R whole = fused(G::exponential(r), G::power(shifted), one);
    sig = reciprocal_within(whole);
    if (SHALLOW) return;
    /* the numerator is a power of two: the product is exact, and has the bits of the quotient */
    sig *= z < G::deep ? (R)1 : G::scale;
    scale = z < G::deep ? G::scale : (R)1;
  }
  __device__ __forceinline__ R scaled(R a) const { return SHALLOW ? a : a * scale; }
  __device__ __forceinline__ R value(bool sigmoid) const { return scaled(sigmoid ? sig : z * sig); }
  __device__ __forceinline__ R slope(bool sigmoid) const {
    R s = (R)1 - sig;
    if (!sigmoid) s = (R)1 + capped * s;
    return scaled(sig * s);
  }
};

/* Whether all elements of a vector are SHALLOW. Of 16-bit types, two at a time: what is added carries into the sign of
 * an element whose magnitude is 64 or more. A carry beyond the sign can only make the other element of the word look
 * larger than it is, which does no harm. */
template <int V> __device__ __forceinline__ bool is_shallow(const Packed<float, V> &z) {
  bool all = true;
#pragma unroll
  for (int j = 0; j < V; j++)
    all &= magnitude(__uint_as_float(z.w[j])) < shallow_gate;
  return all;
}
template <class T, int V> __device__ __forceinline__ bool is_shallow(const Packed<T, V> &z) {
  constexpr uint32_t rest = 0x8000u - ((uint32_t)(Exponent<T>::bias + 6) << Exponent<T>::mantissa); /* 64 = 2^6 */
  uint32_t carries = 0;
#pragma unroll
  for (int i = 0; i < Packed<T, V>::words; i++)
    carries |= (z.w[i] + (rest << 16 | rest)) ^ z.w[i];
  return (carries & 0x80008000u) == 0;
}

/* act(z) in place of z. */
template <bool SHALLOW = false, int V, class R> __device__ __forceinline__ void activate(R (&z)[V], bool sigmoid) {
#pragma unroll
  for (int j = 0; j < V; j++)
    z[j] = Activation<R, SHALLOW>(z[j]).value(sigmoid);
}

/* And the slope beside it. */
template <bool SHALLOW = false, int V, class R>
__device__ __forceinline__ void activate(R (&z)[V], R (&slope)[V], bool sigmoid) {
#pragma unroll
  for (int j = 0; j < V; j++) {
    const Activation<R, SHALLOW> a(z[j]);
    z[j] = a.value(sigmoid);
    slope[j] = a.slope(sigmoid);
  }
}

/* act(z) of a vector, and its slope where it is asked for: the same bits, sooner where all of it is SHALLOW. */
template <class T, int V, class... Slope>
__device__ __forceinline__ void activate(const Packed<T, V> &z, bool sigmoid, float (&act)[V], Slope &...slope) {
  unpack(z, act);
  if (__builtin_expect(is_shallow(z), 1))
    activate<true>(act, slope..., sigmoid);
  else
    activate(act, slope..., sigmoid);
}

template <int V, class R> __device__ __forceinline__ void multiply(R (&a)[V], const R (&b)[V]) {
#pragma unroll
  for (int j = 0; j < V; j++)
    a[j] *= b[j];
}

/* What affine made of h, as a gate after the norm takes it. */
template <class T, int V, class R> __device__ __forceinline__ void round_before_gate(R (&m)[V], const Affine &form) {
  if (form.round_before && !form.is_f32) round_to<T>(m);
}

} // namespace rms_cuda

#endif
