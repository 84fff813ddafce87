/* SPDX-License-Identifier: MIT
 *
 * Quantising y: the scale of a block of elements, and from elements to codes of eight bits. The operations are those of
 * docs/numerics.md, and with the same y the bits are those of the CPU library. */
#ifndef RMS_CUDA_QUANTISE_CUH
#define RMS_CUDA_QUANTISE_CUH

#include <cuda_fp8.h>
#include "activation.cuh"

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

/* int8: rounded to even by adding a number beside which there are no digits behind the point. */
__device__ __forceinline__ uint32_t i8_code(float a) {
  const float inside = fminf(fmaxf(a, -127.0f), 127.0f);
  return __float_as_uint((a == a ? inside : 0.0f) + 0x1.8p23f); /* the low byte */
}

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

/* Two codes, the first in the low byte; NaN is 0x7f, whatever its sign. */
template <Codes CODE> __device__ __forceinline__ uint32_t f8_codes(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, CODE == Codes::E4M3 ? __NV_E4M3 : __NV_E5M2);
#else
  return f8_code<CODE>(a) | f8_code<CODE>(b) << 8;
#endif
}

/* Four codes, the first in the low byte. */
template <Codes CODE> __device__ __forceinline__ uint32_t four_codes(float a, float b, float c, float d) {
  if (CODE == Codes::I8) {
    const uint32_t low = __byte_perm(i8_code(a), i8_code(b), 0x0040),
                   high = __byte_perm(i8_code(c), i8_code(d), 0x0040);
    return __byte_perm(low, high, 0x5410);
  }
  const uint32_t codes = f8_codes<CODE>(a, b) | f8_codes<CODE>(c, d) << 16;
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

/* The same for a computed scale that is within: codes need no bounds, and one correction makes the quotients of 16-bit
 * elements right, as the walk of tests/vec/quotient.c over all of them shows. */
template <Codes CODE, class T> struct QuantiserWithin {
  float factor, inverse;

  __device__ __forceinline__ explicit QuantiserWithin(float by) : factor(by) {
    inverse = CODE == Codes::I8 ? 1.0f : __frcp_rn(by);
  }
  __device__ __forceinline__ float quotient_of(float y) const {
    if (CODE == Codes::I8) return y * factor;
    const float t = y * inverse;
    if constexpr (sizeof(T) == 2) return fused(fused(t, factor, -y), -inverse, t);
    const float second = fused(fused(-t, factor, y), inverse, t);
    return copysignf(fused(fused(-second, factor, y), inverse, second), t);
  }
  __device__ __forceinline__ uint32_t four_of(float a, float b, float c, float d) const {
    if constexpr (CODE == Codes::I8) {
      constexpr float shift = 0x1.8p23f; /* the low byte of the sum is the code, rounded to even */
      const uint32_t low = __byte_perm(__float_as_uint(a + shift), __float_as_uint(b + shift), 0x0040),
                     high = __byte_perm(__float_as_uint(c + shift), __float_as_uint(d + shift), 0x0040);
      return __byte_perm(low, high, 0x5410);
    } else {
      return f8_codes<CODE>(a, b) | f8_codes<CODE>(c, d) << 16;
    }
  }
  template <int V> __device__ __forceinline__ void of(const float (&y)[V], uint32_t (&codes)[V / 4]) const {
#pragma unroll
    for (int j = 0; j < V; j += 4)
      codes[j / 4] = four_of(quotient_of(y[j]), quotient_of(y[j + 1]), quotient_of(y[j + 2]), quotient_of(y[j + 3]));
  }
};

/* The quantiser of a given scale. */
template <Codes CODE> __device__ __forceinline__ Quantiser<CODE, true> given_quantiser(float scale) {
  return Quantiser<CODE, true>(CODE == Codes::I8 ? scale : __frcp_rn(scale));
}

/* ---- the largest magnitude ---- */

/* Of a vector; infinite where a NaN or an infinity is in it. The order of magnitudes is that of their bits. */
template <class S, int V> __device__ __forceinline__ float largest_magnitude(const Packed<S, V> &v) {
  uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < Packed<S, V>::words; i++)
    most = sizeof(S) == 2 ? __vmaxu2(most, v.w[i] & 0x7fff7fffu) : max(most, v.w[i] & 0x7fffffffu);
  Packed<S, 4 / (int)sizeof(S)> one = {{sizeof(S) == 2 ? max(most >> 16, most & 0xffffu) : most}};
  float f[4 / sizeof(S)];
  unpack(one, f);
  return size_for_scale(f[0]);
}

} // namespace rms_cuda

#endif
