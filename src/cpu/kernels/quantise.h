/* SPDX-License-Identifier: MIT
 *
 * Quantising y, which is rounded already and lies in a cache: docs/numerics.md has the arithmetic. */

enum { K(PAIR) = 2 * LANES };

/* The order of magnitudes is that of their bits, NaN above infinity. */
INLINE REAL K(most_of)(const char *y, int64_t n) {
  REAL most;
  if (T == RMS_F32) {
    VEC a = V(set)(0), b = a;
    int64_t j = 0;
    for (; j + K(PAIR) <= n; j += K(PAIR)) {
      a = V(max_bits)(a, K(load)(y, j, LANES, false));
      b = V(max_bits)(b, K(load)(y, j + LANES, LANES, false));
    }
    for (; j < n; j += LANES)
      a = V(max_bits)(a, K(load)(y, j, n - j < LANES ? (int)(n - j) : LANES, false));
    most = V(most)(V(max_bits)(a, b));
  } else {
    const uint16_t bits = (uint16_t)vec_most16(y, n);
    most = T == RMS_BF16 ? rms_f32_from_bf16(bits) : rms_f32_from_f16(bits);
  }
  return most <= REAL_MAX ? most : (REAL)NAN;
}

KERNEL float K(rms_largest)(const char *y, int64_t n) {
  return K(most_of)(y, n);
}

/* ---- elements ---- */

/* What is known of a block: whether its elements are divided by the factor or multiplied with it; whether there is no
 * NaN among them, none is beyond the largest number of q, and the factor is far from the ends of the range. */
typedef struct {
  bool divide, within;
  int64_t ahead; /* bytes from y to what should be fetched early; 0: nothing */
} K(quantising);

/* y/s by s's inverse: the quotient, less its excess times the inverse. That is the correctly rounded quotient for every
 * significand that y has in 16 bits and every one of s, as a walk over all of them shows (tests/vec/quotient.c), and
 * zeros keep their sign. */
INLINE VEC K(quotient)(VEC y, VEC s, VEC inverse, VEC minus_inverse) {
  VEC t = V(mul)(y, inverse);
  return V(fma)(V(fma)(t, s, V(sub)(V(set)(-(REAL)0), y)), minus_inverse, t);
}

INLINE VEC K(scaled)(VEC y, VEC factor, VEC inverse, VEC minus_inverse, K(quantising) as) {
  if (!as.divide) return V(mul)(y, factor);
  return T != RMS_F32 && as.within ? K(quotient)(y, factor, inverse, minus_inverse) : V(div)(y, factor);
}

/* Whole pairs. */
INLINE void K(convert_as)(char *q, const char *y, int64_t n, REAL factor_, rms_dtype type, K(quantising) as) {
  VEC factor = V(set)(factor_), inverse = factor, minus_inverse = factor;
  if (as.divide && as.within) inverse = V(set)(1 / factor_), minus_inverse = V(set)(-(1 / factor_));
  for (int64_t j = 0; j < n; j += K(PAIR)) {
    VEC a = K(scaled)(K(load)(y, j, LANES, false), factor, inverse, minus_inverse, as);
    VEC b = K(scaled)(K(load)(y, j + LANES, LANES, false), factor, inverse, minus_inverse, as);
    if (as.ahead)
      for (int64_t line = 0; line < K(PAIR) * T_SIZE; line += 64)
        vec_prefetch((const char *)((uintptr_t)y + (uintptr_t)(as.ahead + j * T_SIZE + line)));
    V(store8)(q + j, a, b, type, EO, as.within);
  }
}

NOINLINE void K(convert_i8)(char *q, const char *y, int64_t n, REAL factor, K(quantising) as) {
  if (as.divide)
    K(convert_as)(q, y, n, factor, RMS_I8, (K(quantising)){.divide = true});
  else if (as.within)
    K(convert_as)(q, y, n, factor, RMS_I8, (K(quantising)){.within = true, .ahead = as.ahead});
  else
    K(convert_as)(q, y, n, factor, RMS_I8, (K(quantising)){false});
}

NOINLINE void K(convert_e4m3)(char *q, const char *y, int64_t n, REAL factor, K(quantising) as) {
  if (as.within)
    K(convert_as)(q, y, n, factor, RMS_F8E4M3, (K(quantising)){true, true, as.ahead});
  else if (as.divide)
    K(convert_as)(q, y, n, factor, RMS_F8E4M3, (K(quantising)){.divide = true});
  else
    K(convert_as)(q, y, n, factor, RMS_F8E4M3, (K(quantising)){false});
}

NOINLINE void K(convert_e5m2)(char *q, const char *y, int64_t n, REAL factor, K(quantising) as) {
  if (as.within)
    K(convert_as)(q, y, n, factor, RMS_F8E5M2, (K(quantising)){true, true, as.ahead});
  else if (as.divide)
    K(convert_as)(q, y, n, factor, RMS_F8E5M2, (K(quantising)){.divide = true});
  else
    K(convert_as)(q, y, n, factor, RMS_F8E5M2, (K(quantising)){false});
}

static void K(convert_pairs)(char *q, const char *y, int64_t n, REAL factor, rms_dtype type, K(quantising) as) {
  if (type == RMS_F8E4M3)
    K(convert_e4m3)(q, y, n, factor, as);
  else if (type == RMS_F8E5M2)
    K(convert_e5m2)(q, y, n, factor, as);
  else
    K(convert_i8)(q, y, n, factor, as);
}

static void K(convert)(char *q, const char *y, int64_t n, REAL factor, rms_dtype type, K(quantising) as) {
  const int64_t whole = n / K(PAIR) * K(PAIR), rest = n - whole;
  K(convert_pairs)(q, y, whole, factor, type, as);
  if (rest > 0) {
    char from[K(PAIR) * T_SIZE] = {0}, to[K(PAIR)];
    memcpy(from, y + whole * T_SIZE, (size_t)(rest * T_SIZE));
    K(convert_pairs)(to, from, K(PAIR), factor, type, as);
    memcpy(q + whole, to, (size_t)rest);
  }
}

/* ---- scales ---- */

/* Of LANES blocks: their largest magnitudes, their scales, and by what elements are divided (8-bit floats) or
 * multiplied (int8). */
typedef struct {
  REAL most[LANES], scale[LANES], factor[LANES];
} K(scales);

/* A NaN passes through all of it: V(max) and V(min) take their second operand. */
static void K(find_scales)(const rms_quantised *q, K(scales) * s) {
  const VEC one = V(set)(1), least_number = V(set)(0x1p-149f), infinite = V(set)(REAL_MAX);
  const REAL largest = q->type == RMS_F8E4M3 ? 448 : q->type == RMS_F8E5M2 ? 57344 : 127;
  const bool q8_0 = q->type == RMS_Q8_0;
  VEC most = V(load)(s->most, REAL_TYPE, 0), plain = V(div)(most, V(set)(largest));
  VEC scale = V(max)(V(set)(q->least), plain), factor;
  if (q8_0) scale = V(min)(V(set)(65504), scale); /* the largest number of f16 */
  if (q->type == RMS_F8E4M3 || q->type == RMS_F8E5M2) {
    factor = V(if_less)(scale, least_number, one, scale);
  } else {
    VEC inverse = V(div)(one, scale);
    if (q8_0) {
      VEC exact = V(div)(V(set)(largest), most);
      inverse = V(if_less)(plain, scale, inverse, V(if_less)(scale, plain, inverse, exact));
    }
    factor = V(min)(infinite, inverse);
  }
  V(store)(s->scale, scale, REAL_TYPE, 0);
  V(store)(s->factor, factor, REAL_TYPE, 0);
}

/* Below this a scale has lost digits, and so may not reach the largest magnitude. */
INLINE bool K(is_within)(REAL scale, rms_dtype type) {
  return scale >= 0x1p-80f && scale < (type == RMS_Q8_0 ? 65504.0f : 0x1p80f);
}

/* Blocks of ggml's format: the scales of all of them are rounded to f16 at once. */
NOINLINE void K(put_q8_0)(char *to, const K(scales) * s, const char *y, int count, int64_t ahead) {
  char half[LANES * 2];
  V(store)(half, V(load)(s->scale, RMS_F32, 0), RMS_F16, 0);
  for (int b = 0; b < count; b++, to += RMS_Q8_0_BYTES, y += RMS_Q8_0_ELEMENTS * T_SIZE) {
    memcpy(to, half + 2 * b, 2);
    if (__builtin_expect(K(is_within)(s->scale[b], RMS_Q8_0), 1)) K(convert_as)
    (to + 2, y, RMS_Q8_0_ELEMENTS, s->factor[b], RMS_I8, (K(quantising)){.within = true, .ahead = ahead});
    else K(convert_i8)(to + 2, y, RMS_Q8_0_ELEMENTS, s->factor[b], (K(quantising)){false});
  }
}

NOINLINE void K(put_blocks)(const rms_quantised *q, char *to, float *scale, const K(scales) * s, const char *y,
                            int count, int64_t block) {
  memcpy(scale, s->scale, (size_t)count * sizeof *scale);
  for (int b = 0; b < count; b++) {
    const K(quantising) as = {q->type != RMS_I8, K(is_within)(s->scale[b], q->type), q->ahead};
    K(convert)(to + b * block, y + b * block * T_SIZE, block, s->factor[b], q->type, as);
  }
}

/* A scale that is given, and the forms of engines that have such: int8 divides, 8-bit floats are multiplied. */
static void K(quantise_given)(const rms_quantised *q, char *to, const char *y, int64_t n) {
  if (q->type == RMS_I8)
    K(convert)(to, y, n, *q->scale, q->type, (K(quantising)){.divide = true});
  else
    K(convert)(to, y, n, 1 / *q->scale, q->type, (K(quantising)){false});
}

KERNEL void K(rms_quantise)(const rms_quantised *q, char *to, float *scale, const char *y, int64_t n,
                            const float *largest) {
  const bool q8_0 = q->type == RMS_Q8_0;
  const int64_t block = q8_0 ? RMS_Q8_0_ELEMENTS : largest ? n : q->block;
  if (!q8_0 && q->block == 0) {
    K(quantise_given)(q, to, y, n);
    return;
  }
  for (int64_t blocks = n / block, first = 0; first < blocks; first += LANES) {
    const int count = blocks - first < LANES ? (int)(blocks - first) : LANES;
    const char *from = y + first * block * T_SIZE;
    K(scales) s = {.most = {0}};
    for (int b = 0; b < count; b++)
      s.most[b] = largest ? *largest : K(most_of)(from + b * block * T_SIZE, block);
    K(find_scales)(q, &s);
    if (q8_0)
      K(put_q8_0)(to + first * RMS_Q8_0_BYTES, &s, from, count, q->ahead);
    else
      K(put_blocks)(q, to + first * block, scale + first, &s, from, count, block);
  }
}
