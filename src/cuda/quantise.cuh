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

/* Whether quotients of a largest magnitude and a largest code are far from the ends of the range. */
__device__ __forceinline__ bool is_moderate(float largest) {
  return largest >= 0x1p-60f && largest <= 0x1p60f;
}

template <Codes CODE> __device__ __forceinline__ float over_largest_code(float largest) {
  constexpr float most = largest_of_code<CODE>;
  return is_moderate(largest) ? divided(largest, most, 1 / most) : __fdiv_rn(largest, most);
}

/* Of a block whose largest magnitude is `largest`: infinite where a NaN or an infinity is in it. 8-bit floats are
 * divided by the factor, int8 is multiplied with it. */
template <Codes CODE> __device__ __forceinline__ Scale block_scale(float largest, float least) {
  if (!(largest <= Range<float>::most())) return {written_nan(), written_nan()};
  const float scale = fmaxf(over_largest_code<CODE>(largest), least);
  const bool within = is_within(largest, scale);
  if (CODE != Codes::I8) return {scale, scale == 0 || largest == 0 ? 1.0f : scale, within};
  return {scale, fminf(__frcp_rn(scale), Range<float>::most()), within};
}

/* Of a block of RMS_Q8_0, which is stored as f16. Where nothing else decides on the scale, the factor is the largest
 * code over the largest element, with one rounding. */
__device__ __forceinline__ Scale q8_0_scale(float largest, float least) {
  constexpr float code = largest_of_code<Codes::I8>, most = 65504.0f;
  if (!(largest <= Range<float>::most())) return {written_nan(), written_nan()};
  const float plain = over_largest_code<Codes::I8>(largest), scale = fminf(fmaxf(plain, least), most);
  if (is_moderate(largest) && scale == plain) {
    const float inverse = reciprocal_within(largest), factor = code * inverse;
    return {scale, fused(fused(-factor, largest, code), inverse, factor), scale < most};
  }
  return {scale, fminf(scale == plain ? __fdiv_rn(code, largest) : __frcp_rn(scale), Range<float>::most()),
          is_within(largest, scale) && scale < most};
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

/* The low bytes of two numbers, in the low half of a word, and of four. */
__device__ __forceinline__ uint32_t low_bytes(float a, float b) {
  return __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x0040);
}
__device__ __forceinline__ uint32_t low_bytes(float a, float b, float c, float d) {
  return __byte_perm(low_bytes(a, b), low_bytes(c, d), 0x5410);
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

/* The same of numbers that are neither NaN nor beyond the largest code. */
template <Codes CODE> __device__ __forceinline__ uint32_t codes_within(float a, float b, float c, float d) {
  if (CODE == Codes::I8) return low_bytes(a + i8_shift, b + i8_shift, c + i8_shift, d + i8_shift);
  return f8_four<CODE>(a, b, c, d);
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
  /* Of int8: the number whose low byte is the code. */
  __device__ __forceinline__ float shifted_of(float y) const { return i8_bounded(quotient_of(y)); }
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
  __device__ __forceinline__ float shifted_of(float y) const { return quotient_of(y) + i8_shift; }
  template <int V> __device__ __forceinline__ void of(const float (&y)[V], uint32_t (&codes)[V / 4]) const {
#pragma unroll
    for (int j = 0; j < V; j += 4) {
      float t[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        t[i] = quotient_of(y[j + i]);
      codes[j / 4] = codes_within<CODE>(t[0], t[1], t[2], t[3]);
    }
  }
};

/* The same of 16-bit elements that are divided: by products with both parts of the scale's inverse, the second of which
 * has the sign of the first, so that zeros keep theirs. The quotient is the correctly rounded one wherever a code could
 * tell, for every scale, as the walk of tests/vec/quotient.c over all of them shows. */
template <Codes CODE> struct QuantiserSplit {
  float high, low;

  __device__ __forceinline__ explicit QuantiserSplit(float scale) {
    high = __frcp_rz(scale);
    low = fused(-scale, high, 1.0f) * __uint_as_float(__float_as_uint(high) + 1);
  }
  __device__ __forceinline__ QuantiserSplit(float first, float second) : high(first), low(second) {}
  __device__ __forceinline__ float quotient_of(float y) const { return fused(y, high, y * low); }
  __device__ __forceinline__ float inverse() const { return high + low; } /* rounded once */
  template <int V> __device__ __forceinline__ void of(const float (&y)[V], uint32_t (&codes)[V / 4]) const {
#pragma unroll
    for (int j = 0; j < V; j += 4)
      codes[j / 4] =
          codes_within<CODE>(quotient_of(y[j]), quotient_of(y[j + 1]), quotient_of(y[j + 2]), quotient_of(y[j + 3]));
  }
};

/* The same by one product each, where factor_for_codes() has a factor. */
template <Codes CODE> struct QuantiserNear {
  float factor;

  template <int V> __device__ __forceinline__ void of(const float (&y)[V], uint32_t (&codes)[V / 4]) const {
#pragma unroll
    for (int j = 0; j < V; j += 4) {
      if (CODE == Codes::I8)
        codes[j / 4] = low_bytes(fused(y[j], factor, i8_shift), fused(y[j + 1], factor, i8_shift),
                                 fused(y[j + 2], factor, i8_shift), fused(y[j + 3], factor, i8_shift));
      else
        codes[j / 4] = f8_four<CODE>(y[j] * factor, y[j + 1] * factor, y[j + 2] * factor, y[j + 3] * factor);
    }
  }
};

/* A factor that gives every element of a 16-bit type the code of its quotient by the scale (2^-80 to 2^80), or 0: the
 * inverse of the scale, or for 8-bit floats the number after it. Codes can differ only where a middle between two of
 * them lies within 2^-22 of the quotient. Such an element is the number of T that is nearest to middle*scale. Middles
 * are odd numbers times a power of two: odd numbers up to 253 for int8, 31 for e4m3, 15 for e5m2. With half of the
 * smallest code for that power all of them are middles. Each lane of the warp forms the codes of some of these
 * elements; those of 8-bit floats leave half of the lanes to the second factor. */
template <Codes CODE, class T>
__device__ __forceinline__ float factor_for_codes(float scale, const QuantiserSplit<CODE> &split) {
  constexpr uint32_t beyond = (1u << (23 - Exponent<T>::mantissa)) - 1; /* digits of f32 that T does not have */
  constexpr int odd_numbers = CODE == Codes::I8 ? 128 : 16, lanes = odd_numbers < 32 ? odd_numbers : 32;
  constexpr float half = CODE == Codes::I8 ? 0.5f : CODE == Codes::E4M3 ? 0x1p-10f : 0x1p-17f;
  const int lane = (int)threadIdx.x & 31;
  const float inverse = split.inverse(), next = __uint_as_float(__float_as_uint(inverse) + 1);
  const QuantiserNear<CODE> near = {lane < lanes ? inverse : next};
  bool same = true;
#pragma unroll
  for (int n = 0; n < odd_numbers; n += lanes) {
    const float middle = (float)(2 * (n + lane % lanes) + 1) * scale,
                y = __uint_as_float((__float_as_uint(middle) + beyond / 2 + 1) & ~beyond) * half;
    const float of[4] = {y, y, y, y};
    uint32_t right[1], have[1];
    split.of(of, right);
    near.of(of, have);
    same &= have[0] == right[0];
  }
  const uint32_t lanes_same = __ballot_sync(whole_warp, same);
  if (lanes == 32) return lanes_same == whole_warp ? inverse : 0.0f;
  return (lanes_same & 0xffffu) == 0xffffu ? inverse : lanes_same >> 16 == 0xffffu ? next : 0.0f;
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

/* Of each vector, as numbers of S: 16-bit types have two vectors in a word. */
template <class S, int NV> constexpr int vectors_in_word = sizeof(S) == 2 && NV > 1 ? 2 : 1;
template <class S, int V, int NV>
__device__ __forceinline__ void largest_in_words(const Packed<S, V> (&x)[NV],
                                                 uint32_t (&a)[NV / vectors_in_word<S, NV>]) {
  constexpr int in_word = vectors_in_word<S, NV>;
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
}

/* Who has the largest magnitude of which vector after largest_shared(): a block of LANES lanes has `words` words, and
 * each of them `copies` lanes next to each other, the vectors of a word one lane each where there are enough. */
template <class S, int NV, int LANES> struct SharedOut {
  static constexpr int in_word = vectors_in_word<S, NV>, words = NV / in_word, copies = LANES / words;
  static constexpr int vectors = copies >= in_word ? 1 : in_word; /* of a lane */
  static_assert(LANES >= words, "every word has a lane");

  static __device__ __forceinline__ int vector(int lane, int k) {
    return lane % LANES / copies * in_word + (vectors == 1 ? lane % in_word : k);
  }
  /* Whether no other lane before this one has the same. */
  static __device__ __forceinline__ bool is_first(int lane) { return vectors > 1 || lane % copies < in_word; }
  /* Of the k-th vector of the lane, from its word, as a number of S. */
  static __device__ __forceinline__ uint32_t bits(uint32_t word, int lane, int k) {
    if (sizeof(S) == 4) return word & 0x7fffffffu;
    const bool upper = in_word > 1 && (vectors == 1 ? lane % in_word : k) != 0;
    return (upper ? word >> 16 : word) & 0x7fffu;
  }
};

/* Of each vector and those of its neighbours in a block of LANES lanes, each word on other lanes: SharedOut. As fold()
 * does it, that takes fewer exchanges than one after the other. */
template <int LANES, class S, int V, int NV>
__device__ __forceinline__ uint32_t largest_shared(const Packed<S, V> (&x)[NV]) {
  constexpr int words = SharedOut<S, NV, LANES>::words;
  uint32_t a[words];
  largest_in_words(x, a);
  int o = LANES / 2;
#pragma unroll
  for (int n = words / 2; n >= 1; n /= 2) {
    const bool upper = (threadIdx.x & (unsigned)o) != 0;
#pragma unroll
    for (int j = 0; j < n; j++) {
      const uint32_t send = upper ? a[j] : a[j + n], keep = upper ? a[j + n] : a[j];
      a[j] = larger<S>(keep, __shfl_xor_sync(whole_warp, send, o));
    }
    o /= 2;
  }
#pragma unroll
  for (int n = SharedOut<S, NV, LANES>::copies; n > 1; n /= 2) {
    a[0] = larger<S>(a[0], __shfl_xor_sync(whole_warp, a[0], o));
    o /= 2;
  }
  return a[0];
}

/* Of each vector and those of its neighbours in a group of `lanes`, on all of these. */
template <class S, int V, int NV>
__device__ __forceinline__ void largest_of_vectors(const Packed<S, V> (&x)[NV], uint32_t (&most)[NV], int lanes) {
  constexpr int in_word = vectors_in_word<S, NV>;
  uint32_t a[NV / in_word];
  largest_in_words(x, a);
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
