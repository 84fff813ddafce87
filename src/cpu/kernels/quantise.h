/* SPDX-License-Identifier: MIT
 *
 * Quantising y, which is rounded already and lies in a cache: docs/numerics.md has the arithmetic. */

enum {
  K(STEP) = 4 * LANES, /* elements that are converted together */
  K(WIDE_BLOCK) = 512  /* a block of which more is found out before it is converted */
};

/* The order of magnitudes is that of their bits, NaN above infinity. */
INLINE REAL K(most_of)(const char *y, int64_t n) {
  REAL most;
  if (T == RMS_F32) {
    VEC a = V(set)(0), b = a;
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
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
 * NaN among them and none is beyond the largest number of q. */
typedef struct {
  bool divide, within;
  bool by_inverse; /* quotients may be formed by the inverse: none of them, and no factor, is near the ends of the range
                    */
  bool lanes;      /* y is f32 in lane order: quantise_rows.h */
  bool clear;      /* within, and no product with the factor is the middle of two numbers of q: V(store8_clear) */
  int64_t ahead;   /* bytes from y to what should be fetched early; 0: nothing */
} K(quantising);

INLINE int64_t K(y_size)(K(quantising) as) {
  return as.lanes ? 4 : T_SIZE;
}

INLINE VEC K(load_y)(const char *y, int64_t j, K(quantising) as) {
  return as.lanes ? V(load)(y + 4 * j, RMS_F32, 0) : K(load)(y, j, LANES, false);
}

INLINE VEC K(correct)(VEC t, VEC y, VEC s, VEC minus_inverse) {
  return V(fma)(V(fma)(t, s, V(sub)(V(set)(-(REAL)0), y)), minus_inverse, t);
}

/* y/s by s's inverse: the quotient, less its excess times the inverse. That is the correctly rounded quotient for every
 * significand that y has in 16 bits and every one of s, as a walk over all of them shows (tests/vec/quotient.c). With
 * the 24 bits of f32 the product may be off by more than a step; corrected once it is within one, and then corrected
 * again it is the rounded quotient (Markstein's theorem). Zeros keep their sign. */
INLINE VEC K(quotient)(VEC y, VEC s, VEC inverse, VEC minus_inverse) {
  VEC t = K(correct)(V(mul)(y, inverse), y, s, minus_inverse);
  return T == RMS_F32 ? K(correct)(t, y, s, minus_inverse) : t;
}

/* By what elements are multiplied or divided, and its inverse where quotients are formed by that. */
typedef struct {
  REAL factor, inverse;
} K(divisor);

/* The same in all lanes. */
typedef struct {
  VEC factor, inverse, minus_inverse;
} K(divisors);

INLINE K(divisors) K(in_lanes)(K(divisor) by) {
  K(divisors) all = {V(set)(by.factor), V(set)(by.inverse), V(set)(-by.inverse)};
  return all;
}

INLINE VEC K(scaled)(VEC y, const K(divisors) * by, K(quantising) as) {
  if (!as.divide) return V(mul)(y, by->factor);
  return as.by_inverse ? K(quotient)(y, by->factor, by->inverse, by->minus_inverse) : V(div)(y, by->factor);
}

/* Whole steps. */
INLINE void K(convert_as)(char *q, const char *y, int64_t n, K(divisor) divisor, rms_dtype type, K(quantising) as) {
  const K(divisors) by = K(in_lanes)(divisor);
  for (int64_t j = 0; j < n; j += K(STEP)) {
    VEC a = K(scaled)(K(load_y)(y, j, as), &by, as), b = K(scaled)(K(load_y)(y, j + LANES, as), &by, as);
    VEC c = K(scaled)(K(load_y)(y, j + 2 * LANES, as), &by, as);
    VEC d = K(scaled)(K(load_y)(y, j + 3 * LANES, as), &by, as);
    if (as.ahead)
      for (int64_t line = 0; line < K(STEP) * T_SIZE; line += 64)
        vec_prefetch((const char *)((uintptr_t)y + (uintptr_t)(as.ahead + j * T_SIZE + line)));
    if (as.clear)
      V(store8_clear)(q + j, q + j + 2 * LANES, a, b, c, d, type, EO);
    else
      V(store8)(q + j, q + j + 2 * LANES, a, b, c, d, type, EO, as.within);
  }
}

/* The forms that there are, each with constants. Scales that are computed divide 8-bit floats and multiply int8; scales
 * that are given do the opposite. */
INLINE void K(convert_type)(char *q, const char *y, int64_t n, K(divisor) by, rms_dtype type, K(quantising) as) {
  const bool divides = type != RMS_I8, given = as.divide != divides;
  K(quantising) form = {.divide = divides, .by_inverse = divides, .within = true};
  if (divides && as.clear) {
    K(convert_as)(q, y, n, by, type, (K(quantising)){.lanes = true, .clear = true});
  } else if (as.within && !given && !as.lanes) {
    form.ahead = as.ahead;
    K(convert_as)(q, y, n, by, type, form);
  } else if (as.within && !given) {
    form.lanes = true;
    K(convert_as)(q, y, n, by, type, form);
  } else if (given && as.lanes && as.by_inverse && as.within) {
    form = (K(quantising)){.divide = !divides, .by_inverse = !divides, .lanes = true, .within = true};
    K(convert_as)(q, y, n, by, type, form);
  } else if (given && as.lanes && as.by_inverse) {
    form = (K(quantising)){.divide = !divides, .by_inverse = !divides, .lanes = true};
    K(convert_as)(q, y, n, by, type, form);
  } else {
    K(convert_as)(q, y, n, by, type, (K(quantising)){.divide = as.divide, .lanes = as.lanes});
  }
}

NOINLINE void K(convert_i8)(char *q, const char *y, int64_t n, K(divisor) by, K(quantising) as) {
  K(convert_type)(q, y, n, by, RMS_I8, as);
}

NOINLINE void K(convert_e4m3)(char *q, const char *y, int64_t n, K(divisor) by, K(quantising) as) {
  K(convert_type)(q, y, n, by, RMS_F8E4M3, as);
}

NOINLINE void K(convert_e5m2)(char *q, const char *y, int64_t n, K(divisor) by, K(quantising) as) {
  K(convert_type)(q, y, n, by, RMS_F8E5M2, as);
}

static void K(convert_steps)(char *q, const char *y, int64_t n, K(divisor) by, rms_dtype type, K(quantising) as) {
  if (type == RMS_F8E4M3)
    K(convert_e4m3)(q, y, n, by, as);
  else if (type == RMS_F8E5M2)
    K(convert_e5m2)(q, y, n, by, as);
  else
    K(convert_i8)(q, y, n, by, as);
}

static void K(convert)(char *q, const char *y, int64_t n, K(divisor) by, rms_dtype type, K(quantising) as) {
  const int64_t whole = n / K(STEP) * K(STEP), rest = n - whole, size = K(y_size)(as);
  K(convert_steps)(q, y, whole, by, type, as);
  if (rest > 0) {
    char from[K(STEP) * 4] = {0}, to[K(STEP)];
    /* vectors in lane order are whole */
    memcpy(from, y + whole * size, (size_t)((as.lanes ? (rest + LANES - 1) / LANES * LANES : rest) * size));
    as.ahead = 0;
    K(convert_steps)(to, from, K(STEP), by, type, as);
    memcpy(q + whole, to, (size_t)rest);
  }
}

/* ---- scales ---- */

/* Of LANES blocks: their largest magnitudes, their scales, and by what elements are divided (8-bit floats) or
 * multiplied (int8). */
typedef struct {
  REAL most[LANES], scale[LANES], factor[LANES], inverse[LANES]; /* inverse: of what divides */
  REAL clear[LANES]; /* by what elements are multiplied for V(store8_clear), or 0 */
} K(scales);

/* Of a type of q. */
INLINE REAL K(largest_number)(rms_dtype type) {
  return type == RMS_F8E4M3 ? 448 : type == RMS_F8E5M2 ? 57344 : 127;
}

/* A NaN passes through all of it: V(max) and V(min) take their second operand. */
static void K(find_scales)(const rms_quantised *q, K(scales) * s) {
  const VEC one = V(set)(1), least_number = V(set)(0x1p-149f), infinite = V(set)(REAL_MAX);
  const REAL largest = K(largest_number)(q->type);
  const bool q8_0 = q->type == RMS_Q8_0, divides = q->type == RMS_F8E4M3 || q->type == RMS_F8E5M2;
  VEC most = V(load)(s->most, REAL_TYPE, 0), plain = V(div)(most, V(set)(largest));
  VEC scale = V(max)(V(set)(q->least), plain), factor;
  if (q8_0) scale = V(min)(V(set)(65504), scale); /* the largest number of f16 */
  if (divides) {
    factor = V(if_less)(scale, least_number, one, scale);
  } else {
    factor = V(min)(infinite, V(div)(one, scale));
    if (q8_0) {
      VEC exact = V(min)(infinite, V(div)(V(set)(largest), most));
      factor = V(if_less)(plain, scale, factor, V(if_less)(scale, plain, factor, exact));
    }
  }
  V(store)(s->scale, scale, REAL_TYPE, 0);
  V(store)(s->factor, factor, REAL_TYPE, 0);
  V(store)(s->inverse, divides ? V(div)(one, factor) : factor, REAL_TYPE, 0);
}

INLINE K(divisor) K(divisor_of)(const K(scales) * s, int b) {
  K(divisor) by = {s->factor[b], s->inverse[b]};
  return by;
}

/* Below this a scale has lost digits, and so may not reach the largest magnitude. */
INLINE bool K(is_within)(REAL scale, rms_dtype type) {
  return scale >= 0x1p-80f && scale < (type == RMS_Q8_0 ? 65504.0f : 0x1p80f);
}

/* Whether all are. Those beyond the last block are like the first. */
INLINE bool K(are_within)(const K(scales) * s, rms_dtype type) {
  int all = 1;
  const REAL most = type == RMS_Q8_0 ? 65504.0f : 0x1p80f;
  for (int b = 0; b < LANES; b++)
    all &= (s->scale[b] >= 0x1p-80f) & (s->scale[b] < most);
  return all;
}

/* Two of ggml's blocks, whose scales are within the range. */
INLINE void K(convert_q8_0)(char *to, const char *y, const REAL *factor, K(quantising) as) {
  const VEC first = V(set)(factor[0]), second = V(set)(factor[1]);
  VEC a = V(mul)(K(load_y)(y, 0, as), first), b = V(mul)(K(load_y)(y, LANES, as), first);
  VEC c = V(mul)(K(load_y)(y, 2 * LANES, as), second), d = V(mul)(K(load_y)(y, 3 * LANES, as), second);
  if (as.ahead)
    for (int64_t line = 0; line < K(STEP) * T_SIZE; line += 64)
      vec_prefetch((const char *)((uintptr_t)y + (uintptr_t)(as.ahead + line)));
  V(store8)(to + 2, to + RMS_Q8_0_BYTES + 2, a, b, c, d, RMS_I8, EO, 1);
}

/* Blocks of ggml's format: the scales of all of them are rounded to f16 at once. */
INLINE void K(put_q8_0)(char *to, const K(scales) * s, const char *y, int count, K(quantising) as) {
  const int64_t bytes = RMS_Q8_0_ELEMENTS * K(y_size)(as);
  const int pairs = K(are_within)(s, RMS_Q8_0) ? count / 2 * 2 : 0;
  char half[LANES * 2];
  V(store)(half, V(load)(s->scale, RMS_F32, 0), RMS_F16, 0);
  for (int b = 0; b < count; b++)
    memcpy(to + b * RMS_Q8_0_BYTES, half + 2 * b, 2);
  for (int b = 0; b < pairs; b += 2)
    K(convert_q8_0)(to + b * RMS_Q8_0_BYTES, y + b * bytes, s->factor + b, as);
  for (int b = pairs; b < count; b++) {
    const K(divisor) by = {s->factor[b], 0};
    const K(quantising) one = {.within = K(is_within)(s->scale[b], RMS_Q8_0), .lanes = as.lanes};
    K(convert)(to + b * RMS_Q8_0_BYTES + 2, y + b * bytes, RMS_Q8_0_ELEMENTS, by, RMS_I8, one);
  }
}

/* Finds out for which scales a product with the inverse, of which the last digits may be wrong, has the same code as
 * the quotient for every y of T. They differ only beside the middle of two numbers of q: those are odd numbers of up to
 * five digits times powers of two. So none of those times the scale may be next to a number of T, within eight steps of
 * f32.
 */
static void K(find_clear)(K(scales) * s, rms_dtype type) {
  const VEC scale = V(load)(s->factor, REAL_TYPE, 0), zero = V(set)(0), splitter = V(set)(T == RMS_BF16 ? 65537 : 8193);
  VEC factor = V(mul)(V(load)(s->inverse, REAL_TYPE, 0), V(set)(type == RMS_F8E4M3 ? 0x1p-8f : 1));
  for (int odd = 1; odd < 32; odd += 2) {
    VEC middle = V(mul)(scale, V(set)((REAL)odd)), product = V(mul)(middle, splitter);
    VEC off = V(sub)(middle, V(sub)(product, V(sub)(product, middle))); /* from the digits of T: K(round_tame) */
    factor = V(if_less)(V(mul)(middle, V(set)(0x1p-20f)), V(max_bits)(zero, off), factor, zero);
  }
  V(store)(s->clear, factor, REAL_TYPE, 0);
}

INLINE bool K(may_be_clear)(rms_dtype type) {
  return T != RMS_F32 && (type == RMS_F8E4M3 || type == RMS_F8E5M2);
}

/* Blocks of whole steps in lane order, all of which are within the range. */
INLINE void K(convert_blocks)(char *q, const char *y, int64_t block, int count, const K(scales) * s, rms_dtype type) {
  const K(quantising) as = {.divide = type != RMS_I8, .by_inverse = type != RMS_I8, .within = true, .lanes = true};
  for (int b = 0; b < count; b++)
    if (K(may_be_clear)(type) && s->clear[b] != 0) K(convert_as)
  (q + b * block, y + b * block * 4, block, (K(divisor)){s->clear[b], 0}, type,
   (K(quantising)){.lanes = true, .clear = true});
  else K(convert_as)(q + b * block, y + b * block * 4, block, K(divisor_of)(s, b), type, as);
}

NOINLINE void K(convert_blocks_i8)(char *q, const char *y, int64_t block, int count, const K(scales) * s) {
  K(convert_blocks)(q, y, block, count, s, RMS_I8);
}

NOINLINE void K(convert_blocks_e4m3)(char *q, const char *y, int64_t block, int count, const K(scales) * s) {
  K(convert_blocks)(q, y, block, count, s, RMS_F8E4M3);
}

static void K(put_blocks)(const rms_quantised *q, char *to, float *scale, K(scales) * s, const char *y, int count,
                          int64_t block, K(quantising) as) {
  memcpy(scale, s->scale, (size_t)count * sizeof *scale);
  if (as.lanes && K(may_be_clear)(q->type)) K(find_clear)(s, q->type);
  if (as.lanes && block < K(WIDE_BLOCK) && block % K(STEP) == 0 && q->type != RMS_F8E5M2 && K(are_within)(s, q->type)) {
    (q->type == RMS_I8 ? K(convert_blocks_i8) : K(convert_blocks_e4m3))(to, y, block, count, s);
    return;
  }
  for (int b = 0; b < count; b++) {
    K(divisor) by = K(divisor_of)(s, b);
    as.divide = q->type != RMS_I8;
    as.within = K(is_within)(s->scale[b], q->type);
    as.clear = as.lanes && as.within && K(may_be_clear)(q->type) && s->clear[b] != 0;
    if (as.clear) by.factor = s->clear[b];
    K(convert)(to + b * block, y + b * block * K(y_size)(as), block, by, q->type, as);
  }
}

/* A scale that is given, and the forms of engines that have such: int8 divides, 8-bit floats are multiplied. clear: see
 * K(scales). */
static void K(quantise_given)(const rms_quantised *q, char *to, const char *y, int64_t n, REAL clear,
                              K(quantising) as) {
  K(divisor) by = {q->type == RMS_I8 ? *q->scale : 1 / *q->scale, 1 / *q->scale};
  as.divide = q->type == RMS_I8;
  as.clear = as.lanes && as.within && clear != 0;
  if (as.clear) by.factor = clear;
  K(convert)(to, y, n, by, q->type, as);
}

KERNEL void K(rms_quantise)(const rms_quantised *q, char *to, float *scale, const char *y, int64_t n,
                            const float *largest) {
  const bool q8_0 = q->type == RMS_Q8_0;
  const int64_t block = q8_0 ? RMS_Q8_0_ELEMENTS : largest ? n : q->block;
  if (!q8_0 && q->block == 0) {
    K(quantise_given)(q, to, y, n, 0, (K(quantising)){false});
    return;
  }
  for (int64_t blocks = n / block, first = 0; first < blocks; first += LANES) {
    const int count = blocks - first < LANES ? (int)(blocks - first) : LANES;
    const char *from = y + first * block * T_SIZE;
    K(scales) s;
    for (int b = 0; b < LANES; b++) {
      if (b < count)
        s.most[b] = largest ? *largest : K(most_of)(from + b * block * T_SIZE, block);
      else
        s.most[b] = s.most[0];
    }
    K(find_scales)(q, &s);
    if (q8_0)
      K(put_q8_0)(to + first * RMS_Q8_0_BYTES, &s, from, count, (K(quantising)){.ahead = q->ahead});
    else
      K(put_blocks)
    (q, to + first * block, scale + first, &s, from, count, block, (K(quantising)){.ahead = q->ahead});
  }
}
