/* SPDX-License-Identifier: MIT
 *
 * Quantising y, which is rounded already and lies in a cache: docs/numerics.md has the arithmetic. */

enum { K(PAIR) = 2 * LANES };

/* The largest magnitude of n elements, as a number whose bits are above those of infinity if one of them is NaN. */
INLINE REAL K(most_of)(const char *y, int64_t n) {
  VEC a = V(set)(0), b = a;
  int64_t j = 0;
  for (; j + K(PAIR) <= n; j += K(PAIR)) {
    a = V(max_bits)(a, K(load)(y, j, LANES, false));
    b = V(max_bits)(b, K(load)(y, j + LANES, LANES, false));
  }
  for (; j < n; j += LANES)
    a = V(max_bits)(a, K(load)(y, j, n - j < LANES ? (int)(n - j) : LANES, false));
  REAL most = V(most)(V(max_bits)(a, b));
  return most <= REAL_MAX ? most : (REAL)NAN;
}

KERNEL float K(rms_largest)(const char *y, int64_t n) {
  return K(most_of)(y, n);
}

/* ---- elements ---- */

INLINE void K(convert_pair)(char *q, VEC a, VEC b, VEC factor, rms_dtype type, bool divide) {
  if (divide)
    V(store8)(q, V(div)(a, factor), V(div)(b, factor), type, EO);
  else
    V(store8)(q, V(mul)(a, factor), V(mul)(b, factor), type, EO);
}

INLINE VEC K(load_up_to)(const char *y, int64_t j, int64_t n) {
  return n >= LANES ? K(load)(y, j, LANES, false) : K(load)(y, j, n > 0 ? (int)n : 0, false);
}

/* n elements of y, divided by the factor or multiplied with it. */
INLINE void K(convert_as)(char *q, const char *y, int64_t n, REAL factor_, rms_dtype type, bool divide) {
  VEC factor = V(set)(factor_);
  int64_t j = 0;
  for (; j + K(PAIR) <= n; j += K(PAIR))
    K(convert_pair)(q + j, K(load)(y, j, LANES, false), K(load)(y, j + LANES, LANES, false), factor, type, divide);
  if (j < n) {
    char last[K(PAIR)];
    VEC a = K(load_up_to)(y, j, n - j), b = V(set)(0);
    if (n - j > LANES) b = K(load_up_to)(y, j + LANES, n - j - LANES);
    K(convert_pair)(last, a, b, factor, type, divide);
    memcpy(q + j, last, (size_t)(n - j));
  }
}

NOINLINE void K(convert_i8)(char *q, const char *y, int64_t n, REAL factor, bool divide) {
  if (divide)
    K(convert_as)(q, y, n, factor, RMS_I8, true);
  else
    K(convert_as)(q, y, n, factor, RMS_I8, false);
}

NOINLINE void K(convert_e4m3)(char *q, const char *y, int64_t n, REAL factor, bool divide) {
  if (divide)
    K(convert_as)(q, y, n, factor, RMS_F8E4M3, true);
  else
    K(convert_as)(q, y, n, factor, RMS_F8E4M3, false);
}

NOINLINE void K(convert_e5m2)(char *q, const char *y, int64_t n, REAL factor, bool divide) {
  if (divide)
    K(convert_as)(q, y, n, factor, RMS_F8E5M2, true);
  else
    K(convert_as)(q, y, n, factor, RMS_F8E5M2, false);
}

static void K(convert)(char *q, const char *y, int64_t n, REAL factor, rms_dtype type, bool divide) {
  if (type == RMS_F8E4M3)
    K(convert_e4m3)(q, y, n, factor, divide);
  else if (type == RMS_F8E5M2)
    K(convert_e5m2)(q, y, n, factor, divide);
  else
    K(convert_i8)(q, y, n, factor, divide);
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

/* Blocks of ggml's format: the scales of all of them are rounded to f16 at once. */
NOINLINE void K(put_q8_0)(char *to, const K(scales) * s, const char *y, int count) {
  char half[LANES * 2];
  V(store)(half, V(load)(s->scale, RMS_F32, 0), RMS_F16, 0);
  for (int b = 0; b < count; b++, to += RMS_Q8_0_BYTES) {
    VEC factor = V(set)(s->factor[b]);
    int64_t j = b * (int64_t)RMS_Q8_0_ELEMENTS;
    memcpy(to, half + 2 * b, 2);
    K(convert_pair)
    (to + 2, K(load)(y, j, LANES, false), K(load)(y, j + LANES, LANES, false), factor, RMS_I8, false);
  }
}

NOINLINE void K(put_blocks)(const rms_quantised *q, char *to, float *scale, const K(scales) * s, const char *y,
                            int count, int64_t block) {
  const bool divide = q->type != RMS_I8;
  memcpy(scale, s->scale, (size_t)count * sizeof *scale);
  for (int b = 0; b < count; b++)
    K(convert)(to + b * block, y + b * block * T_SIZE, block, s->factor[b], q->type, divide);
}

/* A scale that is given, and the forms of engines that have such: int8 divides, 8-bit floats are multiplied. */
static void K(quantise_given)(const rms_quantised *q, char *to, const char *y, int64_t n) {
  if (q->type == RMS_I8)
    K(convert)(to, y, n, *q->scale, q->type, true);
  else
    K(convert)(to, y, n, 1 / *q->scale, q->type, false);
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
      K(put_q8_0)(to + first * RMS_Q8_0_BYTES, &s, from, count);
    else
      K(put_blocks)(q, to + first * block, scale + first, &s, from, count, block);
  }
}
