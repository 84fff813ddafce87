/* SPDX-License-Identifier: MIT
 *
 * Weight + offset, and the bias, as REAL in lane order: laid out once per call where many segments share them. Rows
 * that are too wide or too few for that read them as they are. */

enum { K(GAIN_BYTES) = 16 * 1024 };

/* weight + offset; an offset of zero is -0, which changes no weight, not even a zero's sign. */
INLINE VEC K(gain)(const char *weight, int64_t j, int n, REAL offset, bool wide) {
  return V(add)(K(load)(weight, j, n, wide), V(set)(offset));
}

/* Whether h is rounded on its own before it is multiplied; never if it is not narrower than the arithmetic. */
INLINE bool K(rounds_before)(const rms_layout *lay) {
  return T != REAL_TYPE && lay->rounding == RMS_ROUND_BEFORE_WEIGHT;
}

typedef struct {
  const REAL *gain, *bias;         /* NULL: absent, or raw                               */
  const char *raw_gain, *raw_bias; /* as the caller has them, in T                       */
  int64_t inner, group;            /* elements from one inner index or group to the next */
  REAL offset;                     /* of raw gains                                       */
} K(gains);

INLINE bool K(are_raw)(const K(gains) * gains) {
  return T != REAL_TYPE && (gains->raw_gain || gains->raw_bias);
}

/* n elements of a gain in lane order; those laid out even/odd are padded to whole vectors. */
INLINE VEC K(load_gain)(const REAL *gain, int64_t j, int n) {
  return n == LANES || EO ? V(load)(gain + j, REAL_TYPE, 0) : V(load_n)(gain + j, n, REAL_TYPE, 0);
}

/* Lays out weight + offset, or the bias, of all pieces in lane order. */
static void K(lay_out_gain)(REAL *to, const char *from, int64_t pieces, int64_t width, int64_t pitch, REAL offset,
                            bool wide) {
  for (int64_t p = 0; p < pieces; p++, from += width * (wide ? 4 : T_SIZE))
    for (int64_t j = 0; j < width; j += LANES) {
      VEC g = V(add)(K(load)(from, j, width - j < LANES ? (int)(width - j) : LANES, wide), V(set)(offset));
      /* a NaN with a payload becomes the one without: see V(store_clean) */
      REAL lane[LANES];
      V(store)(lane, g, REAL_TYPE, 0);
      for (int i = 0; i < LANES; i++)
        to[p * pitch + j + i] = lane[i] == lane[i] ? lane[i] : (REAL)NAN;
    }
}

/* Finds or lays out the gain and the bias; false: they are neither that nor in T, whose NaNs
 * V(store_clean) takes. */
static bool K(prepare_gains)(const rms_layout *lay, const char *bias, int64_t segments, K(gains) * gains,
                             REAL room[2][K(GAIN_BYTES) / sizeof(REAL)]) {
  const REAL offset = lay->offset == 0 ? -(REAL)0 : (REAL)lay->offset;
  gains->raw_gain = gains->raw_bias = NULL;
  gains->offset = offset;
  if (T == REAL_TYPE && !lay->weight_is_f32 && lay->offset == 0 &&
      ((uintptr_t)lay->weight | (uintptr_t)bias) % sizeof(REAL) == 0) {
    gains->gain = (const REAL *)(const void *)lay->weight;
    gains->bias = (const REAL *)(const void *)bias;
    gains->group = lay->width;
    gains->inner = lay->weight_inner / T_SIZE;
    return true;
  }
  gains->gain = gains->bias = NULL;
  gains->group = gains->inner = 0;
  if (!lay->weight && !bias) return true;
  int64_t pieces = (lay->per_inner ? lay->inner : 1) * lay->groups, pitch = (lay->width + LANES - 1) / LANES * LANES;
  if (pieces * pitch > (int64_t)(K(GAIN_BYTES) / sizeof(REAL)) || segments < 4 * pieces) {
    if (T == REAL_TYPE || lay->weight_is_f32) return false;
    gains->raw_gain = lay->weight;
    gains->raw_bias = bias;
    gains->group = lay->width;
    gains->inner = lay->weight_inner / T_SIZE;
    return true;
  }
  if (lay->weight) K(lay_out_gain)(room[0], lay->weight, pieces, lay->width, pitch, offset, lay->weight_is_f32);
  if (bias) K(lay_out_gain)(room[1], bias, pieces, lay->width, pitch, -(REAL)0, lay->weight_is_f32);
  gains->gain = lay->weight ? room[0] : NULL;
  gains->bias = bias ? room[1] : NULL;
  gains->group = pitch;
  gains->inner = lay->per_inner ? lay->groups * pitch : 0;
  return true;
}
