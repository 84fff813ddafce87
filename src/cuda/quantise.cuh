/* SPDX-License-Identifier: MIT
 *
 * Quantising y: the scale of a block of elements, and from elements to codes of eight bits. The operations are those of
 * docs/numerics.md, and with the same y the bits are those of the CPU library. */
#ifndef RMS_CUDA_QUANTISE_CUH
#define RMS_CUDA_QUANTISE_CUH

#include <type_traits>
#include "activation.cuh"
#include "sum.cuh"

namespace rms_cuda {

/* The codes, and how an element gets to them: those of blocks of RMS_Q8_0 are int8. */
enum class Codes { I8, E4M3, E5M2 };

template <Codes CODE>
constexpr float largest_of_code = CODE == Codes::I8     ? 127.0f
                                  : CODE == Codes::E4M3 ? 448.0f
                                                        : 57344.0f;

/* ---- scales ---- */

/* What is written, and what the elements are divided by or multiplied with. within: no element is NaN or beyond the
 * largest code, and the factor is far from the ends of the range. */
struct Scale {
  float written, factor;
  bool within = false;
};

/* Below this a scale has lost digits, and so may not reach the largest magnitude. A block of zeros is no concern. */
__device__ __forceinline__ bool is_within(float largest, float scale) {
  return largest == 0 || (scale >= 0x1p-80f && scale < 0x1p80f);
}

__device__ __forceinline__ float written_nan() {
  return __uint_as_float(0x7fc00000u);
}

/* Of a block whose largest magnitude is `largest`: infinite where a NaN or an infinity is in it. 8-bit floats are
 * divided by the factor, int8 is multiplied with it. */
template <Codes CODE> __device__ __forceinline__ Scale block_scale(float largest, float least) {
  if (!(largest <= Range<float>::most())) return {written_nan(), written_nan()};
  const float scale = fmaxf(__fdiv_rn(largest, largest_of_code<CODE>), least);
  const bool within = is_within(largest, scale);
  if (CODE != Codes::I8) return {scale, scale == 0 || largest == 0 ? 1.0f : scale, within};
  return {scale, fminf(__frcp_rn(scale), Range<float>::most()), within};
}

/* Of a block of RMS_Q8_0, which is stored as f16. Where nothing else decides on the scale, the factor is the largest
 * code over the largest element, with one rounding. */
__device__ __forceinline__ Scale q8_0_scale(float largest, float least) {
  if (!(largest <= Range<float>::most())) return {written_nan(), written_nan()};
  const float plain = __fdiv_rn(largest, 127.0f), scale = fminf(fmaxf(plain, least), 65504.0f);
  return {scale, fminf(scale == plain ? __fdiv_rn(127.0f, largest) : __frcp_rn(scale), Range<float>::most()),
          is_within(largest, scale) && scale < 65504.0f};
}

__device__ __forceinline__ uint16_t q8_0_bits(float scale) {
  return scale != scale ? (uint16_t)0x7e00 : __half_as_ushort(__float2half_rn(scale));
}

/* ---- quotients ---- */

/* The quotient as IEEE division has it, as far as codes of eight bits can tell: by a reciprocal and two corrections, of
 * which the first leaves an error of less than one unit in the last place and the second none. The divisor is brought
 * to the middle of the range first; what the dividend loses by that is far below the smallest code. */
struct Divisor {
  float by, inverse, up;

  __device__ __forceinline__ explicit Divisor(float of) {
    const float size = fabsf(of);
    up = size < 0x1p-60f ? 0x1p100f : size > 0x1p60f ? 0x1p-64f : 1.0f;
    by = of * up, inverse = __frcp_rn(by);
  }
  /* ANY: the divisor is any number, and the quotient may overflow; of zero the sign is lost. Otherwise the divisor is a
   * block_scale. */
  template <bool ANY> __device__ __forceinline__ float divide(float a) const {
    a *= up;
    const float first = a * inverse, second = fused(fused(-first, by, a), inverse, first),
                third = fused(fused(-second, by, a), inverse, second);
    if (!ANY) return copysignf(third, first);
    const float size = fabsf(first);
    return size >= 0x1p-30f && size <= 0x1p30f ? third : first; /* and NaN */
  }
};

/* ---- codes ---- */

/* An 8-bit float, as src/cpu/convert.h has it, for code without an instruction for it; NaN is 0x7f. */
template <Codes CODE> __device__ __forceinline__ uint32_t f8_code(float a) {
  constexpr int shift = CODE == Codes::E4M3 ? 20 : 21;
  constexpr uint32_t rebias = CODE == Codes::E4M3 ? 120 << 3 : 112 << 2;
  constexpr float subnormal = CODE == Codes::E4M3 ? 0x1p14f : 0x1p7f; /* whose last digit is the smallest number */
  const float size = fminf(fabsf(a), largest_of_code<CODE>);
  const uint32_t bits = __float_as_uint(size), even = (1u << (shift - 1)) - 1 + (bits >> shift & 1);
  uint32_t code = ((bits + even) >> shift) - rebias;
  if ((int)code < (CODE == Codes::E4M3 ? 8 : 4)) code = __float_as_uint(size + subnormal) - __float_as_uint(subnormal);
  return a == a ? (__float_as_uint(a) >> 24 & 0x80) | code : 0x7fu;
}

/* Beside this number there are no digits behind the point: the sum rounds to even, and its low byte is the code. */
constexpr float i8_shift = 0x1.8p23f;

__device__ __forceinline__ uint32_t low_bytes(float a, float b, float c, float d) {
  const uint32_t low = __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x0040),
                 high = __byte_perm(__float_as_uint(c), __float_as_uint(d), 0x0040);
  return __byte_perm(low, high, 0x5410);
}

/* int8: NaN is 0. */
__device__ __forceinline__ float i8_bounded(float a) {
  const float inside = fminf(fmaxf(a, -127.0f), 127.0f);
  return (a == a ? inside : 0.0f) + i8_shift;
}

/* Four codes, the first in the low byte. */
template <Codes CODE> __device__ __forceinline__ uint32_t f8_four(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t codes;
  if (CODE == Codes::E4M3)
    asm("{\n .reg .b16 low, high;\n cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        " cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n mov.b32 %0, {low, high};\n}"
        : "=r"(codes)
        : "f"(a), "f"(b), "f"(c), "f"(d));
  else
    asm("{\n .reg .b16 low, high;\n cvt.rn.satfinite.e5m2x2.f32 low, %2, %1;\n"
        " cvt.rn.satfinite.e5m2x2.f32 high, %4, %3;\n mov.b32 %0, {low, high};\n}"
        : "=r"(codes)
        : "f"(a), "f"(b), "f"(c), "f"(d));
  return codes;
#else
  return f8_code<CODE>(a) | f8_code<CODE>(b) << 8 | f8_code<CODE>(c) << 16 | f8_code<CODE>(d) << 24;
#endif
}

template <Codes CODE> __device__ __forceinline__ uint32_t four_codes(float a, float b, float c, float d) {
  if (CODE == Codes::I8) return low_bytes(i8_bounded(a), i8_bounded(b), i8_bounded(c), i8_bounded(d));
  const uint32_t codes = f8_four<CODE>(a, b, c, d);
  if (CODE == Codes::E4M3) return codes;
  /* NaN is 0x7e there: one is subtracted where all lower bits are set */
  return codes - (((codes & 0x7f7f7f7fu) + 0x01010101u) >> 7 & 0x01010101u);
}

/* How the elements of a call become codes. DIVIDES: int8 with a given scale, 8-bit floats with a computed one. */
template <Codes CODE, bool GIVEN> struct Quantiser {
  static constexpr bool divides = (CODE == Codes::I8) == GIVEN;
  float factor;
  Divisor divisor;

  __device__ __forceinline__ explicit Quantiser(float by) : factor(by), divisor(divides ? by : 1.0f) {}
  __device__ __forceinline__ float quotient_of(float a) const {
    return divides ? divisor.divide<GIVEN>(a) : a * factor;
  }
  template <int V> __device__ __forceinline__ void of(const float (&y)[V], uint32_t (&codes)[V / 4]) const {
#pragma unroll
    for (int j = 0; j < V; j += 4)
      codes[j / 4] =
          four_codes<CODE>(quotient_of(y[j]), quotient_of(y[j + 1]), quotient_of(y[j + 2]), quotient_of(y[j + 3]));
  }
};

/* The same where no element is NaN or beyond the largest code, and the scale is far from the ends of the range. One
 * correction makes the quotients of 16-bit elements right, as the walk of tests/vec/quotient.c over all of them shows.
 */
template <Codes CODE, class T, bool DIVIDES> struct QuantiserWithin {
  float scale, inverse; /* not DIVIDES: elements are multiplied with the inverse */

  __device__ __forceinline__ float quotient_of(float y) const {
    const float t = y * inverse;
    if (!DIVIDES) return t;
    if constexpr (sizeof(T) == 2) return fused(fused(t, scale, -y), -inverse, t);
    const float second = fused(fused(-t, scale, y), inverse, t);
    return copysignf(fused(fused(-second, scale, y), inverse, second), t);
  }
  template <int V> __device__ __forceinline__ void of(const float (&y)[V], uint32_t (&codes)[V / 4]) const {
#pragma unroll
    for (int j = 0; j < V; j += 4) {
      float t[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        t[i] = quotient_of(y[j + i]);
      if (CODE == Codes::I8)
        codes[j / 4] = low_bytes(t[0] + i8_shift, t[1] + i8_shift, t[2] + i8_shift, t[3] + i8_shift);
      else
        codes[j / 4] = f8_four<CODE>(t[0], t[1], t[2], t[3]);
    }
  }
};

/* The same by products with the inverse of the scale, where inverse_is_enough(). */
template <Codes CODE> struct QuantiserNear {
  float inverse;

  template <int V> __device__ __forceinline__ void of(const float (&y)[V], uint32_t (&codes)[V / 4]) const {
#pragma unroll
    for (int j = 0; j < V; j += 4) {
      if (CODE == Codes::I8)
        codes[j / 4] = low_bytes(fused(y[j], inverse, i8_shift), fused(y[j + 1], inverse, i8_shift),
                                 fused(y[j + 2], inverse, i8_shift), fused(y[j + 3], inverse, i8_shift));
      else
        codes[j / 4] = f8_four<CODE>(y[j] * inverse, y[j + 1] * inverse, y[j + 2] * inverse, y[j + 3] * inverse);
    }
  }
};

/* Whether products with the inverse of the scale (2^-80 to 2^80) give every element of a 16-bit type the code of its
 * quotient. Codes differ only where a middle between two of them lies between the rounded quotient and the product, or
 * is one of the two. Both are within 2^-22.5 of the exact quotient, so such an element is within three units in the
 * last place of f32 of middle*scale. Middles are odd numbers times a power of two: odd numbers up to 253 for int8, 31
 * for e4m3, 15 for e5m2. Each lane of the warp asks for some of them whether a number with as many digits as T has lies
 * there. */
template <Codes CODE, class T> __device__ __forceinline__ bool inverse_is_enough(float scale) {
  constexpr uint32_t beyond = (1u << (23 - Exponent<T>::mantissa)) - 1; /* digits of f32 that T does not have */
  constexpr int odd_numbers = CODE == Codes::I8 ? 128 : 16;
  const float first = (float)(2 * ((int)threadIdx.x & 31) + 1);
  bool far = true;
#pragma unroll
  for (int n = 0; n < odd_numbers; n += 32)
    far &= ((__float_as_uint((first + (float)(2 * n)) * scale) + 3) & beyond) > 6;
  return __all_sync(whole_warp, far);
}

/* The quantiser of a given scale. */
template <Codes CODE> __device__ __forceinline__ Quantiser<CODE, true> given_quantiser(float scale) {
  return Quantiser<CODE, true>(CODE == Codes::I8 ? scale : __frcp_rn(scale));
}

/* ---- the largest magnitude ---- */

/* The larger of magnitudes, or of both pairs of them in 16-bit types; signs are left over, and NaN is the largest. */
template <class S> __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
  if (sizeof(S) == 4) return max(a & 0x7fffffffu, b & 0x7fffffffu);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t most;
  if (std::is_same<S, __half>::value)
    asm("max.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  else
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
#else
  return __vmaxu2(a & 0x7fff7fffu, b & 0x7fff7fffu);
#endif
}

template <class S, int V> __device__ __forceinline__ uint32_t largest_words(const Packed<S, V> &v) {
  uint32_t most = v.w[0];
#pragma unroll
  for (int i = 1; i < Packed<S, V>::words; i++)
    most = larger<S>(most, v.w[i]);
  return most;
}

/* Its bits as a number of S. */
template <class S> __device__ __forceinline__ float largest_as_float(uint32_t bits) {
  Packed<S, 4 / (int)sizeof(S)> one = {{bits}};
  float f[4 / sizeof(S)];
  unpack(one, f);
  return f[0];
}

/* Of all elements, as the bits of a number of S. */
template <class S, int V, int NV> __device__ __forceinline__ uint32_t largest_of(const Packed<S, V> (&x)[NV]) {
  uint32_t most = largest_words(x[0]);
#pragma unroll
  for (int i = 1; i < NV; i++)
    most = larger<S>(most, largest_words(x[i]));
  if (sizeof(S) == 4) return most & 0x7fffffffu;
  most &= 0x7fff7fffu;
  return max(most >> 16, most & 0xffffu);
}

/* Of each vector and those of its neighbours in a group of `lanes`. 16-bit types have two vectors in a word. */
template <class S, int V, int NV>
__device__ __forceinline__ void largest_of_vectors(const Packed<S, V> (&x)[NV], uint32_t (&most)[NV], int lanes) {
  constexpr int in_word = sizeof(S) == 2 && NV > 1 ? 2 : 1;
  uint32_t a[NV / in_word];
#pragma unroll
  for (int i = 0; i < NV / in_word; i++) {
    a[i] = largest_words(x[in_word * i]);
    if (in_word == 2) {
      const uint32_t b = largest_words(x[in_word * i + in_word - 1]);
      a[i] = larger<S>(__byte_perm(a[i], b, 0x5410), __byte_perm(a[i], b, 0x7632));
    } else if (sizeof(S) == 2) {
      a[i] = larger<S>(a[i], a[i] >> 16);
    }
  }
  for (int o = lanes / 2; o >= 1; o /= 2) {
#pragma unroll
    for (int i = 0; i < NV / in_word; i++)
      a[i] = larger<S>(a[i], __shfl_xor_sync(whole_warp, a[i], o));
  }
#pragma unroll
  for (int i = 0; i < NV; i++) {
    const uint32_t bits = a[i / in_word];
    most[i] = sizeof(S) == 4 ? bits & 0x7fffffffu : (i % in_word == 0 ? bits : bits >> 16) & 0x7fffu;
  }
}

} // namespace rms_cuda

#endif
